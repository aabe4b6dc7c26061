//! Everything at once, by chance: sizes around the borders of buffers and pipes, both ways at the
//! same time, random chunks, pauses and read sizes, half-closes and resets, and the relay frozen and
//! resumed in between. Every stream must arrive exactly; of one that was reset, a beginning.
//!
//! The stream is a stretch of noise that belongs to the connection and the direction, so that loss,
//! repetition and disorder show at the byte. A seed decides everything that is not the kernel's.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::bed::*;
use crate::relay::{COPY_BUFFER, Ending, Side, TURN};

/// A prime, so that a stream that comes round does not meet a border at the same place.
const NOISE: usize = (4 << 20) - 3;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0; NOISE];
    Rng::with_seed(1).fill(&mut bytes);
    bytes
});

/// The next bytes of stream `seed` from `position` on; at least one.
fn noise(seed: u64, position: u64) -> &'static [u8] {
    let start = (seed.wrapping_mul(7919) + position) % NOISE as u64;
    &BYTES[usize::try_from(start).unwrap()..]
}

/// A size near a border: mostly small ones, since there are so many.
fn size(rng: &mut Rng) -> u64 {
    const SMALL: [usize; 5] = [2, 1448, 4096, 16 << 10, COPY_BUFFER];
    const MIDDLE: [usize; 5] =
        [2 * COPY_BUFFER, 3 * COPY_BUFFER, 4 * COPY_BUFFER, 5 * COPY_BUFFER, TURN];
    const LARGE: [usize; 3] = [512 << 10, 1 << 20, (1 << 20) + 4 * COPY_BUFFER];
    let borders: &[usize] = match rng.u8(0..10) {
        0..6 => &SMALL,
        6..9 => &MIDDLE,
        _ => &LARGE,
    };
    let border = borders[rng.usize(0..borders.len())];
    (border + rng.usize(0..5)) as u64 - 2
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Each side finishes when it has said everything.
    Clean,
    /// This side resets somewhere within its last transfer.
    Reset(Side),
}

/// Transfers a connection carries, both ways together.
const EACH: usize = 5;

/// What one side says.
#[derive(Debug)]
struct Script {
    seed: u64,
    sizes: Vec<u64>,
    /// Resets when it has said so much, instead of finishing.
    until: Option<u64>,
}

impl Script {
    fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }
}

/// How much of a stream has been read; the largest number when no more will be.
#[derive(Default)]
struct Taken(AtomicU64);

