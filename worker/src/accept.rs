//! Who is let in: listening sockets, limits, lists, and how accepting pauses when the process
//! has run out of descriptors.

pub mod admission;
pub(crate) mod backoff;
pub(crate) mod listeners;
pub mod lists;
