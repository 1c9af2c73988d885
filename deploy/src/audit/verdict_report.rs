//! The report of `farthing audit verify`: the verdict of every check, as text or as JSON.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use farthing_core::partition::Partition;
use farthing_log::verify::verdict::{Check, Outcome, Place, Verdict};
use farthing_log::verify::{Audit, Head, Published, Sums, Trusted};
use serde::Serialize;

use crate::exit_code::Soundness;
use crate::output::Shown;

/// The checks of the log itself: the first position that one of them finds broken is where the log was changed.
const OF_THE_LOG: [Check; 7] = [
    Check::RecordBatches,
    Check::Positions,
    Check::HashChain,
    Check::Heads,
    Check::Events,
    Check::PublishedHeads,
    Check::SignedCheckpoints,
];

/// All verdicts.
#[derive(Debug, Serialize)]
pub(super) struct VerdictReport {
    /// Broken if any check is, else incomplete if any is.
    verdict: Outcome,
    /// The number of events that were verified.
    events: u64,
    /// The number of events before the trusted checkpoints, which were not read.
    trusted_events: u64,
    /// How long the run took.
    milliseconds: u128,
    /// The first position of each partition at which the log itself is broken.
    first_broken: Vec<Place>,
    checks: Vec<Verdict>,
    /// The checkpoints that partitions began at.
    trusted: Vec<Trusted>,
    /// The last published head of each partition that the log contains, with an unbroken chain up to there.
    published: Vec<Published>,
    /// The number of signed checkpoints that were written.
    checkpoints_written: u64,
    heads: Vec<Head>,
    sums: Sums,
}

impl VerdictReport {
    pub(super) fn new(audit: Audit, milliseconds: u128) -> Self {
        let Audit { heads, events, trusted, published, checkpoints_written, sums, tallies, .. } = audit;
        let trusted_events = trusted.iter().map(|trusted| trusted.position.unsigned_abs()).sum();
        let checks = tallies.verdicts();
        let any = |outcome| checks.iter().any(|check| check.outcome() == outcome);
        let worst = [Outcome::Broken, Outcome::Incomplete].into_iter().find(|outcome| any(*outcome));
        let verdict = worst.unwrap_or(Outcome::Verified);
        let first_broken = first_broken(&checks);
        Self {
            verdict,
            events,
            trusted_events,
            milliseconds,
            first_broken,
            checks,
            trusted,
            published,
            checkpoints_written,
            heads,
            sums,
        }
    }

    /// What was left out because nobody asked for it counts as neither sound nor broken.
    pub(super) const fn soundness(&self) -> Soundness {
        match self.verdict {
            Outcome::Verified | Outcome::Skipped => Soundness::Sound,
            Outcome::Broken => Soundness::Broken,
            Outcome::Incomplete => Soundness::Incomplete,
        }
    }

    /// Writes a line for each check with its findings below it, and a last line.
    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for check in &self.checks {
            let verdict = check.outcome();
            let style = style(verdict);
            let (word, name) = (verdict.name(), check.check.name());
            write!(out, "{style}{word:<8}{style:#}  {name:<18}  {} checked", check.checked)?;
            if check.trusted > 0 {
                write!(out, ", {} trusted", check.trusted)?;
            }
            writeln!(out)?;
            for reason in &check.skipped {
                writeln!(out, "{:10}skipped: {reason}", "")?;
            }
            for finding in &check.findings {
                writeln!(out, "{:10}{}", "", Shown(&finding.text))?;
                writeln!(out, "{:12}expected  {}", "", Shown(&finding.expected))?;
                writeln!(out, "{:12}found     {}", "", Shown(&finding.found))?;
            }
            let shown = u64::try_from(check.findings.len()).unwrap_or(0);
            if check.broken > shown {
                writeln!(out, "{:10}and {} more", "", check.broken - shown)?;
            }
        }
        for Trusted { partition, position, written_at, .. } in &self.trusted {
            writeln!(
                out,
                "partition {partition}: the checkpoint of {written_at} is trusted up to position {position}; nothing up to there was read"
            )?;
        }
        for Published { partition, position, line, published_at, .. } in &self.published {
            let published_at = Shown(published_at);
            writeln!(
                out,
                "partition {partition}: the log contains the head of line {line}, published at {published_at}, position {position}"
            )?;
        }
        if self.checkpoints_written > 0 {
            writeln!(out, "signed checkpoints written: {}", self.checkpoints_written)?;
        }
        for place in &self.first_broken {
            write!(out, "the log is broken at {place}")?;
            if let Some(sound) = self.published.iter().find(|head| head.partition == place.partition) {
                write!(out, "; what was read up to position {} is as it was published", sound.position)?;
            }
            writeln!(out)?;
        }
        let style = style(self.verdict);
        let seconds = self.milliseconds / 1_000;
        write!(out, "\n{style}{}{style:#}: {} events in {seconds} s", self.verdict.name(), self.events)?;
        if self.trusted_events > 0 {
            write!(out, ", after {} that are trusted", self.trusted_events)?;
        }
        writeln!(out)
    }
}

