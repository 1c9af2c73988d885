//! Command-line flags and variables for traces. Most variables are those of OpenTelemetry, so they have its names.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use farthing_telemetry::Metrics;
use farthing_telemetry::traces::{
    Sampling, TraceMetrics, TraceSettings, Traces, base_endpoint, headers, traces_endpoint,
};
use http::HeaderMap;

use crate::secret_file;

/// Flags that say where traces go, and how many there are.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct TraceArgs {
    /// Send traces to the OpenTelemetry collector at this URL, over OTLP with HTTP and protobuf; `/v1/traces` is added to
    /// it. Without it, or the next one, there are no traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// The same, with the whole URL of traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", hide_env_values = true, value_name = "URL")]
    otlp_traces_endpoint: Option<String>,
    /// File whose first line has headers of every request to the collector: `NAME=VALUE`, with commas between them and
    /// values percent-encoded. `OTEL_EXPORTER_OTLP_HEADERS` holds the headers themselves.
    #[arg(long, env = "FARTHING_OTLP_HEADERS_FILE", value_name = "FILE")]
    otlp_headers_file: Option<PathBuf>,
    /// Most calls whose traces begin in a second, whoever asks for them.
    #[arg(long, env = "FARTHING_TRACES_PER_SECOND", default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    traces_per_second: u32,
}

impl TraceArgs {
    /// Starts to make traces if there is a collector. The metrics of traces are added to `metrics` in any case.
    pub(super) fn start(&self, metrics: &Metrics) -> Result<Traces> {
        let metrics = TraceMetrics::new(metrics);
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let Some(settings) = self.settings(variable)? else { return Ok(Traces::default()) };
        let traces = Traces::start(&settings, &metrics).context("traces cannot be sent")?;
        let host = settings.endpoint.authority().map(ToString::to_string);
        // Path and query may hold a key.
        tracing::info!(event = "traces.started", host, "traces are sent to a collector");
        Ok(traces)
    }

    /// The settings, by the flags and by the variables of OpenTelemetry; `None` without a collector.
    fn settings(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<TraceSettings>> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let given = |url: &Option<String>| url.clone().filter(|url| !url.trim().is_empty());
        let endpoint = match (given(&self.otlp_traces_endpoint), given(&self.otlp_endpoint)) {
            (Some(url), _) => traces_endpoint(&url).context("--otlp-traces-endpoint")?,
            (None, Some(url)) => base_endpoint(&url).context("--otlp-endpoint")?,
            (None, None) => {
                ensure!(self.otlp_headers_file.is_none(), "--otlp-headers-file needs --otlp-endpoint");
                return Ok(None);
            }
        };
        match variable("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(_) => bail!("OTEL_TRACES_EXPORTER must be otlp or none"),
        }
        // A variable about traces alone comes before the one about all that OTLP carries.
        let of_traces = |name: &str| {
            let names =
                ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].map(|begin| format!("{begin}{name}"));
            names.into_iter().find_map(|name| Some((variable(&name)?, name)))
        };
        if let Some((protocol, name)) = of_traces("PROTOCOL") {
            ensure!(
                protocol == "http/protobuf",
                "{name} must be http/protobuf: no other protocol is supported"
            );
        }
        let headers = match (&self.otlp_headers_file, of_traces("HEADERS")) {
            (Some(file), _) => headers(&secret_file::first_line("--otlp-headers-file", file)?)
                .context("--otlp-headers-file")?,
            (None, Some((text, name))) => headers(&text).context(name)?,
            (None, None) => HeaderMap::new(),
        };
        for name in ["OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] {
            // The library takes its default for what it cannot read.
            let is_number = |text: String| text.parse::<u32>().is_ok_and(|number| number > 0);
            ensure!(variable(name).is_none_or(is_number), "{name} must be a whole number above 0");
        }
        let sampler = (variable("OTEL_TRACES_SAMPLER"), variable("OTEL_TRACES_SAMPLER_ARG"));
        let sampling = Sampling::named(sampler.0.as_deref(), sampler.1.as_deref());
        Ok(Some(TraceSettings {
            endpoint,
            headers,
            authorities: of_traces("CERTIFICATE").map(|(file, _)| file.into()),
            sampling: sampling.context("OTEL_TRACES_SAMPLER")?,
            per_second: self.traces_per_second,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Gateway {
        #[command(flatten)]
        traces: TraceArgs,
    }

    fn settings(flags: &[&str], variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, String> {
        let line = ["gateway"].into_iter().chain(flags.iter().copied());
        let args = Gateway::try_parse_from(line).map_err(|error| error.to_string())?.traces;
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        args.settings(variable).map_err(|error| format!("{error:#}"))
    }

    const ENDPOINT: &str = "--otlp-endpoint=http://localhost:4318";

    #[test]
    fn there_are_no_traces_without_a_collector() {
        assert!(settings(&[], &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap().is_none());
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(settings(&[ENDPOINT], &[off]).unwrap().is_none(), "{off:?}");
        }
        assert!(settings(&["--otlp-headers-file=/nowhere"], &[]).is_err());
    }

    #[test]
    fn what_is_about_traces_comes_first() {
        let whole = "--otlp-traces-endpoint=https://otel.example/in";
        let found = settings(
            &[ENDPOINT, whole, "--traces-per-second=7"],
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-for=all"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-for=traces"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ca.pem"),
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ],
        );
        let found = found.unwrap().unwrap();
        assert_eq!(found.endpoint.to_string(), "https://otel.example/in");
        assert_eq!((found.headers["x-for"].to_str().unwrap(), found.per_second), ("traces", 7));
        assert_eq!(found.authorities, Some("/etc/ca.pem".into()));
        let plain = settings(&[ENDPOINT], &[]).unwrap().unwrap();
        assert_eq!(plain.endpoint.to_string(), "http://localhost:4318/v1/traces");
        assert!(plain.headers.is_empty() && plain.authorities.is_none() && plain.per_second == 100);
    }

    #[test]
    fn a_wrong_setting_is_named_and_no_secret_is_shown() {
        for (flags, variable, name) in [
            (["--otlp-endpoint=localhost:4318"], ("A", ""), "--otlp-endpoint"),
            (["--otlp-endpoint=http://user:secret@localhost"], ("A", ""), "--otlp-endpoint"),
            ([ENDPOINT], ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "OTEL_EXPORTER_OTLP_PROTOCOL"),
            ([ENDPOINT], ("OTEL_EXPORTER_OTLP_HEADERS", "secret"), "OTEL_EXPORTER_OTLP_HEADERS"),
            ([ENDPOINT], ("OTEL_TRACES_SAMPLER", "xray"), "OTEL_TRACES_SAMPLER"),
            ([ENDPOINT], ("OTEL_TRACES_EXPORTER", "zipkin"), "OTEL_TRACES_EXPORTER"),
            ([ENDPOINT], ("OTEL_BSP_SCHEDULE_DELAY", "5s"), "OTEL_BSP_SCHEDULE_DELAY"),
            ([ENDPOINT], ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
        ] {
            let refused = settings(&flags, &[variable]).map(|_| ()).unwrap_err();
            assert!(refused.contains(name) && !refused.contains("secret"), "{refused}");
        }
        let refused = settings(&[ENDPOINT, "--traces-per-second=0"], &[]).map(|_| ()).unwrap_err();
        assert!(refused.contains("--traces-per-second"), "{refused}");
    }
}
