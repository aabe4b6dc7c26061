//! The exact bytes of every protocol this release speaks, one file a message type, both ways.
//!
//! A file never changes: another form of a message is another version of the protocol. `BATON_WRITE_GOLDEN=1` writes
//! the files of new types; existing ones are never overwritten.

use super::*;
use crate::bundle::DescriptorKind;
use crate::message::samples;
use crate::version::OURS;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::PathBuf;

fn folder(version: Version) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{version}"))
}

fn golden(version: Version, name: &str, sent: &[u8]) -> Vec<u8> {
    let path = folder(version).join(name);
    if std::env::var_os("BATON_WRITE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, sent).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sends `message` and compares, then hears the golden bytes and compares again.
async fn both_ways<Out, In>(
    version: Version,
    direction: &str,
    messages: Vec<Out>,
    names: &mut BTreeSet<String>,
) where
    Out: Message + Clone + PartialEq + std::fmt::Debug,
    In: Message,
{
    let listening: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let connected: Vec<_> =
        listening.iter().map(|at| TcpStream::connect(at.local_addr().unwrap()).unwrap()).collect();
    let (channel, _other) = pair().unwrap();
    let name = format!("baton-golden-{}-{version}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let adoption = crate::adoption::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for message in messages.into_iter().filter(|message| message.since() <= version) {
        let name = format!("{direction}.{}.bin", message.kind());
        let all: Vec<BorrowedFd<'_>> = match message.carries().kind {
            DescriptorKind::Adoption => vec![adoption.as_fd()],
            DescriptorKind::Channel | DescriptorKind::Lifeline => vec![channel.as_fd(); 4],
            DescriptorKind::Connection => connected.iter().map(|fd| fd.as_fd()).collect(),
            DescriptorKind::Listener | DescriptorKind::Region => {
                listening.iter().map(|fd| fd.as_fd()).collect()
            }
        };
        let fds = &all[..message.carries().least];

        let (near, far) = pair().unwrap();
        let sender = End::<Out, In>::resume(near, version).unwrap();
        sender.send_as(Transaction(0x1122), &message, fds).await.unwrap();
        let mut packet = vec![0; MAX_PACKET];
        let len = UnixDatagram::from(far).recv(&mut packet).unwrap();
        packet.truncate(len);
        let golden = golden(version, &name, &packet);
        assert_eq!(packet, golden, "{name} is not what is sent any more");

        let (near, far) = pair().unwrap();
        let receiver = End::<In, Out>::resume(far, version).unwrap();
        let numbers: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        UnixDatagram::from(near).send_with_fd(&golden, &numbers).unwrap();
        let received = receiver.recv().await.unwrap();
        assert_eq!(received.message, message, "{name} is not understood any more");
        assert_eq!(received.transaction, Transaction(0x1122));
        names.insert(name);
    }
}

#[tokio::test]
async fn every_message_has_the_bytes_that_other_releases_know() {
    for number in OURS.min().0..=OURS.max().0 {
        let version = Version(number);
        let mut names = BTreeSet::new();
        let (to_worker, to_supervisor) = (samples::to_worker(), samples::to_supervisor());
        both_ways::<ToWorker, ToSupervisor>(version, "to_worker", to_worker, &mut names).await;
        both_ways::<ToSupervisor, ToWorker>(version, "to_supervisor", to_supervisor, &mut names)
            .await;
        both_ways::<Peer, Peer>(version, "peer", samples::peer(), &mut names).await;
        let files: BTreeSet<String> = std::fs::read_dir(folder(version))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files, names, "a golden file belongs to no message");
    }
}
