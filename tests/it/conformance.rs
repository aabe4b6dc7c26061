//! `docs/conformance.md`: which test proves which requirement, found in the tests' names.
//!
//! A test carries the requirements it proves in front of its name: `a64_…`, `a52_a58_…`,
//! `a116_to_a118_…`. Where a name does not say it, the lists beside this file point at the test.
//! A name with an unknown requirement and a pointer at a test that is gone both fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const REQUIREMENTS: &str = include_str!("conformance/requirements.txt");
const EDGE_CASES: &str = include_str!("conformance/edge_cases.txt");

/// Requirements of sections that are built later.
const LATER: [&str; 4] = ["A.13 ", "C.5 ", "C.6 ", "C.7 "];
/// Requirements of other sections that need what is built later, or nothing.
const NOT_NOW: [&str; 5] = ["C17", "C18", "C26", "C27", "C34"];
/// Required now although its section is built later.
const NOW: &str = "C39";

/// Test name → the files it is in.
type Tests = BTreeMap<String, BTreeSet<String>>;

/// An entry of a list: what is required, and the tests it points at.
struct Entry {
    id: Option<String>,
    text: &'static str,
    pointers: Vec<&'static str>,
}

fn entries(list: &'static str) -> Vec<(&'static str, Vec<Entry>)> {
    let mut sections = Vec::new();
    for line in list.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            sections.push((title, Vec::new()));
            continue;
        }
        let (text, pointers) = line.rsplit_once(" =").unwrap_or((line, ""));
        let pointers = pointers.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let id = text.split(' ').next().filter(|word| parse_id(word).is_some());
        let (_, entries) = sections.last_mut().expect("a section comes first");
        let text =
            if id.is_some() { text.split_once(' ').map_or("", |(_, text)| text) } else { text };
        entries.push(Entry { id: id.map(str::to_owned), text, pointers });
    }
    sections
}

/// `a64` or `A64`: series and number.
fn parse_id(word: &str) -> Option<(char, u16)> {
    let series = word.chars().next()?.to_ascii_uppercase();
    let number = word.get(1..)?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (matches!(series, 'A' | 'B' | 'C') && digits).then(|| Some((series, number.parse().ok()?)))?
}

/// The requirements in front of a test's name.
fn carried(name: &str) -> Vec<String> {
    let mut found: Vec<(char, u16)> = Vec::new();
    let mut words = name.split('_').peekable();
    while let Some(word) = words.next() {
        if let Some(id) = parse_id(word) {
            found.push(id);
            continue;
        }
        let to = words.peek().and_then(|next| parse_id(next));
        let (Some(&(series, from)), "to", Some((_, last))) = (found.last(), word, to) else {
            break;
        };
        found.extend((from + 1..last).map(|number| (series, number)));
    }
    found.into_iter().map(|(series, number)| format!("{series}{number}")).collect()
}

/// Every test of the workspace by its name.
fn scan() -> Tests {
    let mut tests = Tests::new();
    for folder in ["config", "handoff", "metrics", "src", "supervisor", "tests", "worker"] {
        walk(&Path::new(ROOT).join(folder), &mut tests);
    }
    tests
}

fn walk(folder: &Path, tests: &mut Tests) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                walk(&path, tests);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(ROOT).unwrap().display().to_string();
            for name in test_names(&std::fs::read_to_string(&path).unwrap()) {
                tests.entry(name).or_default().insert(file.clone());
            }
        }
    }
}

/// Functions below an attribute that makes them tests.
fn test_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            continue;
        }
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let (true, Some(rest)) = (marked, function) {
            names.extend(rest.split('(').next().map(str::to_owned));
        }
        marked &= line.starts_with("//") || line.is_empty();
    }
    names
}

fn cell(names: &BTreeSet<String>, tests: &Tests) -> String {
    let mut cell = String::new();
    for name in names {
        for file in &tests[name] {
            let separator = if cell.is_empty() { "" } else { "<br>" };
            write!(cell, "{separator}`{name}` ({file})").unwrap();
        }
    }
    cell
}

