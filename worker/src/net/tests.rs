#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;

use super::testing::{accepted_pair, black_hole, eventually, own_address, readable};
use super::*;

#[test]
fn accept_gives_the_peer_and_a_socket_that_does_not_block() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (fd, peer) = accept(listener.as_fd()).unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    let error = recv(fd.as_fd(), &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn an_empty_queue_would_block_and_is_not_an_error_of_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let error = accept(listener.as_fd()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn accepted_sockets_inherit_the_listeners_options() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    tune(listener.as_fd()).unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (fd, _) = accept(listener.as_fd()).unwrap();
    let socket = socket2::SockRef::from(&fd);
    assert!(socket.tcp_nodelay().unwrap());
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_IDLE);
}

#[test]
fn a_connect_is_confirmed_by_asking_again_and_has_no_timer_yet() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (fd, _) = connect(address).unwrap();
    eventually("established", || confirm(fd.as_fd(), address).unwrap() == Connecting::Done);
    assert_eq!(tcp_state(fd.as_fd()).unwrap(), TcpState::Established);
    let socket = socket2::SockRef::from(&fd);
    assert!(socket.tcp_nodelay().unwrap());
    assert!(!socket.keepalive().unwrap());
    keep_alive(fd.as_fd()).unwrap();
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_IDLE);
}

#[test]
fn a_refused_connect_says_so() {
    // The answer may take its time, and is then asked for.
    let address = own_address();
    let error = match connect(address) {
        Err(error) => error,
        Ok((fd, _)) => {
            readable(&fd);
            confirm(fd.as_fd(), address).unwrap_err()
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_unanswered_connect_is_pending() {
    let (_listener, _fill, address) = black_hole();
    let (fd, progress) = connect(address).unwrap();
    assert_eq!(progress, Connecting::Pending);
    assert_eq!(confirm(fd.as_fd(), address).unwrap(), Connecting::Pending);
    assert_eq!(tcp_state(fd.as_fd()).unwrap(), TcpState::Connecting);
}

#[test]
fn reset_is_seen_as_a_reset_and_never_as_an_end() {
    let (mut near, far) = accepted_pair();
    reset(far);
    let error = near.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn queue_lengths_and_state_follow_the_connection() {
    let (mut near, far) = accepted_pair();
    near.write_all(b"hello").unwrap();
    eventually("five bytes", || unread(far.as_fd()).unwrap() == 5);
    assert_eq!(unsent(far.as_fd()).unwrap(), 0);
    assert_eq!(peek(far.as_fd(), &mut [0; 16]).unwrap(), 5);
    assert_eq!(unread(far.as_fd()).unwrap(), 5);
    near.shutdown(std::net::Shutdown::Write).unwrap();
    eventually("the FIN", || tcp_state(far.as_fd()).unwrap() == TcpState::CloseWait);
    shut_write(far.as_fd()).unwrap();
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_cookie_names_the_socket_and_not_the_descriptor() {
    let (_near, far) = accepted_pair();
    let (_other_near, other) = accepted_pair();
    let again = far.try_clone().unwrap();
    assert_eq!(cookie(far.as_fd()).unwrap(), cookie(again.as_fd()).unwrap());
    assert_ne!(cookie(far.as_fd()).unwrap(), cookie(other.as_fd()).unwrap());
}

#[test]
fn splice_carries_bytes_through_a_pipe() {
    let (mut from, source) = accepted_pair();
    let (mut to, sink) = accepted_pair();
    let pipe = Pipe::new().unwrap();
    from.write_all(b"through the kernel").unwrap();
    eventually("the bytes", || unread(source.as_fd()).unwrap() == 18);
    let held = splice_in(source.as_fd(), &pipe, pipe.capacity()).unwrap();
    assert_eq!(held, 18);
    let error = splice_in(source.as_fd(), &pipe, pipe.capacity()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(splice_out(&pipe, sink.as_fd(), held).unwrap(), held);
    let mut read = [0; 18];
    to.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"through the kernel");
}

#[test]
fn the_clock_never_runs_backwards() {
    let first = now();
    assert!(first.0 > 0);
    assert!(now() >= first);
}
