//! What must be so after a run, whatever happened in it.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::event::Fact;
use farthing_core::state::{EvolveError, StateCache};
use serde_json::Value;

use super::client::{Answer, Book};
use super::database::{Disk, Row};
use crate::chain::{self, GENESIS, Link};
use crate::record::{self, Record};

/// Checks the log, the states and everything that callers were answered.
pub(super) fn check(disk: &Disk, book: &Book) {
    the_chain_is_whole(disk);
    states_are_the_fold_of_the_log(disk);
    tables_beside_the_log_agree_with_it(disk);
    answers_are_true(disk, book);
}

/// Positions have no gap, no fact is there twice, and every hash follows.
fn the_chain_is_whole(disk: &Disk) {
    let (mut keys, mut hash) = (BTreeSet::new(), GENESIS);
    for (row, position) in disk.events.iter().zip(1..) {
        assert_eq!(row.position, position);
        assert!(keys.insert(row.key.clone()), "{} is in the log twice", row.key);
        let link = Link { position, recorded_at: row.recorded_at, writer: &row.writer, record: &row.record };
        hash = chain::hash(&hash, &link);
        assert_eq!(row.hash, hash, "the hash at {position}");
    }
    assert!(disk.indexed.is_subset(&keys));
    assert_eq!(disk.head.position, i64::try_from(disk.events.len()).unwrap());
    assert_eq!(disk.head.hash, hash);
}

fn fact(row: &Row) -> Fact {
    let fact = record::decode(&row.record).unwrap();
    assert_eq!(fact.event.key(), row.key);
    fact
}

fn states_are_the_fold_of_the_log(disk: &Disk) {
    let mut states = StateCache::default();
    for row in &disk.events {
        let fact = [fact(row)];
        while let Err(error) = states.evolve(&fact) {
            match error {
                EvolveError::Missing(missing) => states.load(missing.0, None),
                EvolveError::InvariantBroken(broken) => panic!("{broken} at {}", row.position),
            }
        }
    }
    let folded = states.take_changes().into_iter();
    let folded: BTreeMap<_, _> =
        folded.filter_map(|(key, body)| body.map(|body| (key.stored(), body))).collect();
    assert_eq!(disk.states, folded);
}

/// Personal data is there of exactly the customers in the log, and every idempotency key stands for a fact.
fn tables_beside_the_log_agree_with_it(disk: &Disk) {
    let customers = disk.events.iter().filter(|row| row.record.contains(r#""kind":"customer.created""#));
    let customers: BTreeSet<_> = customers.map(|row| row.key.clone()).collect();
    let personal: BTreeSet<_> = disk.personal.iter().map(|id| format!("{id}/created")).collect();
    assert_eq!(personal, customers);
    for claim in disk.claims.values() {
        let answer = String::from_utf8(claim.answer.clone().unwrap()).unwrap();
        assert!(disk.indexed.contains(&answer), "an idempotency key stands for {answer}");
    }
}

fn answers_are_true(disk: &Disk, book: &Book) {
    let entries = book.entries();
    for (key, answers) in &entries.answers {
        let row = disk.events.iter().find(|row| row.key == *key);
        let done: Vec<_> = answers.iter().filter(|answer| matches!(answer, Answer::Done(_))).collect();
        let is_unknown = answers.contains(&Answer::Unknown);
        assert!(done.len() <= 1, "{key} was answered as done {} times", done.len());
        match row {
            None => assert!(done.is_empty(), "{key} was answered as done, and is not in the log"),
            Some(row) => {
                assert!(
                    !done.is_empty() || is_unknown,
                    "{key} is in the log, and nobody was told: {answers:?}"
                );
                if let [Answer::Done(Some(balance))] = done[..] {
                    let body: Value =
                        serde_json::from_str(Record::parse(&row.record).unwrap().body()).unwrap();
                    assert_eq!(body["balance_after"], balance.to_string(), "{key}");
                }
            }
        }
    }
    for (claim, times) in &entries.decided {
        assert_eq!(*times, 1, "commands were decided under the idempotency key {claim:?}");
        assert!(disk.claims.contains_key(claim), "nothing is kept under the idempotency key {claim:?}");
    }
    for key in &entries.mentioned {
        assert!(disk.indexed.contains(key), "an answer says that {key} is in the log");
    }
    // Nothing is in the log that no client asked for, but the merchant and its first key.
    let asked = disk.events.iter().filter(|row| entries.answers.contains_key(&row.key)).count();
    assert_eq!(asked + 2, disk.events.len());
}
