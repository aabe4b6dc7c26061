//! The driver with its real sockets, region and control socket; only the workers are doubles
//! inside the test's process, at the other end of real channels.

mod double;
mod instance;

use std::net::TcpStream;

use double::Script;
use instance::{Instance, until};

use crate::control::protocol::{Request, Response, WorkerRole, WorkerStatus};
use crate::options::StartError;

#[test]
fn an_instance_starts_reports_reloads_and_stops() {
    let mut instance = Instance::start(&[Script::Good]);
    let status = instance.status();
    assert_eq!(status.supervisor.state, "running");
    assert_eq!(status.workers.len(), 1);
    assert_eq!((status.workers[0].role, status.workers[0].generation), (WorkerRole::Serving, 1));
    assert_eq!(status.listeners.len(), 1);
    assert_eq!(status.listeners[0].address, instance.address(0).to_string());
    let inode = status.listeners[0].inode;

    instance.configure(2);
    let (phases, done) = instance.ask(&Request::Reload);
    assert!(done.ok, "{done:?}");
    assert_eq!(phases, ["check", "prepare", "prepare", "prepare", "shift"]);
    let status = instance.status();
    assert_eq!(status.workers[0].generation, 2);
    assert_eq!(status.listeners.len(), 2);
    assert!(status.listeners.iter().any(|listener| listener.inode == inode));
    assert_eq!(status.last_transition.unwrap().result, "ok");
    TcpStream::connect(instance.address(1)).unwrap();

    let (_, done) = instance.ask(&Request::Stop);
    assert!(done.ok, "{done:?}");
    let (address, socket) = (instance.address(0), instance.control_socket());
    assert!(instance.finish().is_ok());
    // A process that a neighbouring test is just starting may hold a copy of the socket.
    until("its port is closed", || TcpStream::connect(address).is_err());
    assert!(!socket.exists());
}

