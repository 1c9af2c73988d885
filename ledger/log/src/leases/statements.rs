//! The leases in Postgres: its statements, on one connection. Postgres's clock decides when a lease expires.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_core::state::shape;
use tokio_postgres::{Client, Statement};

use super::plan::Sharer;
use super::store::{Holder, LeaseResult, LeaseRow, LeaseSession, LeaseStore, Rows};
use crate::connect::{self, Role};

const SETTINGS: &str = "SET statement_timeout = '2s'; SET synchronous_commit = on";

const ANNOUNCE: &str = "\
INSERT INTO ledger.gateways (gateway, shape, expires_at, avoids)
VALUES ($1, $4, clock_timestamp() + $2::double precision * interval '1 s', $3)
ON CONFLICT (gateway) DO UPDATE SET expires_at = excluded.expires_at, avoids = excluded.avoids";

const LEAVE: &str = "DELETE FROM ledger.gateways WHERE gateway = $1";

const RENEW: &str = "\
UPDATE ledger.leases
SET expires_at = clock_timestamp() + $3::double precision * interval '1 s', address = $4, delivers = $5
WHERE gateway = $1 AND partition = ANY($2::smallint[]) RETURNING partition";

const NOW: &str = "SELECT clock_timestamp()";

/// A lease that was claimed or renewed after $3 expires later than $3 and the time of a lease: a statement that arrives
/// late gives no such lease back.
const RELEASE: &str = "\
UPDATE ledger.leases SET gateway = NULL, address = NULL, delivers = false, expires_at = '-infinity'
WHERE gateway = $1 AND NOT partition = ANY($2::smallint[])
    AND expires_at <= $3::timestamptz + $4::double precision * interval '1 s'";

/// Of two gateways that claim a partition at once, the second finds it taken.
const CLAIM: &str = "\
UPDATE ledger.leases
SET gateway = $1, expires_at = clock_timestamp() + $3::double precision * interval '1 s', address = $4, delivers = $5,
    term = term + 1
WHERE partition = ANY($2::smallint[]) AND expires_at <= clock_timestamp() RETURNING partition, term";

const LEASES: &str = "\
SELECT partition, gateway, address, term, delivers, expires_at > clock_timestamp() AS is_led
FROM ledger.leases ORDER BY partition";

/// The gateways of the newest program among those that share the partitions.
const GATEWAYS: &str = "\
SELECT gateway, avoids, shape FROM ledger.gateways
WHERE expires_at > clock_timestamp()
    AND shape = (SELECT max(shape) FROM ledger.gateways WHERE expires_at > clock_timestamp())
ORDER BY gateway";

/// The leases in a database.
#[derive(Debug)]
pub(super) struct PostgresLeases {
    pub(super) database_url: String,
    /// The role to work under.
    pub(super) role: Role,
}

impl LeaseStore for PostgresLeases {
    type Session = Statements;

    async fn open(&self) -> LeaseResult<Statements> {
        Ok(Statements::prepare(&self.database_url, self.role).await?)
    }
}

/// A connection with its statements.
pub(super) struct Statements {
    client: Client,
    now: Statement,
    announce: Statement,
    leave: Statement,
    renew: Statement,
    release: Statement,
    claim: Statement,
    leases: Statement,
    gateways: Statement,
}

impl Statements {
    async fn prepare(database_url: &str, role: Role) -> Result<Self, tokio_postgres::Error> {
        let client = connect::connect(database_url, role).await?;
        client.batch_execute(SETTINGS).await?;
        let (now, announce, leave, renew, release, claim, leases, gateways) = tokio::try_join!(
            client.prepare(NOW),
            client.prepare(ANNOUNCE),
            client.prepare(LEAVE),
            client.prepare(RENEW),
            client.prepare(RELEASE),
            client.prepare(CLAIM),
            client.prepare(LEASES),
            client.prepare(GATEWAYS),
        )?;
        Ok(Self { client, now, announce, leave, renew, release, claim, leases, gateways })
    }
}

