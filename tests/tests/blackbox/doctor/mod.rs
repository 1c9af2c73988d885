//! `farthing doctor`: what it finds on real servers, well ones and broken ones, and that it changes nothing.

mod certificates;
mod clocks;
mod database;
mod deployment;
mod full_disk;
mod nats;
mod other_machine;
mod releases;
mod servers_away;
mod standby;

use std::process::{Output, Stdio};

use farthing_tests::instance::{Instance, program, program_under};
use farthing_tests::scratch::operate;
use farthing_tests::{left_out, run};
use serde_json::Value;
use tokio::process::Command;

/// The result of a run.
struct Report {
    json: Value,
    exit_code: Option<i32>,
}

impl Report {
    /// The verdict of a check and what was found.
    fn of(&self, check: &str) -> (&str, &str) {
        let checks = self.json["checks"].as_array().unwrap();
        let found = checks.iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("there is no check {check}"));
        (found["verdict"].as_str().unwrap(), found["found"].as_str().unwrap())
    }

    /// Asserts the verdict of a check and a part of what was found. A failure or a warning says what to do.
    fn expect(&self, check: &str, verdict: &str, said: &str) {
        let (found, text) = self.of(check);
        assert_eq!(found, verdict, "{check}: {text}");
        assert!(text.contains(said), "{check}: {text}");
        let checks = self.json["checks"].as_array().unwrap();
        let finding = checks.iter().find(|finding| finding["check"] == check).unwrap();
        assert_eq!(finding["advice"].is_string(), ["warning", "failed"].contains(&verdict), "{finding}");
    }

    /// The names of the checks with this verdict.
    fn with(&self, verdict: &str) -> Vec<&str> {
        let checks = self.json["checks"].as_array().unwrap();
        let of_verdict = checks.iter().filter(|finding| finding["verdict"] == verdict);
        of_verdict.map(|finding| finding["check"].as_str().unwrap()).collect()
    }
}

/// Runs the doctor with these flags beside those of the database.
async fn doctor(database_url: &str, flags: &[&str]) -> Report {
    doctor_under(&[], database_url, flags).await
}

/// The same under another program, such as `faketime` with its arguments.
async fn doctor_under(wrapper: &[&str], database_url: &str, flags: &[&str]) -> Report {
    let output = output(wrapper, database_url, flags, &[]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let report = Report { json, exit_code: output.status.code() };
    let expected = match report.json["verdict"].as_str().unwrap() {
        "ok" => 0,
        "warning" => 1,
        "failed" => 2,
        other => panic!("{other}"),
    };
    assert_eq!(report.exit_code, Some(expected), "{said}");
    report
}

/// Runs the doctor, with `--json` unless `CLICOLOR_FORCE` or `NO_COLOR` is among the variables.
async fn output(wrapper: &[&str], database_url: &str, flags: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::from(program_under(wrapper));
    command.args(["doctor", "--database-url", database_url]).args(flags).envs(variables.iter().copied());
    if variables.is_empty() {
        command.arg("--json");
    }
    command.env_remove("FARTHING_NATS_URL").stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.unwrap()
}

/// A migrated database of the shared instance's server, without events and processes.
async fn migrated(instance: &Instance, name: &str) -> String {
    let url = instance.create_database(name).await;
    operate(&url, &["migrate", "--mode", "test"]).await;
    url
}

#[test]
fn every_check_is_documented_and_nothing_else() {
    run(async {
        let report = doctor("postgres://nobody@127.0.0.1:1/none", &[]).await;
        let checks = report.json["checks"].as_array().unwrap();
        let shown: Vec<_> = checks.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/doctor.md");
        let text = std::fs::read_to_string(file).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let documented: Vec<_> = rows.map(|(name, _)| name).filter(|name| name.contains('.')).collect();
        assert_eq!(shown, documented);
    });
}

#[test]
fn text_has_colours_only_where_they_are_wanted() {
    run(async {
        let url = "postgres://nobody@127.0.0.1:1/none";
        let text = async |variables: &[(&str, &str)]| {
            let output = output(&[], url, &[], variables).await;
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let coloured = text(&[("CLICOLOR_FORCE", "1")]).await;
        assert!(coloured.contains("\u{1b}["), "{coloured}");
        for variables in
            [[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], [("NO_COLOR", "1"), ("TERM", "xterm")]]
        {
            let plain = text(&variables).await;
            assert!(!plain.contains('\u{1b}') && plain.contains("failed   postgres.reached"), "{plain}");
        }
        // Stdout is no terminal.
        let plain = text(&[("TERM", "xterm-256color")]).await;
        assert!(!plain.contains('\u{1b}'), "{plain}");
    });
}

/// Runs a command of the shell's on a terminal, and returns what it showed there. `None` without `script` of util-linux: then
/// this says that the test is left out.
async fn on_a_terminal(command: &str, variables: &[(&str, &str)]) -> Option<Output> {
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", command, "/dev/null"]);
    // `script` gives the command to the login's shell, which of a service's login is none. In CI, a dumb terminal gets colours.
    terminal.env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        terminal.env_remove(name);
    }
    terminal.envs(variables.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    match terminal.output().await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            left_out("the colours on a terminal: there is no `script`");
            None
        }
        shown => Some(shown.unwrap()),
    }
}

#[test]
fn a_terminal_gets_colours_and_a_pipe_none() {
    run(async {
        let doctor =
            format!("{} doctor --database-url postgres://nobody@127.0.0.1:1/none", program().display());
        let shown = async |command: &str, variables: &[(&str, &str)]| {
            let output = on_a_terminal(command, variables).await?;
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(shown.contains("postgres.reached"), "{shown}");
            Some(shown)
        };
        let Some(coloured) = shown(&doctor, &[]).await else { return };
        assert!(coloured.contains("\u{1b}[31m"), "{coloured:?}");
        assert!(coloured.contains("\u{1b}[0m"), "{coloured:?}");
        // The shell is on a terminal, and the doctor writes into a pipe.
        let piped = format!("bash -c 'set -o pipefail; {doctor} | cat'");
        for (command, variables) in
            [(piped.as_str(), &[][..]), (&doctor, &[("NO_COLOR", "1")]), (&doctor, &[("TERM", "dumb")])]
        {
            let plain = shown(command, variables).await.unwrap();
            assert!(!plain.contains('\u{1b}'), "{variables:?}: {plain:?}");
        }
        let json = format!("{doctor} --json");
        let json = shown(&json, &[]).await.unwrap();
        assert!(!json.contains('\u{1b}') && json.contains("\"verdict\""), "{json:?}");
    });
}

#[test]
fn bad_usage_has_the_exit_code_of_bad_usage() {
    run(async {
        for flags in [["--timeout-seconds=1"], ["--feed-replicas=6"], ["--nats-key-file=/x"], ["--unknown"]] {
            let output = output(&[], "postgres://nobody@127.0.0.1:1/none", &flags, &[]).await;
            assert_eq!(output.status.code(), Some(2), "{flags:?}");
            assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{flags:?}");
        }
        let wrong =
            doctor("postgres://nobody@127.0.0.1:1/none?sslmode=full", &["--nats-url=ws://u:secret@h"]).await;
        wrong.expect("postgres.reached", "failed", "sslmode must be");
        wrong.expect("nats.reached", "failed", "nats-url");
        assert!(!wrong.json.to_string().contains("secret"), "{}", wrong.json);
    });
}
