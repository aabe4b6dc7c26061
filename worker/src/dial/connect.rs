//! One TCP connection to whichever of several addresses answers first (RFC 8305).

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::libc;
use smallvec::SmallVec;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::flow::{Fault, Moment};
use crate::net::{self, Connecting, Socket};

/// How long one address may stay silent before the next one is tried beside it (RFC 8305,
/// section 5: recommended 250 ms).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// An open connection.
#[derive(Debug)]
pub struct Connected {
    /// Tuned; registered if the connect had to be waited for.
    pub socket: Socket,
    /// The address that answered.
    pub address: SocketAddr,
    /// From this address's SYN to its answer.
    pub took: Duration,
}

/// Why no address could be connected.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The list was empty, or the name did not resolve.
    #[error("no address to connect to")]
    NoAddress(#[source] Option<io::Error>),
    /// Every address failed; the last error of a peer, or of our own if there was none.
    #[error("connect to {address}")]
    Connect {
        /// The address that failed so.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// None answered in time.
    #[error("connect timed out")]
    Deadline,
}

impl DialError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Connect { error, .. } if is_local(error) => Fault::Local,
            Self::Connect { .. } | Self::NoAddress(_) | Self::Deadline => Fault::Dial,
        }
    }
}

/// Out of descriptors, memory or local ports: it would have happened with any peer.
fn is_local(error: &io::Error) -> bool {
    const OWN: [i32; 7] = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EADDRNOTAVAIL,
        libc::EADDRINUSE,
        libc::EAGAIN,
    ];
    error.raw_os_error().is_some_and(|number| OWN.contains(&number))
}

/// Connects to one of `addresses`, best first; families take turns, a further address is tried
/// when the ones before failed or were silent for [`ATTEMPT_DELAY`].
///
/// Drop the future to cancel: its sockets are closed.
///
/// # Errors
/// When all have failed or `deadline` is over.
pub async fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<Connected, DialError> {
    match Race::start(addresses, deadline) {
        Started::Over(result) => result,
        Started::Running(mut race) => poll_fn(|cx| race.poll(cx)).await,
    }
}

/// What could be known at once.
pub(super) enum Started {
    Over(Result<Connected, DialError>),
    Running(Race),
}

/// The connects under way.
pub(super) struct Race {
    /// Not yet tried, in reverse order.
    rest: SmallVec<[SocketAddr; 1]>,
    running: SmallVec<[Running; 1]>,
    failed: Option<DialError>,
    /// When the next address is tried beside the others, if there is one.
    next: Option<Pin<Box<Sleep>>>,
    deadline: Pin<Box<Sleep>>,
}

struct Running {
    socket: AsyncFd<OwnedFd>,
    address: SocketAddr,
    since: Moment,
}

impl Race {
    /// Begins with the first address. Without waiting when it is decided at once, as on
    /// loopback.
    pub(super) fn start(addresses: &[SocketAddr], deadline: Instant) -> Started {
        let mut rest = alternate(addresses);
        let mut failed = None;
        while let Some(address) = rest.pop() {
            match begin(address) {
                Ok(Begun::Connected(connected)) => return Started::Over(Ok(connected)),
                Ok(Begun::Running(running)) => {
                    let more = !rest.is_empty();
                    return Started::Running(Self {
                        rest,
                        running: SmallVec::from_buf([running]),
                        failed,
                        next: more.then(|| Box::pin(sleep(ATTEMPT_DELAY))),
                        deadline: Box::pin(sleep_until(deadline)),
                    });
                }
                Err(error) => note(&mut failed, error),
            }
        }
        Started::Over(Err(failed.unwrap_or(DialError::NoAddress(None))))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, DialError>> {
        loop {
            let mut index = 0;
            while index < self.running.len() {
                match poll_running(&self.running[index], cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(Ok(())) => {
                        let Running { socket, address, since } = self.running.swap_remove(index);
                        let took = net::now().since(since);
                        return Poll::Ready(Ok(Connected { socket: socket.into(), address, took }));
                    }
                    Poll::Ready(Err(error)) => {
                        let Running { address, .. } = self.running.swap_remove(index);
                        note(&mut self.failed, DialError::Connect { address, error });
                    }
                }
            }
            let late = |timer: &mut Pin<Box<Sleep>>| timer.as_mut().poll(cx).is_ready();
            if !self.running.is_empty() && !self.next.as_mut().is_some_and(late) {
                break;
            }
            let Some(address) = self.rest.pop() else {
                if self.running.is_empty() {
                    let error = self.failed.take().unwrap_or(DialError::NoAddress(None));
                    return Poll::Ready(Err(error));
                }
                // All are under way.
                self.next = None;
                break;
            };
            if let Some(next) = &mut self.next {
                next.as_mut().reset(Instant::now() + ATTEMPT_DELAY);
            }
            match begin(address) {
                Ok(Begun::Connected(connected)) => return Poll::Ready(Ok(connected)),
                Ok(Begun::Running(running)) => self.running.push(running),
                Err(error) => note(&mut self.failed, error),
            }
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(DialError::Deadline));
        }
        Poll::Pending
    }
}

