//! `OpenRequest`: who calls, may they, what could it cost — and the hold for it. The admission of completion.md
//! section 3.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::{Command, Decision, Refusal, Stop};
use crate::event::{self, Charge, Event, Hold, Parties, ProviderKeyType};
use crate::ids::{CustomerId, GatewayId, MerchantId, MeterId, RequestId};
use crate::meter::{Payer, Terms};
use crate::money::Amount;
use crate::period::period_around;
use crate::pricing::{self, SizeHint};
use crate::secret::KeyHash;
use crate::state::{Customer, Holder, World};

/// How a credential names its customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CustomerRef {
    /// By id.
    Id(CustomerId),
    /// By the merchant's own identifier.
    Reference(String),
    /// By a connection secret that this instance derived.
    Secret(CustomerId),
}

/// How a credential names its meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeterRef {
    /// By id.
    Id(MeterId),
    /// By its slug.
    Slug(String),
    /// By a product secret that this instance derived.
    Secret(MeterId),
}

/// How a call with a customer is to be billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    /// As the credential and the meter say.
    Usual,
    /// `disable_billing`: recorded on the customer, borne by the merchant.
    Disabled,
    /// Both customer and meter explicitly null, with the caller's own provider key: metering only.
    MeteringOnly,
}

/// The instance's settings that decide about admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSettings {
    /// The service charge as a share of the fee.
    pub service_charge_rate: Decimal,
    /// The hold, in dollars, of a call whose size has no upper bound.
    pub default_hold: Amount,
    /// The most that is held for one call whose price is not known exactly, in dollars.
    pub hold_cap: Amount,
}

/// Admits a call and sets its hold aside.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// A fresh id.
    pub request_id: RequestId,
    /// The process that carries it.
    pub gateway_id: GatewayId,
    /// Who calls.
    pub secret_key: KeyHash,
    /// For which customer.
    pub customer: Option<CustomerRef>,
    /// On which meter.
    pub meter: Option<MeterRef>,
    /// How it is billed.
    pub billing: Billing,
    /// The provider's name.
    pub provider: String,
    /// Whose provider key.
    pub provider_key_type: ProviderKeyType,
    /// Method and full forwarded URL.
    pub endpoint: String,
    /// The model that the body asks for.
    pub model: Option<String>,
    /// Free key-value pairs of the caller.
    pub metadata: BTreeMap<String, String>,
    /// What is known of its size.
    pub size: SizeHint,
    /// The instance's settings.
    pub settings: RequestSettings,
    /// Now, to the millisecond.
    pub now: DateTime<Utc>,
}

/// An admitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Whose call.
    pub merchant_id: MerchantId,
    /// What is set aside for it.
    pub hold: Hold,
    /// What further holds may take of the tightest wallet concerned, once this hold is set aside.
    pub headroom: Amount,
}

