//! The bill of a call, before any wallet is read: the table "Who pays" of completion.md section 3. Invariant: each part
//! of the cost has one payer, the customer's wallet or the merchant, or none.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::refusal::{Refusal, RequestRefusal};
use crate::event::{Charge, Hold, ProviderKeyType, RequestMetered, RequestOpened, ServiceCharge};
use crate::meter::{Payer, RateType, Terms};
use crate::model_price::{ListPrice, ModelPrice};
use crate::money::{Amount, Error, Total};
use crate::pricing::{self, Bound, Fee, ModelCost, SizeHint};
use crate::usage::{Counted, Split, Usage};

/// The instance's settings for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSettings {
    /// The service charge as a share of the fee.
    pub service_charge_rate: Decimal,
    /// The hold, in dollars, of a call whose size has no upper bound.
    pub default_hold: Amount,
    /// The maximum hold, in dollars, of a call whose price is not known exactly.
    pub hold_cap: Amount,
}

/// The payer of each part of a call's cost; `None` for a part that nobody pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Payers {
    model_cost: Option<Payer>,
    fee: Option<Payer>,
    service_charge: Option<Payer>,
}

impl Payers {
    fn of(conditions: Conditions<'_>) -> Self {
        let Conditions { charge, spends_from, provider_key_type, terms, .. } = conditions;
        let price = terms.map(|terms| &terms.price);
        let wallet = Some(Payer::Wallet);
        let merchant = Some(Payer::Merchant);
        let (model_cost, fee, service_charge) = match charge {
            Charge::Merchant | Charge::MeterOnly => (merchant, None, None),
            Charge::Customer => (wallet, None, None),
            Charge::SpendKey => (Some(spends_from), None, None),
            Charge::CustomerBilling => (
                price.map(|price| price.base_cost_payer),
                wallet,
                price.map(|price| price.service_charge_payer),
            ),
            Charge::Recorded => (merchant, merchant, merchant),
            Charge::MeteringOnly => (None, None, None),
        };
        let model_cost = match provider_key_type {
            ProviderKeyType::Managed => model_cost,
            // The provider bills the owner of the key.
            ProviderKeyType::Unmanaged => None,
        };
        Self { model_cost, fee, service_charge }
    }

    /// The parts of the cost by payer.
    fn share(self, model_cost: Amount, fee: Amount, service_charge: Amount) -> Result<Hold, Error> {
        let parts = [(self.model_cost, model_cost), (self.fee, fee), (self.service_charge, service_charge)];
        let of = |payer: Payer| {
            Amount::sum(parts.iter().filter(|(bearer, _)| *bearer == Some(payer)).map(|(_, part)| *part))
        };
        Ok(Hold {
            wallet: of(Payer::Wallet)?,
            merchant: of(Payer::Merchant)?,
            beside_plan: false,
            plan_changes: 0,
        })
    }

    /// The service charge on `fee`; zero if nobody is charged the fee.
    fn service_charge(self, terms: Option<&Terms>, fee: Amount) -> Result<Amount, Error> {
        match (self.fee, terms) {
            (Some(_), Some(terms)) => pricing::service_charge(fee, terms.service_charge_rate),
            (None, _) | (_, None) => Ok(Amount::ZERO),
        }
    }
}

/// The parts of a call's cost that somebody is charged. The others are only recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChargedParts {
    /// The provider's cost.
    pub model_cost: bool,
    /// The meter's fee.
    pub fee: bool,
    /// The service charge.
    pub service_charge: bool,
}

impl ChargedParts {
    /// The charged parts of an admitted call.
    pub fn of(opened: &RequestOpened) -> Self {
        let Payers { model_cost, fee, service_charge } = Payers::of(Conditions::of(opened));
        Self {
            model_cost: model_cost.is_some(),
            fee: fee.is_some(),
            service_charge: service_charge.is_some(),
        }
    }

    /// The parts of an ended call that make up its total: those that were charged, as far as they are not zero.
    ///
    /// With a fee that somebody is charged comes its service charge, and a call without a customer is charged no fee. Parts
    /// that are only recorded may add up to more than an [`Amount`] can hold.
    pub fn of_end(metered: &RequestMetered) -> Result<Self, Error> {
        let total = Total::default().plus(metered.total_request_cost)?;
        let model_cost = Total::default().plus(metered.model_cost.total)?;
        let fees = Total::default().plus(metered.fee.amount)?.plus(metered.service_charge.amount)?;
        let is_for_customer = metered.parties.customer_id.is_some();
        let (model_cost, fee) = if total == model_cost.and(fees)? {
            (true, true)
        } else if total == fees && (is_for_customer || total != model_cost) {
            (false, true)
        } else {
            (total == model_cost, false)
        };
        Ok(Self { model_cost, fee, service_charge: fee })
    }
}

