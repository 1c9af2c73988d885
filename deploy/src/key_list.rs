//! `farthing key list`: a merchant's secret keys that are good, never the keys themselves.

use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use farthing_core::ids::{MerchantId, SecretKeyId};
use farthing_core::state::StateKey;
use farthing_log::connect::{Role, connect};
use farthing_log::{reader, states};
use farthing_projector::query::Page;
use farthing_projector::secret_keys::query;
use farthing_projector::{ReadModel, checkpoint};
use serde::Serialize;
use tokio_postgres::Client;

use crate::database::Database;
use crate::failure::{Failure, IntoFailure as _};
use crate::output::{Format, Listing};

/// How long the read model may take to come as far as the log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Flags of `key list`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The merchant, `mer_…`.
    #[arg(long, value_name = "ID")]
    merchant: MerchantId,
    /// Keys of a page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// The last id of the page before.
    #[arg(long, value_name = "ID")]
    cursor: Option<SecretKeyId>,
    #[command(flatten)]
    format: Format,
}

/// A secret key.
#[derive(Debug, Serialize)]
struct Key {
    secret_key_id: SecretKeyId,
    secret_key_hint: String,
    created_at: String,
    name: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let url = &args.database.database_url;
    let client = connect(url, Role::Gateway).await.or_fail("cannot reach the database of the ledger")?;
    let merchant = states::load(&client, &[StateKey::Merchant(args.merchant)]).await;
    if merchant.or_fail("cannot read the ledger")?.iter().all(Option::is_none) {
        return Err(Failure::new("no such merchant"));
    }
    caught_up(&client).await?;
    let cursor = args.cursor.map(|id| id.to_string());
    let page = Page { cursor: cursor.as_deref(), limit: args.limit };
    let listed = query::list(&client, args.merchant, page).await.or_fail("cannot list the keys")?;
    let last = listed.items.last().map(|row| row.secret_key_id.to_string());
    let data = listed.items.into_iter().map(|row| Key {
        secret_key_id: row.secret_key_id,
        secret_key_hint: row.hint,
        created_at: shown(row.created_at),
        name: row.name,
    });
    args.format.print_list(&Listing::new(data.collect(), listed.has_more, last))
}

/// An instant as the interface shows it.
pub(crate) fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Waits until the read model shows all that is in the log now: an old list would hide a key that is good.
async fn caught_up(client: &Client) -> Result<(), Failure> {
    let head = client.query_one(reader::READ_HEAD, &[]).await.or_fail("cannot read the ledger")?;
    let head: i64 = head.try_get(0).or_fail("cannot read the ledger")?;
    let started = Instant::now();
    loop {
        let position = checkpoint::position(client, ReadModel::SecretKeys).await;
        if position.or_fail("cannot read the read model")? >= head {
            return Ok(());
        }
        if started.elapsed() > CATCH_UP_TIMEOUT {
            return Err(Failure::new("the read model is behind the log: is a projector running?"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