impl LeaseSession for Statements {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn announce(&self, holder: &Holder, avoids: &[i16]) -> LeaseResult<()> {
        let Holder { gateway, seconds, .. } = holder;
        self.client.execute(&self.announce, &[gateway, seconds, &avoids, &shape()]).await?;
        Ok(())
    }

    async fn leave(&self, holder: &Holder) -> LeaseResult<()> {
        self.client.execute(&self.leave, &[&holder.gateway]).await?;
        Ok(())
    }

    async fn now(&self) -> LeaseResult<DateTime<Utc>> {
        Ok(self.client.query_one(&self.now, &[]).await?.try_get(0)?)
    }

    async fn release(&self, holder: &Holder, since: DateTime<Utc>, kept: &[i16]) -> LeaseResult<()> {
        let Holder { gateway, seconds, .. } = holder;
        self.client.execute(&self.release, &[gateway, &kept, &since, seconds]).await?;
        Ok(())
    }

    async fn renew(&self, holder: &Holder, kept: &[i16]) -> LeaseResult<Vec<Partition>> {
        let Holder { gateway, address, delivers, seconds } = holder;
        let renewed = self.client.query(&self.renew, &[gateway, &kept, seconds, address, delivers]).await?;
        renewed.iter().map(|row| Ok(Partition::new(row.try_get(0)?))).collect()
    }

    async fn claim(&self, holder: &Holder, wanted: &[i16]) -> LeaseResult<Vec<(Partition, i64)>> {
        let Holder { gateway, address, delivers, seconds } = holder;
        let claimed = self.client.query(&self.claim, &[gateway, &wanted, seconds, address, delivers]).await?;
        claimed.iter().map(|row| Ok((Partition::new(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    async fn rows(&self) -> LeaseResult<Rows> {
        let (leases, gateways) =
            tokio::try_join!(self.client.query(&self.leases, &[]), self.client.query(&self.gateways, &[]))?;
        let lease = |row: &tokio_postgres::Row| {
            let partition: i16 = row.try_get("partition")?;
            let lease = LeaseRow {
                gateway: row.try_get("gateway")?,
                address: row.try_get("address")?,
                term: row.try_get("term")?,
                delivers: row.try_get("delivers")?,
                is_led: row.try_get("is_led")?,
            };
            Ok((usize::try_from(partition).unwrap_or_default(), lease))
        };
        let leases = leases.iter().map(lease).collect::<Result<Vec<_>, tokio_postgres::Error>>()?;
        Ok(Rows {
            leases: in_places(leases),
            gateways: gateways.iter().map(sharer).collect::<Result<_, _>>()?,
        })
    }
}

/// The leases, each at the number of its partition. One whose row is missing is free, and cannot be claimed.
fn in_places(rows: Vec<(usize, LeaseRow)>) -> Vec<LeaseRow> {
    let mut leases = Vec::with_capacity(rows.len());
    for (place, lease) in rows {
        leases.resize(leases.len().max(place + 1), LeaseRow::FREE);
        leases[place] = lease;
    }
    leases
}

fn sharer(row: &tokio_postgres::Row) -> Result<Sharer, tokio_postgres::Error> {
    let avoids: Vec<i16> = row.try_get("avoids")?;
    let avoids = avoids.into_iter().map(Partition::new).collect();
    Ok(Sharer { name: row.try_get("gateway")?, avoids, shape: row.try_get("shape")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_whose_row_is_missing_moves_no_other() {
        let led =
            |gateway: &str| LeaseRow { gateway: Some(gateway.to_owned()), is_led: true, ..LeaseRow::FREE };
        let leases = in_places(vec![(0, led("a")), (1, led("b")), (4, led("e"))]);
        let gateways: Vec<Option<&str>> = leases.iter().map(|lease| lease.gateway.as_deref()).collect();
        assert_eq!(gateways, [Some("a"), Some("b"), None, None, Some("e")]);
    }
}
