//! First bytes to verdict: pure, incremental parsers without sockets or a clock.
//!
//! The caller reads into a [`Window`], never more than its room, and shows the *whole* window
//! to a [`Classifier`] after every read, until it is [`Progress::Decided`]. Deadlines and the
//! client's FIN are the caller's: it tells them with [`Classifier::end`], which always decides.
//! What the window holds then goes to the upstream first, so the client's bytes are forwarded
//! unchanged whatever was read from them.
//!
//! ```text
//! loop { match classifier.feed(window.bytes()) { NeedMore => read or end(…), Decided(d) => break d } }
//! ```
//!
//! Invariants: the verdict of a `tls` or `host` window does not depend on how its bytes were cut
//! into reads; `regex` is evaluated after each read over everything read so far, as documented there.
//! A classifier looks at no byte twice, except where its module says so, and every one is
//! bounded by its [`Classifier::limit`].

#[doc(hidden)]
pub mod fuzz;
pub mod host;
mod name;
pub mod proxy_header;
pub mod regex;
pub mod tls;
pub mod window;

use crate::flow::Verdict;

pub use window::{Overflow, Window};

/// How far a decision has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    NeedMore,
    /// Done; the classifier must not be asked again.
    Decided(Decision),
}

/// The end of a classification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// There is something to route by.
    Found(Verdict),
    /// There is not: the rule's fallback target, else the client is closed; for a hash the
    /// client's address.
    Nothing(Verdict, Cause),
}

impl Decision {
    /// What routing needs to know.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        match self {
            Self::Found(verdict) | Self::Nothing(verdict, _) => verdict,
        }
    }
}

/// Why first bytes gave nothing to route by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No pattern matches and none can match any more.
    NoMatch,
    /// The client does not speak TLS.
    NotTls,
    /// It names no host: another protocol, or a request or hello without one.
    NoHost,
    /// It looked like TLS or HTTP, but is no legal ClientHello or names no legal host.
    Malformed,
    /// A limit was reached before a decision.
    TooLong,
    /// The time for the decision is over.
    Deadline,
    /// The client sent its FIN first.
    Eof,
}

impl Cause {
    /// One word for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoMatch => "no_match",
            Self::NotTls => "not_tls",
            Self::NoHost => "no_host",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Deadline => "deadline",
            Self::Eof => "eof",
        }
    }
}

/// Why no more bytes will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The rule's time for a decision is over.
    Deadline,
    /// The client sent its FIN.
    Eof,
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Deadline => Self::Deadline,
            Reason::Eof => Self::Eof,
        }
    }
}

/// The reader of one connection's first bytes, in the modes that have one.
#[derive(Debug)]
pub enum Classifier<'p> {
    /// Mode `regex`.
    Regex(regex::Scan<'p>),
    /// Mode `tls`.
    Tls(tls::HelloParser),
    /// `hash` by host.
    Host(host::HostParser),
}

impl Classifier<'_> {
    /// The most bytes that are looked at: what the window should hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        match self {
            Self::Regex(_) => regex::LIMIT,
            Self::Tls(_) => tls::LIMIT,
            Self::Host(_) => host::LIMIT,
        }
    }

    /// Looks at the window, which must begin with what it held at the last call. May be called
    /// before anything was read: it then decides only if no byte could change the verdict.
    pub fn feed(&mut self, window: &[u8]) -> Progress {
        match self {
            Self::Regex(scan) => scan.feed(window),
            Self::Tls(parser) => parser.feed(window),
            Self::Host(parser) => parser.feed(window),
        }
    }

    /// Decides with what there is.
    pub fn end(&mut self, window: &[u8], reason: Reason) -> Decision {
        match self {
            Self::Regex(scan) => scan.end(window, reason),
            Self::Tls(parser) => parser.end(window, reason),
            Self::Host(parser) => parser.end(window, reason),
        }
    }
}
