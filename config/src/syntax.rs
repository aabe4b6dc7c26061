//! Bytes to a syntax tree with positions.
//!
//! Two libraries look at the text. `serde_json` is the gate: it decides what is JSON and
//! nothing else. `jsonc-parser` then builds the tree, because `serde_json` keeps neither
//! positions nor duplicate keys. The tree's parser never sees text that the gate refused, so
//! none of its leniencies can matter, and depth is bounded before either of them recurses.

use jsonc_parser::ast::Value;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::IgnoredAny;

use crate::problem::{Problems, Report};

/// Largest file that is looked at.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Deepest nesting of objects and lists.
pub(crate) const MAX_DEPTH: usize = 64;
/// Most values: the tree takes about a hundred bytes for each, whatever the text takes.
const MAX_VALUES: usize = 1_000_000;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The text of a file, which is UTF-8 of bounded size without a byte order mark.
pub(crate) fn text<'b>(source: &str, bytes: &'b [u8]) -> Result<&'b str, Problems> {
    let refuse = |at: usize, text: &str, message: String| {
        let mut report = Report::default();
        report.add(at, "$", message);
        Err(report.finish(source, text))
    };
    if bytes.len() > MAX_BYTES {
        return refuse(0, "", format!("the file is larger than {} MiB", MAX_BYTES >> 20));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return refuse(0, "", "a byte order mark is not allowed (plain UTF-8)".into());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let (good, _) = bytes.split_at(error.valid_up_to());
            let good = std::str::from_utf8(good).unwrap_or_default();
            refuse(good.len(), good, "not UTF-8 text".into())
        }
    }
}

/// The syntax tree of a text, or the first place where it is not JSON.
pub(crate) fn tree<'t>(source: &str, text: &'t str) -> Result<Value<'t>, Problems> {
    let refuse = |at: usize, message: String| {
        let mut report = Report::default();
        report.add(at, "$", message);
        report.finish(source, text)
    };
    if text.trim_ascii().is_empty() {
        return Err(refuse(0, "the file is empty (a JSON object is expected)".into()));
    }
    if let Some((at, message)) = over_bounds(text) {
        return Err(refuse(at, message));
    }
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        let at = offset(text, error.line(), error.column());
        return Err(refuse(at, explain(&error, text.split_at(at))));
    }
    match parse_to_ast(text, &CollectOptions::default(), &strict()) {
        Ok(parsed) => parsed.value.ok_or_else(|| refuse(0, "the file is empty".into())),
        Err(error) => {
            // The one thing the gate lets through: it does not put surrogates together.
            let message = if let ParseErrorKind::String(_) = error.kind() {
                "an escape in the text stands for no character".into()
            } else {
                error.kind().to_string()
            };
            Err(refuse(error.range().start, message))
        }
    }
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Where the text goes over a bound. Text that is not JSON may be counted wrongly here; the gate
/// refuses it anyway.
fn over_bounds(text: &str) -> Option<(usize, String)> {
    let mut depth = 0_usize;
    let mut values = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                if depth > MAX_DEPTH {
                    return Some((at, format!("nesting is deeper than {MAX_DEPTH} levels")));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if values > MAX_VALUES {
            return Some((at, format!("more than {MAX_VALUES} values")));
        }
    }
    None
}

/// The byte offset of a line and a column in bytes, both counted from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut at = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// What the gate's error means for someone who writes a configuration.
fn explain(error: &serde_json::Error, (before, rest): (&str, &str)) -> String {
    if rest.starts_with('/') || rest.starts_with('#') {
        return "comments are not allowed".into();
    }
    if rest.starts_with('\'') {
        return "a string is written in double quotes".into();
    }
    if before.trim_ascii_end().ends_with(',') && rest.starts_with(['}', ']']) {
        return "a trailing comma is not allowed".into();
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if error.is_eof() {
        return format!("the file ends too early ({message})");
    }
    match message {
        "trailing characters" => "trailing content (one object is the whole file)".into(),
        "trailing comma" => "a trailing comma is not allowed".into(),
        "key must be a string" => "a field name in double quotes is expected".into(),
        "expected value" => "a JSON value is expected".into(),
        other => other.into(),
    }
}
