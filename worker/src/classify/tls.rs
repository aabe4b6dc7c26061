//! The ClientHello: which host and which protocols a TLS client asks for.
//!
//! Own code because TLS libraries either own the connection or want a whole record, and
//! because Baton only needs two extensions of a message it forwards unread. Nothing is
//! decrypted or checked beyond the message's own framing.
//!
//! A hello may be cut anywhere: over reads, and over TLS records (post-quantum key shares make
//! it larger than one segment, and some clients split it on purpose). The parser keeps the
//! position of the record it is in and the four bytes of the handshake header; each call only
//! walks the records that are new, and the body is parsed once, when the last byte is there.
//! A hello in one record, the usual case, is parsed in place; only one in several is joined.
//!
//! What is not a legal hello is told as soon as it shows, at best with the first byte:
//! [`Cause::NotTls`] when the stream does not begin like a TLS record (an SSLv2-style hello
//! too), [`Cause::Malformed`] when framing is broken (an empty record, another record or message
//! type, a length that leaves bytes over, an extension given twice), [`Cause::TooLong`] above a
//! limit. All of them lead to the fallback.
//!
//! With Encrypted ClientHello the outer server name is what is seen and used.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use super::{Cause, Decision, Progress, Reason, name};
use crate::flow::{Hello, Verdict};

/// Most bytes of a hello together with its record headers.
pub const LIMIT: usize = 64 * 1024;
/// Longest plaintext record of every TLS version (RFC 8446 §5.1).
const MAX_RECORD: usize = 16 * 1024;
const MAX_EXTENSIONS: usize = 256;
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;
/// The record type a ClientHello comes in: its first byte.
pub(super) const RECORD_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ALPN: u16 = 16;

/// The reader of one ClientHello.
#[derive(Debug, Default)]
pub struct HelloParser {
    /// Where in the window the header of the record that is being read begins.
    record: usize,
    /// Handshake bytes in the records before that one.
    before: usize,
    /// The message header, as far as it has come; records may cut it too.
    message: [u8; MESSAGE_HEADER],
}

impl HelloParser {
    /// Looks at the window, which must begin with what it held at the last call.
    pub fn feed(&mut self, window: &[u8]) -> Progress {
        let window = &window[..window.len().min(LIMIT)];
        match self.walk(window) {
            Ok(Some(hello)) => Progress::Decided(Decision::Found(Verdict::Hello(hello))),
            Ok(None) if window.len() < LIMIT => Progress::NeedMore,
            Ok(None) => Progress::Decided(nothing(Cause::TooLong)),
            Err(cause) => Progress::Decided(nothing(cause)),
        }
    }

    /// Decides with what there is: a hello that is cut off is none.
    pub fn end(&mut self, window: &[u8], reason: Reason) -> Decision {
        match self.feed(window) {
            Progress::Decided(decision) => decision,
            Progress::NeedMore => nothing(reason.into()),
        }
    }

    /// Goes on from the record it stopped in; `None` while bytes are missing.
    fn walk(&mut self, window: &[u8]) -> Result<Option<Hello>, Cause> {
        loop {
            let record = window.get(self.record..).unwrap_or_default();
            let Some(length) = record_length(record, self.record == 0)? else { return Ok(None) };
            let there = &record[RECORD_HEADER..record.len().min(RECORD_HEADER + length)];
            if let Some(missing) = self.message.get_mut(self.before..) {
                let filled = missing.len().min(there.len());
                missing[..filled].copy_from_slice(&there[..filled]);
            }
            let so_far = self.before + there.len();
            if so_far > 0 && self.message[0] != MESSAGE_CLIENT_HELLO {
                return Err(Cause::Malformed);
            }
            if so_far >= MESSAGE_HEADER {
                let [_, high, middle, low] = self.message;
                let body = u32::from_be_bytes([0, high, middle, low]) as usize;
                let whole = MESSAGE_HEADER + body;
                if whole > LIMIT - RECORD_HEADER {
                    return Err(Cause::TooLong);
                }
                if self.before + length > whole {
                    return Err(Cause::Malformed);
                }
                if so_far == whole {
                    return parse_message(window, whole).map(Some).ok_or(Cause::Malformed);
                }
            }
            if there.len() < length {
                return Ok(None);
            }
            self.before = so_far;
            self.record += RECORD_HEADER + length;
        }
    }
}

