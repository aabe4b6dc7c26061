//! The command line: what it says and with which code it leaves.

use crate::harness::{Outcome, Scratch, baton};

fn run(args: &[&str]) -> Outcome {
    baton().args(args).output().unwrap().into()
}

const GOOD: &str = r#"{ "rules": [ { "name": "r", "listen": "127.0.0.1:1", "mode": "normal",
                        "targets": [ { "address": "127.0.0.1:2" } ] } ] }"#;

#[test]
fn a3_check_says_ok_with_the_number_of_rules_and_binds_nothing() {
    let scratch = Scratch::new();
    let file = scratch.file("good.json", GOOD).display().to_string();
    for args in [vec!["check", "--config", &file], vec!["--check-config", "--config", &file]] {
        let outcome = run(&args);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert_eq!(outcome.stdout, format!("config ok: {file} (1 rule)\n"));
    }
}

#[test]
fn every_problem_comes_with_its_place() {
    let scratch = Scratch::new();
    let bad = "{\n  \"rulez\": [],\n  \"log\": { \"level\": \"loud\" }\n}\n";
    let file = scratch.file("bad.json", bad).display().to_string();
    let outcome = run(&["check", "--config", &file]);
    assert_eq!(outcome.code, 1);
    assert_eq!(outcome.stdout, "");
    let places: Vec<_> = outcome.stderr.lines().filter(|l| l.starts_with(&file)).collect();
    assert!(places.len() >= 3, "{outcome:?}");
    assert!(outcome.stderr.contains(&format!("{file}:2:3: $.rulez: ")), "{outcome:?}");
    assert!(outcome.stderr.contains("did you mean \"rules\"?"), "{outcome:?}");
}

#[test]
fn a_program_gets_the_verdict_as_json() {
    let scratch = Scratch::new();
    let file = scratch.file("file.json", GOOD).display().to_string();
    let verdict =
        |outcome: &Outcome| serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap();
    let outcome = run(&["check", "--json", "--config", &file]);
    assert_eq!((outcome.code, &verdict(&outcome)["ok"]), (0, &true.into()));
    scratch.file("file.json", GOOD.replace("normal", "sideways"));
    let outcome = run(&["check", "--json", "--config", &file]);
    assert_eq!((outcome.code, &verdict(&outcome)["ok"]), (1, &false.into()));
    assert_eq!(verdict(&outcome)["problems"].as_array().unwrap().len(), 1);
}

#[test]
fn a33_a_pattern_that_does_not_compile_is_found_by_check() {
    let scratch = Scratch::new();
    let bad = GOOD
        .replace("normal", "regex")
        .replace("\"127.0.0.1:2\"", "\"127.0.0.1:2\", \"regexp\": \"(\"");
    let file = scratch.file("bad.json", bad).display().to_string();
    let outcome = run(&["check", "--config", &file]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("$.rules[0].targets[0].regexp: invalid regexp"), "{outcome:?}");
}

#[test]
fn a2_the_environment_names_the_file_and_an_empty_variable_counts_as_unset() {
    let scratch = Scratch::new();
    let file = scratch.file("good.json", GOOD);
    let check = |baton_config: &str, moto_config: &str| -> Outcome {
        baton()
            .arg("check")
            .current_dir(scratch.path())
            .env("BATON_CONFIG", baton_config)
            .env("MOTO_CONFIG", moto_config)
            .output()
            .unwrap()
            .into()
    };
    let good = file.to_str().unwrap();
    assert_eq!(check(good, "/nonexistent").code, 0);
    assert_eq!(check("", good).code, 0);
    let outcome = check("", "");
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("config/setting.json"), "{outcome:?}");
}

#[test]
fn a1_a_file_named_on_the_command_line_beats_the_environment() {
    let scratch = Scratch::new();
    let file = scratch.file("good.json", GOOD).display().to_string();
    let outcome: Outcome = baton()
        .args(["check", "--config", &file])
        .env("BATON_CONFIG", "/nonexistent")
        .env("MOTO_CONFIG", "/nonexistent")
        .output()
        .unwrap()
        .into();
    assert_eq!((outcome.code, outcome.stdout), (0, format!("config ok: {file} (1 rule)\n")));
}

#[test]
fn a4_the_version_prints_and_leaves() {
    let outcome = run(&["--version"]);
    assert_eq!(outcome.code, 0);
    assert!(outcome.stdout.starts_with(concat!("baton ", env!("CARGO_PKG_VERSION"), " (commit ")));
}

