//! `farthing prices validate`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use farthing_api::BUILT_IN;
use serde::Serialize;

use super::entry::{Name, entries};
use crate::gateway::ProviderHosts;
use crate::output::{self, OutputFormat};
use crate::price_files;

/// Flags of `prices validate`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The price file.
    file: PathBuf,
    /// As the gateways have them: beside the built-in providers, those named here may have prices.
    #[command(flatten)]
    hosts: ProviderHosts,
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
    let read = models(args);
    if let (Err(error), true) = (&read, args.format.is_json()) {
        let error = Some(output::error_text(error));
        args.format.print(&Verdict { valid: false, models: None, providers: None, error })?;
        return Ok(ExitCode::FAILURE);
    }
    let models = read?;
    let providers: BTreeSet<&str> = models.iter().map(|name| name.provider.as_str()).collect();
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

/// The models of the file. Each is at a provider that the gateways know: a call never reaches the price of another one.
fn models(args: &Args) -> Result<Vec<Name>> {
    let models: Vec<Name> = entries(&price_files::read(&args.file)?).into_keys().collect();
    let is_known = |name: &str| {
        BUILT_IN.iter().any(|facts| facts.name == name)
            || args.hosts.provider_hosts.iter().any(|host| host.name == name)
    };
    if let Some(Name { provider, model }) = models.iter().find(|name| !is_known(&name.provider)) {
        bail!(
            "{} has a price of {model:?} at {provider:?}, which is no built-in provider: no call has this price. If the \
             gateways name a host so, give validate their --provider-host",
            args.file.display()
        );
    }
    Ok(models)
}
