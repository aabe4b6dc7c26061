//! Every field of the file. Bounds and defaults stand here and nowhere else.

use super::{Field, Kind, Literal, Shape, Words};
use crate::model::{
    Handover, HashKey, Level, OnAllFailed, ParallelMode, Prefer, ProxyVersion, Resolve,
    SubsetFallback,
};
use crate::words::{HealthWord, ModeWord, ProtocolWord, StrategyWord, names};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Rules of a file.
pub(crate) const MAX_RULES: usize = 256;
/// Targets of a rule.
pub(crate) const MAX_TARGETS: usize = 128;
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

const LOG: Shape = Shape {
    doc: "Where and how much to log. A change needs a restart.",
    fields: &[
        Field::new(
            "level",
            Kind::Word(Words {
                wrong: "invalid level",
                names: names::<Level>,
                reserved: &[],
                any_case: true,
            }),
            "Least severe level that is written; dpanic, panic and fatal mean error.",
        )
        .default(Literal::Word("info")),
        Field::new(
            "path",
            text(4096),
            "A file to append to besides standard output; empty for none.",
        )
        .default(Literal::Text("")),
    ],
};

const METRICS: Shape = Shape {
    doc: "The admin listener. A change needs a restart.",
    fields: &[
        Field::new("enabled", Kind::Bool, "Whether the admin listener exists.")
            .default(Literal::Bool(false)),
        Field::new("listen", ADDRESS, "Numeric loopback address and port.")
            .default(Literal::Text("127.0.0.1:9090")),
    ],
};

/// The only section the supervisor itself reads.
pub(crate) const SUPERVISOR: Shape = Shape {
    doc: "How the processes live. A change needs a restart.",
    fields: &[
        Field::new(
            "runtimeDir",
            Kind::Text { max: 90, pattern: Some("^/") },
            "Absolute directory of the control socket, the metrics region and the lock; one \
             instance a directory. Default: /run/baton as root, else $XDG_RUNTIME_DIR/baton, \
             else /tmp/baton-UID.",
        ),
        Field::new(
            "handover",
            words("unknown handover", names::<Handover>),
            "What an upgrade does with established connections: they move to the new worker, or \
             stay with the old one and drain.",
        )
        .default(Literal::Word("connections")),
        Field::new("crashRecovery", Kind::Bool, "Connections survive a killed worker.")
            .default(Literal::Bool(true)),
        Field::new(
            "user",
            Kind::Text { max: 64, pattern: Some("^([a-z_][a-z0-9_.-]*[$]?|[0-9]+:[0-9]+)$") },
            "The worker's identity when started as root: a name, or uid:gid.",
        ),
        Field::new(
            "readyTimeout",
            Kind::Duration { min: SECOND, max: 5 * MINUTE },
            "How long a new generation may take until it is ready.",
        )
        .default(Literal::Millis(30 * SECOND)),
        Field::new(
            "migrateTimeout",
            Kind::Duration { min: 0, max: 10 * MINUTE },
            "How long moving connections may take in all.",
        )
        .default(Literal::Millis(MINUTE)),
        Field::new(
            "watch",
            Kind::Duration { min: 0, max: 10 * MINUTE },
            "How long a new worker is watched before the old one is dismissed.",
        )
        .default(Literal::Millis(10 * SECOND)),
        Field::new(
            "drainTimeout",
            Kind::Duration { min: 0, max: 10 * MINUTE },
            "How long a retiring worker or a stopping instance waits for its connections.",
        )
        .default(Literal::Millis(10 * SECOND)),
        Field::new(
            "regionSize",
            Kind::Integer { min: 64 << 10, max: 64 << 20 },
            "Bytes of the metrics region, a multiple of 4096.",
        )
        .default(Literal::Integer(4 << 20)),
        Field::new(
            "workerThreads",
            Kind::Integer { min: 0, max: 256 },
            "Relay threads; 0 means one a core.",
        )
        .default(Literal::Integer(0)),
        Field::new(
            "maxConnections",
            Kind::Integer { min: 1, max: MAX_CONNECTIONS },
            "Live client connections in the process.",
        )
        .default(Literal::Integer(DEFAULT_CONNECTIONS)),
    ],
};

