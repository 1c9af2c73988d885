//! Cycles of a spend key's limits, in UTC: midnight, Monday midnight, the first of the month, or never
//! (completion.md section 6). Decisions and read models both use these boundaries, so the interface shows the cycles
//! that decisions count in.

use chrono::{DateTime, Datelike as _, Days, Months, NaiveDate, NaiveTime, Utc};

use crate::event::Cycle;

impl Cycle {
    /// All cycles.
    pub const ALL: [Self; 4] = [Self::Daily, Self::Weekly, Self::Monthly, Self::Total];

    /// The start of the cycle around `at`; the Unix epoch for [`Cycle::Total`].
    pub fn start(self, at: DateTime<Utc>) -> DateTime<Utc> {
        self.first_day(at).map_or(DateTime::UNIX_EPOCH, midnight)
    }

    /// The end of the cycle around `at`, where the next one begins; `None` for [`Cycle::Total`].
    pub fn end(self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let first = self.first_day(at)?;
        let next = match self {
            Self::Daily => first.checked_add_days(Days::new(1)),
            Self::Weekly => first.checked_add_days(Days::new(7)),
            Self::Monthly => first.checked_add_months(Months::new(1)),
            Self::Total => None,
        };
        next.map(midnight)
    }

    fn first_day(self, at: DateTime<Utc>) -> Option<NaiveDate> {
        let day = at.date_naive();
        match self {
            Self::Daily => Some(day),
            Self::Weekly => day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into())),
            Self::Monthly => day.with_day(1),
            Self::Total => None,
        }
    }
}

fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn cycles_begin_at_their_stated_instants() {
        // 2026-11-21 is a Saturday.
        for (cycle, now, start, end) in [
            (Cycle::Daily, "2026-11-21T23:59:59.999Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
            (Cycle::Daily, "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Cycle::Weekly, "2026-11-21T12:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Cycle::Weekly, "2026-11-22T23:59:59.999Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Cycle::Weekly, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
            (Cycle::Weekly, "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
            (Cycle::Monthly, "2026-11-30T23:59:59.999Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            (Cycle::Monthly, "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            (Cycle::Monthly, "2028-02-29T10:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ] {
            assert_eq!((cycle.start(at(now)), cycle.end(at(now))), (at(start), Some(at(end))), "{now}");
        }
        assert_eq!(Cycle::Total.start(at("2026-11-21T12:00:00Z")), DateTime::UNIX_EPOCH);
        assert_eq!(Cycle::Total.end(at("2026-11-21T12:00:00Z")), None);
    }
}
