//! The instance stays where people look for it: a control socket or a runtime directory that
//! somebody removed (a cleaner of temporary files, for instance) is put back.
//!
//! The lock comes first, so that two instances never serve one directory. What workers have bound
//! there and the counters' file are not put back: the next worker binds its own again, the file
//! comes with the next start.

use std::rc::Rc;
use std::time::Duration;

use super::Driver;
use super::launch::Launch;
use crate::control::server::ControlSocket;

/// How often it is looked.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

impl<L: Launch> Driver<L> {
    /// Whether clients find the control socket where it belongs.
    pub(super) fn is_present(&mut self, control: &ControlSocket) -> bool {
        let present = control.is_in_place();
        if present {
            self.absence = None;
        }
        present
    }

    /// Puts the control socket back. Why it could not be is told once.
    pub(super) fn return_to(&mut self, control: &mut ControlSocket) {
        let problem = match self.runtime_dir.restore() {
            Ok(new) => {
                if let Some(new) = new {
                    self.runtime_dir = Rc::new(new);
                }
                match control.rebind() {
                    Ok(()) => {
                        tracing::warn!("the control socket was removed; it is bound anew");
                        return;
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        if self.absence.as_ref() != Some(&problem) {
            tracing::error!(%problem, "the control socket was removed and cannot be bound anew");
            self.absence = Some(problem);
        }
    }
}
