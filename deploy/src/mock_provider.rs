//! `farthing mock-provider`: serves the mock of an AI provider (`farthing_dev::mock_provider`).

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use farthing_dev::mock_provider::{self, Config};

use crate::lifetime::Lifetime;
use crate::log_format::LogFormat;

/// Flags of `mock-provider`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Address of the mock that gateways treat as an unknown provider, `other`. Port 0 picks a free port.
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "ADDR")]
    listen: SocketAddr,
    /// Address of the mock that stands for OpenAI. Give it to gateways as `--provider-host openai=ADDR`.
    #[arg(long, default_value = "127.0.0.1:9091", value_name = "ADDR")]
    openai_listen: SocketAddr,
    /// Address of the mock that stands for Anthropic, if there is to be one.
    #[arg(long, value_name = "ADDR")]
    anthropic_listen: Option<SocketAddr>,
    /// Address of the mock that stands for Google, if there is to be one.
    #[arg(long, value_name = "ADDR")]
    google_listen: Option<SocketAddr>,
    /// Append one line per call and one per response to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_journal")]
    journal: Option<PathBuf>,
    /// Keep no journal (the default without --journal).
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    lifetime: Lifetime,
}

impl Args {
    /// The format of the log.
    pub(crate) const fn log_format(&self) -> LogFormat {
        self.lifetime.log_format
    }
}

/// Runs the mock until shutdown.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    let config = Config {
        listen: args.listen,
        openai_listen: args.openai_listen,
        anthropic_listen: args.anthropic_listen,
        google_listen: args.google_listen,
        journal: args.journal,
    };
    mock_provider::run(config, stop, |addresses| args.lifetime.report_ready(addresses, None)).await
}
