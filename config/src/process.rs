//! What the supervisor reads: its own section, and nothing else.
//!
//! The supervisor must start and stay up whatever the rest of a file says, so only text that
//! is not JSON, or a wrong section `supervisor`, is a problem here. Everything else is for the
//! worker to judge.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged as _;

use crate::model::Supervisor;
use crate::problem::{Problems, Report};
use crate::shape::check::{Check, duplicates, found};
use crate::shape::table::SUPERVISOR;
use crate::shape::tree::Object;
use crate::{read, syntax};

/// Reads section `supervisor` of a file; absent means every default.
///
/// # Errors
/// When the bytes are not one JSON object, or with everything that is wrong in the section.
pub fn read(source_name: &str, bytes: &[u8]) -> Result<Supervisor, Problems> {
    let text = syntax::text(source_name, bytes)?;
    let tree = syntax::tree(source_name, text)?;
    let mut report = Report::default();
    let section = section(&tree, &mut report);
    match section.and_then(|section| read::supervisor(&section, &mut report)) {
        Some(supervisor) if report.is_empty() => Ok(supervisor),
        Some(_) | None => Err(report.finish(source_name, text)),
    }
}

fn section(tree: &Value<'_>, report: &mut Report) -> Option<Object> {
    const NAME: &str = "supervisor";
    const PATH: &str = "$.supervisor";
    let Value::Object(file) = tree else {
        report.add(tree.start(), "$", format!("expected an object, found {}", found(tree)));
        return None;
    };
    let mut written = file.properties.iter().filter(|property| property.name.as_str() == NAME);
    let Some(first) = written.next() else {
        return Some(Object::absent(PATH.into(), tree.start(), &SUPERVISOR));
    };
    let again = |again: &ObjectProp<'_>| again.name.start();
    for at in written.map(again) {
        report.add(at, PATH, "duplicate field \"supervisor\"");
    }
    duplicates(&first.value, PATH, report);
    Check::new(report).object(&first.value, PATH, &SUPERVISOR)
}

/// Where an instance of this user keeps its control socket, region and lock when the file does
/// not say: `/run/baton` for root, else `$XDG_RUNTIME_DIR/baton`, else `/tmp/baton-UID`. A
/// relative `XDG_RUNTIME_DIR` is ignored, as its specification demands.
#[must_use]
pub fn default_runtime_dir(uid: u32, xdg_runtime_dir: Option<&OsStr>) -> PathBuf {
    if uid == 0 {
        return PathBuf::from("/run/baton");
    }
    match xdg_runtime_dir.map(Path::new).filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.join("baton"),
        None => PathBuf::from(format!("/tmp/baton-{uid}")),
    }
}
