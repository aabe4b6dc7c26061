//! Decisions on their own, then real workers that are killed.

mod conversations;
mod decisions;
mod engine;
mod kills;
mod moves;
mod streams;
