//! Pipes and `splice`: bytes pass from socket to socket without entering user memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{pipe2, write};

use super::bytes::again;

/// Pipe capacities to try, best first, in bytes. What pays is bytes a wake-up, hence slots:
/// relaying costs 0.27 CPU seconds a GiB through 1 MiB, 0.29 to 0.44 through 64 KiB.
pub const PIPE_SIZES: [usize; 3] = [1 << 20, 512 << 10, 64 << 10];

/// An anonymous pipe used as a buffer inside the kernel.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// Makes a pipe of the largest of [`PIPE_SIZES`] to be had.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; `OutOfMemory` when the user's share of pipe memory is spent and the
    /// kernel gives pipes too small to be of use.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        for size in PIPE_SIZES {
            let wanted = i32::try_from(size).unwrap_or(i32::MAX);
            // EPERM: over the user's limit, or over pipe-max-size. A smaller one may do.
            if fcntl(write.as_fd(), FcntlArg::F_SETPIPE_SZ(wanted)).is_ok() {
                return Ok(Self { read, write, capacity: size });
            }
        }
        let given = fcntl(write.as_fd(), FcntlArg::F_GETPIPE_SZ)?;
        match usize::try_from(given) {
            Ok(capacity) if capacity >= PIPE_SIZES[PIPE_SIZES.len() - 1] => {
                Ok(Self { read, write, capacity })
            }
            Ok(_) | Err(_) => Err(io::Error::from(io::ErrorKind::OutOfMemory)),
        }
    }

    /// A pipe received from another process: its two ends, in reading and writing order.
    ///
    /// # Errors
    /// `InvalidInput` when they are not the two ends of one pipe.
    pub fn from_ends(read: OwnedFd, write: OwnedFd) -> io::Result<Self> {
        let (near, far) = (fstat(&read)?, fstat(&write)?);
        let is_pipe = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFIFO;
        let one = is_pipe(near.st_mode) && (near.st_dev, near.st_ino) == (far.st_dev, far.st_ino);
        if !one || access(&read)? != OFlag::O_RDONLY || access(&write)? != OFlag::O_WRONLY {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the ends of one pipe"));
        }
        let given = fcntl(write.as_fd(), FcntlArg::F_GETPIPE_SZ)?;
        Ok(Self { read, write, capacity: usize::try_from(given).unwrap_or(0) })
    }

    /// Its two ends, in reading and writing order.
    #[must_use]
    pub fn into_ends(self) -> (OwnedFd, OwnedFd) {
        (self.read, self.write)
    }

    /// How much it holds, in bytes, if every slot is full.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The end that is read from.
    #[must_use]
    pub fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// The end that is written to.
    #[must_use]
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}

fn access(fd: &OwnedFd) -> io::Result<OFlag> {
    Ok(OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE)
}

/// Appends as much of `bytes` to `pipe` as it takes: all of them if it was empty and they are
/// no more than its capacity.
///
/// # Errors
/// `WouldBlock` when it takes nothing.
pub fn fill(pipe: &Pipe, bytes: &[u8]) -> io::Result<usize> {
    again(|| write(pipe.write_end(), bytes))
}

fn flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE
}

/// Moves up to `limit` bytes from `socket` into `pipe`; 0 is the end of the stream.
///
/// # Errors
/// `WouldBlock` when the socket is empty *or the pipe is full*: call it with an empty pipe only.
/// The connection's error after its last byte.
pub fn splice_in(socket: BorrowedFd<'_>, pipe: &Pipe, limit: usize) -> io::Result<usize> {
    again(|| splice(socket, None, pipe.write_end(), None, limit, flags()))
}

/// Moves up to `held` bytes from `pipe` into `socket`.
///
/// # Errors
/// `WouldBlock` when the send queue is full (or the pipe empty: call it with `held` > 0 only);
/// otherwise the connection's error.
pub fn splice_out(pipe: &Pipe, socket: BorrowedFd<'_>, held: usize) -> io::Result<usize> {
    again(|| splice(pipe.read_end(), None, socket, None, held, flags()))
}
