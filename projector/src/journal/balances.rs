//! The balances of a merchant's accounts at a moment: those at the end of a block, and the events after it in a few blocks.

use chrono::{DateTime, Utc};
use farthing_core::accounts::{Account, Journal};
use farthing_core::ids::MerchantId;
use farthing_core::money::{self, exact_sum};
use rust_decimal::Decimal;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::lines::{Line, lines};
use super::query::{blocks_of_time, micros};
use super::{block_of, first_of, postings};
use crate::query::{self, Error, PartitionClient, text};
use crate::row::{FromRow, ReadColumn as _, Unreadable};

macro_rules! select_blocks {
    ($rest:literal) => {
        concat!(
            "SELECT block, events, first_us, last_us, customer_balances, plan_credit, bundle_credit, merchant_wallets, ",
            "payments_received, refunds, manual_credits, plan_revenue, expired_credit, provider_cost, fee_revenue, ",
            "service_charge, payments_clearing, calls_clearing ",
            "FROM {journal}.blocks WHERE partition = $1 AND merchant_id = $2 ",
            $rest
        )
    };
}

/// The last two blocks of a merchant up to a block, newest first.
const LAST_BLOCKS: &str = select_blocks!("AND block <= $3 ORDER BY block DESC LIMIT 2");

/// The blocks of a merchant between two, oldest first.
const BLOCKS_BETWEEN: &str = select_blocks!("AND block BETWEEN $3 AND $4 ORDER BY block LIMIT $5");

/// Blocks that are read at once.
const BLOCKS_AT_ONCE: i64 = 256;

/// No append has more events before the one that a payment pays for.
const EVENTS_BEFORE: usize = 8;

type Balances = [Decimal; Account::ALL.len()];

/// The moment of the balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// After all events.
    Now,
    /// Before the events that occurred at this time or later.
    Time(DateTime<Utc>),
    /// After the event at this position.
    Position(i64),
}

/// The balances of a merchant's accounts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountBalances {
    /// The position of the merchant's last event that counts; 0 without one.
    pub position: i64,
    balances: Balances,
}

impl AccountBalances {
    /// The balance of an account: a debit if positive, a credit if negative.
    pub const fn of(&self, account: Account) -> Decimal {
        self.balances[account.index()]
    }

    /// The sum of all balances: zero, unless the books are wrong. An error beyond 28 digits.
    pub fn sum(&self) -> Result<Decimal, money::Error> {
        self.balances.iter().try_fold(Decimal::ZERO, |sum, balance| exact_sum(sum, *balance))
    }

    fn add(&mut self, position: i64, changes: &Balances) -> Result<(), Error> {
        self.position = self.position.max(position);
        Ok(add_all(&mut self.balances, changes)?)
    }
}

fn add_all(balances: &mut Balances, changes: &Balances) -> Result<(), Unreadable> {
    for (account, change) in Account::ALL.into_iter().zip(changes) {
        let balance = &mut balances[account.index()];
        *balance = exact_sum(*balance, *change).map_err(|why| Unreadable::Value {
            column: account.name(),
            text: format!("{balance} + {change} {why}"),
        })?;
    }
    Ok(())
}

/// A block with the balances after it.
#[derive(Debug, Clone)]
struct BlockRow {
    block: i64,
    events: Vec<u8>,
    first_us: i64,
    last_us: i64,
    balances: Balances,
}

impl FromRow for BlockRow {
    fn from_row(row: &Row) -> Result<Self, Unreadable> {
        let mut balances = Balances::default();
        for account in Account::ALL {
            balances[account.index()] = row.decimal(account.name())?;
        }
        Ok(Self {
            block: row.plain("block")?,
            events: row.plain("events")?,
            first_us: row.plain("first_us")?,
            last_us: row.plain("last_us")?,
            balances,
        })
    }
}

impl BlockRow {
    fn positions(&self) -> impl DoubleEndedIterator<Item = i64> {
        let first = first_of(self.block);
        self.events.chunks_exact(2).map(move |event| first + i64::from(event[0]))
    }

