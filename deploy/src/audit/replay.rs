//! `farthing audit replay`: the states of one thing, or all states, as of a moment.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey, Subject};
use farthing_log::audit::replay::{self, Output, Summary};
use farthing_log::audit::trial_balance::Moment;
use farthing_log::verify::Progress;
use serde_json::Value;

use super::flags::{self, moment_text};
use super::{figures_end, progress_line};
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{self, Shown, escaped_json};

/// Flags of `audit replay`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// What is shown: a wallet, a customer (connection), a spend key, a secret key, a meter, a plan, a subscription, or a
    /// merchant, by its id [default: everything].
    #[arg(value_name = "ID")]
    subject: Option<Subject>,
    /// The moment: a date, a time such as 2026-11-01T00:00:00Z, whose own events do not count, or the position of the last
    /// event of one partition as PARTITION:POSITION [default: now].
    #[arg(long, value_name = "TIME|PARTITION:POSITION", value_parser = flags::moment)]
    at: Option<Moment>,
    /// Print a JSON object for each state, one a line, and a last one with the summary.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let url = args.database.reachable_url().await?;
    let progress = Arc::<Progress>::default();
    let mut states = States {
        out: BufWriter::new(io::stdout().lock()),
        form: match (args.json, args.subject) {
            (true, _) => Form::Json,
            (false, Some(_)) => Form::Text,
            (false, None) => Form::SummaryAlone,
        },
    };
    let at = args.at.unwrap_or(Moment::Now);
    let summary = tokio::select! {
        summary = replay::replay(&url, at, args.subject, &progress, &mut states) => summary,
        never = progress_line::show("log", Arc::clone(&progress)) => match never {},
    };
    let summary = summary.context("cannot replay the log")?;
    states.close(&summary, args.subject).context("cannot write to stdout")?;
    Ok(Soundness::of(&summary.findings).and(summary.ok))
}

/// What is printed of each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Text,
    SummaryAlone,
}

struct States {
    out: BufWriter<StdoutLock<'static>>,
    form: Form,
}

impl Output for States {
    fn state(&mut self, partition: Partition, key: &StateKey, state: &State) -> io::Result<()> {
        let (kind, id) = key.stored();
        match self.form {
            Form::Json => {
                let (id, state) = (output::json(&id)?, escaped_json(state.to_json()));
                writeln!(self.out, r#"{{"partition":{partition},"kind":"{kind}","id":{id},"state":{state}}}"#)
            }
            Form::Text => {
                writeln!(self.out, "{kind} {}", Shown(id))?;
                let state: Value = serde_json::from_str(&state.to_json())?;
                members(&mut self.out, "", &state)
            }
            Form::SummaryAlone => Ok(()),
        }
    }
}

/// Writes the members of a state, a line for each value.
fn members(out: &mut impl Write, name: &str, value: &Value) -> io::Result<()> {
    match value {
        Value::Object(object) => object.iter().try_for_each(|(member, value)| {
            let name = if name.is_empty() { member.clone() } else { format!("{name}.{member}") };
            members(out, &name, value)
        }),
        Value::String(text) => member(out, name, text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            member(out, name, &value.to_string())
        }
    }
}

fn member(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    let name = Shown(name).to_string();
    writeln!(out, "  {name:<28}  {}", Shown(value))
}

impl States {
    fn close(mut self, summary: &Summary, subject: Option<Subject>) -> io::Result<()> {
        match self.form {
            Form::Json => writeln!(self.out, r#"{{"summary":{}}}"#, output::json(summary)?)?,
            Form::Text | Form::SummaryAlone => self.text(summary, subject)?,
        }
        self.out.flush()
    }

    fn text(&mut self, summary: &Summary, subject: Option<Subject>) -> io::Result<()> {
        let out = &mut self.out;
        let moment = moment_text(summary.at);
        if let Some(subject) = subject {
            if summary.states.is_empty() {
                writeln!(out, "{subject} has no state {moment}: it was made later, or is gone")?;
            }
            writeln!(out, "states {moment}, folded from {} events", summary.events)?;
        } else {
            writeln!(out, "states {moment}, folded from {} events", summary.events)?;
            for (kind, count) in &summary.states {
                writeln!(out, "  {kind:<18}  {count:>12}")?;
            }
            let sums = &summary.wallets;
            for (name, sum) in
                [("balances", sums.balances), ("remaining credit", sums.credits), ("open holds", sums.holds)]
            {
                writeln!(out, "  {name:<18}  {:>23.10}", sum.decimal())?;
            }
        }
        figures_end::write(out, &summary.heads, &summary.findings)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_members_are_named_by_their_path() {
        let mut out = Vec::new();
        let state = json!({"balance": "1.5", "plan": {"remaining": "2"}, "bundles": [], "due": null});
        members(&mut out, "", &state).unwrap();
        let lines: Vec<_> = String::from_utf8(out).unwrap().lines().map(ToOwned::to_owned).collect();
        assert_eq!(
            lines,
            [
                "  balance                       1.5",
                "  bundles                       []",
                "  due                           null",
                "  plan.remaining                2",
            ]
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape() {
        let mut out = Vec::new();
        let state = json!({"metadata": {"a\u{202e}b": "c\u{9b}2J"}, "models": ["d\u{2066}e"]});
        members(&mut out, "", &state).unwrap();
        let lines: Vec<_> = String::from_utf8(out).unwrap().lines().map(ToOwned::to_owned).collect();
        assert_eq!(
            lines,
            [
                r"  metadata.a\u{202e}b           c\u{9b}2J",
                r#"  models                        ["d\u{2066}e"]"#,
            ]
        );
    }
}
