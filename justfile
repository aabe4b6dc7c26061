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

# Benchmarks: pure code and the metrics region.
bench:
    cargo bench --workspace
