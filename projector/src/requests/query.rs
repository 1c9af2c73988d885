//! Finds and lists requests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    Charge, FailureReason, Mark, ProviderKeyType, RequestMetered, RequestOpened, ServiceCharge,
};
use farthing_core::ids::{CustomerId, MerchantId, MeterId, RequestId};
use farthing_core::meter::{Payer, Price, RateType, TierType, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::pricing::{Fee, ModelCost};
use farthing_core::usage::Usage;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::RequestFilter;
use crate::query::{self, Error, Listed, Page, PartitionClient, Start, findable, instant, text};
use crate::row::{FromRow, ReadColumn as _, Unreadable, row};

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RequestStatus {
    /// Not ended yet.
    Pending,
    /// Ended and metered.
    Completed,
    /// Ended without being metered.
    Error,
}

/// The part of its meter's terms that a request shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownTerms {
    /// Whether rates are dollars per unit or a percentage.
    pub rate_type: RateType,
    /// The unit that is counted.
    pub tier_type: TierType,
    /// The direction of tokens that is counted.
    pub token_basis: TokenBasis,
    /// The payer of the provider's cost.
    pub base_cost_payer: Payer,
}

impl ShownTerms {
    pub(super) const fn of(price: &Price) -> Self {
        Self {
            rate_type: price.rate_type,
            tier_type: price.tier_type,
            token_basis: price.token_basis,
            base_cost_payer: price.base_cost_payer,
        }
    }
}

row! {
    /// A request. Amounts and counts of one that was not metered are zero.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RequestRow {
        /// The request.
        pub request_id: RequestId = id,
        /// The merchant's own id of a reported call.
        pub reported_id: Option<String> = plain,
        /// The customer, when the call named one.
        pub connection_id: Option<CustomerId> = id_or_null,
        /// The meter, when the call named one.
        pub product_id: Option<MeterId> = id_or_null,
        /// When it was admitted.
        pub created_at: DateTime<Utc> = plain,
        /// The status.
        pub status: RequestStatus = variant,
        /// The row of the table "Who pays" (completion.md section 3).
        pub charge: Charge = variant,
        /// The provider's name.
        pub provider: String = plain,
        /// The owner of the provider key.
        pub provider_key_type: ProviderKeyType = variant,
        /// Method and full forwarded URL.
        pub endpoint: String = plain,
        /// The model that answered, or else the requested one.
        pub model: Option<String> = plain,
        /// The meter's terms, when there is a meter.
        pub terms: Option<ShownTerms> = nested,
        /// Free key-value pairs of the caller.
        pub metadata: BTreeMap<String, String> = jsonb_or_default,
        /// When it ended.
        pub ended_at: Option<DateTime<Utc>> = plain,
        /// The provider's status, when it answered.
        pub http_status: Option<u16> = integer_or_null,
        /// Why it was not metered.
        pub failure_reason: Option<FailureReason> = variant_or_null,
        /// The reported usage, when it was not plausible.
        pub raw_usage: Option<String> = plain,
        /// The provider's own id of its answer.
        pub response_id: Option<String> = plain,
        /// The completion time that the provider returned.
        pub provider_timestamp: Option<DateTime<Utc>> = plain,
        /// The usage that the provider reported.
        pub usage: Usage = json_or_default,
        /// The units counted on the meter.
        pub units: Decimal = decimal_or_zero,
        /// Marks, such as an overrun.
        pub marks: Vec<Mark> = json_or_default,
        /// The cost of the usage at the provider's list price.
        pub model_cost: ModelCost = nested,
        /// The fee by the meter.
        pub fee: Fee = nested,
        /// The service charge.
        pub service_charge: ServiceCharge = nested,
        /// `total_wallet_cost` + `total_merchant_cost`.
        pub total_request_cost: Amount = amount_or_zero,
        /// The part of the customer's wallet.
        pub total_wallet_cost: Amount = amount_or_zero,
        /// The part of the merchant.
        pub total_merchant_cost: Amount = amount_or_zero,
        /// The part of the merchant's that the customer's wallet could not cover.
        pub overrun: Amount = amount_or_zero,
    }
}

impl FromRow for Option<ShownTerms> {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        let Some(rate_type) = row.variant_or_null("rate_type")? else { return Ok(None) };
        Ok(Some(ShownTerms {
            rate_type,
            tier_type: row.variant("tier_type")?,
            token_basis: row.variant("token_basis")?,
            base_cost_payer: row.variant("base_cost_payer")?,
        }))
    }
}

