//! Finds and lists requests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    Charge, FailureReason, Mark, ProviderKeyType, RequestMetered, RequestOpened, ServiceCharge,
};
use farthing_core::ids::{CustomerId, MerchantId, MeterId, RequestId};
use farthing_core::meter::{Payer, RateType, TierType, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::pricing::{Fee, FeeLine, ModelCost};
use farthing_core::usage::Usage;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Filter;
use crate::column::{Columns, Numeric, Unreadable};
use crate::query::{Error, Listed, Page, Parameter, findable};

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", schema(as = RequestStatus))]
pub enum Status {
    /// Not ended yet.
    Pending,
    /// Ended and metered.
    Completed,
    /// Ended without being metered.
    Error,
}

/// What a request shows of its meter's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How the rates are meant.
    pub rate_type: RateType,
    /// What is counted.
    pub tier_type: TierType,
    /// Which direction is counted.
    pub token_basis: TokenBasis,
    /// Who bears the provider's cost.
    pub base_cost_payer: Payer,
}

/// A request. Amounts and counts of one that was not metered are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// The request.
    pub request_id: RequestId,
    /// The merchant's own id of a call that was reported.
    pub reported_id: Option<String>,
    /// The customer, when the call named one.
    pub connection_id: Option<CustomerId>,
    /// The meter, when the call named one.
    pub product_id: Option<MeterId>,
    /// When it was admitted.
    pub created_at: DateTime<Utc>,
    /// How far it has come.
    pub status: Status,
    /// Who pays: the row of completion.md section 3.
    pub charge: Charge,
    /// The provider's name.
    pub provider: String,
    /// Whose provider key.
    pub provider_key_type: ProviderKeyType,
    /// Method and full forwarded URL.
    pub endpoint: String,
    /// The model that answered, or else the one that was asked for.
    pub model: Option<String>,
    /// The meter's terms, when there is a meter.
    pub terms: Option<Terms>,
    /// Free key-value pairs of the caller.
    pub metadata: BTreeMap<String, String>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// The provider's status, when it answered.
    pub http_status: Option<u16>,
    /// Why it was not metered.
    pub failure_reason: Option<FailureReason>,
    /// The usage as reported, when it was not believed.
    pub raw_usage: Option<String>,
    /// The provider's own id of its answer.
    pub response_id: Option<String>,
    /// The completion time that the provider returned.
    pub provider_timestamp: Option<DateTime<Utc>>,
    /// What the provider reported.
    pub usage: Usage,
    /// The units counted on the meter.
    pub units: Decimal,
    /// What is worth knowing about it.
    pub marks: Vec<Mark>,
    /// What the provider's list price makes of the usage.
    pub model_cost: ModelCost,
    /// The fee by the meter.
    pub fee: Fee,
    /// The service charge.
    pub service_charge: ServiceCharge,
    /// `total_wallet_cost` + `total_merchant_cost`.
    pub total_request_cost: Amount,
    /// What the customer's wallet bears.
    pub total_wallet_cost: Amount,
    /// What the merchant bears.
    pub total_merchant_cost: Amount,
    /// The part of the merchant's that the customer's wallet could not cover.
    pub overrun: Amount,
}

impl RequestRow {
    /// Who bears the provider's cost (completion.md section 3); none when nobody does.
    pub fn model_cost_payer(&self) -> Option<Payer> {
        if self.provider_key_type == ProviderKeyType::Unmanaged && self.provider != "other" {
            // Shown for information: the provider bills the owner of the key.
            return None;
        }
        match self.charge {
            Charge::Merchant | Charge::MeterOnly | Charge::Recorded => Some(Payer::Merchant),
            Charge::Customer => Some(Payer::Wallet),
            Charge::CustomerBilling => Some(self.terms.map_or(Payer::Wallet, |terms| terms.base_cost_payer)),
            // A spend key's customer pays, or the merchant whose own key it is.
            Charge::SpendKey => Some(self.connection_id.map_or(Payer::Merchant, |_| Payer::Wallet)),
            Charge::MeteringOnly => None,
        }
    }

