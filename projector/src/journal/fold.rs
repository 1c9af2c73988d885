//! The fold: a row per merchant and block with the places of its events, and the balances of its accounts. A row has the sums
//! of the batch until the end of its block; those before the batch are in the merchant's books, and are added when it is
//! written.

use std::collections::BTreeMap;

use farthing_core::accounts::{Account, Journal, Posting};
use farthing_core::event::{Event, MerchantEvent, Recorded};
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use super::kinds::{Kinds, number};
use super::{block_of, first_of, postings};
use crate::engine::{Doubtful, Projection};

/// The new events of merchants.
#[derive(Debug)]
pub(crate) struct JournalBatch {
    pub(super) new: Vec<MerchantId>,
    pub(super) blocks: BTreeMap<(MerchantId, i64), Block>,
    pub(super) customers: BTreeMap<(MerchantId, CustomerId, i64), Places>,
    /// What is added to the books of each merchant. In the order of their ids, so that two writers cannot deadlock.
    pub(super) books: BTreeMap<MerchantId, Sums>,
    journal: Journal,
    doubtful: Option<Doubtful>,
}

impl Default for JournalBatch {
    /// A batch begins with an append, so it has the payment of each purpose.
    fn default() -> Self {
        let (new, blocks, customers, books) = Default::default();
        Self { new, blocks, customers, books, journal: Journal::from_any_append(), doubtful: None }
    }
}

/// The events of a merchant in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) places: Places,
    /// The times of the first and the last of them, in time.
    pub(super) first_us: i64,
    pub(super) last_us: i64,
    /// The merchant's sums of the batch, until the last of them.
    pub(super) sums: Sums,
}

/// The events in a block, as the columns `events` and `kinds`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    pub(super) events: Vec<u8>,
    pub(super) kinds: Kinds,
}

impl Places {
    fn add(&mut self, position: i64, kind: u8) {
        let place = u8::try_from(position - first_of(block_of(position))).expect("a block has 256 positions");
        self.events.extend([place, kind]);
        self.kinds = self.kinds.and(Kinds::only(kind));
    }
}

/// The sums over some events of a merchant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    /// The earliest and the latest time.
    pub(super) earliest_us: i64,
    pub(super) latest_us: i64,
    /// By how much an event occurred before one that precedes it.
    pub(super) late_us: i64,
    /// The changes of the accounts, in their order.
    pub(super) accounts: [Decimal; Account::ALL.len()],
}

impl Sums {
    const fn starting(at_us: i64) -> Self {
        Self {
            earliest_us: at_us,
            latest_us: at_us,
            late_us: 0,
            accounts: [Decimal::ZERO; Account::ALL.len()],
        }
    }

    fn add(&mut self, at_us: i64, postings: &[Posting]) {
        self.earliest_us = self.earliest_us.min(at_us);
        self.late_us = self.late_us.max(self.latest_us.saturating_sub(at_us));
        self.latest_us = self.latest_us.max(at_us);
        for posting in postings {
            self.accounts[posting.account.index()] += posting.amount.decimal();
        }
    }
}

impl Projection for JournalBatch {
    const MODEL: ReadModel = ReadModel::Journal;

