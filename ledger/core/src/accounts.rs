//! Double-entry accounts, derived from the events alone. Each event that moves money is a journal entry: postings to
//! accounts that add up to zero. The trial balance lists the accounts' balances; they add up to zero, too.
//!
//! Amounts are signed: a debit is positive, a credit negative. What the instance owes (balances, credit) has negative
//! balances, and so has what it earned.

use std::collections::{BTreeMap, HashMap};

use serde::{Serialize, Serializer};

use crate::command::ChargedParts;
use crate::event::{
    CycleEnded, Event, PaymentEvent, PaymentSucceeded, PaymentVoided, RequestEvent, RequestMetered, Source,
    SubscriptionEvent, WalletCredited, WalletDebited, WalletEvent,
};
use crate::ids::{CustomerId, PaymentId, RequestId};
use crate::money::{Amount, Error, Total};

/// An account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Owed to customers: the balances of their wallets.
    CustomerBalances,
    /// Owed to customers: the remaining credit of their plans.
    PlanCredit,
    /// Owed to customers: the remaining credit of their bundles.
    BundleCredit,
    /// Owed to merchants: the balances of their wallets, which overruns may take below zero.
    MerchantWallets,
    /// Taken by the payment processor for wallets, plans and bundles.
    PaymentsReceived,
    /// Given back by the payment processor.
    Refunds,
    /// Credits of wallets that no payment paid for: those of operators.
    ManualCredits,
    /// Paid for plans and bundles, less the credit that they granted. A debit balance is credit that nobody paid for.
    PlanRevenue,
    /// Credit that expired unused.
    ExpiredCredit,
    /// Charged for the provider's cost of calls.
    ProviderCost,
    /// Charged as fees of calls.
    FeeRevenue,
    /// Charged as service charges of calls.
    ServiceCharge,
    /// Payments that succeeded and whose purpose is not recorded yet. Zero after each append.
    PaymentsClearing,
    /// Calls that are metered and not debited yet. Zero after each append.
    CallsClearing,
}

impl Account {
    /// All accounts, in their order.
    pub const ALL: [Self; 14] = [
        Self::CustomerBalances,
        Self::PlanCredit,
        Self::BundleCredit,
        Self::MerchantWallets,
        Self::PaymentsReceived,
        Self::Refunds,
        Self::ManualCredits,
        Self::PlanRevenue,
        Self::ExpiredCredit,
        Self::ProviderCost,
        Self::FeeRevenue,
        Self::ServiceCharge,
        Self::PaymentsClearing,
        Self::CallsClearing,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CustomerBalances => "customer_balances",
            Self::PlanCredit => "plan_credit",
            Self::BundleCredit => "bundle_credit",
            Self::MerchantWallets => "merchant_wallets",
            Self::PaymentsReceived => "payments_received",
            Self::Refunds => "refunds",
            Self::ManualCredits => "manual_credits",
            Self::PlanRevenue => "plan_revenue",
            Self::ExpiredCredit => "expired_credit",
            Self::ProviderCost => "provider_cost",
            Self::FeeRevenue => "fee_revenue",
            Self::ServiceCharge => "service_charge",
            Self::PaymentsClearing => "payments_clearing",
            Self::CallsClearing => "calls_clearing",
        }
    }

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether its balance is zero after each append.
    pub const fn is_clearing(self) -> bool {
        matches!(self, Self::PaymentsClearing | Self::CallsClearing)
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A part of a journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Posting {
    /// The account.
    pub account: Account,
    /// A debit if positive, a credit if negative.
    pub amount: Amount,
}

/// The postings of an event; empty for one that moves no money.
pub type JournalEntry = Vec<Posting>;

/// Whether the postings add up to zero. Those of an event do by construction, but for `wallet.debited` and
/// `request.metered`: their total and its parts are figures of the event, and the command that made it keeps them equal.
pub fn is_balanced(entry: &[Posting]) -> bool {
    Amount::sum(entry.iter().map(|posting| posting.amount)).is_ok_and(Amount::is_zero)
}

/// Makes journal entries of the events of a partition, in their order.
#[derive(Debug, Default)]
pub struct Journal {
    openings: Openings,
    /// What is charged of each open call.
    open: HashMap<RequestId, ChargedParts>,
    /// The payment that has just succeeded. Its purpose follows in the same append.
    paid: Option<(PaymentId, Amount)>,
}

/// What a journal knows of a call's opening when the call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Openings {
    /// It has entered all of them.
    #[default]
    Entered,
    /// It may not have entered it.
    Unknown,
}

