//! Names of targets: the last good answers, and how they are kept fresh.
//!
//! A dial never waits for a look-up unless the name has had no answer at all yet: it takes the
//! last good one, however old up to `dns.stale`. Look-ups run on blocking threads (the system's
//! resolver, so that `/etc/hosts`, search domains and NSS work as everywhere), one at a time a
//! name, every `dns.refresh`; a failure is tried again sooner.
//!
//! Each generation has its own set, seeded with the answers of the one before, so a retired
//! generation stops looking up at once and its connections go on with what it knew.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use baton_config::model::{Dns, Host, Prefer, Rule};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use crate::dial::Addresses;
use crate::flow::Moment;
use crate::generation::with_port;
use crate::net;

/// How soon a failed look-up is repeated, unless `dns.refresh` is shorter.
const RETRY: Duration = Duration::from_secs(5);

/// What is known about a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answer {
    addresses: Arc<[IpAddr]>,
    /// Whether a look-up has come to an end, well or not.
    tried: bool,
}

/// A name that targets use.
pub(crate) struct Name {
    host: Box<str>,
    answer: watch::Sender<Answer>,
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.host).finish()
    }
}

/// The names of one generation.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<Box<str>, Arc<Name>>,
    /// Those that have to be looked up; the rest is answered by the configuration.
    live: Vec<Arc<Name>>,
}

impl Name {
    fn new(host: &str, answer: Answer) -> Arc<Self> {
        Arc::new(Self { host: host.into(), answer: watch::Sender::new(answer) })
    }

    /// The addresses of the last good answer; none when there is none.
    pub(crate) fn known(&self) -> Arc<[IpAddr]> {
        Arc::clone(&self.answer.borrow().addresses)
    }

    /// What to dial.
    pub(crate) fn addresses(&self, port: u16) -> Addresses {
        let answer = self.answer.borrow();
        if answer.tried || !answer.addresses.is_empty() {
            return Addresses::Known(with_port(&answer.addresses, port));
        }
        drop(answer);
        let mut changes = self.answer.subscribe();
        Addresses::Pending(Box::pin(async move {
            let answer = changes.wait_for(|answer| answer.tried).await;
            let answer = answer.map_err(|_| io::Error::other("name resolution has ended"))?;
            Ok(with_port(&answer.addresses, port))
        }))
    }
}

impl Names {
    /// The names that `rules` use; what `before` knows of them is taken over.
    pub(crate) fn new(rules: &[Rule], dns: &Dns, before: Option<&Self>) -> Self {
        let mut names = Self::default();
        let targets = rules.iter().flat_map(|rule| &rule.targets);
        for target in targets {
            let Host::Name(host) = &target.address.host else { continue };
            if names.known.contains_key(host.as_str()) {
                continue;
            }
            let name = if let Some(addresses) = dns.hosts.get(&host.to_ascii_lowercase()) {
                let addresses = preferred(addresses.clone(), dns.prefer);
                Name::new(host, Answer { addresses, tried: true })
            } else {
                let addresses = before
                    .and_then(|before| before.get(host))
                    .map(|name| preferred(name.known().to_vec(), dns.prefer))
                    .unwrap_or_default();
                let name = Name::new(host, Answer { addresses, tried: false });
                names.live.push(Arc::clone(&name));
                name
            };
            names.known.insert(host.as_str().into(), name);
        }
        names
    }

    /// A name of this set.
    pub(crate) fn get(&self, host: &str) -> Option<Arc<Name>> {
        self.known.get(host).map(Arc::clone)
    }

    /// Keeps the names fresh until the tasks are dropped; `changed` is told the name whose
    /// addresses are others than before. Within a local runtime.
    pub(crate) fn keep_fresh(&self, dns: &Dns, changed: Rc<dyn Fn(&str)>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for name in &self.live {
            let (name, changed, dns) = (Arc::clone(name), Rc::clone(&changed), dns.clone());
            tasks.spawn_local(async move { keep_fresh(&name, &dns, &*changed).await });
        }
        tasks
    }
}

