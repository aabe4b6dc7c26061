//! How a relayed connection ended.

use std::io;

use crate::flow::RelayEnd;

use super::state::Frozen;

/// One of the two peers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who connected to us.
    Client,
    /// Whom we connected to.
    Upstream,
}

/// What was being done on a socket when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Making it known to epoll: our own lack, not the peer's fault.
    Register,
    /// Reading from it.
    Read,
    /// Writing to it, or passing on the end of the stream.
    Write,
    /// Nothing: it was reset after its stream had ended.
    Watch,
}

/// The first thing that went wrong on a connection.
#[derive(Debug)]
pub struct Failure {
    /// On whose socket.
    pub side: Side,
    /// What was being done.
    pub operation: Operation,
    /// What the kernel said.
    pub error: io::Error,
}

/// Why the relay of a connection ended.
#[derive(Debug)]
pub enum Ending {
    /// Both streams ended and were passed on in full.
    Clean,
    /// A side broke; the other has been reset.
    Failed(Failure),
    /// Cut by order; both sides have been reset.
    Cut(super::CutReason),
}

/// The end of a relayed connection; both sockets are closed.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended.
    pub ending: Ending,
    /// Bytes handed to the upstream.
    pub to_upstream: u64,
    /// Bytes handed to the client.
    pub to_client: u64,
}

impl Outcome {
    /// What the end says about the line that served the connection.
    #[must_use]
    pub fn for_line(&self) -> RelayEnd {
        match &self.ending {
            Ending::Clean => RelayEnd::Clean { carried: self.to_upstream + self.to_client > 0 },
            Ending::Failed(Failure { side: Side::Upstream, operation, .. })
                if self.to_client == 0 && *operation != Operation::Register =>
            {
                RelayEnd::AtOnce
            }
            Ending::Failed(Failure { operation: Operation::Register, .. }) => RelayEnd::Neutral,
            Ending::Failed(_) => RelayEnd::Broken,
            Ending::Cut(_) => RelayEnd::Neutral,
        }
    }
}

/// What the future of a connection gives in the end.
#[derive(Debug)]
pub enum End {
    /// The connection is over.
    Closed(Outcome),
    /// The connection lives on, without anybody serving it: the order to freeze was given.
    Frozen(Box<Frozen>),
}
