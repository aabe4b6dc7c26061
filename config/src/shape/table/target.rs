//! A target.

use super::{ADDRESS, DAY, LABELS, PLAIN, SELECTED, text, words};
use crate::model::Resolve;
use crate::shape::{Field, Kind, Literal, Shape};
use crate::words::{ModeWord, names};

/// One destination.
pub(super) const TARGET: Shape = Shape {
    doc: "One destination.",
    fields: &[
        Field::new("address", ADDRESS, "host:port; without a host the local host.").required(),
        Field::new("name", PLAIN, "Unique in the rule; default the address."),
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
