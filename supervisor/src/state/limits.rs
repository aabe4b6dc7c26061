//! Every fixed limit of the machine, with its reason.

use std::time::Duration;

/// Reading the configuration and the new binary's self-check together. A check takes
/// milliseconds; half a minute forgives a cold disk and a machine that runs a hundred things at
/// once. Nothing has been touched by then.
pub(super) const CHECK: Duration = Duration::from_secs(30);

/// From starting the process to its `Hello`, which it says before it reads anything. Holds while
/// another worker serves; the only one there is gets as long as for being ready.
pub(super) const HELLO: Duration = Duration::from_secs(10);

/// From `Activate` to a fresh worker's `Active`: everything is compiled and held by then, what is
/// left is an epoll registration a socket. The old worker accepts meanwhile, so what a loaded
/// machine makes of it costs nobody anything.
pub(super) const TAKEOVER: Duration = Duration::from_secs(10);

/// From `Quiesce` to `Quiesced`: as little work, and a new worker that serves already.
pub(super) const SHIFT: Duration = Duration::from_secs(2);

/// What the old worker gets to take the listeners up again: it is the last one that could serve,
/// and the machine may be as loaded as whatever broke the new one.
pub(super) const REVERT: Duration = Duration::from_secs(10);

/// A closed channel usually means that the process is ending; its exit status says more than the
/// channel can, so it is given this long to arrive.
pub(super) const EXIT_AFTER_CLOSE: Duration = Duration::from_millis(500);

/// A worker cuts its connections itself at the end of the drain time; one that has not ended this
/// much later does not keep time and gets a SIGTERM.
pub(super) const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// From SIGTERM, or from the order to cut at once, to SIGKILL.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(2);

/// What the giver of connections gets beyond its time to say that it has come to an end.
pub(super) const GIVE_GRACE: Duration = Duration::from_secs(5);

/// From `Recover` to `Recovered`. As long as a keeper waits for the next question: later there is
/// nothing left to carry on.
pub(super) const RECOVERY: Duration = Duration::from_secs(30);

/// How long after an upgrade the build before is at hand: a build that cannot live under this
/// instance's load shows it by then.
pub(super) const YOUNG: Duration = Duration::from_secs(600);

/// More failures than this, none of them after a minute of service, and the build before takes
/// over where there is one at hand.
pub(super) const CRASHES: u32 = 3;

/// Workers that may be retiring at once; one more upgrade is refused.
pub(super) const RETIRING: usize = 8;

/// Sockets a plan may ask for: 256 rules and the admin listener, with room for what later
/// releases add. A worker that asks for more is out of its mind.
pub(super) const PLAN: usize = 1024;

/// How long a worker's silence is borne before it is asked, and how long it has to answer then.
/// Workers show a sign of life once a second without being asked. Asking before killing matters
/// after the supervisor itself was held up: what the worker said meanwhile is still unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    pub(super) silence: Duration,
    pub(super) answer: Duration,
}

/// For the worker that serves, and for the one that gives its connections away or stands by:
/// three missed signs, then seven seconds, far beyond what a loaded machine does to a thread that
/// has little to do. Killing one that is only slow costs the connections whose bytes it had in its
/// memory; bearing one that hangs costs everybody who waits for it.
pub(super) const SERVING: Patience =
    Patience { silence: Duration::from_secs(3), answer: Duration::from_secs(7) };

/// For a new worker inside the watch window: three missed signs, then three more seconds. The old
/// worker stands by, so doubt costs little.
pub(super) const WATCHED: Patience =
    Patience { silence: Duration::from_secs(3), answer: Duration::from_secs(3) };
