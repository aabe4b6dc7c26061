//! One connection: two sockets, two directions, and how they end together.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use baton_handoff::table::{Slot, State};
use tokio::io::unix::AsyncFd;

use crate::net::{self, Socket, TcpState};

use super::closing::Closing;
use super::conduit::Conduit;
use super::context::RelayContext;
use super::control::{Command, Control};
use super::journal::Journal;
use super::outcome::{End, Ending, Failure, Operation, Outcome, Side};
use super::pump::{Progress, Surroundings, pump};
use super::state::{Flow, Frozen, SourceEnd};
use super::{Direction, Tally};

/// The two sockets, as long as the connection lives.
#[derive(Debug)]
struct Ends {
    client: Conduit,
    upstream: Conduit,
}

impl Ends {
    /// Source and sink of a direction.
    fn along(&mut self, direction: Direction) -> (&mut Conduit, &mut Conduit) {
        match direction {
            Direction::ToUpstream => (&mut self.client, &mut self.upstream),
            Direction::ToClient => (&mut self.upstream, &mut self.client),
        }
    }

    fn reset(self) {
        net::reset(self.client.into_fd());
        net::reset(self.upstream.into_fd());
    }
}

/// The future that relays one connection until it ends, is cut or frozen.
///
/// Must be polled within the runtime that made it. Dropping it before it is ready resets both
/// sides. It waits on epoll alone; a timer exists only while a broken connection is emptied.
#[derive(Debug)]
pub struct Relay<T: Tally> {
    /// `None` when the future has given its result.
    ends: Option<Ends>,
    core: Core<T>,
}

/// All of a connection but its sockets.
#[derive(Debug)]
struct Core<T> {
    to_upstream: Flow,
    to_client: Flow,
    context: Rc<RelayContext>,
    control: Rc<Control>,
    tally: T,
    journal: Journal,
    /// The first failure; the side it happened on is broken.
    failure: Option<Failure>,
    closing: Option<Box<Closing>>,
}

impl<T: Tally> Relay<T> {
    /// Relays between two connected sockets; the upstream gets `preface` first, which the
    /// client has already sent (it may be empty).
    ///
    /// # Errors
    /// When epoll takes a socket not; both are then closed with a reset.
    pub fn new(
        client: Socket,
        upstream: Socket,
        preface: Vec<u8>,
        context: Rc<RelayContext>,
        control: Rc<Control>,
        tally: T,
    ) -> Result<Self, Outcome> {
        let flows = (Flow::new(preface), Flow::new(Vec::new()));
        Self::start(client, upstream, flows, context, control, tally)
    }

    /// Goes on where [`End::Frozen`] stopped, here or in another process. Both sockets'
    /// readiness is reported afresh on registration, so nothing is missed.
    ///
    /// # Errors
    /// As [`Relay::new`].
    pub fn resume(
        frozen: Frozen,
        context: Rc<RelayContext>,
        control: Rc<Control>,
        tally: T,
    ) -> Result<Self, Outcome> {
        let Frozen { client, upstream, to_upstream, to_client } = frozen;
        let flows = (to_upstream, to_client);
        Self::start(client.into(), upstream.into(), flows, context, control, tally)
    }

    fn start(
        client: Socket,
        upstream: Socket,
        (to_upstream, to_client): (Flow, Flow),
        context: Rc<RelayContext>,
        control: Rc<Control>,
        tally: T,
    ) -> Result<Self, Outcome> {
        let ends = register(client, upstream).map_err(|failure| Outcome {
            ending: Ending::Failed(failure),
            to_upstream: to_upstream.total,
            to_client: to_client.total,
        })?;
        for flow in [&to_upstream, &to_client] {
            if flow.pipe.is_some() {
                context.pipes.borrow_mut().adopt();
            }
        }
        let core = Core {
            to_upstream,
            to_client,
            context,
            control,
            tally,
            journal: Journal::default(),
            failure: None,
            closing: None,
        };
        Ok(Self { ends: Some(ends), core })
    }

    /// Notes in `slot` whatever a successor has to know, from now until the end. The slot must
    /// name this connection's sockets and must not be open yet: it is opened here. To be called
    /// before the first poll.
    #[must_use]
    pub fn journaled(mut self, slot: Slot) -> Self {
        let Core { to_upstream, to_client, .. } = &self.core;
        let flows = [(Direction::ToUpstream, to_upstream), (Direction::ToClient, to_client)];
        self.core.journal = Journal::begin(slot, flows);
        self
    }

    /// The record of a connection that was frozen; `None` when it has none, or has ended.
    #[must_use]
    pub fn into_slot(mut self) -> Option<Slot> {
        std::mem::take(&mut self.core.journal).into_slot()
    }
}

