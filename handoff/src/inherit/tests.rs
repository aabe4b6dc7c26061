use super::*;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use proptest::prelude::*;
use sendfd::SendWithFd as _;
use std::os::unix::net::UnixDatagram;

fn packet_pair() -> (UnixDatagram, UnixDatagram) {
    let (left, right) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    (left.into(), right.into())
}

#[test]
fn descriptors_that_fit_a_small_control_buffer_are_owned_and_the_loss_is_known() {
    let (left, right) = packet_pair();
    let (reader, writer) = io::pipe().unwrap();
    left.send_with_fd(b"x", &[writer.as_raw_fd(); 5]).unwrap();
    drop(writer);
    let mut control = nix::cmsg_space!([RawFd; 2]);
    let packet = receive_into(right.as_fd(), &mut [0; 8], &mut control).unwrap();
    assert!(packet.fds_lost && !packet.cut);
    assert_eq!((packet.len, packet.fds.len()), (1, 2));
    drop(packet);
    // The kernel closed three, the packet two: the pipe has no writer left.
    assert_eq!(io::Read::read(&mut &reader, &mut [0]).unwrap(), 0);
}

#[test]
fn a_packet_longer_than_the_buffer_is_known_to_be_cut() {
    let (left, right) = packet_pair();
    left.send(b"longer than four").unwrap();
    let packet = receive(right.as_fd(), &mut [0; 4]).unwrap();
    assert!(packet.cut && packet.len == 4);
}

#[test]
fn as_many_descriptors_as_the_kernel_passes_are_received() {
    let (left, right) = packet_pair();
    left.send_with_fd(b"x", &[left.as_raw_fd(); KERNEL_MAX_FDS]).unwrap();
    assert!(left.send_with_fd(b"x", &[left.as_raw_fd(); KERNEL_MAX_FDS + 1]).is_err());
    let packet = receive(right.as_fd(), &mut [0; 4]).unwrap();
    assert!(!packet.fds_lost);
    assert_eq!(packet.fds.len(), KERNEL_MAX_FDS);
}

#[test]
fn activation_is_only_for_the_named_process() {
    let names = |pid, fds, names| activation(pid, fds, names, 42).unwrap();
    assert_eq!(names(None, Some("2"), None), None);
    assert_eq!(names(Some("41"), Some("2"), None), None);
    assert_eq!(names(Some("42"), None, None), None);
    assert_eq!(names(Some("42"), Some("2"), None), Some(vec![None, None]));
    let named = Some(vec![Some("web".to_owned()), Some("admin".to_owned())]);
    assert_eq!(names(Some("42"), Some("2"), Some("web:admin")), named);
    assert_eq!(names(Some("42"), Some("0"), Some("")), Some(vec![]));
}

#[test]
fn activation_variables_that_make_no_sense_are_named() {
    let error = |pid, fds, names| activation(Some(pid), Some(fds), names, 42).unwrap_err();
    assert_eq!(error("x", "1", None).to_string(), "LISTEN_PID=x makes no sense");
    assert_eq!(error("42", "-1", None).to_string(), "LISTEN_FDS=-1 makes no sense");
    assert_eq!(error("42", "99999999", None).to_string(), "LISTEN_FDS=99999999 makes no sense");
    assert_eq!(error("42", "2", Some("one")).to_string(), "LISTEN_FDNAMES=one makes no sense");
}

proptest! {
    #[test]
    fn reading_control_bytes_never_panics(bytes: Vec<u8>) {
        scm_rights(&bytes);
    }

    #[test]
    fn records_of_other_types_are_stepped_over(other in 0i32..9, data in 0usize..20) {
        prop_assume!(other != libc::SCM_RIGHTS);
        let mut control = record(other, &vec![1; data]);
        control.extend(record(libc::SCM_RIGHTS, &[7i32.to_ne_bytes(), 9i32.to_ne_bytes()].concat()));
        control.extend([0; 64]);
        prop_assert_eq!(scm_rights(&control), [7, 9]);
    }
}

fn record(kind: i32, data: &[u8]) -> Vec<u8> {
    let length = size_of::<usize>() + 8 + data.len();
    let mut record =
        [&length.to_ne_bytes()[..], &libc::SOL_SOCKET.to_ne_bytes(), &kind.to_ne_bytes(), data]
            .concat();
    record.resize(length.next_multiple_of(size_of::<usize>()), 0);
    record
}
