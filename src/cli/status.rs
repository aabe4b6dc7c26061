//! `baton status`: processes, listeners, transitions and lines of an instance.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use baton_supervisor::control::protocol::{MigrationStatus, Request, Response, Status, WorkerRole};
use clap::Args;
use serde_json::{Value, json};

use super::query::{self, cell, list};
use super::{InstanceArgs, control};
use crate::instance;
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
        Response::Status(status) => {
            let lines = query::ask(&args.instance, &json!({ "ask": "status" }));
            let text = match args.instance.json {
                true => as_json(&status, lines)?,
                false => describe(&instance::runtime_dir(&args.instance)?, &status, lines),
            };
            output::print(&text)?;
        }
        Response::Progress { .. } | Response::Answer { .. } | Response::Done(_) => {
            return Err(anyhow::anyhow!("the instance answered with something else").into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The status with what the serving worker says of its lines; `rules` is null while none answers.
fn as_json(status: &Status, lines: Result<Value, Failure>) -> Result<String, Failure> {
    let mut whole = serde_json::to_value(status)?;
    let rules = lines.ok().and_then(|mut answer| answer.get_mut("rules").map(Value::take));
    if let Some(whole) = whole.as_object_mut() {
        whole.insert("rules".into(), rules.unwrap_or_default());
    }
    Ok(format!("{whole}\n"))
}

fn describe(dir: &Path, status: &Status, lines: Result<Value, Failure>) -> String {
    let supervisor = &status.supervisor;
    let uptime = humantime::format_duration(Duration::from_secs(supervisor.uptime_seconds));
    let mut text = format!(
        "supervisor {} pid {}, {}, up {uptime}\n",
        supervisor.version, supervisor.pid, supervisor.state
    );
    if !supervisor.config.is_empty() {
        text.push_str(&format!("configuration {}\n", supervisor.config));
    }
    text.push_str(&format!("runtime directory {}\n", dir.display()));
    if let Some(transition) = &status.transition {
        let since = humantime::format_duration(Duration::from_millis(transition.since));
        text.push_str(&format!("{}: {} since {since}\n", transition.kind, transition.phase));
        if let Some(MigrationStatus { moved, waiting, kept }) = transition.migration {
            let line = format!("  moved {moved}, still dialling {waiting}, kept {kept}\n");
            text.push_str(&line);
        }
    }
    if let Some(recovery) = &status.recovery {
        let since = humantime::format_duration(Duration::from_millis(recovery.since));
        let of: Vec<_> = recovery.of.iter().map(u32::to_string).collect();
        let (by, of) = (recovery.worker, of.join(", "));
        text.push_str(&format!("worker {by} carries on what worker {of} left, since {since}\n"));
    }
    if let Some(last) = &status.last_transition {
        text.push_str(&format!("last {}: {} ({} ms)", last.kind, last.result, last.duration_ms));
        if let Some(age) = last.age_ms {
            let age = humantime::format_duration(Duration::from_secs(age / 1000));
            text.push_str(&format!(", {age} ago"));
        }
        text.push('\n');
        for problem in &last.problems {
            text.push_str(&format!("  {problem}\n"));
        }
    }
    section(&mut text, &workers(status));
    section(&mut text, &listeners(status));
    match lines {
        Ok(answer) => section(&mut text, &targets(&answer)),
        Err(Failure::Problems(problems)) => text.push_str(&format!("\n{}\n", problems.join("\n"))),
        Err(Failure::NoInstance(problem)) => text.push_str(&format!("\n{problem}\n")),
        Err(Failure::Other(error)) => text.push_str(&format!("\n{}\n", output::whole(&error))),
    }
    text
}

/// A table behind an empty line; nothing where it would have no more than its header.
fn section(text: &mut String, rows: &[Vec<String>]) {
    if rows.len() > 1 {
        text.push('\n');
        text.push_str(&output::table(rows));
    }
}

fn workers(status: &Status) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["WORKER", "PID", "VERSION", "ROLE", "GENERATION", "CONNECTIONS"]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(status.workers.iter().map(|worker| {
        vec![
            worker.worker.to_string(),
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

/// A row a line; those that would be tried come first within their rule.
fn targets(answer: &Value) -> Vec<Vec<String>> {
    let header =
        ["RULE", "MODE", "TARGET", "STATE", "ACTIVE", "FAILURES", "CONNECT MS", "FIRST BYTE MS"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for rule in list(answer, "rules") {
        rows.extend(list(rule, "lines").iter().map(|line| {
            let (target, address) = (cell(line, "target"), cell(line, "address"));
            vec![
                cell(rule, "rule"),
                cell(rule, "mode"),
                if target == address { target } else { format!("{target} {address}") },
                cell(line, "reason"),
                cell(line, "active"),
                cell(line, "failures"),
                cell(line, "ewma_ms"),
                cell(line, "first_byte_ms"),
            ]
        }));
    }
    rows
}

fn role(role: WorkerRole) -> &'static str {
    match role {
        WorkerRole::Serving => "serving",
        WorkerRole::Retiring => "retiring",
    }
}
