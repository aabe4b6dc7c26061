//! Syntax tree against the table: unknown, missing and duplicate fields, types, ranges, words.
//!
//! The walk reports everything it meets and never stops early. It goes only where the table
//! has names, and no further into a list than its limit, so its work is bounded by the file.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jsonc_parser::ast::{self, ObjectPropName};
use jsonc_parser::common::Ranged as _;

use super::tree::{Node, Object, Value};
use super::{Kind, Shape, Words, millis};
use crate::position::{join, push_key};
use crate::problem::{Report, quoted};
use crate::suggest::closest;

/// The walk over one file.
#[derive(Debug)]
pub(crate) struct Check<'r> {
    pub(crate) report: &'r mut Report,
    /// Where every value stands, by path.
    pub(crate) offsets: BTreeMap<String, usize>,
}

impl<'r> Check<'r> {
    pub(crate) fn new(report: &'r mut Report) -> Self {
        Self { report, offsets: BTreeMap::new() }
    }

    /// Checks a value that must be an object of this shape.
    pub(crate) fn object(
        &mut self,
        value: &ast::Value<'_>,
        path: &str,
        shape: &'static Shape,
    ) -> Option<Object> {
        let at = value.start();
        self.offsets.entry(path.into()).or_insert(at);
        let ast::Value::Object(object) = value else {
            self.report.add(at, path, format!("expected an object, found {}", found(value)));
            return None;
        };
        let mut fields: BTreeMap<&'static str, Node> = BTreeMap::new();
        for property in &object.properties {
            let key = property.name.as_str();
            let Some(field) = shape.field(key) else {
                self.unknown(&property.name, path, shape);
                continue;
            };
            let place = join(path, key);
            if field.reserved {
                let message = format!("field {} is not supported yet", quoted(key));
                self.report.add(property.name.start(), place, message);
                continue;
            }
            if field.nullable && matches!(property.value, ast::Value::NullKeyword(_)) {
                continue;
            }
            let node = self.value(&property.value, place, &field.kind);
            fields.entry(field.name).or_insert(node);
        }
        for field in shape.fields.iter().filter(|field| field.required) {
            if object.get(field.name).is_none() {
                self.report.add(at, path, format!("missing field \"{}\"", field.name));
            }
        }
        Some(Object { path: path.into(), at, shape, fields })
    }

    fn unknown(&mut self, name: &ObjectPropName<'_>, path: &str, shape: &Shape) {
        let key = name.as_str();
        self.report.add_with(name.start(), || {
            let hint = match closest(key, shape.names()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("allowed: {}", shape.names().collect::<Vec<_>>().join(", ")),
            };
            (join(path, key), format!("unknown field {} ({hint})", quoted(key)))
        });
    }

    fn value(&mut self, value: &ast::Value<'_>, path: String, kind: &'static Kind) -> Node {
        let at = value.start();
        self.offsets.entry(path.clone()).or_insert(at);
        let checked = match (kind, value) {
            (Kind::Object(shape), ast::Value::Object(_)) => {
                self.object(value, &path, shape).map(Value::Object)
            }
            (Kind::Bool, ast::Value::BooleanLit(literal)) => Some(Value::Bool(literal.value)),
            (Kind::Text { max, .. }, ast::Value::StringLit(literal)) => {
                if literal.value.len() <= *max {
                    Some(Value::Text(literal.value.to_string()))
                } else {
                    self.report.add(
                        at,
                        path.as_str(),
                        format!("text too long (at most {max} bytes)"),
                    );
                    None
                }
            }
            (Kind::Word(words), ast::Value::StringLit(literal)) => {
                self.word(&literal.value, at, &path, words)
            }
            (Kind::Integer { min, max }, ast::Value::NumberLit(literal)) => {
                let number = self.integer(literal.value, at, &path, *min, *max, |n| n.to_string());
                number.map(Value::Integer)
            }
            (Kind::Duration { min, max }, ast::Value::NumberLit(literal)) => {
                let number = self.integer(literal.value, at, &path, *min, *max, millis);
                number.map(|ms| Value::Duration(Duration::from_millis(ms)))
            }
            (Kind::Duration { min, max }, ast::Value::StringLit(literal)) => {
                self.duration(&literal.value, at, &path, *min, *max).map(Value::Duration)
            }
            (Kind::List { item, min, max }, ast::Value::Array(array)) => {
                self.count(array.elements.len(), at, &path, *min, *max);
                let nodes = array.elements.iter().take(*max).enumerate();
                let nodes =
                    nodes.map(|(i, element)| self.value(element, format!("{path}[{i}]"), item));
                Some(Value::List(nodes.collect()))
            }
            (Kind::Map { value, min, max }, ast::Value::Object(object)) => {
                self.count(object.properties.len(), at, &path, *min, *max);
                let entries = object.properties.iter().take(*max);
                let entries = entries.map(|property| {
                    let key = property.name.as_str();
                    (key.to_owned(), self.value(&property.value, join(&path, key), value))
                });
                Some(Value::Map(entries.collect()))
            }
            (
                Kind::Bool
                | Kind::Text { .. }
                | Kind::Integer { .. }
                | Kind::Duration { .. }
                | Kind::Word(_)
                | Kind::Object(_)
                | Kind::List { .. }
                | Kind::Map { .. },
                other,
            ) => {
                let message = format!("expected {}, found {}", kind.noun(), found(other));
                self.report.add(at, path.as_str(), message);
                None
            }
        };
        Node { path, at, value: checked.unwrap_or(Value::Bad) }
    }