const DNS: Shape = Shape {
    doc: "Name resolution.",
    fields: &[
        Field::new(
            "refresh",
            Kind::Duration { min: SECOND, max: HOUR },
            "How often names are looked up again.",
        )
        .default(Literal::Millis(30 * SECOND)),
        Field::new(
            "stale",
            Kind::Duration { min: 0, max: DAY },
            "How long the last good answer serves while look-ups fail.",
        )
        .default(Literal::Millis(10 * MINUTE)),
        Field::new(
            "prefer",
            words("unknown family", names::<Prefer>),
            "Which address family is dialled first.",
        )
        .default(Literal::Word("auto")),
        Field::new(
            "hosts",
            Kind::Map {
                value: &Kind::List {
                    item: &Kind::Text { max: 64, pattern: Some("^[0-9A-Fa-f:.]+$") },
                    min: 1,
                    max: 64,
                },
                min: 0,
                max: 4096,
            },
            "Names answered from here and never looked up.",
        ),
    ],
};

const RULE: Shape = Shape {
    doc: "A listener plus how its destination is found.",
    fields: &[
        Field::new("name", text(256), "Unique; any text without surrounding blanks.").required(),
        Field::new("listen", ADDRESS, "host:port; without a host every address of both families.")
            .required(),
        Field::new(
            "mode",
            Kind::Word(Words {
                wrong: "unknown mode",
                names: names::<ModeWord>,
                reserved: &["http", "socks5", "auto"],
                any_case: false,
            }),
            "How a target is chosen.",
        )
        .required(),
        Field::new(
            "protocol",
            Kind::Word(Words {
                wrong: "unknown protocol",
                names: names::<ProtocolWord>,
                reserved: &["socks5", "http-connect"],
                any_case: false,
            }),
            "What clients speak; newer Moto files name it.",
        )
        .default(Literal::Word("tcp")),
        Field::new(
            "targets",
            Kind::List { item: &Kind::Object(&TARGET), min: 1, max: MAX_TARGETS },
            "The destinations, in order.",
        )
        .required(),
        Field::new(
            "timeout",
            Kind::Duration { min: 0, max: 5 * MINUTE },
            "Bounds dialling, or the first-packet decision and then dialling; never a \
             connection's life. 0 is the default: 500 in regex mode, 3000 otherwise.",
        ),
        Field::new(
            "idleTimeout",
            Kind::Duration { min: 0, max: 7 * DAY },
            "Both directions silent this long ends a connection; 0 never does.",
        )
        .default(Literal::Millis(0)),
        Field::new("prewarm", Kind::Bool, "Keep idle sockets to the targets ready.")
            .default(Literal::Bool(false))
            .modes(ADAPTIVE),
        Field::new("hedge", Kind::Object(&HEDGE), "A delayed second dial; {} turns it on.")
            .nullable()
            .modes(&[ModeWord::Boost]),
        Field::new("healthCheck", Kind::Object(&HEALTH), "Active probing of every target.")
            .nullable(),
        Field::new("proxyProtocol", Kind::Object(&PROXY), "PROXY protocol in and out.").nullable(),
        Field::new(
            "allowlist",
            Kind::List { item: &CIDR, min: 0, max: MAX_ACCESS },
            "Clients must be inside one of these; empty admits everyone.",
        )
        .nullable(),
        Field::new(
            "blacklist",
            Kind::Map { value: &Kind::Bool, min: 0, max: MAX_ACCESS },
            "Exact addresses that are refused; only true entries count.",
        )
        .nullable(),
        Field::new(
            "maxConnections",
            Kind::Integer { min: 0, max: MAX_CONNECTIONS },
            "Live connections of this rule; 0 is the default.",
        )
        .default(Literal::Integer(DEFAULT_CONNECTIONS)),
        Field::new(
            "maxConnectionsPerIP",
            Kind::Integer { min: 0, max: MAX_CONNECTIONS },
            "Live connections of one client address on this rule; 0 is the default: 256, or \
             maxConnections if that is lower.",
        ),
        Field::new("selector", Kind::Object(&SELECTOR), "Which target next.").modes(SELECTED),
        Field::new(
            "retries",
            Kind::Integer { min: 0, max: 8 },
            "Further attempts within timeout, on targets not yet tried.",
        )
        .default(Literal::Integer(2))
        .modes(SELECTED),
        Field::new(
            "hash",
            words("unknown hash key", names::<HashKey>),
            "The key of the hash strategy: the client's address, or the requested destination.",
        )
        .default(Literal::Word("client"))
        .modes(SELECTED),
        Field::new("subset", Kind::Object(&SUBSET), "Narrowing by labels before selection."),
        Field::reserved("hop"),
        Field::reserved("chain"),
        Field::reserved("chainGroup"),
        Field::reserved("auth"),
        Field::reserved("userAgent"),
    ],
};

