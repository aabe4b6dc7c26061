//! Candidates → an order, a rotation or a race: which line next, and when.
//!
//! Each connection runs one [`Machine`]: told what happened
//! ([`Event`](crate::flow::Event)), it says what to do ([`Step`](crate::flow::Step)), and ends in
//! exactly one `Use` or `GiveUp`. Machines are pure: no socket, no clock, no task; time and randomness come in. What outlives a connection is the rule's
//! [`Selector`] (cursor, winner cache) and the lines of `upstream/`, which the machines ask
//! for admission and tell the outcome, so that no driver can forget to.
//!
//! | mode | machine |
//! |---|---|
//! | `normal`, `regex`, `tls` | [`walk`]: candidates in order, each with its share of the time |
//! | `boost` | [`boost`]: cached winner, hedge, else a race of the best two ([`rank`]); [`refresh`] in the background |
//! | `roundrobin` | [`roundrobin`]: one by rotation, then `boost` without it |
//! | `forward` | [`forward`]: eligibility, marks, backups, then a strategy ([`strategy`]) |
//!
//! Invariants, kept by the shared attempt table ([`flights`]) and checked by the tests over
//! random schedules: an address is dialled at most once a connection; a race never has more
//! than two in flight; a cancelled attempt and a quota refusal leave no trace on the line.

mod boost;
pub mod cache;
pub mod explain;
mod flights;
mod forward;
mod machine;
mod notes;
mod rank;
mod refresh;
mod roundrobin;
mod selector;
mod strategy;
mod walk;

pub use cache::RefreshTicket;
pub use flights::Winner;
pub use machine::Machine;
pub use notes::{HedgeNotes, Notes};
pub use selector::{Affinity, Selector};

#[cfg(test)]
mod tests;
