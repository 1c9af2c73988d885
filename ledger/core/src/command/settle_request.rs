//! `SettleRequest`: settles a call. A metered call is priced by the terms of its admission. One append debits its
//! wallets and releases its hold. A failed call only releases its hold.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::auto_recharge::Need;
use super::bill::{Bill, Conditions, bill, charges_hold, cost_alone, is_above_max_fee, is_cost_exact};
use super::decision::{Command, DecideError, Decision};
use super::refusal::{Refusal, RequestRefusal};
use crate::event::{
    Event, FailureReason, Hold, Mark, RequestFailed, RequestMetered, Source, WalletDebited, WalletEvent,
    WalletSource,
};
use crate::hold_scope::{CreditScope, HoldScope};
use crate::ids::{CustomerId, MeterId, PaymentId, RequestId, WalletId};
use crate::money::{self, Amount};
use crate::state::{self, Holder, StateCache, Wallet};
use crate::usage::{Counted, Usage};

/// An automatic payment that a settlement requests has the id of its request, with some of the highest bits of the
/// random part flipped, so that it differs from the id of every other payment.
const CUSTOMERS_PAYMENT: u128 = 1 << 79;
const MERCHANTS_PAYMENT: u128 = 1 << 78;

/// A call with a 2xx response of the provider, or one that was sent and given up before any response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metered {
    /// The provider's status; 0 without a response.
    pub http_status: u16,
    /// The reported usage; `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// Whether the response was complete.
    pub ending: Completeness,
    /// What was counted of a call whose usage stays unknown and whose hold may be less than its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// The raw usage, stored if it is not believed.
    pub raw_usage: Option<String>,
    /// The provider's own id of its response.
    pub response_id: Option<String>,
    /// The model named by the response.
    pub model: Option<String>,
    /// The completion time that the provider returned.
    pub provider_timestamp: Option<DateTime<Utc>>,
}

/// Whether a response was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// It was complete.
    Whole,
    /// It broke off; the usage reported until then is charged.
    Partial,
    /// It was complete, but could not be read for its usage. On a managed provider key it is charged its hold.
    Unread,
    /// The gateway closed the provider's connection before the usage of the output was reported: the caller had left, a
    /// timeout had passed, or the gateway stopped. Or the usage of the output may stand in what could not be read of a
    /// complete response. On a managed provider key the call is charged its hold. On the caller's
    /// own, if nothing was reported, it fails for this reason; but a response that its caller left counts as a call, where
    /// the meter counts calls.
    GivenUp(FailureReason),
    /// The usage that it reported is more than the call could have used. On a managed provider key it is charged its hold;
    /// on the caller's own it fails as `usage_invalid`.
    Implausible,
}

/// A call that is not metered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The reason.
    pub reason: FailureReason,
    /// The provider's status, if it responded.
    pub http_status: Option<u16>,
    /// The raw usage, if it was rejected as implausible.
    pub raw_usage: Option<String>,
    /// The provider's own id of its response.
    pub response_id: Option<String>,
    /// The model named by the response.
    pub model: Option<String>,
}

impl Failed {
    /// A failure with a reason and no other details.
    pub fn because(reason: FailureReason) -> Self {
        Self { reason, http_status: None, raw_usage: None, response_id: None, model: None }
    }
}

impl Metered {
    /// The provider's status, if it responded.
    pub fn status(&self) -> Option<u16> {
        (self.http_status != 0).then_some(self.http_status)
    }

    fn failed(&self, reason: FailureReason) -> Failed {
        Failed {
            reason,
            http_status: self.status(),
            raw_usage: self.raw_usage.clone(),
            response_id: self.response_id.clone(),
            model: self.model.clone(),
        }
    }
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It is metered.
    Metered(Metered),
    /// It is not metered.
    Failed(Failed),
}

/// Whether a call is charged its fees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fees {
    Charged,
    /// They are too large.
    LeftOut,
}

