//! `docs/metrics.md`, from the table.

use std::fmt::{self, Write as _};

use super::{Aggregation, Kind, Metric, Stage, TABLE, Unit};

const HEAD: &str = include_str!("head.md");

/// The reference page for operators.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    // Writing to a String cannot fail.
    write_stages(&mut page).ok();
    page
}

fn write_stages(page: &mut String) -> fmt::Result {
    for stage in [Stage::Process, Stage::Connection, Stage::Dial, Stage::Line, Stage::Migration] {
        let title = match stage {
            Stage::Process => "Processes",
            Stage::Connection => "Connections",
            Stage::Dial => "Dialling",
            Stage::Line => "Lines",
            Stage::Migration => "Migration",
        };
        writeln!(page, "\n## {title}")?;
        for metric in TABLE.iter().filter(|metric| metric.stage == stage) {
            write_metric(page, metric)?;
        }
    }
    Ok(())
}

fn write_metric(page: &mut String, metric: &Metric) -> fmt::Result {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge(Aggregation::Sum) => "gauge, sum over live processes",
        Kind::Gauge(Aggregation::Newest) => "gauge, of the newest process that has it",
        Kind::Histogram(_) => "histogram",
    };
    let unit = match metric.unit {
        Unit::Number => "",
        Unit::Bytes => ", bytes",
        Unit::Seconds => ", seconds",
    };
    writeln!(page, "\n### `{}`\n\n{}\n\n* Type: {kind}{unit}", metric.name, metric.help)?;
    for label in metric.labels {
        writeln!(page, "* Label `{}`: {}", label.name, label.values)?;
    }
    if let Kind::Histogram(bounds) = metric.kind {
        let bounds: Vec<String> = bounds.iter().map(|bound| seconds(*bound)).collect();
        writeln!(page, "* Buckets: {}", bounds.join(", "))?;
    }
    Ok(())
}

/// Nanoseconds as decimal seconds without trailing zeros.
fn seconds(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
