//! The new worker's side: looks at what is offered, and takes it when it is told to.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use baton_handoff::Transaction;
use baton_handoff::message::{Offer, OfferAnswer, Offered, Peer};
use baton_handoff::table::{Endpoint, Identity};
use tokio::sync::watch;

use super::judge::Loss;
use super::peer::{MoveError, Talk, out_of_turn};
use super::rebuild::{Parts, rebuild};
use crate::net::Pipe;
use crate::relay::Frozen;

/// A connection that may come to this worker. Until it is committed it is the other's: no byte
/// may be moved, and dropping it just closes copies.
#[derive(Debug)]
pub struct Newcomer {
    /// The connection.
    pub frozen: Frozen,
    /// What it is, with the numbers of this process.
    pub identity: Identity,
    /// How long no byte had moved.
    pub quiet: Duration,
}

/// What is offered.
#[derive(Debug)]
pub struct Arrival {
    /// What the answer refers to.
    pub transaction: Transaction,
    /// In the order of the offer: what can go on, and why the others cannot.
    pub connections: Vec<Result<Newcomer, Loss>>,
}

/// Takes connections from one other worker.
#[derive(Debug)]
pub struct Importer {
    talk: Talk,
}

impl Importer {
    /// Greets the other worker; `died` tells when that is dead. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn start(
        socket: OwnedFd,
        version: &str,
        died: watch::Receiver<bool>,
    ) -> Result<Self, MoveError> {
        Ok(Self { talk: Talk::start(socket, version, died).await? })
    }

    /// Waits for the next offer; `None` when there is nothing more to come. Has no time limit.
    ///
    /// Of each connection that can go on, write a record in the state `Offered` (with
    /// [`Frozen::note`]), then [`Importer::answer`].
    ///
    /// # Errors
    /// [`MoveError`]: nothing more will come.
    pub async fn next(&mut self) -> Result<Option<Arrival>, MoveError> {
        loop {
            let received = self.talk.hear().await?;
            match received.message {
                // A dead worker can commit nothing any more.
                Peer::Offer(_) if self.talk.other_is_dead() => return Err(MoveError::Died),
                Peer::Offer(Offer { connections }) => {
                    let mut fds = received.fds.into_iter();
                    let connections =
                        connections.into_iter().map(|offered| receive(offered, &mut fds)).collect();
                    return Ok(Some(Arrival { connections, transaction: received.transaction }));
                }
                Peer::Over => return Ok(None),
                // Of an offer that this side had refused as a whole.
                Peer::Withdraw => {}
                other @ (Peer::Hello(_) | Peer::Answer(_) | Peer::Commit | Peer::Nak(_)) => {
                    return Err(out_of_turn(&other));
                }
            }
        }
    }

    /// Says which connections are taken, in the order of the offer, and waits for the word. `true`:
    /// those are this worker's now, and to be served; `false`: they are not, and to be dropped.
    /// Has no time limit while it waits.
    ///
    /// Where the other worker has died meanwhile, all that it had committed is this worker's when
    /// this returns; what it had not is in its own table.
    ///
    /// # Errors
    /// [`MoveError`]: they are not this worker's, and nothing more will come.
    pub async fn answer(
        &mut self,
        offered: Transaction,
        accepted: Vec<bool>,
    ) -> Result<bool, MoveError> {
        let answer = Peer::Answer(OfferAnswer { accepted });
        self.talk.say(offered, &answer).await?;
        let received = self.talk.hear().await?;
        match received.message {
            Peer::Commit if received.transaction == offered => Ok(true),
            Peer::Withdraw if received.transaction == offered => Ok(false),
            other @ (Peer::Hello(_)
            | Peer::Offer(_)
            | Peer::Answer(_)
            | Peer::Commit
            | Peer::Withdraw
            | Peer::Over
            | Peer::Nak(_)) => Err(out_of_turn(&other)),
        }
    }
}

/// Takes the descriptors of one connection, as many as it has, whatever becomes of it.
fn receive(offered: Offered, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<Newcomer, Loss> {
    let Offered { record, quiet, inline } = offered;
    let (client, upstream) = (fds.next(), fds.next());
    let mut ends = |there: bool| there.then(|| (fds.next(), fds.next()));
    let ends = (ends(record.to_upstream.pipe.is_some()), ends(record.to_client.pipe.is_some()));
    let pipe = |ends: Option<(Option<OwnedFd>, Option<OwnedFd>)>| match ends {
        None => Ok(None),
        Some((Some(read), Some(write))) => {
            Pipe::from_ends(read, write).map(Some).map_err(|_| Loss::Contradiction)
        }
        Some(_) => Err(Loss::Unfetched),
    };
    let (Some(client), Some(upstream)) = (client, upstream) else { return Err(Loss::Unfetched) };
    let parts = Parts { client, upstream, up: pipe(ends.0)?, down: pipe(ends.1)?, inline };
    let frozen = rebuild(&record, parts)?;
    let here = |end: Endpoint, fd: &OwnedFd| Endpoint { number: fd.as_raw_fd(), ..end };
    let identity = Identity {
        client: here(record.identity.client, &frozen.client),
        upstream: here(record.identity.upstream, &frozen.upstream),
        ..record.identity
    };
    Ok(Newcomer { frozen, identity, quiet })
}
