//! The table itself, with the labels and bucket bounds it uses.

use super::{Aggregation, CounterDef, GaugeDef, HistogramDef, Kind, Label, Metric, Stage, Unit};

const fn label(name: &'static str, values: &'static str) -> Label {
    Label { name, values }
}

const RULE: Label = label("rule", "the rule's name");
const MODE: Label = label("mode", "the rule's mode");
const TARGET: Label = label("target", "the target's name, its address where the file gives none");
const DIRECTION: Label = label("direction", "`client_to_upstream`, `upstream_to_client`");
const RESULT: Label = label("result", "`success`, `failure`");
const REASON: Label = label(
    "reason",
    "`invalid_remote_address`, `proxy_protocol`, `global_connection_limit`, \
     `connection_limit`, `access_policy`",
);
const CLASS: Label = label("class", "`foreground`, `background`, `health`");
const QUOTA: Label = label("reason", "`process_full`, `target_full`, `timeout`");
const OUTCOME: Label = label(
    "outcome",
    "`scheduled`, `launched`, `won`, `avoided`, `skipped_capacity`, `skipped_deadline`, \
     `no_candidate`",
);
const REFRESHED: Label = label("outcome", "`kept`, `replaced`, `failed`");
const MOVED: Label = label("result", "`moved`, `kept`");
const RECOVERED: Label = label(
    "result",
    "`resumed`, `reset` (not relayed yet: sockets), and by why a connection was given up: \
     `damaged`, `doomed`, `in_flight`, `gone`, `conflict`, `poison`, `contradiction`, `unfetched`",
);
const VERSION: Label = label("version", "the release");
const COMMIT: Label = label("commit", "the source revision, or `unknown`");

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Connecting: from a host next door to one that hardly answers.
const LATENCY: &[u64] = &[
    MS / 2,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2_500 * MS,
    5 * S,
    10 * S,
];
/// Choosing an upstream: from a warm cache to a race over distance.
const DECISION: &[u64] = &[
    10 * US,
    50 * US,
    100 * US,
    500 * US,
    MS,
    5 * MS,
    10 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2_500 * MS,
    5 * S,
];
/// Waiting at most 250 ms for a place.
const WAIT: &[u64] = &[100 * US, MS, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS];
/// A connection's life: from a request to a day.
const LIFE: &[u64] =
    &[100 * MS, S, 5 * S, 15 * S, 60 * S, 300 * S, 900 * S, 3_600 * S, 21_600 * S, 86_400 * S];
/// How long a connection stands still while it moves.
const PAUSE: &[u64] =
    &[100 * US, 250 * US, 500 * US, MS, 2_500 * US, 5 * MS, 10 * MS, 25 * MS, 100 * MS, S];

macro_rules! kind {
    (counter) => {
        Kind::Counter
    };
    (gauge $aggregation:ident) => {
        Kind::Gauge(Aggregation::$aggregation)
    };
    (histogram $bounds:ident) => {
        Kind::Histogram($bounds)
    };
}

macro_rules! definition {
    (counter, $metric:expr) => {
        CounterDef($metric)
    };
    (gauge $aggregation:ident, $metric:expr) => {
        GaugeDef($metric)
    };
    (histogram $bounds:ident, $metric:expr) => {
        HistogramDef($metric, $bounds)
    };
}

macro_rules! definition_type {
    (counter) => {
        CounterDef
    };
    (gauge $aggregation:ident) => {
        GaugeDef
    };
    (histogram $bounds:ident) => {
        HistogramDef
    };
}

macro_rules! table {
    ($($stage:ident { $(
        $const:ident = $name:literal, ($($kind:tt)+), $unit:ident, [$($label:ident),*], $help:literal;
    )+ })+) => {
        $($(
            #[doc = $help]
            pub static $const: definition_type!($($kind)+) = definition!($($kind)+, Metric {
                name: $name,
                help: $help,
                kind: kind!($($kind)+),
                unit: Unit::$unit,
                labels: &[$($label),*],
                stage: Stage::$stage,
            });
        )+)+

        pub(super) static TABLE: &[&Metric] = &[$($(&$const.0,)+)+];
    };
}

