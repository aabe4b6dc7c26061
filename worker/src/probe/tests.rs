//! Against real listeners on the loopback.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use baton_config::model::Host;
use tokio::sync::mpsc;

use super::*;
use crate::dial::Limits;
use crate::net::testing::{PATIENCE, own_address};
use crate::upstream::Gate;

fn check(kind: HealthKind) -> HealthCheck {
    HealthCheck {
        kind,
        interval: Duration::from_millis(1),
        timeout: PATIENCE,
        failure_threshold: 3,
        success_threshold: 2,
    }
}

fn http() -> HealthKind {
    HealthKind::Http { path: "/health?x=1".into(), status_min: 200, status_max: 399 }
}

fn probe(kind: HealthKind, send: Option<ProxyVersion>) -> Probe {
    let target = Address { host: Host::Name("up.test".into()), port: 80 };
    Probe::new(&check(kind), send, &target)
}

/// A server of one connection that gives `answer` after a blank line, and returns what it read.
fn serve(answer: Vec<u8>) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            read.push(byte[0]);
        }
        // The prober may have seen enough and closed.
        let _ = stream.write_all(&answer);
        read
    });
    (address, server)
}

async fn ask(answer: &[u8]) -> (Result<(), ProbeError>, String) {
    let (address, server) = serve(answer.to_vec());
    let result = probe(http(), None).run(&[address]).await;
    (result, String::from_utf8(server.join().unwrap()).unwrap())
}

#[tokio::test(flavor = "current_thread")]
async fn a110_an_http_check_is_one_get_with_the_targets_host_and_no_keep_alive() {
    let (result, request) = ask(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    result.unwrap();
    assert!(request.starts_with("GET /health?x=1 HTTP/1.1\r\n"), "{request}");
    let request = request.to_ascii_lowercase();
    assert!(request.contains("\r\nhost: up.test:80\r\n"));
    assert!(request.contains("\r\nconnection: close\r\n"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_failure_is_told_down_to_what_the_system_said() {
    let closed = own_address();
    let error = probe(HealthKind::Tcp, None).run(&[closed]).await.unwrap_err();
    let expected = format!("probe: connect to {closed}: Connection refused (os error 111)");
    assert_eq!(error.whole(), expected);
}

#[tokio::test(flavor = "current_thread")]
async fn a110_the_status_range_decides_and_redirects_are_not_followed() {
    let redirect = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n";
    ask(redirect).await.0.unwrap();
    let down = ask(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\ndown").await;
    assert!(matches!(down.0, Err(ProbeError::Status(503))));
}

#[tokio::test(flavor = "current_thread")]
async fn a110_a_response_head_above_32_kib_or_none_at_all_fails() {
    let mut huge = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    huge.extend(std::iter::repeat_n(b'x', 64 * 1024));
    huge.extend(b"\r\n\r\n");
    assert!(matches!(ask(&huge).await.0, Err(ProbeError::Http(_))));
    assert!(matches!(ask(b"").await.0, Err(ProbeError::Http(_))));
    assert!(matches!(ask(b"220 smtp ready\r\n").await.0, Err(ProbeError::Http(_))));
}

#[tokio::test(flavor = "current_thread")]
async fn a110_a_silent_upstream_fails_when_the_time_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut probe = probe(http(), None);
    probe.check.timeout = Duration::from_millis(50);
    let result = probe.run(&[listener.local_addr().unwrap()]).await;
    assert!(matches!(result, Err(ProbeError::Deadline)), "{result:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn a111_with_send_a_probe_starts_with_a_header() {
    for (version, start) in [
        (ProxyVersion::V1, &b"PROXY TCP4 127.0.0.1 "[..]),
        (ProxyVersion::V2, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        probe(HealthKind::Tcp, Some(version)).run(&[address]).await.unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = vec![0; start.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, start, "{version:?}");
    }
}

/// Probes until the verdict has changed; how many probes that took.
async fn until_changed(line: &Arc<Line>, address: SocketAddr) -> usize {
    let (tell, mut told) = mpsc::unbounded_channel();
    let bulkhead = Bulkhead::new(Limits::default());
    let probing = keep_probing(
        Arc::clone(line),
        probe(HealthKind::Tcp, None),
        move || SmallVec::from_buf([address]),
        bulkhead,
        fastrand::Rng::with_seed(1),
        move |probed| {
            // The test may have seen enough.
            let _seen = tell.send(probed);
        },
    );
    tokio::pin!(probing);
    let mut count = 0;
    loop {
        let probed = tokio::select! {
            () = &mut probing => panic!("probing never ends"),
            probed = told.recv() => probed.unwrap(),
        };
        count += 1;
        if probed.changed {
            return count;
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a109_a_line_is_excluded_and_readmitted_at_the_thresholds() {
    let address = own_address();
    let line = Arc::new(Line::new(Gate::Breaker));
    assert_eq!(until_changed(&line, address).await, 3);
    assert!(line.unhealthy());
    assert_eq!(line.streak(), 0, "a111: probes do not feed the breaker");

    let _listener = TcpListener::bind(address).unwrap();
    assert_eq!(until_changed(&line, address).await, 2);
    assert!(!line.unhealthy());
    assert_eq!(line.ewma_nanos(), 0, "nor the latency");
}

#[tokio::test(flavor = "current_thread")]
async fn a_name_without_addresses_fails_its_check() {
    let result = probe(HealthKind::Tcp, None).run(&[]).await;
    assert!(matches!(&result, Err(error) if !error.is_local()), "{result:?}");
}
