//! Lists the events of a merchant. A page reads the rows of its blocks and then the lines of its events, wherever in the log
//! it is and however many events of others lie between.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, MerchantId, RequestId};
use tokio_postgres::types::Type;

use super::kinds::Kinds;
use super::lines::{Line, Readable, readable_lines};
use super::{block_of, first_of};
use crate::query::{self, Error, Listed, MAX_PAGE_BYTES, Page, Parameter, PartitionClient, text};
use crate::row::row;

pub use super::balances::{AccountBalances, Moment, balances};
pub use super::lines::EventRow;

row! {
    /// The events of a block.
    struct BlockRow {
        block: i64 = plain,
        events: Vec<u8> = plain,
    }
}

row! {
    /// A block.
    struct BlockNumber {
        block: i64 = plain,
    }
}

row! {
    struct Lateness {
        late_us: i64 = plain,
    }
}

/// The events of a merchant in a block.
pub const BLOCK: &str =
    "SELECT block, events FROM {journal}.blocks WHERE partition = $1 AND merchant_id = $2 AND block = $3";

/// The blocks with events of a merchant of these kinds and around this time, newest first.
pub const BLOCKS: &str = "\
SELECT block, events FROM {journal}.blocks
WHERE partition = $1 AND merchant_id = $2 AND block BETWEEN $3 AND $4 AND kinds & $5 <> 0 AND last_us >= $6 AND first_us < $7
ORDER BY block DESC LIMIT $8";

/// The blocks with events about a customer of these kinds, newest first.
pub const CUSTOMER_BLOCKS: &str = "\
SELECT block, events FROM {journal}.customer_blocks
WHERE partition = $1 AND merchant_id = $2 AND block BETWEEN $3 AND $4 AND kinds & $5 <> 0 AND customer_id = $6
ORDER BY block DESC LIMIT $7";

/// The first block until whose end an event of the merchant occurred at $3 or later. `latest_us` never decreases from one
/// block of a merchant to the next, so this is a binary search by block. An index of `latest_us` would be searched in one
/// step, but no update of a block would be in place.
pub const FIRST_BLOCK: &str = "\
WITH RECURSIVE search (low, high) AS (
    SELECT 0::bigint, last.block FROM (
        SELECT block, latest_us FROM {journal}.blocks
        WHERE partition = $1 AND merchant_id = $2 ORDER BY block DESC LIMIT 1) AS last
    WHERE last.latest_us >= $3
    UNION ALL
    SELECT CASE WHEN middle.latest_us >= $3 THEN s.low ELSE (s.low + s.high) / 2 + 1 END,
        CASE WHEN middle.latest_us >= $3 THEN middle.block ELSE s.high END
    FROM search AS s LEFT JOIN LATERAL (
        SELECT b.block, b.latest_us FROM {journal}.blocks AS b
        WHERE b.partition = $1 AND b.merchant_id = $2 AND b.block <= (s.low + s.high) / 2
        ORDER BY b.block DESC LIMIT 1) AS middle ON true
    WHERE s.low < s.high)
SELECT high AS block FROM search WHERE low = high";

/// By how much any event of the merchant occurred before one that precedes it.
pub const LATENESS: &str = "SELECT late_us FROM {journal}.books WHERE partition = $1 AND merchant_id = $2";

/// Lines that are read at once.
const LINES_AT_ONCE: usize = 128;

/// The events of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The call.
    pub request_id: RequestId,
    /// When it was opened.
    pub opened_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

impl Call {
    /// The kinds of its events.
    const KINDS: [&str; 4] = ["request.opened", "request.metered", "request.failed", "wallet.debited"];

    /// A microsecond for its opening, and one for its end: all events of an append occur at the same time.
    fn times(self) -> impl Iterator<Item = (i64, i64)> {
        let ended = self.ended_at.filter(|ended| *ended != self.opened_at);
        let times = ended.into_iter().chain([self.opened_at]).map(|at| at.timestamp_micros());
        times.map(|at_us| (at_us, at_us + 1))
    }
}

/// Which events are listed. An event must pass all filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFilter {
    /// Those of these kinds.
    pub kinds: Kinds,
    /// Those about this customer.
    pub customer_id: Option<CustomerId>,
    /// Those of this call.
    pub call: Option<Call>,
    /// Those that occurred at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Those that occurred before this time.
    pub to: Option<DateTime<Utc>>,
}

impl EventFilter {
    /// The microseconds that events may be of.
    fn times(&self) -> (i64, i64) {
        (self.from.map_or(i64::MIN, micros), self.to.map_or(i64::MAX, micros))
    }

