//! The host a client asks for, in whatever it speaks: the key of `hash` by host.
//!
//! The first byte tells the protocols apart. A TLS record is read for the server name of its
//! ClientHello ([`tls`]), anything that can be an HTTP/1 request for its `Host`
//! ([`head`]). Everything else names no host, which is told with the first byte that shows it: the
//! rule then goes by the client's address. Nothing is decrypted, changed or checked beyond that.
//!
//! The key is the name alone, without a port, so that a site has one target whether it is asked
//! for over TLS or not.

mod head;
#[cfg(test)]
mod tests;

use self::head::Head;
use super::tls::{self, HelloParser};
use super::{Cause, Decision, Progress, Reason};
use crate::flow::Verdict;

/// Most bytes that are looked at.
pub const LIMIT: usize = tls::LIMIT;

/// The reader of one client's host.
#[derive(Debug, Default)]
pub enum HostParser {
    /// Nothing was read yet.
    #[default]
    Unknown,
    /// It begins like TLS.
    Tls(HelloParser),
    /// It may be an HTTP request.
    Http(Head),
}

impl HostParser {
    /// Looks at the window, which must begin with what it held at the last call.
    pub fn feed(&mut self, window: &[u8]) -> Progress {
        loop {
            match self {
                Self::Unknown => match window.first() {
                    None => return Progress::NeedMore,
                    Some(&tls::RECORD_HANDSHAKE) => *self = Self::Tls(HelloParser::default()),
                    Some(_) => *self = Self::Http(Head::default()),
                },
                Self::Tls(parser) => {
                    return match parser.feed(window) {
                        Progress::NeedMore => Progress::NeedMore,
                        Progress::Decided(decision) => Progress::Decided(named(decision)),
                    };
                }
                Self::Http(head) => {
                    return match head.feed(window) {
                        Ok(None) => Progress::NeedMore,
                        Ok(Some(host)) => {
                            Progress::Decided(Decision::Found(Verdict::Host(host.into())))
                        }
                        Err(cause) => Progress::Decided(nothing(cause)),
                    };
                }
            }
        }
    }

    /// Decides with what there is: what is cut off names no host.
    pub fn end(&mut self, window: &[u8], reason: Reason) -> Decision {
        match self.feed(window) {
            Progress::Decided(decision) => decision,
            Progress::NeedMore => nothing(reason.into()),
        }
    }
}

/// What a ClientHello says about the host.
fn named(decision: Decision) -> Decision {
    match decision {
        Decision::Found(Verdict::Hello(hello)) => match hello.server_name {
            Some(name) => Decision::Found(Verdict::Host(name)),
            None => nothing(Cause::NoHost),
        },
        Decision::Found(_) => nothing(Cause::NoHost),
        Decision::Nothing(_, cause) => nothing(cause),
    }
}

fn nothing(cause: Cause) -> Decision {
    Decision::Nothing(Verdict::Opaque, cause)
}
