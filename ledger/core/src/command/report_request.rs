//! `ReportRequest`: records usage that was measured elsewhere, priced and debited like a forwarded call, in one append.
//! Invariant: each of the merchant's own ids is reported once; a repeated report changes nothing (completion.md section
//! 5).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::bill;
use super::decision::{Command, DecideError, Decision, metadata_bytes};
use super::open_request::{CustomerRef, MeterRef, usage_period_start};
use super::refusal::{MerchantRefusal, Refusal, RequestRefusal};
use super::settle_request::{Fees, Metered, SettleRequest, Settled};
use crate::event::{
    Charge, Event, Hold, Parties, ProviderKeyType, RequestEvent, RequestMetered, RequestOpened,
};
use crate::ids::{GatewayId, MerchantId, RequestId};
use crate::model_price::ListPrice;
use crate::state::{self, StateCache};

/// Reports a call that was made elsewhere. It needs no balance: the merchant pays the part that the customer's wallet
/// does not cover, as an overrun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The merchant's own id of the call.
    pub reported_id: String,
    /// A new id.
    pub request_id: RequestId,
    /// The gateway process that received the report.
    pub gateway_id: GatewayId,
    /// The customer, if any.
    pub customer: Option<CustomerRef>,
    /// The meter, if any.
    pub meter: Option<MeterRef>,
    /// The provider's name.
    pub provider: String,
    /// Method and full URL of the call, as far as the merchant states them.
    pub endpoint: String,
    /// Free key-value pairs.
    pub metadata: BTreeMap<String, String>,
    /// The provider's list price of the call.
    pub list_price: ListPrice,
    /// The measured usage.
    pub metered: Metered,
    /// The service charge as a share of the fee.
    pub service_charge_rate: Decimal,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The result of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    /// The new request, opened and metered.
    New(Box<RequestOpened>, Box<RequestMetered>),
    /// The request that was reported under this id before; it was not changed.
    Existing(RequestId),
}

impl ReportRequest {
    fn opened(&self, states: &StateCache) -> Result<RequestOpened, DecideError> {
        let merchant = states.merchant(self.merchant_id)?.ok_or(MerchantRefusal::NotFound)?;
        let customer =
            self.customer.as_ref().map(|customer| customer.find(states, self.merchant_id)).transpose()?;
        let terms = self.meter.as_ref();
        let terms = terms.map(|meter| meter.terms(states, self.merchant_id, self.service_charge_rate));
        let terms = terms.transpose()?;
        let charge = match (&customer, &terms) {
            (None, None) => Charge::Merchant,
            (None, Some(_)) => Charge::MeterOnly,
            (Some(_), None) => Charge::Customer,
            (Some(_), Some(_)) => Charge::CustomerBilling,
        };
        // The provider was paid by the maker of the call.
        let provider_key_type = ProviderKeyType::Unmanaged;
        let model_price = bill::needed_price(&self.list_price, provider_key_type, terms.as_ref())?;
        let customers = customer.map(|(_, customer)| customer);
        let now = merchant.now(self.now);
        let period_start = terms.as_ref().map(|_| usage_period_start(states, merchant, customers, now));
        Ok(RequestOpened {
            request_id: self.request_id,
            gateway_id: self.gateway_id,
            charge,
            parties: Parties {
                customer_id: customer.map(|(id, _)| id),
                wallet_id: customer.map(|(_, customer)| customer.wallet_id),
                merchant_wallet_id: merchant.wallet_id,
            },
            provider: self.provider.clone(),
            provider_key_type,
            endpoint: self.endpoint.clone(),
            model: self.metered.model.clone(),
            metadata: self.metadata.clone(),
            period_start: period_start.transpose()?,
            terms,
            hold: Hold::default(),
            model_price,
            reported_id: Some(self.reported_id.clone()),
            spend_key: None,
        })
    }
}

impl Command for ReportRequest {
    type Outcome = Reported;

    fn text_bytes(&self) -> usize {
        self.endpoint.len() + metadata_bytes(&self.metadata)
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<Reported>, DecideError> {
        if let Some(existing) = states.reported(self.merchant_id, &self.reported_id)? {
            return Ok(Decision::already(Reported::Existing(*existing)));
        }
        let opened = Box::new(self.opened(states)?);
        let open = state::AdmittedRequest {
            merchant_id: self.merchant_id,
            opened_at: states.now(self.merchant_id, self.now)?,
            opened: opened.clone(),
        };
        let settled = Settled::Metered(self.metered.clone());
        let settlement = SettleRequest { request_id: self.request_id, settled, now: self.now };
        let settled = match settlement.metered(states, &open, &self.metered, Fees::Charged) {
            Err(DecideError::Refused(Refusal::Amount(_))) => {
                return Err(RequestRefusal::UsageOutOfRange.into());
            }
            settled => settled?,
        };
        let mut events = vec![Event::from(opened.clone())];
        events.extend(settled.facts.into_iter().map(|fact| fact.event));
        let metered = events.iter().find_map(|event| match event {
            Event::Request(RequestEvent::Metered(metered)) => Some(metered.clone()),
            _ => None,
        });
        let outcome = Reported::New(opened, metered.expect("a metered call says so"));
        Ok(Decision::append(self.merchant_id, self.now, events, outcome))
    }
}