async fn keep_fresh(name: &Name, dns: &Dns, changed: &dyn Fn(&str)) {
    let mut good = net::now();
    loop {
        let host = name.host.to_string();
        let found = spawn_blocking(move || look_up(&host)).await;
        let now = net::now();
        let found = found.unwrap_or_else(|error| Err(io::Error::other(error)));
        let pause = if found.is_ok() { dns.refresh } else { dns.refresh.min(RETRY) };
        let before = name.known();
        let addresses =
            judge(found.map_err(|error| report(&name.host, &error)), dns, &before, &mut good, now);
        let differs = addresses != before;
        name.answer.send_replace(Answer { addresses, tried: true });
        if differs {
            changed(&name.host);
        }
        tokio::time::sleep(pause).await;
    }
}

fn report(host: &str, error: &io::Error) {
    tracing::warn!(host, %error, "a name cannot be resolved");
}

/// What a name stands for after a look-up: the answer, or after a failure the last good one
/// until it is too old. Pure.
fn judge(
    found: Result<Vec<IpAddr>, ()>,
    dns: &Dns,
    before: &Arc<[IpAddr]>,
    good: &mut Moment,
    now: Moment,
) -> Arc<[IpAddr]> {
    match found {
        Ok(addresses) => {
            *good = now;
            let addresses = preferred(addresses, dns.prefer);
            // The order of an answer may rotate without meaning anything.
            let same = addresses.len() == before.len()
                && addresses.iter().all(|address| before.contains(address));
            if same { Arc::clone(before) } else { addresses }
        }
        Err(()) if now.since(*good) <= dns.stale => Arc::clone(before),
        Err(()) => Arc::default(),
    }
}

fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for found in (host, 0).to_socket_addrs()? {
        let ip = found.ip().to_canonical();
        if !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

fn preferred(mut addresses: Vec<IpAddr>, prefer: Prefer) -> Arc<[IpAddr]> {
    match prefer {
        Prefer::Auto => {}
        // Stable: within a family the resolver's order stays.
        Prefer::Ipv4 => addresses.sort_by_key(IpAddr::is_ipv6),
        Prefer::Ipv6 => addresses.sort_by_key(IpAddr::is_ipv4),
    }
    addresses.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn dns() -> Dns {
        Dns {
            refresh: Duration::from_secs(30),
            stale: Duration::from_secs(600),
            prefer: Prefer::Auto,
            hosts: BTreeMap::new(),
        }
    }

    #[test]
    fn the_last_good_answer_serves_until_it_is_stale() {
        let before: Arc<[IpAddr]> = [ip(1)].into();
        let mut good = Moment(0).after(Duration::from_secs(100));
        let at = |seconds| Moment(0).after(Duration::from_secs(seconds));
        assert_eq!(judge(Err(()), &dns(), &before, &mut good, at(700)), before);
        assert!(judge(Err(()), &dns(), &before, &mut good, at(701)).is_empty());
        assert_eq!(judge(Ok(vec![ip(2)]), &dns(), &before, &mut good, at(800))[..], [ip(2)]);
        assert_eq!(judge(Err(()), &dns(), &before, &mut good, at(1400)), before);
    }

    #[test]
    fn a_rotated_answer_is_no_change() {
        let before: Arc<[IpAddr]> = [ip(1), ip(2)].into();
        let rotated = judge(Ok(vec![ip(2), ip(1)]), &dns(), &before, &mut Moment(0), Moment(1));
        assert_eq!(rotated, before);
        let grown =
            judge(Ok(vec![ip(2), ip(1), ip(3)]), &dns(), &before, &mut Moment(0), Moment(1));
        assert_eq!(grown.len(), 3);
    }

    #[test]
    fn the_preferred_family_comes_first_in_the_resolvers_order() {
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let mixed = vec![six, ip(2), ip(1)];
        assert_eq!(preferred(mixed.clone(), Prefer::Ipv4)[..], [ip(2), ip(1), six]);
        assert_eq!(preferred(mixed.clone(), Prefer::Ipv6)[..], [six, ip(2), ip(1)]);
        assert_eq!(preferred(mixed.clone(), Prefer::Auto)[..], mixed);
    }

    #[test]
    fn the_local_host_is_found_by_the_system() {
        assert!(look_up("localhost").unwrap().iter().all(IpAddr::is_loopback));
        assert!(look_up("no-such-name.invalid").is_err());
    }
}
