//! `GET /ledger/events`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use farthing_core::ids::MerchantId;
use farthing_core::secret::hex;
use farthing_projector::ReadModel;
use farthing_projector::journal::Kinds;
use farthing_projector::journal::query::{self, Call, EventFilter, EventRow};
use farthing_projector::requests::query as requests;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::older_and_newer_names::{self, CustomerQuery};
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::values;

/// Members of bodies that are not shown: hashes of keys, the payment processor's tokens of cards, and the process that
/// forwarded a call.
const HIDDEN: [&str; 4] = ["key_hash", "old_key_hash", "token", "gateway_id"];

/// The member of a body with members of its own that are not shown: the card that comes with a payment.
const CARD_BROUGHT: &str = "brings";

/// The filters of a list of events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// Only events of these kinds: one, or several with commas between them.
    #[param(inline)]
    kind: Option<values::EventKinds>,
    /// Only events that occurred at this time or later.
    #[param(inline)]
    from: Option<values::LocalInstant>,
    /// Only events that occurred before this time.
    #[param(inline)]
    to: Option<values::LocalInstant>,
    /// Only events of this call, by its id or the merchant's own id of a reported call.
    #[param(inline)]
    request_id: Option<values::Filter>,
}

/// An event of the merchant, as it stands in the log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LedgerEvent {
    /// Its position, as text. It is the cursor, too.
    id: String,
    /// The partition of the log that has all events of the merchant, beside those of others.
    partition: i16,
    /// Its position in the partition.
    position: i64,
    /// Its SHA-256 in the chain, in hexadecimal. It covers all events of the partition up to this one.
    hash: String,
    kind: &'static str,
    /// The version of the shape of its body.
    version: i32,
    /// When it happened, by the merchant's clock.
    occurred_at: Timestamp,
    /// When it was appended to the log.
    recorded_at: Timestamp,
    /// What happened, as it was written. Hashes of keys, tokens of cards and the gateway of a call are left out.
    #[schema(value_type = Object)]
    body: Box<RawValue>,
}

impl LedgerEvent {
    fn new(row: &EventRow) -> Result<Self, ApiError> {
        let body = shown(&row.body).map_err(|error| {
            ApiError::internal(format!("the body at position {} is no object: {error}", row.position))
        })?;
        Ok(Self {
            id: row.position.to_string(),
            partition: row.partition.number(),
            position: row.position,
            hash: hex(&row.hash),
            kind: row.kind,
            version: row.version,
            occurred_at: Timestamp(row.occurred_at),
            recorded_at: Timestamp(row.recorded_at),
            body,
        })
    }
}

/// A body without what is hidden. All other members are the exact text of the log.
fn shown(body: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(body)?;
    let brought = members.get(CARD_BROUGHT).map(|brought| without_hidden(brought.get())).transpose()?;
    members.retain(|name, _| !HIDDEN.contains(name));
    if let Some(brought) = &brought {
        members.insert(CARD_BROUGHT, brought);
    }
    serde_json::value::to_raw_value(&members)
}

fn without_hidden(object: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(object)?;
    members.retain(|name, _| !HIDDEN.contains(name));
    serde_json::value::to_raw_value(&members)
}

/// 200 with a page of the merchant's events, newest first. An event must pass all given filters. The cursor is the position
/// of the last event.
#[utoipa::path(
    get, path = "/ledger/events", operation_id = "list_ledger_events", tag = "ledger",
    params(PageQuery, CustomerQuery, EventQuery),
    responses((status = 200, description = "A page of events.", body = List<LedgerEvent>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, (customer, events))): Params<(PageQuery, (CustomerQuery, EventQuery))>,
) -> Result<Reply<List<LedgerEvent>>, ApiError> {
    let mut issues = Issues::default();
    let customer = customer.customer(&mut issues);
    let (from, to) = (events.from.map(|from| from.0.to_utc()), events.to.map(|to| to.0.to_utc()));
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        issues.refuse(["to"], "must not be before from");
    }
    issues.checked()?;
    let customer_id = match &customer {
        None => None,
        Some(name) => match older_and_newer_names::customer_id(&app, merchant_id, name).await? {
            Some(id) => Some(id),
            None => return nothing(&reads, merchant_id, &page).await,
        },
    };
    let call = match &events.request_id {
        None => None,
        Some(name) => {
            let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
            let found = within(requests::find(connection.partition(), merchant_id, &name.0)).await?;
            let Some(found) = found else {
                drop(connection);
                return nothing(&reads, merchant_id, &page).await;
            };
            Some(Call { request_id: found.request_id, opened_at: found.created_at, ended_at: found.ended_at })
        }
    };
    let kinds = events.kind.map_or(Kinds::ALL, |kinds| kinds.0);
    let filter = EventFilter { kinds, customer_id, call, from, to };
    let connection = reads.caught_up(ReadModel::Journal, merchant_id).await?;
    let listed = within(query::list(connection.partition(), merchant_id, filter, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.position.to_string());
    let shown = listed.items.iter().map(LedgerEvent::new).collect::<Result<_, _>>()?;
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}

/// The page of a filter that no event passes. Its cursor must be one of the list all the same.
async fn nothing(
    reads: &Reads,
    merchant_id: MerchantId,
    page: &PageQuery,
) -> Result<Reply<List<LedgerEvent>>, ApiError> {
    if page.cursor().is_some() {
        let connection = reads.caught_up(ReadModel::Journal, merchant_id).await?;
        within(query::check_cursor(connection.partition(), merchant_id, page.as_query())).await?;
    }
    Ok(Reply::ok(List::new(Vec::new(), false, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_of_a_key_and_no_token_of_a_card_is_shown() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ledger/core/tests/golden");
        let (mut files, mut hidden) = (0, 0);
        for file in std::fs::read_dir(golden).unwrap() {
            let body = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let shown = shown(body.trim_end()).unwrap();
            for name in HIDDEN {
                let member = format!("\"{name}\":");
                hidden += usize::from(body.contains(&member));
                assert!(!shown.get().contains(&member), "{shown}");
            }
            // A hash of a key has 64 hexadecimal digits, as that of a price file has, which is no secret.
            let is_hash = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let words: Vec<_> = shown.get().split('"').collect();
            assert!(!words.windows(3).any(|w| is_hash(w[2]) && w[..2] != ["sha256", ":"]), "{shown}");
            files += 1;
        }
        assert!(files > 40 && hidden >= 9, "{files} files, {hidden} hidden members");
    }

    #[test]
    fn what_is_shown_has_its_exact_text() {
        let body = r#"{"key_hash":"x","amount":"1.0000000000","units":10000000000000000001,"brings":{"token":"t","card":{"last4":"4242"}}}"#;
        let expected =
            r#"{"amount":"1.0000000000","brings":{"card":{"last4":"4242"}},"units":10000000000000000001}"#;
        assert_eq!(shown(body).unwrap().get(), expected);
    }
}
