//! The sections beside `rules`.

use super::{
    ADDRESS, DAY, DEFAULT_CONNECTIONS, HOUR, MAX_CONNECTIONS, MINUTE, SECOND, text, words,
};
use crate::model::{Handover, Level, Prefer};
use crate::shape::{Field, Kind, Literal, Shape, Words};
use crate::words::names;

pub(super) const LOG: Shape = Shape {
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

pub(super) const METRICS: Shape = Shape {
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

pub(super) const DNS: Shape = Shape {
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
