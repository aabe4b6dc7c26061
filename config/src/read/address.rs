//! Addresses, networks and host names as text. Pure: text in, value or message out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::model::{Address, Host, Listen, ListenHost};
use crate::problem::quoted;

/// Where a rule listens.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    let (host, port) = host_port(text, ":8080 or 127.0.0.1:8080")?;
    let host = match host {
        None => ListenHost::Any,
        Some(Host::Ip(ip)) => ListenHost::Ip(ip),
        Some(Host::Name(name)) => ListenHost::Name(name),
    };
    Ok(Listen { text: text.into(), host, port })
}

/// Where a target is. Without a host it is this machine, over IPv4: what needs no look-up.
pub(crate) fn target(text: &str) -> Result<Address, String> {
    if text.is_empty() {
        return Err("empty address (host:port, such as 10.0.0.7:443)".into());
    }
    let (host, port) = host_port(text, "10.0.0.7:443 or db.internal:5432")?;
    let host = host.unwrap_or(Host::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    Ok(Address { host, port })
}

fn host_port(text: &str, example: &str) -> Result<(Option<Host>, u16), String> {
    let wrong = |why: &str| format!("invalid address {}: {why}", quoted(text));
    if text.contains("://") {
        return Err(wrong(&format!("a URL (host:port is expected, such as {example})")));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((inside, rest)) = rest.split_once(']') else {
            return Err(wrong("the bracket is not closed"));
        };
        let Ok(ip) = inside.parse::<Ipv6Addr>() else {
            return Err(wrong("not an IPv6 address in the brackets"));
        };
        let Some(port) = rest.strip_prefix(':') else {
            return Err(wrong("the port is missing (host:port)"));
        };
        (Some(Host::Ip(fold(IpAddr::V6(ip)))), port)
    } else {
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(wrong(&format!("the port is missing (host:port, such as {example})")));
        };
        if host.contains(':') {
            return Err(wrong("an IPv6 address stands in brackets, such as [::1]:443"));
        }
        let host = match host {
            "" => None,
            "*" => return Err(wrong(&format!("did you mean \":{port}\"?"))),
            text => Some(self::host(text).map_err(|why| wrong(&why))?),
        };
        (host, port)
    };
    let number = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>().ok());
    match number.flatten() {
        Some(port) if port != 0 => Ok((host, port)),
        _ => Err(wrong("the port is not a number from 1 to 65535")),
    }
}

fn host(text: &str) -> Result<Host, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Host::Ip(ip));
    }
    host_name(text).map(Host::Name)
}

/// A host name in lower case. Underscores are let through: container names have them.
pub(crate) fn host_name(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let bare = name.strip_suffix('.').unwrap_or(&name);
    if bare.is_empty() || bare.len() > 253 {
        return Err("a host name has 1 to 253 characters".into());
    }
    let mut last = "";
    for label in bare.split('.') {
        if !is_label(label) {
            return Err(format!("{} is not a label of a host name", quoted(label)));
        }
        last = label;
    }
    // Otherwise a slip such as 10.0.0.256 would be looked up as a name.
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return Err("neither an IP address nor a host name".into());
    }
    Ok(name)
}

/// A label of a host name: letters, digits, hyphens inside, underscores; at most 63.
pub(crate) fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// A single address; IPv4-mapped IPv6 becomes IPv4.
pub(crate) fn ip(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Ok(fold(ip)),
        Err(_) => Err(format!("invalid IP address {}", quoted(text))),
    }
}

/// A network; host bits are dropped and IPv4-mapped IPv6 becomes IPv4.
pub(crate) fn net(text: &str) -> Result<IpNet, String> {
    let Ok(net) = text.parse::<IpNet>() else {
        let hint = match text.parse::<IpAddr>() {
            Ok(ip) => format!(" (did you mean \"{}\"?)", IpNet::from(ip)),
            Err(_) => " (such as \"10.0.0.0/8\")".into(),
        };
        return Err(format!("invalid CIDR {}{hint}", quoted(text)));
    };
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().map(|v4| (v4, v6.prefix_len())),
    };
    let Some((v4, prefix)) = mapped else {
        return Ok(net.trunc());
    };
    // A shorter prefix would take in addresses that are not IPv4 at all.
    match prefix.checked_sub(96).map(|prefix| Ipv4Net::new(v4, prefix)) {
        Some(Ok(net)) => Ok(IpNet::V4(net.trunc())),
        _ => Err(format!(
            "invalid CIDR {}: an IPv4-mapped network needs /96 or longer",
            quoted(text)
        )),
    }
}

/// IPv4-mapped IPv6 is IPv4 everywhere in Baton.
pub(crate) fn fold(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
