//! The supervisor's log: one JSON object a line on standard output, like the worker's.

use baton_config::model::Level;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging; later calls change nothing.
pub(crate) fn start(level: Level) {
    let filter = match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    };
    let subscriber =
        tracing_subscriber::fmt().json().flatten_event(true).with_max_level(filter).finish();
    // Fails only when a subscriber is already there, and then that one is as good.
    let _kept = tracing::subscriber::set_global_default(subscriber);
}
