//! The trial balance: the double-entry accounts of the log, as of a moment. The log is verified while it is read. Memory is
//! bounded by the calls that are open at once.

use chrono::{DateTime, Utc};
use farthing_core::accounts::{Account, Journal, TrialBalance, is_balanced};
use farthing_core::money::Total;
use farthing_core::partition::Partition;
use serde::Serialize;

use super::Error;
use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line, Visitor};
use crate::connect::{self, Role};
use crate::record;
use crate::verify::Head;

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
        if !is_balanced(&entry) {
            self.report.findings.find(|| format!("{place}: the journal entry does not add up to zero"));
        }
        self.report.accounts.post(&entry)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{Event, Fact, Source, WalletDebited, WalletSource};
    use farthing_core::ids::{MerchantId, RequestId, WalletId};
    use farthing_core::money::Amount;

    use super::*;

    const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

    /// The report on a log with this one debit, which no call explains.
    fn report(amount: &str, drawn: &str, at: Moment) -> Report {
        let debited = Event::from(WalletDebited {
            request_id: format!("req_{ULID}").parse::<RequestId>().unwrap(),
            wallet_id: format!("wal_{ULID}").parse::<WalletId>().unwrap(),
            customer_id: None,
            amount: amount.parse().unwrap(),
            sources: vec![WalletSource { source: Source::Balance, amount: drawn.parse().unwrap() }],
            balance_after: Amount::ZERO,
        });
        let merchant_id = format!("mer_{ULID}").parse::<MerchantId>().unwrap();
        let occurred_at = DateTime::from_timestamp(1_000, 0).unwrap();
        let mut text = String::new();
        record::write(&Fact { merchant_id, occurred_at, event: debited }, &mut text);
        let mut report = Report {
            ok: false,
            at,
            events: 0,
            heads: Vec::new(),
            accounts: TrialBalance::default(),
            sum: Total::default(),
            findings: Findings::default(),
        };
        let place = Place { partition: Partition::new(0), position: 7 };
        let line = Line { place, text: &text, recorded_at: occurred_at, writer: "w", hash: &[] };
        let mut posting = PostPartition { report: &mut report, journal: Journal::default() };
        posting.visit(&line).unwrap();
        report.conclude().unwrap();
        report
    }

    #[test]
    fn a_debit_that_differs_from_its_sources_is_found_at_its_position() {
        let report =
            report("2", "1.5", Moment::Position(Place { partition: Partition::new(0), position: 7 }));
        assert!(!report.ok);
        let expected = [
            "partition 0, position 7: the journal entry does not add up to zero",
            "the accounts add up to -0.5000000000, not to zero",
        ];
        assert_eq!(report.findings.findings, expected);
    }

    #[test]
    fn a_debit_without_its_call_is_left_in_a_clearing_account() {
        let whole = report("2", "2", Moment::Now);
        assert_eq!(whole.findings.findings, ["-2.0000000000 is left in calls_clearing"]);
        assert!(!whole.ok);
        let at = |second| Moment::Time(DateTime::from_timestamp(second, 0).unwrap());
        assert_eq!(report("2", "2", at(1_001)).findings.findings_count, 1);
        let before = report("2", "2", at(1_000));
        assert!(before.ok && before.events == 0 && before.accounts == TrialBalance::default());
    }
}
