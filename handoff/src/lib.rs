//! All that crosses a process boundary: frames, versions, descriptors, the channel.
//!
//! Read from the outside in: [`SupervisorEnd`] and [`WorkerEnd`] are the two ends of a control
//! channel and [`PeerEnd`] one between workers (`role`); under them one packet each way with its descriptors (`channel`), the
//! descriptors' checks (`bundle`), the header ([`frame`]), the body (`codec`) and the protocol's
//! tables (`message/wire.rs`). What is said, and when, is in [`message`].
//!
//! Everything received is untrusted: it is bounded in size and number before it is looked at, and
//! a message that fails any check is closed with all its descriptors, answered with a `Nak` where
//! the sender waits for one, and leaves the channel usable.

pub mod adoption;
mod bundle;
mod channel;
mod codec;
mod fault;
pub mod faults;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod inherit;
pub mod keeper;
mod memfd;
pub mod message;
mod role;
pub mod table;
pub mod version;

pub use channel::pair;
pub use codec::CodecError;
pub use fault::{Fault, NakError, RecvError, SendError};
pub use frame::{Kind, Transaction};
pub use memfd::{MemfdError, read_sealed, seal};
pub use role::{End, PeerEnd, Received, SupervisorEnd, WorkerEnd};
