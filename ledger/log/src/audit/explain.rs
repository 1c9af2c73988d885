//! One request from its credential to the last digit: what its admission froze, what was reported, the bill recorded and
//! computed again, the debits, the postings, and the events with their hashes.

use chrono::{DateTime, Utc};
use farthing_core::accounts::{Journal, Posting};
use farthing_core::command::RecomputedBill;
use farthing_core::event::{
    Event, RequestEvent, RequestFailed, RequestMetered, RequestOpened, Source, WalletDebited, WalletEvent,
};
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::money::{self, Amount};
use farthing_core::secret::hex;
use serde::Serialize;

use super::Error;
use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line, Visitor};
use crate::connect::{self, Role};
use crate::record::{self, Record};
use crate::verify::Head;

/// A request, explained.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Nothing is wrong with the log, and the bill computed again is the recorded one.
    pub ok: bool,
    /// The request.
    pub request_id: RequestId,
    /// Its merchant.
    pub merchant_id: Option<MerchantId>,
    /// Its opening: credential, payers, list price, the meter's terms, hold.
    pub opened: Option<Box<RequestOpened>>,
    /// Its end, if it was metered: usage, tier usage, bill.
    pub metered: Option<Box<RequestMetered>>,
    /// Its end, if it was not metered.
    pub failed: Option<Box<RequestFailed>>,
    /// The bill, computed again from the opening and the usage.
    pub recomputed: Option<RecomputedBill>,
    /// What it drew from wallets.
    pub debits: Vec<Debit>,
    /// Its postings to the accounts of the trial balance, without those to clearing accounts.
    pub postings: Vec<Posting>,
    /// Its events, in their order.
    pub events: Vec<LoggedEvent>,
    /// The end of the partition that was read.
    pub head: Option<Head>,
    /// What is wrong.
    #[serde(flatten)]
    pub findings: Findings,
}

/// A debit of a wallet.
#[derive(Debug, Serialize)]
pub struct Debit {
    /// The debit.
    #[serde(flatten)]
    pub debited: WalletDebited,
    /// The balance before it.
    pub balance_before: Amount,
}

/// An event with its place in the log and its hash.
#[derive(Debug, Serialize)]
pub struct LoggedEvent {
    /// The place.
    #[serde(flatten)]
    pub place: Place,
    /// The name of its kind.
    pub kind: String,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    /// The process that appended it.
    pub writer: String,
    /// Its hash, in hexadecimal. It covers the hash of the event before it.
    pub hash: String,
}

/// Explains a request. Reads the partitions one after the other, each whole, until one has the request, and verifies them.
/// Gateways may write meanwhile.
pub async fn explain(database_url: &str, request_id: RequestId) -> Result<Explanation, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let mut search = Search {
        text: request_id.to_string(),
        journal: Journal::default(),
        found: Explanation {
            ok: false,
            request_id,
            merchant_id: None,
            opened: None,
            metered: None,
            failed: None,
            recomputed: None,
            debits: Vec::new(),
            postings: Vec::new(),
            events: Vec::new(),
            head: None,
            findings: Findings::default(),
        },
    };
    for partition in ends.partitions() {
        let head = ends.read_partition(&client, partition, None, &mut search).await?;
        if !search.found.events.is_empty() {
            search.found.head = Some(head);
            search.found.conclude();
            return Ok(search.found);
        }
    }
    Err(Error::UnknownRequest(request_id).after(search.found.findings))
}

