//! The routing and relay engine: accepts, classifies, routes, selects, dials and relays.

pub mod flow;
