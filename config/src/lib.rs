//! Baton's configuration: a strict reader, a checked model and the difference of two models.
//!
//! The stages of a file: bytes → syntax tree (positions, duplicates) → raw types as written
//! → checked [`model`] as meant. Every problem of a file is reported at once.

pub mod model;
