//! Every mode once, against an upstream in this process. Counts, never times.

use std::net::Ipv4Addr;

use super::*;
use crate::procfs::Sample;
use crate::report::Report;
use crate::upstream::Upstream;
use crate::wire::Direction;

fn upstream() -> Upstream {
    Upstream::start((Ipv4Addr::LOCALHOST, 0).into(), 2).unwrap()
}

fn load(upstream: &Upstream, connections: usize) -> Load {
    let duration = Duration::from_millis(60);
    Load { target: upstream.address(), connections, threads: 2, duration }
}

/// Runs with ever more time until something came of it: on a machine that is busy with something
/// else, a short time may be over before anything has begun.
fn until_enough(
    mut load: Load,
    run: impl Fn(&Load) -> Report,
    enough: impl Fn(&Report) -> bool,
) -> Report {
    loop {
        let report = run(&load);
        if enough(&report) || load.duration > Duration::from_secs(30) {
            return report;
        }
        load.duration *= 2;
    }
}

fn clean(report: &Report) {
    assert_eq!((report.corrupt, report.cut, report.errors.total()), (0, 0, 0), "{report:?}");
}

#[test]
fn bulk_moves_verified_bytes_in_each_direction() {
    let upstream = upstream();
    for direction in [Direction::Down, Direction::Up, Direction::Both] {
        let bulk = bulk::Bulk { direction, writes: [4096, 1 << 20] };
        let report = until_enough(
            load(&upstream, 3),
            |load| bulk::run(load, bulk).unwrap(),
            |report| {
                (report.up_bytes > 0) == direction.up()
                    && (report.down_bytes > 0) == direction.down()
            },
        );
        clean(&report);
        assert_eq!(report.done, 3);
        assert_eq!(
            (report.up_bytes > 0, report.down_bytes > 0),
            (direction.up(), direction.down())
        );
    }
}

#[test]
fn churn_answers_each_request_and_sees_the_upstream_close() {
    let upstream = upstream();
    for (size, rate) in [(5, 0.0), (10_000, 0.0), (64, 200.0)] {
        let churn = churn::Churn { size, rate };
        let report = until_enough(
            load(&upstream, 2),
            |load| churn::run(load, churn).unwrap(),
            |report| report.done > 0,
        );
        clean(&report);
        assert!(report.done > 0 && report.latency_us.is_some_and(|q| q.p99 > 0));
    }
}

#[test]
fn pingpong_gets_back_what_it_sent() {
    let upstream = upstream();
    for size in [64, 4096] {
        let report = until_enough(
            load(&upstream, 2),
            |load| pingpong::run(load, size).unwrap(),
            |report| report.done >= 2,
        );
        clean(&report);
        assert!(report.done >= 2);
    }
}

#[test]
fn idle_connections_are_proven_counted_and_closed() {
    let upstream = upstream();
    let look = || Sample { processes: 1, pss_kib: 100.0, fds: 7, cpu_s: 0.0 };
    let report = idle::run(&load(&upstream, 5), &look).unwrap();
    clean(&report);
    assert_eq!(report.done, 5);
    assert_eq!(report.held.map(|h| h.fds_each(report.done)), Some(0.0));
}

#[test]
fn halfclose_wants_the_whole_answer() {
    let upstream = upstream();
    let report = halfclose::run(&load(&upstream, 2), 300_000).unwrap();
    clean(&report);
    assert_eq!((report.done, report.down_bytes), (2, 600_000));
}

#[test]
fn upgrade_runs_its_trigger_under_both_loads() {
    let upstream = upstream();
    let upgrade = upgrade::Upgrade {
        trigger: "echo turned".to_owned(),
        at: Duration::from_millis(10),
        rate: 200.0,
    };
    let mut load = load(&upstream, 3);
    load.duration = Duration::from_millis(200);
    let report = until_enough(
        load,
        |load| upgrade::run(load, &upgrade).unwrap(),
        |report| report.up_bytes > 0 && report.down_bytes > 0,
    );
    clean(&report);
    let trigger = report.trigger.unwrap();
    assert!(trigger.success && trigger.output.contains("turned"));
    assert_eq!(report.done, 3);
    assert!(report.up_bytes > 0 && report.down_bytes > 0 && report.longest_stall_ms.is_some());
}

#[test]
fn a_target_that_is_not_there_is_reported_as_refused() {
    // Bound and not listening: nobody else can be given the port meanwhile.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(&any.into()).unwrap();
    let target = socket.local_addr().unwrap().as_socket().unwrap();
    let duration = Duration::from_millis(20);
    let load = Load { target, connections: 2, threads: 1, duration };
    let churn = churn::Churn { size: 64, rate: 0.0 };
    let report = until_enough(
        load,
        |load| churn::run(load, churn).unwrap(),
        |report| report.errors.total() > 0,
    );
    assert_eq!(report.done, 0);
    assert!(report.errors.ending("refused") > 0, "{report:?}");
    let bulk = bulk::Bulk { direction: Direction::Both, writes: [64, 64] };
    assert_eq!(bulk::run(&load, bulk).unwrap().errors.ending("refused"), 2);
}
