//! The registry of a process's metrics, and the kinds of metrics.
//!
//! Invariant: no label holds an id or a secret. Labels are constants, or the numbers of partitions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::histogram::{Histogram, Scale};

/// The end of the name of every counter. The encoder adds it.
const TOTAL: &str = "_total";

/// Counters of one name, by the values of `N` labels. They are made when they are first asked for.
#[derive(Debug, Clone, Default)]
pub struct CounterFamily<const N: usize>(Family<Labels<N>, Counter>);

type Labels<const N: usize> = [(&'static str, &'static str); N];

impl<const N: usize> CounterFamily<N> {
    /// The counter with these labels. To be kept where it is counted often: this hashes the labels.
    pub fn with(&self, labels: Labels<N>) -> Counter {
        self.0.get_or_create(&labels).clone()
    }
}

/// The metrics of a process. Copies share one registry. A default one is seen by nobody, for tests and operators'
/// commands.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Adds a counter. Its `name` ends in `_total`.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        let counter = Counter::default();
        self.registry().register(without_total(name), help, counter.clone());
        counter
    }

    /// Adds a counter for each of the `values` of a `label`.
    pub fn counters<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: [&'static str; N],
    ) -> [Counter; N] {
        let family = self.counter_family(name, help);
        values.map(|value| family.with([(label, value)]))
    }

    /// Adds counters with `N` labels.
    pub fn counter_family<const N: usize>(&self, name: &'static str, help: &'static str) -> CounterFamily<N> {
        let family = CounterFamily::default();
        self.add_counters(name, help, &family);
        family
    }

    /// Adds counters that exist already.
    pub fn add_counters<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        family: &CounterFamily<N>,
    ) {
        self.registry().register(without_total(name), help, family.0.clone());
    }

    /// Adds a counter that is read when the metrics are; `None` if it cannot be read.
    pub fn counter_from(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.registry().register(without_total(name), help, ReadCounter(Box::new(read)));
    }

    /// Adds gauges for each of the `values` of a `label`.
    pub fn gauges<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: [&'static str; N],
    ) -> [Gauge; N] {
        let family = Family::<Labels<1>, Gauge>::default();
        self.registry().register(name, help, family.clone());
        values.map(|value| family.get_or_create(&[(label, value)]).clone())
    }

    /// Adds a gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let gauge = Gauge::default();
        self.registry().register(name, help, gauge.clone());
        gauge
    }

    /// Adds a gauge that is read when the metrics are; `None` if it has no value.
    pub fn gauge_from(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        let read = move || read().map(|value| (Vec::new(), value)).into_iter().collect();
        self.registry().register(name, help, ReadGauges(Box::new(read)));
    }

    /// Adds gauges that are read when the metrics are, each with the value of `label`.
    pub fn gauges_from(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) {
        let read = move || read().into_iter().map(|(value, read)| (vec![(label, value)], read)).collect();
        self.registry().register(name, help, ReadGauges(Box::new(read)));
    }

    /// Adds the gauge of what the process is: 1, with these labels.
    pub fn info(&self, name: &'static str, help: &'static str, labels: &[(&'static str, &'static str)]) {
        let labels: Vec<_> = labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
        let read = move || vec![(labels.clone(), 1.0)];
        self.registry().register(name, help, ReadGauges(Box::new(read)));
    }

    /// Adds a histogram of durations. Its `name` ends in `_seconds`.
    pub fn durations(&self, name: &'static str, help: &'static str) -> Histogram {
        self.histogram(name, help, Scale::Seconds)
    }

    /// Adds a histogram of sizes: numbers of things.
    pub fn sizes(&self, name: &'static str, help: &'static str) -> Histogram {
        self.histogram(name, help, Scale::Number)
    }

    fn histogram(&self, name: &'static str, help: &'static str, scale: Scale) -> Histogram {
        let histogram = Histogram::new(scale);
        self.registry().register(name, help, histogram.clone());
        histogram
    }

    /// All metrics as text in the format `OpenMetrics`, which Prometheus reads.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry())?;
        Ok(text)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the things that a gauge counts. Dropping it counts it no more.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    /// Another one.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn without_total(name: &'static str) -> &'static str {
    name.strip_suffix(TOTAL).expect("the name of a counter ends in _total")
}

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

struct ReadCounter(Read<Option<f64>>);

/// The labels of a gauge, and its value.
type Reading = (Vec<(&'static str, String)>, f64);

struct ReadGauges(Read<Vec<Reading>>);

impl fmt::Debug for ReadCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadCounter")
    }
}

impl fmt::Debug for ReadGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadGauges")
    }
}

impl EncodeMetric for ReadCounter {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0().map_or(Ok(()), |value| ConstCounter::new(value).encode(encoder))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl EncodeMetric for ReadGauges {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, value) in self.0() {
            if labels.is_empty() {
                encoder.encode_gauge(&value)?;
            } else {
                encoder.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn metrics_are_written_as_open_metrics_text() {
        let metrics = Metrics::default();
        metrics.counter("a_total", "Things").inc_by(3);
        let [_, second] = metrics.counters("b_total", "Other things", "kind", ["x", "y"]);
        second.inc();
        metrics.gauge_from("c", "A reading", || Some(1.5));
        metrics.gauge_from("d", "No reading", || None);
        metrics.gauges_from("e", "Readings", "partition", || vec![("7".to_owned(), 2.0)]);
        let durations = metrics.durations("f_seconds", "Durations");
        durations.observe(Duration::from_millis(2));
        metrics.info("g_info", "What this is", &[("version", "1"), ("role", "test")]);
        let open = metrics.gauge("h", "Open things");
        let _counted = Counted::new(&open);
        drop(Counted::new(&open));
        let text = metrics.text().unwrap();
        for line in [
            "# TYPE a counter",
            "a_total 3",
            "b_total{kind=\"x\"} 0",
            "b_total{kind=\"y\"} 1",
            "c 1.5",
            "# TYPE d gauge",
            "e{partition=\"7\"} 2.0",
            "# TYPE f_seconds histogram",
            "f_seconds_sum 0.002",
            "f_seconds_count 1",
            "f_seconds_bucket{le=\"0.001\"} 0",
            "f_seconds_bucket{le=\"0.0025\"} 1",
            "f_seconds_bucket{le=\"+Inf\"} 1",
            "g_info{version=\"1\",role=\"test\"} 1.0",
            "h 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
