//! Older and newer protocols: what this tree speaks, made to speak something else by the name of
//! its file.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::part::Kind;
use super::setting::{Place, Setting};
use super::verdict::Allowed;
use crate::harness::{Scratch, copy_program};

fn speaking(scratch: &Scratch, range: &str) -> PathBuf {
    let copy = scratch.path().join(format!("baton.speaks-{range}"));
    copy_program(Path::new(env!("CARGO_BIN_EXE_baton")), &copy);
    copy
}

/// From one range of protocols to another and back, with connections that live through it.
fn there_and_back(from: &str, to: &str) {
    let scratch = Scratch::new();
    let (old, new) = (speaking(&scratch, from), speaking(&scratch, to));
    let place = Place::new();
    let supervisor = json!({ "watch": "0s", "drainTimeout": "5m" });
    let setting = Setting::start(&place, &supervisor, Some(&old), "", &Kind::ALL);
    for binary in [&new, &old, &new, &old] {
        let serving = setting.instance.serving();
        setting.instance.expect_ok(&["upgrade", "--binary", binary.to_str().unwrap()]);
        assert_ne!(setting.instance.serving(), serving, "{}", binary.display());
        setting.act.wait_moved(100_000);
        // Protocol 1 has no words for connections that move: there they stay and drain.
        if !from.starts_with("1-1") {
            setting.instance.wait_for("all connections have moved", |status| {
                (status["workers"].as_array()?.len() == 1).then_some(())
            });
        }
    }
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{from} to {to}: {complaints:#?}");
}

#[test]
fn the_release_before_and_this_one_replace_each_other() {
    there_and_back("1-1", "1-2");
}

#[test]
fn this_release_and_the_next_one_replace_each_other() {
    there_and_back("1-2", "2-3");
}

#[test]
fn a_release_two_steps_away_is_refused_before_anything_changes() {
    let scratch = Scratch::new();
    let place = Place::new();
    let supervisor = json!({ "watch": "0s" });
    let setting = Setting::start(&place, &supervisor, None, "", &Kind::ALL);
    let serving = setting.instance.serving();
    let far = speaking(&scratch, "3-4");
    let outcome = setting.instance.run(&["upgrade", "--binary", far.to_str().unwrap()]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.contains("go through a release in between"), "{outcome:?}");
    assert_eq!(setting.instance.serving(), serving);
    let (complaints, _) = setting.finish(Allowed::Nothing);
    assert!(complaints.is_empty(), "{complaints:#?}");
}
