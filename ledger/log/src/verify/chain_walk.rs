//! Follows the record batches of a partition: their form, their positions, and the hash chain through their events.

use farthing_core::partition::Partition;
use farthing_core::secret::hex;

use super::batch::StoredBatch;
use super::published_heads::PublishedPosition;
use super::verdict::{Check, Finding, Place, Tallies};
use crate::chain::{self, GENESIS, HASH_BYTES, Hash};
use crate::record_batch::Damaged;

/// The part of a partition that was followed.
#[derive(Debug)]
pub(super) struct ChainWalk {
    partition: Partition,
    /// The first and the last position that are verified.
    from: i64,
    to: i64,
    /// The position of the last event.
    pub(super) position: i64,
    /// Its hash, as it is stored.
    pub(super) hash: Hash,
    /// The published positions that were not reached yet, the next one last.
    published: Vec<PublishedPosition>,
    /// The last position that the log is known to be unchanged at.
    agreed: i64,
    /// Whether something was found. A hash after it follows from the stored ones, and proves nothing of what is before it.
    is_broken: bool,
    /// The last published head that the log contains, with an unbroken chain up to there.
    pub(super) contained: Option<PublishedPosition>,
    /// The number of events that were followed.
    pub(super) events: u64,
}

/// What follows the events that were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The events of the batch, each of which can be folded.
    Foldable,
    /// An event is missing or cannot be read, so the states after it cannot be known.
    Lost,
}

impl ChainWalk {
    /// The whole partition, with the positions that were `published` of it.
    pub(super) fn whole(partition: Partition, to: i64, mut published: Vec<PublishedPosition>) -> Self {
        published.sort_by_key(|published| std::cmp::Reverse(published.position));
        let (position, hash, agreed, is_broken, contained, events) = (0, GENESIS, 0, false, None, 0);
        Self { partition, from: 1, to, position, hash, published, agreed, is_broken, contained, events }
    }

    /// The partition from the position `from` on, where `hash` is that of the event before it.
    pub(super) fn from(mut self, from: i64, hash: Hash, tallies: &mut Tallies) -> Self {
        let all = self.published.len();
        self.published.retain(|published| published.position >= from);
        if self.published.len() < all {
            self.skip_published(tallies);
        }
        Self { from, position: from - 1, hash, ..self }
    }

    /// The partition after `position`, where `hash` is that of the event there, which is trusted.
    pub(super) const fn after(mut self, position: i64, hash: Hash) -> Self {
        (self.from, self.position, self.hash, self.agreed) = (position + 1, position, hash, position);
        self
    }

    /// The next published position, if it is `last` or before it.
    pub(super) fn next_published(&self, last: i64) -> Option<i64> {
        self.published.last().map(|published| published.position).filter(|position| *position <= last)
    }

    fn skip_published(&self, tallies: &mut Tallies) {
        let reason = format!("partition {}: published positions outside of the run", self.partition);
        tallies.skip(Check::PublishedHeads, reason);
    }

    fn at(&self, position: i64) -> Place {
        Place { partition: self.partition, position }
    }

    fn find(
        &mut self,
        tallies: &mut Tallies,
        check: Check,
        position: i64,
        (text, expected, found): (String, String, String),
    ) {
        let partition = self.partition;
        self.is_broken = true;
        tallies.find(check, Finding { partition, position, text, expected, found });
    }

    /// Verifies a batch, and gives the line of each event to `fold`.
    pub(super) fn follow(
        &mut self,
        batch: &StoredBatch<'_>,
        tallies: &mut Tallies,
        mut fold: impl FnMut(&mut Tallies, Place, &str),
    ) -> Next {
        let mut next = self.verify_position(batch.first_position, tallies);
        tallies.checked(Check::RecordBatches, 1);
        match batch.text() {
            Ok(text) => {
                // Somebody may have put a batch at the end of the positions.
                let positions = (0..).map(|index| batch.first_position.saturating_add(index));
                for ((index, position), record) in (0..).zip(positions).zip(text.split('\n')) {
                    if position < self.from || position > self.to {
                        continue;
                    }
                    self.verify_hash(batch, (index, position), record, tallies);
                    if next == Next::Foldable {
                        fold(tallies, self.at(position), record);
                    }
                }
            }
            Err(damaged) => {
                self.report_damage(batch, &damaged, tallies);
                next = Next::Lost;
            }
        }
        self.position = batch.last_position().min(self.to);
        next
    }

