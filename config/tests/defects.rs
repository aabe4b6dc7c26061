//! Every way to get a file wrong, and the exact words about it.
//!
//! The table is one snapshot: a change of any message is seen in review. Each defect must be
//! refused with at least one problem, and the file without it must load.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;

/// A file with one rule: mode, targets and further fields of the rule.
fn rule(mode: &str, targets: &str, extra: &str) -> String {
    format!(
        "{{\"rules\": [{{\"name\": \"a\", \"listen\": \"127.0.0.1:8080\", \"mode\": \"{mode}\",\n  \
         \"targets\": [{targets}]{extra}}}]}}"
    )
}

/// A good `normal` rule with further fields.
fn normal(extra: &str) -> String {
    rule("normal", TARGET, extra)
}

fn forward(extra: &str) -> String {
    rule("forward", TWO, extra)
}

/// A good rule and a further section.
fn with(section: &str) -> String {
    let rules = normal("");
    format!("{{{section},\n{}", &rules[1..])
}

/// Two rules that listen at these addresses.
fn listeners(one: &str, two: &str) -> String {
    format!(
        "{{\"rules\": [\n  {{\"name\": \"a\", \"listen\": \"{one}\", \"mode\": \"normal\", \"targets\": [{TARGET}]}},\n  \
         {{\"name\": \"b\", \"listen\": \"{two}\", \"mode\": \"normal\", \"targets\": [{TARGET}]}}]}}"
    )
}

const TARGET: &str = r#"{"address": "127.0.0.1:9000"}"#;
const TWO: &str = r#"{"address": "127.0.0.1:9000"}, {"address": "127.0.0.1:9001"}"#;

