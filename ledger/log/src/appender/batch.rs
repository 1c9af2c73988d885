//! A batch: the facts that its commands decided, as one record batch of the log.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::MAX_BATCH_BYTES;
use crate::chain::{self, HASH_BYTES, Hash, Link};
use crate::claims::Changes;
use crate::record::LineWriter;
use crate::{directory, record};
use farthing_core::command::{PersonalChange, PersonalData};
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, SealedAnswer, StoredClaim};
use farthing_core::ids::{CustomerId, RequestId};

/// The idempotency claims that a batch uses, as they are after the commands decided so far, and the changes that it
/// makes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// `None` for a claim that is not on record.
    pub(super) known: HashMap<ClaimId, Option<StoredClaim>>,
    pub(super) changes: Changes,
    /// The bytes of the answers in `changes`.
    answer_bytes: usize,
}

impl Claims {
    /// Records a new claim.
    pub(super) fn put(&mut self, id: ClaimId, claim: StoredClaim) {
        self.answer_bytes += claim.answer.as_ref().map_or(0, |answer| answer.len());
        self.known.insert(id.clone(), Some(claim.clone()));
        self.changes.put.push((id, claim));
    }

    /// Records the sealed answer of a forwarded call that ends, if the claim is still that of the call.
    pub(super) fn answer(&mut self, id: ClaimId, request_id: RequestId, sealed: SealedAnswer) {
        self.answer_bytes += sealed.len();
        if let Some(claim) = self.known_of(&id, request_id).and_then(Option::as_mut) {
            claim.answer = Some(sealed.clone());
        }
        self.changes.answered.push((id, request_id, sealed));
    }

    /// Releases the claim of a forwarded call that never reached a provider, if it is still that of the call.
    pub(super) fn release(&mut self, id: ClaimId, request_id: RequestId) {
        if let Some(known) = self.known_of(&id, request_id) {
            *known = None;
        }
        self.changes.released.push((id, request_id));
    }

    /// The claim of this id as it is known, if it is that of the call.
    fn known_of(&mut self, id: &ClaimId, request_id: RequestId) -> Option<&mut Option<StoredClaim>> {
        let known = self.known.get_mut(id)?;
        let is_of_call = known.as_ref().is_some_and(|claim| claim.request_id == Some(request_id));
        is_of_call.then_some(known)
    }
}

/// The kinds and ids of the states that the directory finds.
pub(super) type Entries = (Vec<&'static str>, Vec<String>);

/// One event, and no other that could be at its position: the hash covers its content, its writer, its time and every
/// event before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) position: i64,
    pub(super) hash: Vec<u8>,
}

/// The time as Postgres keeps it: the hash must cover the stored value.
fn microseconds_of(time: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(time.timestamp_micros()).unwrap_or(time)
}

/// The facts of a batch, a line each, and the changes to tables beside the log.
#[derive(Debug)]
pub(super) struct AppendBatch {
    /// When it was sealed.
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: String,
    pub(super) last_position: i64,
    /// The hash of the last event; before it is sealed, that of the event before the batch.
    pub(super) last_hash: Hash,
    pub(super) count: i32,
    /// The lines of the events, separated by line feeds; empty before it is sealed.
    pub(super) events: String,
    /// The same, before it is sealed.
    unsealed: Vec<u8>,
    lines: LineWriter,
    /// The hashes of the events, one after the other.
    pub(super) hashes: Vec<u8>,
    /// The keys and positions of the facts that `ledger.facts` indexes.
    pub(super) indexed: (Vec<String>, Vec<i64>),
    pub(super) directory: Entries,
    pub(super) personal: Vec<(CustomerId, PersonalChange)>,
    /// The bytes of the texts in `personal`.
    personal_bytes: usize,
    pub(super) claims: Claims,
}

