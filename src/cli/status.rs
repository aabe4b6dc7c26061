//! `baton status`: processes, listeners and transitions of an instance.

use std::process::ExitCode;
use std::time::Duration;

use baton_supervisor::control::protocol::{Request, Response, Status, WorkerRole};
use clap::Args;

use super::{InstanceArgs, control};
use crate::output::{self, Failure};

/// A supervisor answers from memory; one that takes longer is hung.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    instance: InstanceArgs,
}

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let mut conversation = control::ask(&args.instance, &Request::Status)?;
    conversation.set_patience(PATIENCE)?;
    match conversation.next_response().map_err(control::failure)? {
        Response::Status(status) if args.instance.json => {
            output::print(&format!("{}\n", serde_json::to_string(&status)?))?;
        }
        Response::Status(status) => output::print(&describe(&status))?,
        Response::Progress { .. } | Response::Done(_) => {
            return Err(anyhow::anyhow!("the instance answered with something else").into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(status: &Status) -> String {
    let supervisor = &status.supervisor;
    let uptime = humantime::format_duration(Duration::from_secs(supervisor.uptime_seconds));
    let mut text = format!(
        "supervisor {} pid {}, {}, up {uptime}\n",
        supervisor.version, supervisor.pid, supervisor.state
    );
    if let Some(transition) = &status.transition {
        let since = humantime::format_duration(Duration::from_millis(transition.since));
        text.push_str(&format!("{}: {} since {since}\n", transition.kind, transition.phase));
    }
    if let Some(last) = &status.last_transition {
        text.push_str(&format!("last {}: {} ({} ms)\n", last.kind, last.result, last.duration_ms));
        for problem in &last.problems {
            text.push_str(&format!("  {problem}\n"));
        }
    }
    text.push('\n');
    text.push_str(&output::table(&workers(status)));
    text.push('\n');
    text.push_str(&output::table(&listeners(status)));
    text
}

fn workers(status: &Status) -> Vec<Vec<String>> {
    let mut rows =
        vec![["WORKER", "VERSION", "ROLE", "GENERATION", "CONNECTIONS"].map(String::from).to_vec()];
    rows.extend(status.workers.iter().map(|worker| {
        vec![
            worker.pid.to_string(),
            worker.version.clone(),
            role(worker.role).into(),
            worker.generation.to_string(),
            worker.connections.to_string(),
        ]
    }));
    rows
}

fn listeners(status: &Status) -> Vec<Vec<String>> {
    let mut rows = vec![["RULE", "ADDRESS", "INODE"].map(String::from).to_vec()];
    rows.extend(status.listeners.iter().map(|listener| {
        vec![listener.rule.clone(), listener.address.clone(), listener.inode.to_string()]
    }));
    rows
}

fn role(role: WorkerRole) -> &'static str {
    match role {
        WorkerRole::Serving => "serving",
        WorkerRole::Retiring => "retiring",
    }
}
