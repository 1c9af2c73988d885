//! The events of the log, as the sources write them, compared with the page that lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// The page that lists them.
const PAGE: &str = include_str!("../../docs/operations/logs.md");

/// The folders of the program's sources.
const SOURCES: [&str; 5] = ["deploy", "gateway", "ledger", "projector", "schema"];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The levels and the fields of an event. A field may be in some of its lines only.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

/// The events by their names, and the places of log lines without a name.
#[derive(Debug, Default)]
struct Found {
    events: BTreeMap<String, Event>,
    unnamed: Vec<String>,
}

/// The Rust files in `folder`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text of a string literal.
fn text(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Literal(literal)) => {
            Some(literal.to_string().strip_prefix('"')?.strip_suffix('"')?.to_owned())
        }
        _ => None,
    }
}

fn is(token: Option<&TokenTree>, text: &str) -> bool {
    token.is_some_and(|token| token.to_string() == text)
}

impl Found {
    /// Finds the log lines in `tokens`, which are of the file at `path`.
    fn read(&mut self, tokens: TokenStream, path: &str) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut named_before = None;
        for (at, token) in tokens.iter().enumerate() {
            let after = |steps: usize| tokens.get(at + steps);
            if is(Some(token), "let") && is(after(1), "event") && is(after(2), "=") {
                named_before = text(after(3));
            }
            let level = LEVELS.into_iter().find(|level| is(after(3), level));
            if is(Some(token), "tracing")
                && is(after(1), ":")
                && let Some(level) = level
                && is(after(4), "!")
                && let Some(TokenTree::Group(arguments)) = after(5)
            {
                self.line(level, arguments.stream(), named_before.as_deref(), path);
            }
            if let TokenTree::Group(group) = token {
                self.read(group.stream(), path);
            }
        }
    }

    /// Notes a line of this level. Its fields are `name = value`, or a variable, after `%` or `?`.
    fn line(&mut self, level: &str, arguments: TokenStream, named_before: Option<&str>, path: &str) {
        let arguments: Vec<TokenTree> = arguments.into_iter().collect();
        let (mut name, mut fields) = (None, BTreeSet::new());
        for argument in arguments.split(|token| is(Some(token), ",")) {
            let argument = match argument {
                [first, rest @ ..] if is(Some(first), "%") || is(Some(first), "?") => rest,
                all => all,
            };
            let Some(TokenTree::Ident(field)) = argument.first() else { continue };
            if *field == "event" {
                name = text(argument.get(2)).or_else(|| named_before.map(str::to_owned));
            } else {
                fields.insert(field.to_string());
            }
        }
        let Some(name) = name else {
            self.unnamed.push(path.to_owned());
            return;
        };
        let event = self.events.entry(name).or_default();
        event.levels.insert(level.to_owned());
        event.fields.extend(fields);
    }
}

/// The events in the sources.
fn written() -> Found {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in SOURCES {
        sources(&project.join(folder), &mut files);
    }
    let mut found = Found::default();
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        if source.contains("tracing::") {
            let path = path.display().to_string();
            found.read(source.parse().unwrap_or_else(|error| panic!("{path}: {error}")), &path);
        }
    }
    found
}

/// The events in the tables of the page.
fn listed() -> BTreeMap<String, Event> {
    let mut listed = BTreeMap::new();
    for row in PAGE.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, levels, fields, meaning] = cells[..] else { panic!("four columns: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let set = |cell: &str| -> BTreeSet<String> {
            let items = cell.split(',').map(|item| item.trim().trim_matches('`').to_owned());
            items.filter(|item| !item.is_empty()).collect()
        };
        let event = Event { levels: set(levels), fields: set(fields) };
        let name = name.trim_matches('`').to_owned();
        assert!(listed.insert(name.clone(), event).is_none(), "twice: {name}");
    }
    listed
}

#[test]
fn the_documents_list_exactly_the_events_of_the_log_with_their_levels_and_fields() {
    let (written, mut listed) = (written(), listed());
    assert_eq!(written.unnamed, Vec::<String>::new(), "lines without a name");
    assert!(written.events.len() > 100, "{written:?}");
    for (name, event) in &written.events {
        assert_eq!(Some(event), listed.remove(name).as_ref(), "{name}");
    }
    assert!(listed.is_empty(), "no source writes these: {listed:?}");
}

#[test]
fn every_event_of_a_call_has_its_request_id() {
    let of_calls = |name: &str| {
        let area = name.split('.').next().unwrap_or_default();
        // The thread is no call's.
        ["api", "forward", "settlement", "opening"].contains(&area) && name != "forward.decoder_priority"
    };
    let events = written().events;
    let of_calls: Vec<_> = events.iter().filter(|(name, _)| of_calls(name)).collect();
    assert!(of_calls.len() > 10, "{of_calls:?}");
    for (name, event) in of_calls {
        assert!(event.fields.contains("request_id"), "{name} has no request_id");
    }
}
