//! What must hold for any answer to a health check: shared by the fuzz target and by the test that
//! replays its corpus with the stable compiler. Not part of the crate's interface.

use std::time::Duration;

use baton_config::model::{Address, HealthCheck, HealthKind, Host};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

use super::Probe;

/// An answer is a status or an error, and the check is over when the upstream has said all.
///
/// # Panics
/// When it is not.
pub fn response(bytes: &[u8]) {
    let kind = HealthKind::Http { path: "/".into(), status_min: 200, status_max: 399 };
    let check = HealthCheck {
        kind,
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(2),
        failure_threshold: 3,
        success_threshold: 2,
    };
    let target = Address { host: Host::Ip([127, 0, 0, 1].into()), port: 80 };
    let probe = Probe::new(&check, None, &target);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime without drivers needs nothing of the system");
    let status = runtime.block_on(async {
        let (near, mut far) = tokio::io::duplex(bytes.len().max(4096));
        far.write_all(bytes).await.expect("it holds all");
        far.shutdown().await.expect("it is open");
        probe.ask(TokioIo::new(near), "/").await
    });
    assert!(status.is_err() || status.is_ok_and(|status| (100..1000).contains(&status)));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn a110_the_corpus_of_answers_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/probe_response");
        let mut count = 0;
        for seed in fs::read_dir(corpus).unwrap() {
            super::response(&fs::read(seed.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 10, "the corpus is there");
    }
}
