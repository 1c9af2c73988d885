//! The idempotency claims in `ledger.idempotency`, beside the log. Invariant: a row older than 24 hours counts as
//! absent, by the database's clock.

use serde::Serialize;
use tokio_postgres::{Client, Row, Statement};

use farthing_core::idempotency::{Claim, ClaimId, ClaimStatus, SealedAnswer, StoredClaim};
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;

/// The records of $2 in partition $1.
pub(super) const FIND: &str = "\
SELECT id, fingerprint, request_id, answer FROM ledger.idempotency
WHERE partition = $1 AND id = ANY($2) AND created_at > now() - interval '24 hours'";

/// Locks the rows before it compares their age, so that a row claimed again at the same time stays.
const PURGE: &str = "\
DELETE FROM ledger.idempotency WHERE partition = $1 AND id IN (
    SELECT id FROM ledger.idempotency WHERE partition = $1 AND created_at <= now() - interval '24 hours'
    ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)";

/// The changes of a batch to claims.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// New claims.
    pub(super) put: Vec<(ClaimId, StoredClaim)>,
    /// The sealed answers of forwarded calls that end.
    pub(super) answered: Vec<(ClaimId, RequestId, SealedAnswer)>,
    /// The claims of forwarded calls that never reached a provider.
    pub(super) released: Vec<(ClaimId, RequestId)>,
}

/// [`Changes`] as `ledger.append_batch` takes them. An answer is its number among the answers, from 1 on.
#[derive(Debug, Serialize)]
struct ChangesJson<'a> {
    put: Vec<Put<'a>>,
    answered: Vec<Answered<'a>>,
    released: Vec<Released<'a>>,
}

#[derive(Debug, Serialize)]
struct Put<'a> {
    id: &'a str,
    fingerprint: &'a str,
    request_id: Option<RequestId>,
    answer: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Answered<'a> {
    id: &'a str,
    request_id: RequestId,
    answer: usize,
}

#[derive(Debug, Serialize)]
struct Released<'a> {
    id: &'a str,
    request_id: RequestId,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.answered.is_empty() && self.released.is_empty()
    }

    /// The changes as JSON, with the answers that it names by their numbers; `None` if there are none.
    pub(super) fn to_json(&self) -> (Option<String>, Vec<&[u8]>) {
        let mut answers = Vec::new();
        if self.is_empty() {
            return (None, answers);
        }
        let mut number_of = |answer| {
            answers.push(answer);
            answers.len()
        };
        let put = self.put.iter().map(|(id, claim)| Put {
            id: id.as_str(),
            fingerprint: &claim.fingerprint,
            request_id: claim.request_id,
            answer: claim.answer.as_deref().map(&mut number_of),
        });
        let put = put.collect();
        let answered = self.answered.iter().map(|(id, request_id, answer)| Answered {
            id: id.as_str(),
            request_id: *request_id,
            answer: number_of(answer),
        });
        let answered = answered.collect();
        let released = self
            .released
            .iter()
            .map(|(id, request_id)| Released { id: id.as_str(), request_id: *request_id });
        let changes = ChangesJson { put, answered, released: released.collect() };
        (Some(serde_json::to_string(&changes).expect("texts and numbers are written as JSON")), answers)
    }
}

/// Reads the records of `ids`, by the prepared statement [`FIND`].
pub(super) async fn find_prepared(
    client: &Client,
    find: &Statement,
    partition: Partition,
    ids: &[ClaimId],
) -> Result<Vec<(ClaimId, StoredClaim)>, tokio_postgres::Error> {
    let ids: Vec<&str> = ids.iter().map(ClaimId::as_str).collect();
    client.query(find, &[&partition.number(), &ids]).await?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<(ClaimId, StoredClaim), tokio_postgres::Error> {
    let request_id: Option<&str> = row.try_get("request_id")?;
    let recorded = StoredClaim {
        fingerprint: row.try_get("fingerprint")?,
        request_id: request_id.and_then(|id| id.parse().ok()),
        answer: row.try_get::<_, Option<Vec<u8>>>("answer")?.map(SealedAnswer::from),
    };
    Ok((ClaimId::stored(row.try_get("id")?), recorded))
}

/// Reads the answer to `claim` that is on record, or that its key was used for another request. `None` does not mean that
/// the claim is new: only the leader of the partition knows that.
pub async fn find(
    client: &Client,
    partition: Partition,
    claim: &Claim,
) -> Result<Option<ClaimStatus>, tokio_postgres::Error> {
    let rows = client.query(FIND, &[&partition.number(), &[claim.id.as_str()].as_slice()]).await?;
    let recorded = rows.first().map(read).transpose()?;
    Ok(recorded.and_then(|(_, recorded)| recorded.answer_to(claim)))
}

/// Deletes up to 1,000 expired claims of `partition`; returns how many.
pub async fn purge(client: &Client, partition: Partition) -> Result<u64, tokio_postgres::Error> {
    client.execute(PURGE, &[&partition.number()]).await
}