impl OpenRequest {
    fn customer<'w>(
        &self,
        world: &'w World,
        merchant_id: MerchantId,
    ) -> Result<Option<(CustomerId, &'w Customer)>, Stop> {
        let (id, unknown) = match &self.customer {
            None => return Ok(None),
            Some(CustomerRef::Id(id)) => (*id, Refusal::CustomerNotFound),
            Some(CustomerRef::Secret(id)) => (*id, Refusal::ConnectionSecretInvalid),
            Some(CustomerRef::Reference(reference)) => {
                let id = world.reference(merchant_id, reference)?.ok_or(Refusal::CustomerNotFound)?;
                (*id, Refusal::CustomerNotFound)
            }
        };
        let customer = world.customer(id)?.filter(|customer| customer.merchant_id == merchant_id);
        Ok(Some((id, customer.ok_or(unknown)?)))
    }

    fn terms(&self, world: &World, merchant_id: MerchantId) -> Result<Option<Terms>, Stop> {
        let (meter_id, unknown) = match &self.meter {
            None => return Ok(None),
            Some(MeterRef::Id(id)) => (*id, Refusal::MeterNotFound),
            Some(MeterRef::Secret(id)) => (*id, Refusal::ProductSecretInvalid),
            Some(MeterRef::Slug(slug)) => {
                let id = world.meter_slug(merchant_id, slug)?.ok_or(Refusal::MeterNotFound)?;
                (*id, Refusal::MeterNotFound)
            }
        };
        let meter = world.meter(meter_id)?.filter(|meter| meter.merchant_id == merchant_id);
        let price = meter.ok_or(unknown)?.price.clone();
        Ok(Some(Terms { meter_id, price, service_charge_rate: self.settings.service_charge_rate }))
    }

    /// The row of the table "Who pays".
    fn charge(&self, has_customer: bool, has_meter: bool) -> Charge {
        match (self.billing, has_customer, has_meter) {
            (Billing::MeteringOnly, _, _) => Charge::MeteringOnly,
            (Billing::Disabled, true, _) => Charge::Recorded,
            (_, false, false) => Charge::Merchant,
            (_, false, true) => Charge::MeterOnly,
            (_, true, false) => Charge::Customer,
            (_, true, true) => Charge::CustomerBilling,
        }
    }

    /// The hold: exact where the price is known before the call, else an upper bound or the default, capped.
    fn hold(&self, charge: Charge, terms: Option<&Terms>, position: Decimal) -> Result<Hold, Stop> {
        let Some(terms) = terms else { return Ok(Hold::default()) };
        let all_on_merchant = match charge {
            Charge::CustomerBilling => false,
            Charge::Recorded => true,
            Charge::Merchant | Charge::MeterOnly | Charge::Customer | Charge::MeteringOnly => {
                return Ok(Hold::default());
            }
        };
        let exact = matches!(terms.price.tier_type, crate::meter::TierType::Requests);
        let fee = match pricing::dearest_fee(terms, position, self.size) {
            Ok(Some(fee)) if exact => fee,
            Ok(Some(bound)) => bound.min(self.settings.hold_cap),
            // A bound beyond the range of amounts is beyond the cap.
            Err(_) if !exact => self.settings.hold_cap,
            Err(error) => return Err(error.into()),
            Ok(None) if terms.price.tiers.dearest_rate_from(position).is_zero() => Amount::ZERO,
            Ok(None) => self.settings.default_hold.min(self.settings.hold_cap),
        };
        let service_charge = pricing::service_charge(fee, terms.service_charge_rate)?;
        if all_on_merchant {
            return Ok(Hold { wallet: Amount::ZERO, merchant: fee.plus(service_charge)? });
        }
        Ok(match terms.price.service_charge_payer {
            Payer::Wallet => Hold { wallet: fee.plus(service_charge)?, merchant: Amount::ZERO },
            Payer::Merchant => Hold { wallet: fee, merchant: service_charge },
        })
    }

    /// The tightest headroom of the wallets held on, or the refusal.
    fn admit(world: &World, parties: Parties, hold: Hold) -> Result<Amount, Stop> {
        let mut tightest: Option<Amount> = None;
        for (wallet_id, needed) in
            [(parties.wallet_id, hold.wallet), (Some(parties.merchant_wallet_id), hold.merchant)]
        {
            let Some(wallet_id) = wallet_id.filter(|_| needed.is_positive()) else { continue };
            let wallet = world.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
            let available = wallet.available()?;
            let rest = available.minus(needed)?;
            if rest.is_negative() {
                return Err(Refusal::InsufficientBalance { available, needed }.into());
            }
            tightest = Some(tightest.map_or(rest, |tightest| tightest.min(rest)));
        }
        Ok(tightest.unwrap_or(Amount::ZERO))
    }
}

impl Command for OpenRequest {
    type Outcome = Opened;

    fn decide(&self, world: &World) -> Result<Decision<Opened>, Stop> {
        let merchant_id = world.secret_key(&self.secret_key)?.ok_or(Refusal::SecretKeyInvalid)?.merchant_id;
        let merchant = world.merchant(merchant_id)?.ok_or(Refusal::SecretKeyInvalid)?;
        let customer = self.customer(world, merchant_id)?;
        let terms = self.terms(world, merchant_id)?;
        let charge = self.charge(customer.is_some(), terms.is_some());

        let customer_id = customer.map(|(id, _)| id);
        let holder = customer_id.map_or(Holder::Merchant(merchant_id), Holder::Customer);
        let anchor = customer.map_or(merchant.created_at, |(_, customer)| customer.created_at);
        let period_start = terms.as_ref().map(|_| period_around(anchor, self.now).start);
        let position = match (&terms, period_start) {
            (Some(terms), Some(start)) => world.position(holder, terms.meter_id, start)?,
            _ => Decimal::ZERO,
        };

        let parties = Parties {
            customer_id,
            wallet_id: customer.map(|(_, customer)| customer.wallet_id),
            merchant_wallet_id: merchant.wallet_id,
        };
        let hold = self.hold(charge, terms.as_ref(), position)?;
        let headroom = Self::admit(world, parties, hold)?;
        let event = Event::RequestOpened(Box::new(event::RequestOpened {
            request_id: self.request_id,
            gateway_id: self.gateway_id,
            charge,
            parties,
            provider: self.provider.clone(),
            provider_key_type: self.provider_key_type,
            endpoint: self.endpoint.clone(),
            model: self.model.clone(),
            metadata: self.metadata.clone(),
            terms,
            period_start,
            hold,
        }));
        Ok(Decision::append(merchant_id, self.now, vec![event], Opened { merchant_id, hold, headroom }))
    }
}
