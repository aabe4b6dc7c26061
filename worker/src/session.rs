//! ONE connection from accept to close: the file to read first.
//!
//! ```text
//! accept ─▶ admit ─▶ (PROXY header) ─▶ (first bytes) ─▶ route ─▶ select + dial ─▶ relay ─▶ close
//! ```
//!
//! Admission has happened before ([`crate::accept`]); what a connection holds from it is given
//! back when its future ends, however it ends. Everything up to the upstream runs in a boxed
//! future that is gone afterwards: an established connection costs what relaying needs, not what
//! deciding needed. An established connection can leave for another process and come from one
//! ([`relayed`]): then it is relayed there as here.
//!
//! How it can end, as the client sees it: refused by policy, or by what it sent
//! first: a plain close. No upstream, or any
//! failure later: a reset. An orderly end: the upstream's FIN, never one of our own making.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::task::spawn_local;

use crate::accept::admission::Refusal;
use crate::classify::proxy_header::{self, Header};
use crate::classify::{Decision, Progress, Reason, Window};
use crate::dial::{self, Stopped};
use crate::flow::{ClientAddr, GiveUp, OriginalDst, Verdict};
use crate::generation::{Path, Permit, Rule};
use crate::net::{self, Socket};
use crate::relay::{COPY_BUFFER, Control, RelayContext};
use crate::route::NoRoute;
use crate::select::Affinity;
use crate::shard::{Accepted, Listed, Shard};

mod account;
mod client;
mod dialling;
mod refresh;
mod relayed;
mod seat;

pub(crate) use account::Account;
pub(crate) use client::Client;
use client::Filled;
use dialling::Counted;
use refresh::refresh;
use relayed::{Away, Relayed, Start};
pub(crate) use relayed::{Fate, Guest, Lifted};

/// How long a trusted hop may take to send its PROXY header.
const HEADER_LIMIT: Duration = Duration::from_secs(5);

/// Who connected, and where to.
#[derive(Debug, Clone, Copy)]
struct Ends {
    client: ClientAddr,
    /// Known only where a header said it.
    destination: Option<OriginalDst>,
}

/// Why a connection has no upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// Policy, found out after the PROXY header was read.
    Refused(Refusal),
    /// No target may serve it.
    NoRoute(NoRoute),
    /// Selection gave up.
    GaveUp(GiveUp),
    /// The client left first.
    ClientLeft,
    /// The dialler came to no result, which is a fault of Baton.
    Defect,
}

impl Unserved {
    /// One word for logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.as_str(),
            Self::NoRoute(NoRoute::NoMatch) => "no_match",
            Self::NoRoute(NoRoute::NoSubset) => "no_subset",
            Self::GaveUp(GiveUp::AllFailed) => "all_failed",
            Self::GaveUp(GiveUp::NoneUsable) => "none_usable",
            Self::GaveUp(GiveUp::Deadline) => "deadline",
            Self::GaveUp(GiveUp::QuotaExhausted) => "quota_exhausted",
            Self::ClientLeft => "client_left",
            Self::Defect => "defect",
        }
    }
}

/// One connection as its shard's runtime runs it.
///
/// A future written by hand, so that the room a connection needs for its whole life is that of
/// its relay: what it takes to find an upstream is in a box that is gone by then.
pub(crate) struct Session(Stage);

#[allow(clippy::large_enum_variant, reason = "the large one is what the future is for")]
enum Stage {
    Pairing(Pin<Box<dyn Future<Output = Option<Relayed>>>>),
    Relaying(Relayed),
    Away(Away),
    Over,
}

impl Session {
    /// A connection that was let in, on the shard that lists it.
    pub(crate) fn new(listed: Listed, accepted: Accepted) -> Self {
        Self(Stage::Pairing(Box::pin(begin(listed, accepted))))
    }

    /// A connection that another process served before, on the shard that lists it.
    pub(crate) fn carried_on(listed: Listed, guest: Guest) -> Self {
        Self(Stage::Pairing(Box::pin(async move { Relayed::carry_on(guest, listed) })))
    }
}

