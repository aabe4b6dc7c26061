//! Descriptor numbers become owned descriptors: the one place where that happens.
//!
//! Numbers come from five places: a message (`SCM_RIGHTS`), the worker's stdin (its control
//! socket), systemd's socket activation, the process's own former image ([`passed`]), and the
//! kernel's handles on processes ([`pidfd`]). Each has its function here, which does the whole
//! step from the kernel's or the environment's word to `OwnedFd` with CLOEXEC, so that no other
//! file can turn a wrong number into an owner.
//!
//! `nix` can receive descriptors, but keeps back those that did arrive when some got lost
//! (`MSG_CTRUNC`): they would stay open for ever. So the control bytes are read here.
#![allow(unsafe_code)]

pub mod passed;
pub mod pidfd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::socket::{MsgFlags, recvmsg};
use nix::unistd::dup2_stdin;
use socket2::{Domain, SockRef, Type};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel's own limit of descriptors in one message.
const KERNEL_MAX_FDS: usize = 253;

/// One packet as it came.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Bytes written to the buffer; 0 with no descriptor is the end of the stream.
    pub(crate) len: usize,
    /// All descriptors that arrived, CLOEXEC set.
    pub(crate) fds: Vec<OwnedFd>,
    /// The kernel dropped descriptors.
    pub(crate) fds_lost: bool,
    /// The packet was longer than the buffer.
    pub(crate) cut: bool,
}

/// Receives one packet and its descriptors; never blocks.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Packet> {
    receive_into(socket, buffer, &mut nix::cmsg_space!([RawFd; KERNEL_MAX_FDS]))
}

fn receive_into(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
) -> nix::Result<Packet> {
    // Zero bytes behind the kernel's last record end the walk below.
    control.fill(0);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let (len, flags) = {
        let mut parts = [IoSliceMut::new(buffer)];
        let got = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(control), flags)?;
        (got.bytes, got.flags)
    };
    let fds = scm_rights(control)
        .into_iter()
        // SAFETY: the kernel has just put these numbers into this process's table for this very
        // message, nobody else has seen them, and each is in the list once. There is no safe way:
        // the kernel hands out numbers.
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        .collect();
    Ok(Packet {
        len,
        fds,
        fds_lost: flags.contains(MsgFlags::MSG_CTRUNC),
        cut: flags.contains(MsgFlags::MSG_TRUNC),
    })
}

/// The descriptor numbers in a control buffer: records of `{length usize, level i32, type i32,
/// data}`, each padded to the size of a `usize`, ended by zeros.
fn scm_rights(mut control: &[u8]) -> Vec<RawFd> {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 2 * size_of::<i32>();
    let mut numbers = Vec::new();
    while let Some((header, _)) = control.split_first_chunk::<HEADER>() {
        let mut length = [0; WORD];
        length.copy_from_slice(&header[..WORD]);
        let length = usize::from_ne_bytes(length);
        let Some(data) = control.get(HEADER..length) else { break };
        if header[WORD..WORD + 4] == libc::SOL_SOCKET.to_ne_bytes()
            && header[WORD + 4..] == libc::SCM_RIGHTS.to_ne_bytes()
        {
            let whole = data.chunks_exact(size_of::<RawFd>());
            numbers.extend(whole.map(|n| RawFd::from_ne_bytes([n[0], n[1], n[2], n[3]])));
        }
        control = control.get(length.next_multiple_of(WORD)..).unwrap_or(&[]);
    }
    numbers
}

