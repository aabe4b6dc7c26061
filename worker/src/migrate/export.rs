//! The old worker's side: offers connections, and keeps what is not taken.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use baton_handoff::frame::MAX_FDS;
use baton_handoff::message::{MAX_INLINE_BYTES, MAX_OFFERED, Offer, Offered, Peer};
use baton_handoff::table::Identity;
use baton_handoff::{SendError, Transaction};
use tokio::sync::watch;

use super::peer::{MoveError, Talk, in_time, out_of_turn};
use crate::relay::Frozen;

/// A frozen connection to be moved. Its record must be in the state `Leaving`.
#[derive(Debug)]
pub struct Parcel {
    /// The connection.
    pub frozen: Box<Frozen>,
    /// What it is.
    pub identity: Identity,
    /// How long no byte had moved.
    pub quiet: Duration,
}

/// What became of parcels.
#[derive(Debug)]
pub struct Shipment {
    /// In the order of the parcels: `None` is the other worker's now, and its sockets are closed
    /// here. What is given back is to be served on.
    pub kept: Vec<Option<Parcel>>,
    /// Why nothing more can be moved over this channel.
    pub failure: Option<MoveError>,
}

/// Moves connections to one other worker.
#[derive(Debug)]
pub struct Exporter {
    talk: Talk,
}

impl Exporter {
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

    /// Offers connections and waits until it is known whose each of them is. They stand still
    /// meanwhile: pass at most [`MAX_OFFERED`] at a time.
    pub async fn ship(&mut self, parcels: Vec<Parcel>) -> Shipment {
        let mut shipment = Shipment { kept: Vec::with_capacity(parcels.len()), failure: None };
        let mut waiting = parcels.into_iter().peekable();
        while waiting.peek().is_some() {
            let mut batch = Batch::default();
            while let Some(parcel) = waiting.next_if(|parcel| batch.has_room(parcel)) {
                batch.add(parcel);
            }
            if shipment.failure.is_none() {
                shipment.failure = self.offer(&mut batch).await.err();
            }
            shipment.kept.extend(batch.parcels);
        }
        shipment
    }

    /// Says that there is nothing more to come.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn finish(self) -> Result<(), MoveError> {
        self.talk.say(Transaction::NONE, &Peer::Over).await
    }

    /// Takes the parcels that are the other's now out of the batch.
    async fn offer(&mut self, batch: &mut Batch) -> Result<(), MoveError> {
        let (offer, fds) = batch.offer();
        if offer.connections.is_empty() {
            return Ok(());
        }
        let transaction = match self.talk.send(&Peer::Offer(offer), &fds).await {
            Ok(transaction) => transaction,
            // Our own lack: these stay, and the next may go.
            Err(MoveError::Send(SendError::TooManyInFlight(_))) => return Ok(()),
            Err(error) => return Err(error),
        };
        let accepted = match in_time(self.answer(transaction)).await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Should it still listen, it is to let go. That it may not hear it is why nothing
                // is offered any more.
                let _unheard = self.talk.say(transaction, &Peer::Withdraw).await;
                return Err(error);
            }
        };
        if !accepted.contains(&true) {
            return self.talk.say(transaction, &Peer::Withdraw).await;
        }
        // Once this is sent, those that were accepted are the other's.
        self.talk.say(transaction, &Peer::Commit).await?;
        batch.let_go(&accepted);
        Ok(())
    }

    /// The answer to an offer; nothing is accepted when the offer was not understood.
    async fn answer(&mut self, offered: Transaction) -> Result<Vec<bool>, MoveError> {
        let received = self.talk.hear().await?;
        match received.message {
            Peer::Answer(answer) if received.transaction == offered => Ok(answer.accepted),
            Peer::Nak(nak) if received.transaction == offered => {
                tracing::warn!(reason = nak.reason, "connections were not taken");
                Ok(Vec::new())
            }
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

/// What travels in one offer.
#[derive(Default)]
struct Batch {
    parcels: Vec<Option<Parcel>>,
    descriptors: usize,
}

impl Batch {
    fn has_room(&self, parcel: &Parcel) -> bool {
        self.parcels.len() < MAX_OFFERED && self.descriptors + descriptors(parcel) <= MAX_FDS
    }

    fn add(&mut self, mut parcel: Parcel) {
        parcel.frozen.to_upstream.stow();
        parcel.frozen.to_client.stow();
        self.descriptors += descriptors(&parcel);
        self.parcels.push(Some(parcel));
    }

    fn offer(&self) -> (Offer, Vec<BorrowedFd<'_>>) {
        let mut offer = Offer { connections: Vec::with_capacity(self.parcels.len()) };
        let mut fds = Vec::with_capacity(self.descriptors);
        for Parcel { frozen, identity, quiet } in self.parcels.iter().flatten() {
            let flows = [&frozen.to_upstream, &frozen.to_client];
            if !fits(frozen) {
                continue;
            }
            let inline = flows.map(|flow| flow.bytes().to_vec());
            let tracks = flows.map(|flow| flow.track());
            offer.connections.push(Offered::new(identity, tracks, *quiet, inline));
            fds.extend([frozen.client.as_fd(), frozen.upstream.as_fd()]);
            for held in flows.into_iter().filter_map(|flow| flow.pipe()) {
                fds.extend([held.pipe.read_end(), held.pipe.write_end()]);
            }
        }
        (offer, fds)
    }

    /// Closes what has been accepted. A close is nothing but that: the other has its own copies.
    fn let_go(&mut self, accepted: &[bool]) {
        let mut accepted = accepted.iter();
        for place in &mut self.parcels {
            let offered = place.as_ref().is_some_and(|parcel| fits(&parcel.frozen));
            if offered && accepted.next() == Some(&true) {
                *place = None;
            }
        }
    }
}

/// A connection with more bytes in memory than an offer takes stays until they are gone.
fn fits(frozen: &Frozen) -> bool {
    let flows = [&frozen.to_upstream, &frozen.to_client];
    flows.iter().all(|flow| flow.bytes().len() <= MAX_INLINE_BYTES)
}

fn descriptors(parcel: &Parcel) -> usize {
    let flows = [&parcel.frozen.to_upstream, &parcel.frozen.to_client];
    2 + 2 * flows.iter().filter(|flow| flow.pipe().is_some()).count()
}
