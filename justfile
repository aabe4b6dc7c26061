# `just check` is what CI runs.

default:
    @just --list

# Everything that decides whether a change lands.
check:
    bash .ci/run

# Formatting and lints only.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# Processes that die at every step of a transition and at 2000 random moments; see docs/torture.md.
torture:
    cargo test --test it --locked -- --ignored --nocapture --test-threads 1 torture

# A live gateway, reloaded, upgraded and killed under load.
demo:
    cargo run --release -- demo

# Files that are generated from code: config/schema.json, docs/metrics.md, insta snapshots.
bless:
    BATON_BLESS=1 INSTA_UPDATE=always cargo test --workspace

# Which crates may come in (needs `cargo install cargo-deny`).
deny:
    cargo deny check bans licenses sources

# The concurrency models of the metrics region.
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p baton-metrics --release loom

# How long the code takes that every connection runs through, and the metrics region.
bench:
    cargo bench -p baton-worker --bench hot_paths
    cargo bench -p baton-metrics

# How many instructions it executes, against the committed counts (needs valgrind).
instructions:
    cargo bench -p baton-worker --bench instructions

# Commits to the counts as they are now: bench/instructions.json.
bless-instructions:
    cargo bench -p baton-worker --bench instructions -- --bless

# Fifty thousand transfers through the relay, each compared byte by byte; BATON_SEED repeats a run.
oracle:
    cargo test --release -p baton-worker --lib fifty_thousand -- --ignored --nocapture
