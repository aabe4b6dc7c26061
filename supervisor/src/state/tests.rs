//! The machine against a world in memory: readable scenarios, and random hostile ones.

mod adopt;
mod fallback;
mod living;
mod property;
mod recovery;
mod reload;
mod replace;
mod start;
mod stopping;
mod upgrade;
mod world;