    fn last_position(&self) -> i64 {
        self.positions().next_back().unwrap_or_default()
    }
}

/// The balances of the merchant's accounts at a moment.
pub async fn balances(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    at: Moment,
) -> Result<AccountBalances, Error> {
    let merchant = merchant_id.to_string();
    match at {
        Moment::Now => after_position(db, &merchant, i64::MAX).await,
        Moment::Position(position) => after_position(db, &merchant, position).await,
        Moment::Time(at) => before_time(db, &merchant, micros(at)).await,
    }
}

async fn after_position(
    db: PartitionClient<'_>,
    merchant: &String,
    position: i64,
) -> Result<AccountBalances, Error> {
    let block = block_of(position);
    let rows: Vec<BlockRow> = query::all(db, LAST_BLOCKS, &[text(merchant), (&block, Type::INT8)]).await?;
    let mut rows = rows.into_iter();
    let Some(last) = rows.next() else { return Ok(AccountBalances::default()) };
    let before = rows.next();
    let mut found = AccountBalances::default();
    if last.last_position() <= position {
        found.add(last.last_position(), &last.balances)?;
        return Ok(found);
    }
    if let Some(before) = &before {
        found.add(before.last_position(), &before.balances)?;
    }
    post(db, before.as_ref(), &last, &mut found, |line| line.recorded.position <= position).await?;
    Ok(found)
}

async fn before_time(
    db: PartitionClient<'_>,
    merchant: &String,
    at_us: i64,
) -> Result<AccountBalances, Error> {
    // Until its start, all events occurred before. After its end, none did.
    let Some((mut start, end)) = blocks_of_time(db, merchant, (at_us, at_us)).await? else {
        return after_position(db, merchant, i64::MAX).await;
    };
    let before = start - 1;
    let rows: Vec<BlockRow> = query::all(db, LAST_BLOCKS, &[text(merchant), (&before, Type::INT8)]).await?;
    let mut before = rows.into_iter().next();
    let mut found = AccountBalances::default();
    if let Some(before) = &before {
        found.add(before.last_position(), &before.balances)?;
    }
    loop {
        let parameters =
            [text(merchant), (&start as _, Type::INT8), (&end, Type::INT8), (&BLOCKS_AT_ONCE, Type::INT8)];
        let rows: Vec<BlockRow> = query::all(db, BLOCKS_BETWEEN, &parameters).await?;
        let Some(last) = rows.last().map(|row| row.block) else { return Ok(found) };
        for row in rows {
            if row.last_us < at_us {
                let until = before.as_ref().map_or_else(Balances::default, |before| before.balances);
                let mut changes = row.balances;
                add_all(&mut changes, &until.map(|balance| -balance))?;
                found.add(row.last_position(), &changes)?;
            } else if row.first_us < at_us {
                post(db, before.as_ref(), &row, &mut found, |line| line.at_us() < at_us).await?;
            }
            before = Some(row);
        }
        start = last + 1;
    }
}

/// Posts the events of `row` that count. `before` is the merchant's block before it.
async fn post(
    db: PartitionClient<'_>,
    before: Option<&BlockRow>,
    row: &BlockRow,
    found: &mut AccountBalances,
    counts: impl Fn(&Line) -> bool,
) -> Result<(), Error> {
    let earlier = before.into_iter().flat_map(|before| before.positions().rev().take(EVENTS_BEFORE));
    let wanted: Vec<i64> = earlier.chain(row.positions()).collect();
    let first = first_of(row.block);
    let mut journal = Journal::from_any_append();
    for line in lines(db, &wanted).await?.iter().rev() {
        let (postings, _) = postings(&mut journal, &line.recorded.fact.event);
        if line.recorded.position < first || !counts(line) {
            continue;
        }
        let mut changes = Balances::default();
        for posting in postings {
            changes[posting.account.index()] += posting.amount.decimal();
        }
        found.add(line.recorded.position, &changes)?;
    }
    Ok(())
}
