use super::*;
use crate::frame::Transaction;
use crate::memfd::seal;
use crate::version::OURS;
use socket2::Socket;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;

fn header(fds: usize) -> Header {
    Header {
        versions: OURS,
        kind: Kind(0x0103),
        mandatory: true,
        place: Place::Inline,
        body_len: 0,
        transaction: Transaction::NONE,
        fds,
    }
}

/// A descriptor whose end can be seen from here: the reader reads the end once it is closed.
fn watched() -> (io::PipeReader, OwnedFd) {
    let (reader, writer) = io::pipe().unwrap();
    (reader, writer.into())
}

fn assert_closed(mut reader: io::PipeReader) {
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
        .unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the descriptor is still open");
}

#[test]
fn a_mismatch_closes_every_descriptor() {
    for (declared, lost) in [(1, false), (3, false), (2, true)] {
        let (first, a) = watched();
        let (second, b) = watched();
        let fault = Bundle::pair(&header(declared), vec![a, b], lost).unwrap_err();
        assert!(matches!(fault, Fault::Count { .. } | Fault::Lost { .. }), "{fault}");
        assert_closed(first);
        assert_closed(second);
    }
}

#[test]
fn a_wrong_kind_or_number_closes_every_descriptor() {
    for count in [1, 2] {
        let (reader, pipe) = watched();
        let bundle = Bundle::pair(&header(1), vec![pipe], false).unwrap();
        let listeners = Carries { kind: DescriptorKind::Listener, least: count, most: count };
        let fault = bundle.check(listeners).unwrap_err();
        assert!(matches!(fault, Fault::Descriptor { .. } | Fault::Manifest { .. }), "{fault}");
        assert_closed(reader);
    }
}

#[test]
fn only_a_tcp_socket_that_listens_is_a_listener() {
    let is_listener = |fd: OwnedFd| DescriptorKind::Listener.matches(&fd);
    let tcp = |domain| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).unwrap();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listening.local_addr().unwrap();
    assert!(is_listener(listening.try_clone().unwrap().into()));
    let v6 = TcpListener::bind("[::1]:0");
    assert!(v6.is_err() || is_listener(v6.unwrap().into()));

    let connected = std::net::TcpStream::connect(address).unwrap();
    assert!(!is_listener(connected.into()), "connected");
    assert!(!is_listener(tcp(Domain::IPV4).into()), "not listening");
    assert!(!is_listener(UdpSocket::bind("127.0.0.1:0").unwrap().into()), "UDP");
    let folder = std::env::temp_dir().join(format!("baton-bundle-{}", std::process::id()));
    let unix = UnixListener::bind(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    assert!(!is_listener(unix.into()), "Unix");
    assert!(!is_listener(File::open("/proc/self/exe").unwrap().into()), "file");
}

#[test]
fn the_region_is_a_file_and_nothing_else() {
    let is_region = |fd: OwnedFd| DescriptorKind::Region.matches(&fd);
    assert!(is_region(seal(b"region").unwrap()));
    assert!(is_region(File::open("/proc/self/exe").unwrap().into()));
    assert!(!is_region(File::open("/").unwrap().into()), "directory");
    assert!(!is_region(File::open("/dev/null").unwrap().into()), "device");
    assert!(!is_region(watched().1), "pipe");
}

#[test]
fn the_body_is_the_last_descriptor_and_not_handed_out() {
    let body = vec![7; 70_000];
    let region = File::open("/proc/self/exe").unwrap();
    let header = Header { place: Place::Memfd, body_len: body.len(), ..header(2) };
    let fds = vec![region.into(), seal(&body).unwrap()];
    let mut bundle = Bundle::pair(&header, fds, false).unwrap();
    assert_eq!(bundle.take_body(&header).unwrap(), Some(body));
    let carries = Carries { kind: DescriptorKind::Region, least: 0, most: 1 };
    assert_eq!(bundle.check(carries).unwrap().len(), 1);
}