impl Taken {
    fn all(&self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

/// Says everything of `script`, or as much as the connection bears; whether it met the
/// connection's error, which the kernel tells only once, to a write or to a read.
fn speak(
    mut to: &TcpStream,
    script: &Script,
    taken: &Taken,
    relay: &Running,
    rng: &mut Rng,
) -> bool {
    let mut position = 0;
    let mut end = 0;
    for size in &script.sizes {
        end += size;
        match rng.u8(0..4) {
            // At rest: everything said before has arrived.
            0 => {
                while taken.0.load(Ordering::Acquire) < position {
                    std::thread::yield_now();
                }
            }
            1 => pause(rng),
            _ => {}
        }
        let most = [1 << 7, 1 << 12, 1 << 15, 1 << 18, 1 << 22][rng.usize(0..5)];
        while position < end {
            let left = script.until.unwrap_or(end).min(end) - position;
            if left == 0 {
                crate::net::abort(to.as_fd()).unwrap();
                return false;
            }
            let bytes = noise(script.seed, position);
            let chunk = rng.usize(1..=most).min(bytes.len()).min(usize::try_from(left).unwrap());
            if to.write_all(&bytes[..chunk]).is_err() {
                return true;
            }
            position += chunk as u64;
            match rng.u8(0..64) {
                0 => pause(rng),
                1 => {
                    relay.order(Order::Move);
                }
                _ => {}
            }
        }
    }
    // Fails when the connection is gone, and takes no error.
    let _gone = to.shutdown(std::net::Shutdown::Write);
    false
}

fn pause(rng: &mut Rng) {
    (0..rng.u8(..)).for_each(|_| std::thread::yield_now());
}

/// Reads and compares until the stream ends; returns how much came, and whether it ended in order.
fn hear(mut from: &TcpStream, seed: u64, taken: &Taken, rng: &mut Rng) -> (u64, bool) {
    let mut buffer = vec![0; [1 << 10, 1 << 15, 1 << 18][rng.usize(0..3)]];
    let slow = rng.u8(0..4) == 0;
    let mut position = 0;
    let orderly = loop {
        if slow && rng.u8(0..8) == 0 {
            pause(rng);
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => break true,
            Ok(count) => count,
            Err(error) => {
                // The last two on the side that resets, depending on what the read was doing.
                let broken =
                    [ErrorKind::ConnectionReset, ErrorKind::NotConnected, ErrorKind::BrokenPipe];
                assert!(broken.contains(&error.kind()), "{error}");
                break false;
            }
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let expected = noise(seed, position);
            let (now, later) = rest.split_at(rest.len().min(expected.len()));
            assert!(now == &expected[..now.len()], "stream {seed} is wrong after {position}");
            position += now.len() as u64;
            rest = later;
        }
        taken.0.store(position, Ordering::Release);
    };
    taken.all();
    (position, orderly)
}

/// One connection; returns how often it was frozen and resumed.
fn connect(number: u64, seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let fate = match rng.u8(0..10) {
        0 => Fate::Reset(Side::Client),
        1 => Fate::Reset(Side::Upstream),
        _ => Fate::Clean,
    };
    let up = rng.usize(0..=EACH);
    let mut script = |side, count: usize, seed| {
        let sizes: Vec<u64> = (0..count).map(|_| size(&mut rng)).collect();
        let last = sizes.last().copied().unwrap_or(0);
        let before = sizes.iter().sum::<u64>() - last;
        // A side with nothing to say can only finish.
        let resets = fate == Fate::Reset(side) && last > 0;
        let until = resets.then(|| before + rng.u64(0..last));
        Script { seed, sizes, until }
    };
    let ups = script(Side::Client, up, 2 * number);
    let downs = script(Side::Upstream, EACH - up, 2 * number + 1);
    let (client, upstream, relay) = connection();
    for peer in [&client, &upstream] {
        peer.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        peer.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
    }
    let (up_taken, down_taken) = (Taken::default(), Taken::default());
    let mut rngs = (rng.fork(), rng.fork(), rng.fork(), rng.fork());
    let (heard_up, heard_down) = std::thread::scope(|scope| {
        let (client, upstream, relay) = (&client, &upstream, &relay);
        let (ups, downs, up_taken, down_taken) = (&ups, &downs, &up_taken, &down_taken);
        let told_client = scope.spawn(move || speak(client, ups, up_taken, relay, &mut rngs.0));
        let told_upstream =
            scope.spawn(move || speak(upstream, downs, down_taken, relay, &mut rngs.1));
        let heard_up = scope.spawn(move || hear(upstream, ups.seed, up_taken, &mut rngs.2));
        let (down, down_ended) = hear(client, downs.seed, down_taken, &mut rngs.3);
        let (up, up_ended) = heard_up.join().unwrap();
        let (told_client, told_upstream) =
            (told_client.join().unwrap(), told_upstream.join().unwrap());
        ((up, up_ended && !told_upstream), (down, down_ended && !told_client))
    });
    let report = relay.end();
    let outcome = report.outcome.unwrap();
    let about = format!("connection {number} of seed {seed}: {ups:?}, {downs:?}, {outcome:?}");
    assert_eq!(report.pipes.0, 0, "a pipe was not given back: {about}");
    assert_eq!(report.tallied, (outcome.to_upstream, outcome.to_client), "{about}");
    let leaver = match (ups.until, downs.until) {
        (Some(_), _) => Some(Side::Client),
        (None, Some(_)) => Some(Side::Upstream),
        (None, None) => None,
    };
    match (leaver, &outcome.ending) {
        (None, Ending::Clean) => {
            assert_eq!(heard_up, (ups.total(), true), "{about}");
            assert_eq!(heard_down, (downs.total(), true), "{about}");
            assert_eq!(report.tallied, (ups.total(), downs.total()), "{about}");
        }
        (Some(leaver), Ending::Failed(failure)) => {
            assert_eq!(failure.side, leaver, "{about}");
            let (said, heard) = match leaver {
                Side::Client => (ups.until, heard_up),
                Side::Upstream => (downs.until, heard_down),
            };
            assert!(Some(heard.0) <= said && !heard.1, "heard {heard:?} from the leaver: {about}");
        }
        (_, Ending::Clean | Ending::Failed(_) | Ending::Cut(_)) => panic!("{about}"),
    }
    report.moves
}

/// So many transfers, on a few connections at a time.
fn transfers(count: usize, seed: u64) {
    let connections = (count / EACH) as u64;
    let (next, moves) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= connections {
                        return;
                    }
                    moves.fetch_add(connect(number, seed), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{count} transfers, {connections} connections, moved {moves:?} times, seed {seed}");
}

#[test]
fn a_thousand_transfers_are_exact() {
    transfers(1000, 1);
}

/// `just oracle`, with a seed of its own each time.
#[test]
#[ignore = "minutes without optimisation; `just oracle` runs it"]
fn fifty_thousand_transfers_are_exact() {
    let seed = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse().ok());
    transfers(50_000, seed.unwrap_or_else(|| fastrand::u64(..)));
}
