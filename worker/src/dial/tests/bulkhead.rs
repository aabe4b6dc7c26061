//! Who gets a place, in which order, and who is told that there is none.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::scene::{LONG, block_on};
use crate::dial::{Bulkhead, Full, Limits};

fn limits(process: u32, target: u32) -> Limits {
    Limits { process, target, wait: LONG, ..Limits::default() }
}

fn late() -> Instant {
    Instant::now() + LONG
}

#[test]
fn the_limits_are_those_of_the_requirements() {
    let limits = Limits::default();
    assert_eq!((limits.process, limits.target), (256, 64));
    assert_eq!((limits.background, limits.health), (32, 32));
    assert_eq!(limits.wait, Duration::from_millis(250));
}

#[test]
fn it_is_said_which_limit_is_in_the_way() {
    let bulkhead = Bulkhead::new(limits(3, 2));
    let (one, two) = (bulkhead.target("one"), bulkhead.target("two"));
    let held = (one.try_acquire().unwrap(), one.try_acquire().unwrap());
    assert_eq!(one.try_acquire().unwrap_err(), Full::Target);
    let last = two.try_acquire().unwrap();
    assert_eq!(two.try_acquire().unwrap_err(), Full::Process);
    assert_eq!(one.try_acquire().unwrap_err(), Full::Process, "both are full");
    drop(held);
    drop(last);
    assert_eq!(bulkhead.in_use(), 0);
}

#[test]
fn an_address_is_one_target_while_anybody_uses_it() {
    let bulkhead = Bulkhead::new(limits(10, 1));
    let old = bulkhead.target("same:1");
    let held = old.try_acquire().unwrap();
    drop(old);
    let new = bulkhead.target("same:1");
    assert_eq!(new.try_acquire().unwrap_err(), Full::Target, "the dial under way counts");
    drop(held);
    assert!(new.try_acquire().is_ok());
}

#[test]
fn waiters_are_served_in_order_but_a_full_target_holds_up_nobody_else() {
    block_on(async {
        let bulkhead = Bulkhead::new(limits(3, 2));
        let (busy, other) = (bulkhead.target("busy"), bulkhead.target("other"));
        let busy_one = busy.try_acquire().unwrap();
        let busy_two = busy.try_acquire().unwrap();
        let other_one = other.try_acquire().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(busy.acquire(late()));
        let mut second = pin!(other.acquire(late()));
        let mut third = pin!(other.acquire(late()));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending());
        assert_eq!(bulkhead.waiting(), 3);
        // A place of the process is free, but the first waiter's target is still full.
        drop(other_one);
        let Poll::Ready(Ok(second)) = second.as_mut().poll(&mut cx) else {
            panic!("held up by a full target");
        };
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending());
        drop(busy_one);
        let Poll::Ready(Ok(_first)) = first.as_mut().poll(&mut cx) else {
            panic!("it waited longest");
        };
        assert!(third.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert!(matches!(third.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
        drop(busy_two);
        assert_eq!(bulkhead.waiting(), 0);
    });
}

#[test]
fn nobody_overtakes_a_waiter_who_could_use_the_place() {
    block_on(async {
        let bulkhead = Bulkhead::new(limits(1, 1));
        let (one, two) = (bulkhead.target("one"), bulkhead.target("two"));
        let held = one.try_acquire().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiter = pin!(one.acquire(late()));
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert_eq!(two.try_acquire().unwrap_err(), Full::Process);
        assert!(matches!(waiter.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
        assert!(two.try_acquire().is_ok());
    });
}

#[test]
fn a_waiter_gives_up_in_time_and_says_why() {
    block_on(async {
        let brief = Limits { wait: Duration::from_millis(10), ..limits(2, 1) };
        let bulkhead = Bulkhead::new(brief);
        let (one, two) = (bulkhead.target("one"), bulkhead.target("two"));
        let _held = one.try_acquire().unwrap();
        assert_eq!(one.acquire(late()).await.unwrap_err(), Full::Target);
        let _all = two.try_acquire().unwrap();
        assert_eq!(one.acquire(late()).await.unwrap_err(), Full::Process);
        let patient = Bulkhead::new(limits(0, 1));
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(patient.target("one").acquire(soon).await.unwrap_err(), Full::Process);
    });
}

#[test]
fn a_place_given_to_a_waiter_that_has_left_is_not_lost() {
    block_on(async {
        let bulkhead = Bulkhead::new(limits(1, 1));
        let one = bulkhead.target("one");
        let held = one.try_acquire().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut given = pin!(one.acquire(late()));
            assert!(given.as_mut().poll(&mut cx).is_pending());
            drop(held);
            assert_eq!(bulkhead.in_use(), 1, "granted, not yet taken");
        }
        assert_eq!(bulkhead.in_use(), 0);
        let held = one.try_acquire().unwrap();
        {
            let mut gone = pin!(one.acquire(late()));
            assert!(gone.as_mut().poll(&mut cx).is_pending());
        }
        drop(held);
        assert_eq!(bulkhead.in_use(), 0);
        assert!(one.try_acquire().is_ok());
        assert_eq!(bulkhead.waiting(), 0);
    });
}

#[test]
fn background_and_health_have_places_of_their_own() {
    block_on(async {
        let few = Limits { background: 1, health: 1, ..limits(0, 0) };
        let bulkhead = Bulkhead::new(few);
        let refill = bulkhead.try_background().unwrap();
        assert!(bulkhead.try_background().is_none(), "they never wait");
        drop(refill);
        assert!(bulkhead.try_background().is_some());
        let check = bulkhead.health().await.unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = pin!(bulkhead.health());
        assert!(next.as_mut().poll(&mut cx).is_pending());
        drop(check);
        assert!(next.as_mut().poll(&mut cx).is_ready());
    });
}

#[test]
fn many_threads_never_exceed_a_limit_and_lose_no_place() {
    let bulkhead = Bulkhead::new(limits(4, 2));
    let targets: Vec<_> = (0..3).map(|n| bulkhead.target(&n.to_string())).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (bulkhead, targets) = (Arc::clone(&bulkhead), &targets);
            scope.spawn(move || {
                block_on(async {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..500 {
                        let dials = (0..3).map(|_| {
                            let target = Arc::clone(&targets[random.usize(0..3)]);
                            async move { target.acquire(late()).await }
                        });
                        for dial in dials.collect::<Vec<_>>() {
                            let permit = dial.await.unwrap();
                            assert!(bulkhead.in_use() <= 4);
                            tokio::task::yield_now().await;
                            drop(permit);
                        }
                    }
                });
            });
        }
    });
    assert_eq!((bulkhead.in_use(), bulkhead.waiting()), (0, 0));
    let all: Vec<_> = [0, 0, 1, 1].iter().map(|&n| targets[n].try_acquire().unwrap()).collect();
    assert_eq!(all.len(), 4, "every place is there again");
}
