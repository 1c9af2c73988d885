//! `farthing key revoke`: revokes a secret key, on every gateway at once. A merchant's last active key is refused.

use anyhow::{Context as _, Result};
use farthing_core::command::{RevokeSecretKey, Revoker, SecretKeyRefusal};
use farthing_core::ids::{MerchantId, SecretKeyId};
use serde::Serialize;

use crate::operator::{Access, Operator};
use crate::output::OutputFormat;
use crate::value_parsers;

/// Flags of `key revoke`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    /// Key to revoke, `key_…`.
    #[arg(value_name = "ID", value_parser = value_parsers::KeyId)]
    key: SecretKeyId,
    #[command(flatten)]
    format: OutputFormat,
}

/// A revoked key.
#[derive(Debug, Serialize)]
struct Revoked {
    secret_key_id: SecretKeyId,
    merchant_id: MerchantId,
    success: bool,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let operator = Operator::open(&args.access).await?;
    let secret_key_id = args.key;
    let revoked = revoke(&operator, secret_key_id).await;
    operator.close().await;
    let revoked = Revoked { secret_key_id, merchant_id: revoked?, success: true };
    args.format.print_done(&revoked, format!("key {secret_key_id} was revoked"))
}

async fn revoke(operator: &Operator, secret_key_id: SecretKeyId) -> Result<MerchantId> {
    let partition = operator.partition_of_key(secret_key_id).await?;
    let partition = partition.context(SecretKeyRefusal::NotFound).context("nothing was changed")?;
    let command = RevokeSecretKey { revoker: Revoker::Operator, secret_key_id, now: operator.now() };
    operator.submit(partition, command).await
}
