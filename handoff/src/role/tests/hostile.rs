//! A peer that lies, is broken, or is newer than this side.

use super::*;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::io::{self, Write as _};

/// A worker's end that has been greeted, and the bare socket its supervisor would hold.
fn victim() -> (UnixDatagram, WorkerEnd) {
    let (peer, worker) = pair().unwrap();
    (peer.into(), WorkerEnd::resume(worker, Version(1)).unwrap())
}

fn header(kind: u16, body_len: usize, fds: usize) -> Header {
    Header {
        versions: VersionRange::only(Version(1)),
        kind: Kind(kind),
        mandatory: true,
        place: if body_len > MAX_INLINE { Place::Memfd } else { Place::Inline },
        body_len,
        transaction: Transaction(77),
        fds,
    }
}

fn packet(header: Header, body: &[u8]) -> Vec<u8> {
    [&header.encode()[..], body].concat()
}

async fn fault(worker: &WorkerEnd) -> Fault {
    match worker.recv().await {
        Err(RecvError::Refused(fault)) => fault,
        other => panic!("not refused: {other:?}"),
    }
}

/// The refusal that the peer is told.
fn told(peer: &UnixDatagram) -> Option<Nak> {
    let mut packet = [0; 2000];
    let len = match peer.recv(&mut packet) {
        Ok(len) => len,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
        Err(error) => panic!("{error}"),
    };
    let (header, body) = Header::decode(&packet[..len]).unwrap();
    assert_eq!((header.transaction, header.mandatory), (Transaction(77), false));
    let message = ToSupervisor::decode(header.kind, body).unwrap().unwrap();
    let ToSupervisor::Nak(nak) = message else { panic!("{message:?}") };
    Some(nak)
}

/// The channel is in step: the next message comes through.
async fn assert_goes_on(peer: &UnixDatagram, worker: &WorkerEnd) {
    peer.send(&packet(header(ToWorker::Quiesce.kind().0, 0, 0), &[])).unwrap();
    assert_eq!(worker.recv().await.unwrap().message, ToWorker::Quiesce);
}

fn assert_no_writer_left(mut reader: io::PipeReader) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "a descriptor was left open");
}

#[tokio::test]
async fn an_unknown_mandatory_type_is_refused_and_an_optional_one_skipped() {
    let (peer, worker) = victim();
    let optional = Header { mandatory: false, ..header(0x0142, 3, 0) };
    peer.send(&packet(optional, b"???")).unwrap();
    assert_goes_on(&peer, &worker).await;
    assert_eq!(told(&peer), None);

    peer.send(&packet(header(0x0142, 3, 0), b"???")).unwrap();
    assert!(matches!(fault(&worker).await, Fault::UnknownType(Kind(0x0142))));
    let reason = "type 0x0142 is mandatory and unknown here".into();
    assert_eq!(told(&peer), Some(Nak { kind: 0x0142, reason }));
    assert_goes_on(&peer, &worker).await;
}

#[tokio::test]
async fn descriptors_of_a_skipped_type_are_closed() {
    let (peer, worker) = victim();
    let (reader, writer) = io::pipe().unwrap();
    let optional = Header { mandatory: false, ..header(0x0142, 0, 2) };
    peer.send_with_fd(&packet(optional, &[]), &[writer.as_raw_fd(); 2]).unwrap();
    drop(writer);
    assert_goes_on(&peer, &worker).await;
    assert_no_writer_left(reader);
}

#[tokio::test]
async fn an_unknown_mandatory_field_is_refused_and_an_optional_one_skipped() {
    let (peer, worker) = victim();
    let mut body = ToWorker::Activate(Generation(9)).encode().unwrap();
    body.extend([200, 0, 0, 0, 1, 0, 0, 0, 42]);
    let kind = ToWorker::Activate(Generation(9)).kind().0;
    peer.send(&packet(header(kind, body.len(), 0), &body)).unwrap();
    assert_eq!(worker.recv().await.unwrap().message, ToWorker::Activate(Generation(9)));

    let flags = body.len() - 7;
    body[flags] = 1;
    peer.send(&packet(header(kind, body.len(), 0), &body)).unwrap();
    let refused = fault(&worker).await;
    assert!(matches!(refused, Fault::Body { source: CodecError::Unknown(200), .. }), "{refused}");
    let reason = "Activate: field 200 is mandatory and unknown here".into();
    assert_eq!(told(&peer), Some(Nak { kind, reason }));
    assert_goes_on(&peer, &worker).await;
}

#[tokio::test]
async fn a_header_that_lies_about_descriptors_is_refused_and_all_are_closed() {
    let (_sockets, message) = listeners(2);
    let body = message.encode().unwrap();
    for (declared, sent) in [(2, 1), (2, 3), (0, 1), (1, 0), (2, 0), (200, 253)] {
        let (peer, worker) = victim();
        let (reader, writer) = io::pipe().unwrap();
        let packet = packet(header(message.kind().0, body.len(), declared), &body);
        let fds: Vec<RawFd> = vec![writer.as_raw_fd(); sent];
        peer.send_with_fd(&packet, &fds).unwrap();
        drop(writer);
        let refused = fault(&worker).await;
        let Fault::Count { declared: d, received, .. } = refused else { panic!("{refused}") };
        assert_eq!((d, received), (declared, sent));
        assert!(told(&peer).is_some());
        assert_no_writer_left(reader);
        assert_goes_on(&peer, &worker).await;
    }
}