    /// Verifies that a batch which begins at `found` follows the events so far.
    fn verify_position(&mut self, found: i64, tallies: &mut Tallies) -> Next {
        tallies.checked(Check::Positions, 1);
        let expected = self.position.saturating_add(1);
        // The first batch may begin before the first event that is verified.
        if self.position == self.from - 1 && (1..=self.from).contains(&found) {
            return Next::Foldable;
        }
        let (position, text, is) = match found - expected {
            0 => return Next::Foldable,
            ..0 => {
                let text = format!("{}: a record batch begins before the one before it ends", self.at(found));
                (found, text, format!("a second event at position {found}"))
            }
            1 => (
                expected,
                format!("{}: the event is missing", self.at(expected)),
                format!("position {found} follows"),
            ),
            _ => {
                let text = format!(
                    "partition {}, positions {expected} to {}: the events are missing",
                    self.partition,
                    found - 1
                );
                (expected, text, format!("position {found} follows"))
            }
        };
        self.find(tallies, Check::Positions, position, (text, format!("position {expected}"), is));
        Next::Lost
    }

    fn verify_hash(
        &mut self,
        batch: &StoredBatch<'_>,
        (index, position): (usize, i64),
        record: &str,
        tallies: &mut Tallies,
    ) {
        self.events += 1;
        tallies.checked(Check::HashChain, 1);
        self.hash = chain::hash(&self.hash, &batch.link(position, record));
        let stored = batch.hash(index).unwrap_or(&GENESIS);
        if *stored != self.hash {
            let text = format!(
                "{}: the hash does not follow from the event and the previous hash",
                self.at(position)
            );
            self.find(tallies, Check::HashChain, position, (text, hex(&self.hash), hex(stored)));
            self.hash = *stored;
        }
        self.compare_published(position, self.hash, tallies);
    }

    /// Compares what was published of `position` with `hash`, which is that of the event there. What was published of positions
    /// before it and was not compared yet is missing.
    pub(super) fn compare_published(&mut self, position: i64, hash: Hash, tallies: &mut Tallies) {
        while let Some(published) = self.published.pop_if(|published| published.position <= position) {
            if published.position < position {
                self.report_missing(&published, tallies);
                continue;
            }
            tallies.checked(Check::PublishedHeads, 1);
            if published.hash == hash {
                self.agreed = position;
                if !self.is_broken {
                    self.contained = Some(published);
                }
                continue;
            }
            let text = format!(
                "{}: the event is not the one that line {} of the file published; positions {} to {position} were \
                 rewritten, or some of them",
                self.at(position),
                published.line,
                self.agreed + 1,
            );
            let hashes = (hex(&published.hash), hex(&hash));
            self.find(tallies, Check::PublishedHeads, position, (text, hashes.0, hashes.1));
        }
    }

    /// Reports that the log does not have the next published position.
    pub(super) fn miss_published(&mut self, tallies: &mut Tallies) {
        if let Some(published) = self.published.pop() {
            self.report_missing(&published, tallies);
        }
    }

    fn report_missing(&mut self, published: &PublishedPosition, tallies: &mut Tallies) {
        tallies.checked(Check::PublishedHeads, 1);
        let (position, line) = (published.position, published.line);
        let place = self.at(position);
        let text =
            format!("{place}: the event is missing or cannot be read; line {line} of the file published it");
        let found = (hex(&published.hash), "no event".to_owned());
        self.find(tallies, Check::PublishedHeads, position, (text, found.0, found.1));
    }

    /// Leaves out the next published position, whose event is in the damaged file `object`.
    pub(super) fn pass_published(&mut self, object: &str, tallies: &mut Tallies) {
        let Some(published) = self.published.pop() else { return };
        let reason = format!("{}: {object} is damaged", self.at(published.position));
        tallies.skip(Check::PublishedHeads, reason);
    }

