//! The entries of a wallet: each change of its money, as a statement lists it.
//!
//! Invariant: the entries of a wallet, added up from its creation, are its balance and its credit at every position.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{
    CancelReason, CycleEnded, Event, Source, SubscriptionCancelled, SubscriptionEvent, WalletCredited,
    WalletDebited, WalletEvent,
};
use crate::ids::{
    CreditBundleId, CreditId, CustomerId, PaymentId, PlanId, RequestId, SubscriptionId, WalletId,
};
use crate::money::{Amount, Error};

/// The money in a wallet, or a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Funds {
    /// The balance, without credit.
    pub balance: Amount,
    /// The credit of the plan.
    pub plan_credit: Amount,
    /// The credit of bundles.
    pub bundle_credit: Amount,
}

impl Funds {
    /// Balance and credit.
    pub fn total(self) -> Result<Amount, Error> {
        self.balance.plus(self.plan_credit)?.plus(self.bundle_credit)
    }

    /// The sum, part by part.
    pub fn plus(self, other: Self) -> Result<Self, Error> {
        Ok(Self {
            balance: self.balance.plus(other.balance)?,
            plan_credit: self.plan_credit.plus(other.plan_credit)?,
            bundle_credit: self.bundle_credit.plus(other.bundle_credit)?,
        })
    }

    /// Whether there is no money in any part.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// What changed the money of a wallet. It is stored in rows of the read model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Money was added to the balance, by a payment or by an operator.
    Credit {
        /// The credit.
        credit_id: CreditId,
        /// Why it was added.
        reason: String,
    },
    /// A call was charged.
    Debit {
        /// The call.
        request_id: RequestId,
    },
    /// A plan granted credit for a cycle.
    Grant {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// Its plan.
        plan_id: PlanId,
        /// The payment that paid for the cycle, unless it was free.
        payment_id: Option<PaymentId>,
    },
    /// A bundle granted credit.
    BundleGrant {
        /// The bundle.
        credit_bundle_id: CreditBundleId,
        /// The payment that paid for it.
        payment_id: PaymentId,
    },
    /// Credit expired at the end of a cycle.
    Expiry {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// When the cycle ended.
        ended_at: DateTime<Utc>,
    },
    /// Credit expired with the end of its subscription.
    Cancellation {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// Why it ended.
        reason: CancelReason,
    },
}

impl Cause {
    /// The name of its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Credit { .. } => "credit",
            Self::Debit { .. } => "debit",
            Self::Grant { .. } => "grant",
            Self::BundleGrant { .. } => "bundle_grant",
            Self::Expiry { .. } => "expiry",
            Self::Cancellation { .. } => "cancellation",
        }
    }

    /// The id of the credit, call, subscription or payment that it is about.
    pub fn reference(&self) -> String {
        match self {
            Self::Credit { credit_id, .. } => credit_id.to_string(),
            Self::Debit { request_id } => request_id.to_string(),
            Self::Grant { subscription_id, .. }
            | Self::Expiry { subscription_id, .. }
            | Self::Cancellation { subscription_id, .. } => subscription_id.to_string(),
            Self::BundleGrant { payment_id, .. } => payment_id.to_string(),
        }
    }

    /// What it says beyond its kind and its reference, for people. Empty for a call.
    pub fn note(&self) -> String {
        match self {
            Self::Credit { reason, .. } => reason.clone(),
            Self::Debit { .. } => String::new(),
            Self::Grant { plan_id, payment_id: Some(payment_id), .. } => {
                format!("{plan_id}, paid by {payment_id}")
            }
            Self::Grant { plan_id, payment_id: None, .. } => format!("{plan_id}, free"),
            Self::BundleGrant { credit_bundle_id, .. } => credit_bundle_id.to_string(),
            Self::Expiry { ended_at, .. } => {
                format!("cycle ended {}", ended_at.to_rfc3339_opts(SecondsFormat::Millis, true))
            }
            Self::Cancellation { reason, .. } => serde_json::to_value(reason)
                .ok()
                .and_then(|name| name.as_str().map(ToOwned::to_owned))
                .unwrap_or_default(),
        }
    }
}

/// An entry of a wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The wallet.
    pub wallet_id: WalletId,
    /// Its customer; none for a merchant's wallet.
    pub customer_id: Option<CustomerId>,
    /// What changed its money.
    #[serde(flatten)]
    pub cause: Cause,
    /// The change: positive parts were added, negative ones taken.
    pub change: Funds,
    /// The balance after it, as the event states it. Events that change only credit state none.
    #[serde(skip)]
    pub stated_balance: Option<Amount>,
}