    fn passes(&self, line: &Line) -> bool {
        let (from, to) = self.times();
        let at_us = line.at_us();
        let is_of_call =
            self.call.is_none_or(|call| line.recorded.fact.event.request_id() == Some(call.request_id));
        (from..to).contains(&at_us) && is_of_call
    }
}

/// The merchant's events that pass `filter`, newest first. The cursor is a position. A page ends before an event that is
/// archived or cannot be read, and has more; one that would begin with it is an error.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    filter: EventFilter,
    page: Page<'_>,
) -> Result<Listed<EventRow>, Error> {
    let merchant = merchant_id.to_string();
    let below = cursor(db, &merchant, page).await?;
    let Readable { lines, is_cut, stopped } = match filter.call {
        None => page_lines(db, &merchant, filter, below, usize::from(page.limit) + 1).await?,
        Some(call) => call_lines(db, &merchant, filter, call, below).await?,
    };
    match stopped {
        Some(why) if lines.is_empty() => return Err(why),
        Some(_) | None => {}
    }
    let is_cut = is_cut || stopped.is_some();
    Ok(Listed::cut(lines.into_iter().map(EventRow::from).collect(), is_cut, page))
}

/// Fails unless the cursor is the position of one of the merchant's events.
pub async fn check_cursor(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<(), Error> {
    cursor(db, &merchant_id.to_string(), page).await?;
    Ok(())
}

/// At most `wanted` events, up to the one with which they have [`MAX_PAGE_BYTES`].
async fn page_lines(
    db: PartitionClient<'_>,
    merchant: &String,
    filter: EventFilter,
    below: i64,
    wanted: usize,
) -> Result<Readable, Error> {
    let mut found = Readable::default();
    let mut places = Places::new(db, merchant, filter, filter.times(), below, wanted).await?;
    // All that are wanted, until a page of long ones was read that do not pass.
    let (mut next, mut at_once, mut bytes) = (Vec::new(), wanted, 0);
    while found.stopped.is_none() && found.lines.len() < wanted {
        if next.is_empty() {
            next = places.next(wanted - found.lines.len()).await?;
        }
        if next.is_empty() {
            break;
        }
        if bytes >= MAX_PAGE_BYTES {
            found.is_cut = true;
            break;
        }
        let read = readable_lines(db, MAX_PAGE_BYTES - bytes, &next[..at_once.min(next.len())]).await?;
        next.drain(..read.lines.len());
        at_once = if read.is_cut { read.lines.len().max(1) } else { at_once.saturating_mul(2) };
        let passing = read.lines.into_iter().filter(|line| filter.passes(line));
        found.lines.extend(passing.inspect(|line| bytes += line.bytes()));
        found.is_cut = read.is_cut && !found.lines.is_empty();
        found.stopped = read.stopped;
        if found.is_cut {
            break;
        }
    }
    Ok(found)
}

/// The events of a call, which are in few blocks: those of its end, and before them those of its opening.
async fn call_lines(
    db: PartitionClient<'_>,
    merchant: &String,
    filter: EventFilter,
    call: Call,
    below: i64,
) -> Result<Readable, Error> {
    let of_calls = Kinds::named(Call::KINDS).unwrap_or_default();
    let filter = EventFilter { kinds: filter.kinds.among(of_calls), ..filter };
    let (mut found, mut stopped) = (Vec::new(), None);
    for time in call.times() {
        let mut places = Places::new(db, merchant, filter, time, below, LINES_AT_ONCE).await?;
        let (mut next, mut at_once) = (Vec::new(), LINES_AT_ONCE);
        loop {
            if next.is_empty() {
                next = places.next(LINES_AT_ONCE).await?;
            }
            if next.is_empty() {
                break;
            }
            // Those of other calls may be long: few are in memory at once.
            let read = readable_lines(db, MAX_PAGE_BYTES, &next[..at_once.min(next.len())]).await?;
            next.drain(..read.lines.len());
            at_once = if read.is_cut { read.lines.len().max(1) } else { at_once.saturating_mul(2) };
            let passes = |line: &Line| filter.passes(line) && line.at_us() == time.0;
            found.extend(read.lines.into_iter().filter(passes));
            if read.stopped.is_some() {
                stopped = read.stopped;
                break;
            }
        }
        if stopped.is_some() {
            break;
        }
    }
    found.sort_unstable_by_key(|line: &Line| std::cmp::Reverse(line.recorded.position));
    Ok(Readable { lines: found, is_cut: false, stopped })
}

/// The position below which the page begins: that of one of the merchant's events.
async fn cursor(db: PartitionClient<'_>, merchant: &String, page: Page<'_>) -> Result<i64, Error> {
    let Some(cursor) = page.cursor else { return Ok(i64::MAX) };
    let position = cursor.parse::<i64>().ok().filter(|position| *position > 0).ok_or(Error::CursorInvalid)?;
    let block = block_of(position);
    let row = query::first::<BlockRow>(db, BLOCK, &[text(merchant), (&block, Type::INT8)]).await?;
    let is_own = row.is_some_and(|row| positions(&row, Kinds::ALL).any(|own| own == position));
    is_own.then_some(position).ok_or(Error::CursorInvalid)
}

/// The positions of the events of these kinds in a block, oldest first.
fn positions(row: &BlockRow, kinds: Kinds) -> impl DoubleEndedIterator<Item = i64> {
    let first = first_of(row.block);
    let events = row.events.chunks_exact(2).filter(move |event| kinds.contains(event[1]));
    events.map(move |event| first + i64::from(event[0]))
}

/// The first block of a merchant that may have an event at `from_us` or later, and the last with one before `to_us`. `None`
/// if no block has the first.
pub(super) async fn blocks_of_time(
    db: PartitionClient<'_>,
    merchant: &String,
    (from_us, to_us): (i64, i64),
) -> Result<Option<(i64, i64)>, Error> {
    let first = async |at_us: i64| {
        query::first::<BlockNumber>(db, FIRST_BLOCK, &[text(merchant), (&at_us, Type::INT8)]).await
    };
    let start = if from_us == i64::MIN {
        0
    } else {
        let Some(start) = first(from_us).await? else { return Ok(None) };
        start.block
    };
    let end = if to_us == i64::MAX {
        None
    } else {
        let late = query::first::<Lateness>(db, LATENESS, &[text(merchant)]).await?;
        first(to_us.saturating_add(late.map_or(0, |late| late.late_us))).await?
    };
    Ok(Some((start, end.map_or(i64::MAX, |end| end.block))))
}

/// The positions of events that may pass a filter, newest first.
struct Places<'a> {
    db: PartitionClient<'a>,
    merchant: &'a String,
    kinds: Kinds,
    customer: Option<String>,
    times: (i64, i64),
    /// The blocks that are not read yet.
    blocks: Option<(i64, i64)>,
    below: i64,
    rows_at_once: i64,
    /// The positions of the blocks that were read.
    read: VecDeque<i64>,
}