/// Why something inherited cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// Standard input is not the supervisor's control socket.
    #[error("standard input is not a control socket; a worker is started by its supervisor only")]
    NotAControlSocket,
    /// systemd's variables make no sense.
    #[error("{variable}={value} makes no sense")]
    Variable {
        /// The variable's name.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A descriptor that was promised is not open.
    #[error("descriptor {number} is not open")]
    NotOpen {
        /// Its number.
        number: RawFd,
    },
    /// A second call: the descriptors already have an owner.
    #[error("inherited descriptors were already taken")]
    Taken,
    /// A system call failed.
    #[error("cannot take over inherited descriptors: {0}")]
    Io(#[from] io::Error),
}

/// Takes the control socket out of standard input, and leaves `/dev/null` there so that no later
/// code can take it for input or close it.
///
/// # Errors
/// [`InheritError::NotAControlSocket`] when the process was started some other way (by a person
/// in a shell, say).
pub fn control_socket() -> Result<OwnedFd, InheritError> {
    let stdin = io::stdin();
    let socket = SockRef::from(&stdin);
    if !matches!(socket.r#type(), Ok(Type::SEQPACKET))
        || !matches!(socket.domain(), Ok(Domain::UNIX))
    {
        return Err(InheritError::NotAControlSocket);
    }
    // The copy has CLOEXEC and a number above the standard three.
    let owned = stdin.as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
    Ok(owned)
}

/// A socket that systemd bound before it started this process.
#[derive(Debug)]
pub struct Activated {
    /// The socket, CLOEXEC set. What kind it is has not been checked.
    pub fd: OwnedFd,
    /// `FileDescriptorName=` of its unit; systemd says `unknown` where none was set.
    pub name: Option<String>,
}

/// First number of the range that `LISTEN_FDS` counts.
const LISTEN_FDS_START: RawFd = 3;

static LISTEN_FDS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes over the sockets of systemd's socket activation; none when there are none for this
/// process. Works once. Must run before the process opens descriptors of its own: the protocol
/// is one of bare numbers, so a wrong variable would name somebody else's.
///
/// # Errors
/// Variables that make no sense, and numbers that are not open. Nothing is taken then.
pub fn listen_fds() -> Result<Vec<Activated>, InheritError> {
    let variable = |name| std::env::var(name).ok();
    let pid = variable("LISTEN_PID");
    let Some(range) = activation(
        pid.as_deref(),
        variable("LISTEN_FDS").as_deref(),
        variable("LISTEN_FDNAMES").as_deref(),
        std::process::id(),
    )?
    else {
        return Ok(Vec::new());
    };
    if LISTEN_FDS_TAKEN.swap(true, Ordering::SeqCst) {
        return Err(InheritError::Taken);
    }
    let numbers = LISTEN_FDS_START..;
    for (number, _) in numbers.clone().zip(&range) {
        // SAFETY: borrowed for this one call only, which is there to find out whether the number
        // is open: the kernel answers EBADF if it is not.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        match fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
            Ok(_) => {}
            Err(Errno::EBADF) => return Err(InheritError::NotOpen { number }),
            Err(error) => return Err(InheritError::Io(error.into())),
        }
    }
    let activated = numbers.zip(range).map(|(number, name)| {
        // SAFETY: the number is open (checked above), systemd opened it for this process and for
        // nobody else in it, and the flag above makes sure that it is taken once.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        Activated { fd, name }
    });
    Ok(activated.collect())
}

/// Reads systemd's variables: one entry for each descriptor with its name, or `None` when they
/// are absent or meant for another process.
fn activation(
    pid: Option<&str>,
    fds: Option<&str>,
    names: Option<&str>,
    own_pid: u32,
) -> Result<Option<Vec<Option<String>>>, InheritError> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(None) };
    let bad = |variable, value: &str| InheritError::Variable { variable, value: value.to_owned() };
    if pid.parse::<u32>().map_err(|_| bad("LISTEN_PID", pid))? != own_pid {
        return Ok(None);
    }
    let count = fds.parse::<u16>().map_err(|_| bad("LISTEN_FDS", fds))?;
    let mut range = vec![None; usize::from(count)];
    if let Some(names) = names.filter(|names| !names.is_empty()) {
        let list: Vec<&str> = names.split(':').collect();
        if list.len() != range.len() {
            return Err(bad("LISTEN_FDNAMES", names));
        }
        for (slot, name) in range.iter_mut().zip(list) {
            *slot = Some(name.to_owned());
        }
    }
    Ok(Some(range))
}

#[cfg(test)]
mod tests;
