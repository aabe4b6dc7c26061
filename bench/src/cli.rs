//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::compare::Work;
use crate::load::Load;
use crate::wire::{Direction, MAX_FRAME};

/// Load generator and side-by-side comparison of TCP relays. Everything is on loopback.
#[derive(Debug, Parser)]
#[command(name = "baton-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mode {
    /// Run the upstream that the load modes expect behind a target.
    Serve(Serve),
    /// Move as many bytes as go through, each of them checked at the far end.
    Bulk(BulkArgs),
    /// Connect, one request, close, as often as possible or at a rate.
    Churn(ChurnArgs),
    /// Send small messages to and fro.
    Pingpong(PingpongArgs),
    /// Hold connections that do nothing, and look at the target's processes.
    Idle(IdleArgs),
    /// Streams and new connections while a command replaces the target.
    Upgrade(UpgradeArgs),
    /// Close the sending half first and want the whole answer.
    Halfclose(HalfcloseArgs),
    /// Run Baton beside a direct connection, HAProxy and nginx.
    Compare(CompareArgs),
    /// Run Baton with one option changed at a time.
    Options(OptionsArgs),
    /// Start a command that is ended when its parent ends.
    #[command(hide = true)]
    Launch {
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

/// What all load modes share.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// The target, a loopback address.
    #[arg(long, value_name = "HOST:PORT", value_parser = loopback)]
    pub(crate) addr: SocketAddr,
    /// How long.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Load threads.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

impl LoadArgs {
    pub(crate) fn load(&self, connections: usize) -> Load {
        Load { target: self.addr, connections, threads: self.threads, duration: self.seconds }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; port 0 picks one, which is printed.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
}

#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[arg(long, default_value_t = 8)]
    pub(crate) connections: usize,
    #[arg(long, value_enum, default_value = "down")]
    pub(crate) direction: Direction,
    /// Bytes of each write; two sizes alternate.
    #[arg(long, value_name = "BYTES[,BYTES]", default_value = "65536", value_delimiter = ',', num_args = 1..=2,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FRAME)))]
    pub(crate) writes: Vec<u32>,
}

impl BulkArgs {
    /// The two sizes, the same twice when one was given.
    pub(crate) fn sizes(&self) -> [u32; 2] {
        let first = self.writes.first().copied().unwrap_or(65_536);
        [first, self.writes.get(1).copied().unwrap_or(first)]
    }
}

#[derive(Debug, Args)]
pub(crate) struct ChurnArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// How many at a time.
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Bytes of request and answer, at least 5.
    #[arg(long, default_value_t = 64)]
    pub(crate) size: u32,
    /// New connections a second in all; 0 for as many as go.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) rate: f64,
}

#[derive(Debug, Args)]
pub(crate) struct PingpongArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Bytes of a message, at least 5.
    #[arg(long, default_value_t = 64)]
    pub(crate) size: u32,
}

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[arg(long, default_value_t = 2000)]
    pub(crate) connections: usize,
    /// The root of the target's processes; all below it count.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Live streams.
    #[arg(long, default_value_t = 200)]
    pub(crate) streams: usize,
    /// New connections a second beside them.
    #[arg(long, default_value_t = 500.0)]
    pub(crate) rate: f64,
    /// Run by `sh -c` at its time.
    #[arg(long, value_name = "COMMAND", default_value = "")]
    pub(crate) trigger: String,
    /// When the trigger is pulled.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) at: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct HalfcloseArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: usize,
    /// Bytes sent, and wanted back, on each.
    #[arg(long, default_value_t = 1 << 20)]
    pub(crate) bytes: u64,
}

/// What `compare` and `options` share.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// The binary; otherwise the release build of this workspace.
    #[arg(long, value_name = "PATH")]
    pub(crate) baton: Option<PathBuf>,
    /// One or two minutes instead of about ten.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds of each measurement.
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// How long one measurement loads its target.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Only these works.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) works: Vec<Work>,
    /// Idle connections; the larger crowd is five times as many, descriptors permitting.
    #[arg(long, default_value_t = 2000)]
    pub(crate) idle: usize,
    /// Threads of load and upstream, each.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Write all measurements here.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write charts here.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Print all measurements as one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Only these of direct, baton, baseline, haproxy, haproxy-splice, nginx.
    #[arg(long, value_delimiter = ',')]
    pub(crate) targets: Vec<String>,
    /// Another build of Baton to run beside this one.
    #[arg(long, value_name = "PATH")]
    pub(crate) baseline: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OptionsArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Only the variants whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected HOST:PORT, numeric")?;
    if address.ip().is_loopback() { Ok(address) } else { Err("only loopback is allowed".into()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected seconds")?;
    let duration = Duration::try_from_secs_f64(number).map_err(|e| e.to_string())?;
    let allowed = Duration::from_millis(10)..=Duration::from_secs(3600);
    if allowed.contains(&duration) { Ok(duration) } else { Err("0.01 to 3600".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn only_loopback_is_ever_loaded() {
        assert!(loopback("127.0.0.1:80").is_ok() && loopback("[::1]:80").is_ok());
        assert!(loopback("192.0.2.1:80").is_err() && loopback("[::]:80").is_err());
    }

    #[test]
    fn one_write_size_is_used_twice() {
        let parse = |writes: &str| {
            Cli::try_parse_from(["b", "bulk", "--addr", "127.0.0.1:1", "--writes", writes])
        };
        let sizes = |cli: Cli| {
            let Mode::Bulk(args) = cli.mode else { panic!("{cli:?}") };
            args.sizes()
        };
        assert_eq!(sizes(parse("4096,1048576").unwrap()), [4096, 1_048_576]);
        assert_eq!(sizes(parse("1").unwrap()), [1, 1]);
        assert!(parse("0").is_err() && parse("1048577").is_err());
    }
}
