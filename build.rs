//! Puts the commit and the build date into `--version`: from the environment of a package build,
//! else the checkout's commit and no date, so that a build is reproducible.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BATON_COMMIT");
    println!("cargo::rerun-if-env-changed=BATON_BUILD_DATE");
    println!("cargo::rerun-if-changed=.git/HEAD");
    let commit = std::env::var("BATON_COMMIT").ok().or_else(checked_out);
    println!("cargo::rustc-env=BATON_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let date = std::env::var("BATON_BUILD_DATE");
    println!("cargo::rustc-env=BATON_BUILD_DATE={}", date.as_deref().unwrap_or("unknown"));
}

fn checked_out() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
