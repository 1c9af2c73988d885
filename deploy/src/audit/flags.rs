//! Flags of `farthing audit`: formats and positions.

use farthing_core::partition::Partition;
use farthing_log::audit::Place;
use farthing_log::audit::trial_balance::Moment;

use crate::output::timestamp;
use crate::value_parsers::instant;

/// Flags that choose the format.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FormatFlags {
    /// Print comma-separated values instead of text.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For people.
    Text,
    /// Comma-separated values with a header (RFC 4180).
    Csv,
    /// One JSON object.
    Json,
}

impl FormatFlags {
    /// The chosen format.
    pub(super) const fn format(self) -> Format {
        match (self.csv, self.json) {
            (true, _) => Format::Csv,
            (false, true) => Format::Json,
            (false, false) => Format::Text,
        }
    }
}

/// A moment: an instant, or the position of an event as PARTITION:POSITION.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    let place = text.split_once(':').and_then(|(partition, position)| {
        Some((digits(partition)?.parse().ok()?, digits(position)?.parse().ok()?))
    });
    match place {
        Some((partition, position @ 1..)) => {
            Ok(Moment::Position(Place { partition: Partition::new(partition), position }))
        }
        Some(_) => Err("positions begin with 1".to_owned()),
        None if digits(text).is_some() => Err(format!("a position names its partition, such as 0:{text}")),
        None => instant(text).map(Moment::Time),
    }
}

/// A moment, as a heading has it.
pub(super) fn moment_text(moment: Moment) -> String {
    match moment {
        Moment::Now => "now".to_owned(),
        Moment::Time(at) => format!("before {}", timestamp(at)),
        Moment::Position(place) => format!("after {place}"),
    }
}

/// The text, if it is digits.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_names_its_partition() {
        let place = |partition, position| {
            Ok(Moment::Position(Place { partition: Partition::new(partition), position }))
        };
        assert_eq!(moment("3:1500"), place(3, 1500));
        assert_eq!(moment("0:1"), place(0, 1));
        for text in ["1500", "3:", ":1", "3:0", "-1:1", "3:1:1", "99999:1", "3:99999999999999999999"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert!(matches!(moment("2026-11-01T00:00:00Z"), Ok(Moment::Time(_))));
    }
}
