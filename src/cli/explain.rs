//! `baton explain`: where a connection would go, without making one.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::InstanceArgs;
use super::query::{self, cell, list};
use crate::output::{self, Failure};

/// More than any mode looks at.
const BYTES_MAX: u64 = 96 * 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "Shows which targets the serving worker would try for such a connection, in their
order, then those it would not, and why. Nothing is dialled and nothing changes. Where targets are
drawn at random the likeliest come first.

Examples:
  baton explain --rule web --client 203.0.113.7
  baton explain --rule tls --sni www.example.org --alpn h2
  baton explain --rule ssh --bytes first-bytes.bin --json"
)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    instance: InstanceArgs,
    /// The rule that the connection comes in through.
    #[arg(long, value_name = "NAME")]
    rule: String,
    /// The client's address; without it lists are not asked.
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// The server name that the client asks for (mode `tls`, and `hash` by host).
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// A protocol that the client offers (mode `tls`); may be given several times.
    #[arg(long, value_name = "PROTOCOL")]
    alpn: Vec<String>,
    /// A file with the client's first bytes, without a PROXY header (modes `regex` and `tls`, and
    /// `hash` by host).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sni", "alpn"])]
    bytes: Option<PathBuf>,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let bytes = args.bytes.as_deref().map(hex).transpose()?;
    let question = json!({
        "ask": "explain", "rule": args.rule, "client": args.client, "sni": args.sni,
        "alpn": args.alpn, "bytes": bytes,
    });
    let answer = query::ask(&args.instance, &question)?;
    if args.instance.json {
        output::print(&format!("{answer}\n"))?;
    } else {
        output::print(&describe(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The beginning of a file, in hexadecimal.
fn hex(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn describe(answer: &Value) -> String {
    let mut rows = vec![
        ["ORDER", "ADDRESS", "USABLE", "REASON", "EWMA MS", "SCORE"].map(String::from).to_vec(),
    ];
    rows.extend(list(answer, "candidates").iter().map(|candidate| {
        let usable = candidate.get("usable").and_then(Value::as_bool).unwrap_or(false);
        vec![
            cell(candidate, "order"),
            cell(candidate, "address"),
            if usable { "yes" } else { "no" }.into(),
            cell(candidate, "reason"),
            cell(candidate, "ewma_ms"),
            cell(candidate, "score"),
        ]
    }));
    format!(
        "rule {}, mode {}, generation {}\n\n{}",
        cell(answer, "rule"),
        cell(answer, "mode"),
        cell(answer, "generation"),
        output::table(&rows)
    )
}