impl<T: Tally> Core<T> {
    /// Gives both directions their turn. `true` when one of them has more to do at once.
    fn turn(&mut self, ends: &mut Ends, cx: &mut Context<'_>) -> bool {
        loop {
            let breaks = (ends.client.is_broken(), ends.upstream.is_broken());
            let more_up = self.run(ends, Direction::ToUpstream, cx);
            let more_down = self.run(ends, Direction::ToClient, cx);
            self.watch(ends, Direction::ToUpstream, cx);
            self.watch(ends, Direction::ToClient, cx);
            // A side that broke just now changes what the other direction has to do.
            if breaks == (ends.client.is_broken(), ends.upstream.is_broken()) {
                return more_up || more_down;
            }
        }
    }

    /// Runs one direction. `true` when it stopped only to let others run.
    fn run(&mut self, ends: &mut Ends, direction: Direction, cx: &mut Context<'_>) -> bool {
        let (flow, other) = match direction {
            Direction::ToUpstream => (&mut self.to_upstream, &self.to_client),
            Direction::ToClient => (&mut self.to_client, &self.to_upstream),
        };
        let (source, sink) = ends.along(direction);
        if sink.is_broken() {
            discard(flow, &self.context);
            return false;
        }
        let around = Surroundings {
            context: &self.context,
            control: &self.control,
            tally: &self.tally,
            journal: &self.journal,
            direction,
        };
        loop {
            match pump(flow, source, sink, &around, cx) {
                Progress::Waiting => return false,
                Progress::Yielded => return true,
                Progress::Over => {}
                Progress::Failed(Operation::Write, error) => {
                    sink.set_broken();
                    let side = direction.to();
                    note(
                        &mut self.failure,
                        (&self.journal, &self.control),
                        side,
                        Operation::Write,
                        error,
                    );
                    discard(flow, &self.context);
                    return false;
                }
                Progress::Failed(operation, error) => {
                    source.set_broken();
                    flow.end = Some(SourceEnd::Broken);
                    note(
                        &mut self.failure,
                        (&self.journal, &self.control),
                        direction.from(),
                        operation,
                        error,
                    );
                    continue;
                }
            }
            // The FIN is passed on, unless the close of both sockets is about to do that.
            if flow.end == Some(SourceEnd::Fin) && !flow.fin_sent && !other.is_over() {
                if let Err(error) = net::shut_write(sink.fd()) {
                    sink.set_broken();
                    note(
                        &mut self.failure,
                        (&self.journal, &self.control),
                        direction.to(),
                        Operation::Write,
                        error,
                    );
                    return false;
                }
                flow.fin_sent = true;
                self.journal.fin_sent(direction);
            }
            return false;
        }
    }

    /// Notices that a side which has ended its stream is gone altogether, while the other
    /// direction still has, or may get, something for it.
    fn watch(&mut self, ends: &mut Ends, direction: Direction, cx: &mut Context<'_>) {
        let (from_it, to_it) = match direction {
            Direction::ToUpstream => (&mut self.to_upstream, &self.to_client),
            Direction::ToClient => (&mut self.to_client, &self.to_upstream),
        };
        let (side, _) = ends.along(direction);
        let half_closed = from_it.end == Some(SourceEnd::Fin) && !to_it.is_over();
        if !half_closed || side.is_broken() || side.is_blocked() {
            return;
        }
        if side.poll_hangup(cx).is_ready() {
            side.set_broken();
            from_it.end = Some(SourceEnd::Broken);
            let error = io::ErrorKind::ConnectionReset.into();
            note(
                &mut self.failure,
                (&self.journal, &self.control),
                direction.from(),
                Operation::Watch,
                error,
            );
        }
    }

    /// Whether the connection is over, after a turn.
    fn settle(&mut self, ends: &Ends, cx: &mut Context<'_>) -> Poll<()> {
        let (flow, sink) = match (ends.client.is_broken(), ends.upstream.is_broken()) {
            (false, false) if self.to_upstream.is_over() && self.to_client.is_over() => {
                return Poll::Ready(());
            }
            (false, false) => return Poll::Pending,
            (true, true) => return Poll::Ready(()),
            (true, false) => (&self.to_upstream, &ends.upstream),
            (false, true) => (&self.to_client, &ends.client),
        };
        let closing = self.closing.get_or_insert_with(|| Box::new(Closing::new()));
        closing.poll(cx, || {
            let unsent = match net::tcp_state(sink.fd()) {
                Ok(TcpState::Closed) | Err(_) => return (flow.total, 0, false),
                Ok(_) => net::unsent(sink.fd()).unwrap_or(0),
            };
            (flow.total, unsent as u64, !flow.is_over())
        })
    }