/// The payer of a service charge, as shown in a request.
pub fn service_charge_payer(charge: Charge, terms: Option<&Terms>) -> Payer {
    match (charge, terms) {
        (Charge::Recorded, _) | (_, None) => Payer::Merchant,
        (_, Some(terms)) => terms.price.service_charge_payer,
    }
}

/// The provider's price of a call. Refuses a call that is charged by this price if none is listed.
pub(super) fn needed_price(
    list_price: &ListPrice,
    provider_key_type: ProviderKeyType,
    terms: Option<&Terms>,
) -> Result<Option<ModelPrice>, Refusal> {
    let pays_by_it = provider_key_type == ProviderKeyType::Managed
        || terms.is_some_and(|terms| terms.price.rate_type == RateType::Percentage);
    match list_price {
        ListPrice::Unlisted if pays_by_it => Err(Refusal::Request(RequestRefusal::ModelNotPriced)),
        ListPrice::Nothing | ListPrice::Unlisted => Ok(None),
        ListPrice::Listed(price) => Ok(Some(price.clone())),
    }
}

/// The conditions of a call's price. All are known at its admission.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions<'a> {
    /// The allocation of the cost.
    pub(super) charge: Charge,
    /// The owner of a spend key's wallet: a customer or the merchant.
    pub(super) spends_from: Payer,
    /// The owner of the provider key.
    pub(super) provider_key_type: ProviderKeyType,
    /// The meter's price.
    pub(super) terms: Option<&'a Terms>,
    /// The provider's list price.
    pub(super) model_price: Option<&'a ModelPrice>,
}

impl<'a> Conditions<'a> {
    /// The conditions recorded in the event.
    pub(super) fn of(opened: &'a RequestOpened) -> Self {
        Self {
            charge: opened.charge,
            spends_from: opened.parties.customer_id.map_or(Payer::Merchant, |_| Payer::Wallet),
            provider_key_type: opened.provider_key_type,
            terms: opened.terms.as_ref(),
            model_price: opened.model_price.as_ref(),
        }
    }
}

/// The cost of a call, by payer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bill {
    /// The units counted on the meter.
    pub(super) units: Decimal,
    /// The cost by the provider's list price, independent of its payer.
    pub(super) model_cost: ModelCost,
    /// The fee by the meter, independent of its payer.
    pub(super) fee: Fee,
    /// The service charge.
    pub(super) service_charge: ServiceCharge,
    /// The part charged to the customer's wallet.
    pub(super) on_wallet: Amount,
    /// The part charged to the merchant.
    pub(super) on_merchant: Amount,
}

/// The bill of a call that reports `usage`, after a tier usage of `tier_usage`.
pub(super) fn bill(conditions: Conditions<'_>, usage: &Usage, tier_usage: Decimal) -> Result<Bill, Error> {
    let Conditions { charge, terms, .. } = conditions;
    let bearers = Payers::of(conditions);
    let model_cost = model_cost(conditions, usage)?;
    let (units, fee) = match terms {
        Some(Terms { price, .. }) => {
            let units = usage.units(price.tier_type, price.token_basis);
            (units, pricing::fee(price, tier_usage, units, model_cost.total)?)
        }
        None => (Decimal::ZERO, Fee::default()),
    };
    let amount = bearers.service_charge(terms, fee.amount)?;
    let shared = bearers.share(model_cost.total, fee.amount, amount)?;
    Ok(Bill {
        units,
        model_cost,
        fee,
        service_charge: ServiceCharge { amount, payer: service_charge_payer(charge, terms) },
        on_wallet: shared.wallet,
        on_merchant: shared.merchant,
    })
}

/// The provider's cost alone of a call that reports `usage`. It counts no units on the meter.
pub(super) fn cost_alone(conditions: Conditions<'_>, usage: &Usage) -> Result<Bill, Error> {
    let model_cost = model_cost(conditions, usage)?;
    let shared = Payers::of(conditions).share(model_cost.total, Amount::ZERO, Amount::ZERO)?;
    let payer = service_charge_payer(conditions.charge, conditions.terms);
    Ok(Bill {
        units: Decimal::ZERO,
        model_cost,
        fee: Fee::default(),
        service_charge: ServiceCharge { amount: Amount::ZERO, payer },
        on_wallet: shared.wallet,
        on_merchant: shared.merchant,
    })
}

