use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::pool::{Pool, Pools};
use super::refill::Refill;
use super::{KEEP, TTL};
use crate::flow::Moment;
use crate::net;
use crate::net::testing::readable;

fn at(ms: u64) -> Moment {
    Moment(0).after(Duration::from_millis(1_000_000 + ms))
}

/// Both ends of a connection.
fn pair() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours.into(), listener.accept().unwrap().0)
}

#[test]
fn the_newest_is_taken_first_and_no_more_than_four_are_kept() {
    let pool = Pool::default();
    let (sockets, _peers): (Vec<_>, Vec<_>) = (0..6).map(|_| pair()).unzip();
    let numbers: Vec<_> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
    for (second, socket) in (0..).zip(sockets) {
        pool.put(socket, at(second));
    }
    assert_eq!(pool.idle(), KEEP);
    let taken: Vec<_> = std::iter::from_fn(|| pool.take(at(10))).collect();
    let order: Vec<_> = taken.iter().map(|socket| socket.as_raw_fd()).collect();
    assert_eq!(order, [numbers[3], numbers[2], numbers[1], numbers[0]]);
}

#[test]
fn one_that_ended_or_was_reset_is_passed_over() {
    let pool = Pool::default();
    let (good, _peer) = pair();
    let (ended, peer) = pair();
    drop(peer);
    readable(&ended);
    let (broken, peer) = pair();
    net::reset(peer.into());
    readable(&broken);
    let number = good.as_raw_fd();
    for socket in [good, ended, broken] {
        pool.put(socket, at(0));
    }
    assert_eq!(pool.take(at(1)).unwrap().as_raw_fd(), number);
    assert!(pool.take(at(1)).is_none());
}

#[test]
fn a_servers_first_words_wait_for_whoever_takes_the_socket() {
    let pool = Pool::default();
    let (socket, mut peer) = pair();
    peer.write_all(b"SSH-2.0-x\r\n").unwrap();
    readable(&socket);
    pool.put(socket, at(0));
    let mut stream = TcpStream::from(pool.take(at(1)).unwrap());
    let mut banner = [0; 11];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-x\r\n");
}

#[test]
fn words_with_the_end_behind_them_do_not_make_a_socket_usable() {
    let pool = Pool::default();
    let (socket, mut peer) = pair();
    peer.write_all(b"too many clients").unwrap();
    drop(peer);
    while net::tcp_state(std::os::fd::AsFd::as_fd(&socket)).unwrap() == net::TcpState::Established {
        std::thread::yield_now();
    }
    pool.put(socket, at(0));
    assert!(pool.take(at(1)).is_none());
}

#[test]
fn one_that_is_too_old_is_neither_taken_nor_kept() {
    let ttl = u64::try_from(TTL.as_millis()).unwrap();
    let pool = Pool::default();
    let (old, _old_peer) = pair();
    let (young, _young_peer) = pair();
    pool.put(old, at(0));
    pool.put(young, at(1));
    pool.sweep(at(ttl));
    assert_eq!(pool.idle(), 1);
    assert!(pool.take(at(ttl + 1)).is_none());
}

#[test]
fn rules_with_the_same_address_share_a_pool_until_none_uses_it() {
    let pools = Pools::default();
    let one = pools.of("a:1");
    assert!(Arc::ptr_eq(&one, &pools.of("a:1")));
    assert!(!Arc::ptr_eq(&one, &pools.of("b:1")));
    let (socket, _peer) = pair();
    one.put(socket, at(0));
    drop(one);
    assert_eq!(pools.of("a:1").idle(), 0);
}

#[test]
fn four_are_wanted_and_what_is_under_way_counts() {
    let mut refill = Refill::default();
    assert_eq!(refill.wants(0, at(0)), 4);
    refill.begun();
    refill.begun();
    assert_eq!(refill.wants(0, at(0)), 2);
    assert_eq!(refill.wants(1, at(0)), 1);
    assert_eq!(refill.wants(4, at(0)), 0);
    refill.made();
    assert_eq!((refill.warming(), refill.wants(1, at(0))), (1, 2));
}

#[test]
fn failures_pause_ever_longer_and_try_one_at_a_time() {
    let mut refill = Refill::default();
    let mut now = at(0);
    for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        assert_eq!(refill.wants(0, now), if pause == 100 { 4 } else { 1 });
        refill.begun();
        refill.failed(now);
        assert_eq!(refill.rest(now), Duration::from_millis(pause));
        assert_eq!(refill.wants(0, now.after(Duration::from_millis(pause - 1))), 0);
        now = now.after(Duration::from_millis(pause));
    }
    refill.begun();
    refill.made();
    assert_eq!(refill.wants(1, now), 3);
}

#[test]
fn dials_that_fail_together_pause_once() {
    let mut refill = Refill::default();
    for _ in 0..4 {
        refill.begun();
    }
    for _ in 0..4 {
        refill.failed(at(0));
    }
    assert_eq!(refill.rest(at(0)), Duration::from_millis(100));
    assert_eq!(refill.warming(), 0);
}

#[test]
fn a_lack_of_places_is_no_failure() {
    let mut refill = Refill::default();
    refill.put_off(at(0));
    assert_eq!(refill.wants(0, at(99)), 0);
    assert_eq!(refill.wants(0, at(100)), 4);
}
