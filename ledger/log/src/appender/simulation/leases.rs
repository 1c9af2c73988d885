//! The leases of a simulation: the rules of the statements in `leases/statements.rs`, over a gateway's connection to the
//! database. The work for leases itself is that of a real gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::partition::Partition;
use farthing_core::state::shape;
use tokio::time::Instant;

use super::super::store::StoreError;
use super::backend::{Reply, Statement};
use super::connection::{GatewayStore, Session};
use super::database::Notes;
use crate::leases::Error;
use crate::leases::store::{Holder, LeaseResult, LeaseRow, LeaseSession, LeaseStore, Rows, Sharer};

/// The rows of `ledger.leases` and `ledger.gateways`.
#[derive(Debug)]
pub(super) struct LeaseTable {
    /// When the simulation began: its clock showed the Unix epoch.
    began: Instant,
    /// By the number of the partition.
    leases: Vec<Row>,
    /// The gateways that share the partitions, and until when.
    gateways: BTreeMap<String, (Sharer, DateTime<Utc>)>,
    notes: Notes,
}

#[derive(Debug, Clone)]
struct Row {
    lease: LeaseRow,
    expires_at: DateTime<Utc>,
}

/// A statement of the leases.
#[derive(Debug, Clone)]
pub(super) enum LeaseStatement {
    Announce(Holder, Vec<i16>),
    Leave(Holder),
    Now,
    Release(Holder, DateTime<Utc>, Vec<i16>),
    Renew(Holder, Vec<i16>),
    Claim(Holder, Vec<i16>),
    Rows,
}

/// The result of a statement.
#[derive(Debug)]
pub(super) enum LeaseReply {
    Done,
    Now(DateTime<Utc>),
    Renewed(Vec<Partition>),
    Claimed(Vec<(Partition, i64)>),
    Rows(Rows),
}

fn lasts(holder: &Holder) -> TimeDelta {
    TimeDelta::from_std(Duration::from_secs_f64(holder.seconds)).unwrap()
}

