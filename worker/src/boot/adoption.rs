//! The worker's part of being adopted: where it waits, and what it has to tell.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use baton_handoff::WorkerEnd;
use baton_handoff::adoption::Waiting;
use baton_handoff::message::{
    Adopted, Generation as Number, ListenerWanted, Prepare, Returned, Standing, ToSupervisor,
};

use super::{Event, SEND_LIMIT, Worker};

/// Descriptors in one message; the kernel takes 253.
const BATCH: usize = 200;
/// After a failed accept: nobody tells when there is a descriptor again.
const AGAIN: Duration = Duration::from_secs(1);

/// A configuration in the words in which it was offered, and the sockets it uses. A supervisor
/// that adopts us has neither.
#[derive(Debug)]
pub(super) struct Offer {
    number: Number,
    source: String,
    config: Vec<u8>,
    pub(super) listeners: Vec<ListenerWanted>,
}

impl Offer {
    pub(super) fn of(prepare: &Prepare) -> Self {
        Self {
            number: prepare.generation,
            source: prepare.source.clone(),
            config: prepare.config.clone(),
            listeners: Vec::new(),
        }
    }

    pub(super) fn is(&self, number: Number) -> bool {
        self.number == number
    }
}

/// Waits for somebody to call; for ever without a socket to wait at.
pub(super) async fn caller(waiting: Option<&Waiting>) -> OwnedFd {
    let Some(waiting) = waiting else { return std::future::pending().await };
    loop {
        match waiting.supervisor().await {
            Ok(socket) => return socket,
            Err(error) => {
                tracing::warn!(%error, "a supervisor that calls cannot be answered");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

impl Worker<'_> {
    /// Keeps the socket to wait at, should the supervisor die.
    pub(super) fn keep_adoption_socket(&mut self, socket: Option<OwnedFd>) {
        match socket.map(Waiting::new).transpose() {
            Ok(waiting) => self.adoption = waiting,
            Err(error) => tracing::warn!(%error, "the adoption socket cannot be used"),
        }
    }

    /// Somebody called: the channel to it takes the place of the one that was lost.
    pub(super) fn called(&mut self, socket: OwnedFd) -> Option<Event> {
        match WorkerEnd::new(socket) {
            Ok(end) => {
                self.end = Some(end);
                Some(Event::Called)
            }
            Err(error) => {
                tracing::warn!(%error, "a supervisor that calls cannot be answered");
                None
            }
        }
    }

    /// Tells the supervisor that adopts us how things are, and returns the listeners.
    pub(super) async fn account(&mut self, standing: Standing) {
        let Some(offer) = &self.accepted else {
            return tracing::warn!("adopted before anything was served");
        };
        let adopted = Adopted {
            standing,
            generation: offer.number,
            source: offer.source.clone(),
            config: offer.config.clone(),
        };
        self.send(&ToSupervisor::Adopted(adopted)).await;
        let Some(service) = &mut self.service else { return };
        let listeners = service.listeners();
        let held: Vec<(ListenerWanted, BorrowedFd<'_>)> = offer
            .listeners
            .iter()
            .filter_map(|wanted| Some((wanted.clone(), listeners.get(&wanted.key)?.socket.as_fd())))
            .collect();
        let mut batches = held.chunks(BATCH).peekable();
        loop {
            let batch = batches.next().unwrap_or_default();
            let last = batches.peek().is_none();
            let listeners = batch.iter().map(|(wanted, _)| wanted.clone()).collect();
            let sockets: Vec<_> = batch.iter().map(|(_, socket)| *socket).collect();
            let message = ToSupervisor::Returned(Returned { listeners, last });
            let Some(end) = &self.end else { return };
            let sending = end.hand(self.asked, &message, &sockets);
            let problem = match tokio::time::timeout(SEND_LIMIT, sending).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the supervisor does not read its messages".to_owned()),
            };
            if let Some(problem) = problem {
                // Half an answer is none: we are an orphan again.
                tracing::warn!(problem, "the listeners cannot be returned");
                self.end = None;
                self.hung_up = true;
                return;
            }
            if last {
                return;
            }
        }
    }
}
