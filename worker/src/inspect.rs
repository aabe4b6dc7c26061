//! What an operator may ask about routing: how the lines are, and where a connection would go.
//!
//! Questions and answers are JSON. They reach the worker over its control channel, passed on by a
//! supervisor that does not read them, so they work without the admin listener; the admin server
//! shows the same text under `/status`. Asking changes nothing: no cursor moves, no line is
//! admitted, nothing is dialled.

mod explain;
mod status;

use std::net::IpAddr;

use serde::Deserialize;

use crate::flow::Moment;
use crate::generation::Generation;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
enum Question {
    /// How the lines of every rule are.
    Status,
    /// Which targets a connection would be tried on.
    Explain(Connection),
}

/// A connection that might come.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Connection {
    /// The rule it comes in through.
    rule: String,
    /// Its client; anybody when absent.
    client: Option<IpAddr>,
    /// The server name of its ClientHello; the host it asks for.
    sni: Option<String>,
    /// The protocols of its ClientHello.
    #[serde(default)]
    alpn: Vec<String>,
    /// Its first bytes, in hexadecimal; then `sni` and `alpn` are not looked at.
    bytes: Option<String>,
}

/// The answer to a question; an object with `error` when there is none.
pub(crate) fn answer(question: &str, generation: Option<&Generation>, now: Moment) -> String {
    let answered = serde_json::from_str(question)
        .map_err(|error| format!("not a question this release knows: {error}"))
        .and_then(|question| {
            let generation = generation.ok_or("nothing is served yet")?;
            match question {
                Question::Status => Ok(text(&status::of(generation, now))),
                Question::Explain(connection) => {
                    explain::explain(generation, &connection, now).map(|answer| text(&answer))
                }
            }
        });
    answered.unwrap_or_else(|error: String| text(&Error { error }))
}

/// How the lines of every rule are.
pub(crate) fn status(generation: Option<&Generation>, now: Moment) -> String {
    generation.map_or_else(
        || r#"{"generation":0,"rules":[]}"#.to_owned(),
        |generation| text(&status::of(generation, now)),
    )
}

#[derive(Debug, serde::Serialize)]
struct Error {
    error: String,
}

fn text(answer: &impl serde::Serialize) -> String {
    // Numbers, texts and lists; a defect would show as a text that says so.
    serde_json::to_string(answer).unwrap_or_else(|error| format!(r#"{{"error":"{error}"}}"#))
}

/// Nanoseconds as milliseconds; `None` for a mean that has no sample.
fn millis(nanos: u64) -> Option<f64> {
    // Microseconds fit a double exactly for 285 years.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    (nanos > 0).then_some((nanos / 1000) as f64 / 1000.0)
}
