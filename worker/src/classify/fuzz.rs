//! What must hold for any first bytes: shared by the fuzz targets and by the test that replays
//! their corpus with the stable compiler. Not part of the crate's interface.

use std::sync::LazyLock;

use super::host::HostParser;
use super::proxy_header::{self, Header};
use super::regex::Patterns;
use super::tls::HelloParser;
use super::{Classifier, Decision, Progress, Reason};
use crate::flow::Verdict;

/// A stream is a ClientHello or not, however it is cut, and its name is in canonical form.
pub fn client_hello(bytes: &[u8]) {
    let tls = || Classifier::Tls(HelloParser::default());
    let (stepped, _) = step_by_step(tls(), bytes, 1);
    assert_eq!(stepped, in_one_read(tls(), bytes), "the cut decides");
    if let Decision::Found(Verdict::Hello(hello)) = stepped
        && let Some(name) = hello.server_name
    {
        assert!((1..=253).contains(&name.len()), "{name:?}");
        assert!(!name.ends_with('.') && !name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
}

/// A stream names the same host however it is cut, and in canonical form.
pub fn host(bytes: &[u8]) {
    let reader = || Classifier::Host(HostParser::default());
    let (stepped, _) = step_by_step(reader(), bytes, 1);
    assert_eq!(stepped, in_one_read(reader(), bytes), "the cut decides");
    if let Decision::Found(verdict) = stepped {
        let name = if let Verdict::Host(name) = verdict { Some(name) } else { None };
        let name = name.expect("what is found is a host");
        assert!((1..=253).contains(&name.len()), "{name:?}");
        assert!(!name.ends_with('.') && !name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
}

/// A header is told from anything else, the same at every length, and says no more than is there.
pub fn header(bytes: &[u8]) {
    let whole = proxy_header::parse(bytes);
    for length in 0..bytes.len() {
        let early = proxy_header::parse(&bytes[..length]);
        assert!(early == Header::NeedMore || early == whole, "{early:?} became {whole:?}");
    }
    match whole {
        Header::NeedMore => assert!(bytes.len() < proxy_header::LIMIT, "no end in sight"),
        Header::Proxied { consumed, .. } | Header::Local { consumed } => {
            assert!(consumed <= bytes.len().min(proxy_header::LIMIT));
            assert_ne!(proxy_header::parse(&bytes[..consumed - 1]), whole, "it is too long");
        }
        Header::Malformed => {}
    }
}

/// Patterns say the same of a window whether it grew or came at once, and in steps of any size.
pub fn regex_window(bytes: &[u8]) {
    static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
        let texts = [
            r"^(GET|POST|HEAD) [^ \r\n]* HTTP/1\.[01]\r\n",
            r"^SSH-2\.0-",
            r"^\x16\x03[\x00-\x04]",
            r"^\x05[\x01-\x09]",
            r"\bHost: *example\.com$",
            r"(?m)^QUIT$",
            r"(a|b).{9}(a|b)\B",
            r"^PING(\r\n)?\z",
        ];
        Patterns::compile(&texts.map(Some)).ok()
    });
    let patterns = PATTERNS.as_ref().expect("they are in the dialect");
    let scan = || Classifier::Regex(patterns.scan());
    for step in [1, 3 + bytes.len() % 61] {
        let (stepped, length) = step_by_step(scan(), bytes, step);
        assert_eq!(stepped, in_one_read(scan(), &bytes[..length]), "growing decides");
    }
}

/// The decision, and how many bytes were there when it came.
fn step_by_step(mut classifier: Classifier<'_>, bytes: &[u8], step: usize) -> (Decision, usize) {
    let limit = classifier.limit();
    for length in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        match classifier.feed(&bytes[..length]) {
            Progress::Decided(decision) => return (decision, length),
            Progress::NeedMore => assert!(length < limit, "undecided at the limit"),
        }
    }
    (classifier.end(bytes, Reason::Eof), bytes.len())
}

fn in_one_read(mut classifier: Classifier<'_>, bytes: &[u8]) -> Decision {
    match classifier.feed(bytes) {
        Progress::Decided(decision) => decision,
        Progress::NeedMore => classifier.end(bytes, Reason::Eof),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Runs `check` over every seed of a target.
    fn replay(target: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let seeds: Vec<_> = fs::read_dir(corpus).expect("the corpus is there").flatten().collect();
        assert!(seeds.len() >= 3, "{target} has seeds");
        for seed in seeds {
            check(&fs::read(seed.path()).expect("a seed is a file"));
        }
    }

    #[test]
    fn the_corpus_of_client_hellos_passes() {
        replay("client_hello", super::client_hello);
    }

    #[test]
    fn the_corpus_of_hosts_passes() {
        replay("host", super::host);
        replay("client_hello", super::host);
    }

    #[test]
    fn the_corpus_of_proxy_headers_passes() {
        replay("proxy_header", super::header);
    }

    #[test]
    fn the_corpus_of_regex_windows_passes() {
        replay("regex_window", super::regex_window);
    }
}