/// Settles a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {
    /// The request.
    pub request_id: RequestId,
    /// The end of the call.
    pub settled: Settled,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl SettleRequest {
    fn failed(&self, open: &state::AdmittedRequest, failed: &Failed) -> Decision<Option<FailureReason>> {
        let unmetered = matches!(self.settled, Settled::Metered(_)).then_some(failed.reason);
        let event = Event::from(Box::new(RequestFailed {
            request_id: self.request_id,
            parties: open.parties(),
            hold: open.hold(),
            reason: failed.reason,
            http_status: failed.http_status,
            raw_usage: failed.raw_usage.clone(),
            response_id: failed.response_id.clone(),
            model: failed.model.clone(),
            spend_key: open.opened.spend_key,
        }));
        Decision::append(open.merchant_id, self.now, vec![event], unmetered)
    }

    /// Settles a metered call: prices it, debits the wallets and releases the hold.
    pub(super) fn metered(
        &self,
        states: &StateCache,
        open: &state::AdmittedRequest,
        metered: &Metered,
        fees: Fees,
    ) -> Result<Decision<Option<FailureReason>>, DecideError> {
        let opened = &*open.opened;
        let parties = open.parties();
        let position = tier_position(states, open)?;
        let usage = metered.usage.unwrap_or_default();
        let is_usage_open = match metered.ending {
            Completeness::Whole | Completeness::Partial => false,
            Completeness::Unread => metered.usage.is_none(),
            Completeness::GivenUp(_) | Completeness::Implausible => true,
        } && !is_cost_exact(opened);
        let is_implausible = metered.ending == Completeness::Implausible || fees == Fees::LeftOut;
        let conditions = Conditions::of(opened);
        let mut bill = match fees {
            Fees::Charged => bill(conditions, &usage, position)?,
            Fees::LeftOut => cost_alone(conditions, &usage)?,
        };
        if is_above_max_fee(conditions, &bill) {
            return Err(money::Error::OutOfRange.into());
        }
        let charged_of_hold =
            if is_usage_open { bill.raise_to_hold(opened, metered.counted)? } else { Amount::ZERO };

        // Money held for other calls is not available to this one.
        let meter_id = opened.terms.as_ref().map(|terms| terms.meter_id);
        let draw = match parties.wallet_id {
            Some(id) => Draw::of(states, id, opened.hold, meter_id, bill.on_wallet)?,
            None => Draw::default(),
        };
        let covered = draw.amount;
        let overrun = bill.on_wallet.minus(covered)?;
        let on_merchant = bill.on_merchant.plus(overrun)?;

        let mut marks = Vec::new();
        marks.extend(is_implausible.then_some(Mark::UsageInvalid));
        marks.extend((metered.usage.is_none() && !is_implausible).then_some(Mark::UsageMissing));
        marks.extend(charged_of_hold.is_positive().then_some(Mark::HoldCharged));
        let is_partial = matches!(metered.ending, Completeness::Partial | Completeness::GivenUp(_));
        marks.extend(is_partial.then_some(Mark::Partial));
        marks.extend(overrun.is_positive().then_some(Mark::Overrun));
        let mut events = vec![Event::from(Box::new(RequestMetered {
            request_id: self.request_id,
            parties,
            meter_id,
            period_start: opened.period_start,
            opened_at: Some(open.opened_at),
            hold: opened.hold,
            http_status: metered.http_status,
            usage,
            counted: metered.counted.filter(|_| is_usage_open && charges_hold(opened)),
            tier_position: position,
            units: bill.units,
            model_cost: bill.model_cost,
            fee: bill.fee,
            service_charge: bill.service_charge,
            total_request_cost: covered.plus(on_merchant)?,
            total_wallet_cost: covered,
            total_merchant_cost: on_merchant,
            overrun,
            marks,
            raw_usage: metered.raw_usage.as_ref().filter(|_| is_implausible).cloned(),
            response_id: metered.response_id.clone(),
            model: metered.model.clone(),
            provider_timestamp: metered.provider_timestamp,
            spend_key: opened.spend_key,
        }))];
        if let Some(wallet_id) = parties.wallet_id {
            events.extend(self.debit(wallet_id, parties.customer_id, draw)?);
        }
        let merchant = states.wallet(parties.merchant_wallet_id)?.expect("a merchant has a wallet");
        let draw = Draw::from(merchant, on_merchant, CreditScope::All)?;
        events.extend(self.debit(parties.merchant_wallet_id, None, draw)?);
        events.extend(self.automatic_payments(states, open, meter_id, overrun, &events)?);
        Ok(Decision::append(open.merchant_id, self.now, events, None))
    }

    fn metered_plausibly(
        &self,
        states: &StateCache,
        open: &state::AdmittedRequest,
        metered: &Metered,
    ) -> Result<Decision<Option<FailureReason>>, DecideError> {
        if metered.ending == Completeness::Implausible {
            return Err(money::Error::OutOfRange.into());
        }
        self.metered(states, open, metered, Fees::Charged)
    }

    /// Settles a call whose usage is not believed: it cannot be priced, costs more than a wallet can hold, or is more than
    /// the call could have used; or its fee is above the largest one of its meter. On the caller's own provider key it is
    /// stored raw, uncharged. The instance pays its provider, whatever a merchant lets a call cost: without a fee that is too
    /// large, the provider's cost is charged, or, if that cannot be, the hold.
    fn metered_implausibly(
        &self,
        states: &StateCache,
        open: &state::AdmittedRequest,
        metered: &Metered,
    ) -> Result<Decision<Option<FailureReason>>, DecideError> {
        let failed = || Ok(self.failed(open, &metered.failed(FailureReason::UsageInvalid)));
        if !charges_hold(&open.opened) {
            return failed();
        }
        let unbelieved = Metered { usage: None, ending: Completeness::Implausible, ..metered.clone() };
        let believed = (metered.ending != Completeness::Implausible).then_some((metered, Fees::LeftOut));
        let of_hold = [(&unbelieved, Fees::Charged), (&unbelieved, Fees::LeftOut)];
        for (metered, fees) in believed.into_iter().chain(of_hold) {
            match self.metered(states, open, metered, fees) {
                // It cannot be priced, or a wallet cannot take it.
                Err(DecideError::Refused(Refusal::Amount(_))) => {}
                decided => return decided,
            }
        }
        failed()
    }

    fn debit(
        &self,
        wallet_id: WalletId,
        customer_id: Option<CustomerId>,
        draw: Draw,
    ) -> Result<Option<Event>, DecideError> {
        let Draw { amount, sources, balance } = draw;
        if amount.is_zero() {
            return Ok(None);
        }
        let from_balance =
            sources.iter().filter(|part| part.source == Source::Balance).map(|part| part.amount);
        let balance_after = balance.minus(Amount::sum(from_balance)?)?;
        Ok(Some(Event::from(WalletDebited {
            request_id: self.request_id,
            wallet_id,
            customer_id,
            amount,
            sources,
            balance_after,
        })))
    }

    /// The automatic payments of the wallets after `events`. `overrun` is the part that the customer's wallet did not cover.
    fn automatic_payments(
        &self,
        states: &StateCache,
        open: &state::AdmittedRequest,
        meter_id: Option<MeterId>,
        overrun: Amount,
        events: &[Event],
    ) -> Result<Vec<Event>, DecideError> {
        let (parties, hold) = (open.parties(), open.hold());
        let customers =
            parties.wallet_id.map(|id| (id, hold.wallet, hold.scope(), overrun, CUSTOMERS_PAYMENT));
        let merchant_wallet_id = parties.merchant_wallet_id;
        let merchants = (merchant_wallet_id, hold.merchant, HoldScope::ALL, Amount::ZERO, MERCHANTS_PAYMENT);
        let mut payments = Vec::new();
        for (wallet_id, held, scope, overrun, mark) in customers.into_iter().chain([merchants]) {
            let wallet = states.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
            if !wallet.auto_recharge() {
                continue;
            }
            let mut after = wallet.clone();
            let mut is_involved = held.is_positive() || overrun.is_positive();
            after.release(held, scope)?;
            for event in events {
                if let Event::Wallet(WalletEvent::Debited(debited)) = event
                    && debited.wallet_id == wallet_id
                {
                    after.debit(&debited.sources)?;
                    is_involved = true;
                }
            }
            // A call that asks nothing of this wallet does not trigger a payment.
            if !is_involved {
                continue;
            }
            // A report has no hold. Its overrun is money that the wallet lacked.
            let (hold, credit_scope) = (held.max(overrun), after.credit_scope(meter_id));
            let need = Need { wallet_id, wallet: &after, hold, credit_scope };
            let payment_id = PaymentId::new(Ulid(self.request_id.ulid().0 ^ mark));
            payments.extend(need.payment(states, payment_id, states.now(open.merchant_id, self.now)?)?);
        }
        Ok(payments)
    }
}

