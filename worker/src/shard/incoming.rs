//! The loop that takes connections from one listener on one shard.
//!
//! Up to [`BATCH`] are accepted for one readiness. With the queue not yet empty the loop yields
//! to the shard's other tasks and goes on by itself: the edge that woke it will not come again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::unix::AsyncFd;

use super::{Carried, Shard};
use crate::accept::admission::Refusal;
use crate::accept::backoff::{After, Backoff};
use crate::accept::listeners::ListenerId;
use crate::flow::{ClientAddr, Moment};
use crate::generation::{Generation, Permit, Rule, RuleIndex};
use crate::net;
use crate::session::Client;

/// Connections taken for one readiness; the best of the sizes measured.
const BATCH: usize = 8;

/// A connection that was let in and has no shard yet.
#[derive(Debug)]
pub(super) struct Admitted {
    client: Client,
    peer: SocketAddr,
    permit: Permit,
    at: Moment,
}

/// A connection that was let in and has its shard.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The client; whatever becomes of this value, it is reset unless it is served.
    pub(crate) client: Client,
    /// Who connected; with PROXY protocol the hop before us.
    pub(crate) peer: SocketAddr,
    /// Its slots, rule and generation.
    pub(crate) permit: Permit,
    /// When it was accepted.
    pub(crate) at: Moment,
    /// Its share in the shard's load.
    pub(crate) carried: Carried,
}

impl Admitted {
    /// Adds the share in the load of the shard that will own it.
    pub(super) fn carried(self, carried: Carried) -> Accepted {
        let Self { client, peer, permit, at } = self;
        Accepted { client, peer, permit, at, carried }
    }
}

/// How a batch ended.
enum Batch {
    /// The queue is empty.
    Empty,
    /// There may be more.
    Full,
    /// Our own lack: go on after the pause.
    Pause(Duration),
    /// Nothing more is accepted from this listener.
    Over,
}

/// Accepts until the published generation has no rule for this listener, or is cancelled.
pub(super) async fn accept(shard: Rc<Shard>, id: ListenerId, socket: AsyncFd<OwnedFd>) {
    let _watch = PanicWatch(&shard);
    let mut backoff = Backoff::default();
    loop {
        let Ok(mut ready) = socket.readable().await else {
            // The runtime is shutting down.
            return;
        };
        match batch(&shard, id, socket.get_ref().as_fd(), &mut backoff) {
            Batch::Empty => ready.clear_ready(),
            Batch::Full => {
                drop(ready);
                tokio::task::yield_now().await;
            }
            Batch::Pause(pause) => {
                drop(ready);
                tokio::time::sleep(pause).await;
            }
            Batch::Over => return,
        }
    }
}

/// A loop that panics would leave its shard deaf to the listener without a word.
struct PanicWatch<'s>(&'s Shard);

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.process().report_broken("an accept loop has panicked".to_owned());
        }
    }
}

fn batch(
    shard: &Rc<Shard>,
    id: ListenerId,
    listener: BorrowedFd<'_>,
    backoff: &mut Backoff,
) -> Batch {
    // Looked up before accepting: a connection is never taken from a listener whose rule is
    // gone, and a batch is too short for a client to have seen the switch.
    let Some(generation) = shard.process().published.load_full() else { return Batch::Over };
    let Some(index) = generation.rule_of(id) else { return Batch::Over };
    let now = net::now();
    for _ in 0..BATCH {
        match net::accept(listener) {
            Ok((socket, peer)) => {
                backoff.worked();
                match admit(&generation, index, peer) {
                    Ok(permit) => {
                        let client = Client::new(socket);
                        shard.place(Admitted { client, peer, permit, at: now });
                    }
                    // The socket is closed without a word.
                    Err(refusal) => refuse(shard, generation.rule(index), refusal, Some(peer), now),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let refusal = Refusal::InvalidRemoteAddress;
                refuse(shard, generation.rule(index), refusal, None, now);
            }
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                match backoff.failed(errno) {
                    After::Wait => return Batch::Empty,
                    After::Next => {}
                    After::Pause(pause) => {
                        generation.rule(index).tell_lack(errno, pause, now);
                        return Batch::Pause(pause);
                    }
                    After::Broken => {
                        let rule = &generation.rule(index).name;
                        shard
                            .process()
                            .report_broken(format!("cannot accept for rule {rule}: {errno}"));
                        return Batch::Over;
                    }
                }
            }
        }
    }
    Batch::Full
}

fn refuse(shard: &Shard, rule: &Rule, refusal: Refusal, peer: Option<SocketAddr>, now: Moment) {
    rule.series(shard.index()).rejected(refusal);
    rule.tell_refused(refusal, peer, now);
}

/// The part of admission that needs nothing but the peer's address. Where a PROXY header is
/// required the client is not known yet, and its share is taken when it is.
fn admit(
    generation: &Arc<Generation>,
    index: RuleIndex,
    peer: SocketAddr,
) -> Result<Permit, Refusal> {
    let peer = ClientAddr::folded(peer);
    let rule = generation.rule(index);
    let awaits_header = match &rule.hops {
        None => false,
        Some(hops) if hops.contains(peer.ip()) => true,
        Some(_) => return Err(Refusal::ProxyProtocol),
    };
    let permit = Permit::enter(generation, index)?;
    if !awaits_header {
        permit.admit(peer)?;
    }
    Ok(permit)
}
