//! How many dials may be under way at once.
//!
//! A dead target must not eat every descriptor and port of the process while its connects time
//! out. One bulkhead serves all shards and all generations of a worker. While it is not full a
//! permit costs two atomic operations; only waiters take a lock.
//!
//! Waiters are served in order, except that one whose target is full lets those behind it pass.
//! Background dials (refills, refreshes) and health checks have places of their own and never
//! compete with clients.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// How many places there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Foreground dials in the process.
    pub process: u32,
    /// Foreground dials to one configured address.
    pub target: u32,
    /// How long a foreground dial waits for a place.
    pub wait: Duration,
    /// Background dials in the process.
    pub background: u32,
    /// Health checks in the process.
    pub health: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let wait = Duration::from_millis(250);
        Self { process: 256, target: 64, wait, background: 32, health: 32 }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Full {
    /// The target's places are taken, the process still has room.
    #[error("every dial place of the target is taken")]
    Target,
    /// The process's places are taken.
    #[error("every dial place of the process is taken")]
    Process,
}

/// The dial places of a process.
#[derive(Debug)]
pub struct Bulkhead {
    limits: Limits,
    in_use: AtomicU32,
    /// Length of `queue`; written under its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Waiter>>,
    background: Arc<Semaphore>,
    health: Arc<Semaphore>,
    targets: Mutex<HashMap<Box<str>, Weak<TargetSlots>>>,
}

#[derive(Debug)]
struct Waiter {
    target: Arc<TargetSlots>,
    reply: oneshot::Sender<Permit>,
}

/// The places of one configured address.
#[derive(Debug)]
pub struct TargetSlots {
    bulkhead: Arc<Bulkhead>,
    in_use: AtomicU32,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub struct Permit(Place);

#[derive(Debug)]
enum Place {
    Foreground(Arc<TargetSlots>),
    Separate { _permit: OwnedSemaphorePermit },
}

impl Bulkhead {
    /// A bulkhead with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        let semaphore = |places: u32| Arc::new(Semaphore::new(places as usize));
        Arc::new(Self {
            limits,
            in_use: AtomicU32::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
            background: semaphore(limits.background),
            health: semaphore(limits.health),
            targets: Mutex::default(),
        })
    }

    /// The places of an address as it is configured. All generations that name the same address
    /// share them for as long as any of them lives.
    #[must_use]
    pub fn target(self: &Arc<Self>, address: &str) -> Arc<TargetSlots> {
        let mut targets = lock(&self.targets);
        if let Some(slots) = targets.get(address).and_then(Weak::upgrade) {
            return slots;
        }
        targets.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(TargetSlots { bulkhead: Arc::clone(self), in_use: AtomicU32::new(0) });
        targets.insert(address.into(), Arc::downgrade(&slots));
        slots
    }

    /// A place for a background dial, if one is free now.
    #[must_use]
    pub fn try_background(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.background).try_acquire_owned().ok()?;
        Some(Permit(Place::Separate { _permit: permit }))
    }

    /// A place for a health check; waits for one.
    pub async fn health(&self) -> Option<Permit> {
        // Fails only when the semaphore is closed, which nobody does.
        let permit = Arc::clone(&self.health).acquire_owned().await.ok()?;
        Some(Permit(Place::Separate { _permit: permit }))
    }

    /// Foreground dials under way.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Background dials under way.
    #[must_use]
    pub fn background_in_use(&self) -> u32 {
        taken(&self.background, self.limits.background)
    }

    /// Health checks under way.
    #[must_use]
    pub fn health_in_use(&self) -> u32 {
        taken(&self.health, self.limits.health)
    }

    /// Foreground dials that wait for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Gives free places to waiters, oldest first.
    fn serve(&self) {
        let granted = self.serve_locked(&mut lock(&self.queue));
        hand_over(granted);
    }

    /// Takes granted waiters out of the queue; the caller hands over after unlocking, because
    /// a permit that finds its waiter gone is dropped and then needs the lock.
    fn serve_locked(&self, queue: &mut VecDeque<Waiter>) -> Vec<(Waiter, Permit)> {
        let mut granted = Vec::new();
        let mut kept = VecDeque::with_capacity(queue.len());
        while let Some(waiter) = queue.pop_front() {
            if waiter.reply.is_closed() {
                continue;
            }
            match waiter.target.take() {
                Ok(permit) => granted.push((waiter, permit)),
                Err(Full::Target) => kept.push_back(waiter),
                Err(Full::Process) => {
                    kept.push_back(waiter);
                    kept.append(queue);
                }
            }
        }
        *queue = kept;
        self.waiting.store(queue.len(), Ordering::SeqCst);
        granted
    }
}