impl Journal {
    /// A journal that begins at any append. What is charged of a call follows from the call's end alone.
    pub fn from_any_append() -> Self {
        Self { openings: Openings::Unknown, ..Self::default() }
    }

    /// The journal entry of the next event.
    pub fn enter(&mut self, event: &Event) -> Result<JournalEntry, Error> {
        let postings = match event {
            Event::Wallet(event) => self.wallet(event)?,
            Event::Request(event) => self.request(event)?,
            Event::Subscription(event) => self.subscription(event)?,
            Event::Payment(event) => self.payment(event)?,
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Plan(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => Vec::new(),
        };
        Ok(postings.into_iter().filter(|posting| !posting.amount.is_zero()).collect())
    }

    fn wallet(&mut self, event: &WalletEvent) -> Result<JournalEntry, Error> {
        match event {
            WalletEvent::Credited(event) => self.credited(event),
            WalletEvent::Debited(event) => debited(event),
            WalletEvent::AutopayChanged(_) => Ok(Vec::new()),
        }
    }

    /// A credit that a payment paid for has the payment's number.
    fn credited(&mut self, event: &WalletCredited) -> Result<JournalEntry, Error> {
        let is_paid = self.paid.is_some_and(|(id, _)| id.ulid() == event.credit_id.ulid());
        let from = if is_paid {
            self.paid = None;
            Account::PaymentsClearing
        } else {
            Account::ManualCredits
        };
        transfer(from, balance_of(event.customer_id), event.amount)
    }

    fn request(&mut self, event: &RequestEvent) -> Result<JournalEntry, Error> {
        match event {
            RequestEvent::Opened(event) => {
                match self.openings {
                    Openings::Entered => drop(self.open.insert(event.request_id, ChargedParts::of(event))),
                    Openings::Unknown => {}
                }
                Ok(Vec::new())
            }
            RequestEvent::Metered(event) => {
                let parts = match self.openings {
                    Openings::Entered => self.open.remove(&event.request_id).unwrap_or_default(),
                    Openings::Unknown => ChargedParts::of_end(event)?,
                };
                metered(event, parts)
            }
            RequestEvent::Failed(event) => {
                self.open.remove(&event.request_id);
                Ok(Vec::new())
            }
        }
    }

    fn payment(&mut self, event: &PaymentEvent) -> Result<JournalEntry, Error> {
        match event {
            PaymentEvent::Succeeded(PaymentSucceeded { payment_id, amount, .. }) => {
                self.paid = Some((*payment_id, *amount));
                transfer(Account::PaymentsReceived, Account::PaymentsClearing, *amount)
            }
            // The customer was deleted while it was charged.
            PaymentEvent::Voided(PaymentVoided { amount, refund: Some(_), .. }) => {
                transfer(Account::PaymentsReceived, Account::Refunds, *amount)
            }
            PaymentEvent::Voided(PaymentVoided { refund: None, .. })
            | PaymentEvent::MethodAdded(_)
            | PaymentEvent::Requested(_)
            | PaymentEvent::Declined(_) => Ok(Vec::new()),
        }
    }

    fn subscription(&mut self, event: &SubscriptionEvent) -> Result<JournalEntry, Error> {
        match event {
            SubscriptionEvent::Started(event) => {
                self.sold(event.payment_id, Account::PlanCredit, event.granted)
            }
            SubscriptionEvent::Renewed(event) => {
                self.sold(event.payment_id, Account::PlanCredit, event.granted)
            }
            SubscriptionEvent::Upgraded(event) => {
                self.sold(event.payment_id, Account::PlanCredit, event.granted)
            }
            SubscriptionEvent::BundlePurchased(event) => {
                self.sold(Some(event.payment_id), Account::BundleCredit, event.granted)
            }
            SubscriptionEvent::CycleEnded(event) => cycle_ended(event),
            SubscriptionEvent::Cancelled(event) => {
                transfer(Account::PlanCredit, Account::ExpiredCredit, event.expired)
            }
            SubscriptionEvent::Updated(_) | SubscriptionEvent::RenewalFailed(_) => Ok(Vec::new()),
        }
    }

    /// A plan or bundle that grants credit, with its payment, if it has one.
    fn sold(
        &mut self,
        payment: Option<PaymentId>,
        credit: Account,
        granted: Amount,
    ) -> Result<JournalEntry, Error> {
        let paid = match self.paid {
            Some((id, amount)) if payment == Some(id) => {
                self.paid = None;
                amount
            }
            Some(_) | None => Amount::ZERO,
        };
        Ok(vec![
            debit(Account::PaymentsClearing, paid),
            self::credit(credit, granted)?,
            debit(Account::PlanRevenue, granted.minus(paid)?),
        ])
    }
}

/// The balances of the accounts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct TrialBalance(BTreeMap<Account, Total>);

impl TrialBalance {
    /// Adds a journal entry.
    pub fn post(&mut self, entry: &[Posting]) -> Result<(), Error> {
        for posting in entry {
            let balance = self.0.entry(posting.account).or_default();
            *balance = balance.plus(posting.amount)?;
        }
        Ok(())
    }

