//! The channel between two workers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use baton_handoff::message::{HelloPeer, Peer};
use baton_handoff::{PeerEnd, Received, RecvError, SendError, Transaction};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the other worker may take for one step.
const STEP_LIMIT: Duration = Duration::from_secs(5);

/// Why connections cannot move (any more).
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The socket is not one between workers.
    #[error("cannot use the channel to the other worker: {0}")]
    Socket(#[source] io::Error),
    /// A message was not sent.
    #[error("cannot tell the other worker: {0}")]
    Send(#[from] SendError),
    /// Nothing more comes, or what comes makes no sense.
    #[error("cannot hear the other worker: {0}")]
    Receive(#[from] RecvError),
    /// It is dead.
    #[error("the other worker is dead")]
    Died,
    /// A step took too long.
    #[error("the other worker does not answer")]
    Silent,
    /// Something that does not belong here.
    #[error("the other worker said {0} out of turn")]
    OutOfTurn(&'static str),
}

/// One side of the conversation.
///
/// The other's death does not end the channel, for its keeper holds the other end: whoever knows
/// of it says so. What the dead one had said is still heard.
#[derive(Debug)]
pub(super) struct Talk {
    end: PeerEnd,
    died: watch::Receiver<bool>,
}

impl Talk {
    /// Greets, and waits for the other's greeting.
    pub(super) async fn start(
        socket: OwnedFd,
        version: &str,
        died: watch::Receiver<bool>,
    ) -> Result<Self, MoveError> {
        let end = PeerEnd::new(socket).map_err(MoveError::Socket)?;
        let mut talk = Self { end, died };
        let hello = Peer::Hello(HelloPeer { version: version.to_owned() });
        talk.send(&hello, &[]).await?;
        match in_time(talk.hear()).await?.message {
            Peer::Hello(_) => Ok(talk),
            other @ (Peer::Offer(_)
            | Peer::Answer(_)
            | Peer::Commit
            | Peer::Withdraw
            | Peer::Over
            | Peer::Nak(_)) => Err(out_of_turn(&other)),
        }
    }

    pub(super) fn other_is_dead(&self) -> bool {
        *self.died.borrow()
    }

    /// The next message, as long as one may come.
    pub(super) async fn hear(&mut self) -> Result<Received<Peer>, MoveError> {
        let Self { end, died } = self;
        let received = tokio::select! {
            biased;
            received = end.recv() => Some(received?),
            () = told(died) => end.try_recv()?,
        };
        received.ok_or(MoveError::Died)
    }

    pub(super) async fn send(
        &self,
        message: &Peer,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Transaction, MoveError> {
        in_time(async { Ok(self.end.send(message, fds).await?) }).await
    }

    pub(super) async fn say(&self, about: Transaction, message: &Peer) -> Result<(), MoveError> {
        in_time(async { Ok(self.end.say(about, message).await?) }).await
    }
}

/// Waits for word of the other's death.
async fn told(died: &mut watch::Receiver<bool>) {
    if died.wait_for(|died| *died).await.is_err() {
        // Nobody is left to tell.
        std::future::pending::<()>().await;
    }
}

pub(super) async fn in_time<T>(
    step: impl Future<Output = Result<T, MoveError>>,
) -> Result<T, MoveError> {
    timeout(STEP_LIMIT, step).await.unwrap_or(Err(MoveError::Silent))
}

pub(super) fn out_of_turn(message: &Peer) -> MoveError {
    MoveError::OutOfTurn(match message {
        Peer::Hello(_) => "Hello",
        Peer::Offer(_) => "Offer",
        Peer::Answer(_) => "Answer",
        Peer::Commit => "Commit",
        Peer::Withdraw => "Withdraw",
        Peer::Over => "Over",
        Peer::Nak(_) => "Nak",
    })
}
