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

/// What the name of a variable with a secret contains. A URL may hold a login or a key.
const SECRET: [&str; 6] = ["URL", "ENDPOINT", "ARCHIVE", "KEY", "PASSWORD", "TOKEN"];

/// Variables with a secret that have no flag.
const SECRET_WITHOUT_FLAG: [&str; 7] = [
    "FARTHING_SERVER_KEY",
    "FARTHING_PROVIDER_KEY_OPENAI",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "PGPASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

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

/// What help says of a command, with these variables.
fn help(command: &[String], flag: &str, variables: &BTreeMap<String, &str>) -> String {
    let output = Command::new(program()).args(command).arg(flag).envs(variables).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The program, each of its commands, and each of theirs.
fn commands() -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut at = 0;
    while let Some(command) = all.get(at).cloned() {
        let text = help(&command, "--help", &BTreeMap::new());
        let listed = between(&text, "\nCommands:\n", "\n\n").unwrap_or_default();
        let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        for name in names.filter(|name| *name != "help") {
            all.push(command.iter().cloned().chain([name.to_owned()]).collect());
        }
        at += 1;
    }
    all
}

/// The flags of a role.
fn flags_of(role: &str) -> Settings {
    let help = help(&[role.to_owned()], "--help", &BTreeMap::new());
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

#[test]
fn help_prints_no_value_that_may_hold_a_secret() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    let texts = commands.iter().map(|command| help(command, "--help", &BTreeMap::new()));
    let mut variables = BTreeMap::new();
    for text in texts {
        for rest in text.split("[env: ").skip(1) {
            let end = rest.find(['=', ']']).unwrap();
            variables.insert(rest[..end].to_owned(), "made-up-secret");
        }
    }
    variables.retain(|name, _| SECRET.iter().any(|part| name.contains(part)) && !name.ends_with("_FILE"));
    for known in
        ["FARTHING_DATABASE_URL", "FARTHING_NATS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "FARTHING_ARCHIVE"]
    {
        assert!(variables.contains_key(known), "{variables:?}");
    }
    variables.extend(SECRET_WITHOUT_FLAG.map(|name| (name.to_owned(), "made-up-secret")));
    for command in &commands {
        for flag in ["--help", "-h"] {
            let text = help(command, flag, &variables);
            let shown = text.lines().find(|line| line.contains("made-up-secret"));
            assert_eq!(shown, None, "farthing {}", command.join(" "));
        }
    }
}

#[test]
fn a_refused_location_of_an_archive_is_not_shown() {
    let locations = [
        "s3://key:made-up-secret@bucket/a",
        "made-up-secret",
        "https://h/made-up-secret",
        "file:///a?made-up-secret",
    ];
    for location in locations {
        for is_flag in [true, false] {
            let mut command = Command::new(program());
            command.args(["archive", "list", "--database-url", "postgres://127.0.0.1:1/none"]);
            if is_flag {
                command.args(["--archive", location]);
            } else {
                command.env("FARTHING_ARCHIVE", location);
            }
            let ended = command.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(2), "{said}");
            assert!(said.contains("--archive cannot be used"), "{said}");
            assert!(!said.contains("made-up-secret") && ended.stdout.is_empty(), "{said}");
        }
    }
}
