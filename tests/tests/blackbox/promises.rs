//! The tables of promises to operators (docs/operations/README.md): what shows a promise exists.

use std::path::{Path, PathBuf};

/// The folder of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The folder of the page.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations");

/// The last cell of each row: what shows the promise.
fn shown_by(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = rows.filter_map(|row| row.rsplit_once(" | ").map(|(_, last)| last));
    cells.filter(|cell| *cell != "shown by").collect()
}

/// The parts of a text between two marks.
fn between<'a>(text: &'a str, before: &'a str, after: &'a str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split_once(after)).map(|(part, _)| part).collect()
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    };
    headings.map(anchor).collect()
}

/// The Rust sources of a file, or of a folder with all below it.
fn sources(place: &Path) -> String {
    if place.is_dir() {
        let entries = std::fs::read_dir(place).unwrap();
        return entries.map(|entry| sources(&entry.unwrap().path())).collect();
    }
    if is_source(place) { std::fs::read_to_string(place).unwrap() } else { String::new() }
}

fn is_source(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

/// A name in backticks that is no path.
fn is_name_of_a_test(code: &str) -> bool {
    code.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Whether there is a test of this name.
fn has_test(sources: &str, name: &str) -> bool {
    let mut tests = sources.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn "));
    tests.any(|(_, rest)| rest.starts_with(&format!("{name}()")))
}

/// Asserts that each file in `cell` exists, and has the tests that stand after it. Returns the number of tests.
fn check_files(cell: &str) -> usize {
    let mut tests = 0;
    // The last file, and its sources until a test of it was named.
    let mut named: Option<(&str, String)> = None;
    let mut lacks_a_test = false;
    for code in cell.split('`').skip(1).step_by(2) {
        if is_name_of_a_test(code) {
            let (file, sources) =
                named.as_ref().unwrap_or_else(|| panic!("{code} stands after no file: {cell}"));
            assert!(has_test(sources, code), "{file} has no test {code}: {cell}");
            (tests, lacks_a_test) = (tests + 1, false);
            continue;
        }
        assert!(!lacks_a_test, "a file without a test of it is named: {cell}");
        let places = [format!("{PROJECT}/{code}"), format!("{PROJECT}/tests/tests/{code}")];
        let place = places.iter().map(Path::new).find(|place| place.exists());
        let place = place.unwrap_or_else(|| panic!("{code} does not exist: {cell}"));
        lacks_a_test = is_source(place);
        named = Some((code, sources(place)));
    }
    assert!(!lacks_a_test, "a file without a test of it is named: {cell}");
    tests
}

#[test]
fn each_promise_names_tests_or_figures_that_exist() {
    let page = std::fs::read_to_string(format!("{PAGES}/README.md")).unwrap();
    let shown_by = shown_by(&page);
    assert!(shown_by.len() > 25, "{shown_by:?}");
    let mut tests = 0;
    for cell in shown_by {
        let links = between(cell, "](", ")");
        assert!(cell.contains('`') || !links.is_empty(), "nothing is named: {cell}");
        tests += check_files(cell);
        for link in links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = PathBuf::from(format!("{PAGES}/{file}"));
            assert!(file.exists(), "{link} does not exist: {cell}");
            assert!(
                anchor.is_empty() || anchors(&file).contains(&anchor.to_owned()),
                "{link} has no heading: {cell}"
            );
        }
    }
    assert!(tests > 60, "the page names its tests: {tests}");
}

#[test]
fn a_promise_whose_test_does_not_exist_is_found() {
    let own = "`blackbox/promises.rs`: `each_promise_names_tests_or_figures_that_exist`";
    assert_eq!(check_files(own), 1);
    assert_eq!(check_files(&format!("{own}; `tests/stock/run`")), 1);
    for wrong in [
        "`blackbox/promises.rs`",
        "`blackbox/promises.rs`; `tests/stock/run`",
        "`blackbox/no_such_file.rs`: `each_promise_names_tests_or_figures_that_exist`",
        "`blackbox/promises.rs`: `is_name_of_a_test`",
        "`blackbox/feed.rs`: `each_promise_names_tests_or_figures_that_exist`",
        "`each_promise_names_tests_or_figures_that_exist`",
    ] {
        std::panic::catch_unwind(|| check_files(wrong)).expect_err(wrong);
    }
}
