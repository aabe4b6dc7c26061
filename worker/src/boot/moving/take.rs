//! The side that takes connections over.

use std::os::fd::OwnedFd;

use super::Signs;
use crate::migrate::{Arrival, Importer, MoveError};
use crate::shard::{Gone, Hands};

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Channel(#[from] MoveError),
    #[error(transparent)]
    Shard(#[from] Gone),
}

/// Takes whatever the other worker offers, until it says that there is no more.
pub(super) async fn run(socket: OwnedFd, hands: &Hands, signs: Signs) {
    let mut taken = 0;
    match take(socket, hands, signs, &mut taken).await {
        Ok(()) => tracing::info!(taken, "connections taken over"),
        Err(why) => tracing::warn!(%why, taken, "no more connections are taken over"),
    }
}

async fn take(socket: OwnedFd, hands: &Hands, signs: Signs, taken: &mut usize) -> Result<(), Stop> {
    let Signs { died, mut stop } = signs;
    let mut importer = Importer::start(socket, env!("CARGO_PKG_VERSION"), died).await?;
    loop {
        // Between two offers nothing is half done. Whoever gives sees that the channel is closed.
        let arrival = tokio::select! {
            arrival = importer.next() => arrival?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        let Some(Arrival { transaction, connections }) = arrival else { return Ok(()) };
        let accepted = connections.iter().map(|offered| {
            if let Err(loss) = offered {
                tracing::warn!(reason = loss.as_str(), "a connection cannot be taken over");
            }
            offered.is_ok()
        });
        let accepted: Vec<bool> = accepted.collect();
        let held = hands.receive(connections.into_iter().flatten().collect()).await?;
        let count = accepted.iter().filter(|accepted| **accepted).count();
        match importer.answer(transaction, accepted).await {
            Ok(ours) => {
                held.settle(ours).await?;
                *taken += if ours { count } else { 0 };
            }
            Err(error) => {
                held.settle(false).await?;
                return Err(error.into());
            }
        }
    }
}
