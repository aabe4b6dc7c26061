//! The supervisor's view of a file.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use baton_config::process::{default_runtime_dir, read};

#[test]
fn only_its_own_section_matters_to_the_supervisor() {
    let text = br#"{"rules": "nonsense", "Log": 1, "x": 1, "x": 2,
        "supervisor": {"readyTimeout": "5s", "workerThreads": 3}}"#;
    let supervisor = read("f", text).unwrap();
    assert_eq!(supervisor.ready_timeout, Duration::from_secs(5));
    assert_eq!(supervisor.worker_threads, 3);
    assert_eq!(supervisor.max_connections, 4096);
}

#[test]
fn without_a_section_every_default_holds() {
    let supervisor = read("f", b"{}").unwrap();
    let whole = br#"{"rules": [{"name": "a", "listen": ":1", "mode": "normal",
        "targets": [{"address": "a:1"}]}]}"#;
    assert_eq!(supervisor, baton_config::parse("f", whole).unwrap().config.supervisor);
}

#[test]
fn its_own_section_is_checked_as_strictly_as_ever() {
    let text = br#"{"supervisor": {"watch": "1h", "wacth": 1, "watch": 2, "regionSize": 65537},
        "supervisor": {}}"#;
    assert_eq!(
        read("f", text).unwrap_err().to_string(),
        "f:1:26: $.supervisor.watch: \"1h\" is out of range (0s to 10m)\n\
         f:1:32: $.supervisor.wacth: unknown field \"wacth\" (did you mean \"watch\"?)\n\
         f:1:44: $.supervisor.watch: duplicate field \"watch\"\n\
         f:1:70: $.supervisor.regionSize: 65537 is not a multiple of 4096\n\
         f:2:9: $.supervisor: duplicate field \"supervisor\""
    );
    let error = read("f", br#"{"supervisor": null}"#).unwrap_err().to_string();
    assert_eq!(error, "f:1:16: $.supervisor: expected an object, found null");
}

#[test]
fn what_is_no_json_object_is_refused() {
    assert_eq!(read("f", b"{").unwrap_err().0.len(), 1);
    assert_eq!(
        read("f", b"[]").unwrap_err().to_string(),
        "f:1:1: $: expected an object, found a list"
    );
}

#[test]
fn the_runtime_directory_depends_on_the_user() {
    let dir = |uid, xdg: Option<&str>| default_runtime_dir(uid, xdg.map(OsStr::new));
    assert_eq!(dir(0, Some("/run/user/0")), Path::new("/run/baton"));
    assert_eq!(dir(1000, Some("/run/user/1000")), Path::new("/run/user/1000/baton"));
    assert_eq!(dir(1000, Some("")), Path::new("/tmp/baton-1000"));
    assert_eq!(dir(1000, Some("relative")), Path::new("/tmp/baton-1000"));
    assert_eq!(dir(1000, None), Path::new("/tmp/baton-1000"));
}
