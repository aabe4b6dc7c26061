//! Control clients that wait for an answer.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::action::Report;
use crate::control::protocol::{Done, Response};
use crate::control::server::Answers;
use crate::event::{Millis, RequestId};

/// At the end, how long clients get to take their answer.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Waiting {
    answers: Answers,
    /// The connection, should it have to outlive this image of the process.
    socket: OwnedFd,
    since: Millis,
}

/// Everybody who asked; those who were answered stay until their answer is out.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: BTreeMap<RequestId, Waiting>,
    answered: Vec<Answers>,
    next: u64,
}

impl Requests {
    /// A new client.
    pub(crate) fn admit(&mut self, answers: Answers, socket: OwnedFd, now: Millis) -> RequestId {
        let id = RequestId(self.next);
        self.next = self.next.wrapping_add(1);
        self.waiting.insert(id, Waiting { answers, socket, since: now });
        id
    }

    /// A client of the former image of this process.
    pub(crate) fn resume(
        &mut self,
        id: RequestId,
        answers: Answers,
        socket: OwnedFd,
        since: Millis,
    ) {
        self.next = self.next.max(id.0.wrapping_add(1));
        self.waiting.insert(id, Waiting { answers, socket, since });
    }

    /// Those who wait, since when, and their connections.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (RequestId, Millis, BorrowedFd<'_>)> {
        self.waiting.iter().map(|(id, waiting)| (*id, waiting.since, waiting.socket.as_fd()))
    }

    /// A phase has begun.
    pub(crate) fn progress(&self, to: &[RequestId], phase: &str, text: &str) {
        for waiting in to.iter().filter_map(|id| self.waiting.get(id)) {
            let (phase, text) = (phase.to_owned(), text.to_owned());
            waiting.answers.send(Response::Progress { phase, text });
        }
    }

    /// The final answer.
    pub(crate) fn reply(&mut self, to: RequestId, report: Report, now: Millis) {
        let Some(Waiting { answers, socket: _, since }) = self.waiting.remove(&to) else { return };
        let duration = now.since(since).as_millis();
        answers.send(Response::Done(Done {
            ok: report.outcome.is_ok(),
            message: report.summary,
            problems: report.problems,
            duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
        }));
        self.answered.retain(|answers| !answers.is_closed());
        self.answered.push(answers);
    }

    /// Waits until every answer is out, within reason.
    pub(crate) async fn farewell(self) {
        let out = async {
            for answers in &self.answered {
                answers.closed().await;
            }
        };
        if tokio::time::timeout(FAREWELL, out).await.is_err() {
            tracing::debug!("a control client did not take its answer");
        }
    }
}
