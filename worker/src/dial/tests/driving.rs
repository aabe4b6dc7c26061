//! Steps are executed, and the machine is told the truth.

use std::io::Read;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::scene::*;
use crate::dial::{ATTEMPT_DELAY, DialError, Limits, Stopped, connect, drive};
use crate::flow::{AttemptId, Event, Fault, GiveUp, Quota, Step, Steps};
use crate::net;
use crate::net::testing::{accepted_pair, black_hole, eventually};

const FIRST: AttemptId = AttemptId(0);
const SECOND: AttemptId = AttemptId(1);

/// Dials line 0, then uses it, or gives up when it fails.
fn single(limit: Duration) -> impl FnMut(Option<Event>, &mut Steps) {
    move |event, steps| match event {
        None => steps.push(dial(0, 0, limit)),
        Some(Event::Connected { attempt, .. }) => steps.push(Step::Use(attempt)),
        Some(Event::Started(_) | Event::Woke) => {}
        Some(_) => steps.push(Step::GiveUp(GiveUp::AllFailed)),
    }
}

#[test]
fn a_dial_that_is_decided_at_once_never_yields() {
    // Whether it is decided at once is the kernel's to say: a busy one may answer later.
    eventually("a dial without waiting", || {
        let (_listener, address) = listener();
        let mut scene = Scene::new(Limits::default());
        scene.target(&[address]);
        let mut machine = Script::new(single(LONG));
        {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _entered = runtime.enter();
            let mut driving = pin!(drive(&mut machine, &scene, None));
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(upstream)) = driving.as_mut().poll(&mut cx) else {
                return false;
            };
            assert_eq!((upstream.attempt, upstream.address), (FIRST, Some(address)));
            assert!(upstream.connect.is_some());
        }
        assert_eq!(machine.told[0], Event::Started(FIRST));
        assert!(matches!(machine.told[1], Event::Connected { attempt: FIRST, connect: Some(_) }));
        assert_eq!(scene.bulkhead.in_use(), 0, "the permit covers the connect only");
        true
    });
}

#[test]
fn a_refused_dial_is_the_lines_fault() {
    let mut scene = Scene::new(Limits::default());
    scene.target(&[refusing()]);
    let mut machine = Script::new(single(LONG));
    let end = block_on(drive(&mut machine, &scene, None));
    assert_eq!(end.unwrap_err(), Stopped::GaveUp(GiveUp::AllFailed));
    let failed = Event::Failed { attempt: FIRST, fault: Fault::Dial };
    assert_eq!(machine.told, [Event::Started(FIRST), failed]);
}

#[test]
fn silence_is_a_failure_at_the_deadline_and_gives_the_place_back() {
    let (_hole, _fill, address) = black_hole();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[address]);
    let limit = Duration::from_millis(60);
    let mut machine = Script::new(single(limit));
    let start = Instant::now();
    block_on(drive(&mut machine, &scene, None)).unwrap_err();
    assert!(start.elapsed() >= limit);
    let failed = Event::Failed { attempt: FIRST, fault: Fault::Dial };
    assert_eq!(machine.told, [Event::Started(FIRST), failed]);
    assert_eq!(scene.bulkhead.in_use(), 0);
}

#[test]
fn in_a_race_the_loser_is_cancelled_and_nothing_is_told_of_it() {
    let (_hole, _fill, silent) = black_hole();
    let (_listener, address) = listener();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[silent]);
    scene.target(&[address]);
    let mut machine = Script::new(|event, steps: &mut Steps| match event {
        None => steps.extend([dial(0, 0, LONG), dial(1, 1, LONG)]),
        Some(Event::Connected { attempt, .. }) => {
            steps.extend([Step::Cancel(FIRST), Step::Use(attempt)]);
        }
        Some(_) => {}
    });
    let upstream = block_on(drive(&mut machine, &scene, None)).unwrap();
    assert_eq!(upstream.attempt, SECOND);
    assert_eq!(machine.told.len(), 3, "{:?}", machine.told);
    assert_eq!(scene.bulkhead.in_use(), 0);
}

