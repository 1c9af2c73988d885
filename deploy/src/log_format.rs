//! The format of the log on stderr, of the error that ends a process, and of panics.

use std::panic::PanicHookInfo;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::output;

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

    /// Logs to stderr from now on. `FARTHING_LOG` overrides the level with a filter such as `info,farthing_api=debug`, but
    /// lets nothing below a warning of the NATS client through: its debug lines have the URL with its password.
    pub(crate) fn log_to_stderr(self, level: &str) {
        let default = || EnvFilter::new(format!("{level},refinery_core=warn"));
        let given = std::env::var("FARTHING_LOG").ok().filter(|given| !given.trim().is_empty());
        let (filter, wrong) = match given.map(EnvFilter::try_new) {
            Some(Ok(filter)) => (filter, None),
            Some(Err(error)) => (default(), Some(error)),
            None => (default(), None),
        };
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let without_secrets =
            filter_fn(|about| !about.target().starts_with("async_nats") || *about.level() <= Level::WARN);
        match self {
            Self::Text => log.finish().with(without_secrets).init(),
            Self::Json => {
                let log = log.json().flatten_event(true).with_current_span(true).with_span_list(false);
                log.finish().with(without_secrets).init();
                std::panic::set_hook(Box::new(log_panic));
            }
        }
        if let Some(error) = wrong {
            tracing::warn!(event = "log.filter_refused", %error, "FARTHING_LOG is no log filter; the default is used");
        }
    }

    /// Shows the error that ends the process: as a line of the log in JSON, unless the log's filter hides errors.
    pub(crate) fn show_error(self, error: &anyhow::Error) {
        if self == Self::Json && tracing::enabled!(Level::ERROR) {
            let error = output::error_text(error);
            tracing::error!(event = "process.failed", error, "the process ends with an error");
        } else {
            output::print_error(error);
        }
    }
}

/// Logs a panic of a task or a thread.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let reason = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current().name().map(ToOwned::to_owned);
    tracing::error!(event = "process.panicked", reason, location, thread, "a task or a thread panicked");
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn test_panic() {
        panic!("this panic is part of the test");
    }

    #[test]
    fn a_panic_is_a_line_of_json() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        let panicked =
            tracing::subscriber::with_default(log.finish(), || std::panic::catch_unwind(test_panic));
        std::panic::set_hook(before);
        assert!(panicked.is_err());
        let line: Value = serde_json::from_slice(&written.0.lock().unwrap()).unwrap();
        assert_eq!(line["event"], "process.panicked", "{line}");
        assert_eq!(line["reason"], "this panic is part of the test", "{line}");
        assert!(line["location"].as_str().unwrap().contains("log_format.rs:"), "{line}");
    }
}
