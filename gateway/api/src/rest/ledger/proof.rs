//! `GET /ledger/proof`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::secret::hex;
use farthing_log::reader;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::trial_balance::refuse_after_head;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::values;

/// The event of a proof; by default the last one of the partition.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PositionQuery {
    /// A position in the merchant's partition.
    #[param(inline)]
    position: Option<values::LogPosition>,
}

/// The hash of an event of the merchant's partition, signed. It covers all events up to this one: whoever keeps it can prove
/// later that none of them was changed or removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerProof {
    partition: i16,
    position: i64,
    /// The SHA-256 of the event in the chain, in hexadecimal.
    hash: String,
    /// When this proof was made.
    stated_at: Timestamp,
    /// The exact text that the signature is of: partition, position, hash and `stated_at` as JSON.
    message: String,
    /// The operator's Ed25519 public key, in hexadecimal; null if the operator signs no proofs.
    public_key: Option<String>,
    /// The Ed25519 signature of `message`, in hexadecimal; null without a key.
    signature: Option<String>,
}

/// What is signed.
#[derive(Debug, Serialize)]
struct Message<'a> {
    partition: i16,
    position: i64,
    hash: &'a str,
    stated_at: Timestamp,
}

/// 200 with the position and the hash of an event of the merchant's partition, signed if the operator has a key for it.
#[utoipa::path(
    get, path = "/ledger/proof", operation_id = "get_ledger_proof", tag = "ledger",
    params(PositionQuery),
    responses((status = 200, description = "The proof.", body = LedgerProof)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params(PositionQuery { position }): Params<PositionQuery>,
) -> Result<Reply<LedgerProof>, ApiError> {
    let partition = app.partitions.of(merchant_id);
    let connection = reads.of_log(merchant_id).await?;
    let (head, hash) = connection.within(reader::head_with_hash(&connection, partition)).await?;
    let (position, hash) = match position {
        None => (head, hash),
        Some(position) => {
            refuse_after_head(position.0, head)?;
            let found = connection.within(reader::hash_at(&connection, partition, position.0)).await?;
            let missing =
                || ApiError::internal(format!("partition {partition} has no position {}", position.0));
            (position.0, found.ok_or_else(missing)?)
        }
    };
    let (partition, hash, stated_at) = (partition.number(), hex(&hash), Timestamp(app.now()));
    let message = Message { partition, position, hash: &hash, stated_at };
    let message = serde_json::to_string(&message).map_err(|error| ApiError::internal(error.to_string()))?;
    let (public_key, signature) = match &app.proof_key {
        Some(key) => {
            let (public_key, signature) = key.sign(message.as_bytes());
            (Some(public_key), Some(signature))
        }
        None => (None, None),
    };
    Ok(Reply::ok(LedgerProof { partition, position, hash, stated_at, message, public_key, signature }))
}
