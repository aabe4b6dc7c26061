//! The shape of a configuration file as data: which fields exist, of what kind, within what
//! bounds, in which modes.
//!
//! One table ([`table`]) feeds everything that must agree: the reader ([`check`]), the list of
//! allowed names in a message, the defaults and the JSON Schema. What cannot be said here
//! (addresses, rules between fields) is checked by [`crate::read`].

pub(crate) mod check;
pub(crate) mod table;
pub(crate) mod tree;

#[cfg(test)]
mod tests;

use crate::words::ModeWord;

/// An object with a fixed set of fields.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What the object is, for the schema.
    pub(crate) doc: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Shape {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The names a user may write today.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.fields.iter().filter(|field| !field.reserved).map(|field| field.name)
    }
}

/// One field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) doc: &'static str,
    pub(crate) required: bool,
    /// `null` reads as absent (Moto's files write it).
    pub(crate) nullable: bool,
    /// Known, but nothing stands behind it yet.
    pub(crate) reserved: bool,
    /// The modes in which the field has a meaning; empty means all.
    pub(crate) modes: &'static [ModeWord],
    /// The value of an absent field, where it depends on nothing else.
    pub(crate) default: Option<Literal>,
}

/// A default value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Literal {
    Bool(bool),
    Integer(u64),
    Millis(u64),
    Text(&'static str),
    /// One of a word list.
    Word(&'static str),
}

/// What may stand as a value.
#[derive(Debug)]
pub(crate) enum Kind {
    Bool,
    /// At most `max` bytes; the pattern is for the schema, the reader's check is exact.
    Text {
        max: usize,
        pattern: Option<&'static str>,
    },
    Integer {
        min: u64,
        max: u64,
    },
    /// Milliseconds, or text such as `"1m30s"`.
    Duration {
        min: u64,
        max: u64,
    },
    Word(Words),
    Object(&'static Shape),
    List {
        item: &'static Kind,
        min: usize,
        max: usize,
    },
    Map {
        value: &'static Kind,
        min: usize,
        max: usize,
    },
}

/// A closed list of words.
#[derive(Debug)]
pub(crate) struct Words {
    /// What to say of a word that is not in the list.
    pub(crate) wrong: &'static str,
    pub(crate) names: fn() -> Vec<&'static str>,
    /// Words of the next stage.
    pub(crate) reserved: &'static [&'static str],
    pub(crate) any_case: bool,
}

impl Field {
    const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            doc,
            required: false,
            nullable: false,
            reserved: false,
            modes: &[],
            default: None,
        }
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    const fn modes(mut self, modes: &'static [ModeWord]) -> Self {
        self.modes = modes;
        self
    }

    const fn default(mut self, default: Literal) -> Self {
        self.default = Some(default);
        self
    }

    /// A name of the next stage.
    const fn reserved(name: &'static str) -> Self {
        let mut field = Self::new(name, Kind::Bool, "Reserved.");
        field.reserved = true;
        field
    }
}

impl Kind {
    /// The kind as a word of a message.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Text { .. } | Self::Word(_) => "a string",
            Self::Integer { .. } => "an integer",
            Self::Duration { .. } => "milliseconds or a duration such as \"10s\"",
            Self::Object(_) | Self::Map { .. } => "an object",
            Self::List { .. } => "a list",
        }
    }
}

/// Milliseconds as a reader of a message would write them.
pub(crate) fn millis(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}
