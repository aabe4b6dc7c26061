//! The routing and relay engine: accepts, classifies, routes, selects, dials and relays.

// Until `run` ties the stages together, nothing outside the tests uses these.
#[allow(dead_code, unused_imports)]
pub mod accept;
pub mod classify;
pub mod dial;
pub mod flow;
#[allow(dead_code)]
mod lifecycle;
#[allow(dead_code, unused_imports)]
mod logging;
pub mod net;
pub mod relay;
pub mod route;
pub mod select;
#[cfg(test)]
mod testkit;
pub mod upstream;
