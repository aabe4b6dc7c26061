//! Active health checks: the probes themselves.
//!
//! A `tcp` check passes when the connect does. An `http` check sends one plain GET on a
//! connection of its own and passes when the status is in range; redirects are not followed,
//! the body is not read, and a response head above 32 KiB fails. With `proxyProtocol.send` a
//! probe starts with a header too, or the upstream would refuse it; the header says that the
//! connection is our own.
//!
//! A probe that fails for a lack of our own (descriptors, ports, memory) is no result. What the
//! results mean for the line is decided in [`health`].

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use baton_config::model::{Address, HealthCheck, HealthKind, ProxyVersion};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use smallvec::SmallVec;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::classify::proxy_header::encode_probe;
use crate::dial::{Bulkhead, DialError, connect};
use crate::flow::Fault;
use crate::net;
use crate::upstream::Line;
use crate::upstream::health::{self, Thresholds};

/// The largest response head of an `http` check, in bytes.
const MAX_HEAD: usize = 32 * 1024;

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// No connection.
    #[error("probe")]
    Connect(#[from] DialError),
    /// The socket cannot be used; our own lack.
    #[error("probe: prepare the local socket")]
    Local(#[source] io::Error),
    /// The PROXY header could not be sent.
    #[error("probe: send the PROXY header to the upstream")]
    Header(#[source] io::Error),
    /// The upstream did not answer in HTTP.
    #[error("probe: read the upstream's response")]
    Http(#[source] hyper::Error),
    /// It answered with a status outside the accepted range.
    #[error("probe: the upstream answered with status {0}")]
    Status(u16),
    /// The request could not be formed (a path or host that HTTP does not allow).
    #[error("probe: form the request")]
    Request(#[source] hyper::http::Error),
    /// No answer in time.
    #[error("probe: no answer in time")]
    Deadline,
}

impl ProbeError {
    /// The error with everything that caused it, for one line of the log.
    pub(crate) fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// Whether it says nothing about the upstream.
    #[must_use]
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Connect(error) => error.fault() == Fault::Local,
            Self::Local(_) => true,
            Self::Header(_)
            | Self::Http(_)
            | Self::Status(_)
            | Self::Request(_)
            | Self::Deadline => false,
        }
    }
}

/// What an answer is read from.
trait Stream: hyper::rt::Read + hyper::rt::Write + Unpin {}

impl<S: hyper::rt::Read + hyper::rt::Write + Unpin> Stream for S {}

/// What to probe, and how.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    check: HealthCheck,
    send: Option<ProxyVersion>,
    /// The target as configured: the `Host` of an `http` check.
    host: Box<str>,
}

impl Probe {
    /// The probe of a target under a rule's check; `send` is the rule's `proxyProtocol.send`.
    #[must_use]
    pub(crate) fn new(check: &HealthCheck, send: Option<ProxyVersion>, target: &Address) -> Self {
        Self { check: check.clone(), send, host: target.to_string().into() }
    }

    /// Probes once, within the check's time limit.
    ///
    /// # Errors
    /// Why the check did not pass.
    pub(crate) async fn run(&self, addresses: &[SocketAddr]) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.check.timeout;
        let connected = connect(addresses, deadline).await?;
        let stream = StdStream::from(connected.socket.into_fd());
        if let Some(version) = self.send {
            let local = stream.local_addr().map_err(ProbeError::Local)?;
            let header = encode_probe(version, local, connected.address);
            let sent = net::send(stream.as_fd(), header.as_ref()).map_err(ProbeError::Header)?;
            if sent != header.as_ref().len() {
                // A fresh socket that takes no header takes no connection either.
                return Err(ProbeError::Header(io::ErrorKind::WriteZero.into()));
            }
        }
        match &self.check.kind {
            HealthKind::Tcp => Ok(()),
            HealthKind::Http { path, status_min, status_max } => {
                let stream = TcpStream::from_std(stream).map_err(ProbeError::Local)?;
                let asking = self.ask(TokioIo::new(stream), path);
                let status =
                    timeout_at(deadline, asking).await.map_err(|_| ProbeError::Deadline)??;
                if (*status_min..=*status_max).contains(&status) {
                    Ok(())
                } else {
                    Err(ProbeError::Status(status))
                }
            }
        }
    }

    /// The status of one GET.
    async fn ask(&self, stream: impl Stream, path: &str) -> Result<u16, ProbeError> {
        let request = Request::get(path)
            .header(header::HOST, &*self.host)
            .header(header::USER_AGENT, "baton-health-check")
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(ProbeError::Request)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .handshake(stream)
            .await
            .map_err(ProbeError::Http)?;
        let response = sender.send_request(request);
        tokio::pin!(response, connection);
        let response = tokio::select! {
            biased;
            response = &mut response => response,
            // Over before the response was seen: it is either there now, or an error is.
            _ = &mut connection => response.await,
        };
        Ok(response.map_err(ProbeError::Http)?.status().as_u16())
    }
}

/// What came of a probe.
#[derive(Debug)]
pub(crate) struct Probed {
    /// Whether it passed, and if not, why.
    pub(crate) result: Result<(), ProbeError>,
    /// Whether it changed the line's verdict.
    pub(crate) changed: bool,
}

/// Probes a line until dropped: first within a tenth of the interval, then every interval give
/// or take a tenth. `addresses` is asked before each probe; a place in `bulkhead` is waited for; `tell` learns each result. One task a line: targets that share a line are
/// probed once.
pub(crate) async fn keep_probing(
    line: Arc<Line>,
    probe: Probe,
    addresses: impl Fn() -> SmallVec<[SocketAddr; 1]>,
    bulkhead: Arc<Bulkhead>,
    mut rng: fastrand::Rng,
    mut tell: impl FnMut(Probed),
) {
    let interval = probe.check.interval;
    let thresholds = Thresholds {
        failure: probe.check.failure_threshold,
        success: probe.check.success_threshold,
    };
    let mut pause: Duration = health::first_delay(interval, &mut rng);
    loop {
        sleep(pause).await;
        let Some(place) = bulkhead.health().await else { return };
        let result = probe.run(&addresses()).await;
        drop(place);
        let says = match &result {
            Ok(()) => Some(true),
            Err(error) if error.is_local() => None,
            Err(_) => Some(false),
        };
        let changed = says.is_some_and(|passed| line.probed(passed, thresholds));
        tell(Probed { result, changed });
        pause = health::next_delay(interval, &mut rng);
    }
}

#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod tests;
