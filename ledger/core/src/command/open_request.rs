//! `OpenRequest`: admits a call. It checks the credential, bounds the cost and holds the money (completion.md section
//! 3).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::bill::{self, Conditions, RequestSettings};
use super::decision::{Command, DecideError, Decision, metadata_bytes};
use super::key_limits::KeyLimits;
use super::refusal::{
    CustomerRefusal, MeterRefusal, Refusal, RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, WalletRefusal,
    WalletShortfall,
};
use crate::event::{self, Charge, Event, Hold, Parties, ProviderKeyType};
use crate::hold_scope::CreditScope;
use crate::ids::{CustomerId, GatewayId, MerchantId, MeterId, RequestId, SpendKeyId};
use crate::meter::{OnDisconnect, Payer, Terms};
use crate::model_price::ListPrice;
use crate::period::period_around;
use crate::pricing::SizeHint;
use crate::secret::{self, KeyHash};
use crate::state::{AdmittedRequest, CEILING, Customer, Holder, Merchant, Missing, StateCache};

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// The merchant, by the hash of a secret key.
    SecretKey(KeyHash),
    /// The owner of a spend key, by its hash. The key's wallet pays, and its limits apply.
    SpendKey(KeyHash),
}

/// The customer named by a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CustomerRef {
    /// By id.
    Id(CustomerId),
    /// By the merchant's own identifier.
    Reference(String),
    /// By a connection secret that this instance derived.
    Secret(CustomerId),
}

/// The meter named by a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeterRef {
    /// By id.
    Id(MeterId),
    /// By its slug.
    Slug(String),
    /// By a product secret that this instance derived.
    Secret(MeterId),
}

impl CustomerRef {
    /// Finds the merchant's customer.
    pub(super) fn find<'w>(
        &self,
        states: &'w StateCache,
        merchant_id: MerchantId,
    ) -> Result<(CustomerId, &'w Customer), DecideError> {
        let (id, unknown) = match self {
            Self::Id(id) => (*id, Refusal::Customer(CustomerRefusal::NotFound)),
            Self::Secret(id) => (*id, Refusal::Customer(CustomerRefusal::SecretInvalid)),
            Self::Reference(reference) => {
                let id = states.reference(merchant_id, reference)?.ok_or(CustomerRefusal::NotFound)?;
                (*id, Refusal::Customer(CustomerRefusal::NotFound))
            }
        };
        let customer = states.customer(id)?.filter(|customer| customer.merchant_id == merchant_id);
        Ok((id, customer.ok_or(unknown)?))
    }
}

impl MeterRef {
    /// Finds the merchant's meter and returns its present terms.
    pub(super) fn terms(
        &self,
        states: &StateCache,
        merchant_id: MerchantId,
        service_charge_rate: Decimal,
    ) -> Result<Terms, DecideError> {
        let (meter_id, unknown) = match self {
            Self::Id(id) => (*id, Refusal::Meter(MeterRefusal::NotFound)),
            Self::Secret(id) => (*id, Refusal::Meter(MeterRefusal::SecretInvalid)),
            Self::Slug(slug) => {
                let id = states.meter_slug(merchant_id, slug)?.ok_or(MeterRefusal::NotFound)?;
                (*id, Refusal::Meter(MeterRefusal::NotFound))
            }
        };
        let meter = states.meter(meter_id)?.filter(|meter| meter.merchant_id == merchant_id);
        let price = meter.ok_or(unknown)?.price.clone();
        Ok(Terms { meter_id, price, service_charge_rate })
    }
}

/// The billing of a call with a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Billing {
    /// By the credential and the meter.
    Usual,
    /// `disable_billing`: recorded on the customer, paid by the merchant.
    Disabled,
    /// Customer and meter are explicitly null and the provider key is the caller's own: metering only.
    MeteringOnly,
}

/// Admits a call and reserves its hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    /// A new id.
    pub request_id: RequestId,
    /// The gateway process that forwards it.
    pub gateway_id: GatewayId,
    /// The caller's merchant, among whose commands it waits. The decision finds the merchant by the caller.
    pub merchant_id: MerchantId,
    /// The caller.
    pub caller: Caller,
    /// The customer, if the call names one. A call with a spend key is for the key's customer, if any.
    pub customer: Option<CustomerRef>,
    /// The meter, if any.
    pub meter: Option<MeterRef>,
    /// The billing.
    pub billing: Billing,
    /// The provider's name.
    pub provider: String,
    /// The owner of the provider key.
    pub provider_key_type: ProviderKeyType,
    /// Method and full forwarded URL.
    pub endpoint: String,
    /// The model named by the request body. It is recorded without secrets of this service.
    pub model: Option<String>,
    /// The provider's list price of the call.
    pub list_price: ListPrice,
    /// Free key-value pairs of the caller. They are recorded without secrets of this service.
    pub metadata: BTreeMap<String, String>,
    /// The known size of the call.
    pub size: SizeHint,
    /// The instance's settings.
    pub settings: RequestSettings,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// An admitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The hold.
    pub hold: Hold,
    /// What happens to the call if its caller disconnects.
    pub on_disconnect: OnDisconnect,
    /// The customer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<CustomerId>,
    /// The spend key, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_key_id: Option<SpendKeyId>,
}

