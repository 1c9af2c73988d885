//! Sums requests one by one, day by day: what a report of usage needs beyond its own table.

use chrono::{DateTime, Utc};
use farthing_core::ids::MerchantId;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Filter;
use crate::column::Columns;
use crate::query::{Error, Parameter};
use crate::usage::Counters;

/// The sums of a day; each day begins 24 hours after the one before.
pub(super) const SUMS: &str = "SELECT date_bin('1 day', {at}.created_at, $1) AS day, count(*)::numeric, \
            COALESCE(sum(e.total_tokens), 0), COALESCE(sum(e.model_cost), 0), COALESCE(sum(e.fee_amount), 0), \
            COALESCE(sum(e.service_charge_amount), 0), COALESCE(sum(e.total_request_cost), 0), \
            COALESCE(sum(e.total_wallet_cost), 0), COALESCE(sum(e.total_merchant_cost), 0)";

/// Adds up the requests of `filter` that were opened within one of `spans`, each from its first instant on and before
/// its second, into the days that begin at `midnight` and every 24 hours after it.
pub(crate) async fn sums(
    db: &Client,
    merchant_id: MerchantId,
    filter: &Filter,
    spans: &[(DateTime<Utc>, DateTime<Utc>)],
    midnight: DateTime<Utc>,
    days: &mut [Counters],
) -> Result<(), Error> {
    let Some(wanted) = filter.wanted(db, merchant_id).await? else { return Ok(()) };
    for (from, to) in spans {
        let mut query = wanted.sum(SUMS, vec![(&midnight, Type::TIMESTAMPTZ)]);
        let parameters: [Parameter<'_>; 2] = [(from, Type::TIMESTAMPTZ), (to, Type::TIMESTAMPTZ)];
        query.and("{at}.created_at >= {1} AND {at}.created_at < {2}", parameters);
        query.end("GROUP BY 1", []);
        for row in query.rows(db).await? {
            Counters::add_day(&mut Columns::of(&row), midnight, days)?;
        }
    }
    Ok(())
}