fn document(tests: &Tests) -> String {
    let mut proofs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in tests.keys() {
        for id in carried(name) {
            proofs.entry(id).or_default().insert(name.clone());
        }
    }
    let mut page = String::from(
        "# Conformance\n\n\
         Which test proves which requirement of the routing engine, and which stands for each case\n\
         that broke comparable software. Generated from the names of the tests and from the lists in\n\
         `tests/it/conformance/`: `BATON_BLESS=1 cargo test --test it conformance` writes it anew.\n\
         Tests that need a tool, root or network namespaces say so on the terminal when they are\n\
         skipped.\n\n## Requirements\n",
    );
    let (mut open, mut later) = (String::new(), String::new());
    for (title, entries) in entries(REQUIREMENTS) {
        write!(page, "\n### {title}\n\n| | requirement | tests |\n|---|---|---|\n").unwrap();
        for Entry { id, text, pointers } in entries {
            let id = id.expect("a requirement begins with its number");
            let mut names = proofs.remove(&id).unwrap_or_default();
            names.extend(pointers.iter().map(|name| (*name).to_owned()));
            let is_later = NOT_NOW.contains(&&*id)
                || (LATER.iter().any(|section| title.starts_with(section)) && id != NOW);
            let shown = match (names.is_empty(), is_later) {
                (false, _) => cell(&names, tests),
                (true, true) => {
                    writeln!(later, "* {id}: {text}").unwrap();
                    "a later stage".to_owned()
                }
                (true, false) => {
                    writeln!(open, "* {id}: {text}").unwrap();
                    "**none yet**".to_owned()
                }
            };
            writeln!(page, "| {id} | {text} | {shown} |").unwrap();
        }
    }
    assert!(proofs.is_empty(), "tests that name requirements nobody knows: {proofs:?}");
    page.push_str("\n## Cases that broke comparable software\n");
    for (title, entries) in entries(EDGE_CASES) {
        write!(page, "\n### {title}\n\n| case | tests |\n|---|---|\n").unwrap();
        for Entry { text, pointers, .. } in entries {
            let names: BTreeSet<_> = pointers.iter().map(|name| (*name).to_owned()).collect();
            if names.is_empty() {
                writeln!(open, "* {text}").unwrap();
            }
            let shown =
                if names.is_empty() { "**none yet**".to_owned() } else { cell(&names, tests) };
            writeln!(page, "| {text} | {shown} |").unwrap();
        }
    }
    let or_none = |list: String| if list.is_empty() { "Nothing.\n".to_owned() } else { list };
    write!(page, "\n## Without a test\n\n{}", or_none(open)).unwrap();
    write!(page, "\n## Of later stages\n\n{}", or_none(later)).unwrap();
    page
}

#[test]
fn every_pointer_of_the_lists_leads_to_a_test() {
    let tests = scan();
    let gone: Vec<_> = [REQUIREMENTS, EDGE_CASES]
        .into_iter()
        .flat_map(entries)
        .flat_map(|(_, entries)| entries)
        .flat_map(|entry| entry.pointers)
        .filter(|name| !tests.contains_key(*name))
        .collect();
    assert!(gone.is_empty(), "there are no such tests (any more): {gone:?}");
}

/// `BATON_BLESS=1 cargo test --test it conformance` writes the page anew.
#[test]
fn the_conformance_page_is_what_the_tests_say() {
    let path = Path::new(ROOT).join("docs/conformance.md");
    let wanted = document(&scan());
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == wanted,
        "docs/conformance.md is stale: run `BATON_BLESS=1 cargo test --test it conformance` and \
         commit it"
    );
}

#[test]
fn names_tell_their_requirements() {
    let told = |name: &str| carried(name).join(" ");
    assert_eq!(told("a64_decides_at_once"), "A64");
    assert_eq!(told("a52_a58_a_denied_address"), "A52 A58");
    assert_eq!(told("a116_to_a118_the_paths"), "A116 A117 A118");
    assert_eq!(told("a_server_that_speaks"), "");
    assert_eq!(told("b2_to_the_point"), "B2");
    let source =
        "#[test]\n#[ignore]\nfn one() {}\nfn helper() {}\n#[tokio::test]\nasync fn two() {}";
    assert_eq!(test_names(source), ["one", "two"]);
}
