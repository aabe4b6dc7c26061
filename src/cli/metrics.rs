//! `baton metrics`: the region's counters in Prometheus text, read without asking any process.

use std::process::ExitCode;

use baton_metrics::{Reader, RegionError};
use clap::Args;

use super::InstanceArgs;
use crate::instance;
use crate::output::{self, Failure};

#[derive(Debug, Args)]
#[command(
    after_help = "Works while no worker lives, and after the instance has ended as long as its
runtime directory is there."
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
    output::print(&region.encode_text()?)?;
    Ok(ExitCode::SUCCESS)
}

fn is_missing(error: &RegionError) -> bool {
    matches!(error, RegionError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
