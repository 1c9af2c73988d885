//! `farthing merchant create`: a merchant, its wallet and its first secret key.

use farthing_core::command::{IssueSecretKey, RegisterMerchant};
use farthing_core::ids::{MerchantId, SecretKeyId, WalletId};
use farthing_core::secret;
use serde::Serialize;

use crate::failure::Failure;
use crate::operator::{Access, Operator};
use crate::output::Format;
use crate::text;

/// Flags of `merchant create`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    /// What to call the merchant.
    #[arg(long, default_value = "merchant", value_parser = text::line)]
    name: String,
    #[command(flatten)]
    format: Format,
}

/// A new merchant; the raw key is shown this once.
#[derive(Debug, Serialize)]
pub(crate) struct Created {
    /// The merchant.
    pub(crate) merchant_id: MerchantId,
    /// Its wallet.
    pub(crate) wallet_id: WalletId,
    /// Its first key.
    pub(crate) secret_key_id: SecretKeyId,
    /// The raw key.
    pub(crate) secret_key: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let operator = Operator::open(&args.access).await?;
    let created = create(&operator, args.name).await;
    operator.close().await;
    args.format.print(&created?)
}

/// Registers a merchant called `name`.
pub(crate) async fn create(operator: &Operator, name: String) -> Result<Created, Failure> {
    let now = Operator::now();
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
    operator.submit(RegisterMerchant { wallet_id, name, first_key, now }).await?;
    Ok(Created { merchant_id, wallet_id, secret_key_id, secret_key: raw.reveal().to_owned() })
}