impl LeaseTable {
    pub(super) fn new(partitions: i16, notes: Notes) -> Self {
        let row = Row { lease: LeaseRow::FREE, expires_at: DateTime::<Utc>::MIN_UTC };
        Self {
            began: Instant::now(),
            leases: vec![row; usize::try_from(partitions).unwrap()],
            gateways: BTreeMap::new(),
            notes,
        }
    }

    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::from_std(self.began.elapsed()).unwrap()
    }

    /// The gateway in the lease of `partition`, whether it has expired or not.
    pub(super) fn holder(&self, partition: Partition) -> Option<String> {
        self.leases[partition.index()].lease.gateway.clone()
    }

    /// Gives the lease of `partition` to `gateway` for ever.
    pub(super) fn give(&mut self, partition: Partition, gateway: &str) {
        let row = &mut self.leases[partition.index()];
        row.lease.gateway = Some(gateway.to_owned());
        row.expires_at = DateTime::<Utc>::MAX_UTC;
    }

    pub(super) fn execute(&mut self, statement: LeaseStatement) -> LeaseReply {
        match statement {
            LeaseStatement::Announce(holder, avoids) => {
                let avoids = avoids.into_iter().map(Partition::new).collect();
                let sharer = Sharer { name: holder.gateway.clone(), avoids, shape: shape() };
                self.gateways.insert(holder.gateway.clone(), (sharer, self.now() + lasts(&holder)));
                LeaseReply::Done
            }
            LeaseStatement::Leave(holder) => {
                self.gateways.remove(&holder.gateway);
                LeaseReply::Done
            }
            LeaseStatement::Now => LeaseReply::Now(self.now()),
            LeaseStatement::Release(holder, since, kept) => {
                let until = since + lasts(&holder);
                for (row, partition) in self.leases.iter_mut().zip(0..) {
                    let is_own = row.lease.gateway.as_ref() == Some(&holder.gateway);
                    if is_own && !kept.contains(&partition) && row.expires_at <= until {
                        self.notes.count("a lease was given back");
                        let lease = LeaseRow { term: row.lease.term, ..LeaseRow::FREE };
                        *row = Row { lease, expires_at: DateTime::<Utc>::MIN_UTC };
                    }
                }
                LeaseReply::Done
            }
            LeaseStatement::Renew(holder, kept) => {
                let expires_at = self.now() + lasts(&holder);
                let mut renewed = Vec::new();
                for (row, number) in self.leases.iter_mut().zip(0..) {
                    if row.lease.gateway.as_ref() == Some(&holder.gateway) && kept.contains(&number) {
                        row.expires_at = expires_at;
                        row.lease.address.clone_from(&holder.address);
                        renewed.push(Partition::new(number));
                    }
                }
                LeaseReply::Renewed(renewed)
            }
            LeaseStatement::Claim(holder, wanted) => {
                let now = self.now();
                let mut claimed = Vec::new();
                for (row, number) in self.leases.iter_mut().zip(0..) {
                    if !wanted.contains(&number) {
                        continue;
                    }
                    if row.expires_at > now {
                        self.notes.count("a lease was claimed that another gateway had claimed");
                        continue;
                    }
                    if row.lease.gateway.is_some() {
                        self.notes.count("a lease was taken over");
                    }
                    let lease = LeaseRow {
                        gateway: Some(holder.gateway.clone()),
                        address: holder.address.clone(),
                        term: row.lease.term + 1,
                        delivers: holder.delivers,
                        is_led: true,
                    };
                    claimed.push((Partition::new(number), lease.term));
                    *row = Row { lease, expires_at: now + lasts(&holder) };
                }
                LeaseReply::Claimed(claimed)
            }
            LeaseStatement::Rows => {
                let now = self.now();
                let lease = |row: &Row| LeaseRow { is_led: row.expires_at > now, ..row.lease.clone() };
                let sharing = self.gateways.values().filter(|(_, expires_at)| *expires_at > now);
                LeaseReply::Rows(Rows {
                    leases: self.leases.iter().map(lease).collect(),
                    gateways: sharing.map(|(sharer, _)| sharer.clone()).collect(),
                })
            }
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl LeaseStore for GatewayStore {
    type Session = Session;

    async fn open(&self) -> LeaseResult<Session> {
        Ok(self.connect().await?)
    }
}

impl LeaseSession for Session {
    fn is_closed(&self) -> bool {
        self.is_lost()
    }

    async fn announce(&self, holder: &Holder, avoids: &[i16]) -> LeaseResult<()> {
        self.lease(LeaseStatement::Announce(holder.clone(), avoids.to_vec())).await.map(drop)
    }

    async fn leave(&self, holder: &Holder) -> LeaseResult<()> {
        self.lease(LeaseStatement::Leave(holder.clone())).await.map(drop)
    }

    async fn now(&self) -> LeaseResult<DateTime<Utc>> {
        match self.lease(LeaseStatement::Now).await? {
            LeaseReply::Now(now) => Ok(now),
            other => unreachable!("{other:?}"),
        }
    }

    async fn release(&self, holder: &Holder, since: DateTime<Utc>, kept: &[i16]) -> LeaseResult<()> {
        self.lease(LeaseStatement::Release(holder.clone(), since, kept.to_vec())).await.map(drop)
    }

    async fn renew(&self, holder: &Holder, kept: &[i16]) -> LeaseResult<Vec<Partition>> {
        match self.lease(LeaseStatement::Renew(holder.clone(), kept.to_vec())).await? {
            LeaseReply::Renewed(renewed) => Ok(renewed),
            other => unreachable!("{other:?}"),
        }
    }

    async fn claim(&self, holder: &Holder, wanted: &[i16]) -> LeaseResult<Vec<(Partition, i64)>> {
        match self.lease(LeaseStatement::Claim(holder.clone(), wanted.to_vec())).await? {
            LeaseReply::Claimed(claimed) => Ok(claimed),
            other => unreachable!("{other:?}"),
        }
    }

    async fn rows(&self) -> LeaseResult<Rows> {
        match self.lease(LeaseStatement::Rows).await? {
            LeaseReply::Rows(rows) => Ok(rows),
            other => unreachable!("{other:?}"),
        }
    }
}

impl Session {
    async fn lease(&self, statement: LeaseStatement) -> LeaseResult<LeaseReply> {
        match self.ask(Statement::Lease(statement)).await? {
            Reply::Lease(reply) => Ok(reply),
            other => unreachable!("{other:?}"),
        }
    }
}
