//! Rules as URLs: `tcp://LISTEN/TARGET[,TARGET…][?KEY=VALUE&…]`, GOST's `-L`.
//!
//! A URL becomes the same JSON a file would have and goes through the same reader; there is no
//! second set of checks. Only the places are translated back, so that a message points into
//! the URL: the line is the number of the `-L`, the column a character in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::position::{Positions, join};
use crate::problem::{Problems, Report, quoted};
use crate::shape::table::SELECTOR;
use crate::suggest::closest;

/// What messages call the place of a URL.
const SOURCE: &str = "-L";
const FORM: &str = "tcp://LISTEN/TARGET[,TARGET...]";
/// Query keys that belong to the rule; all others are the selector's.
const RULE_KEYS: &[&str] =
    &["name", "timeout", "idleTimeout", "maxConnections", "maxConnectionsPerIP", "hash", "retries"];
/// GOST's schemes that have a place in a later stage.
const RESERVED: &[&str] = &["http", "https", "socks", "socks4", "socks5", "auto", "tls"];

/// The URLs as the JSON text of a configuration that [`crate::parse`] accepts.
///
/// # Errors
/// With everything that is wrong in any of the URLs.
pub fn compile(urls: &[String]) -> Result<String, Problems> {
    let text = urls.join("\n");
    let mut compiler = Compiler::default();
    let mut rules = Vec::with_capacity(urls.len());
    let mut start = 0;
    for (index, url) in urls.iter().enumerate() {
        compiler.path = format!("$.rules[{index}]");
        compiler.start = start;
        rules.extend(compiler.rule(url));
        start += url.len() + 1;
    }
    let Compiler { report, offsets, .. } = compiler;
    if !report.is_empty() {
        return Err(report.finish(SOURCE, &text));
    }
    let file = format!("{:#}\n", json!({ "rules": rules }));
    match crate::parse(SOURCE, file.as_bytes()) {
        Ok(_) => Ok(file),
        Err(Problems(problems)) => {
            let positions = Positions::new(SOURCE, &text, offsets);
            // The order of the JSON is not the order of the URL.
            let translate =
                |problem: crate::Problem| positions.problem(&problem.path, problem.message);
            let mut problems: Vec<_> = problems.into_iter().map(translate).collect();
            problems.sort_by_key(|problem| (problem.line, problem.column));
            Err(Problems(problems))
        }
    }
}

#[derive(Debug, Default)]
struct Compiler {
    report: Report,
    /// Where the text behind a JSON path stands.
    offsets: BTreeMap<String, usize>,
    names: BTreeSet<String>,
    /// The JSON path of the rule that is being made.
    path: String,
    /// Where its URL begins in the text.
    start: usize,
}