table! {
    Process {
        BUILD_INFO = "baton_build_info", (gauge Newest), Number, [VERSION, COMMIT],
            "Always 1; the labels say which program the newest process runs.";
        TASKS = "baton_tasks", (gauge Sum), Number, [],
            "Asynchronous tasks alive in all processes.";
        WORKER_RESTARTS = "baton_worker_restarts_total", (counter), Number, [],
            "Workers started because one had died.";
        UPGRADES = "baton_upgrades_total", (counter), Number, [RESULT],
            "Upgrades asked for, by how they ended; one that is taken back later is a failure too.";
        RELOADS = "baton_reloads_total", (counter), Number, [RESULT],
            "Reloads asked for, by how they ended.";
        CONFIG_LAST_RELOAD_SUCCESS = "baton_config_last_reload_success_timestamp_seconds",
            (gauge Newest), Seconds, [],
            "When the running configuration was taken over, in seconds since 1970.";
        DROPPED_SERIES = "baton_metrics_dropped_series_total", (counter), Number, [],
            "Series that found no room in the region and are missing from this export.";
        ROUTING_GENERATION = "baton_routing_generation", (gauge Newest), Number, [],
            "Number of the serving configuration generation.";
        ROUTING_RETIRED_GENERATIONS = "baton_routing_retired_generations", (gauge Sum), Number, [],
            "Earlier generations that still have connections.";
    }
    Connection {
        CONNECTIONS_ACCEPTED = "baton_connections_accepted_total", (counter), Number, [RULE, MODE],
            "Client connections taken into service.";
        CONNECTIONS_ACTIVE = "baton_connections_active", (gauge Sum), Number, [RULE, MODE],
            "Client connections in service now.";
        CONNECTIONS_REJECTED = "baton_connections_rejected_total", (counter), Number,
            [RULE, MODE, REASON],
            "Client connections refused at admission, by reason.";
        RELAY_BYTES = "baton_relay_bytes_total", (counter), Bytes, [RULE, DIRECTION],
            "Bytes passed on, counted while they flow.";
        RELAY_ERRORS = "baton_relay_errors_total", (counter), Number, [RULE, DIRECTION],
            "Relays ended by an error, by the direction in which it occurred.";
        RELAY_DURATION = "baton_relay_duration_seconds", (histogram LIFE), Seconds, [RULE],
            "From the choice of an upstream to the end of the connection.";
    }
    Dial {
        DIAL_ATTEMPTS = "baton_dial_attempts_total", (counter), Number, [RULE, TARGET],
            "Connections to upstreams begun.";
        DIAL_SUCCESS = "baton_dial_success_total", (counter), Number, [RULE, TARGET],
            "Connections to upstreams established.";
        DIAL_FAILURES = "baton_dial_failures_total", (counter), Number, [RULE, TARGET],
            "Connections to upstreams that failed.";
        DIAL_CANCELED = "baton_dial_canceled_total", (counter), Number, [RULE, TARGET],
            "Connections to upstreams given up because another one won or the client left.";
        DIAL_LATENCY_SECONDS = "baton_dial_latency_seconds", (histogram LATENCY), Seconds,
            [RULE, TARGET],
            "Duration of successful connects.";
        DIAL_BULKHEAD_IN_FLIGHT = "baton_dial_bulkhead_in_flight", (gauge Sum), Number, [CLASS],
            "Dial places taken now.";
        DIAL_BULKHEAD_WAITING = "baton_dial_bulkhead_waiting", (gauge Sum), Number, [],
            "Clients waiting for a dial place now.";
        DIAL_BULKHEAD_TARGET_IN_FLIGHT = "baton_dial_bulkhead_target_in_flight", (gauge Sum),
            Number, [TARGET],
            "Foreground dial places taken now, by configured address.";
        DIAL_BULKHEAD_REJECTED = "baton_dial_bulkhead_rejected_total", (counter), Number,
            [CLASS, QUOTA],
            "Dials refused for want of a place.";
        DIAL_BULKHEAD_WAIT = "baton_dial_bulkhead_wait_seconds", (histogram WAIT), Seconds, [],
            "Time spent waiting for a dial place.";
        DIAL_BULKHEAD_LIMIT = "baton_dial_bulkhead_limit", (gauge Newest), Number, [CLASS],
            "Dial places of the process.";
        DIAL_BULKHEAD_TARGET_LIMIT = "baton_dial_bulkhead_target_limit", (gauge Newest), Number,
            [],
            "Foreground dial places of each configured address.";
        PREWARM_DESIRED = "baton_prewarm_desired", (gauge Sum), Number, [TARGET],
            "Idle connections the pool wants to hold.";
        PREWARM_IDLE = "baton_prewarm_idle", (gauge Sum), Number, [TARGET],
            "Idle connections ready for use.";
        PREWARM_WARMING = "baton_prewarm_warming", (gauge Sum), Number, [TARGET],
            "Dials under way to refill the pool.";
        PREWARM_FAILURES = "baton_prewarm_failures_total", (counter), Number, [TARGET],
            "Refill dials that failed.";
    }
    Line {
        ROUTE_LATENCY_EWMA = "baton_route_latency_ewma_seconds", (gauge Newest), Seconds,
            [RULE, TARGET],
            "Moving average of successful connects; 0 before the first.";
        ROUTE_FIRST_BYTE_EWMA = "baton_route_first_byte_ewma_seconds", (gauge Newest), Seconds,
            [RULE, TARGET],
            "Moving average from the client's first bytes to the upstream's; 0 before the first.";
        ROUTE_OBSERVED = "baton_route_observed", (gauge Newest), Number, [RULE, TARGET],
            "1 once the line has a latency sample.";
        ROUTE_CONSECUTIVE_FAILURES = "baton_route_consecutive_failures", (gauge Newest), Number,
            [RULE, TARGET],
            "Attributable failures in a row.";
        ROUTE_CIRCUIT_OPEN = "baton_route_circuit_open", (gauge Newest), Number, [RULE, TARGET],
            "1 while the breaker keeps the line out.";
        ROUTE_HALF_OPEN = "baton_route_half_open", (gauge Newest), Number, [RULE, TARGET],
            "1 while the single probe after cooling is under way.";
        ROUTE_LAST_ATTEMPT = "baton_route_last_attempt_timestamp_seconds", (gauge Newest), Seconds,
            [RULE, TARGET],
            "When the line was last dialled, in seconds since 1970.";
        ACTIVE_HEALTH_UNHEALTHY = "baton_active_health_unhealthy", (gauge Newest), Number,
            [RULE, TARGET],
            "1 while health checks keep the target out.";
        BOOST_CACHE_HITS = "baton_boost_cache_hits_total", (counter), Number, [RULE],
            "Connections that found a cached winner.";
        BOOST_CACHE_MISSES = "baton_boost_cache_misses_total", (counter), Number, [RULE],
            "Connections that had to race.";
        BOOST_REFRESHES = "baton_boost_refreshes_total", (counter), Number, [RULE, REFRESHED],
            "Background races for the cached winner's place; their dials are no clients'.";
        BOOST_HEDGE_EVENTS = "baton_boost_hedge_events_total", (counter), Number, [RULE, OUTCOME],
            "What became of backup dials.";
        BOOST_HEDGE_DELAY = "baton_boost_hedge_delay_seconds", (histogram LATENCY), Seconds, [RULE],
            "Delay set before a backup dial.";
        BOOST_DECISION_DURATION = "baton_boost_decision_duration_seconds", (histogram DECISION),
            Seconds, [RULE],
            "From the start of the choice to a usable upstream.";
    }
    Migration {
        MIGRATED_CONNECTIONS = "baton_migrated_connections_total", (counter), Number, [MOVED],
            "Established connections offered to another process, by whose they are after it.";
        RECOVERED_CONNECTIONS = "baton_recovered_connections_total", (counter), Number, [RECOVERED],
            "Connections of workers that were killed, by what became of them.";
        MIGRATION_PAUSE = "baton_migration_pause_seconds", (histogram PAUSE), Seconds, [],
            "How long a moving connection passed no bytes.";
    }
}
