//! Before the process becomes another program, that program shows as a process of its own that it
//! starts and understands what it would be left.
//!
//! What it is given is the memory as it is when it begins. The memory that is left in the end is
//! written anew, because life goes on meanwhile: a program that hangs in its rehearsal holds
//! nobody up.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Driver;
use super::launch::Launch;
use super::replace::{Due, Replacement, Stage};
use crate::control::server::ControlSocket;
use crate::event::BinaryId;
use crate::reexec::Left;

/// Starting and reading takes milliseconds; a machine under load, or a cold disk, gets this long.
const LIMIT: Duration = Duration::from_secs(10);

/// One that is going on. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Rehearsal(JoinSet<Result<(), String>>);

impl Rehearsal {
    /// How it ends.
    pub(super) async fn result(&mut self) -> Result<(), String> {
        match self.0.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(format!("the rehearsal of the new supervisor: {error}")),
            None => Err("the rehearsal of the new supervisor is over".into()),
        }
    }
}

impl<L: Launch> Driver<L> {
    /// A replacement that has nothing to wait for but its moment; sets off on one that is wanted.
    pub(super) fn rehearsed(&mut self, control: &ControlSocket) -> Option<Due> {
        let Replacement { binary, stage } = self.replacement.take()?;
        // The end has come first.
        if !self.state.is_replacing() {
            return None;
        }
        let next = match stage {
            Stage::Wanted => self.rehearse(binary, control),
            Stage::Rehearsed(result) => result.map(|()| Stage::Due(Due::now(binary))),
            Stage::Rehearsing(_) | Stage::Due(_) => Ok(stage),
        };
        match next {
            Ok(stage) => {
                let due = match &stage {
                    Stage::Due(due) => Some(*due),
                    Stage::Wanted | Stage::Rehearsing(_) | Stage::Rehearsed(_) => None,
                };
                self.replacement = Some(Replacement { binary, stage });
                due
            }
            Err(problem) => {
                self.not_replaced(problem);
                None
            }
        }
    }

    /// Whether a process of one runs.
    pub(super) fn is_rehearsing(&self) -> bool {
        self.replacement
            .as_ref()
            .is_some_and(|replacement| matches!(replacement.stage, Stage::Rehearsing(_)))
    }

    fn rehearse(&self, binary: BinaryId, control: &ControlSocket) -> Result<Stage, String> {
        let heritage = self.heritage(binary)?;
        // An earlier release; it has its way back all the same.
        if !heritage.program.rehearses() {
            return Ok(Stage::Due(Due::now(binary)));
        }
        let mut not_left = Left::default();
        let state = self.written(&heritage, control, &mut not_left)?;
        drop(not_left);
        let program = heritage.program;
        let mut task = JoinSet::new();
        task.spawn_local(async move { program.rehearse(state, LIMIT).await });
        Ok(Stage::Rehearsing(Rehearsal(task)))
    }
}
