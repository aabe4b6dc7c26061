//! What to do when `accept4` fails: pure.
//!
//! A connection that died in the queue is nobody's problem. A lack of descriptors or memory
//! ends by itself, so accepting pauses 5 ms, doubling to 1 s, instead of spinning on a listener
//! that stays readable. Anything else means that the listener itself is broken.

use std::time::Duration;

use nix::errno::Errno;

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1);

/// The state of one listener's back-off.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    pause: Option<Duration>,
}

/// What to do after a failed accept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The queue is empty: wait for readiness.
    Wait,
    /// This one is lost, the next may be fine.
    Next,
    /// Our own lack: try again after the pause.
    Pause(Duration),
    /// The listener is unusable.
    Broken,
}

impl Backoff {
    /// An accept has worked: the next lack starts small again.
    pub(crate) fn worked(&mut self) {
        self.pause = None;
    }

    /// An accept has failed.
    #[allow(clippy::wildcard_enum_match_arm)] // errno is the kernel's enum, not ours
    pub(crate) fn failed(&mut self, error: Errno) -> After {
        match error {
            Errno::EAGAIN => After::Wait,
            // accept(2): errors of the new connection, reported by the call that would take it.
            Errno::EINTR
            | Errno::ECONNABORTED
            | Errno::EPROTO
            | Errno::ENOPROTOOPT
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::EHOSTUNREACH
            | Errno::EOPNOTSUPP
            | Errno::ENETUNREACH
            | Errno::ETIMEDOUT
            // A firewall's verdict on this client.
            | Errno::EPERM => After::Next,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => {
                let pause = self.pause.map_or(FIRST, |pause| (pause * 2).min(LONGEST));
                self.pause = Some(pause);
                After::Pause(pause)
            }
            _ => After::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_doubles_the_pause_up_to_a_second() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..10).map(|_| backoff.failed(Errno::EMFILE)).collect();
        let expected = [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]
            .map(|ms| After::Pause(Duration::from_millis(ms)));
        assert_eq!(pauses, expected);
    }

    #[test]
    fn a_success_starts_the_pause_anew() {
        let mut backoff = Backoff::default();
        backoff.failed(Errno::ENFILE);
        backoff.failed(Errno::ENFILE);
        backoff.worked();
        assert_eq!(backoff.failed(Errno::ENFILE), After::Pause(FIRST));
    }

    #[test]
    fn a_connection_lost_in_the_queue_pauses_nothing() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.failed(Errno::ECONNABORTED), After::Next);
        assert_eq!(backoff.failed(Errno::EAGAIN), After::Wait);
    }

    #[test]
    fn a_listener_that_is_none_is_broken() {
        assert_eq!(Backoff::default().failed(Errno::EINVAL), After::Broken);
        assert_eq!(Backoff::default().failed(Errno::EBADF), After::Broken);
    }
}