fn nothing(cause: Cause) -> Decision {
    Decision::Nothing(Verdict::Opaque, cause)
}

/// The length a record header announces; `None` while it is incomplete.
fn record_length(header: &[u8], first: bool) -> Result<Option<usize>, Cause> {
    let wrong = if first { Cause::NotTls } else { Cause::Malformed };
    if header.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE) {
        return Err(wrong);
    }
    // Any minor version: 3.0 is still seen in the record layer, and it is not negotiated there.
    if header.get(1).is_some_and(|major| *major != 3) {
        return Err(wrong);
    }
    let Some(length) = header.get(3..RECORD_HEADER) else { return Ok(None) };
    match usize::from(u16::from_be_bytes([length[0], length[1]])) {
        0 => Err(Cause::Malformed),
        length if length > MAX_RECORD => Err(Cause::TooLong),
        length => Ok(Some(length)),
    }
}

/// Parses the message of `whole` bytes that the window's records hold completely.
fn parse_message(window: &[u8], whole: usize) -> Option<Hello> {
    let mut fields = Fields(window);
    let mut first = Fields(fields.record()?);
    if first.0.len() == whole {
        first.take(MESSAGE_HEADER)?;
        return parse_body(first);
    }
    let mut joined = Vec::with_capacity(whole);
    joined.extend_from_slice(first.0);
    while joined.len() < whole {
        joined.extend_from_slice(fields.record()?);
    }
    parse_body(Fields(joined.get(MESSAGE_HEADER..)?))
}

/// Parses a ClientHello (RFC 8446 §4.1.2; the same up to TLS 1.0, where extensions may be absent).
fn parse_body(mut body: Fields<'_>) -> Option<Hello> {
    let _version_and_random = body.take(2 + 32)?;
    let session = body.short_vector()?;
    let suites = body.vector()?;
    let compressions = body.short_vector()?;
    if session.len() > 32 || suites.len() < 2 || suites.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    if body.0.is_empty() {
        return Some(Hello::default());
    }
    let mut extensions = Fields(body.vector()?);
    if !body.0.is_empty() {
        return None;
    }
    let mut seen = [0; MAX_EXTENSIONS];
    let mut count = 0;
    let mut server_name = None;
    let mut alpn: &[u8] = &[];
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector()?;
        if seen[..count].contains(&kind) {
            return None;
        }
        *seen.get_mut(count)? = kind;
        count += 1;
        match kind {
            EXTENSION_SERVER_NAME => server_name = parse_server_name(content)?,
            EXTENSION_ALPN => alpn = parse_alpn(content)?,
            _ => {}
        }
    }
    Some(Hello { server_name: server_name.map(Box::from), alpn: alpn.into() })
}

/// Parses `server_name` (RFC 6066 §3): the outer `Option` is framing, the inner one a usable name.
fn parse_server_name(content: &[u8]) -> Option<Option<String>> {
    // A client may send the extension without content, as servers do.
    if content.is_empty() {
        return Some(None);
    }
    let mut content = Fields(content);
    let mut names = Fields(content.vector()?);
    if !content.0.is_empty() {
        return None;
    }
    let mut host = None;
    while !names.0.is_empty() {
        let kind = names.take(1)?[0];
        let name = names.vector()?;
        if kind == 0 && host.replace(name).is_some() {
            return None;
        }
    }
    Some(host.and_then(host_name))
}

/// The name in the form configured names have; `None` for what can equal none of them.
fn host_name(name: &[u8]) -> Option<String> {
    name::canonical(name).filter(|name| name.parse::<IpAddr>().is_err())
}

/// Checks ALPN (RFC 7301 §3.1) and returns its list: names behind a length byte each.
fn parse_alpn(content: &[u8]) -> Option<&[u8]> {
    let mut content = Fields(content);
    let list = content.vector()?;
    if !content.0.is_empty() || list.is_empty() {
        return None;
    }
    let mut names = Fields(list);
    while !names.0.is_empty() {
        if names.short_vector()?.is_empty() {
            return None;
        }
    }
    Some(list)
}

/// What is left of a piece of the message; every read is `None` when it goes beyond the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector behind a length of one byte.
    fn short_vector(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    /// A vector behind a length of two bytes.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::from(length))
    }

    /// The content of a record whose type was checked.
    fn record(&mut self) -> Option<&'a [u8]> {
        self.take(3)?;
        self.vector()
    }
}
