//! System calls, one each, with nothing around them: this is what may run after the copy.
//!
//! Why not `nix` or `socket2`: some of them allocate, and none promises not to.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::libc;

pub(super) const AGAIN: i32 = libc::EAGAIN;
pub(super) const PIPE: i32 = libc::EPIPE;

/// How long an answer waits for room in the asker's queue, in milliseconds.
const ROOM_PATIENCE: i32 = 5_000;

/// Room for the largest control message: a header and 200 numbers.
const CONTROL: usize = 1024;

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// An owner for a number that the kernel has just given out.
pub(super) fn own(number: RawFd) -> OwnedFd {
    // SAFETY: the callers pass what `fcntl(F_DUPFD_CLOEXEC)` returned, which nobody else has.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A pidfd of this process: readable once all its threads are gone.
pub(super) fn pidfd_of_this_process() -> io::Result<OwnedFd> {
    // SAFETY: takes and returns plain numbers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    match RawFd::try_from(number) {
        Ok(number) if number >= 0 => Ok(own(number)),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Copies the process with a shared descriptor table. `None` in the copy.
pub(super) fn clone_sharing_files() -> io::Result<Option<libc::pid_t>> {
    // SIGCHLD: an ordinary child, for an ordinary wait.
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is fork: the copy goes on with its own
    // copy of this stack. Only the calling thread exists in it, and all it does is `child::run`,
    // which uses neither the allocator nor any lock. There is no safe way: no crate offers it.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match libc::pid_t::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Some(pid)),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

pub(super) fn close(number: RawFd) {
    // SAFETY: the caller owns the number and forgets it.
    unsafe { libc::close(number) };
}

pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process at once, without any handler of the worker's.
    unsafe { libc::_exit(code) }
}

pub(super) fn name(name: &CStr) {
    // SAFETY: the kernel reads the string, which ends with its NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Milliseconds of the monotonic clock.
pub(super) fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills `time`, which lives here.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

/// What ended a wait.
pub(super) struct Woken {
    /// The socket has a packet, or its peer is gone.
    pub(super) readable: bool,
    /// The worker is dead.
    pub(super) exited: bool,
}

/// Waits for either, or until `limit` milliseconds are over.
pub(super) fn wait(socket: Option<RawFd>, worker: Option<RawFd>, limit: Option<u64>) -> Woken {
    // A negative number is skipped by the kernel.
    let entry =
        |fd: Option<RawFd>| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let mut polled = [entry(socket), entry(worker)];
    let limit = limit.map_or(-1, |limit| i32::try_from(limit).unwrap_or(i32::MAX));
    // SAFETY: the kernel writes to the two entries, which live here.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, limit) };
    let [socket, worker] = polled;
    Woken { readable: ready > 0 && socket.revents != 0, exited: ready > 0 && worker.revents != 0 }
}

pub(super) fn has_exited(worker: RawFd) -> bool {
    wait(None, Some(worker), Some(0)).exited
}

pub(super) fn wait_for_room(socket: RawFd) -> bool {
    let mut polled = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the kernel writes to the entry, which lives here.
    unsafe { libc::poll(&raw mut polled, 1, ROOM_PATIENCE) > 0 }
}

pub(super) fn receive(socket: RawFd, buffer: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: the kernel writes at most `len` bytes to the buffer, which is that long.
    let len =
        unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    usize::try_from(len).map_err(|_| errno())
}

/// Memory for a control message, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// Sends one packet with descriptors of this process.
pub(super) fn send(socket: RawFd, bytes: &[u8], numbers: &[RawFd]) -> Result<(), i32> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero message header is a valid one without any part.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    let payload = size_of_val(numbers);
    if !numbers.is_empty() {
        let length = u32::try_from(payload).map_err(|_| libc::EINVAL)?;
        // SAFETY: plain arithmetic.
        let (space, used) = unsafe { (libc::CMSG_SPACE(length), libc::CMSG_LEN(length)) };
        let space = space as usize;
        if space > CONTROL {
            return Err(libc::EINVAL);
        }
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = space as _;
        // SAFETY: the control buffer is aligned for a header and has room for it and the payload
        // (`space` was computed from it and checked); `numbers` is `payload` bytes long.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = used as _;
            ptr::copy_nonoverlapping(numbers.as_ptr().cast(), libc::CMSG_DATA(header), payload);
        }
    }
    // SAFETY: everything the header points to lives until the call returns.
    let sent = unsafe {
        libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(errno()) } else { Ok(()) }
}

pub(super) fn is_open(number: RawFd) -> bool {
    // SAFETY: takes plain numbers; a number that is not open is an error.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Reads a socket option of the size of `T`.
fn option<T: Default>(number: RawFd, name: i32) -> Option<T> {
    let mut value = T::default();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).ok()?;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which is that large; the callers
    // use integers only, for which any bytes are valid.
    let result = unsafe {
        libc::getsockopt(number, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
    };
    (result == 0).then_some(value)
}

/// The kernel's name of a socket; `None` when it is none.
pub(super) fn cookie(number: RawFd) -> Option<u64> {
    option(number, libc::SO_COOKIE)
}

/// A TCP socket that does not listen.
pub(super) fn is_tcp_connection(number: RawFd) -> bool {
    option::<i32>(number, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
        && option::<i32>(number, libc::SO_ACCEPTCONN) == Some(0)
}

/// Resets a TCP connection at once, through whichever descriptor.
pub(super) fn abort(number: RawFd) -> bool {
    // SAFETY: borrowed for this call only; a number that is not open is an error of the call.
    crate::net::abort(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
}

/// One above the highest number that can be open: the size of the table, or the limit where
/// `/proc` is missing.
pub(super) fn table_size() -> RawFd {
    let mut text = [0; 4096];
    // SAFETY: the path ends with its NUL; the kernel writes at most the buffer's length.
    let len = unsafe {
        let file = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
        if file >= 0 {
            libc::close(file);
        }
        len
    };
    let status = usize::try_from(len).ok().and_then(|len| text.get(..len)).unwrap_or_default();
    fd_size(status).unwrap_or_else(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills `limit`, which lives here.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        RawFd::try_from(limit.rlim_max).unwrap_or(RawFd::MAX).min(1 << 20)
    })
}

/// The number behind `FDSize:` in the text of `/proc/self/status`.
fn fd_size(status: &[u8]) -> Option<RawFd> {
    const LABEL: &[u8] = b"\nFDSize:";
    let at = status.windows(LABEL.len()).position(|part| part == LABEL)?;
    let digits = status.get(at + LABEL.len()..)?;
    let mut size: RawFd = 0;
    for byte in digits.iter().skip_while(|byte| matches!(byte, b' ' | b'\t')) {
        match byte {
            b'0'..=b'9' => {
                size = size.checked_mul(10)?.checked_add(RawFd::from(byte - b'0'))?;
            }
            _ => break,
        }
    }
    (size > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_table_is_found_in_the_status_and_nowhere_else() {
        assert_eq!(fd_size(b"Name:\tx\nFDSize:\t256\nGroups:\t\n"), Some(256));
        assert_eq!(fd_size(b"Name:\tx\nFDSize:\t\nGroups:\t\n"), None);
        assert_eq!(fd_size(b"Name:\tFDSize:\t9\n"), None);
        assert_eq!(fd_size(b"Name:\tx\nFDSize:\t99999999999\n"), None);
        assert!(table_size() >= 64);
    }
}
