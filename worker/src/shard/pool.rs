//! All shards of the process, as the main thread sees them.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use super::moving::{Lift, Lifting, Reception};
use super::{Command, Records, run};
use crate::accept::listeners::{Listener, ListenerId};
use crate::migrate::Newcomer;
use crate::process::Process;

/// The running shards. Dropping it stops them and waits for their threads.
pub(crate) struct Shards {
    commands: Arc<[mpsc::UnboundedSender<Command>]>,
    threads: Vec<JoinHandle<()>>,
}

/// A shard that should answer does not run any more.
#[derive(Debug, thiserror::Error)]
#[error("a relay thread has ended")]
pub(crate) struct Gone;

/// Why the listeners are not polled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// A descriptor could not be copied or registered.
    #[error("cannot poll the listeners: {0}")]
    Io(#[from] io::Error),
    /// No answer.
    #[error(transparent)]
    Gone(#[from] Gone),
}

impl Shards {
    /// Starts one thread for each of the process's loads; all of them or none. Each keeps its
    /// records in one of the lanes of the connection table, where there is one for it.
    pub(crate) fn start(process: &Arc<Process>, records: Vec<Records>) -> io::Result<Self> {
        let mut records = records.into_iter();
        let (commands, queues): (Vec<_>, Vec<_>) =
            process.loads.iter().map(|_| mpsc::unbounded_channel()).unzip();
        let commands: Arc<[_]> = commands.into();
        // Dropped on an early return, this stops the threads that did start.
        let mut shards = Self { commands: Arc::clone(&commands), threads: Vec::new() };
        let (started, outcomes) = std::sync::mpsc::channel();
        for (index, queue) in queues.into_iter().enumerate() {
            let (process, peers) = (Arc::clone(process), Arc::clone(&commands));
            let (started, records) = (started.clone(), records.next());
            let thread = thread::Builder::new()
                .name(format!("baton-shard-{index}"))
                .spawn(move || run(index, process, records, peers, queue, &started))?;
            shards.threads.push(thread);
        }
        drop(started);
        for _ in 0..shards.threads.len() {
            outcomes.recv().map_err(|_| io::Error::other("a relay thread ended at once"))??;
        }
        Ok(shards)
    }

    /// Makes every shard hold and register these sockets, each with a copy of its own.
    pub(crate) async fn register(&self, listeners: &[&Listener]) -> Result<(), RegisterError> {
        let mut answers = Vec::with_capacity(self.commands.len());
        for commands in self.commands.iter() {
            let copies = copies(listeners)?;
            let (done, answer) = oneshot::channel();
            commands.send(Command::Register(copies, done)).map_err(|_| Gone)?;
            answers.push(answer);
        }
        for answer in answers {
            answer.await.map_err(|_| Gone)??;
        }
        Ok(())
    }

    /// Makes every shard accept for exactly the published generation.
    pub(crate) async fn follow(&self) -> Result<(), Gone> {
        self.ask(Command::Follow).await.map(drop)
    }

    /// Makes every shard deregister its listeners.
    pub(crate) async fn pause(&self) -> Result<(), Gone> {
        self.ask(Command::Pause).await.map(drop)
    }

    /// Makes every shard let its listeners go.
    pub(crate) async fn close_listeners(&self) -> Result<(), Gone> {
        self.ask(Command::CloseListeners).await.map(drop)
    }

    /// What moves connections to and from them.
    pub(crate) fn hands(&self, process: &Arc<Process>) -> Hands {
        Hands { commands: Arc::clone(&self.commands), process: Arc::clone(process) }
    }

    /// Resets every connection; returns how many there were.
    pub(crate) async fn cut(&self) -> Result<u64, Gone> {
        Ok(self.ask(Command::Cut).await?.into_iter().sum())
    }

    /// Asks all shards at once, then waits for all of them.
    async fn ask<T>(&self, command: fn(oneshot::Sender<T>) -> Command) -> Result<Vec<T>, Gone> {
        let mut answers = Vec::with_capacity(self.commands.len());
        for commands in self.commands.iter() {
            let (done, answer) = oneshot::channel();
            commands.send(command(done)).map_err(|_| Gone)?;
            answers.push(answer);
        }
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            values.push(answer.await.map_err(|_| Gone)?);
        }
        Ok(values)
    }
}

/// What moves connections to and from the shards; for tasks beside the main one.
#[derive(Clone)]
pub(crate) struct Hands {
    commands: Arc<[mpsc::UnboundedSender<Command>]>,
    process: Arc<Process>,
}

impl Hands {
    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.commands.len()
    }

    /// Freezes at most `most` connections of a shard that this move has not asked for before.
    pub(crate) async fn lift(
        &self,
        shard: usize,
        most: usize,
        asked_by: u32,
    ) -> Result<Lifting, Gone> {
        let (done, answer) = oneshot::channel();
        self.tell(shard, Command::Lift(Lift { most, asked_by, done }))?;
        answer.await.map_err(|_| Gone)
    }

    /// Gives connections to the shard that has least. When this returns each has a record;
    /// [`Held::settle`] decides about them.
    pub(crate) async fn receive(&self, newcomers: Vec<Newcomer>) -> Result<Held, Gone> {
        let loads = self.process.loads.iter().map(super::Load::get);
        let shard = loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index);
        let (held, holding) = oneshot::channel();
        let (told, word) = oneshot::channel();
        let (settled, settling) = oneshot::channel();
        self.tell(shard, Command::Receive(Reception { newcomers, held, word, settled }))?;
        holding.await.map_err(|_| Gone)?;
        Ok(Held { told, settling })
    }

    /// The cookies of all sockets of relayed connections.
    pub(crate) async fn owned(&self) -> Result<HashSet<u64>, Gone> {
        let mut owned = HashSet::new();
        for shard in 0..self.shards() {
            let (done, answer) = oneshot::channel();
            self.tell(shard, Command::Owned(done))?;
            owned.extend(answer.await.map_err(|_| Gone)?);
        }
        Ok(owned)
    }

    fn tell(&self, shard: usize, command: Command) -> Result<(), Gone> {
        self.commands.get(shard).ok_or(Gone)?.send(command).map_err(|_| Gone)
    }
}

/// Connections on a shard that may become this process's. Dropped, it lets go of them.
pub(crate) struct Held {
    told: oneshot::Sender<bool>,
    settling: oneshot::Receiver<()>,
}

impl Held {
    /// Serves them, or lets go; returns when the shard has them in its list.
    pub(crate) async fn settle(self, ours: bool) -> Result<(), Gone> {
        self.told.send(ours).map_err(|_| Gone)?;
        self.settling.await.map_err(|_| Gone)
    }
}

fn copies(listeners: &[&Listener]) -> io::Result<Vec<(ListenerId, OwnedFd)>> {
    listeners.iter().map(|listener| Ok((listener.id, listener.socket.try_clone()?))).collect()
}

impl Drop for Shards {
    fn drop(&mut self) {
        for commands in self.commands.iter() {
            // One that has ended already needs no order to do so.
            let _gone = commands.send(Command::Stop);
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a relay thread panicked");
            }
        }
    }
}