impl FromRow for ModelCost {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        Ok(Self {
            input: row.amount_or_zero("input_cost")?,
            output: row.amount_or_zero("output_cost")?,
            total: row.amount_or_zero("model_cost")?,
        })
    }
}

impl FromRow for Fee {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        Ok(Self { breakdown: row.json_or_default("breakdown")?, amount: row.amount_or_zero("fee_amount")? })
    }
}

impl FromRow for ServiceCharge {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        Ok(Self {
            payer: row.variant("service_charge_payer")?,
            amount: row.amount_or_zero("service_charge_amount")?,
        })
    }
}

impl RequestRow {
    /// The payer of the provider's cost (completion.md section 3); `None` if nobody pays it.
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

    /// A reported request, made of its own events: equal to the row that the read model will show.
    pub fn reported(opened: RequestOpened, metered: RequestMetered, at: DateTime<Utc>) -> Self {
        Self {
            request_id: opened.request_id,
            reported_id: opened.reported_id,
            connection_id: opened.parties.customer_id,
            product_id: opened.terms.as_ref().map(|terms| terms.meter_id),
            created_at: at,
            status: RequestStatus::Completed,
            charge: opened.charge,
            provider: opened.provider,
            provider_key_type: opened.provider_key_type,
            endpoint: opened.endpoint,
            model: metered.model.or(opened.model),
            terms: opened.terms.map(|terms| ShownTerms::of(&terms.price)),
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
pub const FIND: &str = select_requests!(
    "FROM {requests}.requests AS r WHERE r.partition = $1 AND r.merchant_id = $2 AND r.request_id = $3"
);

/// A merchant's request by the merchant's own id.
pub const FIND_REPORTED: &str = select_requests!(
    "FROM {requests}.requests AS r WHERE r.partition = $1 AND r.merchant_id = $2 AND r.reported_id = $3"
);

/// The columns of a list; a [`RequestFilter`] selects the requests.
pub const LIST: &str = select_requests!("");

/// The request of a cursor.
pub const CURSOR: &str = "SELECT created_at AS at, request_id FROM {requests}.opened WHERE partition = $1 AND merchant_id = $2 AND request_id = $3";

/// The request of a cursor that is the merchant's own id.
pub const CURSOR_REPORTED: &str = "SELECT created_at AS at, request_id FROM {requests}.opened WHERE partition = $1 AND merchant_id = $2 AND reported_id = $3";

/// The statement that finds the request called `name`: `by_id` for one of our ids, `reported` for a merchant's own.
fn by_name(name: &str, by_id: &'static str, reported: &'static str) -> &'static str {
    if name.parse::<RequestId>().is_ok() { by_id } else { reported }
}

/// The merchant's request called `name`, by its id or by the merchant's own id.
pub async fn find(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    name: &str,
) -> Result<Option<RequestRow>, Error> {
    if !findable(name) {
        return Ok(None);
    }
    let sql = by_name(name, FIND, FIND_REPORTED);
    query::first(db, sql, &[text(&merchant_id.to_string()), text(&name)]).await
}

/// The merchant's requests, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
    filter: &RequestFilter,
) -> Result<Listed<RequestRow>, Error> {
    let start = start(db, merchant_id, page).await?;
    let Some(conditions) = filter.conditions(db, merchant_id).await? else { return Ok(Listed::empty()) };
    let mut query = conditions.select(LIST);
    if let Some(at) = &start.at {
        query.and("({at}.created_at, {at}.request_id) < ({1}, {2})", [instant(at), text(&start.id)]);
    }
    let limit = page.rows_to_select();
    query.end("ORDER BY {at}.created_at DESC, {at}.request_id DESC LIMIT {1}", [(&limit, Type::INT8)]);
    query.page(db, page).await
}

/// Fails unless the cursor is one of the list of the merchant's requests.
pub async fn check_cursor(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<(), Error> {
    start(db, merchant_id, page).await.map(drop)
}

/// Finds the request of the cursor, which may be the merchant's own id.
async fn start(db: PartitionClient<'_>, merchant_id: MerchantId, page: Page<'_>) -> Result<Start, Error> {
    let Some(cursor) = page.cursor else { return Ok(Start::default()) };
    if !findable(cursor) {
        return Err(Error::CursorInvalid);
    }
    let sql = by_name(cursor, CURSOR, CURSOR_REPORTED);
    let row = query::first_row(db, sql, &[text(&merchant_id.to_string()), text(&cursor)]).await?;
    let row = row.ok_or(Error::CursorInvalid)?;
    Ok(Start { at: Some(row.plain("at")?), id: row.plain("request_id")? })
}
