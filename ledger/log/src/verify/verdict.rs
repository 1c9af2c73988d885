//! The verdicts of an audit: what each check found, with the place, what was expected and what is there.

use std::collections::BTreeMap;
use std::fmt;

use farthing_core::partition::Partition;
use serde::{Deserialize, Serialize};

/// The number of findings of a check that a report shows. Further findings are only counted.
pub const MAX_FINDINGS: usize = 100;

/// A check of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Each record batch has as many lines and hashes as events were appended, in UTF-8.
    RecordBatches,
    /// The positions of each partition have no gap and no overlap.
    Positions,
    /// The hash of each event follows from the event and the hash before it.
    HashChain,
    /// The archived files are those that were archived.
    Archives,
    /// The head of each partition is its last event.
    Heads,
    /// Each event can be read, has the key of its fact and is in its merchant's partition.
    Events,
    /// Each event can be applied to the states before it.
    States,
    /// The balance after it that a credit or a debit states is the wallet's.
    BalancesAfter,
    /// The sums of money agree, and no wallet holds more than it has.
    Balances,
    /// The stored states are the fold of the events up to their checkpoint.
    StoredStates,
    /// The log still contains each published head.
    PublishedHeads,
    /// The log still contains the event of each signed checkpoint.
    SignedCheckpoints,
    /// The rows of the read models are the fold of the events up to their checkpoint.
    ReadTables,
}

impl Check {
    /// All checks, in the order of a report.
    pub const ALL: [Self; 13] = [
        Self::RecordBatches,
        Self::Positions,
        Self::HashChain,
        Self::Archives,
        Self::Heads,
        Self::Events,
        Self::States,
        Self::BalancesAfter,
        Self::Balances,
        Self::StoredStates,
        Self::PublishedHeads,
        Self::SignedCheckpoints,
        Self::ReadTables,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RecordBatches => "record_batches",
            Self::Positions => "positions",
            Self::HashChain => "hash_chain",
            Self::Archives => "archives",
            Self::Heads => "heads",
            Self::Events => "events",
            Self::States => "states",
            Self::BalancesAfter => "balances_after",
            Self::Balances => "balances",
            Self::StoredStates => "stored_states",
            Self::PublishedHeads => "published_heads",
            Self::SignedCheckpoints => "signed_checkpoints",
            Self::ReadTables => "read_tables",
        }
    }
}

/// The place of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Its partition.
    pub partition: Partition,
    /// Its position there.
    pub position: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}, position {}", self.partition, self.position)
    }
}

/// What is broken.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The partition.
    pub partition: Partition,
    /// The position of the event, or the position that states or rows were compared at.
    pub position: i64,
    /// What is broken, as a sentence.
    pub text: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All that was looked at is as it should be.
    Verified,
    /// Nothing was looked at.
    Skipped,
    /// Something is not as it should be.
    Broken,
    /// Of a whole audit: nothing is broken, but a check could not look at all that it was asked to look at.
    Incomplete,
}

impl Outcome {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Skipped => "skipped",
            Self::Broken => "broken",
            Self::Incomplete => "incomplete",
        }
    }
}

/// The verdict of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The check.
    pub check: Check,
    /// What it says.
    pub verdict: Outcome,
    /// The number of things that were looked at: events, batches, states, rows or heads.
    pub checked: u64,
    /// The number of further things that an earlier run looked at, as the trusted checkpoints say which this run began at.
    pub trusted: u64,
    /// What was left out, each with its reason.
    pub skipped: Vec<String>,
    /// Whether something of it was left out that the caller asked for.
    pub incomplete: bool,
    /// The number of findings.
    pub broken: u64,
    /// The first broken position of each partition with a finding.
    pub first_broken: Vec<Place>,
    /// The first findings, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// What it says, and that it is incomplete if nothing is broken.
    pub fn outcome(&self) -> Outcome {
        if self.incomplete && self.verdict != Outcome::Broken { Outcome::Incomplete } else { self.verdict }
    }
}

/// What a check has seen so far.
#[derive(Debug, Default)]
struct Tally {
    checked: u64,
    trusted: u64,
    broken: u64,
    skipped: Vec<String>,
    is_incomplete: bool,
    first: BTreeMap<Partition, i64>,
    findings: Vec<Finding>,
}

impl Tally {
    fn broken_at(&mut self, Place { partition, position }: Place) {
        let first = self.first.entry(partition).or_insert(position);
        *first = position.min(*first);
    }
}

