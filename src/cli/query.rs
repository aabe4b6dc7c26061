//! Questions about routing, which the supervisor passes on to the serving worker unread.

use std::time::Duration;

use baton_supervisor::control::protocol::{Request, Response};
use serde_json::Value;

use super::{InstanceArgs, control};
use crate::output::Failure;

/// Longer than the supervisor waits for the worker.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the serving worker answers to `question`.
pub(super) fn ask(args: &InstanceArgs, question: &Value) -> Result<Value, Failure> {
    let problem = |text: &str| Failure::Problems(vec![format!("baton: {text}")]);
    let request = Request::Query { text: question.to_string() };
    let mut conversation = control::ask(args, &request)?;
    conversation.set_patience(PATIENCE)?;
    let text = match conversation.next_response().map_err(control::failure)? {
        Response::Answer { text } => text,
        Response::Done(done) => return Err(problem(&done.message)),
        Response::Progress { .. } | Response::Status(_) => {
            return Err(problem("the instance answered with something else"));
        }
    };
    let answer: Value = serde_json::from_str(&text)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(problem(error)),
        None => Ok(answer),
    }
}

/// A value in a table: `-` for one that is absent.
pub(super) fn cell(row: &Value, field: &str) -> String {
    match row.get(field) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or_default())
        }
        Some(other) => other.to_string(),
    }
}

/// The elements of a list in an answer.
pub(super) fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
