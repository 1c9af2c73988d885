//! `farthing key revoke`: a secret key is dead at once on every gateway; a merchant's last one stays.

use farthing_core::command::{RevokeSecretKey, Revoker};
use farthing_core::ids::{MerchantId, SecretKeyId};
use serde::Serialize;

use crate::failure::Failure;
use crate::operator::{Access, Operator};
use crate::output::Format;

/// Flags of `key revoke`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    /// The key, `key_…`.
    #[arg(value_name = "ID")]
    key: SecretKeyId,
    #[command(flatten)]
    format: Format,
}

/// A revoked key.
#[derive(Debug, Serialize)]
struct Revoked {
    secret_key_id: SecretKeyId,
    merchant_id: MerchantId,
    success: bool,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let operator = Operator::open(&args.access).await?;
    let secret_key_id = args.key;
    let command = RevokeSecretKey { revoker: Revoker::Operator, secret_key_id, now: Operator::now() };
    let revoked = operator.submit(command).await;
    operator.close().await;
    args.format.print(&Revoked { secret_key_id, merchant_id: revoked?, success: true })
}