impl Explanation {
    /// Computes the bill again, and compares it with the recorded one and with the debits.
    fn conclude(&mut self) {
        if let Some(metered) = &self.metered {
            match &self.opened {
                Some(opened) => {
                    match (RecomputedBill::of(opened, metered), RecomputedBill::recorded(metered)) {
                        (Ok(bill), Ok(recorded)) => {
                            if bill != recorded {
                                self.findings.find(|| "the bill computed again is another one".to_owned());
                            }
                            self.recomputed = Some(bill);
                        }
                        (Err(error), _) | (_, Err(error)) => {
                            self.findings
                                .find(|| format!("the bill cannot be computed again: a sum {error}"));
                        }
                    }
                }
                None => self.findings.find(|| "the request has an end, but no opening".to_owned()),
            }
            let total = metered.total_request_cost;
            match Amount::sum(self.debits.iter().map(|debit| debit.debited.amount)) {
                Ok(drawn) if drawn == total => {}
                Ok(drawn) => {
                    self.findings.find(|| format!("the debits are {drawn}, the cost is {total}"));
                }
                Err(error) => self.findings.find(|| format!("the sum of the debits {error}")),
            }
        }
        self.ok = self.findings.is_empty();
    }

    fn take(&mut self, event: Event) -> Result<(), money::Error> {
        match event {
            Event::Request(RequestEvent::Opened(opened)) => self.opened = Some(opened),
            Event::Request(RequestEvent::Metered(metered)) => self.metered = Some(metered),
            Event::Request(RequestEvent::Failed(failed)) => self.failed = Some(failed),
            Event::Wallet(WalletEvent::Debited(debited)) => {
                let from_balance = debited.sources.iter().filter(|part| part.source == Source::Balance);
                let from_balance = Amount::sum(from_balance.map(|part| part.amount))?;
                let balance_before = debited.balance_after.plus(from_balance)?;
                self.debits.push(Debit { debited, balance_before });
            }
            Event::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
            | Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
        Ok(())
    }
}

/// The request that an event is of.
fn request_of(event: &Event) -> Option<RequestId> {
    match event {
        Event::Request(RequestEvent::Opened(event)) => Some(event.request_id),
        Event::Request(RequestEvent::Metered(event)) => Some(event.request_id),
        Event::Request(RequestEvent::Failed(event)) => Some(event.request_id),
        Event::Wallet(WalletEvent::Debited(event)) => Some(event.request_id),
        Event::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
        | Event::Merchant(_)
        | Event::SecretKey(_)
        | Event::Customer(_)
        | Event::Meter(_)
        | Event::SpendKey(_)
        | Event::Plan(_)
        | Event::Subscription(_)
        | Event::Payment(_)
        | Event::Checkout(_)
        | Event::Webhook(_) => None,
    }
}

/// Looks for the events of a request.
struct Search {
    /// The request's id, which stands in the line of each of its events.
    text: String,
    journal: Journal,
    found: Explanation,
}

impl Search {
    fn take(&mut self, event: Event) -> Result<(), money::Error> {
        let postings = self.journal.enter(&event)?;
        self.found.postings.extend(postings.into_iter().filter(|posting| !posting.account.is_clearing()));
        self.found.take(event)
    }
}

impl Visitor for Search {
    fn findings(&mut self) -> &mut Findings {
        &mut self.found.findings
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        if !line.text.contains(&self.text) {
            return Ok(());
        }
        let place = line.place;
        let (kind, fact) = match Record::parse(line.text).map(|record| record.kind.to_owned()) {
            Ok(kind) => (kind, record::decode(line.text)),
            Err(error) => (String::new(), Err(error)),
        };
        let fact = match fact {
            Ok(fact) => fact,
            Err(error) => {
                self.found.findings.find(|| format!("{place}: {error}"));
                return Ok(());
            }
        };
        // Another request may name this one in its metadata.
        if request_of(&fact.event) != Some(self.found.request_id) {
            return Ok(());
        }
        self.found.merchant_id = Some(fact.merchant_id);
        self.found.events.push(LoggedEvent {
            place,
            kind,
            occurred_at: fact.occurred_at,
            recorded_at: line.recorded_at,
            writer: line.writer.to_owned(),
            hash: hex(line.hash),
        });
        if let Err(error) = self.take(fact.event) {
            self.found.findings.find(|| format!("{place}: an amount {error}"));
        }
        Ok(())
    }
}
