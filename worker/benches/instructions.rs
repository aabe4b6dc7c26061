//! How many instructions the code that every connection or message runs through executes, compared
//! with what it executed when the baseline was blessed: `cargo bench -p baton-worker --bench
//! instructions`. More than 5 % above it is a failure.
//!
//! Why not time: on a shared machine a limit on time is either too wide to notice anything or
//! fails by chance. callgrind counts what a simulated processor executes, the same each time; it
//! sees neither the kernel nor the caches, for which there is `baton-bench`.
//!
//! Counts depend on the compiler and the C library, so the baseline names them. With others the
//! comparison is shown and decides nothing; a new toolchain needs a new baseline. After a change that is
//! worth its cost, or one that made something cheaper, `just bless-instructions` writes it.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark reports on the terminal"
)]

use std::process::ExitCode;

use baseline::{Baseline, Finding};

mod baseline;
mod callgrind;
mod paths;

/// Given by this program to itself, within callgrind.
const COUNTED: &str = "--counted";

fn main() -> ExitCode {
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    if asked(COUNTED) {
        callgrind::run_all(paths::all());
        return ExitCode::SUCCESS;
    }
    if !callgrind::is_there() {
        println!("skipped: valgrind is not installed, instructions are not counted");
        return ExitCode::SUCCESS;
    }
    match gate(asked("--bless")) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("cannot count instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn gate(bless: bool) -> Result<ExitCode, String> {
    let names: Vec<_> = paths::all().into_iter().map(|path| path.name).collect();
    let counts = callgrind::count(COUNTED)?;
    if counts.len() != names.len() {
        return Err(format!("callgrind gave {} counts of {} paths", counts.len(), names.len()));
    }
    let measured = Baseline::here(names.into_iter().zip(counts).collect())?;
    if bless {
        measured.write()?;
        println!("blessed {} counts for {}", measured.instructions.len(), measured.toolchain);
        return Ok(ExitCode::SUCCESS);
    }
    let blessed = Baseline::read()?;
    let findings = blessed.compare(&measured.instructions);
    println!("{:<44}{:>12}{:>12}", "instructions", "blessed", "now");
    for finding in &findings {
        println!("{finding}");
    }
    let failed = findings.iter().any(Finding::fails);
    if blessed.toolchain != measured.toolchain {
        println!(
            "not decided: the baseline is of {}, this is {}",
            blessed.toolchain, measured.toolchain
        );
        return Ok(ExitCode::SUCCESS);
    }
    if failed {
        eprintln!("a path became more expensive; see the head of worker/benches/instructions.rs");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
