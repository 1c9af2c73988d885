//! Writes the rows, by `COPY`: nothing is faster, and nothing is ever updated.

use tokio_postgres::types::Type;

use super::Batch;
use super::fold::{Ended, Opened, Tagged};
use crate::column::word;
use crate::writer::Writer;

pub(crate) const COPY_OPENED: &str = "COPY {schema}.opened \
     (request_id, merchant_id, connection_id, product_id, created_at, charge, provider, provider_key_type, \
      endpoint, model, rate_type, tier_type, token_basis, base_cost_payer, service_charge_payer, metadata, reported_id) \
     FROM STDIN BINARY";

const OPENED_TYPES: [Type; 17] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::TEXT,
];

pub(crate) const COPY_PAIRS: &str = "COPY {schema}.metadata_pairs (pair, created_at, request_id, connection_id, product_id) FROM STDIN BINARY";

const PAIRS_TYPES: [Type; 5] = [Type::BYTEA, Type::TIMESTAMPTZ, Type::TEXT, Type::TEXT, Type::TEXT];

pub(crate) const COPY_ENDED: &str = "COPY {schema}.ended \
     (request_id, status, ended_at, http_status, failure_reason, raw_usage, response_id, model, \
      provider_timestamp, usage, total_tokens, units, breakdown, marks, service_charge_payer, input_cost, output_cost, \
      model_cost, fee_amount, service_charge_amount, total_request_cost, total_wallet_cost, \
      total_merchant_cost, overrun) \
     FROM STDIN BINARY";

const ENDED_TYPES: [Type; 24] = [
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::INT4,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::INT8,
    Type::NUMERIC,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
    Type::NUMERIC,
];

impl Batch {
    pub(super) async fn copy_opened(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        db.copy(COPY_OPENED, &OPENED_TYPES, &self.opened, async |copy, row: &Opened| {
            let terms = row.terms;
            copy.write(&[
                &row.request_id.to_string(),
                &row.merchant_id.to_string(),
                &row.connection_id.map(|id| id.to_string()),
                &row.product_id.map(|id| id.to_string()),
                &row.created_at,
                &word(row.charge),
                &row.provider,
                &word(row.provider_key_type),
                &row.endpoint,
                &row.model,
                &terms.map(|terms| word(terms.0)),
                &terms.map(|terms| word(terms.1)),
                &terms.map(|terms| word(terms.2)),
                &terms.map(|terms| word(terms.3)),
                &word(row.service_charge_payer),
                &row.metadata,
                &row.reported_id,
            ])
            .await
        })
        .await
    }

    pub(super) async fn copy_pairs(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        db.copy(COPY_PAIRS, &PAIRS_TYPES, &self.pairs, async |copy, row: &Tagged| {
            copy.write(&[
                &row.pair.as_slice(),
                &row.created_at,
                &row.request_id.to_string(),
                &row.connection_id.map(|id| id.to_string()),
                &row.product_id.map(|id| id.to_string()),
            ])
            .await
        })
        .await
    }

    pub(super) async fn copy_ended(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        db.copy(COPY_ENDED, &ENDED_TYPES, &self.ended, async |copy, row: &Ended| {
            let metered = row.metered.as_ref();
            copy.write(&[
                &row.request_id.to_string(),
                &word(row.status),
                &row.at,
                &row.http_status,
                &row.failure_reason.map(word),
                &row.raw_usage,
                &row.response_id,
                &row.model,
                &metered.and_then(|row| row.provider_timestamp),
                &metered.map(|row| &row.usage),
                &metered.map(|row| row.total_tokens),
                &metered.map(|row| row.units),
                &metered.and_then(|row| row.breakdown.as_ref()),
                &metered.and_then(|row| row.marks.as_ref()),
                &metered.map(|row| word(row.service_charge_payer)),
                &metered.map(|row| row.input_cost),
                &metered.map(|row| row.output_cost),
                &metered.map(|row| row.model_cost),
                &metered.map(|row| row.fee_amount),
                &metered.map(|row| row.service_charge_amount),
                &metered.map(|row| row.total_request_cost),
                &metered.map(|row| row.total_wallet_cost),
                &metered.map(|row| row.total_merchant_cost),
                &metered.map(|row| row.overrun),
            ])
            .await
        })
        .await
    }
}
