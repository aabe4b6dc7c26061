//! From the candidates to `Use`: a connection whose first attempt succeeds, lines told and winner
//! dropped.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use baton_config::model::{
    Forward, HashKey, Hedge, Mode, OnAllFailed, ParallelMode, Rule, Selector as Spec, Strategy,
};
use baton_worker::flow::{Event, Moment, Step, Steps, Verdict};
use baton_worker::route::Router;
use baton_worker::select::{Affinity, Selector};
use baton_worker::upstream::LineSet;

use super::Path;

#[path = "../../src/testkit.rs"]
mod testkit;

const CONNECT: Duration = Duration::from_millis(20);
/// Between two connections: the winner cache stays warm …
const WARM: Duration = Duration::from_micros(100);
/// … or has forgotten its winner (its life is 30 s).
const COLD: Duration = Duration::from_secs(31);

/// Every mode that decides by itself, with so many targets.
pub(crate) fn paths(count: u16) -> Vec<Path> {
    let mut paths = vec![decision("boost, cold race", Mode::Boost(None), count, COLD)];
    paths.extend(modes().into_iter().map(|(name, mode)| decision(name, mode, count, WARM)));
    paths
}

/// A rule of this mode.
pub(crate) fn rule(mode: Mode, count: u16) -> Rule {
    testkit::rule(mode, (1..=count).map(testkit::target).collect())
}

fn modes() -> Vec<(&'static str, Mode)> {
    let forward = |strategy| {
        let selector = Spec {
            strategy,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            on_all_failed: OnAllFailed::LastResort,
        };
        Mode::Forward(Forward { selector, retries: 2, hash: HashKey::Client })
    };
    let hedge =
        Hedge { min_delay: Duration::from_millis(25), max_delay: Duration::from_millis(250) };
    let pair = Strategy::Parallel { max: 2, mode: ParallelMode::Round };
    vec![
        ("normal", Mode::Normal),
        ("boost", Mode::Boost(None)),
        ("boost, hedge", Mode::Boost(Some(hedge))),
        ("roundrobin", Mode::RoundRobin),
        ("forward round", forward(Strategy::Round)),
        ("forward rand", forward(Strategy::Rand)),
        ("forward fifo", forward(Strategy::Fifo)),
        ("forward hash", forward(Strategy::Hash)),
        ("forward parallel, 2", forward(pair)),
        ("forward leastconn", forward(Strategy::LeastConn)),
        ("forward latency", forward(Strategy::Latency)),
    ]
}

/// Connections, `pause` one after the other.
fn decision(name: &str, mode: Mode, count: u16, pause: Duration) -> Path {
    let rule = rule(mode, count);
    let lines = Arc::new(LineSet::for_rule(&rule, |_| None, None));
    let router = Router::for_rule(&rule, &lines);
    let selector = Arc::new(Selector::for_rule(&rule));
    let mut now = Moment(1_000_000_000_000);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut steps = Steps::new();
    Path::new(format!("decide: {name}, {count} targets"), move || {
        let candidates = router
            .candidates(&Verdict::Unread, &lines, now)
            .unwrap_or_else(|why| panic!("the rule has targets: {why:?}"));
        let affinity = Affinity::client([10, 0, 0, rng.u8(..)].into());
        let mut machine = selector.begin(&lines, candidates, affinity, rng.fork());
        machine.start(now, &mut steps);
        let first = steps.iter().find_map(|step| match step {
            Step::Dial { attempt, .. } => Some(*attempt),
            Step::WakeAt(_) | Step::Cancel(_) | Step::Use(_) | Step::GiveUp(_) => None,
        });
        let attempt = first.unwrap_or_else(|| panic!("nothing is dialled: {steps:?}"));
        machine.on(Event::Started(attempt), now, &mut steps);
        let connect = Some(CONNECT);
        machine.on(Event::Connected { attempt, connect }, now, &mut steps);
        black_box(&steps);
        steps.clear();
        drop(black_box(machine.take_winner()));
        now = now.after(pause);
    })
}
