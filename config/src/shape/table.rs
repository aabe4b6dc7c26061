//! Every field of the file. Bounds and defaults stand here and nowhere else.

mod rule;
mod section;
mod target;

pub(crate) use rule::SELECTOR;
pub(crate) use section::SUPERVISOR;

use rule::RULE;
use section::{DNS, LOG, METRICS};

use super::{Field, Kind, Shape, Words};
use crate::words::ModeWord;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Rules of a file.
const MAX_RULES: usize = 256;
/// Targets of a rule.
const MAX_TARGETS: usize = 128;
/// Entries of an access list.
const MAX_ACCESS: usize = 4096;
/// Pairs of a label set.
const MAX_LABELS: usize = 16;
/// Most connections a process or a rule may be allowed.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// The cap of a rule that sets none, and of the process (Moto's).
pub(crate) const DEFAULT_CONNECTIONS: u64 = 4096;
/// The cap of one client address that sets none (Moto's).
pub(crate) const DEFAULT_PER_IP: u64 = 256;
/// Milliseconds a `regex` rule waits for its first bytes by default (Moto's).
pub(crate) const DEFAULT_REGEX_TIMEOUT: u64 = 500;
/// Milliseconds of `timeout` in every other mode (Moto's).
pub(crate) const DEFAULT_TIMEOUT: u64 = 3000;
/// Milliseconds of a probe's default timeout, where the interval is not shorter (Moto's).
pub(crate) const DEFAULT_PROBE_TIMEOUT: u64 = 2000;

/// Longest host name and port in text.
const ADDRESS: Kind = Kind::Text { max: 270, pattern: Some(":[0-9]{1,5}$") };
const CIDR: Kind = Kind::Text { max: 64, pattern: Some("^[0-9A-Fa-f:.]+/[0-9]{1,3}$") };
const NAME: &str = "^[A-Za-z0-9._-]{1,64}$";
const PLAIN: Kind = Kind::Text { max: 64, pattern: Some(NAME) };
const LABELS: Kind = Kind::Map { value: &PLAIN, min: 0, max: MAX_LABELS };

const ADAPTIVE: &[ModeWord] =
    &[ModeWord::Normal, ModeWord::Regex, ModeWord::Boost, ModeWord::RoundRobin, ModeWord::Tls];
const SELECTED: &[ModeWord] = &[ModeWord::Forward];

const fn words(wrong: &'static str, names: fn() -> Vec<&'static str>) -> Kind {
    Kind::Word(Words { wrong, names, reserved: &[], any_case: false })
}

const fn text(max: usize) -> Kind {
    Kind::Text { max, pattern: None }
}

/// The whole file.
pub(crate) const FILE: Shape = Shape {
    doc: "Configuration of Baton. A file with only `log`, `metrics` and `rules` is a Moto setting.json.",
    fields: &[
        Field::new("$schema", text(4096), "For editors; not read."),
        Field::new("log", Kind::Object(&LOG), "Where and how much to log."),
        Field::new(
            "metrics",
            Kind::Object(&METRICS),
            "The admin listener: /healthz, /readyz, /metrics.",
        ),
        Field::new(
            "supervisor",
            Kind::Object(&SUPERVISOR),
            "How the processes live. A change needs a restart.",
        ),
        Field::new("dns", Kind::Object(&DNS), "Name resolution."),
        Field::new(
            "rules",
            Kind::List { item: &Kind::Object(&RULE), min: 1, max: MAX_RULES },
            "The listeners and what becomes of their connections.",
        )
        .required(),
        Field::reserved("hops"),
        Field::reserved("chains"),
    ],
};
