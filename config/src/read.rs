//! From checked shape to meaning: the second half of the reader.
//!
//! Every function here takes an object whose fields have the right types and either returns a
//! value of the model or has reported why not. A field that was reported by the shape check
//! yields nothing, so that one mistake makes one message; everything around it is still
//! looked at.

mod access;
pub(crate) mod address;
mod conflict;
mod health;
mod limit;
mod rule;
mod section;
mod selector;
mod target;
mod tls;

use crate::model::Config;
use crate::problem::Report;
use crate::shape::tree::{Node, Object};

pub(crate) use section::supervisor;

/// The meaning of a whole file; `None` when something was reported.
pub(crate) fn file(file: &Object, report: &mut Report) -> Option<Config> {
    let log = section(file, "log").and_then(|object| section::log(object.get(), report));
    let metrics =
        section(file, "metrics").and_then(|object| section::metrics(object.get(), report));
    let supervisor =
        section(file, "supervisor").and_then(|object| supervisor(object.get(), report));
    let dns = section(file, "dns").and_then(|object| section::dns(object.get(), report));
    let nodes = file.list("rules");
    let rules = nodes
        .map(|nodes| nodes.iter().map(|node| rule::read(node, report)).collect::<Vec<Option<_>>>());
    if let (Some(nodes), Some(rules)) = (nodes, &rules) {
        conflict::names(nodes, report);
        conflict::itself(nodes, report);
        conflict::listeners(nodes, file, metrics.as_ref(), report);
        limit::file(nodes, rules, report);
    }
    let rules = rules?.into_iter().collect::<Option<Vec<_>>>()?;
    let config = Config { log: log?, metrics: metrics?, supervisor: supervisor?, dns: dns?, rules };
    report.is_empty().then_some(config)
}

/// A section as written, or with nothing but defaults.
enum Section<'o> {
    Written(&'o Object),
    Absent(Box<Object>),
}

impl Section<'_> {
    fn get(&self) -> &Object {
        match self {
            Self::Written(object) => object,
            Self::Absent(object) => object,
        }
    }
}

/// An optional object all of whose fields are optional; `None` when it is not an object.
fn section<'o>(parent: &'o Object, name: &str) -> Option<Section<'o>> {
    match parent.maybe::<&Object>(name)? {
        Some(object) => Some(Section::Written(object)),
        None => {
            let crate::shape::Kind::Object(shape) = &parent.shape.field(name)?.kind else {
                return None;
            };
            let (at, path) = parent.place(name);
            Some(Section::Absent(Box::new(Object::absent(path, at, shape))))
        }
    }
}

/// Every text of a list through `parse`; what is wrong is reported and leaves a gap.
fn texts<T>(
    nodes: &[Node],
    report: &mut Report,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Vec<Option<T>> {
    let mut read = |node: &Node| match parse(node.read()?) {
        Ok(value) => Some(value),
        Err(message) => {
            report.add(node.at, node.path.as_str(), message);
            None
        }
    };
    nodes.iter().map(&mut read).collect()
}

/// A list without gaps.
fn whole<T>(values: Vec<Option<T>>) -> Option<Vec<T>> {
    values.into_iter().collect()
}

/// Reports at a field.
fn complain(report: &mut Report, object: &Object, name: &str, message: impl Into<String>) {
    let (at, path) = object.place(name);
    report.add(at, path, message);
}

/// Reports entries that stand twice in a list of texts.
fn repeated<T: PartialEq>(nodes: &[Node], values: &[Option<T>], what: &str, report: &mut Report) {
    for (index, (node, value)) in nodes.iter().zip(values).enumerate() {
        if value.is_some() && values[..index].contains(value) {
            report.add(node.at, node.path.as_str(), format!("duplicate {what}"));
        }
    }
}

/// An integer that the shape check has bounded, in the type of the model.
fn narrow<T: TryFrom<u64>>(value: u64) -> Option<T> {
    T::try_from(value).ok()
}

/// Names of targets, label keys and label values.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}