impl Session {
    fn take(&mut self) -> Stage {
        std::mem::replace(&mut self.0, Stage::Over)
    }
}

impl Future for Session {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.0 {
                Stage::Pairing(pairing) => {
                    let paired = ready!(pairing.as_mut().poll(cx));
                    self.0 = paired.map_or(Stage::Over, Stage::Relaying);
                }
                Stage::Relaying(relayed) => {
                    let end = ready!(relayed.poll(cx));
                    if let Stage::Relaying(relayed) = self.take() {
                        self.0 = relayed.finish(end).map_or(Stage::Over, Stage::Away);
                    }
                }
                Stage::Away(away) => {
                    let fate = ready!(away.poll(cx));
                    if let Stage::Away(away) = self.take() {
                        self.0 = away.finish(fate).map_or(Stage::Over, Stage::Relaying);
                    }
                }
                Stage::Over => return Poll::Ready(()),
            }
        }
    }
}

/// From admission to relay; `None` when the connection has ended before.
async fn begin(listed: Listed, accepted: Accepted) -> Option<Relayed> {
    let Accepted { mut client, peer, permit, at, carried } = accepted;
    let account = Rc::new(Account::new(permit, listed.shard().index(), peer, at));
    let (upstream, preface) = match pair(&mut client, peer, &account, listed.shard()).await {
        Ok(paired) => paired,
        Err(why) => {
            // Said before the client can see it; what is not closed here is reset when dropped.
            account.unserved(why);
            match why {
                Unserved::Refused(_) | Unserved::NoRoute(NoRoute::NoMatch) => client.close(),
                Unserved::NoRoute(NoRoute::NoSubset)
                | Unserved::GaveUp(_)
                | Unserved::ClientLeft
                | Unserved::Defect => {}
            }
            return None;
        }
    };
    let client = client.take()?;
    let start = Start { client, upstream, preface, control: Control::new(at) };
    Relayed::begin(start, account, carried, listed)
}

/// Everything between admission and relay: the upstream, and what the client has sent already.
async fn pair(
    client: &mut Client,
    peer: SocketAddr,
    account: &Account,
    shard: &Shard,
) -> Result<(Socket, Vec<u8>), Unserved> {
    let Some(permit) = account.permit() else { return Err(Unserved::Defect) };
    let (rule, context, dials) = (permit.rule(), &**shard.relay(), shard.series());
    let series = rule.series(shard.index());
    let mut window = Window::new(0);
    let ends =
        introduce(client, peer, &mut window, permit, context).await.map_err(Unserved::Refused)?;
    account.introduced(ends.client);
    account.admitted();
    let verdict = classify(client, &mut window, rule, context).await?;
    let header = rule.header.map(|version| {
        let destination = ends.destination.unwrap_or_else(|| local(client));
        proxy_header::encode(version, ends.client.0, destination.0)
    });

    let begun = net::now();
    let routing = rule.routing.load_full();
    let lines = &routing.lines;
    let candidates =
        routing.router.candidates(&verdict, lines, begun).map_err(Unserved::NoRoute)?;
    let affinity = Affinity::of(&verdict, ends.client.ip());
    let mut machine = rule.selector.begin(lines, candidates, affinity, fastrand::Rng::new());
    let preparation = header.as_ref().map(AsRef::as_ref).unwrap_or_default();
    let spoke = !window.bytes().is_empty();
    let path = Path { routing: &routing, preparation, followed: spoke };
    let watched = client.watched(spoke);
    let dialled = {
        let mut counted = Counted::new(&mut machine, lines, series, dials);
        dial::drive(&mut counted, &path, watched).await
    };
    let now = net::now();
    if let Some(ticket) = machine.take_refresh() {
        let header = rule.header.map(proxy_header::encode_unknown);
        let told = series.refreshes();
        spawn_local(refresh(ticket, Arc::clone(&routing), verdict, header, told));
    }
    let took = now.since(begun);
    series.decided(machine.notes(), dialled.is_ok().then_some(took));
    let upstream = dialled.map_err(|stopped| match stopped {
        Stopped::GaveUp(why) => Unserved::GaveUp(why),
        Stopped::ClientGone => Unserved::ClientLeft,
        Stopped::Stuck => Unserved::Defect,
    })?;
    let (prewarmed, upstream) = (upstream.connect.is_none(), upstream.socket);
    let winner = machine.take_winner().ok_or(Unserved::Defect)?;
    tracing::debug!(
        ruleName = &*rule.name,
        remoteAddr = %ends.client.0,
        targetAddr = %lines.node(winner.line()).address,
        "decisionTime(ms)" = took.as_secs_f64() * 1e3,
        boostCacheHit = machine.notes().cache_hit,
        "connection established"
    );
    let target = lines.node(winner.line()).target;
    account.paired(winner, target, prewarmed, now);
    Ok((upstream, window.into_bytes()))
}

