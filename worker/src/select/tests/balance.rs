//! The balance acceptance, in virtual time: 10 targets with a base latency of N(50 ms, 10 ms)
//! and a connect of N(base, 5 ms) each, one of them taking 1000 ms in a tenth of its connects,
//! at most 8 at a time a target, 16 clients one connection after the other. A connection that
//! finds its target busy waits for one of the 8 to end, which counts as its connect time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use baton_config::model::{Mode, Strategy};

use super::sim::{Bench, forward};
use crate::flow::{AttemptId, Event, LineIndex, Moment, Step, Steps};
use crate::select::Machine;
use crate::testkit::{rule, target};

const TARGETS: u16 = 10;
const CLIENTS: usize = 16;
const AT_A_TIME: usize = 8;
const FAULTY: usize = 3;
const CONNECTIONS: usize = 100_000;

/// Normal by Box–Muller, in milliseconds, never below one.
fn normal(rng: &mut fastrand::Rng, mean: f64, deviation: f64) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (mean + deviation * z).max(1.0)
}

struct Outcome {
    /// Of all connections, which part the faulty target got, in percent.
    faulty: f64,
    /// Of the waiting times in milliseconds.
    p999: f64,
}

fn simulate(strategy: Strategy, seed: u64) -> Outcome {
    let mut spec = forward(strategy);
    spec.retries = 0;
    let mut bench = Bench::new(rule(Mode::Forward(spec), (1..=TARGETS).map(target).collect()));
    bench.rng = fastrand::Rng::with_seed(seed);
    let mut rng = bench.rng.fork();
    let base: Vec<f64> = (0..TARGETS).map(|_| normal(&mut rng, 50.0, 10.0)).collect();
    let service = |rng: &mut fastrand::Rng, line: usize| {
        let slow = line == FAULTY && rng.u8(0..10) == 0;
        let ms = if slow { 1000.0 } else { normal(rng, base[line], 5.0) };
        Duration::from_secs_f64(ms / 1000.0)
    };

    struct Client {
        machine: Machine,
        line: usize,
        begun: Moment,
    }
    let mut clients: Vec<Option<Client>> = (0..CLIENTS).map(|_| None).collect();
    // When each client's connect ends, and who waits for a target.
    let mut agenda: BTreeMap<(Moment, usize), ()> = BTreeMap::new();
    let mut busy = [0usize; TARGETS as usize];
    let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); usize::from(TARGETS)];
    let mut waits = Vec::with_capacity(CONNECTIONS);
    let mut faulty = 0usize;
    let mut ready: VecDeque<usize> = (0..CLIENTS).collect();

    while waits.len() < CONNECTIONS {
        while let Some(client) = ready.pop_front() {
            let mut machine = bench.machine();
            let mut steps = Steps::new();
            machine.start(bench.now, &mut steps);
            let [Step::Dial { line: LineIndex(line), .. }] = steps[..] else {
                panic!("one dial: {steps:?}");
            };
            let line = usize::from(line);
            clients[client] = Some(Client { machine, line, begun: bench.now });
            if busy[line] < AT_A_TIME {
                busy[line] += 1;
                agenda.insert((bench.now.after(service(&mut rng, line)), client), ());
            } else {
                queues[line].push_back(client);
            }
        }
        let ((at, client), ()) = agenda.pop_first().unwrap();
        bench.now = at;
        let Client { mut machine, line, begun } = clients[client].take().unwrap();
        let connect = Some(at.since(begun));
        let mut steps = Steps::new();
        machine.on(Event::Connected { attempt: AttemptId(0), connect }, at, &mut steps);
        assert_eq!(steps[..], [Step::Use(AttemptId(0))]);
        waits.push(at.since(begun).as_secs_f64() * 1000.0);
        faulty += usize::from(line == FAULTY);
        match queues[line].pop_front() {
            Some(next) => {
                agenda.insert((at.after(service(&mut rng, line)), next), ());
            }
            None => busy[line] -= 1,
        }
        ready.push_back(client);
    }
    waits.sort_by(f64::total_cmp);
    Outcome {
        faulty: 100.0 * faulty as f64 / waits.len() as f64,
        p999: waits[waits.len() * 999 / 1000],
    }
}

#[test]
fn latency_strategy_gives_a_stuttering_target_at_most_one_percent_and_keeps_the_tail_short() {
    for seed in [1, 2, 3] {
        let outcome = simulate(Strategy::Latency, seed);
        assert!(outcome.faulty <= 1.0, "seed {seed}: {} %", outcome.faulty);
        assert!(outcome.p999 <= 100.0, "seed {seed}: {} ms", outcome.p999);
    }
}

#[test]
fn the_same_load_shows_what_other_strategies_do_with_it() {
    let round = simulate(Strategy::Round, 1);
    assert!((9.5..10.5).contains(&round.faulty) && round.p999 >= 999.0);
    let least = simulate(Strategy::LeastConn, 1);
    assert!(least.faulty < round.faulty && least.faulty > 2.0 && least.p999 >= 999.0);
}
