//! Which crates may know which: the last column of ARCHITECTURE.md's code map.

use std::process::Command;

/// Package → what must not be among its normal dependencies.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    ("baton-config", &["tokio", "regex", "hyper", "baton-handoff", "baton-metrics"]),
    ("baton-handoff", &["baton-config", "baton-metrics", "regex", "hyper"]),
    (
        "baton-logging",
        &["tokio", "baton-handoff", "baton-metrics", "baton-supervisor", "baton-worker"],
    ),
    ("baton-metrics", &["tokio", "hyper", "baton-config", "baton-handoff"]),
    ("baton-supervisor", &["baton-worker", "regex", "hyper", "clap", "rustls", "hickory-resolver"]),
    ("baton-worker", &["baton-supervisor", "clap"]),
];

#[test]
fn no_crate_depends_on_what_it_must_not_know() {
    for (package, forbidden) in FORBIDDEN {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
            .args(["--package", package])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        let known: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(known.contains(&package), "{tree}");
        for name in forbidden {
            assert!(!known.contains(name), "{package} depends on {name}");
        }
    }
}

#[test]
fn what_is_shipped_cannot_be_made_to_fail_on_purpose() {
    let features = |edges: &str| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--package", "baton", "--prefix", "none"])
            .args(["--format", "{p} {f}", "--edges", edges])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        let line = tree.lines().find(|line| line.starts_with("baton-handoff ")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert!(features("normal,dev").contains("faults"), "the tests can");
    assert!(!features("normal,build").contains("faults"));
}
