//! What a process shows at its operator's address, read strictly: a metric that is not well-formed `OpenMetrics` text
//! fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::client::{Request, Response};

/// The content type of `OpenMetrics` text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One value.
#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: String,
}

/// The metrics of a process.
#[derive(Debug, Clone, Default)]
pub struct Scrape {
    /// The kind of each family, by its name as the documents have it: counters with `_total`.
    pub kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

/// The answer to `GET path`.
pub async fn get(to: SocketAddr, path: &str) -> Response {
    Request::new("GET", path).send(to).await.unwrap_or_else(|error| panic!("{to}{path}: {error}"))
}

/// The metrics at an operator's address.
pub async fn scrape(to: SocketAddr) -> Scrape {
    let response = get(to, "/metrics").await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.head.header("content-type"), Some(OPEN_METRICS));
    Scrape::read(&response.text())
}

impl Scrape {
    /// Reads `OpenMetrics` text.
    pub fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut lines: Vec<&str> = text.lines().collect();
        assert!(text.ends_with('\n') && lines.pop() == Some("# EOF"), "the text has no end");
        let mut family: Option<(String, String)> = None;
        let mut help = None;
        let mut seen = BTreeSet::new();
        for line in lines {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                assert!(!text.is_empty(), "{line}");
                help = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                assert_eq!(help.take().as_deref(), Some(name), "a family has its help before its type");
                assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
                let documented = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
                assert!(scrape.kinds.insert(documented, kind.to_owned()).is_none(), "twice: {name}");
                family = Some((name.to_owned(), kind.to_owned()));
            } else {
                let sample = Sample::read(line);
                let (name, kind) = family.as_ref().unwrap_or_else(|| panic!("of no family: {line}"));
                let suffix = sample.name.strip_prefix(name.as_str());
                let is_of_family = match kind.as_str() {
                    "counter" => suffix == Some("_total"),
                    "gauge" => suffix == Some(""),
                    _ => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
                };
                assert!(is_of_family, "{line} is no {kind} of {name}");
                assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
                scrape.samples.push(sample);
            }
        }
        scrape.check_histograms();
        scrape
    }

    /// Buckets must not decrease, and the last one has all observations.
    fn check_histograms(&self) {
        for (name, _) in self.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            let buckets: Vec<u64> = self.named(&format!("{name}_bucket")).map(Sample::count).collect();
            assert!(buckets.is_sorted(), "{name}: {buckets:?}");
            let last = self.matching(&format!("{name}_bucket"), &[("le", "+Inf")]).count();
            assert_eq!(last, 1, "{name} has one last bucket");
            assert_eq!(buckets.last(), Some(&self.count(&format!("{name}_count"), &[])), "{name}");
        }
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let has = |sample: &Sample, (label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|found| found == value)
        };
        self.named(name).filter(move |sample| labels.iter().all(|label| has(sample, label)))
    }

    /// The sum of the counts with this name and these labels.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.matching(name, labels).map(Sample::count).sum()
    }

    /// The values with this name and these labels.
    pub fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let value = |sample: &Sample| sample.value.parse().expect("a value is a number");
        self.matching(name, labels).map(value).collect()
    }

    /// The values of a label of this name.
    pub fn label_values(&self, name: &str, label: &str) -> BTreeSet<String> {
        self.named(name).filter_map(|sample| sample.labels.get(label).cloned()).collect()
    }
}

impl Sample {
    fn read(line: &str) -> Self {
        let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
        let (name, mut rest) = line.split_at(end);
        let is_name = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_lowercase())
                && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
        };
        assert!(is_name(name), "{line}");
        let mut labels = BTreeMap::new();
        if let Some(inner) = rest.strip_prefix('{') {
            let (all, after) = inner.split_once("} ").unwrap_or_else(|| panic!("no end of labels: {line}"));
            // No value has a quote, comma or brace in it.
            for label in all.split(',') {
                let (label, value) = label.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
                let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                let value = value.unwrap_or_else(|| panic!("no label value: {line}"));
                assert!(is_name(label) && !value.contains(['"', '\\']), "{line}");
                assert!(labels.insert(label.to_owned(), value.to_owned()).is_none(), "{line}");
            }
            rest = after;
        } else {
            rest = rest.trim_start_matches(' ');
        }
        let number: f64 = rest.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(number.is_finite(), "{line}");
        Self { name: name.to_owned(), labels, value: rest.to_owned() }
    }

    fn count(&self) -> u64 {
        self.value.parse().unwrap_or_else(|error| panic!("{}: {}: {error}", self.name, self.value))
    }
}