#[test]
fn a_url_compiles_to_the_same_model() {
    let outcome = run(&[
        "check",
        "--print",
        "-L",
        "tcp://127.0.0.1:8080/:8081,:8082?strategy=round&maxFails=1&failTimeout=30s",
    ]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let config: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(config["rules"][0]["mode"], "forward");
    assert_eq!(config["rules"][0]["targets"].as_array().unwrap().len(), 2);

    let outcome = run(&["check", "-L", "tcp://:8080/:8081?stratgy=round"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("did you mean \"strategy\"?"), "{outcome:?}");
    assert_eq!(run(&["run", "--config", "x", "-L", "tcp://:1/:2"]).code, 2);
}

#[test]
fn what_can_be_generated_is() {
    let schema = run(&["generate", "schema"]);
    assert!(
        serde_json::from_str::<serde_json::Value>(&schema.stdout).unwrap()["properties"]
            .is_object()
    );
    assert!(run(&["generate", "man"]).stdout.contains(".TH baton"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["generate", "completions", shell]).stdout.contains("baton"), "{shell}");
    }
    assert_eq!(run(&["generate", "nonsense"]).code, 2);
}

#[test]
fn a_worker_is_not_started_by_hand() {
    let outcome = run(&["worker"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("started by"), "{outcome:?}");
}

#[test]
fn clients_without_an_instance_say_so_with_their_own_code() {
    for command in ["status", "reload", "upgrade", "stop", "metrics"] {
        let outcome = run(&[command, "--runtime-dir", "/nonexistent"]);
        assert_eq!(outcome.code, 3, "{command}: {outcome:?}");
    }
}

#[test]
fn a5_what_is_not_understood_is_a_usage_error() {
    for args in [&["frobnicate"][..], &["run", "--nonsense"], &["status", "stray"]] {
        assert_eq!(run(args).code, 2, "{args:?}");
    }
}

#[test]
fn one_check_tells_everything_in_the_order_of_the_file() {
    let scratch = Scratch::new();
    let bad = r#"{ "log": { "level": "loud" },
  "rules": [
    { "name": "a", "listen": "no-such-host.invalid:1", "mode": "regex", "targets": [
      { "address": "127.0.0.1:2", "regexp": "(a" },
      { "address": "127.0.0.1:3", "regexp": "good" },
      { "address": "127.0.0.1:4", "regexp": "[b" } ] },
    { "name": "b", "listen": ":5", "mode": "normal", "targets": [
      { "address": "127.0.0.1:5" } ] } ] }"#;
    let file = scratch.file("bad.json", bad).display().to_string();
    let outcome = run(&["check", "--config", &file]);
    assert_eq!(outcome.code, 1);
    let expected = [
        ":1:21: $.log.level: ",
        ":3:30: $.rules[0].listen: cannot resolve no-such-host.invalid",
        ":4:45: $.rules[0].targets[0].regexp: invalid regexp \"(a\": ",
        ":6:45: $.rules[0].targets[2].regexp: invalid regexp \"[b\": ",
        ":8:20: $.rules[1].targets[0].address: \"127.0.0.1:5\" is the rule's own listener",
    ];
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{outcome:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("{file}{expected}")), "{line} {expected}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_once_and_none_at_all_with_the_way_out() {
    let scratch = Scratch::new();
    let outcome = run(&["check", "--config", "/nonexistent.json"]);
    let said = "baton: cannot read /nonexistent.json: No such file or directory (os error 2)\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, said));
    let outcome: Outcome = baton()
        .arg("run")
        .current_dir(scratch.path())
        .env_remove("BATON_CONFIG")
        .env_remove("MOTO_CONFIG")
        .output()
        .unwrap()
        .into();
    assert_eq!(outcome.code, 1);
    for word in
        ["baton: ", "$BATON_CONFIG", "$MOTO_CONFIG", "config/setting.json", "--config", "-L"]
    {
        assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
    }
}

#[test]
fn what_is_generated_shows_what_people_may_use_and_nothing_else() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["generate", "completions", shell]).stdout;
        assert!(script.contains("upgrade") && script.contains("check-config"), "{shell}");
        assert!(!script.contains("self-check") && !script.contains("identity"), "{shell}");
    }
    let page = run(&["generate", "man"]).stdout;
    assert!(page.contains(".SH \"baton upgrade\"") && page.contains("binary"), "{page}");
    let dir = scratch.path().join("man");
    assert_eq!(run(&["generate", "man", "--dir", dir.to_str().unwrap()]).code, 0);
    for page in ["baton.1", "baton-upgrade.1", "baton-check.1"] {
        assert!(dir.join(page).is_file(), "{page}");
    }
    assert!(!dir.join("baton-worker.1").exists());
}

#[test]
fn a_file_in_the_wrong_place_gets_a_tip() {
    for args in [&["run", "my.json"][..], &["my.json"], &["check", "my.json"]] {
        let outcome = run(args);
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains("--config my.json"), "{outcome:?}");
    }
    assert_eq!(run(&["check", "-c", "/nonexistent.json"]).code, 1);
}
