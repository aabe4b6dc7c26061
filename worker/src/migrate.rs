//! Connections that change their process: after a crash, and when a new worker takes over.
//!
//! What moves is the same in both cases: two sockets, at most two pipes, and a record of the
//! connection table. So there is one way to decide whether a connection can go on ([`judge`]) and
//! one to put it together again ([`rebuild`]); the crash ([`recover`]) merely finds the parts in
//! a dead process's keeper instead of in a message.
//!
//! Moving on purpose: the old worker freezes a connection at the boundary of a system call and
//! sends it over a channel to the new one ([`Exporter`], [`Importer`]). Until the commit is sent
//! it is the old one's, which goes on with it if anything fails; from then on the new one's. Both
//! have it in their tables meanwhile, in states that tell which record counts.
//!
//! Invariant: a record is a hint. What the kernel says (socket cookies, TCP states, bytes in a
//! pipe) decides, and where the two contradict each other the connection is reset: both peers
//! see that it failed, neither sees an orderly end that the other did not ask for.

mod export;
mod import;
mod judge;
mod peer;
mod plan;
mod rebuild;
mod recover;

pub use export::{Exporter, Parcel, Shipment};
pub use import::{Arrival, Importer, Newcomer};
pub use judge::{Loss, SideFacts, judge};
pub use peer::MoveError;
pub use plan::{Grounds, Offers, POISON_AGE, POISON_LIMIT, Plan, plan};
pub use rebuild::{Parts, rebuild};
pub use recover::{RecoverError, Report, Rescued, Source, recover};

#[cfg(test)]
mod tests;
