//! Questions of control clients to a worker, passed on unread both ways.
//!
//! The supervisor knows nothing of routing: what a question means and what an answer says is
//! between the command line and the worker. It keeps the pairs apart and the waiting bounded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::message::{Answer, Query, ToWorker, WorkerId};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::worker::{Cargo, Live};
use crate::control::protocol::{Done, Response};
use crate::control::server::Answers;

/// Questions a worker has not answered; more are refused.
const MOST: usize = 64;
/// A worker answers from memory, between two events of its main thread; the rest is for a machine
/// that is busy with something else. Less than the ten seconds the command line waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one worker was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions(Rc<RefCell<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<String>>,
}

impl Questions {
    /// Notes a question; `None` when there are too many. Those whose asker has given up do not
    /// count.
    fn ask(&self, text: String) -> Option<(Query, oneshot::Receiver<String>)> {
        let mut open = self.0.borrow_mut();
        open.waiting.retain(|_, asker| !asker.is_closed());
        if open.waiting.len() >= MOST {
            return None;
        }
        let (asker, answer) = oneshot::channel();
        open.last += 1;
        let id = open.last;
        open.waiting.insert(id, asker);
        Some((Query { id, text }, answer))
    }

    /// Gives an answer to who asked; false when nobody did.
    pub(super) fn answered(&self, answer: &Answer) -> bool {
        let Some(asker) = self.0.borrow_mut().waiting.remove(&answer.id) else { return false };
        // Nobody waits any more: the answer was late.
        let _late = asker.send(answer.text.clone());
        true
    }
}

/// Asks the worker and answers the client, when one or the other comes to it.
pub(super) fn pass_on(worker: Option<(WorkerId, &Live)>, text: String, client: Answers) {
    let refuse = |problem: &str| Response::Done(Done::refused(problem.to_owned()));
    let asked = match worker {
        None => Err(refuse("no worker serves")),
        Some((id, live)) => match live.questions().ask(text) {
            None => Err(refuse("the worker has too many questions to answer")),
            Some((query, answer)) => {
                live.send(ToWorker::Query(query), Cargo::Nothing);
                Ok((id, answer))
            }
        },
    };
    let (id, answer) = match asked {
        Ok(asked) => asked,
        Err(refused) => return client.send(refused),
    };
    // A process that replaces itself waits for the answer: the next image does not know who asked.
    let hold = client.hold();
    spawn_local(async move {
        let response = match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(text)) => Response::Answer { text },
            Ok(Err(_)) => refuse("the worker ended before it answered"),
            Err(_) => {
                tracing::debug!(worker = id.0, "a question was not answered in time");
                refuse("the worker did not answer in time")
            }
        };
        client.send(response);
        drop(hold);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_to_who_asked_and_to_nobody_else() {
        let questions = Questions::default();
        let (first, mut one) = questions.ask("a".into()).unwrap();
        let (second, mut two) = questions.ask("b".into()).unwrap();
        assert!(questions.answered(&Answer { id: second.id, text: "B".into() }));
        assert!(questions.answered(&Answer { id: first.id, text: "A".into() }));
        assert_eq!((one.try_recv().unwrap(), two.try_recv().unwrap()), ("A".into(), "B".into()));
        assert!(!questions.answered(&Answer { id: first.id, text: "again".into() }));
        assert!(!questions.answered(&Answer { id: 99, text: "unasked".into() }));
    }

    #[test]
    fn too_many_are_refused_and_those_given_up_make_room() {
        let questions = Questions::default();
        let asked: Vec<_> = (0..MOST).map(|_| questions.ask(String::new()).unwrap()).collect();
        assert!(questions.ask(String::new()).is_none());
        drop(asked);
        assert!(questions.ask(String::new()).is_some());
    }
}
