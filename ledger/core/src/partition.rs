//! Partitions of the log. A merchant belongs to one of them, with all of its events, states and read rows. No rule
//! crosses merchants, so no transaction crosses partitions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::MerchantId;

/// A partition of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition(i16);

impl Partition {
    /// The partition of this number.
    pub const fn new(number: i16) -> Self {
        Self(number)
    }

    /// Its number, from 0.
    pub const fn number(self) -> i16 {
        self.0
    }

    /// Its place in a list of all partitions.
    pub const fn index(self) -> usize {
        self.0.unsigned_abs() as usize
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The partitions of a log. `farthing migrate` fixes their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitions(i16);

impl Partitions {
    /// The most partitions of a log.
    pub const MAX: i16 = 1_024;

    /// `count` partitions; `None` unless the number is from 1 to [`Self::MAX`].
    pub const fn new(count: i16) -> Option<Self> {
        if count >= 1 && count <= Self::MAX { Some(Self(count)) } else { None }
    }

    /// The number of partitions.
    pub const fn count(self) -> i16 {
        self.0
    }

    /// All of them, by number.
    pub fn all(self) -> impl ExactSizeIterator<Item = Partition> + Clone {
        (0..self.0).map(Partition)
    }

    /// The partition of a merchant: a function of the random part of its id, so nothing needs to be looked up.
    pub fn of(self, merchant_id: MerchantId) -> Partition {
        let number = merchant_id.ulid().random() % u128::from(self.0.unsigned_abs());
        Partition(i16::try_from(number).expect("less than the number of partitions"))
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn every_merchant_has_one_partition_and_they_spread_evenly() {
        let partitions = Partitions::new(8).unwrap();
        let mut merchants = [0; 8];
        for number in 0..8_000_u128 {
            let id = MerchantId::new(Ulid::from_parts(1, number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            merchants[partitions.of(id).index()] += 1;
        }
        assert!(merchants.iter().all(|merchants| (800..1_200).contains(merchants)), "{merchants:?}");
        let all: Vec<i16> = partitions.all().map(Partition::number).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_log_has_at_least_one_partition() {
        assert_eq!([-1, 0, 1_025].map(Partitions::new), [None; 3]);
        assert_eq!(Partitions::new(1).unwrap().of(MerchantId::new(Ulid(u128::MAX))), Partition::new(0));
    }
}
