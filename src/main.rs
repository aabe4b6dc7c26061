//! The program: chooses the role (command line, supervisor, worker) and maps the outcome to an
//! exit code. Everything that lasts happens in the crates `baton-supervisor` and `baton-worker`.

mod cli;
mod demo;
mod instance;
mod output;
mod worker_role;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
