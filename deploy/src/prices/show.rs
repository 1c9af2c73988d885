//! `farthing prices show`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use chrono::NaiveDate;
use serde::Serialize;

use super::entry::{Entry, entries, plain};
use crate::output::{self, OutputFormat};
use crate::price_files::Prices;

/// Flags of `prices show`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The model's name, exactly as a call names it.
    model: String,
    /// Show the price at this provider alone.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[command(flatten)]
    prices: Prices,
    #[command(flatten)]
    format: OutputFormat,
}

/// A shown model.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    taken: NaiveDate,
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    data: Vec<Shown<'a>>,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let models = entries(&args.prices.catalogue()?);
    let is_wanted = |provider: &str| args.provider.as_deref().is_none_or(|wanted| wanted == provider);
    let found: Vec<_> =
        models.iter().filter(|(name, _)| name.model == args.model && is_wanted(&name.provider)).collect();
    if found.is_empty() {
        match &args.provider {
            Some(provider) => bail!("no price of {} at {provider} is listed", args.model),
            None => bail!("no price of {} is listed", args.model),
        }
    }
    if args.format.is_json() {
        let data = found.iter().map(|(_, entry)| Shown { entry, taken: entry.taken }).collect();
        args.format.print(&Found { data })?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, entry) in found {
        output::print_line(format!("{name} (taken {})", entry.taken))?;
        for (field, value) in entry.fields() {
            output::print_line(format!("  {field}: {}", plain(&value)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