/// One destination.
pub(crate) const TARGET: Shape = Shape {
    doc: "One destination.",
    fields: &[
        Field::new("address", ADDRESS, "host:port; without a host the local host.").required(),
        Field::new("name", PLAIN, "Unique in the rule; default node-i, counted from 0."),
        Field::new(
            "weight",
            Kind::Integer { min: 1, max: 65_535 },
            "Share under the rand strategy; the others take no notice of it.",
        )
        .default(Literal::Integer(1))
        .modes(SELECTED),
        Field::new("backup", Kind::Bool, "Chosen only when every other target is marked failed.")
            .default(Literal::Bool(false))
            .modes(SELECTED),
        Field::new(
            "maxFails",
            Kind::Integer { min: 1, max: 1000 },
            "Overrides the selector's for this target.",
        )
        .modes(SELECTED),
        Field::new(
            "failTimeout",
            Kind::Duration { min: 100, max: DAY },
            "Overrides the selector's for this target.",
        )
        .modes(SELECTED),
        Field::new("labels", LABELS, "For subset."),
        Field::new(
            "resolve",
            words("unknown resolve", names::<Resolve>),
            "When a name is resolved: dialled as one line, or every address a line of its own.",
        )
        .default(Literal::Word("dial")),
        Field::new(
            "regexp",
            text(8192),
            "Pattern over the first bytes; a target without one is the fallback.",
        )
        .modes(&[ModeWord::Regex]),
        Field::new(
            "serverNames",
            Kind::List { item: &text(255), min: 0, max: 64 },
            "Names of the ClientHello: exact, or *. and one label.",
        )
        .nullable()
        .modes(&[ModeWord::Tls]),
        Field::new(
            "alpn",
            Kind::List { item: &text(255), min: 0, max: 64 },
            "Protocols of the ClientHello; any of them matches.",
        )
        .nullable()
        .modes(&[ModeWord::Tls]),
        Field::reserved("connectProxy"),
    ],
};

const HEDGE: Shape = Shape {
    doc: "A second dial when the first takes longer than usual.",
    fields: &[
        Field::new("minDelay", Kind::Duration { min: 10, max: 5 * SECOND }, "Shortest delay.")
            .default(Literal::Millis(25)),
        Field::new("maxDelay", Kind::Duration { min: 10, max: 5 * SECOND }, "Longest delay.")
            .default(Literal::Millis(250)),
    ],
};

