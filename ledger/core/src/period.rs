//! Usage periods: monthly, anchored on the connection's creation, with the day clamped to the end of the month
//! (completion.md section 4).

use chrono::{DateTime, Datelike as _, Months, Utc};

/// A usage period: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// `previous_usage_reset`.
    pub start: DateTime<Utc>,
    /// `next_usage_reset`.
    pub end: DateTime<Utc>,
}

/// The period around `at`, counted in months from `anchor`. An instant before the anchor is in the first period.
pub fn period_around(anchor: DateTime<Utc>, at: DateTime<Utc>) -> Period {
    let month_of =
        |instant: DateTime<Utc>| instant.year() * 12 + i32::try_from(instant.month0()).unwrap_or(0);
    let months = u32::try_from(month_of(at) - month_of(anchor)).unwrap_or(0);
    // Counting every reset from the anchor keeps the 31st the 31st after a short month.
    let reset =
        |count: u32| anchor.checked_add_months(Months::new(count)).unwrap_or(DateTime::<Utc>::MAX_UTC);
    let passed = if reset(months) <= at || months == 0 { months } else { months - 1 };
    Period { start: reset(passed), end: reset(passed + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn the_day_is_clamped_to_the_end_of_a_short_month_and_comes_back() {
        let anchor = at("2026-01-31T10:00:00Z");
        for (now, start, end) in [
            ("2026-01-31T10:00:00Z", "2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z"),
            ("2026-02-28T09:59:59Z", "2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z"),
            ("2026-02-28T10:00:00Z", "2026-02-28T10:00:00Z", "2026-03-31T10:00:00Z"),
            ("2026-03-30T10:00:00Z", "2026-02-28T10:00:00Z", "2026-03-31T10:00:00Z"),
            ("2028-02-29T10:00:00Z", "2028-02-29T10:00:00Z", "2028-03-31T10:00:00Z"),
            ("2026-01-01T00:00:00Z", "2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z"),
        ] {
            assert_eq!(period_around(anchor, at(now)), Period { start: at(start), end: at(end) }, "{now}");
        }
    }
}
