//! Executes the steps of a selection machine.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::flow::{AttemptId, Event, Fault, GiveUp, LineIndex, Moment, Quota, Select, Step, Steps};
use crate::net::{self, Socket};

use super::attempt::{self, Few, Prepared, Soon, Waiting, instant};
use super::bulkhead::{Full, Permit};
use super::{Client, Lines};

/// The socket the connection will use.
#[derive(Debug)]
pub struct Upstream {
    /// The attempt that won.
    pub attempt: AttemptId,
    /// Connected and prepared.
    pub socket: Socket,
    /// The address that answered; `None` for a prewarmed socket.
    pub address: Option<SocketAddr>,
    /// The pure connect time; `None` for a prewarmed socket.
    pub connect: Option<Duration>,
}

/// Why there is no upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The machine gave up.
    GaveUp(GiveUp),
    /// The client left first; whatever was under way has been cancelled.
    ClientGone,
    /// The machine neither waits for anything nor has decided. A defect of the machine; ends the
    /// connection instead of waiting for ever.
    Stuck,
}

/// Runs `machine` to its end. With a `client`, stops when it leaves.
///
/// Drop the future to cancel. Steps that need no waiting are executed in place: a dial that is
/// decided at once never yields to the runtime.
///
/// # Errors
/// [`Stopped`] says why there is no upstream.
pub async fn drive<M: Select, L: Lines>(
    machine: &mut M,
    lines: &L,
    mut client: Option<&mut Client>,
) -> Result<Upstream, Stopped> {
    let mut drive = Drive { lines, attempts: Few::new(), happened: Few::new(), wake: None };
    let mut steps = Steps::new();
    machine.start(net::now(), &mut steps);
    loop {
        let now = net::now();
        if let Some(end) = drive.execute(&mut steps, now) {
            return end;
        }
        let event = match drive.next_happened() {
            Some(event) => event,
            None if drive.attempts.is_empty() && drive.wake.is_none() => {
                return Err(Stopped::Stuck);
            }
            None => {
                let event = poll_fn(|cx| {
                    if let Some(client) = &mut client
                        && client.poll_gone(cx).is_ready()
                    {
                        return Poll::Ready(Err(Stopped::ClientGone));
                    }
                    drive.poll(cx).map(Ok)
                });
                event.await?
            }
        };
        machine.on(event, net::now(), &mut steps);
    }
}

struct Drive<'a, L> {
    lines: &'a L,
    attempts: Few<Attempt>,
    /// Events that were known at once, in order.
    happened: Few<Event>,
    wake: Option<Pin<Box<Sleep>>>,
}

struct Attempt {
    id: AttemptId,
    line: LineIndex,
    deadline: Instant,
    state: State,
}

enum State {
    /// Waits for its place.
    Queued(Waiting<Result<Permit, Full>>),
    /// Connects, or writes its preparation.
    Dialling(Waiting<Result<Prepared, Fault>>),
    /// Waits for the machine's word.
    Prepared(Prepared),
}