/// Who the client is: from the PROXY header where one is required, else the TCP peer. A client
/// behind a header is admitted only now, since only now it is known.
async fn introduce(
    client: &mut Client,
    peer: SocketAddr,
    window: &mut Window,
    permit: &Permit,
    context: &RelayContext,
) -> Result<Ends, Refusal> {
    let peer = Ends { client: ClientAddr::folded(peer), destination: None };
    if permit.rule().hops.is_none() {
        return Ok(peer);
    }
    let deadline = net::now().after(HEADER_LIMIT);
    window.set_limit(proxy_header::LIMIT);
    let (ends, consumed) = loop {
        match proxy_header::parse(window.bytes()) {
            Header::Proxied { source, destination, consumed } => {
                break (Ends { client: source, destination: Some(destination) }, consumed);
            }
            Header::Local { consumed } => break (peer, consumed),
            Header::Malformed => return Err(Refusal::ProxyProtocol),
            Header::NeedMore => match client.fill(window, context, deadline).await {
                Filled::More => {}
                Filled::Eof | Filled::Deadline | Filled::Broken => {
                    return Err(Refusal::ProxyProtocol);
                }
            },
        }
    };
    window.consume(consumed);
    permit.admit(ends.client)?;
    Ok(ends)
}

/// What the client's first bytes say, in the modes that look at them. In the others a glance:
/// what is there already is forwarded without waiting for epoll to tell.
async fn classify(
    client: &mut Client,
    window: &mut Window,
    rule: &Rule,
    context: &RelayContext,
) -> Result<Verdict, Unserved> {
    let Some(mut classifier) = rule.classifier() else {
        window.set_limit(COPY_BUFFER);
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
    match decision {
        Decision::Found(verdict) => Ok(verdict),
        Decision::Nothing(verdict, cause) => {
            tracing::debug!(
                ruleName = &*rule.name,
                cause = cause.as_str(),
                "nothing to route by in the first bytes"
            );
            Ok(verdict)
        }
    }
}

/// Our own end of the client's connection: where it connected to.
fn local(client: &Client) -> OriginalDst {
    let address = client
        .socket()
        .and_then(|socket| SockRef::from(&socket.as_fd()).local_addr().ok())
        .and_then(|address| address.as_socket());
    // An accepted TCP socket has an address; a client that is gone needs none.
    OriginalDst::folded(address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::Relay;

    #[test]
    fn an_established_connection_keeps_no_room_for_deciding() {
        let room = size_of::<Session>() - size_of::<Relay<Rc<Account>>>();
        assert!(room <= 64, "{room} bytes beside the relay");
    }

    #[test]
    fn a_task_takes_three_times_the_unit_it_is_rounded_to() {
        // tokio's own part, and what it aligns tasks to on x86-64.
        const HEADER_AND_TRAILER: usize = 96;
        const UNIT: usize = 128;
        let task = size_of::<Session>() + HEADER_AND_TRAILER;
        assert!(task <= 3 * UNIT, "{task} bytes");
    }
}