impl<'a> Places<'a> {
    async fn new(
        db: PartitionClient<'a>,
        merchant: &'a String,
        filter: EventFilter,
        times: (i64, i64),
        below: i64,
        rows_at_once: usize,
    ) -> Result<Self, Error> {
        let blocks = blocks_of_time(db, merchant, times).await?;
        Ok(Self {
            db,
            merchant,
            kinds: filter.kinds,
            customer: filter.customer_id.map(|id| id.to_string()),
            times,
            blocks: blocks.map(|(first, last)| (first, last.min(block_of(below - 1)))),
            below,
            rows_at_once: i64::try_from(rows_at_once).unwrap_or(i64::MAX),
            read: VecDeque::new(),
        })
    }

    /// The next positions, at most `max`. Empty at the end.
    async fn next(&mut self, max: usize) -> Result<Vec<i64>, Error> {
        while self.read.is_empty() {
            let Some(blocks) = self.blocks else { break };
            let rows = self.read_blocks(blocks).await?;
            let is_last = rows.len() < usize::try_from(self.rows_at_once).unwrap_or(usize::MAX);
            self.blocks = rows.last().filter(|_| !is_last).map(|row| (blocks.0, row.block - 1));
            for row in &rows {
                let positions = positions(row, self.kinds).rev().filter(|position| *position < self.below);
                self.read.extend(positions);
            }
        }
        Ok(self.read.drain(..self.read.len().min(max)).collect())
    }

    async fn read_blocks(&self, (first, last): (i64, i64)) -> Result<Vec<BlockRow>, Error> {
        let (kinds, (from, to)) = (self.kinds.bits(), self.times);
        let mut parameters: Vec<Parameter<'_>> =
            vec![text(self.merchant), (&first, Type::INT8), (&last, Type::INT8), (&kinds, Type::INT8)];
        let sql = if let Some(customer) = &self.customer {
            parameters.push(text(customer));
            CUSTOMER_BLOCKS
        } else {
            parameters.push((&from, Type::INT8));
            parameters.push((&to, Type::INT8));
            BLOCKS
        };
        parameters.push((&self.rows_at_once, Type::INT8));
        query::all(self.db, sql, &parameters).await
    }
}

/// Instants are whole microseconds in the log.
pub(super) fn micros(at: DateTime<Utc>) -> i64 {
    at.timestamp_micros() + i64::from(!at.timestamp_subsec_nanos().is_multiple_of(1_000))
}