#[test]
fn events_that_cross_a_cancel_are_not_told() {
    let (_one, first) = listener();
    let (_two, second) = listener();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[first]);
    scene.target(&[second]);
    let mut machine = Script::new(|event, steps: &mut Steps| match event {
        // Both are connected before the machine hears of either.
        None => steps.extend([dial(0, 0, LONG), dial(1, 1, LONG)]),
        Some(Event::Started(FIRST)) => steps.push(Step::Cancel(FIRST)),
        Some(Event::Connected { attempt, .. }) => steps.push(Step::Use(attempt)),
        Some(_) => {}
    });
    let upstream = block_on(drive(&mut machine, &scene, None)).unwrap();
    assert_eq!(upstream.attempt, SECOND);
    assert!(!machine.told.iter().any(|e| matches!(e, Event::Connected { attempt: FIRST, .. })));
}

#[test]
fn a_wake_up_comes_when_it_was_asked_for() {
    let (_hole, _fill, silent) = black_hole();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[silent]);
    let mut machine = Script::new(|event, steps: &mut Steps| match event {
        None => {
            let later = net::now().after(Duration::from_secs(10));
            let soon = net::now().after(Duration::from_millis(20));
            steps.extend([dial(0, 0, LONG), Step::WakeAt(later), Step::WakeAt(soon)]);
        }
        Some(Event::Woke) => {
            steps.extend([Step::Cancel(FIRST), Step::GiveUp(GiveUp::Deadline)]);
        }
        Some(_) => {}
    });
    let end = block_on(drive(&mut machine, &scene, None));
    assert_eq!(end.unwrap_err(), Stopped::GaveUp(GiveUp::Deadline));
    assert_eq!(machine.told, [Event::Started(FIRST), Event::Woke]);
}

#[test]
fn the_preparation_is_the_first_thing_the_upstream_reads() {
    for slow_name in [false, true] {
        let (upstream, address) = listener();
        let mut scene = Scene::new(Limits::default());
        let target = scene.target(&[address]);
        target.preparation = b"PROXY UNKNOWN\r\n".to_vec();
        target.slow_name = slow_name;
        let mut machine = Script::new(single(LONG));
        let won = block_on(drive(&mut machine, &scene, None)).unwrap();
        net::send(won.socket.as_fd(), b"hello").unwrap();
        let mut read = [0; 20];
        upstream.accept().unwrap().0.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"PROXY UNKNOWN\r\nhello");
    }
}

/// What the upstream has when the dial is done, before the client's bytes are sent.
fn seen_before_the_client(followed: bool) -> usize {
    let (upstream, address) = listener();
    let mut scene = Scene::new(Limits::default());
    scene.followed = followed;
    scene.target(&[address]).preparation = b"PROXY UNKNOWN\r\n".to_vec();
    let mut machine = Script::new(single(LONG));
    let won = block_on(drive(&mut machine, &scene, None)).unwrap();
    let mut far = upstream.accept().unwrap().0;
    let seen = net::peek(far.as_fd(), &mut [0; 64]).unwrap_or(0);
    net::send(won.socket.as_fd(), b"hello").unwrap();
    let mut read = [0; 20];
    far.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"PROXY UNKNOWN\r\nhello");
    seen
}

#[test]
fn a_preparation_waits_for_the_clients_bytes_only_when_they_are_there() {
    eventually("a header without anything behind it", || seen_before_the_client(false) == 15);
    // The kernel waits 200 ms, which a busy machine may spend elsewhere.
    eventually("both in one segment", || seen_before_the_client(true) == 0);
}

#[test]
fn a_prewarmed_socket_is_used_without_a_place_unless_the_dial_must_be_fresh() {
    let (_listener, address) = listener();
    let (_far, warm) = accepted_pair();
    let mut scene = Scene::new(Limits { process: 0, ..Limits::default() });
    scene.target(&[address]).warm.borrow_mut().push(warm);
    let mut machine = Script::new(single(LONG));
    let upstream = block_on(drive(&mut machine, &scene, None)).unwrap();
    assert_eq!((upstream.address, upstream.connect), (None, None));
    assert_eq!(machine.told, [Event::Connected { attempt: FIRST, connect: None }]);

    let (_far, warm) = accepted_pair();
    scene.targets[0].warm.borrow_mut().push(warm);
    let mut machine = Script::new(|event, steps: &mut Steps| match event {
        None => steps.push(match dial(0, 0, LONG) {
            Step::Dial { attempt, line, deadline, .. } => {
                Step::Dial { attempt, line, deadline, quota: Quota::Immediate, fresh: true }
            }
            other => other,
        }),
        Some(_) => steps.push(Step::GiveUp(GiveUp::QuotaExhausted)),
    });
    block_on(drive(&mut machine, &scene, None)).unwrap_err();
    assert_eq!(machine.told, [Event::ProcessFull(FIRST)]);
    assert_eq!(scene.targets[0].warm.borrow().len(), 1);
}

