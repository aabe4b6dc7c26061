//! What the admin server says: everything but the sockets.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Scrapes answered at a time; a further one is told to come again.
const MAX_SCRAPES: usize = 4;

const TEXT: &str = "text/plain; charset=utf-8";

/// What the server shows of the worker.
pub(crate) trait View {
    /// All listeners are served and no end has begun.
    fn ready(&self) -> bool;

    /// The metrics in Prometheus' text form, and their content type.
    fn metrics(&self) -> Result<(Vec<u8>, &'static str), String>;

    /// How every line is, in JSON.
    fn status(&self) -> String;
}

/// A scrape's place, held by its connection until the answer has left.
pub(super) type Scrape = Rc<RefCell<Option<OwnedSemaphorePermit>>>;

/// Makes the answers.
pub(crate) struct Answers {
    view: Rc<dyn View>,
    scrapes: Arc<Semaphore>,
}

enum Page {
    Health,
    Ready,
    Metrics,
    Status,
}

impl Page {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/healthz" => Some(Self::Health),
            "/readyz" => Some(Self::Ready),
            "/metrics" => Some(Self::Metrics),
            "/status" => Some(Self::Status),
            _ => None,
        }
    }
}

impl Answers {
    /// Answers from this view.
    pub(crate) fn new(view: Rc<dyn View>) -> Self {
        Self { view, scrapes: Arc::new(Semaphore::new(MAX_SCRAPES)) }
    }

    /// The answer to one request; `scrape` takes the place it needs.
    pub(super) fn answer(
        &self,
        method: &Method,
        path: &str,
        scrape: &Scrape,
    ) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
        let Some(page) = Page::at(path) else {
            return text(StatusCode::NOT_FOUND, "not found\n");
        };
        if method != Method::GET && method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n")?;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        match page {
            Page::Health => text(StatusCode::OK, "ok"),
            Page::Ready if self.view.ready() => text(StatusCode::OK, "ready"),
            Page::Ready => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
            Page::Metrics => self.metrics(scrape),
            Page::Status => {
                let body = Bytes::from(self.view.status());
                respond(StatusCode::OK, "application/json", body)
            }
        }
    }

    fn metrics(&self, scrape: &Scrape) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
        match Arc::clone(&self.scrapes).try_acquire_owned() {
            Ok(place) => scrape.replace(Some(place)),
            Err(_) => return text(StatusCode::SERVICE_UNAVAILABLE, "too many scrapes\n"),
        };
        match self.view.metrics() {
            Ok((body, kind)) => respond(StatusCode::OK, kind, Bytes::from(body)),
            Err(problem) => {
                tracing::warn!(problem, "metrics cannot be shown");
                text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be shown\n")
            }
        }
    }
}

fn text(
    status: StatusCode,
    body: &'static str,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    respond(status, TEXT, Bytes::from_static(body.as_bytes()))
}

fn respond(
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, hyper::http::Error> {
    Response::builder().status(status).header(CONTENT_TYPE, kind).body(Full::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed {
        ready: bool,
    }

    impl View for Fixed {
        fn status(&self) -> String {
            "{}".to_owned()
        }

        fn ready(&self) -> bool {
            self.ready
        }

        fn metrics(&self) -> Result<(Vec<u8>, &'static str), String> {
            Ok((b"m 1\n".to_vec(), "text/plain; version=0.0.4"))
        }
    }

    fn answers(ready: bool) -> Answers {
        Answers::new(Rc::new(Fixed { ready }))
    }

    fn status(answers: &Answers, method: &Method, path: &str) -> u16 {
        answers.answer(method, path, &Scrape::default()).unwrap().status().as_u16()
    }

    #[test]
    fn health_is_always_good_and_readiness_follows_the_worker() {
        assert_eq!(status(&answers(false), &Method::GET, "/healthz"), 200);
        assert_eq!(status(&answers(false), &Method::GET, "/readyz"), 503);
        assert_eq!(status(&answers(true), &Method::GET, "/readyz"), 200);
    }

    #[test]
    fn only_reading_known_pages_is_allowed() {
        let answers = answers(true);
        assert_eq!(status(&answers, &Method::HEAD, "/metrics"), 200);
        assert_eq!(status(&answers, &Method::GET, "/metrics/"), 404);
        assert_eq!(status(&answers, &Method::POST, "/nothing"), 404);
        let response = answers.answer(&Method::POST, "/healthz", &Scrape::default()).unwrap();
        assert_eq!(response.status().as_u16(), 405);
        assert_eq!(response.headers()[ALLOW], "GET, HEAD");
    }

    #[test]
    fn metrics_are_prometheus_text() {
        let response = answers(true).answer(&Method::GET, "/metrics", &Scrape::default()).unwrap();
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; version=0.0.4");
    }

    #[test]
    fn a_fifth_scrape_comes_again_when_one_has_left() {
        let answers = answers(true);
        let scrapes: Vec<Scrape> = (0..5).map(|_| Scrape::default()).collect();
        let statuses: Vec<u16> = scrapes
            .iter()
            .map(|scrape| {
                answers.answer(&Method::GET, "/metrics", scrape).unwrap().status().as_u16()
            })
            .collect();
        assert_eq!(statuses, [200, 200, 200, 200, 503]);
        drop(scrapes);
        assert_eq!(status(&answers, &Method::GET, "/metrics"), 200);
    }
}
