//! The tables of one partition in a simulation, and the rules of the SQL functions that write them (`schema/migrations/V1__log.sql`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::{CustomerId, RequestId};

use super::super::batch::EventId;
use super::super::store::{Head, StoreError, StoreResult};
use super::super::term::MAX_TAIL;
use super::database::Notes;
use super::history::{History, StoredKey};
use crate::chain::{GENESIS, Hash};
use crate::claims::Changes;
use crate::record;

/// An event as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) position: i64,
    /// The first position of its batch.
    pub(super) batch: i64,
    /// The key in the record.
    pub(super) key: String,
    /// The line.
    pub(super) record: String,
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: String,
    pub(super) hash: Vec<u8>,
}

/// An append, as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Append {
    pub(super) expected: Head,
    pub(super) rows: Vec<Row>,
    /// The keys of the rows that must be unique, as in `ledger.facts`.
    pub(super) indexed: Vec<String>,
    pub(super) hash: Hash,
    /// The customers whose personal data is written, or erased.
    pub(super) personal: Vec<(CustomerId, bool)>,
    pub(super) claims: Arc<Changes>,
}

/// Everything that is committed.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) head: Head,
    pub(super) checkpoint_position: i64,
    pub(super) checkpoint_epoch: i64,
    pub(super) events: Vec<Row>,
    /// The positions of the facts that an append must not repeat.
    pub(super) indexed: BTreeSet<String>,
    pub(super) states: BTreeMap<StoredKey, String>,
    pub(super) claims: BTreeMap<ClaimId, StoredClaim>,
    /// Claims that were released and not made anew.
    released: BTreeSet<ClaimId>,
    /// The customers with personal data.
    pub(super) personal: BTreeSet<CustomerId>,
    /// The states at every position, whatever the leaders store.
    pub(super) history: History,
    /// Who has led since which position.
    pub(super) leads: Vec<(i64, String)>,
    notes: Notes,
}

impl Disk {
    pub(super) fn new(notes: Notes) -> Self {
        Self {
            head: Head { position: 0, hash: GENESIS, epoch: 0 },
            checkpoint_position: 0,
            checkpoint_epoch: 0,
            events: Vec::new(),
            indexed: BTreeSet::new(),
            states: BTreeMap::new(),
            claims: BTreeMap::new(),
            released: BTreeSet::new(),
            personal: BTreeSet::new(),
            history: History::default(),
            leads: Vec::new(),
            notes,
        }
    }

    /// As `ledger.lead`, for the gateway with the lease.
    pub(super) fn lead(&mut self, gateway: &str) -> (Head, i64) {
        self.head.epoch += 1;
        self.checkpoint_epoch = self.head.epoch;
        self.leads.push((self.head.position, gateway.to_owned()));
        if self.checkpoint_position < self.head.position {
            self.notes.count("a leader took over a tail");
        }
        (self.head, self.checkpoint_position)
    }

    /// As the statement that reads whole batches.
    pub(super) fn read(&self, position: i64, limit: i64) -> Vec<Row> {
        let rows = self.events.iter().skip(usize::try_from(position).unwrap());
        let rows: Vec<_> = rows.take_while(|row| row.batch <= position + limit).cloned().collect();
        if rows.last().is_some_and(|row| row.position < self.head.position) {
            self.notes.count("a tail was read in pages");
        }
        rows
    }

    /// The position of a fact.
    pub(super) fn position_of(&self, key: &str) -> Option<i64> {
        self.events.iter().rev().find(|row| row.key == key).map(|row| row.position)
    }

    /// Whether a stored state was changed since its leader began.
    pub(super) fn was_changed_by_leader(&self, key: &StoredKey) -> bool {
        let since = self.leads.last().map_or(0, |(since, _)| *since);
        self.history.changed_at(key).is_some_and(|position| since < position) && self.states.contains_key(key)
    }

