//! What must be so after a run, whatever happened in it.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::event::{
    CustomerEvent, Event, Fact, FailureReason, RequestEvent, RequestOpened, WalletEvent,
};
use farthing_core::ids::{CustomerId, RequestId, WalletId};
use farthing_core::money::Amount;
use farthing_core::state::Wallet;
use serde_json::Value;

use super::client::{Answer, Book};
use super::disk::{Disk, Row};
use super::keys::{failed_call, metered};
use crate::chain::{self, GENESIS, Link};
use crate::record::{self, Record};

/// Checks the log, the states and everything that callers were answered.
pub(super) fn check(disk: &Disk, book: &Book) {
    check_log(disk);
    claims_agree_with_the_log(disk, &calls(disk), book);
    answers_are_true(disk, book);
}

/// Checks the log, the states and the tables beside the log, once a leader has stored all states.
pub(super) fn check_log(disk: &Disk) {
    the_chain_is_whole(disk);
    only_leaders_wrote(disk);
    assert_eq!(disk.checkpoint_position, disk.head.position, "the last leader stored all states");
    assert_eq!(disk.states, disk.history.all_at(disk.checkpoint_position));
    personal_data_is_of_the_customers_not_deleted(disk);
    holds_are_those_of_open_calls(disk, &calls(disk));
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

/// Each event was written by the gateway that led then.
fn only_leaders_wrote(disk: &Disk) {
    let mut leads = disk.leads.iter().peekable();
    let mut leader = None;
    for row in &disk.events {
        while let Some((_, gateway)) = leads.next_if(|(since, _)| *since < row.position) {
            leader = Some(gateway);
        }
        assert_eq!(Some(&row.writer), leader, "the writer at {}", row.position);
    }
}

fn personal_data_is_of_the_customers_not_deleted(disk: &Disk) {
    let mut customers = BTreeSet::<CustomerId>::new();
    for row in &disk.events {
        let Event::Customer(event) = fact(row).event else { continue };
        match event {
            CustomerEvent::Created(event) => assert!(customers.insert(event.customer_id)),
            CustomerEvent::Deleted(event) => assert!(customers.remove(&event.customer_id)),
            CustomerEvent::Updated(_) => {}
        }
    }
    assert_eq!(disk.personal, customers);
}

/// A call in the log.
struct Call {
    opened: Box<RequestOpened>,
    /// The event that ended it.
    end: Option<RequestEvent>,
}

/// The calls in the log. Each is opened once and ended at most once; a debit is of a metered call.
fn calls(disk: &Disk) -> BTreeMap<RequestId, Call> {
    let mut calls = BTreeMap::<RequestId, Call>::new();
    for row in &disk.events {
        let event = fact(row).event;
        if let Event::Wallet(WalletEvent::Debited(event)) = &event {
            let end = calls.get(&event.request_id).and_then(|call| call.end.as_ref());
            assert!(matches!(end, Some(RequestEvent::Metered(_))), "{} is not metered", event.request_id);
        }
        let Event::Request(event) = event else { continue };
        let request_id = match &event {
            RequestEvent::Opened(event) => event.request_id,
            RequestEvent::Metered(event) => event.request_id,
            RequestEvent::Failed(event) => event.request_id,
        };
        if let RequestEvent::Opened(opened) = event {
            let earlier = calls.insert(request_id, Call { opened, end: None });
            assert!(earlier.is_none(), "{request_id} was opened twice");
        } else {
            let call = calls.get_mut(&request_id).unwrap_or_else(|| panic!("{request_id} was not opened"));
            assert!(call.end.replace(event).is_none(), "{request_id} ended twice");
        }
    }
    calls
}

/// Every wallet holds the sum of the holds of the calls that have not ended.
fn holds_are_those_of_open_calls(disk: &Disk, calls: &BTreeMap<RequestId, Call>) {
    let mut held = BTreeMap::<String, Amount>::new();
    let mut add = |wallet_id: WalletId, amount: Amount| {
        let sum = held.entry(wallet_id.to_string()).or_default();
        *sum = sum.plus(amount).unwrap();
    };
    for Call { opened, .. } in calls.values().filter(|call| call.end.is_none()) {
        add(opened.parties.merchant_wallet_id, opened.hold.merchant);
        if let Some(wallet_id) = opened.parties.wallet_id {
            add(wallet_id, opened.hold.wallet);
        }
    }
    for ((kind, id), body) in &disk.states {
        if *kind == "wallet" {
            let wallet: Wallet = serde_json::from_str(body).unwrap();
            assert_eq!(wallet.held, held.remove(id).unwrap_or_default(), "the holds of {id}");
        }
    }
    assert_eq!(held, BTreeMap::new(), "holds without a wallet");
}

/// A call keeps its claim, with the response of its end, unless its provider was never reached. The answer of
/// every other claim is the key of a fact.
fn claims_agree_with_the_log(disk: &Disk, calls: &BTreeMap<RequestId, Call>, book: &Book) {
    let keys: BTreeSet<_> = disk.events.iter().map(|row| row.key.as_str()).collect();
    for claim in disk.claims.values() {
        match (claim.request_id, &claim.answer) {
            (Some(id), _) => assert!(calls.contains_key(&id), "{id} has a claim, and was never opened"),
            (None, Some(answer)) => {
                let answer = str::from_utf8(answer).unwrap();
                assert!(keys.contains(answer), "an idempotency key stands for {answer}");
            }
            (None, None) => panic!("a claim without a call or an answer: {claim:?}"),
        }
    }
    for (id, call) in calls {
        let Some(claim) = &book.entries().calls[id] else { continue };
        let stored = disk.claims.get(claim).filter(|claim| claim.request_id == Some(*id));
        let stored = stored
            .map(|claim| claim.answer.as_ref().map(|answer| String::from_utf8(answer.to_vec()).unwrap()));
        let expected = match &call.end {
            None => Some(None),
            Some(RequestEvent::Metered(_)) => Some(Some(metered(*id))),
            Some(RequestEvent::Failed(failed)) => match failed.reason {
                FailureReason::ProviderStatus => Some(Some(failed_call(*id))),
                FailureReason::ProviderTimeout | FailureReason::Abandoned => Some(None),
                FailureReason::ProviderUnreachable => None,
                FailureReason::ProviderGone
                | FailureReason::AddressForbidden
                | FailureReason::CallerGone
                | FailureReason::UsageInvalid
                | FailureReason::Unsettleable => panic!("no client ends a call so: {failed:?}"),
            },
            Some(RequestEvent::Opened(_)) => unreachable!("an opening ends no call"),
        };
        assert_eq!(stored, expected, "the claim of {id}");
    }
}

fn answers_are_true(disk: &Disk, book: &Book) {
    let entries = book.entries();
    let rows: BTreeMap<_, _> = disk.events.iter().map(|row| (row.key.as_str(), row)).collect();
    for (key, answers) in &entries.answers {
        let row = rows.get(key.as_str());
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
        assert!(rows.contains_key(key.as_str()), "an answer says that {key} is in the log");
    }
    // Nothing is in the log that no client asked for, except the merchant, its first key and the debits.
    let asked = rows.keys().filter(|key| entries.answers.contains_key(**key)).count();
    let debits = rows.keys().filter(|key| key.contains("/debited/")).count();
    assert_eq!(asked + debits + 2, disk.events.len());
}
