//! Established connections outlive a worker that is killed.

use std::io::Read as _;

use serde_json::json;

use crate::harness::Echo;
use crate::migrate::{echoed, quiet};
use crate::torture::family::{keeper_of, slay};

fn recovered(echo: &Echo, result: &str) -> f64 {
    echo.instance.series("baton_recovered_connections_total", &format!(r#"result="{result}""#))
}

#[test]
fn a_killed_worker_costs_no_quiet_connection() {
    let echo = Echo::start(json!({ "drainTimeout": "5m" }));
    let mut idle = quiet(echo.entry, 500);
    let old = echo.instance.serving();
    echo.instance.kill_worker(old);
    echo.instance.wait_replaced(old);
    echo.instance
        .wait_for("all are carried on", |_| (recovered(&echo, "resumed") >= 500.0).then_some(()));
    idle.iter_mut().for_each(echoed);
    assert_eq!(echo.instance.metric("baton_connections_accepted_total"), 500.0);
    assert_eq!(echo.instance.metric("baton_connections_active"), 500.0);
    assert_eq!(recovered(&echo, "in_flight"), 0.0);
    drop(idle);
    echo.instance.stop();
}

#[test]
fn a_keeper_that_is_killed_is_replaced_and_the_new_one_serves_as_well() {
    let echo = Echo::start(json!({ "drainTimeout": "5m" }));
    let mut idle = quiet(echo.entry, 5);
    let old = echo.instance.serving();
    let keeper = || keeper_of(&echo.instance, old);
    let killed = keeper().unwrap();
    slay(killed);
    echo.instance.wait_for("another keeper", |_| keeper().filter(|pid| *pid != killed));
    // The worker answers after it has told of the new one, and the supervisor hears that first.
    echo.instance.expect_ok(&["explain", "--rule", "echo"]);
    echo.instance.kill_worker(old);
    echo.instance.wait_replaced(old);
    echo.instance
        .wait_for("all are carried on", |_| (recovered(&echo, "resumed") >= 5.0).then_some(()));
    idle.iter_mut().for_each(echoed);
    drop(idle);
    echo.instance.stop();
}

#[test]
fn without_crash_recovery_connections_end_with_the_worker() {
    let echo = Echo::start(json!({ "drainTimeout": "5m", "crashRecovery": false }));
    let mut idle = quiet(echo.entry, 5);
    let old = echo.instance.serving();
    echo.instance.kill_worker(old);
    echo.instance.wait_replaced(old);
    for stream in &mut idle {
        // Without a keeper it is the kernel that ends it, in its own way.
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert_eq!(recovered(&echo, "resumed"), 0.0);
    echo.instance.stop();
}
