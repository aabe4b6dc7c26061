//! `baton-bench`: a load generator that verifies what it moves, and a comparison of Baton
//! with other relays on the same machine in the same minutes.
//!
//! The load modes print one line, or one JSON object with `--json`. `compare` and `options`
//! start everything themselves, end only what they started, and print tables. Progress and
//! errors go to standard error.

mod cli;
mod compare;
mod histogram;
mod load;
mod options;
mod pattern;
mod procfs;
mod report;
mod statistics;
mod svg;
mod table;
mod target;
mod upstream;
mod wire;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;

use cli::{Cli, CompareArgs, LoadArgs, Mode, OptionsArgs, RunArgs};
use compare::{Against, Plan, Work};
use load::bulk::Bulk;
use load::churn::Churn;
use load::upgrade::Upgrade;
use report::Report;
use target::{Baton, Target};
use upstream::Upstream;

fn main() -> ExitCode {
    match run(Cli::parse().mode) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("baton-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mode: Mode) -> anyhow::Result<()> {
    procfs::raise_descriptor_limit().context("raising the limit of descriptors")?;
    match mode {
        Mode::Serve(args) => {
            let upstream = Upstream::start(args.listen, args.threads).context("listening")?;
            print(&format!("listening on {}", upstream.address()))?;
            upstream.wait().context("serving")
        }
        Mode::Bulk(args) => {
            let bulk = Bulk { direction: args.direction, writes: args.sizes() };
            show(&args.load, load::bulk::run(&args.load.load(args.connections), bulk)?)
        }
        Mode::Churn(args) => {
            let churn = Churn { size: args.size, rate: args.rate };
            show(&args.load, load::churn::run(&args.load.load(args.connections), churn)?)
        }
        Mode::Pingpong(args) => {
            let load = args.load.load(args.connections);
            show(&args.load, load::pingpong::run(&load, args.size)?)
        }
        Mode::Idle(args) => {
            let look = || match args.pid {
                Some(pid) => procfs::sample(&procfs::tree(pid, &[])),
                None => procfs::Sample::default(),
            };
            show(&args.load, load::idle::run(&args.load.load(args.connections), &look)?)
        }
        Mode::Upgrade(args) => {
            let upgrade = Upgrade { trigger: args.trigger, at: args.at, rate: args.rate };
            show(&args.load, load::upgrade::run(&args.load.load(args.streams), &upgrade)?)
        }
        Mode::Halfclose(args) => {
            let load = args.load.load(args.connections);
            show(&args.load, load::halfclose::run(&load, args.bytes)?)
        }
        Mode::Compare(args) => compare_all(args),
        Mode::Options(args) => compare_options(args),
        Mode::Launch { command } => Err(launch(&command)),
    }
}

/// Becomes `command`, and is ended with its parent; returns only when that fails.
fn launch(command: &[String]) -> anyhow::Error {
    use nix::sys::{prctl, signal::Signal};
    let Some((program, arguments)) = command.split_first() else {
        return anyhow::anyhow!("nothing to launch");
    };
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGTERM) {
        return error.into();
    }
    let failed = Command::new(program).args(arguments).exec();
    anyhow::Error::new(failed).context(format!("starting {program}"))
}

fn compare_all(args: CompareArgs) -> anyhow::Result<()> {
    let binary = binary(&args.run)?;
    let mut every = vec![Target::Direct, Target::Baton(Baton::plain(binary))];
    if let Some(path) = &args.baseline {
        let mut baseline = Baton::plain(std::path::absolute(path).context("the baseline's path")?);
        baseline.name = "baseline".to_owned();
        every.push(Target::Baton(baseline));
    }
    every.extend([
        Target::Haproxy { splice: false },
        Target::Haproxy { splice: true },
        Target::Nginx,
    ]);
    for name in &args.targets {
        if !every.iter().any(|target| target.name() == *name) {
            bail!("there is no target {name}");
        }
    }
    let targets = every
        .into_iter()
        .filter(|t| args.targets.is_empty() || args.targets.contains(&t.name()))
        .collect();
    let works = if args.run.quick {
        vec![
            Work::BulkDown,
            Work::BulkUp,
            Work::BulkOne,
            Work::Churn,
            Work::PingSmall,
            Work::Idle,
            Work::HalfClose,
            Work::Upgrade,
        ]
    } else {
        <Work as clap::ValueEnum>::value_variants().to_vec()
    };
    finish(&args.run, plan(&args.run, targets, works, Against::BestPeer))
}

fn compare_options(args: OptionsArgs) -> anyhow::Result<()> {
    let mut variants = options::variants(&binary(&args.run)?);
    // The first is what the others are compared with.
    let mut index = 0;
    variants.retain(|variant| {
        index += 1;
        let wanted = args.only.iter().any(|part| variant.name.contains(part.as_str()));
        index == 1 || args.only.is_empty() || wanted
    });
    let (targets, left_out) = options::accepted(variants);
    left_out.iter().for_each(|line| say(line));
    let works = vec![Work::Churn, Work::PingSmall, Work::BulkDown, Work::Idle];
    finish(&args.run, plan(&args.run, targets, works, Against::FirstTarget))
}

fn plan(args: &RunArgs, targets: Vec<Target>, works: Vec<Work>, against: Against) -> Plan {
    let (rounds, seconds) = if args.quick { (2, 1.0) } else { (5, 1.5) };
    Plan {
        targets,
        works: if args.works.is_empty() { works } else { args.works.clone() },
        rounds: args.rounds.unwrap_or(rounds).max(1),
        duration: args.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
        threads: args.threads.max(1),
        idle: args.idle.max(1),
        against,
    }
}

/// Measures, prints, writes files.
fn finish(args: &RunArgs, plan: Plan) -> anyhow::Result<()> {
    let results = compare::run(&plan, &mut say)?;
    let json = serde_json::to_string_pretty(&results)?;
    if let Some(file) = &args.out {
        std::fs::write(file, &json).with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(directory) = &args.svg {
        let files = compare::plots(&plan, &results, directory)?;
        say(&format!("{} charts in {}", files.len(), directory.display()));
    }
    print(&if args.json { json } else { compare::render(&plan, &results) })
}

/// The binary that was named, or the release build that lies beside this program.
fn binary(args: &RunArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.baton {
        return std::path::absolute(path).context("the path of the binary");
    }
    let own = std::env::current_exe()?;
    // target/debug/baton-bench looks into target/release too: only that is worth measuring.
    let target = own.ancestors().nth(2).context("this program's directory")?;
    Ok(target.join("release").join("baton"))
}

fn show(args: &LoadArgs, mut report: Report) -> anyhow::Result<()> {
    report.load_cpu_s = procfs::own_cpu_seconds();
    let text = if args.json { serde_json::to_string(&report)? } else { report.describe() };
    print(&text)
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

fn say(text: &str) {
    // Standard error may be closed; the measurement goes on.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