    fn count(&mut self, len: usize, at: usize, path: &str, min: usize, max: usize) {
        if len < min {
            let name = path.rsplit(['.', '[']).next().unwrap_or(path).trim_end_matches(']');
            let name = if name.parse::<usize>().is_ok() { "the set" } else { name };
            self.report.add(at, path, format!("{name} must not be empty"));
        }
        if len > max {
            self.report.add(at, path, format!("too many entries: {len} (at most {max})"));
        }
    }

    fn word(&mut self, text: &str, at: usize, path: &str, words: &Words) -> Option<Value> {
        let names = (words.names)();
        let same =
            |name: &&str| *name == text || (words.any_case && name.eq_ignore_ascii_case(text));
        if let Some(name) = names.iter().copied().find(same) {
            return Some(Value::Word(name));
        }
        let message = if words.reserved.contains(&text) {
            let what = path.rsplit('.').next().unwrap_or(path);
            format!("{what} {} is not supported yet (allowed: {})", quoted(text), names.join(", "))
        } else {
            let hint = closest(text, names.iter().copied())
                .map(|meant| format!("; did you mean \"{meant}\"?"))
                .unwrap_or_default();
            format!("{} {} (allowed: {}{hint})", words.wrong, quoted(text), names.join(", "))
        };
        self.report.add(at, path, message);
        None
    }

    fn integer(
        &mut self,
        literal: &str,
        at: usize,
        path: &str,
        min: u64,
        max: u64,
        show: impl Fn(u64) -> String,
    ) -> Option<u64> {
        if literal.contains(['.', 'e', 'E']) {
            let message = format!("expected an integer, found {}", quoted(literal));
            self.report.add(at, path, message);
            return None;
        }
        // What does not fit is certainly out of range; `-0` is 0.
        let number = if literal == "-0" { Some(0) } else { literal.parse().ok() };
        match number {
            Some(number) if (min..=max).contains(&number) => Some(number),
            _ => {
                let (shown, _) = literal.split_at(literal.len().min(40));
                let message = format!("{shown} is out of range ({} to {})", show(min), show(max));
                self.report.add(at, path, message);
                None
            }
        }
    }

    fn duration(
        &mut self,
        text: &str,
        at: usize,
        path: &str,
        min: u64,
        max: u64,
    ) -> Option<Duration> {
        let wrong = match humantime::parse_duration(text) {
            Ok(duration) if duration.subsec_nanos() % 1_000_000 != 0 => {
                format!("{} is finer than a millisecond", quoted(text))
            }
            Ok(duration)
                if (Duration::from_millis(min)..=Duration::from_millis(max))
                    .contains(&duration) =>
            {
                return Some(duration);
            }
            Ok(_) => {
                format!("{} is out of range ({} to {})", quoted(text), millis(min), millis(max))
            }
            Err(_) => format!(
                "{} is not a duration (milliseconds, or text such as \"10s\" or \"1m30s\")",
                quoted(text)
            ),
        };
        self.report.add(at, path, wrong);
        None
    }
}

/// Reports every key that stands twice in an object, at every level, also below unknown fields.
pub(crate) fn duplicates(value: &ast::Value<'_>, path: &str, report: &mut Report) {
    repeated_keys(value, path, &mut Vec::new(), report);
}

/// A step from a value to one inside it. Most steps never become text.
enum Step<'s> {
    Key(&'s str),
    Index(usize),
}

fn path_of(root: &str, steps: &[Step<'_>]) -> String {
    let mut path = root.to_owned();
    for step in steps {
        match step {
            Step::Key(key) => push_key(&mut path, key),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

fn repeated_keys<'t>(
    value: &'t ast::Value<'_>,
    root: &str,
    steps: &mut Vec<Step<'t>>,
    report: &mut Report,
) {
    match value {
        ast::Value::Object(object) => {
            let mut seen: HashSet<&str> = HashSet::with_capacity(object.properties.len());
            for property in &object.properties {
                let key = property.name.as_str();
                steps.push(Step::Key(key));
                if !seen.insert(key) {
                    report.add_with(property.name.start(), || {
                        (path_of(root, steps), format!("duplicate field {}", quoted(key)))
                    });
                }
                repeated_keys(&property.value, root, steps, report);
                steps.pop();
            }
        }
        ast::Value::Array(array) => {
            for (index, element) in array.elements.iter().enumerate() {
                steps.push(Step::Index(index));
                repeated_keys(element, root, steps, report);
                steps.pop();
            }
        }
        ast::Value::StringLit(_)
        | ast::Value::NumberLit(_)
        | ast::Value::BooleanLit(_)
        | ast::Value::NullKeyword(_) => {}
    }
}

/// What stands in the file, as a word of a message.
pub(crate) fn found(value: &ast::Value<'_>) -> &'static str {
    match value {
        ast::Value::StringLit(_) => "a string",
        ast::Value::NumberLit(_) => "a number",
        ast::Value::BooleanLit(literal) if literal.value => "true",
        ast::Value::BooleanLit(_) => "false",
        ast::Value::Object(_) => "an object",
        ast::Value::Array(_) => "a list",
        ast::Value::NullKeyword(_) => "null",
    }
}
