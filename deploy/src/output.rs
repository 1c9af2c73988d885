//! What the program says on its terminal: results on stdout, complaints on stderr.

use std::fmt::Display;
use std::io::Write as _;

use serde::Serialize;

use crate::failure::{Failure, IntoFailure as _};

/// How results are written.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Format {
    /// Prints `result`: as one JSON object, or as a line per field.
    pub(crate) fn print(self, result: &impl Serialize) -> Result<(), Failure> {
        let value = serde_json::to_value(result).or_fail("cannot write the result")?;
        match &value {
            serde_json::Value::Object(fields) if !self.json => fields.iter().try_for_each(|(name, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                say(format!("{name}: {text}"))
            }),
            _ => say(value),
        }
    }
}

/// A page of things, newest or oldest first as the command says.
#[derive(Debug, Serialize)]
pub(crate) struct Listing<T> {
    data: Vec<T>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> Listing<T> {
    /// The page of `data`, whose last thing is `last`.
    pub(crate) fn new(data: Vec<T>, has_more: bool, last: Option<String>) -> Self {
        Self { data, has_more, next_cursor: last.filter(|_| has_more) }
    }
}

impl Format {
    /// Prints a page: as one JSON object, or as a line per thing and one that names the next page.
    pub(crate) fn print_list<T: Serialize>(self, page: &Listing<T>) -> Result<(), Failure> {
        if self.json {
            return self.print(page);
        }
        for thing in &page.data {
            let value = serde_json::to_value(thing).or_fail("cannot write the result")?;
            let fields = value.as_object().into_iter().flatten();
            let texts =
                fields.map(|(_, value)| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
            say(texts.collect::<Vec<_>>().join("  "))?;
        }
        page.next_cursor.iter().try_for_each(|cursor| say(format!("more: --cursor {cursor}")))
    }
}

/// A line on stdout.
pub(crate) fn say(line: impl Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).or_fail("cannot write to stdout")
}

/// A line on stderr; nobody may be listening.
pub(crate) fn complain(failure: &Failure) {
    let _ = writeln!(std::io::stderr().lock(), "farthing: {failure}");
}
