//! System calls as the relay, dial and accept stages need them.
//!
//! Thin by intent: one call in, one call out, `io::Result`, no policy. What `nix` and `socket2`
//! offer is used from there; `unsafe` is confined to what they lack:
//!
//! * the first byte of `TCP_INFO` (the state), and the queue lengths `FIONREAD` and `SIOCOUTQ`;
//! * glibc's `malloc_trim`;
//! * tokio's promise for a registered descriptor, which an owned one keeps.
//!
//! Every descriptor made here is non-blocking and close-on-exec from birth. Writes never raise
//! `SIGPIPE`: sends carry `MSG_NOSIGNAL`, and for `splice` the Rust runtime ignores the signal.
#![allow(unsafe_code)]

mod accept;
mod bytes;
mod clock;
mod info;
mod memory;
mod options;
mod outgoing;
mod pipe;
mod socket;

pub use accept::{accept, register_listener};
pub use bytes::{peek, recv, send, send_more, shut_write};
pub use clock::now;
pub use info::{TcpState, cookie, has_error, tcp_state, unread, unsent};
pub use memory::trim_memory;
pub use options::{
    KEEPALIVE_IDLE, abort, discard_on_close, inline_urgent, keep_alive, reset, tune,
};
pub use outgoing::{Connecting, confirm, connect};
pub use pipe::{PIPE_SIZES, Pipe, fill, splice_in, splice_out};
pub use socket::Socket;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
