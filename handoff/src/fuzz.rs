//! What must hold for any bytes: shared by the fuzz targets and by the test that replays their
//! corpus with the stable compiler. Not part of the crate's interface.

use crate::frame::Header;
use crate::message::{Message, Peer, ToSupervisor, ToWorker};

/// A packet is refused, or is exactly what its header and body encode to.
pub fn packet(bytes: &[u8]) {
    if let Ok((header, body)) = Header::decode(bytes) {
        assert_eq!([&header.encode()[..], body].concat(), bytes, "{header:?} is ambiguous");
        every_direction(header.kind, body);
    }
}

/// A body (behind two bytes of type, little endian) is refused, or its message survives the way
/// to the other side and back.
pub fn body(bytes: &[u8]) {
    if let Some((kind, body)) = bytes.split_first_chunk() {
        every_direction(crate::Kind(u16::from_le_bytes(*kind)), body);
    }
}

fn every_direction(kind: crate::Kind, body: &[u8]) {
    survives::<ToWorker>(kind, body);
    survives::<ToSupervisor>(kind, body);
    survives::<Peer>(kind, body);
}

fn survives<M: Message + PartialEq + std::fmt::Debug>(kind: crate::Kind, body: &[u8]) {
    let Some(Ok(message)) = M::decode(kind, body) else { return };
    assert_eq!(message.kind(), kind);
    let again = message.encode().map(|body| M::decode(kind, &body));
    assert!(
        matches!(&again, Ok(Some(Ok(again))) if *again == message),
        "{message:?} came back as {again:?}"
    );
}
