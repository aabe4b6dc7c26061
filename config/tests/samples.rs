//! Every file of the repository that a user may start from is accepted, means what it is there
//! to show, and survives being printed and read again.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_config::model::{
    Address, Config, HashKey, HealthKind, Host, Level, Mode, OnAllFailed, ParallelMode,
    ProxyVersion, Strategy, SubsetFallback, User,
};
use baton_config::{load, parse, print, schema};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).into()
}

fn sample(name: &str) -> Config {
    match load(&folder().join(name)) {
        Ok(loaded) => loaded.config,
        Err(error) => panic!("{error}"),
    }
}

fn all() -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder().join("samples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.push(folder().join("setting.json"));
    files
}

#[test]
fn every_sample_loads_and_survives_printing() {
    let files = all();
    assert!(files.len() >= 7);
    for file in files {
        let loaded = load(&file).unwrap_or_else(|error| panic!("{error}"));
        let printed = print::to_json(&loaded.config);
        let again = parse("printed", printed.as_bytes())
            .unwrap_or_else(|problems| panic!("{problems}\n{printed}"));
        assert_eq!(again.config, loaded.config, "{printed}");
        assert_eq!(print::to_json(&again.config), printed);
    }
}

#[test]
fn the_default_file_is_safe_to_start() {
    let config = sample("setting.json");
    assert!(config.metrics.enabled);
    assert_eq!(config.metrics.listen.to_string(), "127.0.0.1:9090");
    for rule in &config.rules {
        assert!(rule.listen.text.starts_with("127.0.0.1:"), "{}", rule.listen.text);
        assert!(!rule.prewarm);
        assert_eq!(rule.health_check.as_ref().unwrap().kind, HealthKind::Tcp);
    }
}

#[test]
fn a_moto_file_means_what_moto_means() {
    let config = sample("samples/moto.json");
    let [normal, regex, boost, turns, tls] = config.rules.as_slice() else { panic!() };
    assert_eq!(normal.mode, Mode::Normal);
    assert_eq!(normal.timeout, Duration::from_secs(60));
    assert_eq!(normal.targets[0].address, normal.targets[1].address);
    assert_eq!(normal.targets[0].regexp, None);
    assert!(normal.allowlist.is_empty() && normal.blacklist.is_empty());
    assert_eq!(regex.timeout, Duration::from_millis(500));
    assert_eq!(regex.blacklist, ["192.0.2.10".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(regex.targets[1].regexp.as_deref(), Some("^\\x05"));
    assert_eq!(regex.targets[2].regexp, None);
    let Mode::Boost(Some(hedge)) = &boost.mode else { panic!() };
    assert_eq!(hedge.min_delay, Duration::from_millis(25));
    assert_eq!(hedge.max_delay, Duration::from_millis(250));
    assert!(boost.prewarm && boost.health_check.is_none());
    assert_eq!((turns.max_connections, turns.max_connections_per_ip), (100, 100));
    assert_eq!((boost.max_connections, boost.max_connections_per_ip), (4096, 256));
    assert_eq!(tls.proxy_protocol.trusted[0].to_string(), "127.0.0.0/8");
    assert_eq!(tls.proxy_protocol.send, Some(ProxyVersion::V2));
    assert_eq!(tls.targets[0].server_names, ["api.example.net", "*.api.example.net"]);
    assert!(tls.targets[1].server_names.is_empty());
}

#[test]
fn the_forward_sample_shows_every_strategy_with_fields() {
    let config = sample("samples/forward.json");
    let forwards: Vec<_> = config
        .rules
        .iter()
        .map(|rule| {
            let Mode::Forward(forward) = &rule.mode else { panic!("{:?}", rule.mode) };
            forward
        })
        .collect();
    assert_eq!(forwards[0].selector.strategy, Strategy::Rand);
    assert_eq!((forwards[0].retries, forwards[1].retries), (1, 2));
    assert_eq!(forwards[0].selector.fail_timeout, Duration::from_secs(30));
    assert_eq!(forwards[1].selector.fail_timeout, Duration::from_secs(10));
    assert_eq!(forwards[1].selector.on_all_failed, OnAllFailed::Reject);
    assert_eq!(forwards[2].selector.strategy, Strategy::Hash);
    assert_eq!(forwards[2].hash, HashKey::Client);
    let race = Strategy::Parallel { max: 2, mode: ParallelMode::Rand };
    assert_eq!(forwards[3].selector.strategy, race);
    assert_eq!(forwards[4].selector.strategy, Strategy::Latency);
    let local = Address { host: Host::Ip([127, 0, 0, 1].into()), port: 8081 };
    assert_eq!(config.rules[0].targets[0].address, local);
    assert_eq!(config.rules[0].targets[1].fail_timeout, Some(Duration::from_secs(60)));
    assert_eq!(config.rules[1].idle_timeout, Some(Duration::from_secs(900)));
    let unnamed = &config.rules[1].targets[1];
    assert_eq!(unnamed.name, unnamed.address.to_string());
    assert_eq!(config.rules[4].subset.as_ref().unwrap().fallback, SubsetFallback::None);
}

#[test]
fn the_service_sample_sets_every_field_of_the_supervisor() {
    let config = sample("samples/service.json");
    assert_eq!(config.log.level, Level::Warn);
    assert_eq!(config.supervisor.user, Some(User::Ids { uid: 65534, gid: 65534 }));
    assert_eq!(config.supervisor.ready_timeout, Duration::from_secs(90));
    assert_eq!(config.supervisor.migrate_timeout, Duration::ZERO);
    assert!(!config.supervisor.crash_recovery);
}

#[test]
fn the_committed_schema_is_fresh() {
    let file = folder().join("schema.json");
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    if committed != schema() && std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(&file, schema()).unwrap();
        return;
    }
    assert!(committed == schema(), "schema.json is stale: run this test with BATON_BLESS=1");
}

#[test]
fn the_schema_names_every_field_the_samples_use() {
    fn covered(value: &serde_json::Value, schema: &serde_json::Value, path: &str) {
        let schema = schema.get("anyOf").map_or(schema, |any| &any[0]);
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    let inner = schema["properties"].get(key).or_else(|| {
                        schema.get("additionalProperties").filter(|inner| inner.is_object())
                    });
                    let inner =
                        inner.unwrap_or_else(|| panic!("{path}.{key} is not in the schema"));
                    covered(value, inner, &format!("{path}.{key}"));
                }
            }
            serde_json::Value::Array(items) => {
                for item in items {
                    covered(item, &schema["items"], path);
                }
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    for file in all() {
        let text = std::fs::read_to_string(&file).unwrap();
        covered(&serde_json::from_str(&text).unwrap(), &schema, "$");
        covered(
            &serde_json::from_str(&print::to_json(&load(&file).unwrap().config)).unwrap(),
            &schema,
            "$",
        );
    }
}

#[test]
fn a_target_without_a_name_is_called_by_its_address_and_a_second_one_by_a_number() {
    let config = parse(
        "f",
        br#"{"rules": [{"name": "r", "listen": ":1", "mode": "normal", "targets": [
            {"address": "a:1"}, {"address": "a:1", "name": "given"}, {"address": "a:1"},
            {"address": "[::1]:2"}]}]}"#,
    )
    .unwrap()
    .config;
    let targets = &config.rules[0].targets;
    let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["a:1", "given", "a:1#2", "[::1]:2"]);
    let given: Vec<_> = targets.iter().filter_map(|target| target.given_name()).collect();
    assert_eq!(given, ["given"]);
}
