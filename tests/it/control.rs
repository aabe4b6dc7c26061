//! The control socket among clients that behave badly, and where somebody removed it.

use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::harness::{Echo, Storm, until};

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let Echo { instance, .. } = Echo::start(json!({ "watch": "0s" }));
    let socket = instance.runtime_dir().join("control.sock");
    // More than there are places.
    let silent: Vec<_> = (0..400).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for _ in 0..3 {
        instance.expect_ok(&["status"]);
    }
    instance.expect_ok(&["reload"]);
    instance.expect_ok(&["upgrade"]);
    drop(silent);
    instance.stop();
}

#[test]
fn a_runtime_directory_that_was_removed_is_made_anew() {
    let Echo { instance, entry, _upstream } =
        Echo::start(json!({ "watch": "0s", "drainTimeout": "5m" }));
    let storm = Storm::start(entry, 2);
    let worker = instance.serving();
    let file = instance.scratch().path().join("setting.json");
    for round in 0..2 {
        std::fs::remove_dir_all(instance.runtime_dir()).unwrap();
        until("it can be asked again", || instance.try_status());
        assert_eq!(instance.log().matches("it is bound anew").count(), round + 1);
        let second = instance.run(&["run", "--config", file.to_str().unwrap()]);
        assert_eq!(second.code, 1, "{second:?}");
        assert!(second.stderr.contains("another instance is running"), "{second:?}");
        if round == 0 {
            assert_eq!(instance.serving(), worker);
            instance.expect_ok(&["reload"]);
            // The next image of the supervisor looks after it as well.
            instance.expect_ok(&["upgrade"]);
        }
        storm.wait_served(10);
    }
    let report = storm.finish();
    assert_eq!((report.refused, report.reset, report.corrupt), (0, 0, 0), "{report:?}");
    instance.stop();
}

#[test]
fn a_control_socket_of_another_instance_is_left_alone() {
    let Echo { mut instance, .. } = Echo::start(json!({}));
    std::fs::remove_dir_all(instance.runtime_dir()).unwrap();
    let take = || {
        std::fs::create_dir(instance.runtime_dir()).ok()?;
        let lock = std::fs::File::create(instance.runtime_dir().join("lock")).ok()?;
        lock.try_lock().ok()?;
        Some(lock)
    };
    // Whoever comes first has it; should it be the instance itself, it is taken from it again.
    let lock = until("the directory is another's", || {
        let lock = take();
        if lock.is_none() {
            let _again = std::fs::remove_dir_all(instance.runtime_dir());
        }
        lock
    });
    let socket = instance.runtime_dir().join("control.sock");
    let file = instance.scratch().file("anothers", "another's");
    std::fs::rename(file, &socket).unwrap();
    until("it says so", || instance.log().contains("cannot be bound anew").then_some(()));
    instance.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(instance.wait_end().success());
    assert_eq!(std::fs::read(&socket).unwrap(), b"another's");
    std::fs::remove_file(&socket).unwrap();
    drop(lock);
}
