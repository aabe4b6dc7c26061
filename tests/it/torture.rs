//! Processes that die, stand still or run out of something at any step of a transition, while
//! connections of every kind go through them.
//!
//! The same oracle for all of it: [`Setting`] has connections played from both ends (`cast`), whose
//! accounts are compared ([`verdict`]), a storm of short connections, and a census of processes
//! and descriptors before and after. `matrix` lists what is done at which point to whom, `random`
//! does it at any moment. `just torture` runs all of it, CI a slice.

mod cast;
mod edges;
pub(crate) mod family;
mod matrix;
mod part;
mod random;
mod setting;
mod verdict;
mod versions;