fn first_broken(checks: &[Verdict]) -> Vec<Place> {
    let of_the_log = checks.iter().filter(|check| OF_THE_LOG.contains(&check.check));
    let mut places: Vec<Place> = of_the_log.flat_map(|check| check.first_broken.iter().copied()).collect();
    places.sort_unstable();
    let mut last: Option<Partition> = None;
    places.retain(|place| last.replace(place.partition) != Some(place.partition));
    places
}

fn style(verdict: Outcome) -> Style {
    match verdict {
        Outcome::Verified => AnsiColor::Green.on_default(),
        Outcome::Skipped => AnsiColor::Cyan.on_default(),
        Outcome::Incomplete => AnsiColor::Yellow.on_default().bold(),
        Outcome::Broken => AnsiColor::Red.on_default().bold(),
    }
}

#[cfg(test)]
mod tests {
    use farthing_log::verify::verdict::{Finding, Tallies};

    use super::*;

    fn audit(findings: &[(Check, i16, i64)]) -> Audit {
        let mut tallies = Tallies::default();
        for (check, partition, position) in findings {
            let (text, expected, found) = ("the text".to_owned(), "one".to_owned(), "other".to_owned());
            let partition = Partition::new(*partition);
            tallies.find(*check, Finding { partition, position: *position, text, expected, found });
        }
        tallies.checked(Check::Events, 7);
        tallies.skip(Check::ReadTables, "why");
        Audit { tallies, events: 7, ..Audit::default() }
    }

    #[test]
    fn the_first_broken_position_is_the_lowest_that_a_check_of_the_log_found() {
        let found = [
            (Check::BalancesAfter, 1, 2),
            (Check::HashChain, 1, 9),
            (Check::Positions, 1, 8),
            (Check::HashChain, 3, 5),
        ];
        let report = VerdictReport::new(audit(&found), 1);
        let places: Vec<_> = report.first_broken.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["partition 1, position 8", "partition 3, position 5"]);
        assert_eq!((report.verdict, report.soundness()), (Outcome::Broken, Soundness::Broken));
    }

    #[test]
    fn a_skipped_check_is_named_with_its_reason_and_is_not_a_failure() {
        let report = VerdictReport::new(audit(&[]), 2_000);
        assert_eq!((report.verdict, report.soundness()), (Outcome::Verified, Soundness::Sound));
        let mut text = Vec::new();
        report.write_text(&mut text).unwrap();
        let text = anstream::adapter::strip_bytes(&text).into_vec();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("skipped   read_tables         0 checked\n          skipped: why\n"), "{text}");
        assert!(text.ends_with("\nverified: 7 events in 2 s\n"), "{text}");
    }

    #[test]
    fn a_check_that_could_not_look_at_all_makes_the_audit_incomplete_unless_something_is_broken() {
        let mut incomplete = audit(&[]);
        incomplete.tallies.miss(Check::StoredStates, "why");
        let report = VerdictReport::new(incomplete, 1);
        assert_eq!((report.verdict, report.soundness()), (Outcome::Incomplete, Soundness::Incomplete));
        let mut text = Vec::new();
        report.write_text(&mut text).unwrap();
        let text = String::from_utf8(anstream::adapter::strip_bytes(&text).into_vec()).unwrap();
        assert!(text.contains("incomplete  stored_states"), "{text}");
        let mut broken = audit(&[(Check::HashChain, 1, 9)]);
        broken.tallies.miss(Check::StoredStates, "why");
        assert_eq!(VerdictReport::new(broken, 1).soundness(), Soundness::Broken);
    }
}
