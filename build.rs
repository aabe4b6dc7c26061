//! Puts the commit and the build date into `--version`: from the environment of a package build,
//! else the checkout's commit and no date, so that a build is reproducible.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BATON_COMMIT");
    println!("cargo::rerun-if-env-changed=BATON_BUILD_DATE");
    // Grows with every commit and checkout, in a linked work tree too. A file that is not there
    // would make cargo build anew each time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = std::env::var("BATON_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=BATON_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let date = std::env::var("BATON_BUILD_DATE").ok().filter(|date| !date.is_empty());
    let built = date.map(|date| format!(", built {date}")).unwrap_or_default();
    println!("cargo::rustc-env=BATON_BUILT={built}");
}

/// What git says, if it is there and this is a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