/// The merchant, the customer and the spend key of a call.
struct Principals<'w> {
    merchant_id: MerchantId,
    customer: Option<(CustomerId, &'w Customer)>,
    key: Option<KeyLimits<'w>>,
}

impl OpenRequest {
    fn principals<'w>(&self, states: &'w StateCache) -> Result<Principals<'w>, DecideError> {
        match &self.caller {
            Caller::SecretKey(hash) => {
                let merchant_id = states.secret_key(hash)?.ok_or(SecretKeyRefusal::Invalid)?.merchant_id;
                Ok(Principals { merchant_id, customer: self.customer(states, merchant_id)?, key: None })
            }
            Caller::SpendKey(hash) => {
                let unknown = Refusal::SpendKey(SpendKeyRefusal::Invalid);
                let spend_key_id = *states.spend_key_of(hash)?.ok_or(unknown.clone())?;
                let key = states.spend_key(spend_key_id)?.ok_or(unknown.clone())?;
                let spending = states.spending(spend_key_id)?.ok_or(unknown.clone())?;
                let customer = match key.customer_id {
                    Some(id) => Some((id, states.customer(id)?.ok_or(unknown)?)),
                    None => None,
                };
                let limits = KeyLimits { spend_key_id, key, spending };
                Ok(Principals { merchant_id: key.merchant_id, customer, key: Some(limits) })
            }
        }
    }

    fn customer<'w>(
        &self,
        states: &'w StateCache,
        merchant_id: MerchantId,
    ) -> Result<Option<(CustomerId, &'w Customer)>, DecideError> {
        self.customer.as_ref().map(|customer| customer.find(states, merchant_id)).transpose()
    }

    fn terms(&self, states: &StateCache, merchant_id: MerchantId) -> Result<Option<Terms>, DecideError> {
        let service_charge_rate = self.settings.service_charge_rate;
        self.meter.as_ref().map(|meter| meter.terms(states, merchant_id, service_charge_rate)).transpose()
    }

    /// The row of the table "Who pays" (completion.md section 3).
    fn charge(&self, has_customer: bool, has_meter: bool) -> Charge {
        if let Caller::SpendKey(_) = self.caller {
            return Charge::SpendKey;
        }
        match (self.billing, has_customer, has_meter) {
            (Billing::MeteringOnly, _, _) => Charge::MeteringOnly,
            (Billing::Disabled, true, _) => Charge::Recorded,
            (_, false, false) => Charge::Merchant,
            (_, false, true) => Charge::MeterOnly,
            (_, true, false) => Charge::Customer,
            (_, true, true) => Charge::CustomerBilling,
        }
    }

    /// Refuses a hold that a wallet cannot cover.
    fn admit(states: &StateCache, parties: Parties, hold: Hold) -> Result<(), DecideError> {
        for (wallet_id, needed, credit_scope) in [
            (parties.wallet_id, hold.wallet, hold.credit_scope()),
            (Some(parties.merchant_wallet_id), hold.merchant, CreditScope::All),
        ] {
            let Some(wallet_id) = wallet_id.filter(|_| needed.is_positive()) else { continue };
            let wallet = states.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
            let available = wallet.available(credit_scope)?;
            if available.minus(needed)?.is_negative() {
                let auto_recharge =
                    wallet.auto_recharge().then_some(WalletShortfall { wallet_id, credit_scope });
                return Err(WalletRefusal::InsufficientBalance { available, needed, auto_recharge }.into());
            }
        }
        Ok(())
    }

    /// Refuses a call that the instance pays for if the merchant's wallet is so far below zero that it may not take an
    /// overrun of the call.
    fn check_merchant(states: &StateCache, parties: Parties, hold: Hold) -> Result<(), DecideError> {
        let wallet = states.wallet(parties.merchant_wallet_id)?.expect("a merchant has a wallet");
        if wallet.balance.plus(CEILING)?.is_negative() {
            let (available, needed) = (wallet.available(CreditScope::All)?, hold.merchant);
            let auto_recharge = None;
            return Err(WalletRefusal::InsufficientBalance { available, needed, auto_recharge }.into());
        }
        Ok(())
    }
}

/// The start of the usage period around `now`: the start of the subscription's cycle, otherwise of the month counted
/// from the creation of the connection, or of the merchant for a call without a customer (completion.md section 4).
pub(super) fn usage_period_start(
    states: &StateCache,
    merchant: &Merchant,
    customer: Option<&Customer>,
    now: DateTime<Utc>,
) -> Result<DateTime<Utc>, Missing> {
    let Some(customer) = customer else { return Ok(period_around(merchant.created_at, now).start) };
    if customer.subscription_id.is_some()
        && let Some(plan) = states.wallet(customer.wallet_id)?.and_then(|wallet| wallet.plan.as_ref())
    {
        return Ok(plan.cycle_start);
    }
    Ok(period_around(customer.created_at, now).start)
}

impl Command for OpenRequest {
    type Outcome = Opened;

