//! The metrics of a gateway's HTTP side. Every counter of a call is found by an index, without hashing its labels.

use std::time::Duration;

use farthing_core::command::{Metered, Settled};
use farthing_core::event::FailureReason;
use farthing_telemetry::{Counter, Gauge, Histogram, Metrics};
use http::StatusCode;

use crate::error::counters_of_503s;
use crate::providers::{BUILT_IN, OTHER};

/// The classes of a provider's status; the last is that of a call without a response.
const STATUSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];

/// Whether the call ended as metered.
const METERED: [&str; 2] = ["no", "yes"];

/// The statuses of errors; the last is for all others.
const ERRORS: [&str; 14] =
    ["400", "401", "402", "403", "404", "405", "409", "422", "429", "500", "502", "503", "504", "other"];

/// An address that a gateway listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Of the forward endpoint and the REST API.
    Api,
    /// Of the hosted pages.
    Pages,
    /// For the other gateways.
    Gateways,
}

impl Listener {
    const NAMES: [&'static str; 3] = ["api", "pages", "gateways"];

    const fn index(self) -> usize {
        match self {
            Self::Api => 0,
            Self::Pages => 1,
            Self::Gateways => 2,
        }
    }
}

/// The load of one listener.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenerMetrics {
    pub(crate) connections: Gauge,
    pub(crate) in_flight: Gauge,
}

/// The metrics of a gateway's HTTP side.
#[derive(Debug)]
pub(crate) struct ApiMetrics {
    pub(crate) forward: ForwardMetrics,
    connections: [Gauge; 3],
    in_flight: [Gauge; 3],
}

impl ApiMetrics {
    /// Adds them to `metrics`.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        metrics.add_counters(
            "farthing_unavailable_total",
            "Answers with status 503 of the gateway itself, by the limit or the cause",
            counters_of_503s(),
        );
        Self {
            forward: ForwardMetrics::new(metrics),
            connections: metrics.gauges(
                "farthing_connections",
                "Open connections of callers",
                "listener",
                Listener::NAMES,
            ),
            in_flight: metrics.gauges(
                "farthing_requests_in_flight",
                "HTTP requests, forwarded calls among them, that are not answered to the end",
                "listener",
                Listener::NAMES,
            ),
        }
    }

    /// The load of `listener`.
    pub(crate) fn listener(&self, listener: Listener) -> ListenerMetrics {
        let index = listener.index();
        ListenerMetrics {
            connections: self.connections[index].clone(),
            in_flight: self.in_flight[index].clone(),
        }
    }
}

/// The metrics of forwarded calls.
#[derive(Debug)]
pub(crate) struct ForwardMetrics {
    /// By provider, status and whether metered.
    calls: Vec<Counter>,
    /// Calls that may be charged and were left unsettled.
    pub(crate) unsettled: Counter,
    replayed: Counter,
    errors: [Counter; ERRORS.len()],
    duration: Histogram,
    added: Histogram,
    /// The calls that are open in the ledger, as far as this gateway forwards them.
    pub(crate) open: Gauge,
}

impl ForwardMetrics {
    fn new(metrics: &Metrics) -> Self {
        let family = metrics.counter_family(
            "farthing_calls_total",
            "Forwarded calls that were settled, by the status of the provider and whether they are metered",
        );
        let providers = BUILT_IN.iter().map(|facts| facts.name).chain([OTHER]);
        let calls = providers.flat_map(|provider| {
            let family = &family;
            STATUSES.into_iter().flat_map(move |status| {
                METERED.map(|metered| {
                    family.with([("provider", provider), ("status", status), ("metered", metered)])
                })
            })
        });
        Self {
            calls: calls.collect(),
            unsettled: metrics.counter(
                "farthing_calls_unsettled_total",
                "Forwarded calls that may be charged and were left unsettled",
            ),
            replayed: metrics.counter(
                "farthing_calls_replayed_total",
                "Forwarded calls that were answered with the stored response of an earlier one",
            ),
            errors: metrics.counters(
                "farthing_forward_errors_total",
                "Answers of the forward endpoint that are errors of the gateway itself",
                "status",
                ERRORS,
            ),
            duration: metrics.durations(
                "farthing_call_duration_seconds",
                "Time of a forwarded call from its head to the end of its response",
            ),
            added: metrics.durations(
                "farthing_call_added_seconds",
                "That time without the waits for the provider and for a slow caller",
            ),
            open: metrics.gauge(
                "farthing_open_calls",
                "Calls of this gateway that are open in the ledger, each with its hold",
            ),
        }
    }

