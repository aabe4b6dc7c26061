//! What the accounts of the two sides say about what was between them. Pure.

use super::part::{Account, End, Kind};

/// What became of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It ended as its two sides wanted, every byte in its place.
    Intact,
    /// Both saw, or will see, that it failed.
    Reset,
    /// Something that must never be.
    Wrong(String),
}

/// What may become of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Nothing is lost.
    Nothing,
    /// A worker was killed: whatever it had in memory is lost, quiet connections are not.
    Loaded,
    /// A worker was killed and then the supervisor that would have had it recovered: connections
    /// are lost, and both their sides learn it.
    Resets,
    /// A worker was killed together with what protects its connections: they are lost, and the
    /// kernel says so to some in the form of an orderly end.
    Unprotected,
}

impl Allowed {
    /// The complaint about a connection, if there is one.
    pub(crate) fn complaint(self, kind: Kind, verdict: &Verdict) -> Option<String> {
        match (verdict, self) {
            (Verdict::Intact, _) | (Verdict::Reset, Self::Resets | Self::Unprotected) => None,
            (Verdict::Reset, Self::Loaded) if !kind.is_quiet() => None,
            (Verdict::Reset, Self::Loaded | Self::Nothing) => Some(format!("{kind:?}: reset")),
            (Verdict::Wrong(_), Self::Unprotected) => None,
            (Verdict::Wrong(what), Self::Resets | Self::Loaded | Self::Nothing) => {
                Some(format!("{kind:?}: {what}"))
            }
        }
    }
}

/// Compares what was said with what was heard, both ways. A connection that never reached the
/// server has no account of it.
pub(crate) fn verdict(client: &Account, server: Option<&Account>) -> Verdict {
    let Some(server) = server else {
        return match &client.end {
            End::Broken(_) => Verdict::Reset,
            End::Clean | End::Wrong(_) | End::Silent | End::Left => {
                Verdict::Wrong(format!("never reached the server: {client:?}"))
            }
        };
    };
    let ways = [way(client, server), way(server, client)];
    let told = || format!("client {client:?}, server {server:?}");
    if let Some(what) = ways.iter().find_map(|way| way.as_ref().err()) {
        return Verdict::Wrong(format!("{what}: {}", told()));
    }
    let intact = ways.iter().all(|way| way == &Ok(true));
    if intact { Verdict::Intact } else { Verdict::Reset }
}

/// One direction: whether it was intact.
fn way(sayer: &Account, hearer: &Account) -> Result<bool, &'static str> {
    if hearer.heard > sayer.said {
        return Err("more was heard than said");
    }
    match &hearer.end {
        End::Left => Ok(true),
        End::Clean if !sayer.finished => Err("an end that nobody asked for"),
        End::Clean if hearer.heard < sayer.said => Err("bytes are missing"),
        End::Clean => Ok(true),
        // Its own news: the sayer had reset it.
        End::Broken(_) if sayer.end == End::Left => Ok(true),
        End::Broken(_) => Ok(false),
        End::Wrong(_) => Err("a wrong byte"),
        End::Silent => Err("it stands still"),
    }
}

#[test]
fn an_end_that_nobody_asked_for_is_found() {
    let account = |said, finished, heard, end| Account { said, finished, heard, end };
    let good = account(10, true, 20, End::Clean);
    let peer = account(20, true, 10, End::Clean);
    assert_eq!(verdict(&good, Some(&peer)), Verdict::Intact);
    let cut = account(20, false, 10, End::Broken("reset".into()));
    assert!(matches!(verdict(&good, Some(&cut)), Verdict::Wrong(_)), "a false end");
    let short = account(10, true, 19, End::Clean);
    assert!(matches!(verdict(&short, Some(&peer)), Verdict::Wrong(_)), "a byte is missing");
    let broken = account(10, false, 7, End::Broken("reset".into()));
    assert_eq!(verdict(&broken, Some(&cut)), Verdict::Reset);
    assert_eq!(verdict(&broken, None), Verdict::Reset);
    assert!(matches!(verdict(&good, None), Verdict::Wrong(_)));
}
