//! Descriptors that a process leaves to its own next image: same process, other program.
//!
//! Numbers survive `exec`, owners do not, so the next image is told the numbers and has to make
//! owners of them. It works on copies: until [`Passed::settle`] every original stays open and
//! without CLOEXEC, so that an image which finds itself unable to go on can hand all of them to
//! yet another one, at any moment and without knowing what they are.

use super::InheritError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// What the former image of this process left open, as far as it was asked for.
#[derive(Debug)]
pub struct Passed {
    originals: BTreeSet<RawFd>,
}

impl Passed {
    /// Works once in a process. Must be called before the process opens descriptors of its own:
    /// the numbers come from a former program, and a wrong one would name somebody else's.
    ///
    /// # Errors
    /// [`InheritError::Taken`] the second time.
    pub fn begin() -> Result<Self, InheritError> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(InheritError::Taken);
        }
        Ok(Self { originals: BTreeSet::new() })
    }

    /// A copy, with CLOEXEC, of a descriptor that was left open; the original stays.
    ///
    /// # Errors
    /// A number of the standard three, one named twice, or one that is not open.
    pub fn copy(&mut self, number: RawFd) -> Result<OwnedFd, InheritError> {
        if number <= 2 || self.originals.contains(&number) {
            return Err(InheritError::Taken);
        }
        // SAFETY: borrowed for this one call only, which is there to find out whether the number
        // is open: the kernel answers EBADF if it is not.
        let original = unsafe { BorrowedFd::borrow_raw(number) };
        let copy = match fcntl(original, FcntlArg::F_DUPFD_CLOEXEC(3)) {
            Ok(copy) => copy,
            Err(Errno::EBADF) => return Err(InheritError::NotOpen { number }),
            Err(error) => return Err(InheritError::Io(io::Error::from(error))),
        };
        self.originals.insert(number);
        // SAFETY: the kernel has just made this number, and nobody else has seen it.
        Ok(unsafe { OwnedFd::from_raw_fd(copy) })
    }

    /// There is no way back any more: closes every original that was copied.
    pub fn settle(self) {
        for number in self.originals {
            // SAFETY: the former image left it open for this one, `begin` and `copy` make sure
            // that it is taken once, and only its copy has been given away.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}
