//! The idempotency claims in `ledger.idempotency`, beside the log. Invariant: a row older than 24 hours counts as
//! absent, by the database's clock.

use tokio_postgres::{Client, Row, Statement};

use farthing_core::idempotency::{Claim, ClaimId, ClaimStatus, StoredClaim};
use farthing_core::partition::Partition;

/// A forwarded call is in flight while its `request` state exists, so ending the call also ends the claim.
const FIND: &str = "\
SELECT c.id, c.fingerprint, c.request_id, c.answer, s.id IS NOT NULL AS in_flight
FROM ledger.idempotency AS c
LEFT JOIN ledger.state AS s ON s.partition = c.partition AND s.kind = 'request' AND s.id = c.request_id
WHERE c.partition = $1 AND c.id = ANY($2) AND c.created_at > now() - interval '24 hours'";

const PUT: &str = "\
INSERT INTO ledger.idempotency (partition, id, fingerprint, request_id, answer)
SELECT $1, c.id, c.fingerprint, c.request_id, c.answer
FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) AS c(id, fingerprint, request_id, answer)
ON CONFLICT (partition, id) DO UPDATE SET fingerprint = excluded.fingerprint, request_id = excluded.request_id,
    answer = excluded.answer, created_at = excluded.created_at";

const ANSWER: &str = "\
UPDATE ledger.idempotency AS c SET answer = a.answer
FROM unnest($2::text[], $3::text[], $4::bytea[]) AS a(id, request_id, answer)
WHERE c.partition = $1 AND c.id = a.id AND c.request_id = a.request_id";

const RELEASE: &str = "\
DELETE FROM ledger.idempotency AS c USING unnest($2::text[], $3::text[]) AS r(id, request_id)
WHERE c.partition = $1 AND c.id = r.id AND c.request_id = r.request_id";

/// Locks the rows before it compares their age, so that a row claimed again at the same time stays.
const PURGE: &str = "\
DELETE FROM ledger.idempotency WHERE (partition, id) IN (
    SELECT partition, id FROM ledger.idempotency WHERE created_at <= now() - interval '24 hours'
    ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)";

/// The changes of a batch to claims.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// New claims.
    pub(super) put: Vec<(ClaimId, StoredClaim)>,
    /// The sealed answers of forwarded calls that end.
    pub(super) answered: Vec<(ClaimId, String, Vec<u8>)>,
    /// The claims of forwarded calls that never reached a provider.
    pub(super) released: Vec<(ClaimId, String)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.answered.is_empty() && self.released.is_empty()
    }
}

/// The statements, prepared.
#[derive(Debug)]
pub(super) struct Statements {
    find: Statement,
    put: Statement,
    answer: Statement,
    release: Statement,
}

impl Statements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        let (find, put, answer, release) = tokio::try_join!(
            client.prepare(FIND),
            client.prepare(PUT),
            client.prepare(ANSWER),
            client.prepare(RELEASE),
        )?;
        Ok(Self { find, put, answer, release })
    }

    /// Reads the records of `ids` in `partition`.
    pub(super) async fn find(
        &self,
        client: &Client,
        partition: Partition,
        ids: &[ClaimId],
    ) -> Result<Vec<(ClaimId, StoredClaim)>, tokio_postgres::Error> {
        let ids: Vec<&str> = ids.iter().map(ClaimId::as_str).collect();
        client.query(&self.find, &[&partition.number(), &ids]).await?.iter().map(read).collect()
    }

    /// Writes `changes` in `partition`, in the open transaction.
    pub(super) async fn write(
        &self,
        client: &Client,
        partition: Partition,
        changes: &Changes,
    ) -> Result<(), tokio_postgres::Error> {
        let partition = partition.number();
        let Changes { put, answered, released } = changes;
        if !put.is_empty() {
            let ids: Vec<&str> = put.iter().map(|(id, _)| id.as_str()).collect();
            let fingerprints: Vec<&str> = put.iter().map(|(_, row)| row.fingerprint.as_str()).collect();
            let requests: Vec<Option<String>> =
                put.iter().map(|(_, row)| row.request_id.map(|id| id.to_string())).collect();
            let answers: Vec<Option<&[u8]>> = put.iter().map(|(_, row)| row.answer.as_deref()).collect();
            client.execute(&self.put, &[&partition, &ids, &fingerprints, &requests, &answers]).await?;
        }
        if !answered.is_empty() {
            let ids: Vec<&str> = answered.iter().map(|(id, _, _)| id.as_str()).collect();
            let requests: Vec<&str> = answered.iter().map(|(_, request, _)| request.as_str()).collect();
            let answers: Vec<&[u8]> = answered.iter().map(|(_, _, answer)| answer.as_slice()).collect();
            client.execute(&self.answer, &[&partition, &ids, &requests, &answers]).await?;
        }
        if !released.is_empty() {
            let ids: Vec<&str> = released.iter().map(|(id, _)| id.as_str()).collect();
            let requests: Vec<&str> = released.iter().map(|(_, request)| request.as_str()).collect();
            client.execute(&self.release, &[&partition, &ids, &requests]).await?;
        }
        Ok(())
    }
}

fn read(row: &Row) -> Result<(ClaimId, StoredClaim), tokio_postgres::Error> {
    let request_id: Option<&str> = row.try_get("request_id")?;
    let recorded = StoredClaim {
        fingerprint: row.try_get("fingerprint")?,
        request_id: request_id.and_then(|id| id.parse().ok()),
        in_flight: row.try_get("in_flight")?,
        answer: row.try_get("answer")?,
    };
    Ok((ClaimId::stored(row.try_get("id")?), recorded))
}

/// Reads the status of `claim` in its merchant's partition without the head's lock; `None` if the claim is new. The result is good enough to repeat
/// an answer; a new call must check the claim under the lock.
pub async fn find(
    client: &Client,
    partition: Partition,
    claim: &Claim,
) -> Result<Option<ClaimStatus>, tokio_postgres::Error> {
    let rows = client.query(FIND, &[&partition.number(), &[claim.id.as_str()].as_slice()]).await?;
    let recorded = rows.first().map(read).transpose()?;
    Ok(recorded.and_then(|(_, recorded)| recorded.meets(claim)))
}

/// Deletes up to 1,000 expired claims; returns how many.
pub async fn purge(client: &Client) -> Result<u64, tokio_postgres::Error> {
    client.execute(PURGE, &[]).await
}