impl AppendBatch {
    /// An empty batch of `writer` after the event at `position` with `hash`.
    pub(super) fn after(position: i64, hash: Hash, writer: String) -> Self {
        Self {
            recorded_at: microseconds_of(Utc::now()),
            writer,
            last_position: position,
            last_hash: hash,
            count: 0,
            events: String::new(),
            unsealed: Vec::new(),
            lines: LineWriter::default(),
            hashes: Vec::new(),
            indexed: (Vec::new(), Vec::new()),
            directory: (Vec::new(), Vec::new()),
            personal: Vec::new(),
            personal_bytes: 0,
            claims: Claims::default(),
        }
    }

    /// Whether nothing but events is written: none that `ledger.facts` or the directory has, nor anything beside the log.
    pub(super) fn is_events_alone(&self) -> bool {
        let Changes { put, answered, released } = &self.claims.changes;
        let has_claims = !(put.is_empty() && answered.is_empty() && released.is_empty());
        let has_entries = !(self.indexed.0.is_empty() && self.directory.1.is_empty());
        self.count > 0 && !has_entries && self.personal.is_empty() && !has_claims
    }

    /// Writes `fact`.
    pub(super) fn push(&mut self, fact: &Fact) {
        if self.count > 0 {
            self.unsealed.push(b'\n');
        }
        let key = self.lines.write(fact, &mut self.unsealed);
        self.count += 1;
        self.last_position += 1;
        if record::is_indexed(&fact.event) {
            self.indexed.0.push(key);
            self.indexed.1.push(self.last_position);
            for (kind, id) in directory::entries(fact) {
                self.directory.0.push(kind);
                self.directory.1.push(id);
            }
        }
    }

    /// Writes a change of personal data.
    pub(super) fn push_personal(&mut self, customer_id: CustomerId, change: PersonalChange) {
        self.personal_bytes += text_bytes(&change);
        self.personal.push((customer_id, change));
    }

    /// The bytes of its events, personal data and stored answers.
    pub(super) fn bytes(&self) -> usize {
        self.unsealed.len() + self.events.len() + self.personal_bytes + self.claims.answer_bytes
    }

    /// Whether it takes no further command, because of its bytes.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= MAX_BATCH_BYTES
    }

    /// Sets the time, which no fact of the batch is later than, and links the events to the hash chain. Nothing is written
    /// to it after that.
    pub(super) fn seal(&mut self) {
        self.recorded_at = microseconds_of(Utc::now());
        if self.count == 0 {
            return;
        }
        self.events = String::from_utf8(std::mem::take(&mut self.unsealed)).expect("lines are UTF-8");
        let first_position = self.last_position - i64::from(self.count) + 1;
        self.hashes.reserve_exact(HASH_BYTES * usize::try_from(self.count).unwrap_or_default());
        for (position, line) in (first_position..).zip(self.events.split('\n')) {
            let (recorded_at, writer) = (self.recorded_at, &self.writer);
            let link = Link { position, recorded_at, writer, record: line };
            self.last_hash = chain::hash(&self.last_hash, &link);
            self.hashes.extend_from_slice(&self.last_hash);
        }
    }

    /// The first event of the sealed batch; `None` if it has no facts.
    pub(super) fn first_event(&self) -> Option<EventId> {
        let hash = self.hashes.get(..HASH_BYTES)?.to_vec();
        Some(EventId { position: self.last_position - i64::from(self.count) + 1, hash })
    }

    /// Whether the batch changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.claims.changes.is_empty()
    }
}

