//! One worker process as the machine sees it.

use baton_handoff::message::{Generation, Pulse};
use baton_handoff::version::{LIVING, Version};
use serde::{Deserialize, Serialize};

use super::limits::{EXIT_AFTER_CLOSE, Patience};
use crate::event::Millis;

/// The steps by which a retiring worker is made to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rung {
    /// It drains; SIGTERM comes next.
    Drain,
    /// It was told to cut everything, or got SIGTERM; SIGKILL comes next.
    Leave,
}

/// What a worker is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// Has never accepted a connection.
    Starting,
    /// Accepts, or was told to take its listeners up again.
    Serving,
    /// Accepts none, and could be called back at once.
    Standby,
    /// Lets its connections end.
    Retiring {
        /// How far we have gone.
        rung: Rung,
        /// When the next rung is due.
        until: Millis,
    },
    /// Was killed; only its exit is awaited, nothing it says counts.
    Doomed,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) pid: Option<u32>,
    pub(super) version: String,
    /// What was agreed on; the oldest until then.
    pub(super) protocol: Version,
    pub(super) role: Role,
    /// What it serves or served last; what it is offered, until then.
    pub(super) generation: Generation,
    /// It was told to accept, so it may have connections.
    pub(super) activated: bool,
    /// It has given us what its connections can be carried on with.
    pub(super) lifeline: bool,
    /// What it still has is to end with it: it has drained, or its time to do so is over.
    pub(super) finished: bool,
    pub(super) pulse: Option<Pulse>,
    /// When it last said anything.
    pub(super) heard: Millis,
    /// When it was asked for a sign of life that has not come.
    pub(super) asked: Option<Millis>,
    /// When its channel ended.
    pub(super) closed: Option<Millis>,
}

impl Worker {
    pub(super) fn new(generation: Generation, now: Millis) -> Self {
        Self {
            pid: None,
            version: String::new(),
            protocol: Version(1),
            role: Role::Starting,
            generation,
            activated: false,
            lifeline: false,
            finished: false,
            pulse: None,
            heard: now,
            asked: None,
            closed: None,
        }
    }

    /// Whether it still counts: not killed, whatever its process is doing.
    pub(super) fn is_alive(&self) -> bool {
        match self.role {
            Role::Starting | Role::Serving | Role::Standby | Role::Retiring { .. } => true,
            Role::Doomed => false,
        }
    }

    /// Whether connections can move to it and from it, and be given to it.
    pub(super) fn is_living(&self) -> bool {
        self.is_alive() && self.protocol >= LIVING
    }

    /// Whether its death leaves connections that can be carried on.
    pub(super) fn leaves_remains(&self) -> bool {
        self.lifeline && self.activated && !self.finished
    }

    /// Any message is a sign of life.
    pub(super) fn hear(&mut self, now: Millis) {
        self.heard = now;
        self.asked = None;
    }

    /// The earliest moment at which something has to be done about it.
    pub(super) fn deadline(&self, patience: Option<Patience>) -> Option<Millis> {
        let gone = self.gone_at();
        let ladder = match self.role {
            Role::Retiring { until, .. } => Some(until),
            Role::Starting | Role::Serving | Role::Standby | Role::Doomed => None,
        };
        let silence = patience.map(|patience| self.silence_ends(patience));
        [gone, ladder, silence].into_iter().flatten().min()
    }

    /// When a worker without a channel is held to be gone.
    pub(super) fn gone_at(&self) -> Option<Millis> {
        match self.role {
            Role::Starting | Role::Serving | Role::Standby | Role::Retiring { .. } => {
                self.closed.map(|closed| closed.after(EXIT_AFTER_CLOSE))
            }
            Role::Doomed => None,
        }
    }

    /// When its silence calls for the next measure: a question, or the end.
    pub(super) fn silence_ends(&self, patience: Patience) -> Millis {
        match self.asked {
            None => self.heard.after(patience.silence),
            Some(asked) => asked.after(patience.answer),
        }
    }
}
