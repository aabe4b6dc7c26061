//! What is done for the published generation beside its connections: names are looked up again,
//! lines are probed, idle connections are kept ready. It ends when the generation retires: a retired one learns nothing new.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use baton_config::model;
use tokio::task::JoinSet;

use crate::generation::{Generation, Rule};
use crate::prewarm::{Source, keep_warm};
use crate::probe::{Probe, Probed, keep_probing};
use crate::process::Process;

/// The tasks; dropped, they end.
pub(super) struct Upkeep {
    _names: JoinSet<()>,
    _probes: Rc<RefCell<Vec<JoinSet<()>>>>,
    _pools: Rc<RefCell<JoinSet<()>>>,
}

impl Upkeep {
    /// Begins with a generation that has just been published. Within a local runtime.
    pub(super) fn start(generation: &Arc<Generation>, process: &Arc<Process>) -> Self {
        let probes: Vec<_> = generation
            .rules()
            .map(|(configured, rule)| probes(configured, rule, process))
            .collect();
        let probes = Rc::new(RefCell::new(probes));
        let pools = Rc::new(RefCell::new(pools(generation, process)));
        // Weak: upkeep must not keep a generation alive that serves nobody.
        let (weak, process) = (Arc::downgrade(generation), Arc::clone(process));
        let (restarted, refilled) = (Rc::clone(&probes), Rc::clone(&pools));
        let changed = move |name: &str| {
            let Some(generation) = weak.upgrade() else { return };
            for position in generation.renew(name, &process) {
                let rule = generation.rules().nth(position);
                if rule.is_some_and(|(configured, _)| configured.prewarm) {
                    refilled.replace(self::pools(&generation, &process));
                }
                let slot = restarted.borrow_mut();
                restart(slot, position, rule, &process);
            }
        };
        let dns = &generation.config().dns;
        let names = generation.names().keep_fresh(dns, Rc::new(changed));
        Self { _names: names, _probes: probes, _pools: pools }
    }
}

fn restart(
    mut probing: std::cell::RefMut<'_, Vec<JoinSet<()>>>,
    position: usize,
    rule: Option<(&model::Rule, &Rule)>,
    process: &Arc<Process>,
) {
    if let (Some(slot), Some((configured, rule))) = (probing.get_mut(position), rule) {
        *slot = probes(configured, rule, process);
    }
}

/// Probes every line of a rule that wants it; targets that share a line are probed once.
fn probes(configured: &model::Rule, rule: &Rule, process: &Arc<Process>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let Some(check) = &configured.health_check else { return tasks };
    let routing = rule.routing.load_full();
    for (index, node) in routing.lines.iter().filter(|(index, node)| node.first() == *index) {
        let target = configured.targets.get(usize::from(node.target));
        let Some(written) = target.map(|target| &target.address) else { continue };
        let probe = Probe::new(check, configured.proxy_protocol.send, written);
        let (name, address) = (Arc::clone(&rule.name), node.address.to_string());
        let told = move |probed: Probed| tell(&name, &address, &probed);
        let at = Arc::clone(&routing);
        tasks.spawn_local(keep_probing(
            Arc::clone(&node.line),
            probe,
            move || at.known_addresses(index),
            Arc::clone(&process.bulkhead),
            fastrand::Rng::new(),
            told,
        ));
    }
    tasks
}

/// Keeps the pools of a generation filled, one task an address.
fn pools(generation: &Generation, process: &Arc<Process>) -> JoinSet<()> {
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    for (configured, rule) in generation.rules() {
        let routing = rule.routing.load_full();
        for (index, node) in routing.lines.iter().filter(|(index, node)| node.first() == *index) {
            let Some(pool) = routing.pool(index) else { continue };
            let line = Arc::clone(&node.line);
            let at = Arc::clone(&routing);
            let source = sources.entry(node.address.to_string()).or_insert_with(|| Source {
                pool: Arc::clone(pool),
                lines: Vec::new(),
                addresses: Box::new(move || at.known_addresses(index)),
                bulkhead: Arc::clone(&process.bulkhead),
                timeout: configured.timeout,
            });
            source.timeout = source.timeout.min(configured.timeout);
            source.lines.push(line);
        }
    }
    let mut tasks = JoinSet::new();
    for (address, source) in sources {
        tasks.spawn_local(keep_warm(source, address, process.lane().clone()));
    }
    tasks
}

fn tell(rule: &str, address: &str, probed: &Probed) {
    match (&probed.result, probed.changed) {
        (Ok(()), true) => {
            tracing::info!(ruleName = rule, targetAddr = address, "target is healthy again");
        }
        (Err(error), true) => {
            tracing::warn!(
                ruleName = rule,
                targetAddr = address,
                error = error.whole(),
                "target is unhealthy"
            );
        }
        (Ok(()), false) => {}
        (Err(error), false) => {
            tracing::debug!(
                ruleName = rule,
                targetAddr = address,
                error = error.whole(),
                "probe failed"
            );
        }
    }
}
