//! One worker's connections to the driver: who reads its channel, who writes it, who waits for
//! its end.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use baton_handoff::message::{ToSupervisor, ToWorker, WorkerId};
use baton_handoff::version::Version;
use baton_handoff::{Fault, Received, RecvError, SendError, SupervisorEnd};
use baton_metrics::Region;
use socket2::Socket;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, spawn_local};

use super::clock::Clock;
use super::launch::Launched;
use super::lifeline::Lifeline;
use super::questions::Questions;
use super::rate::Rate;
use crate::action::Force;
use crate::event::Event;
use crate::underway::{Hold, Underway};

/// How often, and how many times, a message is tried again whose descriptors the kernel does not
/// take because too many are in flight. It tells nobody when there is room again.
const RETRY: Duration = Duration::from_millis(20);
const RETRIES: u32 = 100;

/// Descriptors that travel with a message.
pub(crate) enum Cargo {
    Nothing,
    Region(Region),
    Adoption(OwnedFd),
    Sockets(Vec<Rc<Socket>>),
    Channel(OwnedFd),
    Lifelines(Vec<Rc<Lifeline>>),
}

/// A message and its descriptors.
pub(crate) struct Parcel {
    pub(crate) message: ToWorker,
    pub(crate) cargo: Cargo,
    _hold: Hold,
}

/// A live worker. Dropping it closes our end of the channel.
pub(crate) struct Live {
    pub(crate) pid: u32,
    end: Rc<SupervisorEnd>,
    underway: Underway,
    /// Unbounded in type only: a worker that does not read is silent too, and killed for it.
    outbox: mpsc::UnboundedSender<Parcel>,
    signals: mpsc::UnboundedSender<Force>,
    questions: Questions,
    /// The newest that it has given us.
    lifeline: Rc<RefCell<Option<Rc<Lifeline>>>>,
    tasks: [AbortHandle; 2],
}

impl Live {
    /// Begins to attend to a started worker; what it says and how it ends arrives in `events`.
    pub(crate) fn attend(
        id: WorkerId,
        launched: Launched,
        end: SupervisorEnd,
        events: &mpsc::Sender<Event>,
        underway: &Underway,
        clock: Clock,
    ) -> Self {
        let end = Rc::new(end);
        let (outbox, parcels) = mpsc::unbounded_channel();
        let questions = Questions::default();
        let mailbox = Mailbox { worker: id, events: events.clone(), underway: underway.clone() };
        let rate = Rc::new(Rate::new(clock.now()));
        let lifeline = Rc::new(RefCell::new(None));
        let heard = Heard {
            questions: questions.clone(),
            lifeline: Rc::clone(&lifeline),
            rate: Rc::clone(&rate),
            clock,
        };
        let (ended, end_seen) = oneshot::channel();
        let reader = spawn_local(read(heard, Rc::clone(&end), end_seen, mailbox.clone()));
        let writer = spawn_local(write(Rc::clone(&end), parcels, rate, mailbox.clone()));
        let tasks = [reader.abort_handle(), writer.abort_handle()];
        let Launched { pid, exit, signals } = launched;
        spawn_local(async move {
            let exit = exit.await;
            let _hold = mailbox.underway.hold();
            // Gone when the channel has ended before.
            let _reader = ended.send(());
            let _read_or_aborted = reader.await;
            mailbox.put(Event::Exited { worker: id, exit }).await;
        });
        let underway = underway.clone();
        Self { pid, end, underway, outbox, signals, questions, lifeline, tasks }
    }

    /// Queues a message. To a worker that is dead it goes nowhere.
    pub(crate) fn send(&self, message: ToWorker, cargo: Cargo) {
        let _dead = self.outbox.send(Parcel { message, cargo, _hold: self.underway.hold() });
    }

    /// Our end of its channel and the protocol agreed on, for the next image of this process.
    pub(crate) fn channel(&self) -> (BorrowedFd<'_>, Option<Version>) {
        (self.end.as_fd(), self.end.version())
    }

    /// What its connections can be carried on with, of one that was adopted or left to this image.
    pub(crate) fn keep_lifeline(&self, lifeline: Lifeline) {
        *self.lifeline.borrow_mut() = Some(Rc::new(lifeline));
    }

    /// What its connections can be carried on with, if it has given it to us.
    pub(crate) fn take_lifeline(&self) -> Option<Rc<Lifeline>> {
        self.lifeline.borrow_mut().take()
    }

    /// As [`Live::take_lifeline`], which stays where it is.
    pub(crate) fn lifeline(&self) -> Option<Rc<Lifeline>> {
        self.lifeline.borrow().clone()
    }