    fn outcome(&self, ending: Ending) -> Outcome {
        Outcome { ending, to_upstream: self.to_upstream.total, to_client: self.to_client.total }
    }

    /// The kernel watches over a connection that lasts. The client's socket has that from its
    /// listener; the upstream's gets it here, and once more in each process that resumes it.
    fn prepare_to_last(&self, ends: &Ends) {
        if let Err(error) = net::keep_alive(ends.upstream.fd()) {
            tracing::debug!(%error, "cannot keep a connection alive");
        }
    }

    /// Leaves nothing lent behind.
    fn discard_flows(&mut self) {
        discard(&mut self.to_upstream, &self.context);
        discard(&mut self.to_client, &self.context);
    }

    fn freeze(&mut self, ends: Ends) -> Box<Frozen> {
        let empty = || Flow::new(Vec::new());
        let to_upstream = std::mem::replace(&mut self.to_upstream, empty());
        let to_client = std::mem::replace(&mut self.to_client, empty());
        for flow in [&to_upstream, &to_client] {
            if flow.pipe.is_some() {
                self.context.pipes.borrow_mut().forget();
            }
        }
        Box::new(Frozen {
            client: ends.client.into_fd(),
            upstream: ends.upstream.into_fd(),
            to_upstream,
            to_client,
        })
    }
}

impl<T: Tally + Unpin> Future for Relay<T> {
    type Output = End;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End> {
        let Self { ends, core } = self.get_mut();
        let Some(live) = ends.as_mut() else {
            // Polled after it was ready: a caller's mistake that must not bring the process down.
            return Poll::Pending;
        };
        let order = match core.control.listen(cx) {
            // A broken connection is not worth moving; it ends by itself.
            Some(Command::Freeze) if core.failure.is_some() => None,
            order => order,
        };
        if order.is_none() {
            if core.control.is_to_last() {
                core.prepare_to_last(live);
            }
            let more = core.turn(live, cx);
            if core.settle(live, cx).is_pending() {
                if more {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
        }
        let Some(ends) = ends.take() else { return Poll::Pending };
        let ending = match (order, core.failure.take()) {
            (Some(Command::Freeze), _) => return Poll::Ready(End::Frozen(core.freeze(ends))),
            (Some(Command::Cut(reason)), _) => {
                core.journal.state(State::Doomed);
                ends.reset();
                Ending::Cut(reason)
            }
            (None, Some(failure)) => {
                ends.reset();
                Ending::Failed(failure)
            }
            // Both streams were read to their end: closing sends the FINs that are still due.
            (None, None) => {
                core.journal.state(State::Finishing);
                drop(ends);
                Ending::Clean
            }
        };
        core.journal.end();
        core.discard_flows();
        Poll::Ready(End::Closed(core.outcome(ending)))
    }
}

impl<T: Tally> Drop for Relay<T> {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            self.core.journal.state(State::Doomed);
            self.core.discard_flows();
            ends.reset();
        }
    }
}

/// Registers both sockets, or resets both.
fn register(client: Socket, upstream: Socket) -> Result<Ends, Failure> {
    let failed = |side, error| Failure { side, operation: Operation::Register, error };
    let client = match client.register() {
        Ok(client) => client,
        Err(error) => {
            net::reset(upstream.into_fd());
            return Err(failed(Side::Client, error));
        }
    };
    let upstream = match upstream.register() {
        Ok(upstream) => upstream,
        Err(error) => {
            net::reset(AsyncFd::<OwnedFd>::into_inner(client));
            return Err(failed(Side::Upstream, error));
        }
    };
    Ok(Ends { client: Conduit::new(client), upstream: Conduit::new(upstream) })
}

/// Drops what a direction holds: there is nobody to give it to. A pipe with bytes in it is
/// closed, not reused.
fn discard(flow: &mut Flow, context: &RelayContext) {
    if flow.pipe.take().is_some() {
        context.pipes.borrow_mut().forget();
    }
    flow.drop_bytes();
}

/// From now on nothing but a reset can come of the connection: a successor that found one side's
/// error taken would see an orderly end there.
fn note(
    failure: &mut Option<Failure>,
    (journal, control): (&Journal, &Control),
    side: Side,
    operation: Operation,
    error: io::Error,
) {
    journal.state(State::Doomed);
    control.mark_broken();
    if failure.is_none() {
        *failure = Some(Failure { side, operation, error });
    }
}

impl Direction {
    /// Where its bytes come from.
    fn from(self) -> Side {
        match self {
            Self::ToUpstream => Side::Client,
            Self::ToClient => Side::Upstream,
        }
    }

    /// Where its bytes go.
    fn to(self) -> Side {
        match self {
            Self::ToUpstream => Side::Upstream,
            Self::ToClient => Side::Client,
        }
    }
}
