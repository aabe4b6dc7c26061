//! What an offer becomes of when the other side does not do as it should.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use baton_handoff::message::{HelloPeer, Offer, OfferAnswer, Peer};
use baton_handoff::table::{Endpoint, Identity, RuleKey, TargetKey};
use baton_handoff::{PeerEnd, Transaction, pair};
use tokio::sync::watch;

use crate::migrate::{Exporter, Importer, Loss, MoveError, Parcel, Shipment};
use crate::net::testing::accepted_pair;
use crate::net::{self, Pipe};
use crate::relay::{Flow, Frozen, HeldPipe};

/// A frozen connection, with its client and its upstream.
fn parcel(to_upstream: Flow, to_client: Flow) -> (Parcel, TcpStream, TcpStream) {
    let (near, client) = accepted_pair();
    let (far, upstream) = accepted_pair();
    let end = |fd: &OwnedFd| Endpoint {
        number: fd.as_raw_fd(),
        cookie: net::cookie(fd.as_fd()).unwrap(),
    };
    let identity = Identity {
        client: end(&client),
        upstream: end(&upstream),
        rule: RuleKey::of("rule"),
        target: TargetKey::of("target"),
        target_index: 1,
        generation: 2,
        opened_at: 3,
        peer: "192.0.2.1:4".parse().unwrap(),
        idle: Some(Duration::from_secs(5)),
        adoptions: 0,
        adopted_at: 0,
    };
    let frozen = Box::new(Frozen { client, upstream, to_upstream, to_client });
    (Parcel { frozen, identity, quiet: Duration::from_millis(6) }, near, far)
}

fn empty() -> Flow {
    Flow::new(Vec::new())
}

/// An exporter, and what it talks to in the test's hands.
async fn exporter() -> (Exporter, PeerEnd, watch::Sender<bool>) {
    let (near, far) = pair().unwrap();
    let other = PeerEnd::new(far).unwrap();
    let (died, watched) = watch::channel(false);
    let hello = Peer::Hello(HelloPeer { version: "other".into() });
    other.send(&hello, &[]).await.unwrap();
    let exporter = Exporter::start(near, "test", watched).await.unwrap();
    assert!(matches!(other.recv().await.unwrap().message, Peer::Hello(_)));
    (exporter, other, died)
}

/// Ships one connection while the other side does `reaction` to the offer, and holds that it is
/// still here and whole.
async fn stays(reaction: impl AsyncFnOnce(PeerEnd, watch::Sender<bool>)) -> Option<MoveError> {
    let (mut exporter, other, died) = exporter().await;
    let (one, mut near, _far) = parcel(empty(), empty());
    let (Shipment { mut kept, failure }, ()) =
        tokio::join!(exporter.ship(vec![one]), reaction(other, died));
    let mut client = TcpStream::from(kept.remove(0).unwrap().frozen.client);
    client.write_all(b"here").unwrap();
    near.read_exact(&mut [0; 4]).unwrap();
    failure
}

#[tokio::test]
async fn what_is_refused_stays_and_the_channel_goes_on() {
    let failure = stays(async |other, _died| {
        let offered = other.recv().await.unwrap();
        let answer = Peer::Answer(OfferAnswer { accepted: vec![false] });
        other.say(offered.transaction, &answer).await.unwrap();
        let last = other.recv().await.unwrap();
        assert_eq!((last.message, last.transaction), (Peer::Withdraw, offered.transaction));
    });
    assert!(failure.await.is_none());
}

#[tokio::test]
async fn an_answer_to_something_else_is_withdrawn() {
    let failure = stays(async |other, _died| {
        let offered = other.recv().await.unwrap();
        let answer = Peer::Answer(OfferAnswer { accepted: vec![true] });
        other.say(Transaction(99), &answer).await.unwrap();
        let last = other.recv().await.unwrap();
        assert_eq!((last.message, last.transaction), (Peer::Withdraw, offered.transaction));
    });
    assert!(matches!(failure.await, Some(MoveError::OutOfTurn("Answer"))));
}

#[tokio::test]
async fn an_other_side_that_leaves_or_dies_takes_nothing_with_it() {
    let failure = stays(async |other, _died| {
        other.recv().await.unwrap();
    });
    assert!(matches!(failure.await, Some(MoveError::Receive(_))));
    let failure = stays(async |other, died| {
        // Its keeper holds its end, so that the channel does not end with it.
        other.recv().await.unwrap();
        died.send(true).unwrap();
        // Kept until the test ends.
        assert!(matches!(other.recv().await.unwrap().message, Peer::Withdraw));
    });
    assert!(matches!(failure.await, Some(MoveError::Died)));
}