#[test]
fn a_first_worker_that_refuses_and_exits_at_once_still_gets_its_say() {
    let problems = vec!["a.json:1:1: $: one".to_owned(), "a.json:2:1: $: two".to_owned()];
    let instance = Instance::launch(&[Script::Refuses(problems.clone())]);
    match instance.finish() {
        Err(StartError::Refused(told)) => assert_eq!(told, problems),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_busy_port_at_start_is_told_with_its_rule() {
    let instance = Instance::launch_with_busy_port();
    let address = instance.address(0);
    match instance.finish() {
        Err(StartError::Refused(told)) => assert_eq!(
            told,
            [format!("listen rule 0 at {address}: Address already in use (os error 98)")]
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dead_worker_is_replaced_while_clients_wait_in_the_queue() {
    let instance = Instance::start(&[Script::Good, Script::Good]);
    let inode = instance.status().listeners[0].inode;
    instance.kill(0);
    TcpStream::connect(instance.address(0)).unwrap();
    let status = instance.status_when(|status| {
        status.workers.iter().any(|w| w.pid == double::pid(1) && w.role == WorkerRole::Serving)
    });
    assert_eq!(status.listeners[0].inode, inode);
    assert_eq!(instance.metric("baton_worker_restarts_total"), Some("1".into()));
    instance.stop();
}

#[test]
fn an_upgrade_ends_with_one_worker_and_is_counted() {
    let instance = Instance::start(&[Script::Good, Script::Good]);
    let (phases, done) = instance.ask(&Request::Upgrade { binary: None, force: false });
    assert!(done.ok, "{done:?}");
    assert_eq!(phases.first().map(String::as_str), Some("check"));
    assert_eq!(phases.last().map(String::as_str), Some("watch"));
    let status = instance.status_when(|status| status.workers.len() == 1);
    assert_eq!((status.workers[0].pid, status.workers[0].generation), (double::pid(1), 2));
    assert_eq!(instance.metric("baton_upgrades_total{result=\"success\"}"), Some("1".into()));
    instance.stop();
}

#[test]
fn connections_move_on_an_upgrade_and_the_report_says_how_many() {
    let instance = Instance::start(&[Script::Living, Script::Living]);
    let (phases, done) = instance.ask(&Request::Upgrade { binary: None, force: false });
    assert!(done.ok, "{done:?}");
    assert!(phases.iter().any(|phase| phase == "migrate"), "{phases:?}");
    assert!(done.message.ends_with("; 2 connections moved, longest pause 250µs"), "{done:?}");
    instance.stop();
}

#[test]
fn an_old_worker_that_dies_while_it_gives_is_carried_on_and_the_upgrade_succeeds() {
    let instance = Instance::start(&[Script::Fragile, Script::Living]);
    let (_, done) = instance.ask(&Request::Upgrade { binary: None, force: false });
    assert!(done.ok, "{done:?}");
    let status = instance.status_when(|status| status.recovery.is_none());
    assert_eq!(status.workers.len(), 1);
    assert_eq!((status.workers[0].worker, status.workers[0].role), (2, WorkerRole::Serving));
    instance.stop();
}

#[test]
fn what_two_dead_workers_left_reaches_the_third_with_the_right_descriptors() {
    // The double compares each table it gets with the number it came under.
    let scripts = [Script::Living, Script::Fragile, Script::Living];
    let instance = Instance::start(&scripts);
    instance.kill(0);
    let status = instance.status_when(|status| {
        let serving = |w: &WorkerStatus| w.worker == 3 && w.role == WorkerRole::Serving;
        status.workers.iter().any(serving) && status.recovery.is_none()
    });
    assert_eq!(status.workers.len(), 1);
    assert_eq!(instance.metric("baton_worker_restarts_total"), Some("2".into()));
    instance.stop();
}

#[test]
fn a_question_reaches_the_serving_worker_and_its_answer_the_asker() {
    let instance = Instance::start(&[Script::Good]);
    let ask = |text: &str| {
        let request = Request::Query { text: text.into() };
        instance.conversation(&request).next_response().unwrap()
    };
    // More than a worker may say by itself, and longer than a packet.
    for number in 0..400 {
        let text = format!("{{\"quoted\": {number}}}");
        assert_eq!(ask(&text), Response::Answer { text: format!("heard {text}") });
    }
    let long = "x".repeat(200_000);
    assert_eq!(ask(&long), Response::Answer { text: format!("heard {long}") });
    let silence = ask("silence");
    let text = "the worker did not answer in time";
    assert!(matches!(&silence, Response::Done(done) if done.message == text), "{silence:?}");
    instance.stop();
}

#[test]
fn an_upgrade_to_what_cannot_be_opened_says_so() {
    let instance = Instance::start(&[Script::Good]);
    let binary = Some("/nowhere/baton".into());
    let (_, done) = instance.ask(&Request::Upgrade { binary, force: false });
    assert!(!done.ok);
    assert_eq!(done.problems, ["/nowhere/baton: No such file or directory (os error 2)"]);
    instance.stop();
}

#[test]
fn a_worker_that_sends_garbage_is_killed_and_replaced() {
    let instance = Instance::start(&[Script::Good, Script::Good]);
    instance.garbage(0);
    instance.status_when(|status| {
        status.workers.iter().any(|w| w.pid == double::pid(1) && w.role == WorkerRole::Serving)
    });
    instance.stop();
}

#[test]
fn a_worker_that_floods_is_killed_and_replaced() {
    let instance = Instance::start(&[Script::Good, Script::Good]);
    instance.flood(0);
    instance.status_when(|status| {
        status.workers.iter().any(|w| w.pid == double::pid(1) && w.role == WorkerRole::Serving)
    });
    instance.stop();
}

#[test]
fn three_hundred_listeners_reach_the_worker_in_batches() {
    let mut instance = Instance::start(&[Script::Good]);
    instance.configure(300);
    let (_, done) = instance.ask(&Request::Reload);
    assert!(done.ok, "{done:?}");
    assert_eq!(instance.status().listeners.len(), 300);
    instance.stop();
}