    fn text_bytes(&self) -> usize {
        self.endpoint.len() + self.model.as_ref().map_or(0, String::len) + metadata_bytes(&self.metadata)
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<Opened>, DecideError> {
        let Principals { merchant_id, customer, key } = self.principals(states)?;
        let merchant = states.merchant(merchant_id)?.ok_or(SecretKeyRefusal::Invalid)?;
        let now = merchant.now(self.now);
        if let Some(key) = key {
            key.check_key(now)?;
            key.check_lists(&self.provider, self.model.as_deref())?;
        }
        let terms = self.terms(states, merchant_id)?;
        let charge = self.charge(customer.is_some(), terms.is_some());

        let customer_id = customer.map(|(id, _)| id);
        let holder = customer_id.map_or(Holder::Merchant(merchant_id), Holder::Customer);
        let meter_id = terms.as_ref().map(|terms| terms.meter_id);
        let customers = customer.map(|(_, customer)| customer);
        let period_start =
            meter_id.map(|_| usage_period_start(states, merchant, customers, now)).transpose()?;
        let position = match (&terms, period_start) {
            (Some(terms), Some(start)) => states.tier_usage(holder, terms.meter_id, start)?,
            _ => Decimal::ZERO,
        };

        let parties = Parties {
            customer_id,
            wallet_id: customer.map(|(_, customer)| customer.wallet_id),
            merchant_wallet_id: merchant.wallet_id,
        };
        let model_price = bill::needed_price(&self.list_price, self.provider_key_type, terms.as_ref())?;
        let conditions = Conditions {
            charge,
            spends_from: customer_id.map_or(Payer::Merchant, |_| Payer::Wallet),
            provider_key_type: self.provider_key_type,
            terms: terms.as_ref(),
            model_price: model_price.as_ref(),
        };
        let mut hold = bill::hold(conditions, self.size, position, &self.settings)?;
        let mut held_of_key = hold.total()?;
        if key.is_some_and(|key| key.limits_spending()) {
            (hold, held_of_key) = bill::key_hold(conditions, self.size, hold, &self.settings)?;
        }
        if let Some(wallet_id) = parties.wallet_id.filter(|_| hold.wallet.is_positive()) {
            let wallet = states.wallet(wallet_id)?.expect("a customer has a wallet");
            hold.beside_plan = wallet.credit_scope(meter_id) == CreditScope::BesidePlan;
            hold.plan_changes = wallet.plan_changes;
        }
        let spend_key = key.map(|key| key.admit(hold, held_of_key, now)).transpose()?;
        Self::admit(states, parties, hold)?;
        if self.provider_key_type == ProviderKeyType::Managed {
            Self::check_merchant(states, parties, hold)?;
        }
        let on_disconnect = terms.as_ref().map(|terms| terms.price.on_disconnect).unwrap_or_default();
        let event = Event::from(Box::new(event::RequestOpened {
            request_id: self.request_id,
            gateway_id: self.gateway_id,
            charge,
            parties,
            provider: self.provider.clone(),
            provider_key_type: self.provider_key_type,
            endpoint: self.endpoint.clone(),
            model: self.model.as_deref().map(|model| secret::masked(model).into_owned()),
            metadata: secret::masked_pairs(&self.metadata),
            model_price,
            terms,
            period_start,
            hold,
            reported_id: None,
            spend_key,
        }));
        let spend_key_id = spend_key.map(|key| key.spend_key_id);
        let opened = Opened { merchant_id, hold, on_disconnect, customer_id, spend_key_id };
        Ok(Decision::append(merchant_id, self.now, vec![event], opened))
    }
}

/// An [`OpenRequest`] that may have been decided before: its answer was lost on the way from another gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAgain(pub OpenRequest);

impl Command for OpenAgain {
    type Outcome = Opened;

    fn text_bytes(&self) -> usize {
        self.0.text_bytes()
    }

    /// A request that is open needs no second opening. One that has ended is not asked for again: only a request that is
    /// known to be open is ended.
    fn decide(&self, states: &StateCache) -> Result<Decision<Opened>, DecideError> {
        match states.request(self.0.request_id)? {
            Some(request) => Ok(Decision::already(outcome_of(request))),
            None => self.0.decide(states),
        }
    }
}

/// Finds the outcome of an [`OpenRequest`] that was decided before. Opens nothing: a request that has ended since is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FindOpen(pub RequestId);

impl Command for FindOpen {
    type Outcome = Opened;

    fn text_bytes(&self) -> usize {
        0
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<Opened>, DecideError> {
        match states.request(self.0)? {
            Some(request) => Ok(Decision::already(outcome_of(request))),
            None => Err(RequestRefusal::NotOpen.into()),
        }
    }
}

/// The outcome of the opening of an open request.
fn outcome_of(request: &AdmittedRequest) -> Opened {
    let on_disconnect = request.opened.terms.as_ref().map(|terms| terms.price.on_disconnect);
    Opened {
        merchant_id: request.merchant_id,
        hold: request.opened.hold,
        on_disconnect: on_disconnect.unwrap_or_default(),
        customer_id: request.opened.parties.customer_id,
        spend_key_id: request.opened.spend_key.map(|key| key.spend_key_id),
    }
}