#[test]
fn a_connection_that_breaks_under_its_preparation_failed_in_preparation() {
    let (far, warm) = accepted_pair();
    net::reset(far.into());
    eventually("the reset", || net::tcp_state(warm.as_fd()).unwrap() == net::TcpState::Closed);
    let mut scene = Scene::new(Limits::default());
    let target = scene.target(&[]);
    target.preparation = b"PROXY UNKNOWN\r\n".to_vec();
    target.warm.borrow_mut().push(warm);
    let mut machine = Script::new(single(LONG));
    block_on(drive(&mut machine, &scene, None)).unwrap_err();
    assert_eq!(machine.told, [Event::Failed { attempt: FIRST, fault: Fault::Preparation }]);
}

#[test]
fn a_name_that_does_not_resolve_is_the_lines_fault() {
    let mut scene = Scene::new(Limits::default());
    scene.target(&[]).slow_name = true;
    let mut machine = Script::new(single(LONG));
    block_on(drive(&mut machine, &scene, None)).unwrap_err();
    let failed = Event::Failed { attempt: FIRST, fault: Fault::Dial };
    assert_eq!(machine.told, [Event::Started(FIRST), failed]);
}

#[test]
fn a_dropped_drive_gives_back_all_it_held() {
    let (_hole, _fill, silent) = black_hole();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[silent]);
    let bulkhead = std::sync::Arc::clone(&scene.bulkhead);
    block_on(async {
        let mut machine = Script::new(single(LONG));
        {
            let mut driving = pin!(drive(&mut machine, &scene, None));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(driving.as_mut().poll(&mut cx).is_pending());
            assert_eq!(bulkhead.in_use(), 1);
        }
        assert_eq!(bulkhead.in_use(), 0);
    });
}

#[test]
fn a_machine_that_waits_for_nothing_ends_the_drive() {
    let scene = Scene::new(Limits::default());
    let mut machine = Script::new(|_, _: &mut Steps| {});
    assert_eq!(block_on(drive(&mut machine, &scene, None)).unwrap_err(), Stopped::Stuck);
}

#[test]
fn the_next_address_is_tried_at_once_after_a_refusal_and_after_a_delay_in_silence() {
    let (_hole, _fill, silent) = black_hole();
    let (_listener, address) = listener();
    let deadline = || tokio::time::Instant::now() + LONG;
    // How long each takes, and which part of that was the connection's own. A busy machine may
    // add any time to one, but not to each.
    let dial = |first| {
        let start = Instant::now();
        let connected = block_on(connect(&[first, address], deadline())).unwrap();
        assert_eq!(connected.address, address);
        (start.elapsed(), connected.took)
    };
    eventually("no delay after a refusal", || dial(refusing()).0 < ATTEMPT_DELAY);
    eventually("a connect that takes no time of its own", || {
        let (passed, took) = dial(silent);
        assert!(passed >= ATTEMPT_DELAY);
        took < ATTEMPT_DELAY
    });
    block_on(async {
        let soon = tokio::time::Instant::now() + Duration::from_millis(20);
        let error = connect(&[silent, silent], soon).await.unwrap_err();
        assert!(matches!(error, DialError::Deadline));
        let error = connect(&[], deadline()).await.unwrap_err();
        assert!(matches!(error, DialError::NoAddress(None)));
    });
}

#[test]
fn a_connect_that_was_waited_for_ends_when_the_peer_answers() {
    let (hole, fill, silent) = black_hole();
    let answered = block_on(async {
        let deadline = tokio::time::Instant::now() + LONG;
        let mut connecting = pin!(connect(std::slice::from_ref(&silent), deadline));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(connecting.as_mut().poll(&mut cx).is_pending());
        // Room in the queue: the kernel repeats its SYN within a second or so.
        let queued = fill.len();
        for _ in 0..queued {
            hole.set_nonblocking(true).unwrap();
            while hole.accept().is_ok() {}
        }
        connecting.await
    });
    assert!(matches!(answered.unwrap().socket, net::Socket::Registered(_)));
}