fn model_cost(conditions: Conditions<'_>, usage: &Usage) -> Result<ModelCost, Error> {
    conditions.model_price.map_or_else(|| Ok(ModelCost::default()), |price| pricing::model_cost(price, usage))
}

/// Whether somebody is charged a fee above the largest one of the meter.
pub(super) fn is_above_max_fee(conditions: Conditions<'_>, bill: &Bill) -> bool {
    Payers::of(conditions).fee.is_some()
        && conditions.terms.is_some_and(|terms| terms.price.is_above_max(bill.fee.amount))
}

impl Bill {
    /// Raises the bill of a call of which no more became known, and returns by how much. The instance pays its provider
    /// for a call on a managed key, whatever became known. So the payer of the provider's cost pays the whole hold on its
    /// wallet, and at least a provider's cost of what was `counted`, which may be more: the hold may be the default one,
    /// or capped. What the bill does not explain of it counts as cost of the input. A bill above that stays.
    pub(super) fn raise_to_hold(
        &mut self,
        opened: &RequestOpened,
        counted: Option<Counted>,
    ) -> Result<Amount, Error> {
        if !charges_hold(opened) {
            return Ok(Amount::ZERO);
        }
        let (held, billed) = match Payers::of(Conditions::of(opened)).model_cost {
            Some(Payer::Wallet) => (opened.hold.wallet, &mut self.on_wallet),
            Some(Payer::Merchant) => (opened.hold.merchant, &mut self.on_merchant),
            None => return Ok(Amount::ZERO),
        };
        let cost_by_count = cost_by_count(opened.model_price.as_ref(), counted);
        let uncounted = cost_by_count.minus(self.model_cost.total)?;
        let rest = held.minus(*billed)?.max(uncounted).max(Amount::ZERO);
        *billed = billed.plus(rest)?;
        self.model_cost.input = self.model_cost.input.plus(rest)?;
        self.model_cost.total = self.model_cost.total.plus(rest)?;
        Ok(rest)
    }
}

/// Whether a call is charged its hold if its usage stays unknown: the instance pays the provider, for a call that costs
/// something there. Reading the list of models does not.
pub(super) fn charges_hold(opened: &RequestOpened) -> bool {
    opened.model_price.is_some() && Payers::of(Conditions::of(opened)).model_cost.is_some()
}

/// Whether a call costs the same whatever it uses: its price is one per call, or zero.
pub(super) fn is_cost_exact(opened: &RequestOpened) -> bool {
    opened
        .model_price
        .as_ref()
        .is_some_and(|price| matches!(pricing::max_model_cost(price, SizeHint::default()), Bound::Exact(_)))
}

/// What a call costs at most, as far as its input and what was streamed of its output are counted; and at least what the
/// characters of its input cost, if they are known, whatever else its price has a rate for.
fn cost_by_count(price: Option<&ModelPrice>, counted: Option<Counted>) -> Amount {
    let Some((price, counted)) = price.zip(counted) else { return Amount::ZERO };
    let Counted { input, output, characters } = counted;
    let size = SizeHint { max_output_tokens: Some(output), input_bytes: input, ..SizeHint::default() };
    let of_tokens = match pricing::max_model_cost(price, size) {
        Bound::Exact(bound) | Bound::AtMost(bound) => bound,
        // Nothing is counted of the seconds, and no tokens of a call that is billed by its characters.
        Bound::Unknown => Amount::ZERO,
    };
    let sent = Usage { characters: Split { input: characters, output: 0 }, ..Usage::default() };
    // No wallet covers a cost that is out of range. The hold is charged then.
    let of_characters = pricing::model_cost(price, &sent).map_or(Amount::ZERO, |cost| cost.total);
    of_tokens.max(of_characters)
}

/// The hold of a call on a spend key with a spend limit, and what the call takes of the limit until it ends: an upper bound
/// of its cost from its body's limits, else from those of its model; the hold cap where neither is known (completion.md
/// section 10). The bound is not capped. The hold on the wallet is at most the bound.
pub(super) fn key_hold(
    conditions: Conditions<'_>,
    size: SizeHint,
    hold: Hold,
    settings: &RequestSettings,
) -> Result<(Hold, Amount), Error> {
    let cost = match conditions.model_price.filter(|_| Payers::of(conditions).model_cost.is_some()) {
        Some(price) => pricing::max_model_cost_by_model(price, size),
        None => Bound::Exact(Amount::ZERO),
    };
    match cost {
        Bound::Exact(bound) | Bound::AtMost(bound) => {
            let (wallet, merchant) = (hold.wallet.min(bound), hold.merchant.min(bound));
            Ok((Hold { wallet, merchant, ..hold }, bound))
        }
        Bound::Unknown => Ok((hold, hold.total()?.max(settings.hold_cap))),
    }
}