enum Begun {
    Connected(Connected),
    Running(Running),
}

fn begin(address: SocketAddr) -> Result<Begun, DialError> {
    let failed = |error| DialError::Connect { address, error };
    let since = net::now();
    let (fd, progress) = net::connect(address).map_err(failed)?;
    match progress {
        Connecting::Done => {
            let took = net::now().since(since);
            Ok(Begun::Connected(Connected { socket: fd.into(), address, took }))
        }
        Connecting::Pending => {
            let socket = Socket::from(fd).register().map_err(failed)?;
            Ok(Begun::Running(Running { socket, address, since }))
        }
    }
}

fn poll_running(running: &Running, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let mut guard = std::task::ready!(running.socket.poll_write_ready(cx))?;
        let closed = guard.ready().is_write_closed();
        let confirmed =
            guard.try_io(|socket| match net::confirm(socket.get_ref().as_fd(), running.address)? {
                Connecting::Done => Ok(()),
                Connecting::Pending => Err(io::ErrorKind::WouldBlock.into()),
            });
        match confirmed {
            Ok(result) => return Poll::Ready(result),
            // Does not happen; waiting for a socket that is closed would spin.
            Err(_) if closed => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            Err(_) => {}
        }
    }
}

/// A peer's error says more than one of our own, and a later one as much as an earlier one.
fn note(failed: &mut Option<DialError>, error: DialError) {
    let keep = matches!(failed, Some(earlier) if earlier.fault() == Fault::Dial);
    if !keep || error.fault() == Fault::Dial {
        *failed = Some(error);
    }
}

/// Families take turns, the first address's family first; reversed, to be popped.
fn alternate(addresses: &[SocketAddr]) -> SmallVec<[SocketAddr; 1]> {
    let Some(first) = addresses.first() else { return SmallVec::new() };
    let mut same = addresses.iter().filter(|address| address.is_ipv4() == first.is_ipv4());
    let mut other = addresses.iter().filter(|address| address.is_ipv4() != first.is_ipv4());
    let mut ordered = SmallVec::with_capacity(addresses.len());
    loop {
        let (one, two) = (same.next(), other.next());
        if one.is_none() && two.is_none() {
            break;
        }
        ordered.extend(one.into_iter().chain(two).copied());
    }
    ordered.reverse();
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_the_rest_follows() {
        let list = ["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "[::1]:1", "1.0.0.4:1"];
        let addresses: Vec<SocketAddr> = list.iter().filter_map(|text| text.parse().ok()).collect();
        let mut order = alternate(&addresses);
        order.reverse();
        let expected = ["1.0.0.1:1", "[::1]:1", "1.0.0.2:1", "1.0.0.3:1", "1.0.0.4:1"];
        assert_eq!(order.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn our_own_lack_is_no_fault_of_the_line() {
        let fault = |number| {
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            let error = io::Error::from_raw_os_error(number);
            DialError::Connect { address, error }.fault()
        };
        assert_eq!(fault(libc::EMFILE), Fault::Local);
        assert_eq!(fault(libc::EADDRNOTAVAIL), Fault::Local);
        assert_eq!(fault(libc::ECONNREFUSED), Fault::Dial);
        assert_eq!(fault(libc::EHOSTUNREACH), Fault::Dial);
        assert_eq!(DialError::Deadline.fault(), Fault::Dial);
    }
}