#[tokio::test]
async fn an_answer_with_too_few_entries_takes_only_those_it_names() {
    let (mut exporter, other, _died) = exporter().await;
    let (one, _near, _far) = parcel(empty(), empty());
    let (two, _near, _far) = parcel(empty(), empty());
    let answers = async {
        let offered = other.recv().await.unwrap();
        let answer = Peer::Answer(OfferAnswer { accepted: vec![true] });
        other.say(offered.transaction, &answer).await.unwrap();
        assert_eq!(other.recv().await.unwrap().message, Peer::Commit);
    };
    let (shipment, ()) = tokio::join!(exporter.ship(vec![one, two]), answers);
    assert!(shipment.kept[0].is_none() && shipment.kept[1].is_some());
}

#[tokio::test]
async fn everything_known_about_a_connection_arrives() {
    let pipe = Pipe::new().unwrap();
    net::fill(&pipe, b"in the pipe ").unwrap();
    let held = HeldPipe { pipe, held: 12 };
    let up = Flow::resumed(Some(held), b"and behind".to_vec(), false, false, 70).splicing(true);
    let down = Flow::resumed(None, b"in memory".to_vec(), false, false, 80);
    let (one, _near, _far) = parcel(up, down);
    let sent = one.identity;
    let (near, far) = pair().unwrap();
    let (_alive, watched) = watch::channel(false);
    let (exporter, importer) = tokio::join!(
        Exporter::start(near, "old", watched.clone()),
        Importer::start(far, "new", watched)
    );
    let (mut exporter, mut importer) = (exporter.unwrap(), importer.unwrap());
    let arrives = async {
        let arrival = importer.next().await.unwrap().unwrap();
        assert!(importer.answer(arrival.transaction, vec![true]).await.unwrap());
        arrival.connections.into_iter().next().unwrap().unwrap()
    };
    let (shipment, newcomer) = tokio::join!(exporter.ship(vec![one]), arrives);
    assert!(shipment.failure.is_none() && shipment.kept[0].is_none());

    let Frozen { client, upstream, to_upstream, to_client } = newcomer.frozen;
    let here = |end: Endpoint, fd: &OwnedFd| Endpoint { number: fd.as_raw_fd(), ..end };
    let expected = Identity {
        client: here(sent.client, &client),
        upstream: here(sent.upstream, &upstream),
        ..sent
    };
    assert_eq!((newcomer.identity, newcomer.quiet), (expected, Duration::from_millis(6)));
    assert!(to_upstream.splices() && !to_client.splices());
    assert_eq!((to_upstream.total(), to_client.total()), (70, 80));
    assert_eq!((to_upstream.bytes(), to_client.bytes()), (&b""[..], &b"in memory"[..]));
    let HeldPipe { pipe, held } = to_upstream.into_pipe().unwrap();
    let mut bytes = vec![0; held];
    std::fs::File::from(pipe.into_ends().0).read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, b"in the pipe and behind");

    exporter.finish().await.unwrap();
    assert!(importer.next().await.unwrap().is_none());
}

#[tokio::test]
async fn an_offer_that_lies_about_a_connection_is_seen_through() {
    let (near, far) = pair().unwrap();
    let (_alive, watched) = watch::channel(false);
    let other = PeerEnd::new(near).unwrap();
    other.send(&Peer::Hello(HelloPeer { version: "liar".into() }), &[]).await.unwrap();
    let mut importer = Importer::start(far, "new", watched).await.unwrap();
    other.recv().await.unwrap();

    let (honest, _near, _far) = parcel(empty(), empty());
    let offered = |parcel: &Parcel| {
        let tracks = [parcel.frozen.to_upstream.track(), parcel.frozen.to_client.track()];
        baton_handoff::message::Offered::new(
            &parcel.identity,
            tracks,
            parcel.quiet,
            [vec![], vec![]],
        )
    };
    let mut cookie = offered(&honest);
    cookie.record.identity.client.cookie ^= 1;
    let mut end = offered(&honest);
    end.record.to_client.eof_seen = true;
    let connections = vec![cookie, end, offered(&honest)];
    let sockets = [honest.frozen.client.as_fd(), honest.frozen.upstream.as_fd()];
    other.send(&Peer::Offer(Offer { connections }), &sockets.repeat(3)).await.unwrap();
    let arrival = importer.next().await.unwrap().unwrap();
    let losses: Vec<_> =
        arrival.connections.iter().map(|one| one.as_ref().err().copied()).collect();
    assert_eq!(losses, [Some(Loss::Gone), Some(Loss::Contradiction), None]);
}