const HEALTH: Shape = Shape {
    doc: "Active probing.",
    fields: &[
        Field::new(
            "type",
            words("unknown health check type", names::<HealthWord>),
            "The connect is the probe, or a plain GET without redirects.",
        )
        .default(Literal::Word("tcp")),
        Field::new(
            "interval",
            Kind::Duration { min: 250, max: 10 * MINUTE },
            "Between two probes of a target.",
        )
        .default(Literal::Millis(10 * SECOND)),
        Field::new(
            "timeout",
            Kind::Duration { min: 50, max: 30 * SECOND },
            "Never above the interval. Default: the smaller of 2 s and the interval.",
        ),
        Field::new(
            "failureThreshold",
            Kind::Integer { min: 1, max: 20 },
            "Failures in a row that exclude a target.",
        )
        .default(Literal::Integer(3)),
        Field::new(
            "successThreshold",
            Kind::Integer { min: 1, max: 20 },
            "Successes in a row that readmit it.",
        )
        .default(Literal::Integer(2)),
        Field::new(
            "path",
            Kind::Text { max: 2048, pattern: Some("^/([^/#][^#]*)?$") },
            "Origin form; only for http.",
        )
        .default(Literal::Text("/")),
        Field::new(
            "statusMin",
            Kind::Integer { min: 100, max: 599 },
            "Lowest accepted status; only for http.",
        )
        .default(Literal::Integer(200)),
        Field::new(
            "statusMax",
            Kind::Integer { min: 100, max: 599 },
            "Highest accepted status; only for http.",
        )
        .default(Literal::Integer(399)),
    ],
};

const PROXY: Shape = Shape {
    doc: "PROXY protocol.",
    fields: &[
        Field::new("accept", Kind::Bool, "Require a header from the trusted hops.")
            .default(Literal::Bool(false)),
        Field::new(
            "trustedCIDRs",
            Kind::List { item: &CIDR, min: 0, max: MAX_ACCESS },
            "The directly connected hops that may send one.",
        )
        .nullable(),
        Field::new(
            "send",
            words("unknown version", names::<ProxyVersion>),
            "The header written first on every upstream connection; absent for none.",
        ),
    ],
};

/// Selection of a target.
pub(crate) const SELECTOR: Shape = Shape {
    doc: "Which target next.",
    fields: &[
        Field::new(
            "strategy",
            words("unknown strategy", names::<StrategyWord>),
            "round in turn; rand by weight; fifo the first usable; hash by key; parallel several \
             at once; leastconn least active connections; latency by measured latency.",
        )
        .default(Literal::Word("round")),
        Field::new(
            "maxFails",
            Kind::Integer { min: 1, max: 1000 },
            "Failures in a row that mark a target.",
        )
        .default(Literal::Integer(1)),
        Field::new(
            "failTimeout",
            Kind::Duration { min: 100, max: DAY },
            "How long a mark lasts, from the last failure.",
        )
        .default(Literal::Millis(10 * SECOND)),
        Field::new(
            "maxParallel",
            Kind::Integer { min: 0, max: 65_535 },
            "Racers a connection, 0 for all; only with parallel.",
        )
        .default(Literal::Integer(0)),
        Field::new(
            "parallelMode",
            words("unknown parallelMode", names::<ParallelMode>),
            "How racers are picked; only with parallel.",
        )
        .default(Literal::Word("round")),
        Field::new(
            "onAllFailed",
            words("unknown onAllFailed", names::<OnAllFailed>),
            "What to do when every target is marked: try the one whose mark ends first, or \
             close the client.",
        )
        .default(Literal::Word("lastResort")),
    ],
};

const SUBSET: Shape = Shape {
    doc: "Narrowing by labels: the first label set with a usable target wins.",
    fields: &[
        Field::new(
            "prefer",
            Kind::List {
                item: &Kind::Map { value: &PLAIN, min: 1, max: MAX_LABELS },
                min: 1,
                max: 64,
            },
            "Label sets, best first.",
        )
        .required(),
        Field::new(
            "fallback",
            words("unknown fallback", names::<SubsetFallback>),
            "When no set has a usable target: all targets, or close the client.",
        )
        .default(Literal::Word("any")),
    ],
};