    fn report_damage(&mut self, batch: &StoredBatch<'_>, damaged: &Damaged, tallies: &mut Tallies) {
        let index = i64::try_from(batch.first_damaged(&self.hash)).unwrap_or(0);
        let position = batch.first_position.saturating_add(index);
        let text = format!("{}: the record batch is damaged: {damaged}", self.at(position));
        let expected = format!("{} events with their hashes", batch.count);
        self.find(tallies, Check::RecordBatches, position, (text, expected, damaged.to_string()));
        if let Some(last) = batch.hashes.len().checked_sub(HASH_BYTES) {
            self.hash = batch.hashes[last..].first_chunk().copied().unwrap_or(self.hash);
        }
    }

    /// Reports the published positions up to the end of the run that the log, which ends at `end`, does not have.
    pub(super) fn report_unreached(&mut self, end: i64, tallies: &mut Tallies) {
        while let Some(published) = self.published.pop() {
            if published.position <= end || published.position > self.to {
                self.skip_published(tallies);
                continue;
            }
            tallies.checked(Check::PublishedHeads, 1);
            let text = format!(
                "{}: the event is missing; line {} of the file published the head at position {}",
                self.at(end.saturating_add(1)),
                published.line,
                published.position
            );
            let expected = format!("position {}, hash {}", published.position, hex(&published.hash));
            let found = format!("the log ends at position {end}");
            self.find(tallies, Check::PublishedHeads, end.saturating_add(1), (text, expected, found));
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::chain::Link;
    use crate::verify::verdict::Verdict;

    const PARTITION: Partition = Partition::new(2);

    /// The hashes of events `records` at the positions from `first` on, after `before`.
    fn hashes(records: &[&str], first: i64, before: Hash) -> Vec<u8> {
        let (mut hash, mut hashes) = (before, Vec::new());
        for (record, position) in records.iter().zip(first..) {
            let recorded_at = DateTime::UNIX_EPOCH;
            hash = chain::hash(&hash, &Link { position, recorded_at, writer: "w", record });
            hashes.extend(hash);
        }
        hashes
    }

    fn batch<'a>(first_position: i64, events: &'a str, hashes: &'a [u8]) -> StoredBatch<'a> {
        let count = i32::try_from(hashes.len() / HASH_BYTES).unwrap();
        let (recorded_at, events) = (DateTime::UNIX_EPOCH, events.as_bytes());
        StoredBatch { first_position, count, recorded_at, writer: "w", events, hashes }
    }

    fn verdict(tallies: Tallies, check: Check) -> Verdict {
        tallies.verdicts().into_iter().find(|verdict| verdict.check == check).unwrap()
    }

    fn places(verdict: &Verdict) -> Vec<i64> {
        verdict.findings.iter().map(|finding| finding.position).collect()
    }

    #[test]
    fn a_run_may_begin_and_end_within_a_batch() {
        let all = hashes(&["a", "b", "c", "d"], 1, GENESIS);
        let mut tallies = Tallies::default();
        let before = *all[32..].first_chunk().unwrap();
        let mut walk = ChainWalk::whole(PARTITION, 3, Vec::new()).from(3, before, &mut tallies);
        let mut seen = Vec::new();
        let next = walk.follow(&batch(1, "a\nb\nc\nd", &all), &mut tallies, |_, place, line| {
            seen.push((place.position, line.to_owned()));
        });
        assert_eq!((next, walk.position, seen), (Next::Foldable, 3, vec![(3, "c".to_owned())]));
        let verdicts = tallies.verdicts();
        assert!(verdicts.iter().all(|verdict| verdict.broken == 0), "{verdicts:?}");
    }

    #[test]
    fn a_gap_is_found_at_the_first_missing_position_and_nothing_is_folded_after_it() {
        let all = hashes(&["a", "b", "c"], 1, GENESIS);
        let mut tallies = Tallies::default();
        let mut walk = ChainWalk::whole(PARTITION, i64::MAX, Vec::new());
        assert_eq!(walk.follow(&batch(1, "a", &all[..32]), &mut tallies, |_, _, _| {}), Next::Foldable);
        let next = walk.follow(&batch(3, "c", &all[64..]), &mut tallies, |_, place, _| panic!("{place}"));
        assert_eq!(next, Next::Lost);
        assert_eq!(places(&verdict(tallies, Check::Positions)), [2]);
    }

    #[test]
    fn a_published_head_is_compared_with_the_event_at_its_position() {
        let all = hashes(&["a", "b", "c"], 1, GENESIS);
        let other = hashes(&["a", "x", "c"], 1, GENESIS);
        let published = |line, position: i64, hashes: &[u8]| {
            let at = usize::try_from(position - 1).unwrap() * 32;
            let hash = *hashes[at..].first_chunk().unwrap();
            PublishedPosition { line, published_at: "now".into(), position, hash }
        };
        let heads = vec![published(1, 1, &all), published(2, 3, &all), published(3, 2, &all)];
        // The first event changed, and nothing else: the heads after it are contained, and prove nothing.
        let mut tallies = Tallies::default();
        let mut walk = ChainWalk::whole(PARTITION, i64::MAX, heads.clone());
        walk.follow(&batch(1, "x\nb\nc", &all), &mut tallies, |_, _, _| {});
        assert_eq!(walk.contained, None);
        assert_eq!(places(&verdict(tallies, Check::HashChain)), [1]);
        let follow = |hashes: &[u8], events: &str, heads: Vec<PublishedPosition>| {
            let mut tallies = Tallies::default();
            let mut walk = ChainWalk::whole(PARTITION, i64::MAX, heads);
            walk.follow(&batch(1, events, hashes), &mut tallies, |_, _, _| {});
            walk.report_unreached(walk.position, &mut tallies);
            let contained = walk.contained.map_or(0, |published| published.line);
            let verdicts = tallies.verdicts();
            assert_eq!(verdicts[2].broken, 0, "the chain is consistent in itself");
            let of_heads = verdicts.into_iter().find(|verdict| verdict.check == Check::PublishedHeads);
            (of_heads.unwrap(), contained)
        };
        let (whole, contained) = follow(&all, "a\nb\nc", heads.clone());
        assert_eq!((whole.checked, whole.broken, contained), (3, 0, 2));
        let (rewritten, contained) = follow(&other, "a\nx\nc", heads.clone());
        assert_eq!((rewritten.checked, places(&rewritten), contained), (3, vec![2, 3], 1));
        assert!(rewritten.findings[0].text.contains("positions 2 to 2 were"), "{rewritten:?}");
        let (cut, contained) = follow(&all[..32], "a", heads);
        assert_eq!((cut.checked, places(&cut), contained), (3, vec![2, 2], 1));
    }

    #[test]
    fn a_published_head_in_a_gap_or_a_damaged_batch_is_missing_and_not_rewritten() {
        let all = hashes(&["a", "b", "c"], 1, GENESIS);
        let head = |line, position: i64| {
            let at = usize::try_from(position - 1).unwrap() * 32;
            let hash = *all[at..].first_chunk().unwrap();
            PublishedPosition { line, published_at: "now".into(), position, hash }
        };
        let (first, last) = (batch(1, "a", &all[..32]), batch(3, "c", &all[64..]));
        for middle in [None, Some(batch(2, "b\nx", &all[32..64]))] {
            let mut tallies = Tallies::default();
            let mut walk = ChainWalk::whole(PARTITION, i64::MAX, vec![head(1, 2), head(2, 3)]);
            for batch in [Some(first), middle, Some(last)].into_iter().flatten() {
                walk.follow(&batch, &mut tallies, |_, _, _| {});
            }
            let contained = walk.contained.as_ref().map(|published| published.line);
            let heads = verdict(tallies, Check::PublishedHeads);
            assert_eq!((heads.checked, places(&heads), contained), (2, vec![2], None), "{heads:?}");
            let finding = &heads.findings[0];
            assert!(finding.text.contains("missing or cannot be read; line 1"), "{finding:?}");
            assert_eq!(
                (finding.expected.as_str(), finding.found.as_str()),
                (hex(&all[32..64]).as_str(), "no event")
            );
        }
    }
}
