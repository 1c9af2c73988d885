//! The trial balance: the double-entry accounts of the log, as of a moment. The log is verified while it is read. Memory is
//! bounded by the calls that are open at once.

use chrono::{DateTime, Utc};
use farthing_core::accounts::{Account, Journal, TrialBalance};
use farthing_core::money::{Amount, Total};
use farthing_core::partition::Partition;
use serde::Serialize;

use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line, Visitor};
use super::{Error, Head};
use crate::connect::{self, Role};
use crate::record;

/// The moment of a trial balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The present end of the log.
    Now,
    /// Before all events that occurred at this instant or later, by the clocks of their merchants.
    Time(DateTime<Utc>),
    /// After the event at this position. Only its partition is read.
    Position(Place),
}

/// The trial balance.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The balances add up to zero, and nothing is wrong with the log.
    pub ok: bool,
    /// The moment.
    pub at: Moment,
    /// The number of events that count.
    pub events: u64,
    /// The last event of each partition that was read.
    pub heads: Vec<Head>,
    /// The accounts. A debit balance is positive, a credit balance negative.
    pub accounts: TrialBalance,
    /// The sum of the accounts.
    pub sum: Total,
    /// What is wrong.
    #[serde(flatten)]
    pub findings: Findings,
}

/// The trial balance of the log of `database_url`. Gateways may write meanwhile.
pub async fn trial_balance(database_url: &str, at: Moment) -> Result<Report, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let mut report = Report {
        ok: false,
        at,
        events: 0,
        heads: Vec::new(),
        accounts: TrialBalance::default(),
        sum: Total::default(),
        findings: Findings::default(),
    };
    let (partitions, until): (Vec<Partition>, _) = match at {
        Moment::Now | Moment::Time(_) => (ends.partitions().collect(), None),
        Moment::Position(Place { partition, position }) => (vec![partition], Some(position)),
    };
    for partition in partitions {
        let mut posting = PostPartition { report: &mut report, journal: Journal::default() };
        let head = ends.read_partition(&client, partition, until, &mut posting).await?;
        report.heads.push(head);
    }
    report.conclude()?;
    Ok(report)
}

impl Report {
    fn conclude(&mut self) -> Result<(), Error> {
        self.sum = self.accounts.sum()?;
        let sum = self.sum.decimal();
        if !sum.is_zero() {
            self.findings.find(|| format!("the accounts add up to {sum:.10}, not to zero"));
        }
        match self.at {
            // All events of an append occurred at the same instant.
            Moment::Now | Moment::Time(_) => {
                for account in [Account::PaymentsClearing, Account::CallsClearing] {
                    let left = self.accounts.of(account).decimal();
                    if !left.is_zero() {
                        let name = account.name();
                        self.findings.find(|| format!("{left:.10} is left in {name}"));
                    }
                }
            }
            // The position may be within an append.
            Moment::Position(_) => {}
        }
        self.ok = self.findings.is_empty();
        Ok(())
    }
}

/// Posts the events of a partition.
struct PostPartition<'a> {
    report: &'a mut Report,
    journal: Journal,
}

impl Visitor for PostPartition<'_> {
    fn findings(&mut self) -> &mut Findings {
        &mut self.report.findings
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        let place = line.place;
        let fact = match record::decode(line.text) {
            Ok(fact) => fact,
            Err(error) => {
                self.report.findings.find(|| format!("{place}: {error}"));
                return Ok(());
            }
        };
        let entry = match self.journal.enter(&fact.event) {
            Ok(entry) => entry,
            Err(error) => {
                self.report.findings.find(|| format!("{place}: an amount {error}"));
                return Ok(());
            }
        };
        let counts = match self.report.at {
            Moment::Now | Moment::Position(_) => true,
            Moment::Time(end) => fact.occurred_at < end,
        };
        if !counts {
            return Ok(());
        }
        self.report.events += 1;
        let sum = Amount::sum(entry.iter().map(|posting| posting.amount));
        if !sum.is_ok_and(Amount::is_zero) {
            self.report.findings.find(|| format!("{place}: the journal entry does not add up to zero"));
        }
        self.report.accounts.post(&entry)?;
        Ok(())
    }
}