fn hand_over(granted: Vec<(Waiter, Permit)>) {
    for (waiter, permit) in granted {
        // A waiter that left meanwhile gives the permit back by dropping it here.
        drop(waiter.reply.send(permit));
    }
}

impl TargetSlots {
    /// The bulkhead these places belong to.
    #[must_use]
    pub fn bulkhead(&self) -> &Arc<Bulkhead> {
        &self.bulkhead
    }

    /// Foreground dials to this address under way.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// A foreground place, if one is free now and nobody who waits could use it.
    ///
    /// # Errors
    /// [`Full`] says which limit is in the way.
    pub fn try_acquire(self: &Arc<Self>) -> Result<Permit, Full> {
        if self.bulkhead.waiting.load(Ordering::SeqCst) == 0 {
            return self.take().inspect_err(|_| self.settle());
        }
        let mut queue = lock(&self.bulkhead.queue);
        let granted = self.bulkhead.serve_locked(&mut queue);
        let taken = self.take();
        drop(queue);
        hand_over(granted);
        taken
    }

    /// A foreground place, waiting for it until the limit's wait, or `deadline` if earlier.
    ///
    /// # Errors
    /// [`Full`] says which limit was in the way when the time was over.
    pub async fn acquire(self: &Arc<Self>, deadline: Instant) -> Result<Permit, Full> {
        if let Ok(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let (reply, mut answer) = oneshot::channel();
        {
            let mut queue = lock(&self.bulkhead.queue);
            queue.push_back(Waiter { target: Arc::clone(self), reply });
            self.bulkhead.waiting.store(queue.len(), Ordering::SeqCst);
        }
        // A place may have become free before we could be seen waiting.
        self.bulkhead.serve();
        let patience = Instant::now() + self.bulkhead.limits.wait;
        if let Ok(Ok(permit)) = timeout_at(deadline.min(patience), &mut answer).await {
            return Ok(permit);
        }
        answer.close();
        if let Ok(permit) = answer.try_recv() {
            return Ok(permit);
        }
        Err(self.reason())
    }

    /// One place of the target and one of the process, or neither.
    fn take(self: &Arc<Self>) -> Result<Permit, Full> {
        let limits = self.bulkhead.limits;
        if !enter(&self.in_use, limits.target) {
            return Err(self.reason());
        }
        if !enter(&self.bulkhead.in_use, limits.process) {
            self.in_use.fetch_sub(1, Ordering::SeqCst);
            return Err(Full::Process);
        }
        Ok(Permit(Place::Foreground(Arc::clone(self))))
    }

    fn reason(&self) -> Full {
        let full = self.bulkhead.in_use.load(Ordering::SeqCst) >= self.bulkhead.limits.process;
        if full { Full::Process } else { Full::Target }
    }

    fn release(&self) {
        self.in_use.fetch_sub(1, Ordering::SeqCst);
        self.bulkhead.in_use.fetch_sub(1, Ordering::SeqCst);
        self.settle();
    }

    /// Serves whoever began to wait while our place was taken. SeqCst pairs with `acquire`:
    /// either it sees the free place or we see it waiting.
    fn settle(&self) {
        if self.bulkhead.waiting.load(Ordering::SeqCst) > 0 {
            self.bulkhead.serve();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            Place::Foreground(target) => target.release(),
            Place::Separate { .. } => {}
        }
    }
}

fn taken(places: &Semaphore, limit: u32) -> u32 {
    let free = u32::try_from(places.available_permits()).unwrap_or(u32::MAX);
    limit.saturating_sub(free)
}

fn enter(count: &AtomicU32, limit: u32) -> bool {
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| (used < limit).then_some(used + 1))
        .is_ok()
}

/// The maps and queues stay consistent whatever panics around them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
