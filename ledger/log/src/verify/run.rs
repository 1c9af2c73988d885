//! Runs an audit: partitions in parallel. Gateways may write meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use farthing_core::partition::Partition;
use serde::Serialize;
use tokio::task::JoinSet;

use super::archives;
use super::fold::Sums;
use super::heads;
use super::partition_audit::{End, Of, Opened, PartitionAudit};
use super::published_heads::PublishedHeads;
use super::signed_checkpoints::{CheckpointPlan, Checkpoints};
use super::verdict::{Check, Tallies};
use super::{Error, Head};
use crate::connect::{self, Role};
use crate::partitions;

/// What is verified.
#[derive(Debug, Clone)]
pub struct Plan {
    /// One partition, or all of them.
    pub partition: Option<Partition>,
    /// The first position of each partition. States are folded if it is 1.
    pub from: i64,
    /// The last position of each partition; the last event if absent.
    pub to: Option<i64>,
    /// Published heads that the log must contain.
    pub published: Option<PublishedHeads>,
    /// The signed checkpoints that the audit begins at and writes.
    pub checkpoints: Option<CheckpointPlan>,
    /// The number of partitions that are verified at once. Each takes two connections.
    pub jobs: usize,
}

/// How far an audit has come.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicI64,
    done: AtomicI64,
}

impl Progress {
    /// The events that were verified, and those that are to be.
    pub fn events(&self) -> (i64, i64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Adds events that are to be read.
    pub fn expect(&self, events: i64) {
        self.total.fetch_add(events, Ordering::Relaxed);
    }

    /// Takes away events that need not be read.
    pub(super) fn skip(&self, events: i64) {
        self.total.fetch_sub(events, Ordering::Relaxed);
    }

    /// Adds events that were read.
    pub fn read(&self, events: i64) {
        self.done.fetch_add(events, Ordering::Relaxed);
    }
}

/// What an audit of the log saw.
#[derive(Debug, Default)]
pub struct Audit {
    /// The heads of the partitions.
    pub heads: Vec<Head>,
    /// Whether a partition has no head, so that of a merchant is not known. Nothing else was verified then.
    pub is_headless: bool,
    /// The number of events that were verified.
    pub events: u64,
    /// The checkpoints that partitions began at.
    pub trusted: Vec<Trusted>,
    /// The last published head of each partition that the log contains, with an unbroken chain up to there.
    pub published: Vec<Published>,
    /// The number of signed checkpoints that were written.
    pub checkpoints_written: u64,
    /// The number of states that were folded and compared.
    pub states: usize,
    /// The sums of money over the partitions whose states are known.
    pub sums: Sums,
    /// What the checks saw.
    pub tallies: Tallies,
}

/// The checkpoint that the audit of a partition began at. Nothing up to it was read.
#[derive(Debug, Clone, Serialize)]
pub struct Trusted {
    /// The partition.
    pub partition: Partition,
    /// The position, which is the number of events that are trusted.
    pub position: i64,
    /// The hash of the event there, in hexadecimal. It is that of the log.
    pub hash: String,
    /// When the checkpoint was written.
    pub written_at: String,
}

/// The last published head of a partition that the log contains, with an unbroken chain up to there: what was read up to it is as it
/// was when it was published.
#[derive(Debug, Clone, Serialize)]
pub struct Published {
    /// The partition.
    pub partition: Partition,
    /// The position that was published.
    pub position: i64,
    /// The hash of the event there, in hexadecimal. It is that of the log.
    pub hash: String,
    /// The line of the file.
    pub line: usize,
    /// When it was published, as the line says.
    pub published_at: String,
}

/// Audits the log of `database_url`.
pub async fn run(database_url: &str, mut plan: Plan, progress: &Arc<Progress>) -> Result<Audit, Error> {
    let checkpoints = plan.checkpoints.take().map(Checkpoints::open).transpose()?;
    let client = connect::connect(database_url, Role::Owner).await?;
    let mut whole = Audit::default();
    if !heads::find_headless(&client, &mut whole.tallies).await? {
        whole.is_headless = true;
        return Ok(whole);
    }
    let partitions = partitions::load(&client).await?.ok_or(Error::NoPartitions)?;
    let chosen: Vec<_> = partitions.all().filter(|of| plan.partition.is_none_or(|one| one == *of)).collect();
    if chosen.is_empty() {
        return Err(Error::NoPartition(partitions.count()));
    }
    let last = plan.published.as_ref().and_then(PublishedHeads::last_partition);
    if last.is_some_and(|last| last.number() >= partitions.count()) {
        return Err(Error::OtherHeads(partitions.count()));
    }
    for partition in &chosen {
        let end = End::load(&client, *partition).await?;
        let last = end.last.max(end.position);
        if let Some(to) = plan.to.filter(|to| *to > last) {
            return Err(Error::NoPosition { partition: *partition, position: to, last });
        }
        let events = end.last.min(plan.to.unwrap_or(i64::MAX));
        progress.expect((events - plan.from + 1).max(0));
    }
    drop(client);
    match &checkpoints {
        Some(checkpoints) => checkpoints.tell(&mut whole.tallies),
        None => whole.tallies.skip(Check::SignedCheckpoints, "no folder of checkpoints was given"),
    }
    let (plan, url): (_, Arc<str>) = (Arc::new(plan), database_url.into());
    let checkpoints = Arc::new(checkpoints);
    let (mut tasks, mut next) = (JoinSet::new(), chosen.iter());
    let mut audits = Vec::new();
    loop {
        while tasks.len() < plan.jobs.max(1)
            && let Some(partition) = next.next()
        {
            let (partition, url) = (*partition, Arc::clone(&url));
            let (plan, progress, checkpoints) =
                (Arc::clone(&plan), Arc::clone(progress), Arc::clone(&checkpoints));
            tasks.spawn(async move {
                let of = Of { partition, partitions, checkpoints: checkpoints.as_ref().as_ref() };
                let seen = match PartitionAudit::open(&url, of, &plan, &progress).await? {
                    Opened::Begins(audit) => audit.run(&url).await?,
                    Opened::Stopped(seen) => *seen,
                };
                Ok::<_, Error>((partition, seen))
            });
        }
        let Some(done) = tasks.join_next().await else { break };
        audits.push(done.map_err(|_| Error::Stopped)??);
    }
    audits.sort_by_key(|(partition, _)| *partition);
    for (_, audit) in audits {
        whole.add(audit)?;
    }
    if whole.tallies.is_untouched(Check::Archives) {
        whole.tallies.skip(Check::Archives, archives::why_none(database_url, &chosen).await?);
    }
    Ok(whole)
}

impl Audit {
    fn add(&mut self, other: Self) -> Result<(), Error> {
        self.heads.extend(other.heads);
        self.events += other.events;
        self.states += other.states;
        self.trusted.extend(other.trusted);
        self.published.extend(other.published);
        self.checkpoints_written += other.checkpoints_written;
        self.sums.add(&other.sums)?;
        self.tallies.add(other.tallies);
        Ok(())
    }
}
