//! The statement of a wallet, from the log itself. The log of its partition is verified while it is read, from its beginning
//! to its end. Memory is bounded: each entry is given away as it is read.

use std::io;

use chrono::{DateTime, Utc};
use farthing_core::entry::{Entry, Funds};
use farthing_core::ids::WalletId;
use farthing_core::statement::{Period, Side, Statement};
use serde::Serialize;

use super::Error;
use super::findings::{Findings, Place};
use super::partition_reader::{Ends, Line, Visitor};
use super::search_order::partitions_to_search;
use crate::connect::{self, Role};
use crate::record;
use crate::verify::Head;

/// A line of a statement.
#[derive(Debug, Serialize)]
pub struct StatementLine {
    /// Its place in the log.
    #[serde(flatten)]
    pub place: Place,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// The funds after it.
    pub after: Funds,
}

/// Is given the parts of a statement, in their order.
pub trait Output {
    /// The funds before the period.
    fn open(&mut self, opening: Funds) -> io::Result<()>;

    /// The next entry of the period.
    fn line(&mut self, line: &StatementLine) -> io::Result<()>;
}

/// The end of a statement.
#[derive(Debug, Serialize)]
pub struct Closing {
    /// Nothing is wrong with the log, and every balance that an event states is the sum of the entries until then.
    pub ok: bool,
    /// The number of entries of the period.
    pub count: u64,
    /// The funds after the period.
    pub closing: Funds,
    /// The end of the partition that was read.
    pub head: Option<Head>,
    /// What is wrong.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Writes the statement of a wallet over a period to `output`. Gateways may write meanwhile.
pub async fn statement(
    database_url: &str,
    wallet_id: WalletId,
    period: Period,
    output: &mut impl Output,
) -> Result<Closing, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let ends = Ends::read(&client).await?;
    let mut reading = Reading {
        wallet_id,
        text: wallet_id.to_string(),
        statement: Statement::new(period),
        output,
        is_named: false,
        has_entries: false,
        is_open: false,
        count: 0,
        findings: Findings::default(),
    };
    let mut head = None;
    let partitions = partitions_to_search(&client, &ends, "wallet", &wallet_id.to_string()).await?;
    for partition in partitions {
        let read = ends.read_partition(&client, partition, None, &mut reading).await?;
        if reading.has_entries || (reading.is_named && head.is_none()) {
            head = Some(read);
        }
        // A text of another merchant may have the id, too: an entry decides.
        if reading.has_entries {
            break;
        }
    }
    if !reading.is_named {
        return Err(Error::UnknownWallet(wallet_id).after(reading.findings));
    }
    reading.open()?;
    let Reading { statement, count, findings, .. } = reading;
    Ok(Closing { ok: findings.is_empty(), count, closing: statement.closing(), head, findings })
}

/// Reads the entries of a wallet.
struct Reading<'a, O> {
    wallet_id: WalletId,
    /// The wallet's id, which stands in the line of each of its events.
    text: String,
    statement: Statement,
    output: &'a mut O,
    /// An event names the wallet.
    is_named: bool,
    /// It has entries.
    has_entries: bool,
    /// The opening funds were written.
    is_open: bool,
    /// The entries of the period until now.
    count: u64,
    findings: Findings,
}

impl<O: Output> Reading<'_, O> {
    fn open(&mut self) -> Result<(), Error> {
        if !self.is_open {
            self.is_open = true;
            self.output.open(self.statement.opening())?;
        }
        Ok(())
    }

    /// Enters an entry of the wallet.
    fn enter(&mut self, place: Place, occurred_at: DateTime<Utc>, entry: Entry) -> Result<(), Error> {
        // A wallet holds no amount that is out of range: what adds up to one was not appended so.
        let side = match self.statement.enter(occurred_at, entry.change) {
            Ok(side) => side,
            Err(error) => {
                self.findings.find(|| format!("{place}: the balance after it {error}"));
                return Ok(());
            }
        };
        match side {
            Side::Before => self.check(place, &entry),
            Side::Within => {
                self.check(place, &entry);
                self.open()?;
                self.count += 1;
                let after = self.statement.closing();
                self.output.line(&StatementLine { place, occurred_at, entry, after })?;
            }
            Side::After => {}
        }
        Ok(())
    }

    /// Checks the balance that the event states.
    fn check(&mut self, place: Place, entry: &Entry) {
        let balance = self.statement.closing().balance;
        if let Some(stated) = entry.stated_balance
            && stated != balance
        {
            self.findings.find(|| {
                format!("{place}: the balance after it is {stated} by the event, {balance} by the entries")
            });
        }
    }
}

impl<O: Output> Visitor for Reading<'_, O> {
    fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error> {
        // Decoding every event of the partition would take several times as long.
        if !line.text.contains(&self.text) {
            return Ok(());
        }
        self.is_named = true;
        let place = line.place;
        let decoded = record::decode(line.text).map(|fact| (fact.occurred_at, Entry::of(&fact.event)));
        match decoded {
            Ok((occurred_at, Ok(Some(entry)))) if entry.wallet_id == self.wallet_id => {
                self.has_entries = true;
                self.enter(place, occurred_at, entry)?;
            }
            Ok((_, Ok(_))) => {}
            Ok((_, Err(error))) => self.findings.find(|| format!("{place}: an amount {error}")),
            Err(error) => self.findings.find(|| format!("{place}: {error}")),
        }
        Ok(())
    }
}
