//! Workers that are killed, and what becomes of their connections.

use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use baton_handoff::message::{Dead, Recover, Recovered, ToSupervisor, ToWorker, WorkerId};
use baton_handoff::table::Remains;

use super::boss::{Boss, Upstream, config, rule};
use super::streams::{Fate, Stream, Style};
use super::{clients, echoed};
use crate::net::testing::eventually;

const LIMIT: Duration = Duration::from_secs(60);

impl Boss {
    /// Has this worker carry on what others left.
    fn begin_recovery(&mut self, dead: &[(WorkerId, [OwnedFd; 2])]) {
        let message = Recover {
            dead: dead.iter().map(|(worker, _)| Dead { worker: *worker, since_ms: 1 }).collect(),
        };
        let fds: Vec<_> = dead.iter().flat_map(|(_, fds)| fds).map(|fd| fd.as_fd()).collect();
        self.say(&ToWorker::Recover(message), &fds);
    }

    fn recovered(&mut self) -> Recovered {
        loop {
            match self.hear() {
                ToSupervisor::Recovered(recovered) => return recovered,
                ToSupervisor::Migrated(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn recover(&mut self, dead: (WorkerId, [OwnedFd; 2])) -> Recovered {
        self.begin_recovery(&[dead]);
        self.recovered()
    }

    /// How many connections it has records of.
    fn records(&self) -> usize {
        let [table, _] = self.lifeline.as_ref().unwrap();
        Remains::open(table.try_clone().unwrap()).unwrap().entries().unwrap().len()
    }
}

#[test]
fn connections_outlive_a_worker_that_is_killed() {
    let upstream = Upstream::echo();
    let mut worker = Boss::process();
    let address = worker.listen();
    let rules = [rule("r", address, &[upstream.address])];
    worker.serve(1, &rules);
    let styles = [
        Style::Idle,
        Style::Bulk(100),
        Style::Bulk(200_000),
        Style::Slow,
        Style::HalfClosed(50_000_000),
    ];
    let streams = styles.map(|style| Stream::start(address, style));
    let mut lost = 0;
    for _ in 0..5 {
        streams.iter().for_each(Stream::advance);
        let mut next = worker.beside(true);
        let dead = worker.kill();
        next.serve(1, &rules);
        let recovered = next.recover(dead);
        assert_eq!(recovered.failures, 0);
        lost += recovered.lost;
        assert_eq!(recovered.resumed + lost, 5);
        worker = next;
    }
    let fates: Vec<Fate> = streams.into_iter().map(Stream::fate).collect();
    let reset = fates.iter().filter(|fate| **fate == Fate::Reset).count();
    assert_eq!(u64::try_from(reset).unwrap(), lost, "{fates:?}");
    worker.pulse_until(|pulse| pulse.connections == 0);
    assert_eq!(worker.records(), 0);
    assert_eq!(worker.drain(LIMIT), 0);
    assert!(worker.ended());
}

#[test]
fn a_connection_has_a_record_from_its_first_relayed_byte_to_its_end() {
    let upstream = Upstream::echo();
    let mut worker = Boss::process();
    let address = worker.listen();
    worker.serve(1, &[rule("r", address, &[upstream.address])]);
    assert_eq!(worker.records(), 0);
    let clients = clients(address, 20, b"one");
    assert_eq!(worker.records(), 20);
    drop(clients);
    eventually("the records are free", || worker.records() == 0);
}

#[test]
fn without_crash_recovery_there_is_no_lifeline() {
    let upstream = Upstream::echo();
    let mut worker = Boss::process();
    let address = worker.listen();
    let config = config(&[rule("r", address, &[upstream.address])]);
    let off = r#""supervisor":{"crashRecovery":false,"#;
    worker.serve_config(1, &config.replacen(r#""supervisor":{"#, off, 1));
    assert!(worker.lifeline.is_none());
    echoed(&mut TcpStream::connect(address).unwrap(), b"served");
}

#[test]
fn when_the_new_worker_dies_of_a_move_the_old_one_has_everything_again() {
    let upstream = Upstream::echo();
    let mut old = Boss::process();
    let address = old.listen();
    let rules = [rule("r", address, &[upstream.address])];
    old.serve(1, &rules);
    let mut clients = clients(address, 200, b"one");
    let mut new = old.beside(true);
    new.serve(1, &rules);
    new.quiesce();
    old.begin_move(&mut new, LIMIT);
    eventually("some have moved", || new.records() > 0);
    let dead = new.kill();
    let recovered = old.recover(dead);
    assert_eq!((recovered.lost, recovered.failures), (0, 0));
    clients.iter_mut().for_each(|client| echoed(client, b"two"));
    old.pulse_until(|pulse| pulse.connections == 200);
}

#[test]
fn when_the_old_worker_dies_of_a_move_the_new_one_has_everything() {
    let upstream = Upstream::echo();
    let mut old = Boss::process();
    let address = old.listen();
    let rules = [rule("r", address, &[upstream.address])];
    old.serve(1, &rules);
    let mut clients = clients(address, 200, b"one");
    let mut new = old.beside(true);
    new.serve(1, &rules);
    old.begin_move(&mut new, LIMIT);
    eventually("some have moved", || new.records() > 0);
    let dead = old.kill();
    let recovered = new.recover(dead);
    assert_eq!((recovered.lost, recovered.failures), (0, 0));
    clients.iter_mut().for_each(|client| echoed(client, b"two"));
    new.pulse_until(|pulse| pulse.connections == 200);
    assert_eq!(new.records(), 200);
}

#[test]
fn a_worker_that_does_not_answer_keeps_nobody_from_going_on() {
    let upstream = Upstream::echo();
    let mut old = Boss::process();
    let address = old.listen();
    let rules = [rule("r", address, &[upstream.address])];
    old.serve(1, &rules);
    let mut clients = clients(address, 3, b"one");
    let mut new = old.beside(true);
    new.serve(1, &rules);
    new.quiesce();
    new.freeze();
    old.begin_move(&mut new, LIMIT);
    let migrated = old.migrated(|migrated| migrated.over);
    assert_eq!(migrated.moved, 0);
    clients.iter_mut().for_each(|client| echoed(client, b"two"));
    let dead = new.kill();
    let recovered = old.recover(dead);
    assert_eq!((recovered.resumed, recovered.lost, recovered.failures), (0, 0, 0));
    clients.iter_mut().for_each(|client| echoed(client, b"three"));
}