fn many(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

fn nested(depth: usize) -> String {
    format!("{{\"rules\": {}{}}}", "[".repeat(depth), "]".repeat(depth))
}

/// Rules with one health-checked or prewarmed target list each.
fn crowd(rules: usize, targets: usize, extra: &str) -> String {
    let rules = many(rules, |rule| {
        let targets = many(targets, |target| {
            format!("{{\"address\": \"10.0.{rule}.{}:{}\"}}", target % 250, 1000 + target)
        });
        format!(
            "{{\"name\": \"r{rule}\", \"listen\": \":{}\", \"mode\": \"normal\", \"targets\": [{targets}]{extra}}}",
            2000 + rule
        )
    });
    format!("{{\"rules\": [{rules}]}}")
}

fn syntax() -> Vec<(&'static str, String)> {
    vec![
        ("an empty file", String::new()),
        ("blanks only", " \n ".into()),
        ("a list at the top", "[]".into()),
        ("a line comment", "{\n  // rules\n  \"rules\": []}".into()),
        ("a block comment", "{\"rules\": /* none */ []}".into()),
        ("a comment at the end", format!("{}\n# end", normal(""))),
        ("a trailing comma in an object", "{\"rules\": [],}".into()),
        ("a trailing comma in a list", "{\"rules\": [1,]}".into()),
        ("a missing comma", "{\"log\": {}\n \"rules\": []}".into()),
        ("single quotes", "{'rules': []}".into()),
        ("a bare key", "{rules: []}".into()),
        ("a hexadecimal number", normal(", \"timeout\": 0x10")),
        ("a leading plus", normal(", \"timeout\": +10")),
        ("a raw line break in a text", "{\"rules\": \"a\nb\"}".into()),
        ("half a surrogate pair", "{\"rules\": \"\\ud800\"}".into()),
        ("an unfinished object", "{\"rules\": [".into()),
        ("trailing content", format!("{} {{}}", normal(""))),
        ("a byte order mark", format!("\u{feff}{}", normal(""))),
        ("nesting too deep", nested(64)),
        ("columns are characters", "{\"log\": {\"päth\": 1, \"ö\": 2}, \"rules\": []}".into()),
    ]
}

fn fields() -> Vec<(&'static str, String)> {
    vec![
        ("an empty object", "{}".into()),
        ("no rules", "{\"rules\": []}".into()),
        ("an unknown field at the top", with("\"quux\": 1")),
        ("a wrong-case field at the top", normal("").replace("\"rules\"", "\"Rules\"")),
        ("a misspelled field", normal(", \"tiemout\": 1")),
        ("a separator in a field", normal(", \"max_connections\": 1")),
        ("GOST's word for a field", rule("normal", r#"{"addr": "127.0.0.1:1"}"#, "")),
        ("Moto's removed log fields", with(r#""log": {"version": "1.0", "date": "2024"}"#)),
        ("a duplicate field at the top", with("\"dns\": {}, \"dns\": {}")),
        ("a duplicate field of a rule", normal(", \"mode\": \"normal\"")),
        ("a duplicate field below an unknown one", with(r#""quux": [{"a": {"b": 1, "b": 2}}]"#)),
        ("missing fields of a rule", "{\"rules\": [{}]}".into()),
        ("a rule that is null", "{\"rules\": [null]}".into()),
        ("a target that is null", rule("normal", "null", "")),
        ("a target that is a text", rule("normal", "\"127.0.0.1:1\"", "")),
        ("a null that is not Moto's", normal(", \"timeout\": null")),
        ("a text for a number", normal(", \"maxConnections\": \"10\"")),
        ("a number for a text", "{\"$schema\": 1, \"rules\": []}".into()),
        ("a number for a switch", normal(", \"prewarm\": 1")),
        ("an object for a list", normal(", \"allowlist\": {}")),
        ("a fraction", normal(", \"maxConnections\": 1.5")),
        ("an exponent", normal(", \"timeout\": 3e3")),
        ("a negative number", normal(", \"maxConnections\": -1")),
        ("a number beyond every type", normal(", \"timeout\": 99999999999999999999999")),
        ("a text that is no duration", normal(", \"timeout\": \"soon\"")),
        ("a duration out of range", normal(", \"timeout\": \"6m\"")),
        ("a duration finer than a millisecond", normal(", \"timeout\": \"1500us\"")),
        ("reserved sections", with("\"hops\": [], \"chains\": []")),
        ("reserved fields of a rule", normal(r#", "hop": "", "chain": "", "chainGroup": {}, "auth": {}"#)),
        ("reserved modes", rule("socks5", TARGET, "")),
        ("newer Moto's proxying", rule("boost", r#"{"address": "a:1", "connectProxy": {}}"#, r#", "protocol": "socks5", "userAgent": []"#)),
        ("many problems at once", "{\"log\": {\"level\": \"loud\"}, \"metrics\": {\"listen\": \"0.0.0.0:1\"},\n \"rules\": [{\"name\": \" a\", \"listen\": \"nowhere\", \"mode\": \"magic\",\n  \"targets\": [{\"address\": \"\"}], \"timeout\": -1, \"extra\": true}]}".into()),
    ]
}

fn sections() -> Vec<(&'static str, String)> {
    vec![
        ("an invalid level", with(r#""log": {"level": "information"}"#)),
        ("a log path of blanks", with(r#""log": {"path": "  "}"#)),
        ("a log path with NUL", with(r#""log": {"path": "a\u0000b"}"#)),
        ("a log path that is a directory", with(r#""log": {"path": "/var/log/"}"#)),
        ("metrics on every address", with(r#""metrics": {"listen": "0.0.0.0:9090"}"#)),
        ("metrics on a name", with(r#""metrics": {"listen": "localhost:9090"}"#)),
        ("metrics without a host", with(r#""metrics": {"listen": ":9090"}"#)),
        (
            "metrics on a rule's address",
            with(r#""metrics": {"enabled": true, "listen": "127.0.0.1:8080"}"#),
        ),
        (
            "metrics at their default on a rule's address",
            with("\"metrics\": {\"enabled\": true}").replace("8080", "9090"),
        ),
        ("a relative runtimeDir", with(r#""supervisor": {"runtimeDir": "run"}"#)),
        ("a runtimeDir with dots", with(r#""supervisor": {"runtimeDir": "/run/../etc"}"#)),
        ("an unknown handover", with(r#""supervisor": {"handover": "connection"}"#)),
        ("an invalid user", with(r#""supervisor": {"user": "no body"}"#)),
        ("a user id that means none", with(r#""supervisor": {"user": "4294967295:0"}"#)),
        ("a readyTimeout out of range", with(r#""supervisor": {"readyTimeout": "100ms"}"#)),
        ("a regionSize that is no page", with(r#""supervisor": {"regionSize": 100000}"#)),
        ("workerThreads out of range", with(r#""supervisor": {"workerThreads": 257}"#)),
        ("no connections at all", with(r#""supervisor": {"maxConnections": 0}"#)),
        ("a refresh out of range", with(r#""dns": {"refresh": 0}"#)),
        ("an unknown family", with(r#""dns": {"prefer": "v6"}"#)),
        (
            "hosts that are wrong",
            with(
                r#""dns": {"hosts": {"a b": ["1.2.3.4"], "ok": ["1.2.3"], "none": [], "x.": ["::1"], "dup": ["::1", "::1"], "DUP": ["::1"]}}"#,
            ),
        ),
    ]
}

fn rules() -> Vec<(&'static str, String)> {
    vec![
        ("an empty name", normal("").replace("\"a\"", "\"\"")),
        ("a name with blanks around", normal("").replace("\"a\"", "\"a \"")),
        ("a name with a control character", normal("").replace("\"a\"", "\"a\\u001bb\"")),
        ("a duplicate name", listeners(":1", ":2").replace("\"b\"", "\"a\"")),
        ("a listen without a port", listeners("127.0.0.1", "[::1]")),
        ("a listen with port 0", listeners("127.0.0.1:0", "127.0.0.1:65536")),
        ("a listen with a port range", listeners("127.0.0.1:80-90", ":http")),
        ("a listen with bare IPv6", listeners("::1:80", "*:80")),
        ("a listen with a wrong host", listeners("10.0.0.256:80", "-a.example:80")),
        ("the same listen twice", listeners(":80", ":80")),
        ("a wildcard and a host", listeners("127.0.0.1:80", "0.0.0.0:80")),
        ("no host and a host", listeners(":80", "[::1]:80")),
        ("an IPv4-mapped listen", listeners("127.0.0.1:80", "[::ffff:127.0.0.1]:80")),
        ("localhost and loopback", listeners("[::1]:80", "LocalHost:80")),
        ("an unknown mode", rule("round-robin", TARGET, "")),
        ("no targets", rule("normal", "", "")),
        ("too many targets", rule("normal", &many(129, |_| TARGET.into()), "")),
        ("too many rules", crowd(257, 1, "")),
        ("hedge outside boost", normal(", \"hedge\": {}")),
        (
            "hedge with one address",
            rule("boost", &format!("{TARGET}, {TARGET}"), ", \"hedge\": {}"),
        ),
        ("hedge delays the wrong way round", rule("boost", TWO, r#", "hedge": {"minDelay": 300}"#)),
        ("hedge beyond the timeout", rule("boost", TWO, ", \"hedge\": {}, \"timeout\": 250")),
        (
            "a hedge delay out of range",
            rule("boost", TWO, r#", "hedge": {"minDelay": 9, "maxDelay": 5001}"#),
        ),
        (
            "selector outside forward",
            normal(", \"selector\": {}, \"retries\": 1, \"hash\": \"host\""),
        ),
        ("prewarm in forward", forward(", \"prewarm\": false")),
        (
            "prewarm with outbound PROXY",
            normal(r#", "prewarm": true, "proxyProtocol": {"send": "v1"}"#),
        ),
        ("too many prewarm targets", crowd(3, 100, ", \"prewarm\": true")),
        ("accept without trusted hops", normal(r#", "proxyProtocol": {"accept": true}"#)),
        (
            "trusted hops without accept",
            normal(r#", "proxyProtocol": {"trustedCIDRs": ["::1/128"]}"#),
        ),
        ("an unknown PROXY version", normal(r#", "proxyProtocol": {"send": "v3"}"#)),
        (
            "networks that are wrong",
            normal(r#", "allowlist": ["10.0.0.7", "10.0.0.0/33", "::ffff:10.0.0.0/95", ""]"#),
        ),
        (
            "blacklist entries that are wrong",
            normal(r#", "blacklist": {"10.0.0.0/8": true, "::1": 1, "x": false}"#),
        ),
        (
            "more for one client than for all",
            normal(r#", "maxConnections": 10, "maxConnectionsPerIP": 11"#),
        ),
        ("more for one client than by default", normal(r#", "maxConnectionsPerIP": 5000"#)),
        ("a subset without sets", normal(r#", "subset": {"prefer": []}"#)),
        (
            "a subset with an empty set",
            normal(r#", "subset": {"prefer": [{}], "fallback": "all"}"#),
        ),
        ("a subset without prefer", normal(r#", "subset": {}"#)),
        ("an unknown health check", normal(r#", "healthCheck": {"type": "https"}"#)),
        (
            "HTTP fields of a TCP check",
            normal(r#", "healthCheck": {"path": "/", "statusMin": 200, "statusMax": 299}"#),
        ),
        (
            "a probe longer than its interval",
            normal(r#", "healthCheck": {"interval": 1000, "timeout": 1001}"#),
        ),
        (
            "probe numbers out of range",
            normal(
                r#", "healthCheck": {"interval": 249, "timeout": 49, "failureThreshold": 0, "successThreshold": 21}"#,
            ),
        ),
        (
            "probe paths that are wrong",
            normal(r#", "healthCheck": {"type": "http", "path": "//host/x"}"#),
        ),
        (
            "a probe path with a host",
            normal(r#", "healthCheck": {"type": "http", "path": "http://a/"}"#),
        ),
        (
            "a probe path with a fragment",
            normal(r#", "healthCheck": {"type": "http", "path": "/a#b"}"#),
        ),
        (
            "probe statuses the wrong way round",
            normal(r#", "healthCheck": {"type": "http", "statusMin": 500}"#),
        ),
        ("too many health checks", crowd(9, 120, ", \"healthCheck\": {}")),
    ]
}

fn targets() -> Vec<(&'static str, String)> {
    let tls = |fields: &str| rule("tls", &format!("{{\"address\": \"a:1\", {fields}}}"), "");
    let one = |fields: &str| rule("normal", &format!("{{\"address\": \"a:1\", {fields}}}"), "");
    let long = "a".repeat(64);
    vec![
        ("an empty address", rule("normal", r#"{"address": ""}"#, "")),
        ("an address without a port", rule("normal", r#"{"address": "db.internal"}"#, "")),
        ("an address with an open bracket", rule("normal", r#"{"address": "[::1:80"}"#, "")),
        ("an address with a scope", rule("normal", r#"{"address": "[fe80::1%eth0]:80"}"#, "")),
        ("an address that is a URL", rule("normal", r#"{"address": "http://a:80"}"#, "")),
        ("regexp outside regex", one(r#""regexp": "^GET""#)),
        ("TLS matchers outside tls", one(r#""serverNames": [], "alpn": []"#)),
        (
            "selection fields outside forward",
            one(r#""weight": 2, "backup": true, "maxFails": 1, "failTimeout": "1s""#),
        ),
        (
            "two fallbacks in regex",
            rule("regex", &format!("{TARGET}, {{\"address\": \"a:1\", \"regexp\": \"\"}}"), ""),
        ),
        ("two fallbacks in tls", rule("tls", TWO, "")),
        (
            "server names that are wrong",
            tls(&format!(
                r#""serverNames": ["", "a..b", "*", "*.*.b", "a.*", "x*.b", "{long}.b", "10.0.0.1", "A.b", "a.B"]"#
            )),
        ),
        ("protocols that are wrong", tls(r#""alpn": ["", "h2", "h2", "ü"]"#)),
        ("a weight out of range", rule("forward", r#"{"address": "a:1", "weight": 0}"#, "")),
        ("backups only", rule("forward", r#"{"address": "a:1", "backup": true}"#, "")),
        ("a target name that is wrong", one(r#""name": "a b""#)),
        (
            "a target name twice",
            rule(
                "normal",
                r#"{"address": "a:1", "name": "x"}, {"address": "b:1", "name": "x"}"#,
                "",
            ),
        ),
        ("labels that are wrong", one(r#""labels": {"a b": "c", "d": "", "e": 1}"#)),
        (
            "too many labels",
            one(&format!("\"labels\": {{{}}}", many(17, |n| format!("\"l{n}\": \"x\"")))),
        ),
        ("an unknown resolve", one(r#""resolve": "always""#)),
        ("an unknown strategy", forward(r#", "selector": {"strategy": "roundrobin"}"#)),
        (
            "parallel fields without parallel",
            forward(r#", "selector": {"maxParallel": 2, "parallelMode": "rand"}"#),
        ),
        ("hash without the hash strategy", forward(", \"hash\": \"host\"")),
        (
            "selector numbers out of range",
            forward(r#", "retries": 9, "selector": {"maxFails": 0, "failTimeout": "99ms"}"#),
        ),
        ("an unknown last resort", forward(r#", "selector": {"onAllFailed": "direct"}"#)),
    ]
}

#[test]
fn every_defect_is_refused_in_these_words() {
    let all = [syntax(), fields(), sections(), rules(), targets()].concat();
    assert!(all.len() >= 40, "{}", all.len());
    let mut table = String::new();
    for (name, text) in all {
        let Err(problems) = baton_config::parse("f", text.as_bytes()) else {
            panic!("{name} is accepted: {text}");
        };
        assert!(!problems.0.is_empty(), "{name}");
        writeln!(table, "# {name}\n{problems}\n").unwrap();
    }
    insta::assert_snapshot!("defects", table);
}

#[test]
fn the_files_without_the_defects_load() {
    let good = [
        normal(""),
        forward(""),
        rule("boost", TWO, ", \"hedge\": {}"),
        with("\"dns\": {}"),
        listeners(":80", ":81"),
        listeners("127.0.0.1:80", "127.0.0.2:80"),
        listeners("[::1]:80", "127.0.0.1:80"),
        listeners("localhost:80", "10.0.0.1:80"),
        with("\"metrics\": {\"enabled\": false, \"listen\": \"127.0.0.1:8080\"}"),
        crowd(256, 1, ""),
        crowd(8, 128, ", \"healthCheck\": {}"),
        crowd(2, 128, ", \"prewarm\": true"),
        rule("normal", &many(128, |_| TARGET.into()), ""),
        normal(", \"timeout\": -0"),
    ];
    for text in good {
        if let Err(problems) = baton_config::parse("f", text.as_bytes()) {
            panic!("{problems}\n{text}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_where_they_stand() {
    let problems = baton_config::parse("f", b"{\n  \"r\xffules\": []}").unwrap_err();
    assert_eq!(problems.to_string(), "f:2:5: $: not UTF-8 text");
}

#[test]
fn a_file_over_the_limit_is_refused_unread() {
    let problems = baton_config::parse("f", &vec![b' '; (16 << 20) + 1]).unwrap_err();
    assert_eq!(problems.to_string(), "f:1:1: $: the file is larger than 16 MiB");
}

#[test]
fn more_values_than_any_configuration_has_are_refused() {
    let text = format!("[{}0]", "0,".repeat(1_000_001));
    let problems = baton_config::parse("f", text.as_bytes()).unwrap_err();
    assert_eq!(problems.0[0].message, "more than 1000000 values");
}

#[test]
fn the_worst_files_are_answered_without_copying_paths_around() {
    let key = "k".repeat(70);
    let deep = format!("{{\"{key}\": ").repeat(62);
    let floor = many(100_000, |_| "{\"a\": 1, \"a\": 2}".into());
    let text = format!("{deep}[{floor}]{}", "}".repeat(62));
    let problems = baton_config::parse("f", text.as_bytes()).unwrap_err();
    assert_eq!(problems.0.len(), 1001);
    assert_eq!(problems.0[1000].message, "99002 further problems are not shown");
}

#[test]
fn later_checks_can_point_at_the_file() {
    let text = rule("regex", r#"{"address": "a:1", "regexp": "("}"#, "");
    let positions = baton_config::parse("f", text.as_bytes()).unwrap().positions;
    let say = |path| positions.problem(path, "no").to_string();
    assert_eq!(say("$.rules[0].targets[0].regexp"), "f:2:44: $.rules[0].targets[0].regexp: no");
    assert_eq!(say("$.rules[0].listen"), "f:1:36: $.rules[0].listen: no");
    // What is not written is reported at what would hold it.
    assert_eq!(say("$.rules[0].targets[0].labels.x"), "f:2:15: $.rules[0].targets[0].labels.x: no");
    assert_eq!(say("$.dns.refresh"), "f:1:1: $.dns.refresh: no");
}

#[test]
fn a_flood_of_problems_is_cut_and_counted() {
    let text = format!("{{{}}}", many(1500, |n| format!("\"q{n}\": 1")));
    let problems = baton_config::parse("f", text.as_bytes()).unwrap_err();
    assert_eq!(problems.0.len(), 1001);
    assert_eq!(problems.0[1000].message, "501 further problems are not shown");
}

#[test]
fn depth_is_counted_outside_of_texts_only() {
    let text =
        normal("").replace("\"a\"", &format!("\"{}\\\"{}\"", "[".repeat(70), "{".repeat(70)));
    assert!(baton_config::parse("f", text.as_bytes()).is_ok());
}
