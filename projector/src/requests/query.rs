//! Finds and lists requests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_ledger::event::{Charge, FailureReason, Mark, ModelCost, ProviderKeyType, ServiceCharge};
use farthing_ledger::ids::{CustomerId, MerchantId, MeterId, RequestId};
use farthing_ledger::meter::{Payer, RateType, TierType, TokenBasis};
use farthing_ledger::money::Amount;
use farthing_ledger::pricing::{Fee, FeeLine};
use farthing_ledger::usage::Usage;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Jsonb, Numeric, Unreadable, json};
use crate::query::{Error, Listed, Page, Parameter, findable};

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        match self.charge {
            Charge::Merchant | Charge::MeterOnly | Charge::Recorded => Some(Payer::Merchant),
            Charge::Customer => Some(Payer::Wallet),
            Charge::CustomerBilling => Some(self.terms.map_or(Payer::Wallet, |terms| terms.base_cost_payer)),
            Charge::MeteringOnly => None,
        }
    }

    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            request_id: columns.id()?,
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
            "SELECT request_id, connection_id, product_id, created_at, status, charge, provider, ",
            "provider_key_type, endpoint, model, rate_type, tier_type, token_basis, base_cost_payer, metadata, ",
            "ended_at, http_status, failure_reason, raw_usage, response_id, provider_timestamp, usage, units, ",
            "marks, input_cost, output_cost, model_cost, breakdown, fee_amount, service_charge_payer, ",
            "service_charge_amount, total_request_cost, total_wallet_cost, total_merchant_cost, overrun ",
            "FROM requests.requests WHERE merchant_id = $1 ",
            $rest
        )
    };
}

/// A merchant's request by id.
pub const FIND: &str = select_requests!("AND request_id = $2");

/// A merchant's requests; the clauses below narrow it.
pub const LIST: &str = select_requests!("");

/// When the request of a cursor was opened.
pub const CURSOR: &str =
    "SELECT created_at FROM requests.requests WHERE merchant_id = $1 AND request_id = $2";

/// The merchant's request `id`.
pub async fn find(db: &Client, merchant_id: MerchantId, id: RequestId) -> Result<Option<RequestRow>, Error> {
    let parameters: [Parameter<'_>; 2] =
        [(&merchant_id.to_string(), Type::TEXT), (&id.to_string(), Type::TEXT)];
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| RequestRow::read(&mut Columns::of(&row))).transpose()?)
}

/// Which requests are wanted; all conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only of this customer.
    pub connection_id: Option<CustomerId>,
    /// Only on this meter.
    pub product_id: Option<MeterId>,
    /// Only with all these key-value pairs.
    pub metadata: Vec<(String, String)>,
}

/// The merchant's requests, newest first.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
    filter: &Filter,
) -> Result<Listed<RequestRow>, Error> {
    let merchant = merchant_id.to_string();
    let after = match page.cursor {
        Some(cursor) => Some(cursor_position(db, &merchant, cursor).await?),
        None => None,
    };
    let wanted = wanted_metadata(&filter.metadata);
    if matches!(wanted, Wanted::Impossible) {
        return Ok(Listed::empty());
    }
    let connection = filter.connection_id.map(|id| id.to_string());
    let product = filter.product_id.map(|id| id.to_string());
    let limit = page.rows_to_ask();

    let mut query = Query { sql: LIST.to_owned(), parameters: vec![(&merchant, Type::TEXT)] };
    if let Some(connection) = &connection {
        query.and("connection_id = {1}", [(connection, Type::TEXT)]);
    }
    if let Some(product) = &product {
        query.and("product_id = {1}", [(product, Type::TEXT)]);
    }
    if let Wanted::Pairs(wanted) = &wanted {
        query.and("metadata <> '{}' AND metadata @> {1}", [(wanted, Type::JSONB)]);
    }
    if let Some((created_at, id)) = &after {
        let parameters: [Parameter<'_>; 2] = [(created_at, Type::TIMESTAMPTZ), (id, Type::TEXT)];
        query.and("(created_at, request_id) < ({1}, {2})", parameters);
    }
    query.sql.push_str("ORDER BY created_at DESC, request_id DESC LIMIT $");
    query.sql.push_str(&(query.parameters.len() + 1).to_string());
    query.parameters.push((&limit, Type::INT8));

    let rows = db.query_typed(&query.sql, &query.parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| RequestRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}

/// [`LIST`] with the conditions that are asked for.
struct Query<'a> {
    sql: String,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> Query<'a> {
    /// Adds a condition; `{1}`, `{2}` in it stand for its own parameters.
    fn and<const N: usize>(&mut self, condition: &'static str, parameters: [Parameter<'a>; N]) {
        let before = self.parameters.len();
        let numbered = (1..=N).fold(condition.to_owned(), |sql, own| {
            sql.replace(&format!("{{{own}}}"), &format!("${}", before + own))
        });
        self.sql.push_str("AND ");
        self.sql.push_str(&numbered);
        self.sql.push(' ');
        self.parameters.extend(parameters);
    }
}

/// Which metadata a filter asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Any.
    Any,
    /// All these pairs.
    Pairs(Jsonb),
    /// What no request can have: a pair with NUL, or two values of a key.
    Impossible,
}

fn wanted_metadata(pairs: &[(String, String)]) -> Wanted {
    let mut wanted = BTreeMap::new();
    for (key, value) in pairs {
        let other = wanted.insert(key, value);
        if !findable(key) || !findable(value) || other.is_some_and(|other| other != value) {
            return Wanted::Impossible;
        }
    }
    if wanted.is_empty() { Wanted::Any } else { Wanted::Pairs(Jsonb(json(&wanted))) }
}

async fn cursor_position(
    db: &Client,
    merchant: &str,
    cursor: &str,
) -> Result<(DateTime<Utc>, String), Error> {
    let id: RequestId = cursor.parse().map_err(|_| Error::CursorInvalid)?;
    let id = id.to_string();
    let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
    let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next().ok_or(Error::CursorInvalid)?;
    Ok((row.try_get(0)?, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_metadata_filter_that_nothing_can_meet_is_known_before_the_query() {
        assert_eq!(wanted_metadata(&[]), Wanted::Any);
        let wanted = wanted_metadata(&[pair("b", "\""), pair("a", "1"), pair("a", "1")]);
        assert_eq!(wanted, Wanted::Pairs(Jsonb(r#"{"a":"1","b":"\""}"#.to_owned())));
        assert_eq!(wanted_metadata(&[pair("a", "1"), pair("a", "2")]), Wanted::Impossible);
        assert_eq!(wanted_metadata(&[pair("a", "\0")]), Wanted::Impossible);
    }

    #[test]
    fn conditions_number_their_parameters_on() {
        let (one, two) = (1_i64, 2_i64);
        let mut query = Query { sql: String::new(), parameters: vec![(&one, Type::INT8)] };
        query.and("a = {1}", [(&one, Type::INT8)]);
        query.and("(b, c) < ({1}, {2})", [(&one, Type::INT8), (&two, Type::INT8)]);
        assert_eq!(query.sql, "AND a = $2 AND (b, c) < ($3, $4) ");
    }
}