    fn fold(&mut self, recorded: &Recorded) {
        let (fact, position) = (&recorded.fact, recorded.position);
        let (merchant_id, at_us) = (fact.merchant_id, fact.occurred_at.timestamp_micros());
        if let Event::Merchant(MerchantEvent::Registered(_)) = &fact.event {
            self.new.push(merchant_id);
        }
        let (postings, is_balanced) = postings(&mut self.journal, &fact.event);
        if !is_balanced {
            let first = Doubtful { events: 0, first_position: position };
            self.doubtful.get_or_insert(first).events += 1;
        }
        let sums = self.books.entry(merchant_id).or_insert_with(|| Sums::starting(at_us));
        sums.add(at_us, &postings);
        let sums = *sums;
        let block = self.blocks.entry((merchant_id, block_of(position))).or_insert_with(|| Block {
            places: Places::default(),
            first_us: at_us,
            last_us: at_us,
            sums,
        });
        let kind = number(fact.event.kind());
        block.places.add(position, kind);
        block.first_us = block.first_us.min(at_us);
        block.last_us = block.last_us.max(at_us);
        block.sums = sums;
        if let Some(customer_id) = fact.event.customer_id() {
            let places = self.customers.entry((merchant_id, customer_id, block_of(position))).or_default();
            places.add(position, kind);
        }
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn doubtful(&self) -> Option<Doubtful> {
        self.doubtful
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use farthing_core::event::{Fact, Source, WalletCredited, WalletDebited, WalletSource};
    use farthing_core::ids::{CreditId, Mint, RequestId, WalletId};
    use farthing_core::partition::Partition;

    use super::*;

    #[test]
    fn an_event_that_does_not_add_up_is_shown_as_it_is_and_counted() {
        let mint = Mint::default();
        let id = || mint.next(DateTime::UNIX_EPOCH);
        let merchant_id = MerchantId::new(id());
        let amount = |text: &str| text.parse().unwrap();
        let mut batch = JournalBatch::default();
        for (position, drawn) in [(7, "2"), (8, "1.5"), (9, "1")] {
            let event = Event::from(WalletDebited {
                request_id: RequestId::new(id()),
                wallet_id: WalletId::new(id()),
                customer_id: None,
                amount: amount("2"),
                sources: vec![WalletSource { source: Source::Balance, amount: amount(drawn) }],
                balance_after: amount("0"),
            });
            let fact = Fact { merchant_id, occurred_at: DateTime::UNIX_EPOCH, event };
            batch.fold(&Recorded { partition: Partition::new(0), position, fact });
        }
        assert_eq!(batch.doubtful(), Some(Doubtful { events: 2, first_position: 8 }));
        let sums = batch.books[&merchant_id].accounts;
        assert_eq!(sums.iter().sum::<Decimal>().to_string(), "-1.5");
        assert_eq!(sums[Account::CallsClearing.index()], Decimal::from(-6));
    }

    #[test]
    fn a_row_has_the_places_of_its_block_and_the_sums_until_its_end() {
        let mint = Mint::default();
        let id = || mint.next(DateTime::UNIX_EPOCH);
        let (merchant_id, customer_id) = (MerchantId::new(id()), CustomerId::new(id()));
        let mut batch = JournalBatch::default();
        for (position, at_us, customer_id) in [(255, 50, None), (256, 20, Some(customer_id)), (259, 60, None)]
        {
            let event = Event::from(WalletCredited {
                credit_id: CreditId::new(id()),
                wallet_id: WalletId::new(id()),
                customer_id,
                amount: "1".parse().unwrap(),
                reason: String::new(),
                balance_after: "1".parse().unwrap(),
            });
            let occurred_at = DateTime::UNIX_EPOCH + TimeDelta::microseconds(at_us);
            let fact = Fact { merchant_id, occurred_at, event };
            batch.fold(&Recorded { partition: Partition::new(0), position, fact });
        }
        let kind = number("wallet.credited");
        let rows: Vec<_> = batch.blocks.iter().map(|((_, block), row)| (*block, row)).collect();
        let shown: Vec<_> = rows.iter().map(|(block, row)| (*block, row.places.events.clone())).collect();
        assert_eq!(shown, [(0, vec![254, kind, 255, kind]), (1, vec![2, kind])]);
        let sums = |row: &Block| {
            let Sums { earliest_us, latest_us, late_us, accounts } = row.sums;
            let of = |account: Account| accounts[account.index()].to_string();
            let changed = [Account::CustomerBalances, Account::MerchantWallets, Account::ManualCredits];
            (earliest_us, latest_us, late_us, changed.map(of))
        };
        assert_eq!(sums(rows[0].1), (20, 50, 30, ["-1", "-1", "2"].map(str::to_owned)));
        assert_eq!(sums(rows[1].1), (20, 60, 30, ["-1", "-2", "3"].map(str::to_owned)));
        assert_eq!((rows[0].1.first_us, rows[0].1.last_us, rows[1].1.first_us), (20, 50, 60));
        assert_eq!(batch.books[&merchant_id], rows[1].1.sums);
        let of_customer: Vec<_> =
            batch.customers.iter().map(|((.., block), places)| (*block, &places.events[..])).collect();
        assert_eq!(of_customer, [(0, &[255, kind][..])]);
    }
}