/// The money drawn from a wallet.
#[derive(Debug, Default)]
struct Draw {
    /// The amount: the sum of the sources.
    amount: Amount,
    /// The sources, in order.
    sources: Vec<WalletSource>,
    /// The balance before it.
    balance: Amount,
}

impl Draw {
    /// The draw of as much of `wanted` as the customer's wallet covers after `hold` is released. Money held for other
    /// calls is not available.
    fn of(
        states: &StateCache,
        wallet_id: WalletId,
        hold: Hold,
        meter_id: Option<MeterId>,
        wanted: Amount,
    ) -> Result<Self, DecideError> {
        if !wanted.is_positive() {
            return Ok(Self::default());
        }
        let wallet = states.wallet(wallet_id)?.expect("a customer has a wallet");
        let credit_scope = wallet.credit_scope(meter_id);
        let mut freed = wallet.clone();
        freed.release(hold.wallet, hold.scope())?;
        let available = freed.available(credit_scope)?.max(Amount::ZERO);
        Ok(Self::from(&freed, wanted.min(available), credit_scope)?)
    }

    fn from(wallet: &Wallet, amount: Amount, credit_scope: CreditScope) -> Result<Self, money::Error> {
        Ok(Self { amount, sources: wallet.draw(amount, credit_scope)?, balance: wallet.balance })
    }
}