    /// The balance of an account.
    pub fn of(&self, account: Account) -> Total {
        self.0.get(&account).copied().unwrap_or_default()
    }

    /// All balances that were ever moved, in the order of the accounts.
    pub fn balances(&self) -> impl Iterator<Item = (Account, Total)> + '_ {
        self.0.iter().map(|(account, balance)| (*account, *balance))
    }

    /// The sum of all balances: zero, unless the books are wrong.
    pub fn sum(&self) -> Result<Total, Error> {
        self.0.values().try_fold(Total::default(), |sum, balance| sum.and(*balance))
    }
}

/// The account of a wallet's balance.
const fn balance_of(customer: Option<CustomerId>) -> Account {
    match customer {
        Some(_) => Account::CustomerBalances,
        None => Account::MerchantWallets,
    }
}

fn debited(event: &WalletDebited) -> Result<JournalEntry, Error> {
    let drawn = event.sources.iter().map(|part| {
        let account = match part.source {
            Source::Balance => balance_of(event.customer_id),
            Source::PlanCredit(_) => Account::PlanCredit,
            Source::BundleCredit(_) => Account::BundleCredit,
        };
        Ok(debit(account, part.amount))
    });
    drawn.chain([credit(Account::CallsClearing, event.amount)]).collect()
}

fn metered(event: &RequestMetered, parts: ChargedParts) -> Result<JournalEntry, Error> {
    let charged = |is_charged: bool, amount| if is_charged { amount } else { Amount::ZERO };
    Ok(vec![
        debit(Account::CallsClearing, event.total_request_cost),
        credit(Account::ProviderCost, charged(parts.model_cost, event.model_cost.total))?,
        credit(Account::FeeRevenue, charged(parts.fee, event.fee.amount))?,
        credit(Account::ServiceCharge, charged(parts.service_charge, event.service_charge.amount))?,
    ])
}

fn cycle_ended(event: &CycleEnded) -> Result<JournalEntry, Error> {
    let bundles = Amount::sum(event.expired_bundles.iter().map(|bundle| bundle.amount))?;
    Ok(vec![
        debit(Account::PlanCredit, event.expired),
        debit(Account::BundleCredit, bundles),
        credit(Account::ExpiredCredit, event.expired.plus(bundles)?)?,
    ])
}

const fn debit(account: Account, amount: Amount) -> Posting {
    Posting { account, amount }
}

fn credit(account: Account, amount: Amount) -> Result<Posting, Error> {
    Ok(Posting { account, amount: Amount::ZERO.minus(amount)? })
}

