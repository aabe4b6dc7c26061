//! The child itself. Whatever it calls must not allocate, lock or panic: see the module above.

use std::os::fd::RawFd;

use baton_handoff::keeper::{AnswerBuffer, Asked, MAX_NUMBERS, MAX_QUESTION, Numbers, Question};

use super::OtherEnd;
use super::calls::{self, Woken};
use super::watch::{Next, Watch};

/// What a panic in the child would do: unwind into a copy of the worker. It ends instead.
struct NoWayBack;

impl Drop for NoWayBack {
    fn drop(&mut self) {
        calls::exit(101);
    }
}

/// Lives the child's life. `worker` is a pidfd.
pub(super) fn run(socket: RawFd, worker: RawFd, other_end: OtherEnd) -> ! {
    let _end = NoWayBack;
    calls::name(c"baton-keeper");
    let (watch, answer) = (Watch::new(), AnswerBuffer::new());
    let mut keeper = Child { socket, worker, other_end, watch, answer };
    while keeper.turn() {}
    calls::exit(0)
}

struct Child {
    socket: RawFd,
    worker: RawFd,
    other_end: OtherEnd,
    watch: Watch,
    answer: AnswerBuffer,
}

impl Child {
    /// Waits and acts once; `false` when its time is over.
    fn turn(&mut self) -> bool {
        let limit = match self.watch.next(calls::now_ms()) {
            Next::Sleep => None,
            Next::SleepFor(limit) => Some(limit),
            Next::GiveUp => {
                self.reset_all();
                return false;
            }
        };
        let socket = (!self.watch.peer_is_gone()).then_some(self.socket);
        let worker = (!self.watch.worker_is_dead()).then_some(self.worker);
        let Woken { readable, exited } = calls::wait(socket, worker, limit);
        if exited {
            self.watch.worker_died(calls::now_ms());
            self.let_go();
        }
        if readable { self.hear() } else { true }
    }

    /// Closes the other end where the worker died with it: as long as it is open here, nobody
    /// else's going is ever noticed.
    fn let_go(&self) {
        let OtherEnd { number, cookie } = self.other_end;
        if calls::cookie(number) == Some(cookie) {
            calls::close(number);
        }
    }

    fn hear(&mut self) -> bool {
        let mut packet = [0; MAX_QUESTION];
        let len = match calls::receive(self.socket, &mut packet) {
            Ok(0) => {
                self.watch.peer_left();
                return true;
            }
            Ok(len) => len,
            Err(calls::AGAIN) => return true,
            Err(_) => {
                self.watch.peer_left();
                return true;
            }
        };
        self.watch.heard(calls::now_ms());
        let Some(Asked { nonce, question }) = packet.get(..len).and_then(Asked::decode) else {
            return true;
        };
        // Asked here once more: the news may be behind the question in the queue of events.
        let dead = self.watch.worker_is_dead() || calls::has_exited(self.worker);
        match question {
            // Whatever the worker has is its own as long as it lives.
            Question::Exit => return false,
            _ if !dead => {
                self.answer.alive(nonce);
                self.tell();
            }
            Question::List(from) => self.list(nonce, from),
            Question::Send(numbers) => self.send(nonce, numbers),
            Question::Reset(numbers) => {
                let done = numbers.iter().filter(|number| reset(*number)).count();
                self.answer.reset(nonce, u32::try_from(done).unwrap_or(u32::MAX));
                self.tell();
            }
        }
        self.watch.heard(calls::now_ms());
        true
    }

    fn list(&mut self, nonce: u64, from: u32) {
        self.answer.list(nonce);
        let end = calls::table_size();
        for number in RawFd::try_from(from).unwrap_or(RawFd::MAX)..end {
            if calls::is_tcp_connection(number)
                && let Some(cookie) = calls::cookie(number)
                && !self.answer.listed(number, cookie)
            {
                break;
            }
        }
        self.tell();
    }

    fn send(&mut self, nonce: u64, numbers: Numbers<'_>) {
        let mut open = [0; MAX_NUMBERS];
        let mut count = 0;
        self.answer.sent(nonce);
        for number in numbers.iter() {
            let own = number == self.socket || number == self.worker;
            if !own
                && calls::is_open(number)
                && let Some(place) = open.get_mut(count)
            {
                *place = number;
                count += 1;
                self.answer.number(number);
            }
        }
        if let Err(errno) = self.reply(open.get(..count).unwrap_or_default()) {
            self.answer.failed(nonce, errno);
            self.tell();
        }
    }

    /// Sends an answer without descriptors. Where that fails there is nobody to tell it to: the
    /// asker's own time limit tells.
    fn tell(&mut self) {
        let _unheard = self.reply(&[]);
    }

    /// Sends the answer. Nobody who fetches it is no reason to wait for ever: the asker is told
    /// nothing then, and asks again if it lives.
    fn reply(&mut self, numbers: &[RawFd]) -> Result<(), i32> {
        loop {
            match calls::send(self.socket, self.answer.bytes(), numbers) {
                Err(calls::AGAIN) if calls::wait_for_room(self.socket) => {}
                Err(calls::PIPE) => {
                    self.watch.peer_left();
                    return Ok(());
                }
                result => return result,
            }
        }
    }

    fn reset_all(&self) {
        for number in 0..calls::table_size() {
            reset(number);
        }
    }
}

fn reset(number: RawFd) -> bool {
    calls::is_tcp_connection(number) && calls::abort(number)
}
