//! The names that an instance uses at NATS: a stream and a subject of the feed for each partition, and the subjects of
//! the wake-up notifications. Instances that share a NATS account tell them apart by a prefix.

use std::fmt::{self, Display};
use std::str::FromStr;

use farthing_core::partition::Partition;

/// The most bytes of a prefix.
const MAX_PREFIX_BYTES: usize = 64;

/// The text is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {} characters of `A-Z`, `a-z`, `0-9`, `-` and `_`", MAX_PREFIX_BYTES)]
pub struct NotAPrefix;

/// What the names of one instance begin with. By default, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatsNames {
    prefix: Option<String>,
}

impl NatsNames {
    /// The prefix, if there is one.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// The stream of a partition of the feed.
    pub fn stream(&self, partition: Partition) -> String {
        self.named("-", format_args!("LEDGER-{partition}"))
    }

    /// The only subject of that stream.
    pub fn subject(&self, partition: Partition) -> String {
        self.named(".", format_args!("ledger.{partition}"))
    }

    /// The subject of the wake-up notifications of a partition, on core NATS.
    pub fn wake_up(&self, partition: Partition) -> String {
        self.named(".", format_args!("farthing.head.{partition}"))
    }

    /// The subjects of the wake-up notifications of all partitions.
    pub fn wake_ups(&self) -> String {
        self.named(".", format_args!("farthing.head.*"))
    }

    fn named(&self, separator: &str, name: fmt::Arguments<'_>) -> String {
        match &self.prefix {
            None => name.to_string(),
            Some(prefix) => format!("{prefix}{separator}{name}"),
        }
    }
}

impl FromStr for NatsNames {
    type Err = NotAPrefix;

    /// The names with this prefix.
    fn from_str(prefix: &str) -> Result<Self, NotAPrefix> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=MAX_PREFIX_BYTES).contains(&prefix.len()) || !prefix.bytes().all(is_allowed) {
            return Err(NotAPrefix);
        }
        Ok(Self { prefix: Some(prefix.to_owned()) })
    }
}

/// The prefix, as it is given on a command line. Empty without one.
impl Display for NatsNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_prefix_stay_those_of_earlier_releases() {
        let (names, partition) = (NatsNames::default(), Partition::new(3));
        assert_eq!(names.stream(partition), "LEDGER-3");
        assert_eq!(names.subject(partition), "ledger.3");
        assert_eq!(names.wake_up(partition), "farthing.head.3");
        assert_eq!(names.wake_ups(), "farthing.head.*");
        assert_eq!(names.to_string(), "");
    }

    #[test]
    fn every_name_begins_with_the_prefix() {
        let (names, partition): (NatsNames, _) = ("acme_eu-1".parse().unwrap(), Partition::new(0));
        assert_eq!(names.stream(partition), "acme_eu-1-LEDGER-0");
        assert_eq!(names.subject(partition), "acme_eu-1.ledger.0");
        assert_eq!(names.wake_up(partition), "acme_eu-1.farthing.head.0");
        assert_eq!(names.wake_ups(), "acme_eu-1.farthing.head.*");
        assert_eq!(names.to_string().parse(), Ok(names));
    }

    #[test]
    fn a_prefix_that_nats_would_read_as_several_names_is_refused() {
        for prefix in ["", "a.b", "a b", "*", ">", "a/b", "ä", &"a".repeat(65)] {
            assert_eq!(prefix.parse::<NatsNames>(), Err(NotAPrefix), "{prefix:?}");
        }
        assert!("a".repeat(64).parse::<NatsNames>().is_ok());
    }
}
