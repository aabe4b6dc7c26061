//! What must hold of the answer to any file; shared by the fuzz target and the tests.

use crate::{Problems, parse, print, process};

/// Reads `bytes` as a configuration, as the supervisor and as the worker does.
///
/// # Panics
/// When an answer is not what a user or another part may rely on.
pub fn file(bytes: &[u8]) {
    let supervisor = process::read("f", bytes);
    if let Err(problems) = &supervisor {
        sane(problems, bytes);
    }
    match parse("f", bytes) {
        Err(problems) => sane(&problems, bytes),
        Ok(loaded) => {
            let section = &loaded.config.supervisor;
            assert_eq!(supervisor.as_ref(), Ok(section), "both processes read the same section");
            let printed = print::to_json(&loaded.config);
            let again = parse("printed", printed.as_bytes()).map(|loaded| loaded.config);
            assert_eq!(again, Ok(loaded.config), "a printed configuration means the same");
        }
    }
}

/// A fault of the reader itself is told with these words.
const FAULT: &str = "a fault of Baton";

fn sane(problems: &Problems, bytes: &[u8]) {
    assert!(!problems.0.is_empty(), "refused without a reason");
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    let mut last = (1, 1);
    for problem in &problems.0 {
        let text = problem.to_string();
        assert!(!problem.message.contains(FAULT), "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(problem.path.starts_with('$'), "{text}");
        assert!(problem.line <= lines, "{text}");
        assert!((problem.line, problem.column) >= last, "{text} is not in order");
        last = (problem.line, problem.column);
    }
}
