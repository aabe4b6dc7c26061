//! All that crosses a process boundary: frames, versions, descriptors, the channel.

pub mod message;
