//! Configured patterns to an engine, with an error that names the pattern.

use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::syntax;

use super::engine::Engine;
use super::{MAX_COMPILED, Scan};
use crate::flow::TargetSet;

/// The patterns of one rule, ready to run; shared by all threads.
#[derive(Debug)]
pub struct Patterns {
    /// `None` when no target has a pattern.
    engine: Option<Engine>,
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    /// The position of its target.
    pub target: u16,
    /// What is wrong, in one line.
    pub message: String,
}

impl Patterns {
    /// Compiles the pattern of each target, in configured order; `None` is the fallback, which
    /// takes no part in matching.
    ///
    /// # Errors
    /// Every target whose pattern is not in the dialect, compiles to more than
    /// [`MAX_COMPILED`] bytes, or is beyond [`TargetSet::CAPACITY`]; never empty.
    pub fn compile(patterns: &[Option<&str>]) -> Result<Self, Vec<PatternError>> {
        let mut expressions = Vec::new();
        let mut targets = Vec::new();
        let mut look_ahead = TargetSet::default();
        let mut problems = Vec::new();
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        for (target, pattern) in (0u16..).zip(patterns) {
            let Some(pattern) = pattern else { continue };
            let parse = || {
                if target >= TargetSet::CAPACITY {
                    return Err(format!("more than {} targets", TargetSet::CAPACITY));
                }
                let expression = syntax::parse_with(pattern, &syntax)
                    .map_err(|error| last_line(&error.to_string()))?;
                let alone = thompson::Compiler::new()
                    .configure(nfa_config().nfa_size_limit(Some(MAX_COMPILED)))
                    .build_from_hir(&expression)
                    .map_err(|error| size_or(&error))?;
                if alone.look_set_any().contains_word_unicode() {
                    return Err("word boundaries are ASCII only: no \\b inside (?u)".into());
                }
                Ok((expression, looks_ahead(&alone)))
            };
            match parse() {
                Ok((expression, ahead)) => {
                    if ahead {
                        look_ahead.insert(target);
                    }
                    expressions.push(expression);
                    targets.push(target);
                }
                Err(message) => problems.push(PatternError { target, message }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let Some(&last) = targets.last() else { return Ok(Self { engine: None }) };
        let refuse = |message: String| vec![PatternError { target: last, message }];
        let together = thompson::Compiler::new()
            .configure(nfa_config())
            .build_many_from_hir(&expressions)
            .map_err(|error| refuse(last_line(&error.to_string())))?;
        let engine = Engine::new(together, targets.into(), look_ahead)
            .map_err(|error| refuse(last_line(&error.to_string())))?;
        Ok(Self { engine: Some(engine) })
    }

    /// Begins with a connection.
    #[must_use]
    pub fn scan(&self) -> Scan<'_> {
        Scan::new(self)
    }

    pub(super) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// With caches so small that they are cleared all the time.
    #[cfg(test)]
    pub(super) fn compile_cramped(patterns: &[Option<&str>]) -> Result<Self, Vec<PatternError>> {
        let mut compiled = Self::compile(patterns)?;
        compiled.engine = compiled.engine.map(Engine::cramped);
        Ok(compiled)
    }
}

fn nfa_config() -> thompson::Config {
    thompson::Config::new().utf8(false).which_captures(WhichCaptures::None)
}

/// Whether some assertion of the pattern depends on what comes after it.
fn looks_ahead(nfa: &NFA) -> bool {
    nfa.look_set_any().iter().any(|look| match look {
        Look::Start | Look::StartLF | Look::WordStartHalfAscii | Look::WordStartHalfUnicode => {
            false
        }
        // After a carriage return, a line starts only if no line feed follows.
        Look::StartCRLF
        | Look::End
        | Look::EndLF
        | Look::EndCRLF
        | Look::WordAscii
        | Look::WordAsciiNegate
        | Look::WordUnicode
        | Look::WordUnicodeNegate
        | Look::WordStartAscii
        | Look::WordEndAscii
        | Look::WordStartUnicode
        | Look::WordEndUnicode
        | Look::WordEndHalfAscii
        | Look::WordEndHalfUnicode => true,
    })
}

fn size_or(error: &thompson::BuildError) -> String {
    match error.size_limit() {
        Some(limit) => format!("compiles to more than {limit} bytes"),
        None => last_line(&error.to_string()),
    }
}

/// Syntax errors draw the pattern over several lines; the reason is the last.
fn last_line(message: &str) -> String {
    let line = message.trim_end().lines().next_back().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
