//! From configuration text to everything that can be made without sockets.
//!
//! Compiling runs on a thread of its own: patterns may take long and a listen name may have to
//! be looked up, while the control conversation must go on. All problems are reported at once.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use baton_config::diff::Diff;
use baton_config::model::{Config, Listen, ListenHost, Mode};
use baton_config::{Loaded, Positions, Problem, Problems, Written};
use baton_handoff::message::{
    Generation, ListenerKey, ListenerRole, ListenerWanted, Plan, Prepare,
};

use crate::accept::admission::Gate;
use crate::accept::listeners::Listeners;
use crate::classify::regex::{PatternError, Patterns};
use crate::flow::TargetSet;
use crate::generation::{self, Content, Surroundings};
use crate::names::Names;
use crate::prewarm::Pools;
use crate::process::Process;

/// A checked and compiled configuration that waits for its sockets.
#[derive(Debug)]
pub(crate) struct Blueprint {
    number: Generation,
    config: Arc<Config>,
    listeners: Vec<ListenerWanted>,
    /// What each rule wants to know of first bytes, in the order of the rules.
    contents: Vec<Content>,
}

/// What became of a configuration.
#[derive(Debug)]
pub(crate) enum Drawn {
    /// It equals the running one.
    Unchanged(Blueprint),
    /// It can be served.
    New(Blueprint),
}

/// As [`examine`], with each problem as a line.
///
/// # Errors
/// Every problem found, in the order of the file.
pub(crate) fn draw(prepare: &Prepare, running: Option<&Config>) -> Result<Drawn, Vec<String>> {
    let lines = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect();
    examine(prepare, running).map_err(lines)
}

/// Reads, checks and compiles. `running` is the serving configuration, if there is one: then
/// only what a reload may change may differ.
///
/// # Errors
/// Every problem found, in the order of the file: also those of rules that can be read in a file
/// that is wrong elsewhere.
pub(crate) fn examine(prepare: &Prepare, running: Option<&Config>) -> Result<Drawn, Vec<Problem>> {
    let (source, bytes) = (&prepare.source, &prepare.config);
    let Loaded { config, positions } = match baton_config::parse(source, bytes) {
        Ok(loaded) => loaded,
        Err(Problems(problems)) => return Err(besides(problems, source, bytes)),
    };
    let mut problems = Vec::new();
    let diff = running.map(|running| Diff::new(running, &config));
    if let Some(diff) = &diff {
        let unchangeable =
            |field: &String| positions.problem(&format!("$.{field}"), restart(field));
        problems.extend(diff.needs_restart.iter().map(unchangeable));
    }
    let listeners = wanted(&config, &positions, &mut problems);
    let contents = contents(&config, &positions, &mut problems);
    if !problems.is_empty() {
        problems.sort_by_key(Problem::place);
        return Err(problems);
    }
    let unchanged = diff.is_some_and(|diff| diff.is_unchanged());
    let number = prepare.generation;
    let blueprint = Blueprint { number, config: Arc::new(config), listeners, contents };
    Ok(if unchanged { Drawn::Unchanged(blueprint) } else { Drawn::New(blueprint) })
}

/// What a reload is told about a field that it cannot change, and what can.
fn restart(field: &str) -> String {
    const OF_THE_WORKER: [&str; 2] = ["log.", "metrics."];
    if OF_THE_WORKER.iter().any(|section| field.starts_with(section)) {
        let cure = "cannot change by a reload, `baton upgrade` takes it over";
        format!("needs a restart: {field} ({cure})")
    } else {
        format!("needs a restart: {field} (fixed while the supervisor runs)")
    }
}

/// Adds what else is wrong to the problems of a file that was refused.
fn besides(mut problems: Vec<Problem>, source: &str, bytes: &[u8]) -> Vec<Problem> {
    let Some(Written { positions, rules }) = baton_config::written(source, bytes) else {
        return problems;
    };
    for (index, rule) in rules.iter().enumerate() {
        if let Some(Err(problem)) = rule.listen.as_ref().map(address) {
            problems.push(positions.problem(&listen_path(index), problem));
        }
        let patterns: Vec<_> = rule.patterns.iter().map(Option::as_deref).collect();
        // Patterns that are too long or too many have been told already.
        if patterns.len() <= usize::from(TargetSet::CAPACITY)
            && let Err(errors) = Patterns::compile(&patterns)
        {
            problems.extend(invalid(index, &patterns, &errors, &positions));
        }
    }
    problems.sort_by_key(Problem::place);
    problems
}

fn listen_path(rule: usize) -> String {
    format!("$.rules[{rule}].listen")
}

/// Problems of a rule's patterns, each with the pattern.
fn invalid(
    rule: usize,
    patterns: &[Option<&str>],
    errors: &[PatternError],
    positions: &Positions,
) -> Vec<Problem> {
    let tell = |error: &PatternError| {
        let target = usize::from(error.target);
        let path = format!("$.rules[{rule}].targets[{target}].regexp");
        let pattern = patterns.get(target).copied().flatten().unwrap_or_default();
        let what = format!("invalid regexp {}: {error}", shown(pattern));
        positions.problem(&path, what)
    };
    errors.iter().map(tell).collect()
}

