//! The `Host` of an HTTP/1 request.
//!
//! Own code because a request is only glanced at: libraries want the whole head and start over
//! with every read, while the answer is usually in its second line. Each byte is looked at once,
//! a line when its end is there; of the request line only that it ends in `HTTP/1.` and a digit.
//! Lines may end in a bare LF (RFC 9112 §2.2). The first `Host` counts; a request with two is for
//! the server to refuse.

use std::net::{IpAddr, Ipv6Addr};

use super::super::{Cause, name};

/// The longest head that is searched. What goes before `Host` is short with every client; a
/// server allows 8 KiB for one line.
pub(super) const LIMIT: usize = 8 * 1024;
/// The longest method: `UPDATEREDIRECTREF`, the longest registered one, has 17.
const MAX_METHOD: usize = 32;

/// The reader of one request head.
#[derive(Debug, Default)]
pub struct Head {
    /// Everything before was looked at.
    seen: usize,
    /// Where the line that is being read begins.
    line: usize,
    /// Whether the method was read.
    request: bool,
}

impl Head {
    /// The host as soon as its line has come; `None` while lines are missing.
    ///
    /// # Errors
    /// Why there is no host.
    pub(super) fn feed(&mut self, window: &[u8]) -> Result<Option<String>, Cause> {
        let window = &window[..window.len().min(LIMIT)];
        self.read_method(window)?;
        while let Some(end) = self.line_end(window) {
            let line = &window[self.line..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let first = self.line == 0;
            self.line = end + 1;
            if first {
                if !ends_a_request(line) {
                    return Err(Cause::NoHost);
                }
            } else if line.is_empty() {
                return Err(Cause::NoHost);
            } else if let Some(value) = host_field(line) {
                return host(value).map(Some);
            }
        }
        if window.len() < LIMIT { Ok(None) } else { Err(Cause::TooLong) }
    }

    /// Refuses what does not begin like a request at the byte that shows it.
    fn read_method(&mut self, window: &[u8]) -> Result<(), Cause> {
        while !self.request {
            let Some(&byte) = window.get(self.seen) else { return Ok(()) };
            match byte {
                b' ' if self.seen > 0 => self.request = true,
                _ if is_token(byte) && self.seen < MAX_METHOD => {}
                _ => return Err(Cause::NoHost),
            }
            self.seen += 1;
        }
        Ok(())
    }

    /// Where the line that is being read ends.
    fn line_end(&mut self, window: &[u8]) -> Option<usize> {
        let rest = window.get(self.seen..)?;
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(length) => {
                let end = self.seen + length;
                self.seen = end + 1;
                Some(end)
            }
            None => {
                self.seen = window.len();
                None
            }
        }
    }
}

/// Bytes a method is made of (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a request line of HTTP/1 ends like this.
fn ends_a_request(line: &[u8]) -> bool {
    matches!(line, [.., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', digit]
        if digit.is_ascii_digit())
}

/// The value of a `Host` field.
fn host_field(line: &[u8]) -> Option<&[u8]> {
    let (field, value) = line.split_at_checked(b"host:".len())?;
    field.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
}

/// The host of a field's value (RFC 9110 §7.2), in one form however it was written.
fn host(value: &[u8]) -> Result<String, Cause> {
    if value.is_empty() {
        return Err(Cause::NoHost);
    }
    let (host, port) = match value {
        [b'[', literal @ ..] => {
            let end = literal.iter().position(|byte| *byte == b']').ok_or(Cause::Malformed)?;
            let address = std::str::from_utf8(&literal[..end]).ok();
            let address = address.and_then(|text| text.parse::<Ipv6Addr>().ok());
            let address = IpAddr::V6(address.ok_or(Cause::Malformed)?);
            (address.to_canonical().to_string(), &literal[end + 1..])
        }
        _ => {
            let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
            (name::canonical(&value[..end]).ok_or(Cause::Malformed)?, &value[end..])
        }
    };
    match port {
        [] => Ok(host),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => Ok(host),
        _ => Err(Cause::Malformed),
    }
}
