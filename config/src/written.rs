//! What can still be read in a file that has been refused.
//!
//! Whoever looks for problems beyond the file itself (a pattern that does not compile, a name
//! that does not resolve) should find all of them at once, and not only after everything else
//! has been put right. What this returns is never served.

use crate::Positions;
use crate::model::Listen;
use crate::problem::Report;
use crate::read::address;
use crate::shape::check::Check;
use crate::shape::table;
use crate::shape::tree::Object;
use crate::syntax;
use crate::words::ModeWord;

/// The legible parts of a file.
#[derive(Debug, Clone)]
pub struct Written {
    /// Where they stand.
    pub positions: Positions,
    /// Every entry of `rules`, in order.
    pub rules: Vec<WrittenRule>,
}

/// The legible parts of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenRule {
    /// Where it listens.
    pub listen: Option<Listen>,
    /// In mode `regex`: the pattern of each target, as [`crate::model::Target::regexp`].
    pub patterns: Vec<Option<String>>,
}

/// Reads what is legible; nothing when the text is not even JSON.
#[must_use]
pub fn written(source_name: &str, bytes: &[u8]) -> Option<Written> {
    let text = syntax::text(source_name, bytes).ok()?;
    let tree = syntax::tree(source_name, text).ok()?;
    // The problems are told by `parse`.
    let mut ignored = Report::default();
    let mut check = Check::new(&mut ignored);
    let file = check.object(&tree, "$", &table::FILE);
    let positions = Positions::new(source_name, text, check.offsets);
    let nodes = file.as_ref().and_then(|file| file.list("rules")).unwrap_or_default();
    let rules = nodes.iter().map(|node| node.read().map(rule).unwrap_or_default()).collect();
    Some(Written { positions, rules })
}

fn rule(rule: &Object) -> WrittenRule {
    let listen = rule.get::<&str>("listen").and_then(|text| address::listen(text).ok());
    let patterns = match rule.word::<ModeWord>("mode") {
        Some(ModeWord::Regex) => rule.list("targets").unwrap_or_default(),
        Some(_) | None => &[],
    };
    let pattern = |target: &Object| {
        target.maybe::<&str>("regexp").flatten().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let patterns = patterns.iter().map(|node| node.read().and_then(pattern)).collect();
    WrittenRule { listen, patterns }
}
