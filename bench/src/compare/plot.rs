//! One chart for each main figure of a work.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Plan, Results, summary};
use crate::statistics::Better;
use crate::svg::{Bar, chart};

/// Figures that are drawn; the others are in the tables.
const DRAWN: &[&str] =
    &["gib_per_s", "cpu_s_per_gib", "per_s", "cpu_s_per_10k", "p99_us", "kib_per_conn", "stall_ms"];

/// Writes `WORK-FIGURE.svg` into `directory` for all there is.
pub(super) fn write(
    plan: &Plan,
    results: &Results,
    directory: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let mut files = Vec::new();
    for &work in &plan.works {
        for metric in work.metrics().iter().filter(|m| DRAWN.contains(&m.key)) {
            let bars: Vec<Bar> = plan
                .targets
                .iter()
                .filter_map(|target| {
                    let label = target.name();
                    let value = summary::rounds(results, work, &label, metric.key)?.median;
                    Some(Bar { ours: label.starts_with("baton"), label, value })
                })
                .collect();
            if bars.len() < 2 {
                continue;
            }
            let mark = summary::reference(plan, results, work, metric);
            let direction = match metric.better {
                Better::Higher => "higher is better",
                Better::Lower => "lower is better",
                Better::Neither => "",
            };
            let note = mark.as_ref().map_or_else(
                || direction.to_owned(),
                |(whose, _)| format!("{direction}; the dashed line is {whose}"),
            );
            let title = format!("{}: {}", work.title(), metric.label);
            let svg = chart(&title, &note, &bars, mark.map(|(_, value)| value));
            let file = directory.join(format!("{work}-{}.svg", metric.key.replace('_', "-")));
            std::fs::write(&file, svg).with_context(|| format!("writing {}", file.display()))?;
            files.push(file);
        }
    }
    Ok(files)
}