impl<L: Lines> Drive<'_, L> {
    /// Executes and empties `steps`. `Some` when the machine is done.
    fn execute(&mut self, steps: &mut Steps, now: Moment) -> Option<Result<Upstream, Stopped>> {
        for step in steps.drain(..) {
            match step {
                Step::Dial { attempt, line, deadline, quota, fresh } => {
                    self.begin(attempt, line, instant(deadline, now), quota, fresh);
                }
                Step::WakeAt(moment) => {
                    let at = instant(moment, now);
                    match &mut self.wake {
                        Some(timer) => timer.as_mut().reset(at),
                        None => self.wake = Some(Box::pin(sleep_until(at))),
                    }
                }
                Step::Cancel(id) => {
                    self.attempts.retain(|attempt| attempt.id != id);
                    self.happened.retain(|event| of(event) != Some(id));
                }
                Step::Use(id) => return Some(self.take(id)),
                Step::GiveUp(reason) => return Some(Err(Stopped::GaveUp(reason))),
            }
        }
        None
    }

    fn take(&mut self, id: AttemptId) -> Result<Upstream, Stopped> {
        let place = self.attempts.iter().position(|attempt| attempt.id == id);
        let Some(place) = place else { return Err(Stopped::Stuck) };
        match self.attempts.swap_remove(place).state {
            State::Prepared(Prepared { socket, address, connect }) => {
                Ok(Upstream { attempt: id, socket, address, connect })
            }
            State::Queued(_) | State::Dialling(_) => Err(Stopped::Stuck),
        }
    }

    fn begin(
        &mut self,
        id: AttemptId,
        line: LineIndex,
        deadline: Instant,
        quota: Quota,
        fresh: bool,
    ) {
        if !fresh && let Some(fd) = self.lines.prewarmed(line) {
            let ready = Prepared { socket: fd.into(), address: None, connect: None };
            let prepared = attempt::prepare(self.lines, line, ready, deadline);
            self.dialled(id, line, deadline, prepared);
            return;
        }
        match attempt::place(self.lines, line, quota, deadline) {
            Soon::Now(permit) => self.placed(id, line, deadline, permit),
            Soon::Later(waiting) => {
                let state = State::Queued(waiting);
                self.attempts.push(Attempt { id, line, deadline, state });
            }
        }
    }

    fn placed(
        &mut self,
        id: AttemptId,
        line: LineIndex,
        deadline: Instant,
        permit: Result<Permit, Full>,
    ) {
        match permit {
            Ok(permit) => {
                self.happened.push(Event::Started(id));
                let dialling = attempt::dial(self.lines, line, deadline, permit);
                self.dialled(id, line, deadline, dialling);
            }
            Err(Full::Target) => self.happened.push(Event::TargetFull(id)),
            Err(Full::Process) => self.happened.push(Event::ProcessFull(id)),
        }
    }

    fn dialled(
        &mut self,
        id: AttemptId,
        line: LineIndex,
        deadline: Instant,
        result: Soon<Result<Prepared, Fault>>,
    ) {
        let state = match result {
            Soon::Now(Ok(prepared)) => {
                self.happened.push(Event::Connected { attempt: id, connect: prepared.connect });
                State::Prepared(prepared)
            }
            Soon::Now(Err(fault)) => {
                self.happened.push(Event::Failed { attempt: id, fault });
                return;
            }
            Soon::Later(waiting) => State::Dialling(waiting),
        };
        self.attempts.push(Attempt { id, line, deadline, state });
    }

    fn next_happened(&mut self) -> Option<Event> {
        (!self.happened.is_empty()).then(|| self.happened.remove(0))
    }

    /// Waits for the next event of any attempt, or the wake-up.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let mut index = 0;
        while index < self.attempts.len() {
            let ready = match &mut self.attempts[index].state {
                State::Queued(waiting) => waiting.as_mut().poll(cx).map(Progress::Placed),
                State::Dialling(waiting) => waiting.as_mut().poll(cx).map(Progress::Dialled),
                State::Prepared(_) => Poll::Pending,
            };
            let Poll::Ready(progress) = ready else {
                index += 1;
                continue;
            };
            let Attempt { id, line, deadline, .. } = self.attempts.remove(index);
            match progress {
                Progress::Placed(permit) => self.placed(id, line, deadline, permit),
                Progress::Dialled(result) => self.dialled(id, line, deadline, Soon::Now(result)),
            }
            if let Some(event) = self.next_happened() {
                return Poll::Ready(event);
            }
        }
        if let Some(timer) = &mut self.wake
            && timer.as_mut().poll(cx).is_ready()
        {
            self.wake = None;
            return Poll::Ready(Event::Woke);
        }
        Poll::Pending
    }
}

enum Progress {
    Placed(Result<Permit, Full>),
    Dialled(Result<Prepared, Fault>),
}

/// The attempt an event is about.
fn of(event: &Event) -> Option<AttemptId> {
    match event {
        Event::Started(id) | Event::TargetFull(id) | Event::ProcessFull(id) => Some(*id),
        Event::Connected { attempt, .. } | Event::Failed { attempt, .. } => Some(*attempt),
        Event::Woke => None,
    }
}
