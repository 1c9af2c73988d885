//! The clients of a simulation, and the book of what they were answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farthing_core::command::wire::WireCommand;
use farthing_core::command::{
    CreateCustomer, CreatedCustomer, CreditTarget, CreditWallet, DeleteCustomer, PersonalData, Refusal,
    RevokeSecretKey, Revoker,
};
use farthing_core::idempotency::{Claim, ClaimId, ClaimStatus, Scope};
use farthing_core::ids::{CreditId, CustomerId, RequestId, SecretKeyId, WalletId};
use farthing_core::money::Amount;
use farthing_core::partition::Partition;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::super::{ClaimRecord, Error, IdempotentOutcome};
use super::database::Database;
use super::gateway::{GATEWAYS, Gateways, Process};
use super::keys::{failed_call, opened};
use super::merchant::{NOW, issue, merchant_id, server_key};
use crate::leases::Route;
use crate::ledger::{Ledger, OPENED_WITHIN};

/// Reference ids and idempotency keys that clients compete for, of each.
const CONTESTED: u32 = 100;

/// The longest time until a client tries again at another gateway, in milliseconds.
const LOOKUP_MS: u64 = 100;

/// What the caller of a command knows when it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The command's fact is in the log. For a credit, with the balance after it.
    Done(Option<Amount>),
    /// The command appended nothing: refused, or known to have failed.
    Nothing,
    /// There is no answer: the process ended.
    Unknown,
}

/// The answers that all clients got.
#[derive(Debug, Clone, Default)]
pub(super) struct Book(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The answers to each fact's command, by the fact's key.
    pub(super) answers: BTreeMap<String, Vec<Answer>>,
    /// How often a command was decided under each idempotency key.
    pub(super) decided: BTreeMap<ClaimId, u32>,
    /// Facts that an answer says are in the log, by another's command.
    pub(super) mentioned: Vec<String>,
    /// The calls that were to be opened, with the claims of those with an idempotency key.
    pub(super) calls: BTreeMap<RequestId, Option<ClaimId>>,
    /// Calls that may be open, and since when.
    pub(super) in_flight: BTreeMap<RequestId, Instant>,
    /// Customers with money.
    pub(super) payers: Vec<CustomerId>,
    pub(super) issued: Vec<SecretKeyId>,
    customers: Vec<CustomerId>,
}

impl Book {
    pub(super) fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap()
    }

    pub(super) fn note(&self, key: &str, answer: Answer) {
        self.entries().answers.entry(key.to_owned()).or_default().push(answer);
    }
}

/// What an error leaves the caller with.
pub(super) fn failed(error: &Error) -> Answer {
    match error {
        Error::Unknown(_) => Answer::Unknown,
        Error::Refused(_) | Error::Unavailable(_) | Error::Internal(_) | Error::Overloaded | Error::Moved => {
            Answer::Nothing
        }
    }
}

/// What the clients of a phase do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// One call in so many goes to any gateway, and the others to the leader as the client knows it.
    pub(super) strays: u32,
    /// The longest pause between the calls of a client.
    pub(super) pause_ms: u64,
    /// They use no idempotency keys.
    pub(super) is_plain: bool,
}

/// A caller of the gateways.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) random: fastrand::Rng,
    pub(super) gateways: Gateways,
    /// The place of the gateway that it believes to lead.
    pub(super) leader: usize,
    /// The reads that it has started.
    pub(super) reads: JoinSet<()>,
    pub(super) habits: Habits,
    pub(super) book: Book,
    /// The database, seen at the partition of all its commands.
    pub(super) database: Database,
}

/// The gateway of a call: its ledger, and the process that ends with it.
pub(super) struct Asked {
    pub(super) ledger: Ledger,
    process: Process,
}

impl Asked {
    /// Waits for what the gateway does. If it is killed, the caller has no answer.
    pub(super) async fn run<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let killed = || Err(Error::Unknown("the gateway was killed".to_owned()));
        self.process.run(call).await.unwrap_or_else(killed)
    }
}

impl Client {
    /// Makes so many calls, one after the other.
    pub(super) async fn call(mut self, calls: usize) {
        for call in 0..calls {
            sleep(Duration::from_millis(self.random.u64(..self.habits.pause_ms))).await;
            let ulid = Ulid::from_parts(2, u128::try_from(self.number * 1_000 + call).unwrap());
            match self.random.u8(..if self.habits.is_plain { 20 } else { 22 }) {
                _ if self.random.u8(..100) == 0 => self.issue_again().await,
                0..4 => self.issue(SecretKeyId::new(ulid)).await,
                4 | 5 => self.revoke().await,
                6 | 7 => self.credit(CreditId::new(ulid)).await,
                8 | 9 => self.create(CustomerId::new(ulid)).await,
                10 => self.delete().await,
                11..15 => self.forward(RequestId::new(ulid)).await,
                15 => self.abandon().await,
                16..20 => self.start_read(),
                _ => self.create_under_a_key(CustomerId::new(ulid)).await,
            }
        }
        while let Some(read) = self.reads.join_next().await {
            read.expect("a read panicked");
        }
    }

