//! Scripted machines and lines with given addresses.

use std::cell::RefCell;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::dial::{Addresses, Bulkhead, Limits, Lines, TargetSlots};
use crate::flow::{AttemptId, Event, LineIndex, Moment, Quota, Select, Step, Steps};
use crate::net;

/// A machine that does as a closure says and remembers what it was told.
pub(super) struct Script<F> {
    pub(super) act: F,
    pub(super) told: Vec<Event>,
}

impl<F: FnMut(Option<Event>, &mut Steps)> Script<F> {
    pub(super) fn new(act: F) -> Self {
        Self { act, told: Vec::new() }
    }
}

impl<F: FnMut(Option<Event>, &mut Steps)> Select for Script<F> {
    fn start(&mut self, _now: Moment, steps: &mut Steps) {
        (self.act)(None, steps);
    }

    fn on(&mut self, event: Event, _now: Moment, steps: &mut Steps) {
        self.told.push(event);
        (self.act)(Some(event), steps);
    }
}

pub(super) struct Target {
    pub(super) addresses: Vec<SocketAddr>,
    /// The addresses are a name's, and the resolver takes a turn of the runtime.
    pub(super) slow_name: bool,
    pub(super) preparation: Vec<u8>,
    pub(super) warm: RefCell<Vec<OwnedFd>>,
    slots: Arc<TargetSlots>,
}

pub(super) struct Scene {
    pub(super) bulkhead: Arc<Bulkhead>,
    pub(super) targets: Vec<Target>,
    pub(super) followed: bool,
}

impl Scene {
    pub(super) fn new(limits: Limits) -> Self {
        Self { bulkhead: Bulkhead::new(limits), targets: Vec::new(), followed: false }
    }

    pub(super) fn target(&mut self, addresses: &[SocketAddr]) -> &mut Target {
        let slots = self.bulkhead.target(&format!("target {}", self.targets.len()));
        self.targets.push(Target {
            addresses: addresses.to_vec(),
            slow_name: false,
            preparation: Vec::new(),
            warm: RefCell::default(),
            slots,
        });
        self.targets.last_mut().unwrap()
    }

    fn at(&self, line: LineIndex) -> &Target {
        &self.targets[usize::from(line.0)]
    }
}

impl Lines for Scene {
    fn slots(&self, line: LineIndex) -> &Arc<TargetSlots> {
        &self.at(line).slots
    }

    fn addresses(&self, line: LineIndex) -> Addresses {
        let target = self.at(line);
        let addresses = target.addresses.iter().copied().collect();
        if !target.slow_name {
            return Addresses::Known(addresses);
        }
        Addresses::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            if addresses.is_empty() {
                Err(std::io::ErrorKind::NotFound.into())
            } else {
                Ok(addresses)
            }
        }))
    }

    fn preparation(&self, line: LineIndex) -> &[u8] {
        &self.at(line).preparation
    }

    fn followed(&self) -> bool {
        self.followed
    }

    fn prewarmed(&self, line: LineIndex) -> Option<OwnedFd> {
        self.at(line).warm.borrow_mut().pop()
    }
}

pub(super) fn dial(attempt: u8, line: u16, limit: Duration) -> Step {
    Step::Dial {
        attempt: AttemptId(attempt),
        line: LineIndex(line),
        deadline: net::now().after(limit),
        quota: Quota::Wait,
        fresh: false,
    }
}

/// Longer than any dial takes here, however busy the machine.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address where nobody listens.
pub(super) fn refusing() -> SocketAddr {
    net::testing::own_address()
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(net::testing::PATIENCE, future).await.expect("it hangs")
    })
}