/// What all checks have seen so far.
#[derive(Debug, Default)]
pub struct Tallies(BTreeMap<Check, Tally>);

impl Tallies {
    /// `count` more things were looked at.
    pub fn checked(&mut self, check: Check, count: u64) {
        self.0.entry(check).or_default().checked += count;
    }

    /// A trusted checkpoint says that `count` things were looked at before it.
    pub(super) fn trust(&mut self, check: Check, count: u64) {
        self.0.entry(check).or_default().trusted += count;
    }

    /// The number of things that were looked at, by this run or before its checkpoint.
    pub(super) fn covered(&self, check: Check) -> u64 {
        self.0.get(&check).map_or(0, |tally| tally.checked + tally.trusted)
    }

    /// Whether a check looked at nothing, has nothing that is trusted, and found nothing.
    pub(super) fn is_untouched(&self, check: Check) -> bool {
        self.0.get(&check).is_none_or(|tally| tally.checked + tally.trusted + tally.broken == 0)
    }

    /// Whether something is broken.
    pub(super) fn is_broken(&self) -> bool {
        self.0.values().any(|tally| tally.broken > 0)
    }

    /// Something is broken.
    pub fn find(&mut self, check: Check, finding: Finding) {
        let tally = self.0.entry(check).or_default();
        tally.broken += 1;
        tally.broken_at(Place { partition: finding.partition, position: finding.position });
        if tally.findings.len() < MAX_FINDINGS {
            tally.findings.push(finding);
        }
    }

    /// Something is broken, and perhaps reported already.
    pub(super) fn find_once(&mut self, check: Check, finding: Finding) {
        let findings = self.0.get(&check).map_or(&[][..], |tally| &tally.findings);
        if !findings.iter().any(|known| known.text == finding.text) {
            self.find(check, finding);
        }
    }

    /// Something could not be looked at, because of `reason`, although the caller asked for it.
    pub fn miss(&mut self, check: Check, reason: impl Into<String>) {
        self.skip(check, reason);
        self.0.entry(check).or_default().is_incomplete = true;
    }

    /// Something is left out, because of `reason`: the caller did not ask for it, or there is nothing to look at.
    pub fn skip(&mut self, check: Check, reason: impl Into<String>) {
        let (reason, tally) = (reason.into(), self.0.entry(check).or_default());
        if tally.skipped.len() < MAX_FINDINGS && !tally.skipped.contains(&reason) {
            tally.skipped.push(reason);
        }
    }

    /// Adds what was seen elsewhere, such as in the next partition.
    pub fn add(&mut self, other: Self) {
        for (check, other) in other.0 {
            let tally = self.0.entry(check).or_default();
            tally.checked += other.checked;
            tally.trusted += other.trusted;
            tally.broken += other.broken;
            tally.is_incomplete |= other.is_incomplete;
            tally.findings.extend(other.findings);
            tally.findings.truncate(MAX_FINDINGS);
            for (partition, position) in other.first {
                tally.broken_at(Place { partition, position });
            }
            for reason in other.skipped {
                self.skip(check, reason);
            }
        }
    }

    /// The verdict of every check. A check that never ran is skipped.
    pub fn verdicts(mut self) -> Vec<Verdict> {
        let verdict = |check| {
            let Tally { checked, trusted, broken, mut skipped, is_incomplete: incomplete, first, findings } =
                self.0.remove(&check).unwrap_or_default();
            if (checked, skipped.is_empty()) == (0, true) && trusted > 0 {
                skipped.push("there is nothing after the trusted checkpoints".to_owned());
            }
            let verdict = match (broken, checked) {
                (0, 0) if !skipped.is_empty() => Outcome::Skipped,
                (0, _) => Outcome::Verified,
                _ => Outcome::Broken,
            };
            let place = |(partition, position)| Place { partition, position };
            let first_broken = first.into_iter().map(place).collect();
            Verdict { check, verdict, checked, trusted, skipped, incomplete, broken, first_broken, findings }
        };
        Check::ALL.into_iter().map(verdict).collect()
    }
}

