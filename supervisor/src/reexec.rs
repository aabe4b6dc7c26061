//! The supervisor replaces itself: another program in the same process.
//!
//! The process number, the children, the control socket, the lock and every listening socket stay;
//! workers notice nothing but a pause. The old image writes its memory into a sealed memfd,
//! leaves exactly the descriptors named in it open, and calls `exec` on the file it had opened
//! and checked. The new image reads it ([`saved`]), works on copies of the descriptors, and settles
//! in only when everything is in its hands.
//!
//! Before that the new program rehearses ([`rehearse`]): as a process of its own it reads the
//! memory as it is then and says whether it could take over. What dies before any code of ours
//! runs (a broken loader, a damaged file) or does not understand the memory dies there, and the old
//! image is still whole.
//!
//! Until then there is a way back ([`way_back`]): an image that cannot read the memory, fails,
//! panics or hangs calls `exec` on the old image, which finds everything as it left it and is
//! told why. That call names no further way back, so two images never play ping-pong.
//!
//! Limit: a new program that passes its rehearsal and then dies without a word while it takes over
//! (a SIGSEGV) takes the supervisor with it. Then the workers go on as after any other death of it.

mod image;
mod level;
mod saved;
mod way_back;

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;

use baton_config::model::Level;
use baton_handoff::inherit::passed::Passed;
use baton_handoff::read_sealed;

pub use image::hold_signals;
pub(crate) use image::{Call, Left, exec, let_signals_in, without_signals};
pub(crate) use level::LogLevel;
pub use saved::StateError;
pub(crate) use saved::{FORMAT, Saved, SavedChannel, SavedClient, SavedLifeline, SavedListener};
use way_back::WayBack;

use crate::driver;
use crate::event::Millis;
use crate::options::StartError;
use crate::state::State;

/// The hidden subcommand by which a program takes over from its former image.
pub const RESUME_ARGUMENT: &str = "resume";

/// The option of it by which a program only shows that it could.
pub const REHEARSE_ARGUMENT: &str = "--rehearse";

/// Longest memory that is read: far beyond what 1024 listeners and any configuration make.
const STATE_MAX: usize = 64 << 20;

/// What the former image says on the command line.
#[derive(Debug, Clone)]
pub struct Resume {
    /// Where its memory is.
    pub state_fd: RawFd,
    /// Its executable, for the way back; absent on the way back.
    pub back_fd: Option<RawFd>,
    /// On the way back: why the other image did not take over.
    pub failed: Option<String>,
    /// `major.minor.patch` of this program.
    pub version: String,
}

/// Takes over from the former image of this process and runs the instance until it was stopped.
/// To be called before the process opens descriptors of its own, but for those of its log.
///
/// # Errors
/// Why there is no running instance any more. Where there is a way back, an image that cannot
/// take over takes it instead, and this does not return.
pub fn resume(call: Resume, set_level: impl FnOnce(Level)) -> Result<ExitCode, StartError> {
    image::name_process();
    let mut passed = Passed::begin()?;
    let way_back = match call.back_fd {
        Some(number) => Some(WayBack::arm(&mut passed, number, call.state_fd)?),
        None => None,
    };
    let taken = remember(&mut passed, call.state_fd).and_then(|saved| {
        set_level(saved.log.into());
        driver::Resumed::take(saved, &mut passed, call.version)
    });
    match (taken, way_back) {
        (Ok(resumed), way_back) => {
            if let Some(way_back) = way_back {
                way_back.settle();
            }
            passed.settle();
            // Until here a panic was the way back.
            baton_logging::log_panics();
            resumed.run(call.failed.map_or(Ok(()), Err))
        }
        (Err(error), Some(way_back)) => Err(way_back.give_back(&error.to_string())),
        (Err(error), None) => Err(error),
    }
}

/// Finds out whether a program of this version could take over from the supervisor that has put
/// its memory on our standard input, as far as that can be said without its descriptors. Changes
/// nothing.
///
/// # Errors
/// Why it could not.
pub fn rehearse(version: String) -> Result<(), StartError> {
    let memory = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| StartError::Io { operation: "read the standard input", source })?;
    let Saved { machine, uptime_ms, .. } = understood(memory)?;
    State::restore(machine, version, Millis(uptime_ms)).map_err(StartError::Contradiction)?;
    Ok(())
}

fn remember(passed: &mut Passed, state: RawFd) -> Result<Saved, StartError> {
    understood(passed.copy(state)?)
}

fn understood(memory: OwnedFd) -> Result<Saved, StartError> {
    Ok(Saved::decode(&read_sealed(memory, STATE_MAX)?)?)
}