    /// As `ledger.resolve`.
    pub(super) fn resolve(&mut self, event: &EventId, epoch: i64) -> bool {
        let is_it =
            |row: &Row| (row.position, row.batch, &row.hash) == (event.position, event.position, &event.hash);
        let is_recorded = self.events.iter().any(is_it);
        if !is_recorded && self.head.epoch == epoch {
            self.head.epoch += 1;
        }
        is_recorded
    }

    /// As `ledger.append_batch`.
    pub(super) fn append(&mut self, append: Append) -> StoreResult<bool> {
        let Append { expected, rows, indexed, hash, personal, claims } = append;
        if self.head.epoch != expected.epoch {
            self.notes.count("an append was fenced out");
            return Ok(false);
        }
        if self.head.position != expected.position {
            self.notes.count("an append found the head moved");
            return Ok(false);
        }
        if indexed.iter().any(|key| self.indexed.contains(key)) {
            self.notes.count("an append repeated a fact");
            return Err(StoreError::Data("a fact is in the log already".to_owned()));
        }
        if let Some(last) = rows.last() {
            self.head = Head { position: last.position, hash, ..self.head };
        }
        self.indexed.extend(indexed);
        for row in rows {
            let fact = record::decode(&row.record).unwrap();
            if let Err(broken) = self.history.push(row.position, fact) {
                self.notes.violation(format!("{broken} at {}", row.position));
            }
            self.events.push(row);
        }
        for (customer_id, is_kept) in personal {
            if is_kept {
                self.personal.insert(customer_id);
            } else {
                self.personal.remove(&customer_id);
                self.notes.count("a customer was deleted");
            }
        }
        self.change_claims(&claims);
        self.notes.count("an append");
        Ok(true)
    }

    fn change_claims(&mut self, changes: &Changes) {
        let Changes { put, answered, released } = changes;
        for (id, claim) in put {
            if self.released.remove(id) {
                self.notes.count("a released claim was made anew");
            }
            self.claims.insert(id.clone(), claim.clone());
        }
        for (id, request_id, answer) in answered {
            if let Some(claim) = self.claims.get_mut(id).filter(|claim| is_of(claim, *request_id)) {
                claim.answer = Some(answer.clone());
                self.notes.count("a claim was answered");
            }
        }
        for (id, request_id, ..) in released {
            if self.claims.get(id).is_some_and(|claim| is_of(claim, *request_id)) {
                self.claims.remove(id);
                self.released.insert(id.clone());
                self.notes.count("a claim was released");
            }
        }
    }

    /// As `ledger.store_states`. Checks that the states are then as they were at `position`.
    pub(super) fn store_states(
        &mut self,
        epoch: i64,
        position: i64,
        changes: Vec<(StoredKey, Option<String>)>,
    ) -> bool {
        if self.checkpoint_epoch != epoch {
            self.notes.count("a checkpoint was fenced out");
            return false;
        }
        if position < self.checkpoint_position {
            self.notes.count("a checkpoint came after a newer one");
            return false;
        }
        if position > self.head.position {
            self.notes.violation(format!("states were stored at {position}, beyond the log"));
        }
        let before = std::mem::replace(&mut self.checkpoint_position, position);
        if position - before > MAX_TAIL {
            self.notes.count("commands waited for a checkpoint");
        }
        let mut keys = self.history.changed_between(before, position);
        for (key, body) in changes {
            match body {
                Some(body) => self.states.insert(key.clone(), body),
                None => self.states.remove(&key),
            };
            keys.insert(key);
        }
        for key in &keys {
            let (stored, folded) = (self.states.get(key).map(String::as_str), self.history.at(key, position));
            if stored != folded {
                let what = format!("at {position}, {key:?} is stored as {stored:?} and is {folded:?}");
                self.notes.violation(what);
            }
            if key.0 == "request" && folded.is_none() && self.history.at(key, before).is_none() {
                self.notes.count("a call ended between two checkpoints");
            }
        }
        self.notes.count("a checkpoint was stored");
        true
    }
}

fn is_of(claim: &StoredClaim, request_id: RequestId) -> bool {
    claim.request_id == Some(request_id)
}