    /// What it was asked for others.
    pub(crate) fn questions(&self) -> &Questions {
        &self.questions
    }

    /// Sends a signal, unless the process was reaped.
    pub(crate) fn signal(&self, force: Force) {
        let _dead = self.signals.send(force);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What a worker's messages are held against.
struct Heard {
    questions: Questions,
    lifeline: Rc<RefCell<Option<Rc<Lifeline>>>>,
    rate: Rc<Rate>,
    clock: Clock,
}

/// Where what a worker's tasks find out goes.
#[derive(Clone)]
struct Mailbox {
    worker: WorkerId,
    events: mpsc::Sender<Event>,
    underway: Underway,
}

impl Mailbox {
    /// Whether it was taken. The driver is gone only when the process ends as well.
    async fn put(&self, event: Event) -> bool {
        let _hold = self.underway.hold();
        self.events.send(event).await.is_ok()
    }
}

/// Reads until the channel ends or the process has (`ended`): then what it had said before is read
/// to the last message, because that may say why. No end of the channel is waited for, since the
/// worker's keeper holds the other end open.
async fn read(
    heard: Heard,
    end: Rc<SupervisorEnd>,
    mut ended: oneshot::Receiver<()>,
    mailbox: Mailbox,
) {
    let Heard { questions, lifeline, rate, clock } = heard;
    let worker = mailbox.worker;
    let mut dead = false;
    loop {
        let received = match dead {
            false => tokio::select! {
                biased;
                received = end.recv() => received,
                _ = &mut ended => {
                    dead = true;
                    continue;
                }
            },
            true => match end.try_recv() {
                Ok(Some(received)) => Ok(received),
                Ok(None) => return,
                Err(error) => Err(error),
            },
        };
        // What was asked for is no flood, however many ask.
        if let Ok(Received { message: ToSupervisor::Answer(answer), .. }) = &received
            && questions.answered(answer)
        {
            continue;
        }
        if let Ok(Received { message: ToSupervisor::Hello(_), .. }) = &received
            && let Some(protocol) = end.version()
            && !mailbox.put(Event::Agreed { worker, protocol }).await
        {
            return;
        }
        let broken = |problem| Event::Broken { worker, problem };
        let within_rate = rate.take(clock.now());
        let (event, last) = match received {
            Err(RecvError::Closed) => (Event::Closed { worker }, true),
            Ok(_) | Err(RecvError::Refused(_)) if !within_rate => {
                (broken("it floods its channel".into()), true)
            }
            Ok(Received { message, fds, .. }) => {
                if message == ToSupervisor::Lifeline {
                    *lifeline.borrow_mut() = Lifeline::of(fds).map(Rc::new);
                }
                (Event::Message { worker, message }, false)
            }
            // A newer worker insists on something we do not know; it has been told.
            Err(RecvError::Refused(Fault::UnknownType(kind))) => {
                tracing::warn!(worker = worker.0, %kind, "unknown message");
                continue;
            }
            Err(error @ (RecvError::Refused(_) | RecvError::Io(_))) => {
                (broken(error.to_string()), true)
            }
        };
        if !mailbox.put(event).await || last {
            return;
        }
    }
}

async fn write(
    end: Rc<SupervisorEnd>,
    mut parcels: mpsc::UnboundedReceiver<Parcel>,
    rate: Rc<Rate>,
    mailbox: Mailbox,
) {
    let worker = mailbox.worker;
    while let Some(parcel) = parcels.recv().await {
        rate.expect_answers();
        match deliver(&end, &parcel).await {
            Ok(()) => {}
            // The reader sees it too, and says it.
            Err(SendError::Closed(_)) => return,
            Err(error) => {
                let problem = error.to_string();
                mailbox.put(Event::Broken { worker, problem }).await;
                return;
            }
        }
    }
}

async fn deliver(end: &SupervisorEnd, parcel: &Parcel) -> Result<(), SendError> {
    let fds = match &parcel.cargo {
        Cargo::Nothing => Vec::new(),
        Cargo::Region(region) => vec![region.as_fd()],
        Cargo::Adoption(socket) => vec![socket.as_fd()],
        Cargo::Channel(channel) => vec![channel.as_fd()],
        Cargo::Lifelines(lifelines) => {
            lifelines.iter().flat_map(|lifeline| lifeline.descriptors()).collect()
        }
        Cargo::Sockets(sockets) => sockets.iter().map(|socket| socket.as_fd()).collect(),
    };
    let mut tries = 0;
    loop {
        match end.send(&parcel.message, &fds).await {
            Ok(_) => return Ok(()),
            Err(SendError::TooManyInFlight(_)) if tries < RETRIES => {
                tries += 1;
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => return Err(error),
        }
    }
}
