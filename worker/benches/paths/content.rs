//! What a connection's first bytes say: ClientHello, patterns, PROXY header.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use baton_config::model::{Mode, ProxyVersion, Rule};
use baton_worker::classify::proxy_header::{encode, parse};
use baton_worker::classify::regex::Patterns;
use baton_worker::classify::tls::HelloParser;
use baton_worker::classify::{Classifier, Decision, Progress, Reason};
use baton_worker::flow::Moment;
use baton_worker::route::Router;
use baton_worker::upstream::LineSet;

use super::{Path, decision};

const HELLO: &[u8] = include_bytes!("../../../fuzz/corpus/client_hello/bare");
const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: example.test\r\n\r\n";

/// Reading the first bytes and finding the candidates, with so many targets.
pub(crate) fn paths(count: u16) -> Vec<Path> {
    let mut paths = vec![
        classified(
            format!("tls: ClientHello, {count} targets"),
            &decision::rule(Mode::Tls, count),
            HELLO,
            || Classifier::Tls(HelloParser::default()),
        ),
        regex(count),
    ];
    for (name, version) in [("1", ProxyVersion::V1), ("2", ProxyVersion::V2)] {
        let client = SocketAddr::from(([192, 0, 2, 1], 50_000));
        let header = encode(version, client, SocketAddr::from(([198, 51, 100, 2], 443)));
        paths.push(Path::new(format!("PROXY header: read, version {name}"), move || {
            black_box(parse(black_box(header.as_ref())));
        }));
    }
    paths
}

/// The last of `count` patterns matches.
fn regex(count: u16) -> Path {
    let texts: Vec<String> = (1..count).map(|n| format!("^PROTO{n} ")).collect();
    let patterns: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
    let patterns = Patterns::compile(&[patterns, vec![Some("^GET ")]].concat())
        .unwrap_or_else(|error| panic!("the patterns are good: {error:?}"));
    // Scans borrow their patterns; these live as long as the benchmark.
    let patterns: &'static Arc<Patterns> = Box::leak(Box::new(Arc::new(patterns)));
    classified(
        format!("regex: the last of {count} matches"),
        &decision::rule(Mode::Regex, count),
        REQUEST,
        || Classifier::Regex(patterns.scan()),
    )
}

fn classified(
    name: String,
    rule: &Rule,
    bytes: &'static [u8],
    classifier: impl Fn() -> Classifier<'static> + 'static,
) -> Path {
    let lines = Arc::new(LineSet::for_rule(rule, |_| None, None));
    let router = Router::for_rule(rule, &lines);
    let now = Moment(1_000_000_000_000);
    Path::new(name, move || {
        let mut classifier = classifier();
        let decision = match classifier.feed(black_box(bytes)) {
            Progress::Decided(decision) => decision,
            Progress::NeedMore => classifier.end(bytes, Reason::Eof),
        };
        let (Decision::Found(verdict) | Decision::Nothing(verdict, _)) = decision;
        drop(black_box(router.candidates(&verdict, &lines, now)));
    })
}
