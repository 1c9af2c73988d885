//! `farthing merchant create`: creates a merchant, its wallet and its first secret key.

use anyhow::Result;
use farthing_core::command::{IssueSecretKey, RegisterMerchant};
use farthing_core::ids::{MerchantId, SecretKeyId, WalletId};
use farthing_core::secret;
use serde::Serialize;

use crate::operator::{Access, Operator};
use crate::output::OutputFormat;
use crate::value_parsers;

/// Flags of `merchant create`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    /// Name of the merchant.
    #[arg(long, default_value = "merchant", value_parser = value_parsers::line)]
    name: String,
    #[command(flatten)]
    format: OutputFormat,
}

/// A new merchant. The raw key is shown only once.
#[derive(Debug, Serialize)]
struct Created {
    merchant_id: MerchantId,
    wallet_id: WalletId,
    secret_key_id: SecretKeyId,
    secret_key: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let operator = Operator::open(&args.access).await?;
    let created = create(&operator, args.name).await;
    operator.close().await;
    let created = created?;
    let (merchant_id, key_id) = (created.merchant_id, created.secret_key_id);
    let done = format!(
        "merchant {merchant_id} was created; its key {key_id} is never shown again: issue another and revoke it"
    );
    args.format.print_done(&created, done)
}

async fn create(operator: &Operator, name: String) -> Result<Created> {
    let now = operator.now();
    let raw = secret::new_secret_key(operator.instance.mode);
    let merchant_id = MerchantId::new(operator.mint.next(now));
    let wallet_id = WalletId::new(operator.mint.next(now));
    let secret_key_id = SecretKeyId::new(operator.mint.next(now));
    let first_key = IssueSecretKey {
        merchant_id,
        secret_key_id,
        key_hash: operator.instance.server_key.hash(raw.reveal()),
        hint: raw.hint(),
        name: "first key".to_owned(),
        now,
    };
    let partition = operator.partition_of(merchant_id);
    operator.submit(partition, RegisterMerchant { wallet_id, name, first_key, now }).await?;
    Ok(Created { merchant_id, wallet_id, secret_key_id, secret_key: raw.reveal().to_owned() })
}