    pub(super) fn partition(&self) -> Partition {
        self.database.partition()
    }

    /// Chooses the gateway of the next call: the one that the client believes to lead, or any.
    pub(super) fn choose(&mut self) -> Asked {
        if self.random.u8(..3) == 0 {
            self.leader = self.gateways.holder(self.partition()).unwrap_or(self.leader);
        }
        let strays = self.random.u32(..self.habits.strays) == 0;
        let at = if strays { self.random.usize(..GATEWAYS) } else { self.leader };
        let (ledger, process) = self.gateways.ledger(at);
        Asked { ledger, process }
    }

    /// Notes what an answer says of the gateway, and waits before the client asks another one.
    pub(super) async fn noted(&mut self, error: Option<&Error>) {
        match error {
            Some(Error::Moved) => {
                self.database.notes.count("a command went to a gateway that does not lead");
                self.leader = self.gateways.holder(self.partition()).unwrap_or(self.leader);
                sleep(Duration::from_millis(self.random.u64(..LOOKUP_MS))).await;
            }
            Some(Error::Unavailable(_)) => {
                self.leader = self.gateways.holder(self.partition()).unwrap_or(self.leader);
            }
            Some(Error::Overloaded) => self.database.notes.count("a command waited for too long"),
            None | Some(Error::Refused(_) | Error::Internal(_) | Error::Unknown(_)) => {}
        }
    }

    /// Sends a command without an idempotency key.
    pub(super) async fn submit<C>(&mut self, command: C) -> Result<C::Outcome, Error>
    where
        C: WireCommand + Clone,
    {
        let (asked, partition) = (self.choose(), self.partition());
        let answer = asked.run(asked.ledger.submit(partition, command)).await;
        self.noted(answer.as_ref().err()).await;
        answer
    }

    /// Issues a key, and tries again while that fails, as a caller does.
    async fn issue(&mut self, secret_key_id: SecretKeyId) {
        let key = format!("{secret_key_id}/issued");
        for _ in 0..3 {
            let result = self.submit(issue(secret_key_id)).await;
            let answer = result.map_or_else(|error| failed(&error), |()| Answer::Done(None));
            self.book.note(&key, answer.clone());
            if answer != Answer::Nothing {
                self.book.entries().issued.push(secret_key_id);
                return;
            }
        }
    }

    /// Issues a key that was issued before: the fact is in the log, and this command did not put it there.
    async fn issue_again(&mut self) {
        let Some(secret_key_id) = self.pick(|entries| entries.issued.clone()) else { return };
        let result = self.submit(issue(secret_key_id)).await;
        let answer = result.map_or_else(|error| failed(&error), |()| Answer::Done(None));
        self.book.note(&format!("{secret_key_id}/issued"), answer);
    }

    async fn revoke(&mut self) {
        let Some(secret_key_id) = self.pick(|entries| entries.issued.clone()) else { return };
        let revoke = RevokeSecretKey { revoker: Revoker::Operator, secret_key_id, now: NOW };
        let result = self.submit(revoke).await;
        let answer = result.map_or_else(|error| failed(&error), |_| Answer::Done(None));
        self.book.note(&format!("{secret_key_id}/revoked"), answer);
    }

    async fn credit(&mut self, credit_id: CreditId) {
        let customer = self.pick(|entries| entries.customers.clone());
        let target = customer.map_or(CreditTarget::Merchant(merchant_id()), CreditTarget::Customer);
        // A credit of nothing is refused.
        let amount = ["0", "1", "0.25"][self.random.usize(..3)].parse().unwrap();
        let reason = "a simulation".to_owned();
        let command = CreditWallet { credit_id, target, amount, reason, now: NOW };
        let (asked, partition) = (self.choose(), self.partition());
        let led_here = asked.ledger.routes().of(partition).term();
        let result = asked.run(asked.ledger.submit(partition, command)).await;
        self.noted(result.as_ref().err()).await;
        if let (Ok(_), Some(customer_id)) = (&result, customer) {
            self.book.entries().payers.push(customer_id);
        }
        let answer =
            result.map_or_else(|error| failed(&error), |credited| Answer::Done(Some(credited.balance)));
        let key = format!("{credit_id}/credited");
        let routes = asked.ledger.routes();
        let was_here = matches!(routes.of(partition), Route::Here(term) if Some(*term) == led_here);
        if let (Answer::Done(_), true) = (&answer, was_here) {
            let position = self.database.disk().position_of(&key);
            let head = *asked.ledger.appender(partition).head().borrow();
            if position.is_none_or(|position| position > head) {
                self.database.notes.violation(format!("{key} was answered and is not announced"));
            }
        }
        self.book.note(&key, answer);
    }

