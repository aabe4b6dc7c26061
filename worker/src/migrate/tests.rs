//! Decisions on their own, then real workers that are killed.

mod decisions;
mod engine;
mod kills;
mod streams;
