//! Carrying on the connections of workers that are dead.

use baton_handoff::message::{Recovered, ToSupervisor};

use super::{MoveSeries, Teller};
use crate::migrate::{Loss, Newcomer, Report, Rescued, Source, recover};
use crate::net;
use crate::shard::Hands;

/// Takes over what can go on, and says what came of it.
pub(super) async fn run(sources: Vec<Source>, hands: &Hands, series: &MoveSeries, teller: &Teller) {
    let begun = net::now();
    let report = match hands.owned().await {
        Ok(mut owned) => {
            recover(sources, &mut owned, async |rescued| serve(rescued, hands).await).await
        }
        // The process ends; the keepers will reset what nobody takes.
        Err(error) => return tracing::error!(%error, "nothing is recovered"),
    };
    let took_ms = u64::try_from(net::now().since(begun).as_millis()).unwrap_or(u64::MAX);
    for failure in &report.failures {
        tracing::warn!(%failure, "a dead worker's connections were not all dealt with");
    }
    let lost = count(&report, series);
    let Report { resumed, finished, reset, .. } = report;
    tracing::info!(
        resumed,
        lost,
        finished,
        reset,
        took_ms,
        reasons = reasons(&report),
        "recovered"
    );
    teller.tell(ToSupervisor::Recovered(Recovered {
        resumed,
        lost,
        failures: u32::try_from(report.failures.len()).unwrap_or(u32::MAX),
    }));
}

/// Gives connections to a shard; returns once each has a record.
async fn serve(rescued: Vec<Rescued>, hands: &Hands) {
    let quiet = std::time::Duration::ZERO;
    let newcomers = rescued.into_iter().map(|Rescued { frozen, identity }| Newcomer {
        frozen,
        identity,
        quiet,
    });
    let served = async { hands.receive(newcomers.collect()).await?.settle(true).await };
    if let Err(error) = served.await {
        tracing::error!(%error, "connections that were recovered are lost");
    }
}

/// Enters what happened in the counters; how many connections were lost.
fn count(report: &Report, series: &MoveSeries) -> u64 {
    series.resumed.add(report.resumed);
    for (loss, connections) in &report.lost {
        series.lost(*loss).add(*connections);
    }
    let lost: u64 = report.lost.values().sum();
    // The others were of connections without a record: clients without an upstream, dials.
    series.reset.add(report.reset.saturating_sub(2 * lost));
    lost
}

fn reasons(report: &Report) -> String {
    let told = Loss::ALL
        .iter()
        .filter_map(|loss| report.lost.get(loss).map(|count| format!("{} {count}", loss.as_str())));
    told.collect::<Vec<_>>().join(", ")
}
