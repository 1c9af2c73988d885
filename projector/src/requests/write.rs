//! Writes the rows of requests. They are only ever inserted, and no statement reads what another one writes.

use farthing_core::partition::Partition;
use futures_util::future::join3;

use super::RequestBatch;
use super::fold::{Ended, MetadataPair, Opened};
use crate::column::{Text, nonzero, variant};
use crate::writer::{WriteRows, Writer, copy_rows};

copy_rows! {
    COPY_OPENED, copy_opened<'a>,
    into opened,
    for row in &'a Opened => {
        request_id: text = Text(row.request_id),
        merchant_id: text = Text(row.merchant_id),
        connection_id: text = row.connection_id.map(Text),
        product_id: text = row.product_id.map(Text),
        created_at: timestamptz = row.created_at,
        charge: text = variant(row.charge),
        provider: text = row.provider,
        provider_key_type: text = variant(row.provider_key_type),
        endpoint: text = row.endpoint,
        model: text = row.model,
        rate_type: text = row.terms.map(|terms| variant(terms.rate_type)),
        tier_type: text = row.terms.map(|terms| variant(terms.tier_type)),
        token_basis: text = row.terms.map(|terms| variant(terms.token_basis)),
        base_cost_payer: text = row.terms.map(|terms| variant(terms.base_cost_payer)),
        service_charge_payer: text = variant(row.service_charge_payer),
        metadata: jsonb = row.metadata,
        reported_id: text = row.reported_id,
    }
}

copy_rows! {
    COPY_PAIRS, copy_pairs<'a>,
    into metadata_pairs,
    for row in &'a MetadataPair => {
        pair: bytea = row.pair.as_slice(),
        created_at: timestamptz = row.created_at,
        request_id: text = Text(row.request_id),
        connection_id: text = row.connection_id.map(Text),
        product_id: text = row.product_id.map(Text),
    }
}

copy_rows! {
    COPY_ENDED, copy_ended<'a>,
    into ended,
    for row in &'a Ended => {
        request_id: text = Text(row.request_id),
        status: text = variant(row.status),
        ended_at: timestamptz = row.at,
        http_status: int4 = row.http_status,
        failure_reason: text = row.failure_reason.map(variant),
        raw_usage: text = row.raw_usage,
        response_id: text = row.response_id,
        model: text = row.model,
        provider_timestamp: timestamptz = row.metered.as_ref().and_then(|metered| metered.provider_timestamp),
        usage: text = row.metered.as_ref().map(|metered| &metered.usage),
        total_tokens: int8 = row.metered.as_ref().map(|metered| metered.total_tokens),
        units: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.units)),
        breakdown: text = row.metered.as_ref().and_then(|metered| metered.breakdown.as_ref()),
        marks: text = row.metered.as_ref().and_then(|metered| metered.marks.as_ref()),
        service_charge_payer: text = row.metered.as_ref().map(|metered| variant(metered.service_charge_payer)),
        input_cost: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.input_cost)),
        output_cost: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.output_cost)),
        model_cost: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.model_cost)),
        fee_amount: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.fee_amount)),
        service_charge_amount: numeric =
            row.metered.as_ref().and_then(|metered| nonzero(metered.service_charge_amount)),
        total_request_cost: numeric = row.metered.as_ref().map(|metered| metered.total_request_cost),
        total_wallet_cost: numeric = row.metered.as_ref().map(|metered| metered.total_wallet_cost),
        total_merchant_cost: numeric = row.metered.as_ref().map(|metered| metered.total_merchant_cost),
        overrun: numeric = row.metered.as_ref().and_then(|metered| nonzero(metered.overrun)),
    }
}

impl WriteRows for RequestBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        db.prepare([COPY_OPENED, COPY_PAIRS, COPY_ENDED]).await?;
        let (opened, pairs, ended) = join3(
            copy_opened(db, batches, |batch| batch.opened.iter()),
            copy_pairs(db, batches, |batch| batch.pairs.iter()),
            copy_ended(db, batches, |batch| batch.ended.iter()),
        )
        .await;
        // After the first error the others only say that the transaction is aborted.
        opened.and(pairs).and(ended)
    }
}
