//! The settings: every flag of a role and its variable are in the documents, with the default, and every documented one
//! exists. What is given to a process in `deploy/` and in the documents of operations is one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use farthing_tests::instance::program;

/// The pages with tables of settings.
const PAGES: [&str; 2] =
    [include_str!("../../../docs/settings.md"), include_str!("../../../docs/operations/traces.md")];

/// What names settings.
const USES: [&str; 6] = [
    include_str!("../../../deploy/compose.yaml"),
    include_str!("../../../deploy/farthing@.service"),
    include_str!("../../../deploy/Dockerfile"),
    include_str!("../../../docs/running.md"),
    include_str!("../../../docs/operations/first-hour.md"),
    include_str!("../../../docs/operations/doctor.md"),
];

/// The roles whose settings the pages list.
const ROLES: [&str; 4] = ["gateway", "projector", "migrate", "doctor"];

/// Flags that every command has, and one that the page of the doctor describes.
const ELSEWHERE: [&str; 4] = ["--help", "--version", "--json", "--timeout-seconds"];

/// Variables without a flag, and those that compose.yaml reads itself.
const WITHOUT_FLAG: [&str; 4] =
    ["FARTHING_LOG", "FARTHING_SERVER_KEY", "FARTHING_PROVIDER_KEY_OPENAI_FILE", "FARTHING_MODE"];

/// Settings of `farthing dev` alone.
const OF_DEV: [&str; 2] = ["FARTHING_DEV_DATABASE_URL", "FARTHING_DEV_NATS_URL"];

/// A flag as its help shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Setting {
    variable: Option<String>,
    default: Option<String>,
}

type Settings = BTreeMap<String, Setting>;

/// The text between `before` and `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

/// The name of the flag that a line of the help begins with.
fn flag_of(line: &str) -> Option<String> {
    let words = line.trim_start();
    let name = if words.starts_with("--") { words } else { words.split_once(", ")?.1 };
    let is_name = |char: &char| char.is_ascii_lowercase() || *char == '-';
    let name: String = name.chars().take_while(is_name).collect();
    (line.starts_with("  ") && words.starts_with('-') && name.starts_with("--")).then_some(name)
}

/// The flags of a role.
fn flags_of(role: &str) -> Settings {
    let output = Command::new(program()).args([role, "--help"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let mut flags = Settings::new();
    let mut current = None;
    for line in help.lines() {
        if let Some(name) = flag_of(line) {
            assert!(flags.insert(name.clone(), Setting::default()).is_none(), "twice: {name}");
            current = Some(name);
        }
        let Some(flag) = current.as_ref().and_then(|name| flags.get_mut(name)) else { continue };
        if let Some(variable) = between(line, "[env: ", "]") {
            flag.variable = variable.split('=').next().map(str::to_owned);
        }
        if let Some(default) = between(line, "[default: ", "]") {
            flag.default = Some(default.to_owned());
        }
    }
    flags
}

/// The cells of the rows of all tables with four columns.
fn rows() -> impl Iterator<Item = [&'static str; 4]> {
    let lines = PAGES.iter().flat_map(|page| page.lines());
    lines.filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        cells.try_into().ok()
    })
}

/// The words in `text` that begin so.
fn words<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let is_name = |rest: &str| rest.starts_with(|first: char| first.is_ascii_alphabetic());
    text.split(move |char| !is_part(char)).filter(move |word| word.strip_prefix(begin).is_some_and(is_name))
}

#[test]
fn the_documents_list_every_flag_with_its_variable_and_its_default() {
    let documented: BTreeSet<&str> = rows().flat_map(|[flags, ..]| words(flags, "--")).collect();
    let mut existing = BTreeSet::new();
    for role in ROLES {
        for (name, flag) in flags_of(role) {
            existing.insert(name.clone());
            if ELSEWHERE.contains(&name.as_str()) {
                continue;
            }
            assert!(documented.contains(name.as_str()), "{role}: {name} is not documented");
            let named: Vec<_> =
                rows().filter(|[flags, ..]| words(flags, "--").any(|flag| flag == name)).collect();
            if let Some(variable) = &flag.variable {
                let is_there =
                    named.iter().any(|[_, variables, ..]| variables.contains(&format!("`{variable}`")));
                assert!(is_there, "{role}: the variable of {name} is {variable}: {named:?}");
            }
            // A default that help describes in words is compared by nothing.
            if let Some(default) = flag.default.filter(|default| !default.contains(' ')) {
                let is_there =
                    named.iter().any(|[_, _, defaults, _]| defaults.contains(&format!("`{default}`")));
                assert!(is_there, "{role}: the default of {name} is {default}: {named:?}");
            }
        }
    }
    let unknown: Vec<_> = documented.iter().filter(|name| !existing.contains(**name)).collect();
    assert!(unknown.is_empty(), "flags that do not exist: {unknown:?}");
}

#[test]
fn what_is_given_to_processes_in_files_of_deployment_exists() {
    let flags = ROLES.map(flags_of);
    let variables: BTreeSet<&str> = flags
        .iter()
        .flat_map(Settings::values)
        .filter_map(|flag| flag.variable.as_deref())
        .chain(WITHOUT_FLAG)
        .chain(OF_DEV)
        .collect();
    for text in USES {
        let named: BTreeSet<&str> = words(text, "FARTHING_").collect();
        assert!(!named.is_empty(), "{text}");
        for name in named {
            assert!(variables.contains(name), "{name} does not exist");
        }
    }
}
