//! The output of the program: results on stdout, errors on stderr.

use std::fmt::{Display, Write as _};
use std::io::Write as _;

use anyhow::{Context as _, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::error::SqlState;

/// Flags that choose how results are printed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct OutputFormat {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Listing<T> {
    data: Vec<T>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> Listing<T> {
    /// A page of `data`. `last` is the id of its last item: the cursor of the next page, if there is one.
    pub(crate) fn new(data: Vec<T>, has_more: bool, last: Option<String>) -> Self {
        Self { data, has_more, next_cursor: last.filter(|_| has_more) }
    }
}

impl OutputFormat {
    /// Whether JSON is printed.
    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// Prints `result` as one JSON object, or as one line per field.
    pub(crate) fn print(self, result: &impl Serialize) -> Result<()> {
        let value = serde_json::to_value(result).context("cannot serialize the result")?;
        match &value {
            Value::Object(fields) if !self.json => {
                fields.iter().try_for_each(|(name, value)| print_line(format!("{name}: {}", plain(value))))
            }
            _ => print_line(escaped_json(value.to_string())),
        }
    }

    /// Prints the result of a command that has changed the ledger. An error says what was `done`, so that nobody takes the
    /// failure to print for a failure of the command.
    pub(crate) fn print_done(self, result: &impl Serialize, done: impl Display) -> Result<()> {
        self.print(result).with_context(|| format!("{done}, but the result cannot be shown"))
    }

    /// Prints a page as one JSON object, or as one line per item and a last line with the next page's cursor.
    pub(crate) fn print_list<T: Serialize>(self, page: &Listing<T>) -> Result<()> {
        if self.json {
            return self.print(page);
        }
        for item in &page.data {
            let value = serde_json::to_value(item).context("cannot serialize the result")?;
            let fields = value.as_object().into_iter().flatten();
            let columns: Vec<_> = fields.map(|(_, value)| plain(value)).collect();
            print_line(columns.join("  "))?;
        }
        page.next_cursor.iter().try_for_each(|cursor| print_line(format!("next page: --cursor {cursor}")))
    }
}

/// A string without quotes; any other value as JSON.
fn plain(value: &Value) -> String {
    Shown(value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)).to_string()
}

/// A text for a terminal. What comes from the log may hold what a terminal would obey: such characters are shown as escapes.
/// A line feed would begin a line of their own.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: AsRef<str>> Display for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.as_ref().chars() {
            if is_obeyed(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

/// Whether a character moves the cursor, begins a command to the terminal, or changes the direction of the text after it.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The value as JSON of one line, for a terminal.
pub(crate) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(escaped_json)
}

/// The same JSON, with escapes for what a terminal would obey. The values are the same: such characters stand in strings
/// alone, and JSON escapes those below the space.
pub(crate) fn escaped_json(json: String) -> String {
    let is_escaped = |character: char| character >= ' ' && is_obeyed(character);
    if !json.contains(is_escaped) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_escaped(character) {
            // None of them is above U+FFFF.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Prints a line.
pub(crate) fn print_line(line: impl Display) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// A timestamp as the REST API shows it: RFC 3339 in UTC, with milliseconds.
pub(crate) fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Prints an error and its causes on stderr as one line. A failure to print is ignored.
pub(crate) fn print_error(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr().lock(), "farthing: {}", shown_error(error));
}

/// The text of an error for a terminal. It may quote a server or a file.
fn shown_error(error: &anyhow::Error) -> String {
    let text = error_text(error);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    Shown(lines.join(" ")).to_string()
}

/// An error and its causes, with what to do if the database is not migrated.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let hint = if lacks_a_table(error) { " (run `farthing migrate` of this version first)" } else { "" };
    format!("{}{hint}", with_causes(error))
}

/// Whether the database lacks what `farthing migrate` creates.
fn lacks_a_table(error: &anyhow::Error) -> bool {
    let codes = error.chain().filter_map(|cause| cause.downcast_ref::<tokio_postgres::Error>()?.code());
    codes.into_iter().any(|code| [&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME].contains(&code))
}

/// The error and its causes, joined by colons. A cause that an outer error already quotes is left out.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape() {
        for (text, shown) in [
            ("Ada Lovelace, ключ 鍵 🔑", "Ada Lovelace, ключ 鍵 🔑"),
            ("\u{1b}]52;c;ZXZpbA==\u{7}", "\\u{1b}]52;c;ZXZpbA==\\u{7}"),
            ("a\nb\r\tc\u{7f}\u{9b}2J", "a\\nb\\r\\tc\\u{7f}\\u{9b}2J"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
        ] {
            assert_eq!(plain(&Value::from(text)), shown);
        }
        assert_eq!(plain(&serde_json::json!({"a": "\u{9b}2J"})), r#"{"a":"\u{9b}2J"}"#);
    }

    #[test]
    fn json_has_escapes_for_what_a_terminal_would_obey() {
        for (text, shown) in [
            ("Ada Lovelace, ключ 鍵 🔑 \\ \"", r#""Ada Lovelace, ключ 鍵 🔑 \\ \"""#),
            ("\u{1b}]52;c;ZXZpbA==\u{7}", r#""\u001b]52;c;ZXZpbA==\u0007""#),
            ("a\n\u{7f}\u{9b}2J", r#""a\n\u007f\u009b2J""#),
            ("a\u{202e}b\u{2066}\u{61c}", r#""a\u202eb\u2066\u061c""#),
        ] {
            assert_eq!(json(&text).unwrap(), shown);
        }
        let all: String = ('\0'..='\u{ffff}').collect();
        let value = serde_json::json!({ all.clone(): [all] });
        let shown = json(&value).unwrap();
        assert!(!shown.chars().any(is_obeyed));
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value, "the value is the same");
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&escaped_json(pretty)).unwrap(), value);
    }

    #[test]
    fn an_error_is_one_line_without_what_a_terminal_would_obey() {
        let error = anyhow!("ERROR: \u{1b}[2J\n  HINT: a\u{202e}b").context("no answer");
        assert_eq!(shown_error(&error), "no answer: ERROR: \\u{1b}[2J HINT: a\\u{202e}b");
    }

    #[test]
    fn an_error_is_printed_with_each_cause_once() {
        let error = anyhow!("disk full").context("cannot write a.json: disk full").context("not saved");
        assert_eq!(with_causes(&error), "not saved: cannot write a.json: disk full");
    }
}
