//! Sums requests one by one per day, for the parts of a usage report that its own table does not cover.

use chrono::{DateTime, Utc};
use farthing_core::ids::MerchantId;

use super::Counters;
use crate::query::{Error, PartitionClient, instant};
use crate::requests::RequestFilter;

/// The sums of a day; each day begins 24 hours after the one before.
const SUMS: &str = "SELECT date_bin('1 day', {at}.created_at, $2) AS day, count(*)::numeric AS requests, \
            COALESCE(sum(e.total_tokens), 0) AS tokens, COALESCE(sum(e.model_cost), 0) AS model_cost, \
            COALESCE(sum(e.fee_amount), 0) AS fee_amount, \
            COALESCE(sum(e.service_charge_amount), 0) AS service_charge_amount, \
            COALESCE(sum(e.total_request_cost), 0) AS total_request_cost, \
            COALESCE(sum(e.total_wallet_cost), 0) AS total_wallet_cost, \
            COALESCE(sum(e.total_merchant_cost), 0) AS total_merchant_cost";

/// Adds the requests of `filter` that were opened within one of `spans` to their days. A span includes its first
/// instant and excludes its second; the days begin at `midnight` and every 24 hours after it.
pub(super) async fn add_requests(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    filter: &RequestFilter,
    spans: &[(DateTime<Utc>, DateTime<Utc>)],
    midnight: DateTime<Utc>,
    days: &mut [Counters],
) -> Result<(), Error> {
    let Some(conditions) = filter.conditions(db, merchant_id).await? else { return Ok(()) };
    for (from, to) in spans {
        let mut query = conditions.sum(SUMS, vec![instant(&midnight)]);
        query.and("{at}.created_at >= {1} AND {at}.created_at < {2}", [instant(from), instant(to)]);
        query.end("GROUP BY 1", []);
        for row in query.rows(db).await? {
            Counters::add_day(&row, midnight, days)?;
        }
    }
    Ok(())
}
