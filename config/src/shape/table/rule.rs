//! A rule and the objects inside it.

use super::target::TARGET;
use super::{
    ADAPTIVE, ADDRESS, CIDR, DAY, DEFAULT_CONNECTIONS, MAX_ACCESS, MAX_CONNECTIONS, MAX_LABELS,
    MAX_TARGETS, MINUTE, PLAIN, SECOND, SELECTED, text, words,
};
use crate::model::{HashKey, OnAllFailed, ParallelMode, ProxyVersion, SubsetFallback};
use crate::shape::{Field, Kind, Literal, Shape, Words};
use crate::words::{HealthWord, ModeWord, ProtocolWord, StrategyWord, names};

pub(super) const RULE: Shape = Shape {
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
            "The key of the hash strategy: the client's address; or the host that its first bytes \
             ask for (TLS server name, HTTP/1 Host), which are waited for up to timeout, and \
             without one the client's address.",
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
