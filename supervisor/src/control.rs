//! The control socket: how `baton reload`, `upgrade`, `status`, `explain` and `stop` reach the supervisor.
//!
//! One request a connection, then answers until `done`: a JSON object a line in both directions.

pub mod client;
mod places;
pub mod protocol;
pub(crate) mod server;
