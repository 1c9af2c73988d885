//! The metered usage of the log against a provider's export, by UTC day and model.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDate;
use rust_decimal::Decimal;
use serde::Serialize;

use super::Class;
use crate::event::RequestMetered;
use crate::money::{Error, exact_sum};

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The number of calls.
    Requests,
    /// Input tokens, with those that used the cache.
    InputTokens,
    /// Output tokens, with those for reasoning.
    OutputTokens,
    /// The input tokens that were read from the cache.
    CacheReadTokens,
    /// The input tokens that were written to the cache.
    CacheWriteTokens,
    /// The cost in dollars: by the list prices in the log, by the provider in its export.
    Cost,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 6] = [
        Self::Requests,
        Self::InputTokens,
        Self::OutputTokens,
        Self::CacheReadTokens,
        Self::CacheWriteTokens,
        Self::Cost,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::CacheReadTokens => "cache_read_tokens",
            Self::CacheWriteTokens => "cache_write_tokens",
            Self::Cost => "cost",
        }
    }
}

/// Figures by measure. One that is absent is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<Measure, Decimal>);

impl Figures {
    /// The figures of a metered call.
    pub fn of(metered: &RequestMetered) -> Self {
        let usage = &metered.usage;
        Self(BTreeMap::from([
            (Measure::Requests, Decimal::ONE),
            (Measure::InputTokens, usage.tokens.input.into()),
            (Measure::OutputTokens, usage.tokens.output.into()),
            (Measure::CacheReadTokens, usage.cached.read.into()),
            (Measure::CacheWriteTokens, usage.cached.write.into()),
            (Measure::Cost, metered.model_cost.total.decimal()),
        ]))
    }

    /// Adds to a figure.
    pub fn add(&mut self, measure: Measure, value: Decimal) -> Result<(), Error> {
        let figure = self.0.entry(measure).or_default();
        *figure = exact_sum(*figure, value)?.normalize();
        Ok(())
    }

    fn add_all(&mut self, other: &Self) -> Result<(), Error> {
        other.0.iter().try_for_each(|(measure, value)| self.add(*measure, *value))
    }

    /// A figure.
    pub fn get(&self, measure: Measure) -> Decimal {
        self.0.get(&measure).copied().unwrap_or_default()
    }

    /// These measures alone.
    fn only(&self, measures: &BTreeSet<Measure>) -> Self {
        Self(measures.iter().map(|measure| (*measure, self.get(*measure))).collect())
    }

    fn is_zero(&self) -> bool {
        self.0.values().all(Decimal::is_zero)
    }
}

/// A day and a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UsageKey {
    /// The day, in UTC.
    pub day: NaiveDate,
    /// The model.
    pub model: String,
}

/// A row of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The line of the file.
    pub line: u64,
    /// Its day and model.
    pub key: UsageKey,
    /// Its figures.
    pub figures: Figures,
}

/// A day and a model in the log, in the export, or in both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageMatch {
    /// The class.
    pub class: Class,
    /// The day and the model.
    #[serde(flatten)]
    pub key: UsageKey,
    /// The lines of the export.
    pub lines: Vec<u64>,
    /// In the log.
    pub recorded: Figures,
    /// In the export.
    pub listed: Figures,
    /// In the export, less in the log.
    pub difference: Figures,
}

/// The sums of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageTotals {
    /// The number of days and models.
    pub count: u64,
    /// The rows of the export.
    pub rows: u64,
    /// In the log.
    pub recorded: Figures,
    /// In the export.
    pub listed: Figures,
}

