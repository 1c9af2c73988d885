//! `GET /ledger/trial_balance`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::accounts::Account;
use farthing_core::money::Amount;
use farthing_projector::ReadModel;
use farthing_projector::journal::query::{self, Moment};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::values;

/// The moment of a trial balance; by default the present one.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MomentQuery {
    /// A time: events that occurred then or later do not count.
    #[param(inline)]
    at: Option<values::LocalInstant>,
    /// The position of the last event that counts, in the merchant's partition. Not with `at`.
    #[param(inline)]
    position: Option<values::LogPosition>,
}

/// The balances of the merchant's double-entry accounts. They add up to zero, unless figures of an event do not.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerTrialBalance {
    partition: i16,
    /// The position of the merchant's last event that counts.
    position: i64,
    /// The time that was asked for; null without one.
    at: Option<Timestamp>,
    /// All accounts, in a fixed order.
    accounts: Vec<LedgerAccount>,
    /// The sum of the balances: not zero only if something is wrong with the books.
    sum: Balance,
}

/// An account.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerAccount {
    /// Its name.
    account: &'static str,
    /// Its balance in dollars: a debit if positive, a credit if negative.
    balance: Balance,
}

/// A sum of amounts, in dollars.
#[derive(Debug, Clone, Copy)]
struct Balance(Decimal);

impl Serialize for Balance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.10}", self.0))
    }
}

impl utoipa::PartialSchema for Balance {
    fn schema() -> RefOr<Schema> {
        Amount::schema()
    }
}

impl ToSchema for Balance {}

/// 200 with the trial balance of the merchant's own books at a moment. With a moment, 503 if the read model does not show all
/// events until then.
#[utoipa::path(
    get, path = "/ledger/trial_balance", operation_id = "get_ledger_trial_balance", tag = "ledger",
    params(MomentQuery),
    responses((status = 200, description = "The trial balance.", body = LedgerTrialBalance)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params(MomentQuery { at, position }): Params<MomentQuery>,
) -> Result<Reply<LedgerTrialBalance>, ApiError> {
    let at = at.map(|at| at.0.to_utc());
    let mut issues = Issues::default();
    let moment = match (at, &position) {
        (None, None) => Moment::Now,
        (Some(at), None) => Moment::Time(at),
        (None, Some(position)) => Moment::Position(position.0),
        (Some(_), Some(position)) => {
            issues.refuse(["position"], "must not be given together with at");
            Moment::Position(position.0)
        }
    };
    issues.checked()?;
    let partition = app.partitions.of(merchant_id);
    let connection = match moment {
        Moment::Now => reads.caught_up(ReadModel::Journal, merchant_id).await?,
        Moment::Time(_) => reads.complete(ReadModel::Journal, merchant_id, Ok).await?,
        Moment::Position(position) => {
            let target = |head| refuse_after_head(position, head).map(|()| position);
            reads.complete(ReadModel::Journal, merchant_id, target).await?
        }
    };
    let balances = within(query::balances(connection.partition(), merchant_id, moment)).await?;
    let sum = balances.sum().map_err(|why| ApiError::internal(format!("the sum of the balances {why}")))?;
    let account =
        |account: Account| LedgerAccount { account: account.name(), balance: Balance(balances.of(account)) };
    Ok(Reply::ok(LedgerTrialBalance {
        partition: partition.number(),
        position: balances.position,
        at: at.map(Timestamp),
        accounts: Account::ALL.map(account).into(),
        sum: Balance(sum),
    }))
}

/// Refuses a position that the log does not have yet.
pub(super) fn refuse_after_head(position: i64, head: i64) -> Result<(), ApiError> {
    let mut issues = Issues::default();
    if position > head {
        issues.refuse(["position"], format!("must be at most {head}, the last position of the partition"));
    }
    issues.checked()
}
