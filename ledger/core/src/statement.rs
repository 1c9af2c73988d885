//! A statement of a wallet over a period: the opening funds, the entries, the closing funds.
//!
//! Invariants: the opening funds and the changes of the entries add up to the closing funds. The statements of consecutive
//! periods have every entry once, and each opens with what the one before it closed with.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::entry::Funds;
use crate::money::Error;

/// A period: from an instant, up to another one, without it. Open ends are the beginning and the present end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Period {
    /// The first instant.
    pub from: Option<DateTime<Utc>>,
    /// The first instant after it.
    pub to: Option<DateTime<Utc>>,
}

impl Period {
    /// Whether an instant is in it.
    pub fn contains(self, instant: DateTime<Utc>) -> bool {
        self.from.is_none_or(|from| instant >= from) && self.to.is_none_or(|to| instant < to)
    }
}

/// Where an entry is, as seen from the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Before the period: part of the opening funds.
    Before,
    /// In the period.
    Within,
    /// After the period: not part of the statement.
    After,
}

/// Adds up the entries of a wallet, in the order of the log.
///
/// The period begins with the wallet's first entry at or after its first instant, and ends before the first one at or after
/// its end. So the log's order alone decides, also where the clocks of two gateways differed by some milliseconds.
#[derive(Debug)]
pub struct Statement {
    period: Period,
    side: Side,
    opening: Funds,
    closing: Funds,
}

impl Statement {
    /// The statement of an empty wallet.
    pub fn new(period: Period) -> Self {
        Self { period, side: Side::Before, opening: Funds::default(), closing: Funds::default() }
    }

    /// Adds the next entry. Returns where it is; [`Self::closing`] is then the funds after it.
    pub fn enter(&mut self, occurred_at: DateTime<Utc>, change: Funds) -> Result<Side, Error> {
        let Period { from, to } = self.period;
        let side = if to.is_some_and(|to| occurred_at >= to) {
            Side::After
        } else if from.is_none_or(|from| occurred_at >= from) {
            Side::Within
        } else {
            Side::Before
        };
        self.side = self.side.max(side);
        match self.side {
            Side::Before => {
                self.opening = self.opening.plus(change)?;
                self.closing = self.opening;
            }
            Side::Within => self.closing = self.closing.plus(change)?,
            Side::After => {}
        }
        Ok(self.side)
    }

    /// The funds before the period.
    pub const fn opening(&self) -> Funds {
        self.opening
    }

    /// The funds after the last entry until now.
    pub const fn closing(&self) -> Funds {
        self.closing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::money::Amount;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn funds(parts: (u32, u32, u32)) -> Funds {
        Funds {
            balance: Amount::last_digits(parts.0),
            plan_credit: Amount::ZERO.minus(Amount::last_digits(parts.1)).unwrap(),
            bundle_credit: Amount::last_digits(parts.2),
        }
    }

    /// The statement of `entries`, and the entries in it.
    fn state(entries: &[(i64, Funds)], from: Option<i64>, to: Option<i64>) -> (Statement, Vec<(i64, Funds)>) {
        let mut statement = Statement::new(Period { from: from.map(at), to: to.map(at) });
        let within = entries
            .iter()
            .filter(|(second, change)| statement.enter(at(*second), *change).unwrap() == Side::Within);
        let within = within.copied().collect();
        (statement, within)
    }

    #[test]
    fn an_entry_at_the_first_instant_is_in_the_period_and_one_at_its_end_is_not() {
        let entries = [(1, funds((1, 0, 0))), (2, funds((10, 0, 0))), (3, funds((100, 0, 0)))];
        let (statement, within) = state(&entries, Some(2), Some(3));
        assert_eq!(within, [entries[1]]);
        assert_eq!((statement.opening(), statement.closing()), (funds((1, 0, 0)), funds((11, 0, 0))));
        let (statement, within) = state(&entries, Some(4), None);
        assert_eq!(within, []);
        assert_eq!((statement.opening(), statement.closing()), (funds((111, 0, 0)), funds((111, 0, 0))));
    }

    proptest! {
        #[test]
        fn consecutive_statements_add_up_and_have_every_entry_once(
            // Times that nearly increase, as those of two gateways do.
            entries in prop::collection::vec((0..3_i64, any::<(u32, u32, u32)>()), 0..40),
            mut cuts in prop::collection::vec(0..60_i64, 0..5),
        ) {
            let entries: Vec<_> = entries
                .into_iter()
                .enumerate()
                .map(|(index, (skew, parts))| (i64::try_from(index).unwrap() + skew, funds(parts)))
                .collect();
            cuts.sort_unstable();
            let ends: Vec<_> = [None].into_iter().chain(cuts.into_iter().map(Some)).chain([None]).collect();
            let (mut before, mut seen) = (Funds::default(), Vec::new());
            for period in ends.windows(2) {
                let (statement, within) = state(&entries, period[0], period[1]);
                prop_assert_eq!(statement.opening(), before);
                let sum = within
                    .iter()
                    .try_fold(statement.opening(), |sum, (_, change)| sum.plus(*change));
                prop_assert_eq!(sum.unwrap(), statement.closing());
                before = statement.closing();
                seen.extend(within);
            }
            prop_assert_eq!(seen, entries);
        }
    }
}
