//! The entry of a wallet, and its funds.

use farthing_core::entry::Cause;
use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::money::Amount;
use farthing_projector::entries::query::{EntryRow, FundsRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// The money in a wallet, or a change of it, in dollars.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerFunds {
    balance: Amount,
    /// The credit of the plan.
    plan_credit: Amount,
    /// The credit of bundles.
    bundle_credit: Amount,
}

impl From<FundsRow> for LedgerFunds {
    fn from(FundsRow { balance, plan_credit, bundle_credit, position: _ }: FundsRow) -> Self {
        Self { balance, plan_credit, bundle_credit }
    }
}

/// An entry of a wallet.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerEntry {
    /// Its position in the log of the merchant's partition, as text. It is the cursor, too.
    id: String,
    wallet_id: WalletId,
    /// The customer; null for the merchant's own wallet.
    customer_id: Option<CustomerId>,
    /// `credit`, `debit`, `grant`, `bundle_grant`, `expiry` or `cancellation`.
    kind: &'static str,
    /// The id of the credit, request, subscription or payment that it is about.
    reference: String,
    /// The reason of a credit; null for other kinds.
    reason: Option<String>,
    created_at: Timestamp,
    /// The change: negative parts were taken.
    change: LedgerFunds,
    /// The funds after it.
    after: LedgerFunds,
}

impl LedgerEntry {
    pub(super) fn new(wallet_id: WalletId, customer_id: Option<CustomerId>, row: EntryRow) -> Self {
        Self {
            id: row.position.to_string(),
            wallet_id,
            customer_id,
            kind: row.cause.kind(),
            reference: row.cause.reference(),
            created_at: Timestamp(row.occurred_at),
            change: LedgerFunds {
                balance: row.balance_change,
                plan_credit: row.plan_credit_change,
                bundle_credit: row.bundle_credit_change,
            },
            after: LedgerFunds {
                balance: row.balance,
                plan_credit: row.plan_credit,
                bundle_credit: row.bundle_credit,
            },
            reason: match row.cause {
                Cause::Credit { reason, .. } => Some(reason),
                Cause::Debit { .. }
                | Cause::Grant { .. }
                | Cause::BundleGrant { .. }
                | Cause::Expiry { .. }
                | Cause::Cancellation { .. } => None,
            },
        }
    }
}
