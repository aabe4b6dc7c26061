//! The side that gives its connections away.
//!
//! One batch at a time stands still: one shard freezes it, it is offered, and what has changed its
//! owner is gone before the next one freezes. So a connection's pause is that of a batch, however
//! many there are. Connections without an upstream move as soon as they have one.

use std::os::fd::OwnedFd;
use std::time::Duration;

use baton_handoff::message::{MAX_OFFERED, Migrated, ToSupervisor};
use tokio::sync::{mpsc, oneshot};

use super::{MoveSeries, Signs, Teller};
use crate::flow::Moment;
use crate::migrate::{Exporter, MoveError, Parcel, Shipment};
use crate::net;
use crate::session::{Fate, Lifted};
use crate::shard::{Gone, Hands, Lifting};

/// Progress is told so often.
const REPORT: Duration = Duration::from_millis(200);
/// While there are only connections without an upstream, they are looked at so often: a dial takes
/// longer, and nobody waits.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A move to another worker.
pub(super) struct Giver {
    pub(super) hands: Hands,
    pub(super) series: MoveSeries,
    pub(super) teller: Teller,
    pub(super) signs: Signs,
    /// Which of this process's moves it is.
    pub(super) number: u32,
    pub(super) deadline: Moment,
}

/// Why no more is offered before all have moved.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Channel(#[from] MoveError),
    #[error(transparent)]
    Shard(#[from] Gone),
    #[error("its time is over")]
    TimeOver,
    #[error("another order has come")]
    Ordered,
}

impl Giver {
    /// Moves until nothing is left to be moved; says how it goes.
    pub(super) async fn run(self, socket: OwnedFd) {
        let begun = net::now();
        let mut told = Migrated::default();
        let version = env!("CARGO_PKG_VERSION");
        let stopped = match Exporter::start(socket, version, self.signs.died.clone()).await {
            Ok(exporter) => self.give(exporter, &mut told).await.err(),
            Err(error) => Some(error.into()),
        };
        told.over = true;
        let Migrated { moved, waiting, kept, longest_pause_us, .. } = told;
        let took_ms = u64::try_from(net::now().since(begun).as_millis()).unwrap_or(u64::MAX);
        match stopped {
            None => tracing::info!(moved, kept, longest_pause_us, took_ms, "connections moved"),
            Some(why) => tracing::warn!(
                %why, moved, kept, waiting, longest_pause_us, took_ms,
                "not all connections moved"
            ),
        }
        self.teller.tell(ToSupervisor::Migrated(told));
    }

    async fn give(&self, mut exporter: Exporter, told: &mut Migrated) -> Result<(), Stop> {
        let mut next_report = net::now().after(REPORT);
        loop {
            let (mut waiting, mut any) = (0, false);
            for shard in 0..self.hands.shards() {
                if *self.signs.stop.borrow() {
                    say_over(exporter).await;
                    return Err(Stop::Ordered);
                }
                let begun = net::now();
                if begun >= self.deadline {
                    say_over(exporter).await;
                    return Err(Stop::TimeOver);
                }
                let Lifting { coming, waiting: without } =
                    self.hands.lift(shard, MAX_OFFERED, self.number).await?;
                waiting += without;
                let lifted = stood_still(coming).await;
                if lifted.is_empty() {
                    continue;
                }
                any = true;
                baton_handoff::faults::point("migrate.frozen");
                self.ship(&mut exporter, lifted, begun, told).await?;
            }
            told.waiting = waiting;
            if net::now() >= next_report {
                next_report = net::now().after(REPORT);
                self.teller.tell(ToSupervisor::Migrated(*told));
            }
            match (any, waiting) {
                (true, _) => {}
                (false, 0) => {
                    say_over(exporter).await;
                    return Ok(());
                }
                (false, _) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Offers a batch; serves on what stays.
    async fn ship(
        &self,
        exporter: &mut Exporter,
        lifted: Vec<Lifted>,
        begun: Moment,
        told: &mut Migrated,
    ) -> Result<(), Stop> {
        let (parcels, fates): (Vec<Parcel>, Vec<oneshot::Sender<Fate>>) =
            lifted.into_iter().map(|Lifted { parcel, fate }| (parcel, fate)).unzip();
        let Shipment { kept, failure } = exporter.ship(parcels).await;
        let pause = net::now().since(begun);
        let (sign, mut signs) = mpsc::channel(1);
        for (parcel, fate) in kept.into_iter().zip(fates) {
            self.series.pause.observe(pause);
            let (fate, decided) = match parcel {
                None => {
                    told.moved += 1;
                    self.series.moved.inc();
                    (fate, Fate::Moved(sign.clone()))
                }
                Some(Parcel { frozen, .. }) => {
                    told.kept += 1;
                    self.series.kept.inc();
                    (fate, Fate::Stays(frozen))
                }
            };
            if let Err(Fate::Stays(frozen)) = fate.send(decided) {
                // Its shard has ended, and with it the process: both peers are to see that.
                frozen.reset();
            }
        }
        // Until then a shard takes what has moved for its own, and so would a recovery.
        drop(sign);
        while signs.recv().await.is_some() {}
        let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        told.longest_pause_us = told.longest_pause_us.max(pause_us);
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    }
}

/// The last word. Whoever does not hear it sees the end of the channel.
async fn say_over(exporter: Exporter) {
    if let Err(error) = exporter.finish().await {
        tracing::debug!(%error, "the end of a move");
    }
}

/// Those that have come to a stand. One that has just ended is not among them.
async fn stood_still(coming: Vec<oneshot::Receiver<Lifted>>) -> Vec<Lifted> {
    let mut lifted = Vec::with_capacity(coming.len());
    for coming in coming {
        lifted.extend(coming.await.ok());
    }
    lifted
}
