//! `selector`, `retries` and `hash`: what mode `forward` adds to a rule.

use super::{complain, narrow, section};
use crate::model::{Forward, HashKey, Selector, Strategy};
use crate::problem::Report;
use crate::shape::tree::Object;
use crate::words::StrategyWord;

pub(super) fn forward(rule: &Object, report: &mut Report) -> Option<Forward> {
    let section = section(rule, "selector");
    let selector = section.and_then(|section| {
        let selector = section.get();
        let word = selector.word::<StrategyWord>("strategy");
        if let Some(word) = word
            && word != StrategyWord::Hash
            && rule.is_written("hash")
        {
            complain(report, rule, "hash", "hash is only valid with selector.strategy \"hash\"");
        }
        read(selector, word, report)
    });
    Some(Forward {
        selector: selector?,
        retries: rule.get("retries").and_then(narrow)?,
        hash: rule.word::<HashKey>("hash")?,
    })
}

fn read(selector: &Object, word: Option<StrategyWord>, report: &mut Report) -> Option<Selector> {
    if word.is_some_and(|word| word != StrategyWord::Parallel) {
        for name in ["maxParallel", "parallelMode"] {
            if selector.is_written(name) {
                let message = format!("{name} is only valid with strategy \"parallel\"");
                complain(report, selector, name, message);
            }
        }
    }
    let strategy = match word? {
        StrategyWord::Round => Strategy::Round,
        StrategyWord::Rand => Strategy::Rand,
        StrategyWord::Fifo => Strategy::Fifo,
        StrategyWord::Hash => Strategy::Hash,
        StrategyWord::Parallel => Strategy::Parallel {
            max: selector.get("maxParallel").and_then(narrow)?,
            mode: selector.word("parallelMode")?,
        },
        StrategyWord::LeastConn => Strategy::LeastConn,
        StrategyWord::Latency => Strategy::Latency,
    };
    Some(Selector {
        strategy,
        max_fails: selector.get("maxFails").and_then(narrow)?,
        fail_timeout: selector.get("failTimeout")?,
        on_all_failed: selector.word("onAllFailed")?,
    })
}