/// A pattern in quotes, its beginning when it is long.
fn shown(pattern: &str) -> String {
    const LONGEST: usize = 80;
    match pattern.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{:?}…", &pattern[..cut]),
        None => format!("{pattern:?}"),
    }
}

/// The listeners a configuration uses.
pub(crate) fn keys(config: &Config) -> BTreeSet<ListenerKey> {
    let admin = config.metrics.enabled.then(|| admin_key(config));
    let rules = config.rules.iter().map(|rule| ListenerKey(rule.listen.text.clone()));
    rules.chain(admin).collect()
}

/// What the admin listener of a configuration is known by.
pub(crate) fn admin_key(config: &Config) -> ListenerKey {
    ListenerKey(config.metrics.listen.to_string())
}

impl Blueprint {
    /// The number it will have.
    pub(crate) fn number(&self) -> Generation {
        self.number
    }

    /// What it was compiled from.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The sockets it needs.
    pub(crate) fn plan(&self, unchanged: bool) -> Plan {
        Plan { generation: self.number, listeners: self.listeners.clone(), unchanged }
    }

    /// Builds the generation once every socket is held.
    ///
    /// # Errors
    /// Names the listener that is missing.
    pub(crate) fn build(
        self,
        process: &Process,
        listeners: &mut Listeners,
        before: Option<&generation::Generation>,
    ) -> Result<generation::Generation, String> {
        let names = before.map(generation::Generation::names);
        let names = Names::new(&self.config.rules, &self.config.dns, names);
        let pools = Pools::default();
        let mut rules = Vec::with_capacity(self.config.rules.len());
        for (rule, content) in self.config.rules.iter().zip(self.contents) {
            let key = ListenerKey(rule.listen.text.clone());
            let Some(id) = listeners.get(&key).map(|listener| listener.id) else {
                return Err(format!("no socket is held for {}", rule.listen.text));
            };
            let gate = Gate::new(
                Arc::clone(&process.count),
                listeners.count(&key),
                self.config.supervisor.max_connections,
                rule.max_connections,
                rule.max_connections_per_ip,
            );
            // An equal rule goes on with what it has learned; a changed one starts afresh.
            let before = before.and_then(|before| {
                before.rules().find(|(old, _)| *old == rule).map(|(_, old)| old)
            });
            let around = Surroundings { process, names: &names, pools: &pools, before };
            rules.push((id, generation::Rule::new(rule, gate, content, &around)));
        }
        Ok(generation::Generation::new(self.number, self.config, names, pools, rules))
    }
}

fn contents(config: &Config, positions: &Positions, problems: &mut Vec<Problem>) -> Vec<Content> {
    let mut contents = Vec::with_capacity(config.rules.len());
    for (index, rule) in config.rules.iter().enumerate() {
        contents.push(match &rule.mode {
            Mode::Tls => Content::Hello,
            Mode::Regex => {
                let patterns: Vec<_> =
                    rule.targets.iter().map(|target| target.regexp.as_deref()).collect();
                match Patterns::compile(&patterns) {
                    Ok(patterns) => Content::Patterns(Box::new(patterns)),
                    Err(errors) => {
                        problems.extend(invalid(index, &patterns, &errors, positions));
                        continue;
                    }
                }
            }
            Mode::Forward(forward) if forward.hashes_by_host() => Content::Host,
            Mode::Normal | Mode::Boost(_) | Mode::RoundRobin | Mode::Forward(_) => Content::Any,
        });
    }
    contents
}

fn wanted(
    config: &Config,
    positions: &Positions,
    problems: &mut Vec<Problem>,
) -> Vec<ListenerWanted> {
    let mut listeners = Vec::with_capacity(config.rules.len() + 1);
    for (index, rule) in config.rules.iter().enumerate() {
        match address(&rule.listen) {
            Ok((address, dual_stack)) => listeners.push(ListenerWanted {
                key: ListenerKey(rule.listen.text.clone()),
                role: ListenerRole::Rule,
                rule: rule.name.clone(),
                address,
                dual_stack,
            }),
            Err(problem) => problems.push(positions.problem(&listen_path(index), problem)),
        }
    }
    if config.metrics.enabled {
        listeners.push(ListenerWanted {
            key: admin_key(config),
            role: ListenerRole::Admin,
            rule: "metrics".to_owned(),
            address: config.metrics.listen,
            dual_stack: false,
        });
    }
    listeners
}

/// Where to bind, and whether IPv4 clients come in through an IPv6 socket too.
fn address(listen: &Listen) -> Result<(SocketAddr, bool), String> {
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match &listen.host {
        ListenHost::Any => Ok((SocketAddr::new(any, listen.port), true)),
        ListenHost::Ip(ip) => Ok((SocketAddr::new(*ip, listen.port), *ip == any)),
        ListenHost::Name(name) => {
            let found = (name.as_str(), listen.port).to_socket_addrs();
            let mut found = found.map_err(|error| format!("cannot resolve {name}: {error}"))?;
            found
                .next()
                .map(|address| (address, false))
                .ok_or_else(|| format!("cannot resolve {name}: it has no address"))
        }
    }
}