impl Compiler {
    fn rule(&mut self, url: &str) -> Option<Value> {
        self.note(&self.path.clone(), 0);
        if url.chars().any(char::is_control) {
            return self.refuse(0, "a URL has no control characters");
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            let hint = if url.starts_with(':') {
                "; without a scheme means auto, which is not supported yet"
            } else {
                ""
            };
            return self.refuse(0, format!("the scheme is missing ({FORM}{hint})"));
        };
        self.scheme(&scheme.to_ascii_lowercase())?;
        let at = scheme.len() + "://".len();
        if let Some(fragment) = rest.find('#') {
            return self.refuse(at + fragment, "a fragment (#) has no meaning here");
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some((at + rest.len() + 1, query))),
            None => (rest, None),
        };
        let (listen, targets) = rest.split_once('/').unwrap_or((rest, ""));
        if listen.contains('@') {
            return self.refuse(at, "credentials are not supported yet");
        }
        let mut rule = Map::new();
        self.note(&join(&self.path, "listen"), at);
        self.note(&join(&self.path, "name"), at);
        let address = self.decoded(at, listen)?;
        rule.insert("name".into(), self.name(&address).into());
        rule.insert("listen".into(), address.into());
        rule.insert("mode".into(), "forward".into());
        let targets = self.targets(at + listen.len() + 1, targets);
        if let Some((at, query)) = query {
            self.query(at, query, &mut rule);
        }
        rule.insert("targets".into(), targets?.into());
        Some(Value::Object(rule))
    }

    fn scheme(&mut self, scheme: &str) -> Option<()> {
        if scheme == "tcp" {
            return Some(());
        }
        if RESERVED.contains(&scheme) || scheme.contains('+') {
            let message = format!("scheme {} is not supported yet (allowed: tcp)", quoted(scheme));
            return self.refuse(0, message);
        }
        self.refuse(0, format!("unknown scheme {} (allowed: tcp)", quoted(scheme)))
    }

    /// The listen text, which is unique unless the listeners conflict anyway.
    fn name(&mut self, listen: &str) -> String {
        let name = if listen.is_empty() { "-L" } else { listen };
        let mut unique = name.to_owned();
        let mut count = 1;
        while !self.names.insert(unique.clone()) {
            count += 1;
            unique = format!("{name}#{count}");
        }
        unique
    }

    fn targets(&mut self, at: usize, text: &str) -> Option<Vec<Value>> {
        let list = join(&self.path, "targets");
        if text.is_empty() {
            return self.refuse(at - 1, format!("no targets ({FORM})"));
        }
        let mut from = at;
        let mut targets = Vec::new();
        for (index, address) in text.split(',').enumerate() {
            self.note(&format!("{list}[{index}]"), from);
            targets.push(json!({ "address": self.decoded(from, address)? }));
            from += address.len() + 1;
        }
        Some(targets)
    }

    fn query(&mut self, at: usize, query: &str, rule: &mut Map<String, Value>) {
        let mut selector = Map::new();
        let mut seen = BTreeSet::new();
        let known = || RULE_KEYS.iter().copied().chain(SELECTOR.names());
        let mut from = at;
        for pair in query.split('&') {
            let at = from;
            from += pair.len() + 1;
            // As in `?`, `?&a=1` and `?a=1&`.
            if pair.is_empty() {
                continue;
            }
            let (written, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value_at = at + written.len() + 1;
            let (Some(key), Some(value)) =
                (self.decoded(at, written), self.decoded(value_at, value))
            else {
                continue;
            };
            let key = key.as_str();
            if !known().any(|name| name == key) {
                let names: Vec<&str> = known().collect();
                let hint = match closest(key, names.iter().copied()) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => format!("allowed: {}", names.join(", ")),
                };
                self.complain(at, format!("unknown query key {} ({hint})", quoted(key)));
                continue;
            }
            if value.is_empty() {
                self.complain(at, format!("query key \"{key}\" has no value"));
                continue;
            }
            let (place, path) = if RULE_KEYS.contains(&key) {
                (&mut *rule, join(&self.path, key))
            } else {
                (&mut selector, join(&join(&self.path, "selector"), key))
            };
            // A name is text, also one that looks like a number.
            let value = if key == "name" { value.into() } else { scalar(&value) };
            place.insert(key.into(), value);
            if !seen.insert(key.to_owned()) {
                self.complain(at, format!("duplicate query key \"{key}\""));
            }
            self.note(&path, value_at);
        }
        if !selector.is_empty() {
            rule.insert("selector".into(), selector.into());
        }
    }

    /// The text with every `%XX` replaced by the byte it stands for.
    fn decoded(&mut self, at: usize, text: &str) -> Option<String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&first, others)) = rest.split_first() {
            if first != b'%' {
                bytes.push(first);
                rest = others;
                continue;
            }
            let digit =
                |index: usize| others.get(index).and_then(|byte| char::from(*byte).to_digit(16));
            let byte = digit(0).zip(digit(1)).and_then(|(a, b)| u8::try_from(a * 16 + b).ok());
            let Some(byte) = byte else {
                let at = at + text.len() - rest.len();
                return self
                    .refuse(at, "a % stands before two hexadecimal digits (%25 for itself)");
            };
            bytes.push(byte);
            rest = &others[2..];
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(_) => self.refuse(at, "the decoded text is not UTF-8"),
        }
    }

    fn note(&mut self, path: &str, at: usize) {
        self.offsets.insert(path.into(), self.start + at);
    }

    fn complain(&mut self, at: usize, message: impl Into<String>) {
        self.report.add(self.start + at, self.path.as_str(), message);
    }

    fn refuse<T>(&mut self, at: usize, message: impl Into<String>) -> Option<T> {
        self.complain(at, message);
        None
    }
}

/// A query value: an integer when it looks like one, else text.
fn scalar(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Into::into)
}
