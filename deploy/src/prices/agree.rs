//! `farthing prices agree`: how the built-in catalogue is made of two public ones.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use chrono::NaiveDate;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use super::entry::{Entry, entries};
use crate::output;
use crate::price_files;

/// Flags of `prices agree`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A price file. The limits of tokens are its own, or else those of the second.
    first: PathBuf,
    /// The price file that must say the same.
    second: PathBuf,
    /// The source of the new file.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    source: String,
    /// The licence of the new file.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    licence: String,
}

#[derive(Debug, Serialize)]
struct File<'a> {
    source: &'a str,
    licence: &'a str,
    taken: NaiveDate,
}

/// Runs the subcommand. The new file has the earlier of the two days.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (first, second) = (price_files::read(&args.first)?, price_files::read(&args.second)?);
    let (first, second) = (entries(&first), entries(&second));
    let agreed: Vec<Entry> = first
        .into_iter()
        .filter_map(|(name, entry)| {
            let other = second.get(&name).filter(|other| other.price == entry.price)?;
            Some(Entry {
                max_output_tokens: entry.max_output_tokens.or(other.max_output_tokens),
                max_input_tokens: entry.max_input_tokens.or(other.max_input_tokens),
                taken: entry.taken.min(other.taken),
                ..entry
            })
        })
        .collect();
    let taken = agreed.iter().map(|entry| entry.taken).min().context("the files agree on no model")?;
    let file = File { source: &args.source, licence: &args.licence, taken };
    let head = serde_json::to_string(&file).context("cannot serialize the file")?;
    let models: Result<Vec<String>, _> = agreed.iter().map(serde_json::to_string).collect();
    let models = models.context("cannot serialize the models")?;
    // One model a line, so that a change of one price is a change of one line.
    let head = head.strip_suffix('}').unwrap_or(&head);
    output::print_line(format!("{head},\"models\":[\n{}\n]}}", models.join(",\n")))?;
    Ok(ExitCode::SUCCESS)
}
