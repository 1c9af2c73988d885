//! `farthing prices validate`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::entry::entries;
use crate::output::{self, OutputFormat};
use crate::price_files;

/// Flags of `prices validate`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The price file.
    file: PathBuf,
    #[command(flatten)]
    format: OutputFormat,
}

/// The verdict on a file.
#[derive(Debug, Serialize)]
struct Verdict {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    providers: Option<usize>,
    /// The first rule that it breaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let read = price_files::read(&args.file);
    if let (Err(error), true) = (&read, args.format.is_json()) {
        let error = Some(output::error_text(error));
        args.format.print(&Verdict { valid: false, models: None, providers: None, error })?;
        return Ok(ExitCode::FAILURE);
    }
    let models = entries(&read?);
    let providers: BTreeSet<&str> = models.keys().map(|name| name.provider.as_str()).collect();
    let (models, providers) = (models.len(), providers.len());
    if args.format.is_json() {
        args.format.print(&Verdict {
            valid: true,
            models: Some(models),
            providers: Some(providers),
            error: None,
        })?;
    } else {
        output::print_line(format!("valid: {models} names of models at {providers} providers"))?;
    }
    Ok(ExitCode::SUCCESS)
}