/// The parts of two texts around their first difference, which is all that a report shows of long or private texts.
pub fn difference(expected: &str, found: &str) -> (String, String) {
    const BEFORE: usize = 24;
    const SHOWN: usize = 80;
    let same = expected.char_indices().zip(found.chars()).find(|((_, one), other)| one != other);
    let at = same.map_or_else(|| expected.len().min(found.len()), |((at, _), _)| at);
    let part = |text: &str| {
        let start =
            (0..=at.saturating_sub(BEFORE).min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let rest = &text[start.unwrap_or(0)..];
        let end = (0..=SHOWN.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
        let (before, after) =
            (if start > Some(0) { "…" } else { "" }, if end < rest.len() { "…" } else { "" });
        format!("{before}{}{after}", &rest[..end])
    };
    (part(expected), part(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(position: i64) -> Finding {
        let (text, expected, found) = Default::default();
        Finding { partition: Partition::new(0), position, text, expected, found }
    }

    fn verdict(tallies: Tallies, check: Check) -> Verdict {
        tallies.verdicts().into_iter().find(|verdict| verdict.check == check).unwrap()
    }

    #[test]
    fn a_check_is_skipped_only_if_nothing_was_looked_at() {
        let mut tallies = Tallies::default();
        tallies.skip(Check::States, "partition 1: why");
        tallies.miss(Check::Events, "partition 1: why");
        let mut other = Tallies::default();
        other.checked(Check::States, 3);
        other.miss(Check::StoredStates, "partition 2: why");
        other.checked(Check::StoredStates, 1);
        tallies.add(other);
        let verdicts = tallies.verdicts();
        assert_eq!(verdicts.len(), Check::ALL.len());
        let of = |check| verdicts.iter().find(|verdict| verdict.check == check).unwrap();
        assert_eq!((of(Check::States).verdict, of(Check::States).checked), (Outcome::Verified, 3));
        assert_eq!(of(Check::States).skipped, ["partition 1: why"]);
        assert_eq!(of(Check::Events).verdict, Outcome::Skipped);
        assert_eq!(of(Check::StoredStates).verdict, Outcome::Verified);
        let incomplete = verdicts.iter().filter(|verdict| verdict.incomplete).map(|verdict| verdict.check);
        assert_eq!(incomplete.collect::<Vec<_>>(), [Check::Events, Check::StoredStates]);
        assert_eq!(of(Check::Heads).verdict, Outcome::Verified, "an empty log has nothing to look at");
    }

    #[test]
    fn what_is_trusted_is_counted_apart_and_alone_verifies_nothing() {
        let mut tallies = Tallies::default();
        tallies.trust(Check::States, 3);
        tallies.trust(Check::Events, 3);
        tallies.checked(Check::Events, 2);
        let mut whole = Tallies::default();
        whole.add(tallies);
        assert_eq!((whole.covered(Check::Events), whole.is_broken()), (5, false));
        let verdicts = whole.verdicts();
        let of = |check| verdicts.iter().find(|verdict| verdict.check == check).unwrap();
        let (events, states) = (of(Check::Events), of(Check::States));
        assert_eq!((events.verdict, events.checked, events.trusted), (Outcome::Verified, 2, 3));
        assert_eq!((states.verdict, states.checked, states.trusted), (Outcome::Skipped, 0, 3));
        assert_eq!(states.skipped.len(), 1);
    }

    #[test]
    fn findings_are_counted_beyond_those_that_are_shown() {
        let mut tallies = Tallies::default();
        for position in 1..=150 {
            tallies.find(Check::HashChain, finding(position));
        }
        let mut other = Tallies::default();
        other.find(Check::HashChain, Finding { partition: Partition::new(1), ..finding(7) });
        tallies.add(other);
        let verdict = verdict(tallies, Check::HashChain);
        assert_eq!((verdict.verdict, verdict.broken, verdict.findings.len()), (Outcome::Broken, 151, 100));
        assert_eq!(verdict.findings[99].position, 100);
        let places: Vec<_> = verdict.first_broken.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["partition 0, position 1", "partition 1, position 7"]);
    }

    #[test]
    fn only_the_surroundings_of_a_difference_are_shown() {
        let long = "x".repeat(100);
        let (expected, found) = difference(&format!("{long}1{long}"), &format!("{long}2{long}"));
        let xs = |count: usize| "x".repeat(count);
        assert_eq!(expected, format!("…{}1{}…", xs(24), xs(55)));
        assert_eq!(found, format!("…{}2{}…", xs(24), xs(55)));
        assert_eq!(difference("é1", "é2"), ("é1".to_owned(), "é2".to_owned()));
        assert_eq!(difference("", "a"), (String::new(), "a".to_owned()));
        assert_eq!(difference("äöü", ""), ("äöü".to_owned(), String::new()));
    }
}