/// The hold of a call. Each part is exact if it is known before the call, otherwise its upper bound or, without one,
/// the default. The sum of the inexact parts is capped.
pub(super) fn hold(
    conditions: Conditions<'_>,
    size: SizeHint,
    tier_usage: Decimal,
    settings: &RequestSettings,
) -> Result<Hold, Error> {
    let Conditions { terms, model_price, .. } = conditions;
    let bearers = Payers::of(conditions);
    let cost = match model_price {
        Some(price) => pricing::max_model_cost(price, size),
        None => Bound::Exact(Amount::ZERO),
    };
    let held = |bearer: Option<Payer>, bound: Bound, cap: Amount| match (bearer, bound) {
        (None, _) => Amount::ZERO,
        (Some(_), Bound::Exact(exact)) => exact,
        (Some(_), Bound::AtMost(bound)) => bound.min(cap),
        (Some(_), Bound::Unknown) => settings.default_hold.min(cap),
    };
    let (fee, cap) = match terms {
        Some(terms) => {
            let bound = pricing::max_fee(terms, tier_usage, size, cost)?;
            let fee = held(bearers.fee, bound, settings.hold_cap);
            match bound {
                Bound::Exact(_) => (fee, settings.hold_cap),
                Bound::AtMost(_) | Bound::Unknown => (fee, settings.hold_cap.minus(fee)?),
            }
        }
        None => (Amount::ZERO, settings.hold_cap),
    };
    let service_charge = bearers.service_charge(terms, fee)?;
    bearers.share(held(bearers.model_cost, cost, cap), fee, service_charge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, RequestEvent, codec};

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    fn characters(characters: u64) -> Counted {
        Counted { characters, ..Counted::default() }
    }

    #[test]
    fn what_was_counted_costs_what_its_characters_do_or_what_its_tokens_do_at_most() {
        let tokens = Some(Counted { input: 1_000_000, output: 2_000_000, characters: 0 });
        for (price, counted, cost) in [
            (r#"{"per_character":"0.001","output_per_1m":"12"}"#, Some(characters(6_000)), "6"),
            (r#"{"per_character":"0.001","input_per_1m":"1"}"#, Some(characters(6_000)), "6"),
            (
                r#"{"per_character":"0.001","per_second":"1","per_request":"0.25"}"#,
                Some(characters(6_000)),
                "6.25",
            ),
            (r#"{"per_character":"0.001","output_per_1m":"12"}"#, tokens, "0"),
            (r#"{"per_character":"1000000","output_per_1m":"12"}"#, Some(characters(u64::MAX)), "0"),
            (r#"{"input_per_1m":"1","output_per_1m":"2"}"#, tokens, "5"),
            (r#"{"input_per_1m":"1","output_per_1m":"2"}"#, None, "0"),
        ] {
            let listed: ModelPrice = serde_json::from_str(price).unwrap();
            assert_eq!(cost_by_count(Some(&listed), counted), amount(cost), "{price} {counted:?}");
        }
        assert_eq!(cost_by_count(None, tokens), Amount::ZERO);
    }

    #[test]
    fn a_bill_is_raised_to_its_hold_or_to_the_cost_of_the_characters_that_were_sent_without_any_fee() {
        let golden = include_str!("../../tests/golden/request.opened.v1.priced.json");
        let Event::Request(RequestEvent::Opened(opened)) =
            codec::decode("request.opened", 1, golden).unwrap()
        else {
            panic!("{golden}");
        };
        let unraised = bill(Conditions::of(&opened), &Usage::default(), Decimal::ZERO).unwrap();
        // Without any usage it is the price per call. 0.25 dollars are held.
        assert_eq!(unraised.model_cost.total, amount("0.01"));
        let to_hold = amount("0.25").minus(unraised.on_wallet).unwrap();
        let cases =
            [(None, to_hold), (Some(characters(1_000)), to_hold), (Some(characters(100_000)), amount("1.5"))];
        for (counted, rest) in cases {
            let mut raised = unraised.clone();
            assert_eq!(raised.raise_to_hold(&opened, counted), Ok(rest), "{counted:?}");
            assert_eq!(raised.on_wallet, unraised.on_wallet.plus(rest).unwrap());
            assert_eq!(raised.model_cost.total, unraised.model_cost.total.plus(rest).unwrap());
            assert_eq!((&raised.fee, raised.units), (&unraised.fee, unraised.units));
            assert_eq!(raised.service_charge, unraised.service_charge);
            assert_eq!(raised.on_merchant, unraised.on_merchant);
        }
    }
}