/// The position of a call in the tiers of its meter.
fn tier_position(states: &StateCache, open: &state::AdmittedRequest) -> Result<Decimal, DecideError> {
    let holder = open.parties().customer_id.map_or(Holder::Merchant(open.merchant_id), Holder::Customer);
    Ok(match (&open.opened.terms, open.opened.period_start) {
        (Some(terms), Some(start)) => states.tier_usage(holder, terms.meter_id, start)?,
        _ => Decimal::ZERO,
    })
}

/// Whether a call that was given up for `reason`, and is charged no hold, counts all the same: its caller left a response,
/// and a response without any usage counts for its meter, or is owed a fee, such as a percentage of a price per call.
fn counts_as_a_call(
    states: &StateCache,
    open: &state::AdmittedRequest,
    metered: &Metered,
    reason: FailureReason,
) -> Result<bool, DecideError> {
    if reason != FailureReason::CallerGone || metered.status().is_none() {
        return Ok(false);
    }
    let conditions = Conditions::of(&open.opened);
    let bill = bill(conditions, &Usage::default(), tier_position(states, open)?);
    let counts = |bill: &Bill| bill.units > Decimal::ZERO || bill.fee.amount.is_positive();
    Ok(bill.is_ok_and(|bill| !is_above_max_fee(conditions, &bill) && counts(&bill)))
}

impl Command for SettleRequest {
    /// Why a call fails that was to be metered. `None` for one that ends as it was to end: on the wire that is the outcome
    /// without a value, as releases before gave it and read it.
    type Outcome = Option<FailureReason>;

    fn decide(&self, states: &StateCache) -> Result<Decision<Option<FailureReason>>, DecideError> {
        let open = states.request(self.request_id)?.ok_or(RequestRefusal::NotOpen)?;
        match &self.settled {
            Settled::Metered(
                metered @ Metered { usage: None, ending: Completeness::GivenUp(reason), .. },
            ) if !charges_hold(&open.opened) && !counts_as_a_call(states, open, metered, *reason)? => {
                Ok(self.failed(open, &metered.failed(*reason)))
            }
            Settled::Metered(metered) => match self.metered_plausibly(states, open, metered) {
                Err(DecideError::Refused(Refusal::Amount(_))) => {
                    self.metered_implausibly(states, open, metered)
                }
                decided => decided,
            },
            Settled::Failed(failed) => Ok(self.failed(open, failed)),
        }
    }
}
