//! A file whose shape has been checked: values by kind, defaults reachable, wrong values marked.
//!
//! A value that was wrong stays in the tree as [`Value::Bad`], so that later stages neither
//! take the default in its place nor complain a second time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Literal, Shape};
use crate::words::Word;

/// A value with its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: String,
    /// Byte offset in the text.
    pub(crate) at: usize,
    pub(crate) value: Value,
}

impl Node {
    /// The value as a type; `None` when it is another, which has been reported.
    pub(crate) fn read<'o, T: FromValue<'o>>(&'o self) -> Option<T> {
        T::from_value(&self.value)
    }
}

#[derive(Debug)]
pub(crate) enum Value {
    /// Wrong, and reported.
    Bad,
    Bool(bool),
    Integer(u64),
    Duration(Duration),
    Text(String),
    /// A member of the field's word list.
    Word(&'static str),
    Object(Object),
    List(Vec<Node>),
    /// In the order of the file; keys may repeat (which has been reported).
    Map(Vec<(String, Node)>),
}

/// An object of a known shape.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) path: String,
    pub(crate) at: usize,
    pub(crate) shape: &'static Shape,
    pub(crate) fields: BTreeMap<&'static str, Node>,
}

/// What became of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot<T> {
    Absent,
    /// Wrong, and reported.
    Bad,
    Good(T),
}

impl<T> Slot<T> {
    /// `None` when the field is bad.
    pub(crate) fn optional(self) -> Option<Option<T>> {
        match self {
            Self::Absent => Some(None),
            Self::Bad => None,
            Self::Good(value) => Some(Some(value)),
        }
    }
}

impl Object {
    /// An object that is not in the file: every field has its default.
    pub(crate) fn absent(path: String, at: usize, shape: &'static Shape) -> Self {
        Self { path, at, shape, fields: BTreeMap::new() }
    }

    /// Where to point for a field: at its value, or at the object when it is not written.
    pub(crate) fn place(&self, name: &str) -> (usize, String) {
        match self.fields.get(name) {
            Some(node) => (node.at, node.path.clone()),
            None => (self.at, crate::position::join(&self.path, name)),
        }
    }

    pub(crate) fn is_written(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// The field as written or by default.
    pub(crate) fn slot<'o, T: FromValue<'o>>(&'o self, name: &str) -> Slot<T> {
        let Some(node) = self.fields.get(name) else {
            return match self.shape.field(name).and_then(|field| field.default) {
                Some(literal) => T::from_literal(literal).map_or(Slot::Bad, Slot::Good),
                None => Slot::Absent,
            };
        };
        node.read().map_or(Slot::Bad, Slot::Good)
    }

    /// The value of a field that is required or has a default; `None` when that is wrong or
    /// missing, which has been reported.
    pub(crate) fn get<'o, T: FromValue<'o>>(&'o self, name: &str) -> Option<T> {
        self.slot(name).optional().flatten()
    }

    /// The value of a field that may be absent; the outer `None` when it is wrong.
    pub(crate) fn maybe<'o, T: FromValue<'o>>(&'o self, name: &str) -> Option<Option<T>> {
        self.slot(name).optional()
    }

    pub(crate) fn word<W: Word>(&self, name: &str) -> Option<W> {
        self.get::<Chosen>(name).and_then(|chosen| W::parse(chosen.0))
    }

    /// The nodes of a list; an absent list is empty.
    pub(crate) fn list(&self, name: &str) -> Option<&[Node]> {
        Some(self.maybe(name)?.unwrap_or(&[]))
    }

    /// The entries of a map; an absent map is empty.
    pub(crate) fn map(&self, name: &str) -> Option<&[(String, Node)]> {
        Some(self.maybe(name)?.unwrap_or(&[]))
    }
}

/// A member of a word list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen(pub(crate) &'static str);

/// A type a field can be read as.
pub(crate) trait FromValue<'o>: Sized {
    fn from_value(value: &'o Value) -> Option<Self>;

    fn from_literal(_literal: Literal) -> Option<Self> {
        None
    }
}

impl FromValue<'_> for bool {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(value) = value { Some(*value) } else { None }
    }

    fn from_literal(literal: Literal) -> Option<Self> {
        if let Literal::Bool(value) = literal { Some(value) } else { None }
    }
}

impl FromValue<'_> for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Integer(value) = value { Some(*value) } else { None }
    }

    fn from_literal(literal: Literal) -> Option<Self> {
        if let Literal::Integer(value) = literal { Some(value) } else { None }
    }
}

impl FromValue<'_> for Duration {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Duration(value) = value { Some(*value) } else { None }
    }

    fn from_literal(literal: Literal) -> Option<Self> {
        if let Literal::Millis(ms) = literal { Some(Self::from_millis(ms)) } else { None }
    }
}

impl<'o> FromValue<'o> for &'o str {
    fn from_value(value: &'o Value) -> Option<Self> {
        if let Value::Text(value) = value { Some(value) } else { None }
    }

    fn from_literal(literal: Literal) -> Option<Self> {
        if let Literal::Text(value) = literal { Some(value) } else { None }
    }
}

impl FromValue<'_> for Chosen {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Word(value) = value { Some(Self(value)) } else { None }
    }

    fn from_literal(literal: Literal) -> Option<Self> {
        if let Literal::Word(value) = literal { Some(Self(value)) } else { None }
    }
}

impl<'o> FromValue<'o> for &'o Object {
    fn from_value(value: &'o Value) -> Option<Self> {
        if let Value::Object(value) = value { Some(value) } else { None }
    }
}

impl<'o> FromValue<'o> for &'o [Node] {
    fn from_value(value: &'o Value) -> Option<Self> {
        if let Value::List(value) = value { Some(value) } else { None }
    }
}

impl<'o> FromValue<'o> for &'o [(String, Node)] {
    fn from_value(value: &'o Value) -> Option<Self> {
        if let Value::Map(value) = value { Some(value) } else { None }
    }
}