    /// A reported request as its own events tell it: what the read model will show.
    pub fn reported(opened: RequestOpened, metered: RequestMetered, at: DateTime<Utc>) -> Self {
        Self {
            request_id: opened.request_id,
            reported_id: opened.reported_id,
            connection_id: opened.parties.customer_id,
            product_id: opened.terms.as_ref().map(|terms| terms.meter_id),
            created_at: at,
            status: Status::Completed,
            charge: opened.charge,
            provider: opened.provider,
            provider_key_type: opened.provider_key_type,
            endpoint: opened.endpoint,
            model: metered.model.or(opened.model),
            terms: opened.terms.map(|terms| Terms {
                rate_type: terms.price.rate_type,
                tier_type: terms.price.tier_type,
                token_basis: terms.price.token_basis,
                base_cost_payer: terms.price.base_cost_payer,
            }),
            metadata: opened.metadata,
            ended_at: Some(at),
            http_status: Some(metered.http_status),
            failure_reason: None,
            raw_usage: None,
            response_id: metered.response_id,
            provider_timestamp: metered.provider_timestamp,
            usage: metered.usage,
            units: metered.units,
            marks: metered.marks,
            model_cost: metered.model_cost,
            fee: metered.fee,
            service_charge: metered.service_charge,
            total_request_cost: metered.total_request_cost,
            total_wallet_cost: metered.total_wallet_cost,
            total_merchant_cost: metered.total_merchant_cost,
            overrun: metered.overrun,
        }
    }

    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            request_id: columns.id()?,
            reported_id: columns.plain()?,
            connection_id: columns.id_or_null()?,
            product_id: columns.id_or_null()?,
            created_at: columns.plain()?,
            status: columns.word()?,
            charge: columns.word()?,
            provider: columns.plain()?,
            provider_key_type: columns.word()?,
            endpoint: columns.plain()?,
            model: columns.plain()?,
            terms: read_terms(columns)?,
            metadata: columns.jsonb()?,
            ended_at: columns.plain()?,
            http_status: columns.plain::<Option<i32>>()?.and_then(|status| u16::try_from(status).ok()),
            failure_reason: columns.word_or_null()?,
            raw_usage: columns.plain()?,
            response_id: columns.plain()?,
            provider_timestamp: columns.plain()?,
            usage: columns.json_or_null()?.unwrap_or_default(),
            units: columns.plain::<Option<Numeric>>()?.map(|units| units.0).unwrap_or_default(),
            marks: columns.json_or_null()?.unwrap_or_default(),
            model_cost: ModelCost {
                input: columns.amount_or_null()?.unwrap_or_default(),
                output: columns.amount_or_null()?.unwrap_or_default(),
                total: columns.amount_or_null()?.unwrap_or_default(),
            },
            fee: Fee {
                breakdown: columns.json_or_null::<Vec<FeeLine>>()?.unwrap_or_default(),
                amount: columns.amount_or_null()?.unwrap_or_default(),
            },
            service_charge: ServiceCharge {
                payer: columns.word()?,
                amount: columns.amount_or_null()?.unwrap_or_default(),
            },
            total_request_cost: columns.amount_or_null()?.unwrap_or_default(),
            total_wallet_cost: columns.amount_or_null()?.unwrap_or_default(),
            total_merchant_cost: columns.amount_or_null()?.unwrap_or_default(),
            overrun: columns.amount_or_null()?.unwrap_or_default(),
        })
    }
}

fn read_terms(columns: &mut Columns<'_>) -> Result<Option<Terms>, Unreadable> {
    let rate_type = columns.word_or_null()?;
    let tier_type = columns.word_or_null()?;
    let token_basis = columns.word_or_null()?;
    let base_cost_payer = columns.word_or_null()?;
    Ok(match (rate_type, tier_type, token_basis, base_cost_payer) {
        (Some(rate_type), Some(tier_type), Some(token_basis), Some(base_cost_payer)) => {
            Some(Terms { rate_type, tier_type, token_basis, base_cost_payer })
        }
        _ => None,
    })
}

