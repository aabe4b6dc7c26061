//! Two workers between which connections move.

use super::*;
use crate::message::{HelloPeer, Offer, OfferAnswer, samples};
use crate::table::PipeNumbers;
use std::net::TcpStream;

/// Two workers that have greeted each other.
async fn workers() -> (PeerEnd, PeerEnd) {
    let (old, new) = pair().unwrap();
    let (old, new) = (PeerEnd::new(old).unwrap(), PeerEnd::new(new).unwrap());
    let hello = Peer::Hello(HelloPeer { version: "0.1.0".into() });
    old.send(&hello, &[]).await.unwrap();
    new.send(&hello, &[]).await.unwrap();
    assert_eq!(old.recv().await.unwrap().message, hello);
    assert_eq!(new.recv().await.unwrap().message, hello);
    (old, new)
}

fn piped_offer() -> Peer {
    let Peer::Offer(mut offer) = samples::peer().remove(1) else { panic!("not the offer") };
    let nowhere = crate::message::NOWHERE;
    offer.connections[0].record.to_client.pipe =
        Some(PipeNumbers { read: nowhere, write: nowhere });
    Peer::Offer(offer)
}

#[tokio::test]
async fn a_connection_is_offered_answered_and_committed() {
    let (old, new) = workers().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sockets = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
    let (read, write) = io::pipe().unwrap();
    let fds = [sockets[0].as_fd(), sockets[1].as_fd(), read.as_fd(), write.as_fd()];
    let offered = old.send(&piped_offer(), &fds).await.unwrap();
    let received = new.recv().await.unwrap();
    assert_eq!((received.message, received.fds.len()), (piped_offer(), 4));
    assert_eq!(received.transaction, offered);

    let answer = Peer::Answer(OfferAnswer { accepted: vec![true] });
    new.say(received.transaction, &answer).await.unwrap();
    let answered = old.recv().await.unwrap();
    assert_eq!((answered.message, answered.transaction), (answer, offered));
    old.say(offered, &Peer::Commit).await.unwrap();
    let commit = new.recv().await.unwrap();
    assert_eq!((commit.message, commit.transaction), (Peer::Commit, offered));
}

#[tokio::test]
async fn what_is_no_connection_is_refused_whole() {
    let (old, new) = workers().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (read, _write) = io::pipe().unwrap();
    let fds = [socket.as_fd(), listener.as_fd(), read.as_fd(), read.as_fd()];
    let offered = old.send(&piped_offer(), &fds).await.unwrap();
    assert!(matches!(
        new.recv().await,
        Err(RecvError::Refused(Fault::Descriptor { index: 1, .. }))
    ));
    let refused = old.recv().await.unwrap();
    assert!(matches!(refused.message, Peer::Nak(_)) && refused.transaction == offered);
    let empty = Peer::Offer(Offer { connections: Vec::new() });
    old.send(&empty, &[]).await.unwrap();
    assert_eq!(new.recv().await.unwrap().message, empty, "the channel goes on");
}

#[tokio::test]
async fn what_a_dead_worker_has_said_can_be_heard_without_waiting() {
    let (old, new) = workers().await;
    assert!(new.try_recv().unwrap().is_none());
    old.send(&Peer::Commit, &[]).await.unwrap();
    old.send(&Peer::Over, &[]).await.unwrap();
    assert_eq!(new.try_recv().unwrap().unwrap().message, Peer::Commit);
    assert_eq!(new.recv().await.unwrap().message, Peer::Over);
    assert!(new.try_recv().unwrap().is_none());
    drop(old);
    assert!(matches!(new.try_recv(), Err(RecvError::Closed)));
}
