//! `serverNames` and `alpn` of a target: what a ClientHello is matched against.

use super::{address, repeated, texts, whole};
use crate::problem::{Report, quoted};
use crate::shape::tree::Object;

/// Lower-cased names: exact, or `*.` and a name.
pub(super) fn server_names(target: &Object, report: &mut Report) -> Option<Vec<String>> {
    let nodes = target.list("serverNames")?;
    let names = texts(nodes, report, |text| {
        let name = text.to_ascii_lowercase();
        let exact = name.strip_prefix("*.").unwrap_or(&name);
        let good = name.len() <= 253
            && exact.split('.').all(address::is_label)
            && exact.parse::<std::net::IpAddr>().is_err();
        if good {
            Ok(name)
        } else {
            Err(format!(
                "invalid server name {} (a host name, or *. and a host name)",
                quoted(text)
            ))
        }
    });
    repeated(nodes, &names, "server name", report);
    whole(names)
}

pub(super) fn alpn(target: &Object, report: &mut Report) -> Option<Vec<String>> {
    let nodes = target.list("alpn")?;
    let protocols = texts(nodes, report, |text| {
        let good = !text.is_empty() && text.bytes().all(|b| (0x20..0x7f).contains(&b));
        if good {
            Ok(text.to_owned())
        } else {
            Err(format!("invalid protocol {} (1 to 255 printable ASCII characters)", quoted(text)))
        }
    });
    repeated(nodes, &protocols, "protocol", report);
    whole(protocols)
}