#[tokio::test]
async fn a_body_that_lies_about_its_descriptors_is_refused_and_all_are_closed() {
    let (_sockets, message) = listeners(2);
    let body = message.encode().unwrap();
    for sent in [1, 2, 3] {
        let (peer, worker) = victim();
        let (reader, writer) = io::pipe().unwrap();
        let packet = packet(header(message.kind().0, body.len(), sent), &body);
        peer.send_with_fd(&packet, &vec![writer.as_raw_fd(); sent]).unwrap();
        drop(writer);
        let refused = fault(&worker).await;
        if sent == 2 {
            assert_eq!(
                refused.to_string(),
                "Listeners: descriptor 0 is not a listening TCP socket"
            );
        } else {
            assert!(matches!(refused, Fault::Manifest { least: 2, most: 2, .. }), "{refused}");
        }
        assert!(told(&peer).is_some());
        assert_no_writer_left(reader);
        assert_goes_on(&peer, &worker).await;
    }
}

#[tokio::test]
async fn a_long_body_must_be_in_a_sealed_memfd_of_the_declared_length() {
    let body = vec![0; 70_000];
    let mut unsealed = File::from(
        memfd_create(c"t", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap(),
    );
    unsealed.write_all(&body).unwrap();
    let short = File::from(seal(&body[1..]).unwrap());
    let kind = ToWorker::Prepare(Prepare {
        generation: Generation(1),
        source: String::new(),
        config: Vec::new(),
    })
    .kind()
    .0;
    for (file, sealed) in [(unsealed, false), (short, true)] {
        let (peer, worker) = victim();
        let packet = packet(header(kind, body.len(), 1), &[]);
        peer.send_with_fd(&packet, &[file.as_raw_fd()]).unwrap();
        let refused = fault(&worker).await;
        let Fault::Memfd { source, .. } = &refused else { panic!("{refused}") };
        assert_eq!(matches!(source, MemfdError::Size { found: 69_999, .. }), sealed, "{source}");
        assert_eq!(matches!(source, MemfdError::Unsealed), !sealed, "{source}");
        assert!(told(&peer).is_some());
        assert_goes_on(&peer, &worker).await;
    }
}

#[tokio::test]
async fn what_is_no_message_at_all_is_refused_without_an_answer() {
    let (peer, worker) = victim();
    let (reader, writer) = io::pipe().unwrap();
    peer.send_with_fd(b"garbage", &[writer.as_raw_fd()]).unwrap();
    drop(writer);
    assert!(matches!(fault(&worker).await, Fault::Frame(_)));
    assert_no_writer_left(reader);
    peer.send(&vec![0; MAX_PACKET + 1]).unwrap();
    assert!(matches!(fault(&worker).await, Fault::Oversized));
    assert_eq!(told(&peer), None);
    assert_goes_on(&peer, &worker).await;
}

#[tokio::test]
async fn a_message_of_the_other_direction_is_refused() {
    let (peer, worker) = victim();
    let kind = ToSupervisor::Quiesced.kind();
    peer.send(&packet(header(kind.0, 0, 0), &[])).unwrap();
    assert!(matches!(fault(&worker).await, Fault::Direction(refused) if refused == kind));
    assert!(told(&peer).is_some());
    assert_goes_on(&peer, &worker).await;
}

#[tokio::test]
async fn a_refusal_is_never_refused() {
    let (peer, worker) = victim();
    let nak = Header { mandatory: false, ..header(0x01ff, 1, 0) };
    peer.send(&packet(nak, b"?")).unwrap();
    assert!(matches!(fault(&worker).await, Fault::Body { source: CodecError::Truncated, .. }));
    assert_eq!(told(&peer), None);
    assert_goes_on(&peer, &worker).await;
}

#[tokio::test]
async fn a_refusal_is_told_even_if_the_first_receive_was_dropped() {
    let (peer, worker) = victim();
    // The way back is full, so the refusal has to wait.
    let filler = UnixDatagram::from(worker.as_fd().try_clone_to_owned().unwrap());
    let mut fillers = 0;
    while filler.send(&[0; 1000]).is_ok() {
        fillers += 1;
    }
    peer.send(&packet(header(0x0142, 0, 0), &[])).unwrap();
    tokio::select! {
        biased;
        received = worker.recv() => panic!("no room to answer, yet {received:?}"),
        () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
    }
    let mut packet = [0; 2000];
    for _ in 0..fillers {
        peer.recv(&mut packet).unwrap();
    }
    assert!(matches!(fault(&worker).await, Fault::UnknownType(_)));
    assert!(told(&peer).is_some());
}
