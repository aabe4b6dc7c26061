//! What is known about the upstreams: the state that decisions read and outcomes change.
//!
//! One [`Line`] is one address of one rule. It holds everything that was learned about it:
//! connect latency ([`ewma`]), the circuit breaker ([`breaker`]), failure marks ([`marks`]),
//! the verdict of active probes ([`health`]) and what the `latency` strategy weighs ([`load`]).
//! It is shared by the threads of a worker and by routing generations (an unchanged rule keeps
//! its lines), and it is exported as plain words so that an upgrade or a crash does not make
//! a worker start ignorant.
//!
//! The mechanisms are pure (events and `now` in); [`mod@line`] is the one place where they meet a
//! lock and atomics.

pub mod breaker;
pub mod ewma;
pub mod health;
pub mod line;
pub mod load;
pub mod marks;
pub mod set;
pub mod snapshot;

pub use line::{Admission, Gate, Held, Line, Refused};
pub use set::{LineSet, Node};
pub use snapshot::LineSnapshot;