impl Entry {
    /// The entry of an event; `None` for an event that changes no wallet's money.
    pub fn of(event: &Event) -> Result<Option<Self>, Error> {
        let entry = match event {
            Event::Wallet(WalletEvent::Credited(event)) => credited(event),
            Event::Wallet(WalletEvent::Debited(event)) => debited(event)?,
            Event::Subscription(event) => match subscription(event)? {
                Some(entry) => entry,
                None => return Ok(None),
            },
            Event::Wallet(WalletEvent::AutopayChanged(_))
            | Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => return Ok(None),
        };
        Ok(Some(entry).filter(|entry| !entry.change.is_zero()))
    }
}

fn credited(event: &WalletCredited) -> Entry {
    Entry {
        wallet_id: event.wallet_id,
        customer_id: event.customer_id,
        cause: Cause::Credit { credit_id: event.credit_id, reason: event.reason.clone() },
        change: Funds { balance: event.amount, ..Funds::default() },
        stated_balance: Some(event.balance_after),
    }
}

fn debited(event: &WalletDebited) -> Result<Entry, Error> {
    let mut change = Funds::default();
    for part in &event.sources {
        let from = match part.source {
            Source::Balance => &mut change.balance,
            Source::PlanCredit(_) => &mut change.plan_credit,
            Source::BundleCredit(_) => &mut change.bundle_credit,
        };
        *from = from.minus(part.amount)?;
    }
    Ok(Entry {
        wallet_id: event.wallet_id,
        customer_id: event.customer_id,
        cause: Cause::Debit { request_id: event.request_id },
        change,
        stated_balance: Some(event.balance_after),
    })
}

fn subscription(event: &SubscriptionEvent) -> Result<Option<Entry>, Error> {
    let granted = |subscriber: &crate::event::Subscriber, plan_id, payment_id, granted| Entry {
        wallet_id: subscriber.wallet_id,
        customer_id: Some(subscriber.customer_id),
        cause: Cause::Grant { subscription_id: subscriber.subscription_id, plan_id, payment_id },
        change: Funds { plan_credit: granted, ..Funds::default() },
        stated_balance: None,
    };
    Ok(Some(match event {
        SubscriptionEvent::Started(event) => {
            granted(&event.subscriber, event.plan_id, event.payment_id, event.granted)
        }
        SubscriptionEvent::Renewed(event) => {
            granted(&event.subscriber, event.plan_id, event.payment_id, event.granted)
        }
        SubscriptionEvent::Upgraded(event) => {
            granted(&event.subscriber, event.plan_id, event.payment_id, event.granted)
        }
        SubscriptionEvent::BundlePurchased(event) => Entry {
            wallet_id: event.wallet_id,
            customer_id: Some(event.customer_id),
            cause: Cause::BundleGrant {
                credit_bundle_id: event.credit_bundle_id,
                payment_id: event.payment_id,
            },
            change: Funds { bundle_credit: event.granted, ..Funds::default() },
            stated_balance: None,
        },
        SubscriptionEvent::CycleEnded(event) => cycle_ended(event)?,
        SubscriptionEvent::Cancelled(event) => cancelled(event)?,
        SubscriptionEvent::Updated(_) | SubscriptionEvent::RenewalFailed(_) => return Ok(None),
    }))
}

fn cycle_ended(event: &CycleEnded) -> Result<Entry, Error> {
    let bundles = Amount::sum(event.expired_bundles.iter().map(|bundle| bundle.amount))?;
    Ok(Entry {
        wallet_id: event.subscriber.wallet_id,
        customer_id: Some(event.subscriber.customer_id),
        cause: Cause::Expiry { subscription_id: event.subscriber.subscription_id, ended_at: event.ended_at },
        change: Funds {
            plan_credit: Amount::ZERO.minus(event.expired)?,
            bundle_credit: Amount::ZERO.minus(bundles)?,
            ..Funds::default()
        },
        stated_balance: None,
    })
}

fn cancelled(event: &SubscriptionCancelled) -> Result<Entry, Error> {
    Ok(Entry {
        wallet_id: event.subscriber.wallet_id,
        customer_id: Some(event.subscriber.customer_id),
        cause: Cause::Cancellation {
            subscription_id: event.subscriber.subscription_id,
            reason: event.reason,
        },
        change: Funds { plan_credit: Amount::ZERO.minus(event.expired)?, ..Funds::default() },
        stated_balance: None,
    })
}
