//! What is going on: one attempt to put a generation into service.

use std::path::PathBuf;
use std::sync::Arc;

use baton_handoff::message::{Generation, ListenerKey, ListenerWanted, Migrated, WorkerId};

use crate::action::{Kind, Outcome};
use crate::event::{Binary, ConfigText, Millis, RequestId, Ticket};

/// Where a transition is. Several steps make up one phase of the protocol; people see the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Reading the configuration, opening and self-checking the new binary.
    Checking,
    /// The process was started; its `Hello` is awaited.
    Greeting,
    /// The configuration was offered; `Plan` is awaited.
    Planning,
    /// Missing sockets are being bound.
    Binding,
    /// The sockets were handed over; `Ready` is awaited.
    Readying,
    /// `Activate` was sent; `Active` is awaited. The old side still accepts.
    Activating,
    /// The new side accepts; the old one was told to stop, `Quiesced` is awaited.
    Quiescing,
    /// The old worker's connections move to the new one, or are about to: a recovery that is going
    /// on comes first.
    Migrating,
    /// The new worker is on probation; the old one stands by.
    Watching,
    /// The window is over; one last sign of life is awaited.
    Probing,
    /// The new worker failed; the old one's `Active` is awaited.
    Reverting,
}

impl Step {
    /// The phase's name in progress lines and `status`.
    pub(super) fn phase(self) -> &'static str {
        match self {
            Self::Checking => "check",
            Self::Greeting => "spawn",
            Self::Planning | Self::Binding | Self::Readying => "prepare",
            Self::Activating | Self::Quiescing => "shift",
            Self::Migrating => "migrate",
            Self::Watching | Self::Probing => "watch",
            Self::Reverting => "revert",
        }
    }
}

#[derive(Debug)]
pub(super) struct Transition {
    pub(super) ticket: Ticket,
    pub(super) kind: Kind,
    pub(super) requesters: Vec<RequestId>,
    pub(super) started: Millis,
    pub(super) step: Step,
    /// When the present step has taken too long; `None` where a worker's silence decides.
    pub(super) deadline: Option<Millis>,
    /// The number on offer.
    pub(super) generation: Generation,
    /// Known after Check.
    pub(super) config: Option<Arc<ConfigText>>,
    /// The new executable; `None` where the worker is not replaced, and until it was opened.
    pub(super) binary: Option<Binary>,
    /// The self-check passed (or is not needed).
    pub(super) checked: bool,
    /// Try a quarantined build.
    pub(super) force: bool,
    /// Which file to open for an upgrade.
    pub(super) path: Option<PathBuf>,
    /// To whom the offer goes.
    pub(super) candidate: Option<WorkerId>,
    /// The candidate serves already: a reload.
    pub(super) in_place: bool,
    /// Who served before and could be called back.
    pub(super) old: Option<WorkerId>,
    /// What the candidate wants.
    pub(super) plan: Vec<ListenerWanted>,
    /// Bound for this plan; closed again when it comes to nothing.
    pub(super) fresh: Vec<ListenerKey>,
    /// How far the connections have moved; `None` before they were told to.
    pub(super) moved: Option<Migrated>,
    /// Why the old worker is being called back, or the build before.
    pub(super) problems: Vec<String>,
}

impl Transition {
    /// Whether `generation` is what was offered to `worker`.
    pub(super) fn offers(&self, worker: WorkerId, generation: Generation) -> bool {
        self.candidate == Some(worker) && self.generation == generation
    }

    /// Whether an offer is in the hands of the worker that also serves. It may be busy compiling,
    /// so its silence means nothing until the offer is answered or withdrawn.
    pub(super) fn occupies(&self, worker: WorkerId) -> bool {
        self.in_place
            && self.candidate == Some(worker)
            && match self.step {
                Step::Planning | Step::Binding | Step::Readying => true,
                Step::Checking
                | Step::Greeting
                | Step::Activating
                | Step::Quiescing
                | Step::Migrating
                | Step::Watching
                | Step::Probing
                | Step::Reverting => false,
            }
    }

    /// Whether `worker` is the one on probation.
    pub(super) fn watches(&self, worker: WorkerId) -> bool {
        self.candidate == Some(worker) && self.is_trial()
    }

    /// Whether `worker` stands by while another one is on probation.
    pub(super) fn stands_by(&self, worker: WorkerId) -> bool {
        self.old == Some(worker) && self.is_trial()
    }

    fn is_trial(&self) -> bool {
        match self.step {
            Step::Migrating | Step::Watching | Step::Probing => true,
            Step::Checking
            | Step::Greeting
            | Step::Planning
            | Step::Binding
            | Step::Readying
            | Step::Activating
            | Step::Quiescing
            | Step::Reverting => false,
        }
    }
}

/// Why a transition ends without success.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) problems: Vec<String>,
    pub(super) outcome: Outcome,
    /// The build is at fault, not the configuration or the system.
    pub(super) blame: bool,
    /// The worker itself closed the matter: there is no offer to withdraw.
    pub(super) answered: bool,
}

impl Failure {
    /// The worker or its executable misbehaved.
    pub(super) fn of_build(problem: String) -> Self {
        Self { problems: vec![problem], outcome: Outcome::Failed, blame: true, answered: false }
    }

    /// The system, or the operator's wish, stood in the way.
    pub(super) fn of_system(problems: Vec<String>) -> Self {
        Self { problems, outcome: Outcome::Failed, blame: false, answered: false }
    }

    /// The worker looked at the configuration and does not take it.
    pub(super) fn refused(problems: Vec<String>) -> Self {
        Self { problems, outcome: Outcome::Failed, blame: false, answered: true }
    }

    /// The old worker serves again.
    pub(super) fn reverted(problems: Vec<String>) -> Self {
        Self { problems, outcome: Outcome::Reverted, blame: true, answered: true }
    }
}
