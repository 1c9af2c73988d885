//! `farthing wallet credit`: money into a wallet, with the reason on record.

use farthing_core::command::{CreditTarget, CreditWallet};
use farthing_core::ids::{CreditId, CustomerId, MerchantId, WalletId};
use farthing_core::money::Amount;
use serde::Serialize;

use crate::failure::Failure;
use crate::operator::{Access, Operator};
use crate::output::Format;
use crate::text;

/// Flags of `wallet credit`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    target: Target,
    /// How much, in dollars: a decimal of up to ten fractional digits, above zero.
    #[arg(long, allow_hyphen_values = true, value_parser = text::positive_amount)]
    amount: Amount,
    /// Why, for the record.
    #[arg(long, value_parser = text::line)]
    reason: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Credit the wallet of this connection (customer), `con_…`.
    #[arg(long, value_name = "ID")]
    connection: Option<CustomerId>,
    /// Credit the own wallet of this merchant, `mer_…`.
    #[arg(long, value_name = "ID")]
    merchant: Option<MerchantId>,
}

/// The wallet after the credit.
#[derive(Debug, Serialize)]
pub(crate) struct Credited {
    wallet_id: WalletId,
    balance: Amount,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let target = match (args.target.connection, args.target.merchant) {
        (Some(id), None) => CreditTarget::Customer(id),
        (None, Some(id)) => CreditTarget::Merchant(id),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Failure::new("name one of --connection and --merchant"));
        }
    };
    let operator = Operator::open(&args.access).await?;
    let credited = credit(&operator, target, args.amount, args.reason).await;
    operator.close().await;
    args.format.print(&credited?)
}

/// Credits the wallet of `target`.
pub(crate) async fn credit(
    operator: &Operator,
    target: CreditTarget,
    amount: Amount,
    reason: String,
) -> Result<Credited, Failure> {
    let now = Operator::now();
    let credit_id = CreditId::new(operator.mint.next(now));
    let credited = operator.submit(CreditWallet { credit_id, target, amount, reason, now }).await?;
    Ok(Credited { wallet_id: credited.wallet_id, balance: credited.balance })
}
