//! The fold: a row per entry, and one per wallet with its money. An entry has the sum of the changes of its batch until it;
//! the money before the batch is in the wallet's row, and is added when it is written.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::entry::{Cause, Entry, Funds};
use farthing_core::event::{CustomerEvent, Event, MerchantEvent, Recorded};
use farthing_core::ids::{CustomerId, MerchantId, WalletId};
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use crate::engine::{Doubtful, Projection};

/// New entries and wallets, and the changes of wallets.
#[derive(Debug, Default)]
pub(crate) struct EntryBatch {
    pub(super) wallets: Vec<NewWallet>,
    pub(super) entries: Vec<NewEntry>,
    /// In the order of their ids, so that two writers cannot deadlock.
    pub(super) moved: BTreeMap<WalletId, Moved>,
    /// Events whose parts have no sum. They have no entry.
    doubtful: Option<Doubtful>,
}

/// A row of the table `wallets`. It has no money yet.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "fields are named as their columns")]
pub(super) struct NewWallet {
    pub(super) wallet_id: WalletId,
    pub(super) merchant_id: MerchantId,
    pub(super) customer_id: Option<CustomerId>,
}

/// A row of the table `entries`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewEntry {
    pub(super) wallet_id: WalletId,
    pub(super) position: i64,
    pub(super) occurred_at: DateTime<Utc>,
    pub(super) cause: Cause,
    pub(super) change: Sum,
    /// The wallet's changes in this batch, up to this one.
    pub(super) moved: Moved,
}

/// The changes of a wallet in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) sum: Sum,
    /// The latest time of its entries.
    pub(super) counted_at: DateTime<Utc>,
    /// The position of the last one.
    pub(super) last_position: i64,
}

/// A sum of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) balance: Decimal,
    pub(super) plan_credit: Decimal,
    pub(super) bundle_credit: Decimal,
}

impl Sum {
    /// The sum of both. Beyond what a column holds it is a number that Postgres refuses.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            balance: self.balance.saturating_add(other.balance),
            plan_credit: self.plan_credit.saturating_add(other.plan_credit),
            bundle_credit: self.bundle_credit.saturating_add(other.bundle_credit),
        }
    }
}

impl From<Funds> for Sum {
    fn from(funds: Funds) -> Self {
        Self {
            balance: funds.balance.decimal(),
            plan_credit: funds.plan_credit.decimal(),
            bundle_credit: funds.bundle_credit.decimal(),
        }
    }
}

impl EntryBatch {
    fn enter(&mut self, position: i64, occurred_at: DateTime<Utc>, entry: Entry) {
        let Entry { wallet_id, cause, change, .. } = entry;
        let change = Sum::from(change);
        let moved = self.moved.entry(wallet_id).or_insert_with(|| Moved {
            sum: Sum::default(),
            counted_at: occurred_at,
            last_position: position,
        });
        moved.sum.balance += change.balance;
        moved.sum.plan_credit += change.plan_credit;
        moved.sum.bundle_credit += change.bundle_credit;
        moved.counted_at = moved.counted_at.max(occurred_at);
        moved.last_position = position;
        self.entries.push(NewEntry { wallet_id, position, occurred_at, cause, change, moved: *moved });
    }
}

impl Projection for EntryBatch {
    const MODEL: ReadModel = ReadModel::Entries;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Merchant(MerchantEvent::Registered(event)) => self.wallets.push(NewWallet {
                wallet_id: event.wallet_id,
                merchant_id: event.merchant_id,
                customer_id: None,
            }),
            Event::Customer(CustomerEvent::Created(event)) => self.wallets.push(NewWallet {
                wallet_id: event.wallet_id,
                merchant_id: fact.merchant_id,
                customer_id: Some(event.customer_id),
            }),
            Event::Wallet(_) | Event::Subscription(_) => match Entry::of(&fact.event) {
                Ok(Some(entry)) => self.enter(recorded.position, fact.occurred_at, entry),
                Ok(None) => {}
                Err(_) => {
                    let first = Doubtful { events: 0, first_position: recorded.position };
                    self.doubtful.get_or_insert(first).events += 1;
                }
            },
            Event::Merchant(MerchantEvent::ClockAdvanced(_))
            | Event::Customer(CustomerEvent::Updated(_) | CustomerEvent::Deleted(_))
            | Event::SecretKey(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.wallets.is_empty() && self.entries.is_empty() && self.doubtful.is_none()
    }

    fn doubtful(&self) -> Option<Doubtful> {
        self.doubtful
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{Source, WalletCredited, WalletDebited, WalletSource};
    use farthing_core::ids::{CreditId, Mint, RequestId};
    use farthing_core::money::Amount;

    use super::*;
    use crate::sample;

    #[test]
    fn an_entry_has_the_changes_of_its_wallet_until_it() {
        let mint = Mint::default();
        let [one, other] = [(); 2].map(|()| WalletId::new(mint.next(DateTime::UNIX_EPOCH)));
        let credited = |wallet_id: WalletId, amount: &str| {
            Event::from(WalletCredited {
                credit_id: CreditId::new(mint.next(DateTime::UNIX_EPOCH)),
                wallet_id,
                customer_id: None,
                amount: amount.parse().unwrap(),
                reason: String::new(),
                balance_after: amount.parse().unwrap(),
            })
        };
        let batch: EntryBatch =
            sample::fold(vec![credited(one, "1"), credited(other, "7"), credited(one, "2")]);
        let sums: Vec<_> = batch
            .entries
            .iter()
            .map(|entry| (entry.position, entry.wallet_id, entry.moved.sum.balance.to_string()))
            .collect();
        assert_eq!(sums, [(1, one, "1".into()), (2, other, "7".into()), (3, one, "3".into())]);
        assert_eq!(batch.moved[&one], batch.entries[2].moved);
        assert!(!batch.is_empty());
    }

    #[test]
    fn an_entry_counts_no_earlier_than_the_one_before_it() {
        let wallet_id = WalletId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        let mut batch = EntryBatch::default();
        let at = |second| DateTime::from_timestamp(second, 0).unwrap();
        for (position, second) in [(1, 5), (2, 3), (3, 6)] {
            let entry = Entry {
                wallet_id,
                customer_id: None,
                cause: Cause::Credit { credit_id: CreditId::new(wallet_id.ulid()), reason: String::new() },
                change: Funds::default(),
                stated_balance: None,
            };
            batch.enter(position, at(second), entry);
        }
        let counted: Vec<_> = batch.entries.iter().map(|entry| entry.moved.counted_at).collect();
        assert_eq!(counted, [at(5), at(5), at(6)]);
        assert_eq!(batch.entries[1].occurred_at, at(3));
    }

    #[test]
    fn an_event_whose_parts_have_no_sum_stops_nothing_and_is_counted() {
        let id = || Mint::default().next(DateTime::UNIX_EPOCH);
        let part = || WalletSource { source: Source::Balance, amount: Amount::MAX };
        let debited = |parts: usize| {
            Event::from(WalletDebited {
                request_id: RequestId::new(id()),
                wallet_id: WalletId::new(id()),
                customer_id: None,
                amount: Amount::MAX,
                sources: (0..parts).map(|_| part()).collect(),
                balance_after: Amount::ZERO,
            })
        };
        let batch: EntryBatch = sample::fold(vec![debited(1), debited(3), debited(1)]);
        assert_eq!(batch.doubtful(), Some(Doubtful { events: 1, first_position: 2 }));
        assert_eq!(batch.entries.len(), 2);
    }
}