impl UsageTotals {
    fn zero(measures: &BTreeSet<Measure>) -> Self {
        let zero = Figures::default().only(measures);
        Self { count: 0, rows: 0, recorded: zero.clone(), listed: zero }
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub struct UsageReport {
    /// The measures that were compared.
    pub measures: BTreeSet<Measure>,
    /// The matches, differences first.
    pub matches: Vec<UsageMatch>,
    /// The sums of each class that has a match.
    pub classes: BTreeMap<Class, UsageTotals>,
    /// The sums of all.
    pub total: UsageTotals,
}

impl UsageReport {
    /// Whether there is a difference.
    pub fn has_differences(&self) -> bool {
        self.classes.keys().any(|class| class.is_a_difference())
    }
}

/// The usage of the log, by day and model.
#[derive(Debug, Default)]
pub struct RecordedUsage(BTreeMap<UsageKey, Figures>);

impl RecordedUsage {
    /// Adds a call.
    pub fn add(&mut self, key: UsageKey, figures: &Figures) -> Result<(), Error> {
        self.0.entry(key).or_default().add_all(figures)
    }

    /// Compares it with the rows of an export, by `measures`. A difference of costs up to `tolerance` is none.
    pub fn compare(
        self,
        rows: Vec<UsageRow>,
        measures: BTreeSet<Measure>,
        tolerance: Decimal,
    ) -> Result<UsageReport, Error> {
        let mut pairs = BTreeMap::<UsageKey, (Option<Figures>, Option<(Vec<u64>, Figures)>)>::new();
        let mut total = UsageTotals::zero(&measures);
        for (key, figures) in self.0 {
            let figures = figures.only(&measures);
            total.recorded.add_all(&figures)?;
            pairs.entry(key).or_default().0 = Some(figures);
        }
        for row in rows {
            let figures = row.figures.only(&measures);
            total.listed.add_all(&figures)?;
            total.rows += 1;
            let (lines, sum) = pairs.entry(row.key).or_default().1.get_or_insert_default();
            lines.push(row.line);
            sum.add_all(&figures)?;
        }
        let mut matches = Vec::with_capacity(pairs.len());
        for (key, (recorded, listed)) in pairs {
            let both = (recorded.is_some(), listed.is_some());
            let recorded = recorded.unwrap_or_else(|| Figures::default().only(&measures));
            let (lines, listed) = listed.unwrap_or_else(|| (Vec::new(), Figures::default().only(&measures)));
            let mut difference = listed.clone();
            for (measure, value) in &recorded.0 {
                difference.add(*measure, -*value)?;
            }
            let class = if is_within(&difference, tolerance) {
                Class::Matched
            } else {
                match both {
                    (false, _) => Class::MissingInLog,
                    (true, false) => Class::MissingInList,
                    (true, true) => Class::Different,
                }
            };
            matches.push(UsageMatch { class, key, lines, recorded, listed, difference });
        }
        // The order of days and models is kept within a class.
        matches.sort_by_key(|found| (!found.class.is_a_difference(), found.class));
        let mut classes = BTreeMap::<Class, UsageTotals>::new();
        for found in &matches {
            total.count += 1;
            let class = classes.entry(found.class).or_insert_with(|| UsageTotals::zero(&measures));
            class.count += 1;
            class.rows += found.lines.len() as u64;
            class.recorded.add_all(&found.recorded)?;
            class.listed.add_all(&found.listed)?;
        }
        let mut sum = UsageTotals::zero(&measures);
        for class in classes.values() {
            sum.count += class.count;
            sum.rows += class.rows;
            sum.recorded.add_all(&class.recorded)?;
            sum.listed.add_all(&class.listed)?;
        }
        assert_eq!(sum, total, "every row and every call is in one class");
        Ok(UsageReport { measures, matches, classes, total })
    }
}

/// Whether all figures agree, the cost within a tolerance.
fn is_within(difference: &Figures, tolerance: Decimal) -> bool {
    let cost = difference.get(Measure::Cost);
    let mut others = difference.clone();
    others.0.remove(&Measure::Cost);
    others.is_zero() && cost.abs() <= tolerance
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(day: u32, model: &str) -> UsageKey {
        UsageKey { day: NaiveDate::from_ymd_opt(2026, 11, day).unwrap(), model: model.to_owned() }
    }

    fn figures(tokens: i64, cost: &str) -> Figures {
        let mut figures = Figures::default();
        figures.add(Measure::InputTokens, tokens.into()).unwrap();
        figures.add(Measure::Cost, Decimal::from_str_exact(cost).unwrap()).unwrap();
        figures
    }

    fn compare(recorded: &[(u32, i64, &str)], listed: &[(u32, i64, &str)], tolerance: &str) -> UsageReport {
        let mut usage = RecordedUsage::default();
        for (day, tokens, cost) in recorded {
            usage.add(key(*day, "m"), &figures(*tokens, cost)).unwrap();
        }
        let rows = (2..).zip(listed).map(|(line, (day, tokens, cost))| UsageRow {
            line,
            key: key(*day, "m"),
            figures: figures(*tokens, cost),
        });
        let measures = BTreeSet::from([Measure::InputTokens, Measure::Cost]);
        usage.compare(rows.collect(), measures, Decimal::from_str_exact(tolerance).unwrap()).unwrap()
    }

    #[test]
    fn each_day_and_model_is_in_one_class_with_both_figures() {
        let report = compare(
            &[(1, 10, "0.5"), (2, 10, "0.5"), (3, 5, "0.25")],
            &[(1, 4, "0.2"), (1, 6, "0.3"), (2, 12, "0.5"), (4, 1, "0.1")],
            "0",
        );
        let classes: Vec<_> = report.matches.iter().map(|found| (found.key.day, found.class)).collect();
        let day = |day| key(day, "m").day;
        assert_eq!(
            classes,
            [
                (day(2), Class::Different),
                (day(4), Class::MissingInLog),
                (day(3), Class::MissingInList),
                (day(1), Class::Matched),
            ]
        );
        assert_eq!(report.matches[0].difference, figures(2, "0"));
        assert_eq!(report.matches[3].lines, [2, 3]);
        assert!(report.has_differences());
    }

    #[test]
    fn a_cost_within_the_tolerance_is_no_difference_and_other_tokens_are() {
        let report =
            compare(&[(1, 10, "0.5012"), (2, 10, "0.5")], &[(1, 10, "0.50"), (2, 11, "0.5")], "0.005");
        let classes: Vec<_> = report.matches.iter().map(|found| found.class).collect();
        assert_eq!(classes, [Class::Different, Class::Matched]);
        assert_eq!(compare(&[(1, 0, "0.0051")], &[(1, 0, "0")], "0.005").matches[0].class, Class::Different);
    }

    #[test]
    fn zeros_on_one_side_alone_are_no_difference() {
        let report = compare(&[(1, 0, "0")], &[(2, 0, "0")], "0");
        assert!(!report.has_differences());
        assert_eq!(report.total.count, 2);
    }

    proptest! {
        #[test]
        fn every_row_ends_in_exactly_one_class_and_the_classes_add_up(
            recorded in prop::collection::vec((1..6_u32, 0..3_u8, 0..4_i64, 0..4_u32), 0..30),
            listed in prop::collection::vec((1..6_u32, 0..3_u8, 0..4_i64, 0..4_u32), 0..30),
            tolerance in 0..3_u32,
        ) {
            let cost = |digits: u32| Decimal::new(digits.into(), 10);
            let mut usage = RecordedUsage::default();
            let mut sums = (Decimal::ZERO, Decimal::ZERO);
            for (day, model, tokens, digits) in &recorded {
                let figures = figures(*tokens, &cost(*digits).to_string());
                usage.add(key(*day, &model.to_string()), &figures).unwrap();
                sums.0 += cost(*digits);
            }
            let rows: Vec<_> = (2..).zip(&listed).map(|(line, (day, model, tokens, digits))| UsageRow {
                line,
                key: key(*day, &model.to_string()),
                figures: figures(*tokens, &cost(*digits).to_string()),
            }).collect();
            sums.1 += listed.iter().map(|(.., digits)| cost(*digits)).sum::<Decimal>();
            let measures = BTreeSet::from([Measure::InputTokens, Measure::Cost]);
            let report = usage.compare(rows.clone(), measures, cost(tolerance)).unwrap();
            let mut lines: Vec<_> = report.matches.iter().flat_map(|found| found.lines.clone()).collect();
            lines.sort_unstable();
            prop_assert_eq!(lines, rows.iter().map(|row| row.line).collect::<Vec<_>>());
            let keys: BTreeSet<_> = report.matches.iter().map(|found| found.key.clone()).collect();
            prop_assert_eq!(keys.len(), report.matches.len());
            let cost_of = |figures: &Figures| figures.get(Measure::Cost);
            prop_assert_eq!((cost_of(&report.total.recorded), cost_of(&report.total.listed)), sums);
            for found in &report.matches {
                let is_equal = found.recorded.get(Measure::InputTokens) == found.listed.get(Measure::InputTokens)
                    && (cost_of(&found.recorded) - cost_of(&found.listed)).abs() <= cost(tolerance);
                prop_assert_eq!(found.class == Class::Matched, is_equal);
            }
        }
    }
}
