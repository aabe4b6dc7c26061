//! Under a real systemd, booted for the occasion: see `tests/tools/systemd-sandbox`.

use std::path::Path;
use std::process::Command;

use crate::harness::Scratch;

/// The sandbox says so when systemd did not come up.
const NO_SYSTEMD: i32 = 125;

/// Runs a scenario of `tests/it/systemd/` inside the sandbox, with the binary and the unit beside it.
fn scenario(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !nix::unistd::Uid::effective().is_root() || !Path::new("/lib/systemd/systemd").exists() {
        eprintln!("SKIPPED {name}: needs root and systemd");
        return;
    }
    let scratch = Scratch::new();
    let output = Command::new(root.join("tests/tools/systemd-sandbox"))
        .arg("--bind")
        .arg(scratch.path())
        .args(["--", "env"])
        .arg(format!("BATON={}", env!("CARGO_BIN_EXE_baton")))
        .arg(format!("ROOT={}", root.display()))
        .arg(format!("SCRATCH={}", scratch.path().display()))
        .arg("bash")
        .arg(root.join("tests/it/systemd").join(name))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_SYSTEMD) {
        eprintln!("SKIPPED {name}: no systemd in namespaces here: {complained}");
        return;
    }
    assert!(output.status.success(), "{name} ({}):\n{said}\n{complained}", output.status);
}

#[test]
fn the_unit_starts_reloads_upgrades_and_stops() {
    scenario("life.sh");
}

#[test]
fn the_unit_comes_back_after_a_hang_and_a_kill() {
    scenario("watchdog.sh");
}

#[test]
fn sockets_of_a_socket_unit_are_adopted() {
    scenario("sockets.sh");
}

#[test]
fn listeners_survive_restarts_and_kills_and_connections_where_configured() {
    scenario("restart.sh");
}