/// The bytes of all texts of `change`.
fn text_bytes(change: &PersonalChange) -> usize {
    match change {
        PersonalChange::Write { data: PersonalData { first_name, last_name, email, phone }, .. } => {
            [first_name, last_name, email, phone].into_iter().flatten().map(String::len).sum()
        }
        PersonalChange::Erase => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::GENESIS;
    use farthing_core::event::{ClockAdvanced, Event, MerchantEvent};
    use farthing_core::ids::MerchantId;
    use ulid::Ulid;

    fn batch() -> AppendBatch {
        AppendBatch::after(0, GENESIS, "a test".to_owned())
    }

    fn fact(merchant: u128, occurred_at: DateTime<Utc>) -> Fact {
        let merchant_id = MerchantId::new(Ulid(merchant));
        let event = Event::Merchant(MerchantEvent::ClockAdvanced(ClockAdvanced {
            merchant_id,
            seconds: 7,
            ahead_seconds: 7,
        }));
        Fact { merchant_id, occurred_at, event }
    }

    fn id() -> ClaimId {
        ClaimId::stored("an id".to_owned())
    }

    fn request_id() -> RequestId {
        "req_00000000000000000000000001".parse().unwrap()
    }

    #[test]
    fn the_bytes_of_a_batch_are_those_of_its_events_personal_data_and_answers() {
        let mut batch = batch();
        assert_eq!(batch.bytes(), 0);
        let fact = fact(1, DateTime::UNIX_EPOCH);
        for _ in 0..2 {
            batch.push(&fact);
        }
        let mut line = String::new();
        record::write(&fact, &mut line);
        let events = 2 * line.len() + 1;
        assert_eq!(batch.bytes(), events);

        let customer_id: CustomerId = "con_00000000000000000000000001".parse().unwrap();
        let email = Some("a@b.example".to_owned());
        let data = PersonalData { first_name: Some("A".to_owned()), email, ..PersonalData::default() };
        batch.push_personal(customer_id, PersonalChange::Write { parts: Vec::new(), data });
        batch.push_personal(customer_id, PersonalChange::Erase);
        assert_eq!(batch.bytes(), events + 12);

        let claim = |answer: Option<&[u8]>| StoredClaim {
            fingerprint: String::new(),
            request_id: None,
            answer: answer.map(|answer| answer.to_vec().into()),
        };
        batch.claims.put(id(), claim(None));
        batch.claims.put(id(), claim(Some(&[0; 100])));
        batch.claims.answer(id(), request_id(), vec![0; 1_000].into());
        batch.claims.release(id(), request_id());
        assert_eq!(batch.bytes(), events + 12 + 1_100);
        batch.seal();
        assert_eq!(batch.bytes(), events + 12 + 1_100, "as many when it is sealed");
    }

    #[test]
    fn a_sealed_batch_has_the_lines_of_its_events_and_their_chain() {
        let later = DateTime::UNIX_EPOCH + chrono::TimeDelta::milliseconds(1);
        let facts = [(1, DateTime::UNIX_EPOCH), (1, DateTime::UNIX_EPOCH), (1, later), (2, later)]
            .map(|(merchant, at)| fact(merchant, at));
        let mut batch = batch();
        batch.seal();
        assert!(batch.is_empty() && batch.events.is_empty() && batch.hashes.is_empty());
        for fact in &facts {
            batch.push(fact);
        }
        batch.seal();
        let (mut previous, mut hashes) = (GENESIS, Vec::new());
        let lines: Vec<_> = (1..)
            .zip(&facts)
            .map(|(position, fact)| {
                let mut record = String::new();
                record::write(fact, &mut record);
                let (recorded_at, writer) = (batch.recorded_at, batch.writer.as_str());
                previous = chain::hash(&previous, &Link { position, recorded_at, writer, record: &record });
                hashes.extend_from_slice(&previous);
                record
            })
            .collect();
        assert_eq!(batch.events, lines.join("\n"));
        assert_eq!((batch.hashes, batch.last_hash, batch.last_position), (hashes, previous, 4));
    }

    #[test]
    fn a_batch_is_full_by_its_bytes() {
        let mut batch = batch();
        batch.claims.answer(id(), request_id(), vec![0; MAX_BATCH_BYTES - 1].into());
        assert!(!batch.is_full());
        batch.claims.answer(id(), request_id(), vec![0].into());
        assert!(batch.is_full());
    }
}
