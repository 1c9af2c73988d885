//! The format of the log on stderr.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The format of log lines. The names of events and fields are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

impl LogFormat {
    /// Its name as a value of the flag.
    #[cfg(feature = "dev")]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// Logs to stderr from now on. `FARTHING_LOG` overrides the level with a filter such as `info,farthing_api=debug`.
    pub(crate) fn log_to_stderr(self, level: &str) {
        let filter = EnvFilter::try_from_env("FARTHING_LOG")
            .unwrap_or_else(|_| EnvFilter::new(format!("{level},async_nats=warn,refinery_core=warn")));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self {
            Self::Text => log.init(),
            Self::Json => {
                log.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
            }
        }
    }
}
