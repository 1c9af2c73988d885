//! The statements of the leases, on one connection. Postgres's clock decides when a lease expires.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_core::state::shape;
use tokio_postgres::{Client, Statement};

use super::plan::Sharer;
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

/// A lease, as the database has it.
#[derive(Debug, Clone)]
pub(super) struct LeaseRow {
    pub(super) gateway: Option<String>,
    pub(super) address: Option<String>,
    /// How often the partition was claimed.
    pub(super) term: i64,
    /// Whether the gateway delivers webhooks.
    pub(super) delivers: bool,
    /// Whether it has not expired.
    pub(super) is_led: bool,
}

/// What a gateway writes to its leases.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    /// Its name.
    pub(super) gateway: String,
    /// Its address for the commands of other gateways.
    pub(super) address: Option<String>,
    /// Whether it delivers webhooks.
    pub(super) delivers: bool,
    /// How long a lease lasts.
    pub(super) seconds: f64,
}

/// The rows at the end of a round.
#[derive(Debug)]
pub(super) struct Rows {
    /// By the number of the partition.
    pub(super) leases: Vec<LeaseRow>,
    pub(super) gateways: Vec<Sharer>,
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
    pub(super) async fn prepare(database_url: &str, role: Role) -> Result<Self, tokio_postgres::Error> {
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

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Announces a gateway that shares the partitions and `avoids` some of them.
    pub(super) async fn announce(
        &self,
        holder: &Holder,
        avoids: &[i16],
    ) -> Result<(), tokio_postgres::Error> {
        let Holder { gateway, seconds, .. } = holder;
        self.client.execute(&self.announce, &[gateway, seconds, &avoids, &shape()]).await.map(drop)
    }

    /// Ends the announcement.
    pub(super) async fn leave(&self, holder: &Holder) -> Result<(), tokio_postgres::Error> {
        self.client.execute(&self.leave, &[&holder.gateway]).await.map(drop)
    }

    /// The time by Postgres's clock.
    pub(super) async fn now(&self) -> Result<DateTime<Utc>, tokio_postgres::Error> {
        self.client.query_one(&self.now, &[]).await?.try_get(0)
    }

    /// Renews the leases of `kept` and gives back all others that this gateway had at `since`. Returns those that are
    /// renewed.
    pub(super) async fn renew(
        &self,
        holder: &Holder,
        since: DateTime<Utc>,
        kept: &[i16],
    ) -> Result<Vec<Partition>, tokio_postgres::Error> {
        let Holder { gateway, address, delivers, seconds } = holder;
        self.client.execute(&self.release, &[gateway, &kept, &since, seconds]).await?;
        let renewed = self.client.query(&self.renew, &[gateway, &kept, seconds, address, delivers]).await?;
        renewed.iter().map(|row| row.try_get(0).map(Partition::new)).collect()
    }

    /// Claims those of `wanted` that nobody leads. Returns them with the terms that begin.
    pub(super) async fn claim(
        &self,
        holder: &Holder,
        wanted: &[i16],
    ) -> Result<Vec<(Partition, i64)>, tokio_postgres::Error> {
        let Holder { gateway, address, delivers, seconds } = holder;
        let claimed = self.client.query(&self.claim, &[gateway, &wanted, seconds, address, delivers]).await?;
        claimed.iter().map(|row| Ok((Partition::new(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    pub(super) async fn rows(&self) -> Result<Rows, tokio_postgres::Error> {
        let (leases, gateways) =
            tokio::try_join!(self.client.query(&self.leases, &[]), self.client.query(&self.gateways, &[]))?;
        let lease = |row: &tokio_postgres::Row| {
            Ok(LeaseRow {
                gateway: row.try_get("gateway")?,
                address: row.try_get("address")?,
                term: row.try_get("term")?,
                delivers: row.try_get("delivers")?,
                is_led: row.try_get("is_led")?,
            })
        };
        Ok(Rows {
            leases: leases.iter().map(lease).collect::<Result<_, tokio_postgres::Error>>()?,
            gateways: gateways.iter().map(sharer).collect::<Result<_, _>>()?,
        })
    }
}

fn sharer(row: &tokio_postgres::Row) -> Result<Sharer, tokio_postgres::Error> {
    let avoids: Vec<i16> = row.try_get("avoids")?;
    let avoids = avoids.into_iter().map(Partition::new).collect();
    Ok(Sharer { name: row.try_get("gateway")?, avoids, shape: row.try_get("shape")? })
}