macro_rules! select_requests {
    ($rest:literal) => {
        concat!(
            "SELECT r.request_id, r.reported_id, r.connection_id, r.product_id, r.created_at, r.status, r.charge, r.provider, ",
            "r.provider_key_type, r.endpoint, r.model, r.rate_type, r.tier_type, r.token_basis, ",
            "r.base_cost_payer, r.metadata, r.ended_at, r.http_status, r.failure_reason, r.raw_usage, ",
            "r.response_id, r.provider_timestamp, r.usage, r.units, r.marks, r.input_cost, r.output_cost, ",
            "r.model_cost, r.breakdown, r.fee_amount, r.service_charge_payer, r.service_charge_amount, ",
            "r.total_request_cost, r.total_wallet_cost, r.total_merchant_cost, r.overrun ",
            $rest
        )
    };
}

/// A merchant's request by id.
pub const FIND: &str =
    select_requests!("FROM requests.requests AS r WHERE r.merchant_id = $1 AND r.request_id = $2");

/// A merchant's request by the merchant's own id.
pub const FIND_REPORTED: &str =
    select_requests!("FROM requests.requests AS r WHERE r.merchant_id = $1 AND r.reported_id = $2");

/// The columns of a list; a [`Filter`] says of which requests.
pub const LIST: &str = select_requests!("");

/// Where in the list the request of a cursor stands.
pub const CURSOR: &str =
    "SELECT created_at, request_id FROM requests.opened WHERE merchant_id = $1 AND request_id = $2";

/// The same, by the merchant's own id.
pub const CURSOR_REPORTED: &str =
    "SELECT created_at, request_id FROM requests.opened WHERE merchant_id = $1 AND reported_id = $2";

/// The statement that finds the request of a name: of one of our ids, or of the merchant's own.
fn by_name(name: &str, ours: &'static str, reported: &'static str) -> &'static str {
    if name.parse::<RequestId>().is_ok() { ours } else { reported }
}

/// The merchant's request called `name`, by its id or by the one it was reported under.
pub async fn find(db: &Client, merchant_id: MerchantId, name: &str) -> Result<Option<RequestRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    let parameters: [Parameter<'_>; 2] = [(&merchant_id.to_string(), Type::TEXT), (&name, Type::TEXT)];
    let sql = by_name(name, FIND, FIND_REPORTED);
    let row = db.query_typed(sql, &parameters).await?.into_iter().next();
    Ok(row.map(|row| RequestRow::read(&mut Columns::of(&row))).transpose()?)
}

/// The merchant's requests, newest first.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    filter: &Filter,
) -> Result<Listed<RequestRow>, Error> {
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, &merchant_id.to_string(), cursor).await?),
        None => None,
    };
    let Some(wanted) = filter.wanted(db, merchant_id).await? else { return Ok(Listed::empty()) };
    let mut query = wanted.select(LIST);
    if let Some((created_at, id)) = &after {
        let parameters: [Parameter<'_>; 2] = [(created_at, Type::TIMESTAMPTZ), (id, Type::TEXT)];
        query.and("({at}.created_at, {at}.request_id) < ({1}, {2})", parameters);
    }
    let limit = page.rows_to_ask();
    query.end("ORDER BY {at}.created_at DESC, {at}.request_id DESC LIMIT {1}", [(&limit, Type::INT8)]);
    let rows = query.rows(db).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| RequestRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

async fn cursor_position(
    db: &Client,
    merchant: &str,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    if !findable(cursor) {
        return Err(Error::CursorInvalid);
    }
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&cursor, Type::TEXT)];
    let sql = by_name(cursor, CURSOR, CURSOR_REPORTED);
    let row = db.query_typed(sql, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}
