//! The way back to the old image while the new one has not settled in: on an error, a panic, or
//! after too long.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use baton_handoff::inherit::passed::Passed;

use super::image::{Call, exec, without_signals};
use crate::options::StartError;

/// Settling in takes milliseconds; a machine under load gets this long.
const LIMIT: Duration = Duration::from_secs(5);

/// See the module's head. Dropping it changes nothing.
pub(crate) struct WayBack {
    route: Arc<Route>,
    settled: Sender<()>,
}

#[derive(Debug)]
struct Route {
    image: OwnedFd,
    name: PathBuf,
    state: RawFd,
}

impl Route {
    fn take(&self, why: &str) -> io::Error {
        let call = Call {
            name: self.name.clone(),
            state: self.state,
            back: None,
            failed: Some(why.to_owned()),
        };
        exec(self.image.as_fd(), &call)
    }
}

impl WayBack {
    /// Keeps the way back to the image behind `number` open until [`settle`](Self::settle).
    ///
    /// # Errors
    /// There is no such descriptor, or no thread to watch the time.
    pub(super) fn arm(
        passed: &mut Passed,
        number: RawFd,
        state: RawFd,
    ) -> Result<Self, StartError> {
        let image = passed.copy(number)?;
        let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
        let route = Arc::new(Route { image, name, state });
        let on_panic = Arc::clone(&route);
        panic::set_hook(Box::new(move |panic| {
            let error = on_panic.take(&format!("a fault of the new version: {panic}"));
            tracing::error!(%error, %panic, "there is no way back to the old version");
        }));
        let (settled, in_time) = channel();
        let on_time = Arc::clone(&route);
        let watch = move || {
            without_signals();
            match in_time.recv_timeout(LIMIT) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("the new version did not take over within {LIMIT:?}");
                    let error = on_time.take(&why);
                    tracing::error!(%error, "there is no way back to the old version");
                }
            }
        };
        Builder::new()
            .name("way-back".into())
            .spawn(watch)
            .map_err(|source| StartError::Io { operation: "start a thread", source })?;
        Ok(Self { route, settled })
    }

    /// Goes back; returns only with the reason why not.
    pub(super) fn give_back(&self, why: &str) -> StartError {
        let source = self.route.take(why);
        StartError::Stranded { why: why.to_owned(), source }
    }

    /// The new image is there to stay; a panic is a panic again.
    pub(crate) fn settle(self) {
        let _late = self.settled.send(());
        drop(panic::take_hook());
    }
}
