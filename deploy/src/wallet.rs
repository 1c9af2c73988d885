//! `farthing wallet credit`: adds money to a wallet and records the reason.

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use farthing_core::command::{self, CreditTarget, CreditWallet, CustomerRefusal};
use farthing_core::ids::{CreditId, CustomerId, MerchantId, WalletId};
use farthing_core::money::Amount;
use serde::Serialize;

use crate::operator::{Access, Operator};
use crate::output::OutputFormat;
use crate::value_parsers;

/// Subcommands of `wallet`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add money to the wallet of a connection or of a merchant.
    Credit(Args),
}

/// Flags of `wallet credit`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    target: Target,
    /// Amount in dollars: a decimal greater than zero with at most ten fractional digits.
    #[arg(long, allow_hyphen_values = true, value_parser = value_parsers::positive_amount)]
    amount: Amount,
    /// Reason, recorded in the log.
    #[arg(long, value_parser = value_parsers::line)]
    reason: String,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Credit the wallet of this connection (customer), `con_…`.
    #[arg(long, value_name = "ID")]
    connection: Option<CustomerId>,
    /// Credit the merchant's own wallet, `mer_…`.
    #[arg(long, value_name = "ID")]
    merchant: Option<MerchantId>,
}

/// The wallet after the credit.
#[derive(Debug, Serialize)]
struct Credited {
    wallet_id: WalletId,
    balance: Amount,
}

/// Runs the subcommand.
pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Credit(args) => credit(args).await,
    }
}

async fn credit(args: Args) -> Result<()> {
    let target = match (args.target.connection, args.target.merchant) {
        (Some(id), None) => CreditTarget::Customer(id),
        (None, Some(id)) => CreditTarget::Merchant(id),
        (Some(_), Some(_)) | (None, None) => bail!("give exactly one of --connection and --merchant"),
    };
    let operator = Operator::open(&args.access).await?;
    let credited = credit_target(&operator, target, args.amount, args.reason).await;
    operator.close().await;
    let credited = credited?;
    let command::Credited { wallet_id, balance } = credited;
    let done = format!("wallet {wallet_id} was credited with {}: do not repeat the command", args.amount);
    args.format.print_done(&Credited { wallet_id, balance }, done)
}

async fn credit_target(
    operator: &Operator,
    target: CreditTarget,
    amount: Amount,
    reason: String,
) -> Result<command::Credited> {
    let partition = match target {
        CreditTarget::Customer(id) => operator
            .partition_of_customer(id)
            .await?
            .context(CustomerRefusal::NotFound)
            .context("nothing was changed")?,
        CreditTarget::Merchant(id) => operator.partition_of(id),
    };
    let now = operator.now();
    let credit_id = CreditId::new(operator.mint.next(now));
    let command = CreditWallet { credit_id, target, amount, reason, now };
    operator.submit(partition, command).await
}
