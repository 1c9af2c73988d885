//! `farthing merchant list`: lists merchants in the order of their creation, read from the ledger's states.

use anyhow::{Context as _, Result, bail};
use farthing_core::ids::{MerchantId, WalletId};
use farthing_core::state::{State, StateKey};
use farthing_log::connect::{Role, connect};
use serde::Serialize;

use crate::database::Database;
use crate::output::{Listing, OutputFormat, timestamp};

/// One page over all partitions, by the primary key in each. Ids sort by their time of creation.
const LIST: &str = "\
SELECT s.id, s.shape, s.body
FROM ledger.heads AS h
CROSS JOIN LATERAL (
    SELECT id, shape, body FROM ledger.state
    WHERE partition = h.partition AND generation = h.generation AND kind = 'merchant' AND id > $1 ORDER BY id LIMIT $2
) AS s
ORDER BY s.id LIMIT $2";

/// Flags of `merchant list`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Merchants per page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Start after this merchant: the last one of the previous page.
    #[arg(long, value_name = "ID")]
    cursor: Option<MerchantId>,
    #[command(flatten)]
    format: OutputFormat,
}

/// One row of the list.
#[derive(Debug, Serialize)]
struct MerchantRow {
    merchant_id: MerchantId,
    wallet_id: WalletId,
    secret_keys: u32,
    created_at: String,
    name: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let url = &args.database.reachable_url().await?;
    let client = connect(url, Role::Gateway).await.context("cannot connect to the database")?;
    let after = args.cursor.map(|id| id.to_string()).unwrap_or_default();
    let rows = client.query(LIST, &[&after, &(i64::from(args.limit) + 1)]).await;
    let rows = rows.context("cannot list the merchants")?;
    let has_more = rows.len() > usize::from(args.limit);
    let page = rows.iter().take(args.limit.into());
    let data = page.map(|row| merchant(row.get(0), row.get(1), row.get(2))).collect::<Result<Vec<_>>>()?;
    let last = data.last().map(|merchant| merchant.merchant_id.to_string());
    args.format.print_list(&Listing::new(data, has_more, last))
}

fn merchant(id: &str, shape: i16, body: &str) -> Result<MerchantRow> {
    let merchant_id: MerchantId =
        id.parse().with_context(|| format!("the merchant id {id:?} is malformed"))?;
    match State::from_json(&StateKey::Merchant(merchant_id), shape, body) {
        Ok(State::Merchant(state)) => Ok(MerchantRow {
            merchant_id,
            wallet_id: state.wallet_id,
            secret_keys: state.secret_keys,
            created_at: timestamp(state.created_at),
            name: state.name,
        }),
        Ok(_) | Err(_) => bail!("the state of {id} is unreadable"),
    }
}
