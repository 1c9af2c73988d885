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

#[test]
fn each_promise_names_tests_or_figures_that_exist() {
    let page = std::fs::read_to_string(format!("{PAGES}/README.md")).unwrap();
    let shown_by = shown_by(&page);
    assert!(shown_by.len() > 25, "{shown_by:?}");
    for cell in shown_by {
        let (code, links) = (cell.split('`').skip(1).step_by(2), between(cell, "](", ")"));
        let files: Vec<&str> = code.collect();
        assert!(!files.is_empty() || !links.is_empty(), "nothing is named: {cell}");
        for file in files {
            let places = [format!("{PROJECT}/{file}"), format!("{PROJECT}/tests/tests/{file}")];
            assert!(places.iter().any(|place| Path::new(place).exists()), "{file} does not exist: {cell}");
        }
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
}