    fn customer(&mut self, customer_id: CustomerId) -> CreateCustomer {
        let reference = self.random.u32(..CONTESTED);
        CreateCustomer {
            merchant_id: merchant_id(),
            customer_id,
            wallet_id: WalletId::new(customer_id.ulid()),
            reference_id: self.random.bool().then(|| format!("reference {reference}")),
            metadata: BTreeMap::new(),
            metadata_literals: BTreeSet::new(),
            personal: PersonalData { first_name: Some("Ada".to_owned()), ..PersonalData::default() },
            now: NOW,
        }
    }

    async fn create(&mut self, customer_id: CustomerId) {
        let create = self.customer(customer_id);
        let made = self.submit(create).await;
        self.made(customer_id, made);
    }

    /// Deletes a customer; another client may have done so before.
    async fn delete(&mut self) {
        let Some(customer_id) = self.pick(|entries| entries.customers.clone()) else { return };
        let delete = DeleteCustomer { merchant_id: merchant_id(), customer_id, now: NOW };
        let result = self.submit(delete).await;
        let answer = result.map_or_else(|error| failed(&error), |()| Answer::Done(None));
        self.book.note(&format!("{customer_id}/deleted"), answer);
    }

    /// The use of an idempotency key that other clients use too, at times for another request.
    pub(super) fn claim(&mut self, path: &str) -> Claim {
        let key = self.random.u32(..CONTESTED).to_string();
        let body = if self.random.u8(..10) == 0 { b"another body" } else { b"the same one" };
        let scope = Scope { merchant_id: merchant_id(), method: "POST", path };
        Claim::new(&server_key(), scope, &key, &[body])
    }

    /// Notes the fact that the answer to a repeated claim mentions.
    pub(super) fn repeated(&self, status: ClaimStatus) {
        let (what, fact) = match status {
            ClaimStatus::Reused => ("a claim was reused", None),
            ClaimStatus::Answered(fact, _) => {
                ("a claim with an answer was repeated", Some(String::from_utf8(fact.to_vec()).unwrap()))
            }
            ClaimStatus::InFlight(id) => ("a claim of a call in flight was repeated", Some(opened(id))),
            // The response of a metered call is always stored.
            ClaimStatus::Ended(id) => {
                ("a claim of a call without an answer was repeated", Some(failed_call(id)))
            }
        };
        self.database.notes.count(what);
        self.book.entries().mentioned.extend(fact);
    }

    /// Creates a customer under an idempotency key that other clients use too.
    async fn create_under_a_key(&mut self, customer_id: CustomerId) {
        let create = self.customer(customer_id);
        let claim = self.claim("/v1/customers");
        let record = |made: &Result<CreatedCustomer, Refusal>| match made {
            Ok(CreatedCustomer::Created(id) | CreatedCustomer::Existing(id)) => {
                ClaimRecord::Answer(format!("{id}/created").into_bytes().into())
            }
            Err(_) => ClaimRecord::Nothing,
        };
        let id = claim.id.clone();
        // Such a request goes to the leader as a whole.
        let (asked, partition) = (self.choose(), self.partition());
        let answer = asked
            .run(asked.ledger.submit_idempotent_here(partition, merchant_id(), create, claim, record))
            .await;
        self.noted(answer.as_ref().err()).await;
        match answer {
            Ok(IdempotentOutcome::Decided(made, _)) => {
                self.database.notes.count("a command was decided under a claim");
                *self.book.entries().decided.entry(id).or_default() += 1;
                self.made(customer_id, made.map_err(Error::from));
            }
            Ok(IdempotentOutcome::Repeated(status)) => {
                self.book.note(&format!("{customer_id}/created"), Answer::Nothing);
                self.repeated(status);
            }
            Err(error) => self.book.note(&format!("{customer_id}/created"), failed(&error)),
        }
    }

    fn made(&self, customer_id: CustomerId, made: Result<CreatedCustomer, Error>) {
        let answer = match made {
            Ok(CreatedCustomer::Created(id)) => {
                assert_eq!(id, customer_id);
                self.book.entries().customers.push(id);
                Answer::Done(None)
            }
            Ok(CreatedCustomer::Existing(id)) => {
                self.book.entries().mentioned.push(format!("{id}/created"));
                Answer::Nothing
            }
            Err(error) => failed(&error),
        };
        self.book.note(&format!("{customer_id}/created"), answer);
    }

    /// A call that may be open, and has been for as long as the sweeper waits.
    pub(super) fn pick_abandoned(&mut self) -> Option<RequestId> {
        let is_old = |since: &Instant| since.elapsed() >= OPENED_WITHIN;
        self.pick(|entries| {
            entries.in_flight.iter().filter(|(_, at)| is_old(at)).map(|(id, _)| *id).collect()
        })
    }

    /// One of the things in the book.
    pub(super) fn pick<T: Copy>(&mut self, of: impl FnOnce(&Entries) -> Vec<T>) -> Option<T> {
        let things = of(&self.book.entries());
        (!things.is_empty()).then(|| things[self.random.usize(..things.len())])
    }
}
