//! Names of hosts as clients write them, in one form for all who compare them.

/// Longest host name in text form without the root's dot (RFC 1035 §2.3.4).
pub(super) const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A name in the form configured names have: lower case, without the root's dot. `None` for what
/// is no name. An IPv4 address has the form of a name, so it is one here.
pub(super) fn canonical(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |label: &[u8]| (1..=MAX_LABEL).contains(&label.len()) && label.iter().all(legal);
    if name.len() > MAX_NAME || !name.split(|byte| *byte == b'.').all(label) {
        return None;
    }
    std::str::from_utf8(name).ok().map(str::to_ascii_lowercase)
}
