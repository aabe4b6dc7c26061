//! From measurements to tables: medians, and ratios to the best.

use super::work::Metric;
use super::{Against, Plan, Results, Work};
use crate::statistics::{Better, Spread, best, spread};
use crate::table::{Table, figure};

/// The rounds of one figure of one target.
pub(super) fn rounds(results: &Results, work: Work, target: &str, key: &str) -> Option<Spread> {
    let of = results.measurements.iter().filter(|m| m.work == work && m.target == target);
    let values: Vec<f64> = of.filter_map(|m| m.values.get(key).copied()).collect();
    spread(&values)
}

/// What the others' figures are divided by: whose it is and how large.
pub(super) fn reference(
    plan: &Plan,
    results: &Results,
    work: Work,
    metric: &Metric,
) -> Option<(String, f64)> {
    let median = |name: &str| rounds(results, work, name, metric.key).map(|s| s.median);
    match plan.against {
        Against::BestPeer => {
            let peers: Vec<String> =
                plan.targets.iter().filter(|t| t.is_peer()).map(|t| t.name()).collect();
            let medians: Vec<f64> = peers.iter().map(|p| median(p).unwrap_or(0.0)).collect();
            best(metric.better, &medians).map(|(index, value)| (peers[index].clone(), value))
        }
        Against::FirstTarget => {
            let name = plan.targets.first()?.name();
            let value = median(&name).filter(|v| *v > 0.0)?;
            (metric.better != Better::Neither).then_some((name, value))
        }
    }
}

/// All tables, one a work.
pub(super) fn render(plan: &Plan, results: &Results) -> String {
    let mut out = format!(
        "{} · {} cores, {} · Linux {} · {} rounds of {} s\n\n",
        results.started,
        results.cores,
        results.cpu,
        results.kernel,
        results.rounds,
        results.seconds
    );
    let mut versions: Vec<&String> = results.versions.values().collect();
    versions.sort();
    versions.dedup();
    for version in versions.into_iter().filter(|version| !version.is_empty()) {
        out += &format!("* {version}\n");
    }
    for &work in &plan.works {
        out += &format!("\n### {}\n\n", work.title());
        out += &table(plan, results, work);
        let notes = notes(results, work);
        if !notes.is_empty() {
            out += &format!("\n{notes}");
        }
    }
    out
}

fn table(plan: &Plan, results: &Results, work: Work) -> String {
    let metrics = work.metrics();
    let references: Vec<_> =
        metrics.iter().map(|metric| reference(plan, results, work, metric)).collect();
    let mut heads = vec!["target".to_owned()];
    for (metric, reference) in metrics.iter().zip(&references) {
        heads.push(metric.label.to_owned());
        if reference.is_some() {
            heads.push("×".to_owned());
        }
    }
    let mut table = Table::new(heads);
    for target in &plan.targets {
        let name = target.name();
        if !results.measurements.iter().any(|m| m.work == work && m.target == name) {
            continue;
        }
        let mut cells = vec![name.clone()];
        for (metric, reference) in metrics.iter().zip(&references) {
            let found = rounds(results, work, &name, metric.key);
            let mut cell = figure(found.map(|s| s.median), metric.decimals);
            if let Some(s) = found.filter(|s| s.rounds > 1 && metric.better != Better::Neither) {
                let decimals = metric.decimals;
                cell += &format!(" ({:.decimals$}–{:.decimals$})", s.low, s.high);
            }
            cells.push(cell);
            if let Some((whose, value)) = reference {
                let ratio = found.map(|s| s.median / value);
                let mut cell = figure(ratio, 2);
                if *whose == name {
                    cell = format!("[{cell}]");
                }
                cells.push(cell);
            }
        }
        table.row(cells);
    }
    table.render()
}

fn notes(results: &Results, work: Work) -> String {
    let of = results.measurements.iter().filter(|m| m.work == work && !m.notes.is_empty());
    of.map(|m| format!("* {}, round {}: {}\n", m.target, m.round, m.notes.replace('\n', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::compare::Measurement;
    use crate::target::{Baton, Target};

    fn plan() -> Plan {
        Plan {
            targets: vec![
                Target::Direct,
                Target::Baton(Baton::plain(PathBuf::new())),
                Target::Haproxy { splice: false },
                Target::Nginx,
            ],
            works: vec![Work::Churn],
            rounds: 3,
            duration: Duration::from_secs(1),
            threads: 1,
            idle: 1,
            against: Against::BestPeer,
        }
    }

    fn results(figures: &[(&str, [f64; 3])]) -> Results {
        let measurements = figures.iter().flat_map(|(target, rounds)| {
            rounds.iter().enumerate().map(|(round, value)| Measurement {
                round,
                work: Work::Churn,
                target: (*target).to_owned(),
                values: BTreeMap::from([("per_s", *value)]),
                notes: String::new(),
                load: 0.0,
            })
        });
        Results {
            started: String::new(),
            kernel: String::new(),
            cpu: String::new(),
            cores: 2,
            rounds: 3,
            seconds: 1.0,
            versions: BTreeMap::new(),
            measurements: measurements.collect(),
        }
    }

    #[test]
    fn ratios_are_to_the_best_peer_and_never_to_direct_or_ourselves() {
        let results = results(&[
            ("direct", [900.0; 3]),
            ("baton", [150.0, 120.0, 1.0]),
            ("haproxy", [100.0; 3]),
            ("nginx", [80.0; 3]),
        ]);
        let metric = &Work::Churn.metrics()[0];
        let best = reference(&plan(), &results, Work::Churn, metric);
        assert_eq!(best, Some(("haproxy".to_owned(), 100.0)));
        let text = render(&plan(), &results);
        let row = text.lines().find(|l| l.contains("| baton")).unwrap();
        assert!(row.contains("120 (1–150)") && row.contains(" 1.20 "), "{row}");
        assert!(text.contains("[1.00]"));
    }

    #[test]
    fn options_are_compared_with_the_first_target() {
        let mut plan = plan();
        plan.targets = vec![Target::Nginx, Target::Direct];
        plan.against = Against::FirstTarget;
        let results = results(&[("nginx", [10.0; 3]), ("direct", [20.0; 3])]);
        let metric = &Work::Churn.metrics()[0];
        let first = reference(&plan, &results, Work::Churn, metric);
        assert_eq!(first, Some(("nginx".to_owned(), 10.0)));
    }

    #[test]
    fn a_target_without_figures_has_dashes_and_cannot_be_the_best() {
        let results = results(&[("haproxy", [0.0; 3]), ("nginx", [70.0; 3])]);
        let metric = &Work::Churn.metrics()[0];
        assert_eq!(
            reference(&plan(), &results, Work::Churn, metric),
            Some(("nginx".to_owned(), 70.0))
        );
    }
}