/// A debit of one account and the credit of another one.
fn transfer(from: Account, to: Account, amount: Amount) -> Result<JournalEntry, Error> {
    Ok(vec![debit(from, amount), credit(to, amount)?])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::event::codec;

    /// The golden files, of every kind of event: the name, the kind and the body.
    fn golden() -> Vec<(String, &'static str, Value)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
        files
            .map(|file| {
                let name = file.file_name().into_string().unwrap();
                let kind = codec::kinds().find(|kind| name.starts_with(&format!("{kind}.v1"))).unwrap();
                let body = std::fs::read_to_string(file.path()).unwrap();
                (name, kind, serde_json::from_str(&body).unwrap())
            })
            .collect()
    }

    /// Replaces each amount in a body, which has ten fractional digits.
    fn replace_amounts(value: &mut Value, next: &mut impl FnMut() -> Amount) {
        match value {
            Value::String(text) => {
                if text.split_once('.').is_some_and(|(_, fraction)| fraction.len() == 10)
                    && text.parse::<Amount>().is_ok()
                {
                    *text = next().to_string();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| replace_amounts(value, next)),
            Value::Object(members) => members.values_mut().for_each(|value| replace_amounts(value, next)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The entry of an event, after that of a payment for it, which is `paid`.
    fn entry(kind: &str, body: &Value, paid: Option<Amount>) -> Result<JournalEntry, Error> {
        let mut journal = Journal::from_any_append();
        let payment = body.get("payment_id").or_else(|| body.get("credit_id")).and_then(Value::as_str);
        if let (Some(amount), Some(payment)) = (paid, payment) {
            let (_, ulid) = payment.split_once('_').unwrap();
            journal.paid = Some((format!("pay_{ulid}").parse().unwrap(), amount));
        }
        journal.enter(&codec::decode(kind, 1, &body.to_string()).unwrap())
    }

    #[test]
    fn the_postings_of_every_golden_event_add_up_to_zero() {
        let (mut kinds, mut posted) = (std::collections::BTreeSet::new(), 0);
        for (name, kind, body) in golden() {
            let entry = entry(kind, &body, None).unwrap();
            assert!(is_balanced(&entry), "{name}: {entry:?}");
            kinds.insert(kind);
            posted += usize::from(!entry.is_empty());
        }
        assert_eq!(kinds.len(), codec::kinds().count());
        assert!(posted > 10, "{posted}");
    }

    #[test]
    fn a_fee_that_is_only_recorded_may_be_as_large_as_an_amount_can_be() {
        let mut entered = 0;
        for (name, kind, mut body) in golden() {
            if kind != "request.metered" || !body["parties"]["customer_id"].is_null() {
                continue;
            }
            // A call without a customer: the merchant is charged the provider's cost alone.
            body["fee"]["amount"] = Amount::MAX.to_string().into();
            body["model_cost"]["total"] = Amount::last_digits(7).to_string().into();
            body["total_request_cost"] = Amount::last_digits(7).to_string().into();
            let charged = Amount::ZERO.minus(Amount::last_digits(7)).unwrap();
            let entry = entry(kind, &body, None).unwrap();
            assert!(is_balanced(&entry), "{name}: {entry:?}");
            assert!(
                entry.contains(&Posting { account: Account::ProviderCost, amount: charged }),
                "{entry:?}"
            );
            entered += 1;
        }
        assert!(entered > 0, "no golden event of a call without a customer");
    }

    proptest! {
        #[test]
        fn postings_add_up_to_zero_whatever_the_amounts(
            digits in prop::collection::vec(0..u32::MAX, 40), paid in prop::option::of(0..u32::MAX)
        ) {
            let paid = paid.map(Amount::last_digits);
            for (name, kind, mut body) in golden() {
                let mut digits = digits.iter().cycle();
                replace_amounts(&mut body, &mut || Amount::last_digits(*digits.next().unwrap()));
                let entry = entry(kind, &body, paid).unwrap();
                // Their total and its parts are both in the event.
                if !matches!(kind, "wallet.debited" | "request.metered") {
                    prop_assert!(is_balanced(&entry), "{name}: {entry:?}");
                }
            }
        }
    }
}
