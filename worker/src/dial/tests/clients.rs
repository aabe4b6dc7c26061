//! A client that leaves during the dial, and one that only stops talking.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use super::scene::*;
use crate::dial::{Client, Limits, Stopped, drive};
use crate::flow::{Event, GiveUp, RelayEnd, Step, Steps};
use crate::net;
use crate::net::testing::{accepted_pair, black_hole};
use crate::relay::{Control, End, Relay, RelayContext};

/// Dials a target that never answers while `act` happens to the client.
fn during_a_stuck_dial(
    spoke: bool,
    limit: Duration,
    act: impl FnOnce(TcpStream) -> Option<TcpStream>,
) -> Stopped {
    let (_hole, _fill, silent) = black_hole();
    let mut scene = Scene::new(Limits::default());
    scene.target(&[silent]);
    let (near, far) = accepted_pair();
    let mut client = Client::new(far.into(), spoke);
    let mut machine = Script::new(move |event, steps: &mut Steps| match event {
        None => steps.push(dial(0, 0, limit)),
        Some(Event::Started(_)) => {}
        Some(_) => steps.push(Step::GiveUp(GiveUp::AllFailed)),
    });
    let kept = act(near);
    let end = block_on(drive(&mut machine, &scene, Some(&mut client))).unwrap_err();
    assert_eq!(scene.bulkhead.in_use(), 0, "the dial is cancelled");
    drop(kept);
    end
}

#[test]
fn a_reset_cancels_the_dial() {
    let end = during_a_stuck_dial(true, LONG, |near| {
        net::reset(OwnedFd::from(near));
        None
    });
    assert_eq!(end, Stopped::ClientGone);
}

#[test]
fn a_client_that_leaves_without_a_word_cancels_the_dial() {
    let end = during_a_stuck_dial(false, LONG, |near| {
        drop(near);
        None
    });
    assert_eq!(end, Stopped::ClientGone);
}

#[test]
fn a_client_that_finished_its_request_still_waits_for_the_answer() {
    let limit = Duration::from_millis(100);
    let end = during_a_stuck_dial(true, limit, |near| {
        near.shutdown(Shutdown::Write).unwrap();
        Some(near)
    });
    assert_eq!(end, Stopped::GaveUp(GiveUp::AllFailed));
    // Not read yet, but sent: the same.
    let end = during_a_stuck_dial(false, limit, |mut near| {
        near.write_all(b"request").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        Some(near)
    });
    assert_eq!(end, Stopped::GaveUp(GiveUp::AllFailed));
}

#[test]
fn what_the_client_said_during_a_long_dial_is_relayed() {
    let (_hole, _fill, silent) = black_hole();
    let (listener, address) = listener();
    let mut scene = Scene::new(Limits::default());
    // The second address is tried after the delay of happy eyeballs: the drive must wait.
    scene.target(&[silent, address]);
    let (mut near, far) = accepted_pair();
    let peer = std::thread::spawn(move || {
        use std::io::Read;
        near.write_all(b"said during the dial").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let (mut upstream, _) = listener.accept().unwrap();
        let (mut heard, mut answer) = (String::new(), String::new());
        upstream.read_to_string(&mut heard).unwrap();
        upstream.write_all(b"answer").unwrap();
        drop(upstream);
        near.read_to_string(&mut answer).unwrap();
        (heard, answer)
    });
    let end = block_on(async {
        let mut client = Client::new(far.into(), true);
        let mut machine = Script::new(|event, steps: &mut Steps| match event {
            None => steps.push(dial(0, 0, LONG)),
            Some(Event::Connected { attempt, .. }) => steps.push(Step::Use(attempt)),
            Some(_) => {}
        });
        let upstream = drive(&mut machine, &scene, Some(&mut client)).await.unwrap();
        let context = Rc::new(RelayContext::new());
        let control = Rc::new(Control::new(net::now()));
        let client = client.into_socket().unwrap();
        Relay::new(client, upstream.socket, Vec::new(), context, control, ()).unwrap().await
    });
    assert_eq!(peer.join().unwrap(), ("said during the dial".into(), "answer".into()));
    match end {
        End::Closed(outcome) => {
            assert_eq!(outcome.for_line(), RelayEnd::Clean { carried: true });
        }
        End::Frozen(_) => panic!("nobody asked for that"),
    }
}
