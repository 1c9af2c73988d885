//! `farthing key issue`: issues another secret key to a merchant. Only an operator can.

use anyhow::Result;
use farthing_core::command::IssueSecretKey;
use farthing_core::ids::{MerchantId, SecretKeyId};
use farthing_core::secret;
use serde::Serialize;

use crate::operator::{Access, Operator};
use crate::output::OutputFormat;
use crate::value_parsers;

/// Flags of `key issue`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    /// Merchant to issue the key to, `mer_…`.
    #[arg(long, value_name = "ID")]
    merchant: MerchantId,
    /// Name of the key.
    #[arg(long, default_value = "secret key", value_parser = value_parsers::line)]
    name: String,
    #[command(flatten)]
    format: OutputFormat,
}

/// A new key. The raw key is shown only once.
#[derive(Debug, Serialize)]
struct Issued {
    secret_key_id: SecretKeyId,
    secret_key: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let operator = Operator::open(&args.access).await?;
    let issued = issue(&operator, args.merchant, args.name).await;
    operator.close().await;
    let issued = issued?;
    let done = format!("key {} was issued and is never shown again: revoke it", issued.secret_key_id);
    args.format.print_done(&issued, done)
}

async fn issue(operator: &Operator, merchant_id: MerchantId, name: String) -> Result<Issued> {
    let now = operator.now();
    let raw = secret::new_secret_key(operator.instance.mode);
    let secret_key_id = SecretKeyId::new(operator.mint.next(now));
    let key_hash = operator.instance.server_key.hash(raw.reveal());
    let command = IssueSecretKey { merchant_id, secret_key_id, key_hash, hint: raw.hint(), name, now };
    operator.submit(operator.partition_of(merchant_id), command).await?;
    Ok(Issued { secret_key_id, secret_key: raw.reveal().to_owned() })
}