    /// Counts a call that was settled.
    pub(crate) fn settled(&self, label: CallLabel) {
        self.calls[label.0].inc();
    }

    /// Counts a call that was answered with the stored response of an earlier one.
    pub(crate) fn replayed(&self) {
        self.replayed.inc();
    }

    /// Counts an error of the gateway itself.
    pub(crate) fn error(&self, status: StatusCode) {
        let last = ERRORS.len() - 1;
        let index = ERRORS.iter().position(|known| *known == status.as_str()).unwrap_or(last);
        self.errors[index].inc();
    }

    /// Counts the time of a call whose response was passed on to its end.
    pub(crate) fn passed_on(&self, duration: Duration, added: Duration) {
        self.duration.observe(duration);
        self.added.observe(added);
    }
}

/// A provider as a label: one that is built in, or `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderLabel(usize);

impl ProviderLabel {
    /// The label of the provider `name`.
    pub(crate) fn of(name: &str) -> Self {
        Self(BUILT_IN.iter().position(|facts| facts.name == name).unwrap_or(BUILT_IN.len()))
    }
}

/// The labels of a call that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallLabel(usize);

impl CallLabel {
    /// Those of a call to `provider` that was settled as `settled`. If that was to be metered and the ledger has recorded it as
    /// failed, `unmetered` is the reason.
    pub(crate) fn of(provider: ProviderLabel, settled: &Settled, unmetered: Option<FailureReason>) -> Self {
        let (status, is_metered) = match settled {
            // Without a response, the status is 0.
            Settled::Metered(Metered { http_status, .. }) => (Some(*http_status), unmetered.is_none()),
            Settled::Failed(failed) => (failed.http_status, false),
        };
        let status = match status {
            Some(200..=299) => 0,
            Some(300..=399) => 1,
            Some(400..=499) => 2,
            Some(500..=599) => 3,
            Some(_) | None => 4,
        };
        Self((provider.0 * STATUSES.len() + status) * METERED.len() + usize::from(is_metered))
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::command::{Completeness, Failed};

    use super::*;
    use crate::error::GatewayLimit;

    #[test]
    fn each_reason_of_a_503_is_counted_from_the_first() {
        let metrics = Metrics::default();
        ApiMetrics::new(&metrics);
        let text = metrics.text().unwrap();
        let limits = GatewayLimit::ALL.iter().map(|limit| limit.name());
        for reason in limits.chain(["the ledger", "the outcome is not known"]) {
            let line = format!("farthing_unavailable_total{{reason=\"{reason}\"}} ");
            assert!(text.lines().any(|found| found.starts_with(&line)), "{line}: {text}");
        }
    }

    #[test]
    fn a_call_is_counted_under_its_provider_and_status() {
        let metrics = Metrics::default();
        let forward = ForwardMetrics::new(&metrics);
        let failed = |http_status| {
            Settled::Failed(Failed { http_status, ..Failed::because(FailureReason::ProviderStatus) })
        };
        for (provider, status) in [("openai", Some(500)), ("groq", Some(404)), ("someone", None)] {
            forward.settled(CallLabel::of(ProviderLabel::of(provider), &failed(status), None));
        }
        let metered = Settled::Metered(Metered {
            http_status: 200,
            usage: None,
            ending: Completeness::Whole,
            counted: None,
            raw_usage: None,
            response_id: None,
            model: None,
            provider_timestamp: None,
        });
        // What is in the log counts.
        for unmetered in [None, None, Some(FailureReason::UsageInvalid)] {
            forward.settled(CallLabel::of(ProviderLabel::of("mistral"), &metered, unmetered));
        }
        forward.error(StatusCode::UNAUTHORIZED);
        forward.error(StatusCode::IM_A_TEAPOT);
        let text = metrics.text().unwrap();
        for line in [
            "farthing_calls_total{provider=\"openai\",status=\"5xx\",metered=\"no\"} 1",
            "farthing_calls_total{provider=\"groq\",status=\"4xx\",metered=\"no\"} 1",
            "farthing_calls_total{provider=\"other\",status=\"none\",metered=\"no\"} 1",
            "farthing_calls_total{provider=\"openai\",status=\"2xx\",metered=\"yes\"} 0",
            "farthing_calls_total{provider=\"mistral\",status=\"2xx\",metered=\"yes\"} 2",
            "farthing_calls_total{provider=\"mistral\",status=\"2xx\",metered=\"no\"} 1",
            "farthing_forward_errors_total{status=\"401\"} 1",
            "farthing_forward_errors_total{status=\"other\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
