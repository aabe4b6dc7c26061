//! `baton demo`: a live gateway, reloaded, upgraded, given a bad new version and killed under load,
//! and what was lost.
//!
//! Everything is embedded: two small upstreams and the load run in this process, a supervisor and
//! its worker are started from this very binary, on free loopback ports and in a directory of
//! their own that goes with the demo.

mod gateway;
mod ledger;
mod load;
mod pattern;
mod report;
mod upstream;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use tokio::task::LocalSet;

use crate::output::{self, FAILED, Failure};
use gateway::Gateway;
use ledger::Ledger;
use report::{Promise, Step};

/// Live connections with checked streams.
const STREAMS: usize = 200;
/// Callers of the connect storm.
const CALLERS: usize = 4;
/// How long the load runs before the first event and after each: long enough that a loss behind
/// the event is seen as its own.
const SETTLE: Duration = Duration::from_millis(1000);
/// Far beyond what the demo takes: it ends by itself even when something hangs.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Args)]
#[command(
    after_help = "Takes about fifteen seconds. Exit code 0 only if nothing was lost that this release promises."
)]
pub(crate) struct DemoArgs {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let steps = LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(LIMIT, show(!args.json))
            .await
            .map_err(|_| anyhow::anyhow!("the demo did not end within {LIMIT:?}"))?
    })?;
    let text = if args.json { report::json(&steps)? } else { report::table(&steps) };
    output::print(&text)?;
    let kept = steps.iter().all(Step::kept);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

async fn show(talk: bool) -> anyhow::Result<Vec<Step>> {
    let say = |text: &str| match talk {
        true => output::print(&format!("{text}\n")).map_err(|_| anyhow::anyhow!("nobody reads")),
        false => Ok(()),
    };
    let upstreams = [upstream::start().await?, upstream::start().await?];
    let mut gateway = Gateway::start(upstreams).await?;
    say(&format!(
        "gateway on {}, two upstreams, {STREAMS} live connections, {CALLERS} callers in a storm",
        gateway.entry()
    ))?;
    let ledger = Rc::new(Ledger::default());
    let load = load::Load::start(gateway.entry(), STREAMS, CALLERS, Rc::clone(&ledger)).await?;
    let mut steps = Vec::new();

    ledger.reset();
    tokio::time::sleep(SETTLE).await;
    steps.push(Step::of("steady", &ledger, Promise::Everything));

    say("reload: a changed configuration")?;
    ledger.reset();
    gateway.reload().await?;
    tokio::time::sleep(SETTLE).await;
    steps.push(Step::of("reload", &ledger, Promise::Everything));

    say("upgrade: a new worker takes everything over, then the supervisor replaces itself")?;
    ledger.reset();
    say(&format!("  {}", gateway.upgrade().await?))?;
    tokio::time::sleep(SETTLE).await;
    steps.push(Step::of("upgrade", &ledger, Promise::Everything));

    say("a bad new version: one that dies right after it has taken over")?;
    ledger.reset();
    say(&format!("  {}", gateway.fail_upgrade().await?))?;
    tokio::time::sleep(SETTLE).await;
    steps.push(Step::of("bad version", &ledger, Promise::Kill));

    say("kill -9 of the serving worker")?;
    ledger.reset();
    gateway.kill_worker().await?;
    tokio::time::sleep(SETTLE).await;
    steps.push(Step::of("kill -9", &ledger, Promise::Kill));

    ledger.reset();
    load.finish().await;
    steps.push(Step::of("end", &ledger, Promise::Everything));
    gateway.stop().await?;
    Ok(steps)
}
