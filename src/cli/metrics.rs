//! `baton metrics`: the region's counters, read without asking any process.

use std::process::ExitCode;

use baton_metrics::{Family, Reader, RegionError, Sample, Value};
use clap::Args;
use serde_json::{Map, json};

use super::InstanceArgs;
use crate::instance;
use crate::output::{self, Failure};

#[derive(Debug, Args)]
#[command(
    after_help = "Prometheus text, or with --json one object a family. Works while no worker lives, and
after the instance has ended as long as its runtime directory is there."
)]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    instance: InstanceArgs,
}

pub(crate) fn run(args: &MetricsArgs) -> Result<ExitCode, Failure> {
    let dir = instance::runtime_dir(&args.instance)?;
    let region = match Reader::open(&dir) {
        Ok(region) => region,
        Err(error) if is_missing(&error) => {
            return Err(Failure::NoInstance(format!("no instance has run in {}", dir.display())));
        }
        Err(error) => return Err(error.into()),
    };
    if args.instance.json {
        for family in &region.snapshot()?.families {
            output::print(&format!("{}\n", as_json(family)))?;
        }
    } else {
        output::print(&region.encode_text()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_missing(error: &RegionError) -> bool {
    matches!(error, RegionError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

fn as_json(family: &Family) -> serde_json::Value {
    let samples: Vec<_> = family.samples.iter().map(sample).collect();
    json!({ "name": family.name, "help": family.help, "samples": samples })
}

fn sample(sample: &Sample) -> serde_json::Value {
    let labels: Map<_, _> =
        sample.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    match &sample.value {
        Value::Counter(total) => json!({ "labels": labels, "value": total }),
        Value::Gauge(value) => json!({ "labels": labels, "value": value }),
        Value::Histogram { bounds, counts, sum } => {
            json!({ "labels": labels, "bounds": bounds, "counts": counts, "sum": sum })
        }
    }
}
