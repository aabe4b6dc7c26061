//! ONE connection from accept to close: the file to read first.
//!
//! ```text
//! accept ─▶ admit ─▶ (PROXY header) ─▶ (first bytes) ─▶ route ─▶ select + dial ─▶ relay ─▶ close
//! ```
//!
//! Admission has happened before ([`crate::accept`]); what a connection holds from it is given
//! back when its future ends, however it ends. Everything up to the upstream runs in a boxed
//! future that is gone afterwards: an established connection costs what relaying needs, not what
//! deciding needed.
//!
//! How it can end, as the client sees it: refused by policy: a plain close. No upstream, or any
//! failure later: a reset. An orderly end: the upstream's FIN, never one of our own making.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::accept::admission::Refusal;
use crate::accept::incoming::Accepted;
use crate::classify::proxy_header::{self, Header};
use crate::classify::{Decision, Progress, Reason, Window};
use crate::flow::{ClientAddr, GiveUp, Verdict};
use crate::net::{self, Socket};
use crate::relay::{Control, End, Relay, RelayContext};
use crate::select::{Affinity, Winner};
use crate::shard::Listed;

mod account;
mod client;
mod dialling;

pub(crate) use account::Account;
use client::{Client, Filled};

/// How long a trusted hop may take to send its PROXY header.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// A connection that has found its upstream.
struct Paired {
    client: Socket,
    upstream: Socket,
    /// What the client has sent already.
    preface: Vec<u8>,
    winner: Winner,
}

/// Why a connection has no upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// Policy, found out after the PROXY header was read.
    Refused(Refusal),
    /// No target matches the first bytes.
    NoRoute,
    /// Selection gave up.
    GaveUp(GiveUp),
    /// The client left first.
    ClientLeft,
}

/// Serves one connection.
pub(crate) async fn run(listed: Listed, accepted: Accepted) {
    let Accepted { socket, peer, permit, at, carried } = accepted;
    let account = Rc::new(Account::new(permit, at));
    let context = Rc::clone(listed.shard().relay());
    let mut client = Client::new(socket);
    let Paired { client, upstream, preface, winner } =
        match Box::pin(pair(&mut client, peer, &account, &context)).await {
            Ok((upstream, preface, winner)) => {
                let Some(client) = client.into_socket() else { return };
                Paired { client, upstream, preface, winner }
            }
            Err(unserved) => {
                account.unserved(unserved, peer, net::now());
                match unserved {
                    Unserved::Refused(_) => client.close(),
                    // Dropping it is the reset.
                    Unserved::NoRoute | Unserved::GaveUp(_) | Unserved::ClientLeft => {}
                }
                return;
            }
        };
    let control = Rc::new(Control::new(at));
    listed.relaying(&control, &account);
    let relay = Relay::new(client, upstream, preface, context, control, Rc::clone(&account));
    let outcome = match relay {
        Ok(relay) => match relay.await {
            End::Closed(outcome) => outcome,
            End::Frozen(frozen) => {
                // Given up like a connection that was cut: nobody has asked for it.
                net::reset(frozen.client);
                net::reset(frozen.upstream);
                return;
            }
        },
        Err(outcome) => outcome,
    };
    drop(carried);
    let now = net::now();
    winner.finish(outcome.for_line(), now);
    account.ended(&outcome, peer, now);
}

/// Everything between admission and relay.
async fn pair(
    client: &mut Client,
    peer: SocketAddr,
    account: &Account,
    context: &RelayContext,
) -> Result<(Socket, Vec<u8>, Winner), Unserved> {
    let rule = account.rule();
    let mut window = Window::new(0);
    let who = introduce(client, ClientAddr::folded(peer), &mut window, account, context).await?;
    let verdict = classify(client, &mut window, account, context).await?;
    let lines = rule.lines();
    let candidates = rule.candidates(&verdict).ok_or(Unserved::NoRoute)?;
    let affinity = Affinity::client(who.ip());
    let mut machine = rule.selector().begin(lines, candidates, affinity, fastrand::Rng::new());
    let spoke = !window.bytes().is_empty();
    let dialled = client
        .unless_left(spoke, dialling::drive(&mut machine, lines))
        .await
        .ok_or(Unserved::ClientLeft)?;
    let upstream = dialled.map_err(Unserved::GaveUp)?;
    let winner = machine.take_winner().ok_or(Unserved::GaveUp(GiveUp::AllFailed))?;
    Ok((upstream, window.bytes().to_vec(), winner))
}

/// Who the client is: from the PROXY header where one is required, else the TCP peer. A client
/// behind a header is admitted only now, since only now it is known.
async fn introduce(
    client: &mut Client,
    peer: ClientAddr,
    window: &mut Window,
    account: &Account,
    context: &RelayContext,
) -> Result<ClientAddr, Unserved> {
    if account.rule().hops.is_none() {
        return Ok(peer);
    }
    let deadline = net::now().after(HEADER_LIMIT);
    window.set_limit(proxy_header::LIMIT);
    let refused = Unserved::Refused(Refusal::ProxyProtocol);
    let (who, consumed) = loop {
        match proxy_header::parse(window.bytes()) {
            Header::Proxied { source, consumed, .. } => break (source, consumed),
            Header::Local { consumed } => break (peer, consumed),
            Header::Malformed => return Err(refused),
            Header::NeedMore => match client.fill(window, context, deadline).await {
                Filled::More => {}
                Filled::Eof | Filled::Deadline | Filled::Broken => return Err(refused),
            },
        }
    };
    window.consume(consumed);
    account.permit().admit(who).map_err(Unserved::Refused)?;
    Ok(who)
}

/// What the client's first bytes say, in the modes that look at them. In the others a glance:
/// what is there already is forwarded without waiting for epoll to tell.
async fn classify(
    client: &mut Client,
    window: &mut Window,
    account: &Account,
    context: &RelayContext,
) -> Result<Verdict, Unserved> {
    let rule = account.rule();
    let Some(mut classifier) = rule.classifier() else {
        window.set_limit(crate::relay::COPY_BUFFER);
        return match client.glance(window, context) {
            Filled::More | Filled::Eof | Filled::Deadline => Ok(Verdict::Unread),
            Filled::Broken => Err(Unserved::ClientLeft),
        };
    };
    window.set_limit(classifier.limit());
    let deadline = net::now().after(rule.timeout);
    let decision = loop {
        match classifier.feed(window.bytes()) {
            Progress::Decided(decision) => break decision,
            Progress::NeedMore => match client.fill(window, context, deadline).await {
                Filled::More => {}
                Filled::Eof => break classifier.end(window.bytes(), Reason::Eof),
                Filled::Deadline => break classifier.end(window.bytes(), Reason::Deadline),
                Filled::Broken => return Err(Unserved::ClientLeft),
            },
        }
    };
    Ok(match decision {
        Decision::Found(verdict) | Decision::Nothing(verdict, _) => verdict,
    })
}
