//! Positions of the log: one in each of some partitions.

use std::collections::BTreeMap;

use farthing_core::partition::Partition;
use tokio_postgres::Row;

/// A position in each of some partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions(BTreeMap<Partition, i64>);

impl Positions {
    /// Reads rows with the columns `partition` and `position`.
    pub fn from_rows(rows: &[Row]) -> Result<Self, tokio_postgres::Error> {
        let read = |row: &Row| Ok((Partition::new(row.try_get("partition")?), row.try_get("position")?));
        rows.iter().map(read).collect()
    }

    /// The position in `partition`; 0 if it has none.
    pub fn get(&self, partition: Partition) -> i64 {
        self.0.get(&partition).copied().unwrap_or(0)
    }

    /// Sets the position in `partition`.
    pub fn set(&mut self, partition: Partition, position: i64) {
        self.0.insert(partition, position);
    }

    /// The partitions with their positions, by the number of the partition.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Partition, i64)> + Clone {
        self.0.iter().map(|(partition, position)| (*partition, *position))
    }

    /// The sum of all positions, which is the number of events up to them.
    pub fn events(&self) -> i64 {
        self.0.values().sum()
    }

    /// The number of events up to these positions that are not up to those of `reached`.
    pub fn events_after(&self, reached: &Self) -> i64 {
        self.iter().map(|(partition, position)| (position - reached.get(partition)).max(0)).sum()
    }
}

impl FromIterator<(Partition, i64)> for Positions {
    fn from_iter<I: IntoIterator<Item = (Partition, i64)>>(positions: I) -> Self {
        Self(positions.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_in_every_partition() {
        let at = |positions: [i64; 2]| -> Positions { (0..).map(Partition::new).zip(positions).collect() };
        assert_eq!(at([3, 4]).events(), 7);
        assert_eq!(at([3, 4]).events_after(&at([1, 4])), 2);
        assert_eq!(
            at([3, 4]).events_after(&at([5, 1])),
            3,
            "a partition that is ahead makes up for no other"
        );
        assert_eq!(at([3, 4]).events_after(&Positions::default()), 7);
        assert_eq!(at([3, 4]).get(Partition::new(2)), 0);
    }
}
