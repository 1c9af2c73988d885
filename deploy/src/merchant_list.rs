//! `farthing merchant list`: the merchants in the order they were registered, page by page, from the ledger's own
//! states.

use farthing_core::ids::{MerchantId, WalletId};
use farthing_core::state::{State, StateKey};
use farthing_log::connect::{Role, connect};
use serde::Serialize;

use crate::database::Database;
use crate::failure::{Failure, IntoFailure as _};
use crate::key_list::shown;
use crate::output::{Format, Listing};

/// One page by the key of the table; ids sort as they were made.
const LIST: &str = "SELECT id, body FROM ledger.state WHERE kind = 'merchant' AND id COLLATE \"C\" > $1 ORDER BY id COLLATE \"C\" LIMIT $2";

/// Flags of `merchant list`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Merchants of a page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The last id of the page before.
    #[arg(long, value_name = "ID")]
    cursor: Option<MerchantId>,
    #[command(flatten)]
    format: Format,
}

/// A merchant of the list.
#[derive(Debug, Serialize)]
struct Listed {
    merchant_id: MerchantId,
    wallet_id: WalletId,
    secret_keys: u32,
    created_at: String,
    name: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let url = &args.database.database_url;
    let client = connect(url, Role::Gateway).await.or_fail("cannot reach the database of the ledger")?;
    let after = args.cursor.map(|id| id.to_string()).unwrap_or_default();
    let rows = client.query(LIST, &[&after, &(i64::from(args.limit) + 1)]).await;
    let rows = rows.or_fail("cannot list the merchants")?;
    let has_more = rows.len() > usize::from(args.limit);
    let page = rows.iter().take(args.limit.into());
    let data = page.map(|row| merchant(row.get(0), row.get(1))).collect::<Result<Vec<_>, _>>()?;
    let last = data.last().map(|merchant| merchant.merchant_id.to_string());
    args.format.print_list(&Listing::new(data, has_more, last))
}

fn merchant(id: &str, body: &str) -> Result<Listed, Failure> {
    let unreadable = || Failure::new(format!("the state of {id} is unreadable"));
    let merchant_id: MerchantId = id.parse().map_err(|_| unreadable())?;
    match State::from_json(&StateKey::Merchant(merchant_id), body) {
        Ok(State::Merchant(state)) => Ok(Listed {
            merchant_id,
            wallet_id: state.wallet_id,
            secret_keys: state.secret_keys,
            created_at: shown(state.created_at),
            name: state.name,
        }),
        Ok(_) | Err(_) => Err(unreadable()),
    }
}
