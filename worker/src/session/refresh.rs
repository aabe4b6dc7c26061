//! The background race of a `boost` rule.

use std::sync::Arc;

use crate::classify::proxy_header::Encoded;
use crate::dial;
use crate::flow::Verdict;
use crate::generation::{Path, RefreshSeries, Routing};
use crate::net;
use crate::select::{RefreshTicket, Selector};

/// Races the best two in the background, so that the cached winner stays a good one. The socket
/// that wins has no client and is closed; a header it begins with says so.
pub(super) async fn refresh(
    ticket: RefreshTicket,
    routing: Arc<Routing>,
    verdict: Verdict,
    header: Option<Encoded>,
    series: Option<RefreshSeries>,
) {
    let (cached, lines) = (ticket.cached(), &routing.lines);
    // A rule that had a candidate a moment ago; when it has none now, the cache may go stale.
    let Ok(candidates) = routing.router.candidates(&verdict, lines, net::now()) else { return };
    let mut machine = Selector::refresh(ticket, lines, candidates);
    let preparation = header.as_ref().map(AsRef::as_ref).unwrap_or_default();
    let path = Path { routing: &routing, preparation, followed: false };
    let raced = dial::drive(&mut machine, &path, None).await;
    let winner = machine.take_winner().map(|winner| winner.line());
    if let Err(stopped) = &raced {
        tracing::debug!(?stopped, "background race");
    }
    if let Some(series) = series {
        match winner {
            None => series.failed.inc(),
            Some(winner) if winner == cached => series.kept.inc(),
            Some(_) => series.replaced.inc(),
        }
    }
}
