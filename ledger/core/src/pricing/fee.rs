//! The fee of a call by its meter, and the service charge on it.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::meter::{Price, RateType, Tier, TierType, Tiers};
use crate::money::{Amount, Error, round_line};

/// One line of a fee: the units in one tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeeLine {
    /// The tier.
    pub tier: Tier,
    /// Units (tokens, characters, seconds, calls) of the call inside the tier.
    pub units: Decimal,
    /// The fee for the units.
    pub cost: Amount,
}

/// The fee of a call by its meter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fee {
    /// The sum of the lines.
    pub amount: Amount,
    /// One line per tier with units; empty if no unit was counted.
    pub breakdown: Vec<FeeLine>,
}

/// The fee of a call of `units` with the provider's cost `cost`, after a tier usage of `tier_usage`.
pub fn fee(price: &Price, tier_usage: Decimal, units: Decimal, cost: Amount) -> Result<Fee, Error> {
    match price.rate_type {
        RateType::Fixed => graduated_fee(price.tier_type, &price.tiers, tier_usage, units),
        RateType::Percentage => percentage_fee(&price.tiers, tier_usage, units, cost),
    }
}

/// The fee of `units` over graduated tiers, after a tier usage of `tier_usage`.
pub fn graduated_fee(
    tier_type: TierType,
    tiers: &Tiers,
    tier_usage: Decimal,
    units: Decimal,
) -> Result<Fee, Error> {
    let line = |(tier, units): (&Tier, Decimal)| {
        Ok(FeeLine { tier: tier.clone(), units, cost: line_cost(tier_type, tier.rate, units)? })
    };
    Fee::of(spread(tiers, tier_usage, units)?.into_iter().map(line).collect::<Result<_, Error>>()?)
}

/// The fee in percent points of `cost`, which is split over the tiers in proportion to the units. A cost without units
/// is charged in the tier at `tier_usage`, so that it is not lost.
pub fn percentage_fee(
    tiers: &Tiers,
    tier_usage: Decimal,
    units: Decimal,
    cost: Amount,
) -> Result<Fee, Error> {
    let mut spread = spread(tiers, tier_usage, units)?;
    if spread.is_empty() && !cost.is_zero() {
        spread.extend(tiers.at(tier_usage).map(|tier| (tier, Decimal::ZERO)));
    }
    let line = |(tier, inside): (&Tier, Decimal)| {
        let whole = tier.rate.decimal().checked_mul(cost.decimal()).ok_or(Error::OutOfRange)?;
        let part = if inside == units {
            whole
        } else {
            let parts = whole.checked_mul(inside).ok_or(Error::OutOfRange)?;
            parts.checked_div(units).ok_or(Error::OutOfRange)?
        };
        let cost = round_line(part.checked_div(Decimal::ONE_HUNDRED).ok_or(Error::OutOfRange)?)?;
        Ok(FeeLine { tier: tier.clone(), units: inside, cost })
    };
    Fee::of(spread.into_iter().map(line).collect::<Result<_, Error>>()?)
}

impl Fee {
    fn of(breakdown: Vec<FeeLine>) -> Result<Self, Error> {
        Ok(Self { amount: Amount::sum(breakdown.iter().map(|line| line.cost))?, breakdown })
    }
}

/// The units of a call after `tier_usage`, by tier; tiers without units are left out.
fn spread(tiers: &Tiers, tier_usage: Decimal, units: Decimal) -> Result<Vec<(&Tier, Decimal)>, Error> {
    let end = tier_usage.checked_add(units).ok_or(Error::OutOfRange)?;
    let mut spread = Vec::with_capacity(1);
    for (tier, tier_end) in tiers.spans() {
        let from = tier.start.max(tier_usage);
        let to = tier_end.map_or(end, |tier_end| tier_end.min(end));
        if to > from {
            spread.push((tier, to.checked_sub(from).ok_or(Error::OutOfRange)?.normalize()));
        }
    }
    Ok(spread)
}

pub(super) fn line_cost(tier_type: TierType, rate: Amount, units: Decimal) -> Result<Amount, Error> {
    let exact = rate.decimal().checked_mul(units).ok_or(Error::OutOfRange)?;
    round_line(exact.checked_div(tier_type.units_per_rate()).ok_or(Error::OutOfRange)?)
}

/// The service charge on a fee, rounded as one line.
pub fn service_charge(fee: Amount, rate: Decimal) -> Result<Amount, Error> {
    round_line(fee.decimal().checked_mul(rate).ok_or(Error::OutOfRange)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tiers(steps: &[(u64, &str)]) -> Tiers {
        let tier = |(start, rate): &(u64, &str)| Tier { start: (*start).into(), rate: rate.parse().unwrap() };
        Tiers::new(steps.iter().map(tier).collect()).unwrap()
    }

    /// The figures of the specification's `oracles.json`, of which `tests/oracles.json` is a copy.
    #[test]
    fn graduated_tiers_match_the_published_figures() {
        let oracles: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/oracles.json")).unwrap();
        let cases = oracles["graduated_tiers"].as_array().unwrap();
        assert_eq!(cases.len(), 5);
        for case in cases {
            let tier_type: TierType = serde_json::from_value(case["type"].clone()).unwrap();
            let steps = case["tiers"].as_array().unwrap().iter().map(|step| Tier {
                start: step[0].as_str().unwrap().parse().unwrap(),
                rate: step[1].as_str().unwrap().parse().unwrap(),
            });
            let tiers = Tiers::new(steps.collect()).unwrap();
            let number = |name: &str| Decimal::from(case[name].as_u64().unwrap());
            let fee = graduated_fee(tier_type, &tiers, number("position"), number("units")).unwrap();
            assert_eq!(fee.amount.to_string(), case["fee"].as_str().unwrap(), "{case}");
        }
    }

    #[test]
    fn service_charge_matches_the_published_figure() {
        let fee = "0.0058100000".parse().unwrap();
        let charge = service_charge(fee, Decimal::from_str_exact("0.019").unwrap()).unwrap();
        assert_eq!(charge.to_string(), "0.0001103900");
    }

    #[test]
    fn percentages_match_the_published_figures() {
        let oracles: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/oracles.json")).unwrap();
        let cases = oracles["percentage"].as_array().unwrap();
        assert_eq!(cases.len(), 1);
        for case in cases {
            let steps = case["tiers"].as_array().unwrap().iter().map(|step| Tier {
                start: step[0].as_str().unwrap().parse().unwrap(),
                rate: step[1].as_str().unwrap().parse().unwrap(),
            });
            let tiers = Tiers::new(steps.collect()).unwrap();
            let cost = case["provider_cost"].as_str().unwrap().parse().unwrap();
            for units in [0_u64, 1, 7_000] {
                let fee = percentage_fee(&tiers, Decimal::ZERO, units.into(), cost).unwrap();
                assert_eq!(fee.amount.to_string(), case["fee"].as_str().unwrap(), "{units} units");
                let charge = service_charge(fee.amount, Decimal::from_str_exact("0.019").unwrap()).unwrap();
                assert_eq!(charge.to_string(), case["service_charge_at_0.019"].as_str().unwrap());
            }
        }
    }

    #[test]
    fn a_percentage_over_several_tiers_splits_the_cost_by_the_units() {
        let tiers = tiers(&[(0, "10"), (100, "5"), (300, "0")]);
        let fee = percentage_fee(&tiers, 50.into(), 400.into(), "4".parse().unwrap()).unwrap();
        let lines: Vec<_> =
            fee.breakdown.iter().map(|line| (line.units.to_string(), line.cost.to_string())).collect();
        // 50, 200 and 150 of the 400 units: 0.5, 2 and 1.5 of the 4 dollars.
        let expected = [("50", "0.0500000000"), ("200", "0.1000000000"), ("150", "0.0000000000")];
        assert_eq!(lines, expected.map(|(units, cost)| (units.to_owned(), cost.to_owned())));
        assert_eq!(fee.amount.to_string(), "0.1500000000");
        let late = percentage_fee(&tiers, 100.into(), Decimal::ZERO, "4".parse().unwrap()).unwrap();
        assert_eq!(late.amount.to_string(), "0.2000000000", "a cost without a unit");
        assert_eq!(percentage_fee(&tiers, 5.into(), Decimal::ZERO, Amount::ZERO).unwrap(), Fee::default());
    }

    #[test]
    fn the_dearest_rate_looks_only_forward() {
        let tiers = tiers(&[(0, "5"), (10, "1"), (20, "3")]);
        for (position, rate) in [(0, "5"), (9, "5"), (10, "3"), (25, "3")] {
            assert_eq!(tiers.highest_rate_from(position.into()), rate.parse().unwrap());
        }
    }

    proptest! {
        #[test]
        fn calls_in_a_row_cost_what_one_call_of_their_sum_costs(
            parts in proptest::collection::vec(0_u64..5_000, 1..20), start in 0_u64..3_000,
        ) {
            // Rates that divide evenly leave nothing to rounding, so the sums must agree exactly.
            let tiers = tiers(&[(0, "5"), (1_000, "3"), (10_000, "1")]);
            let whole = graduated_fee(
                TierType::Tokens1m, &tiers, start.into(), parts.iter().sum::<u64>().into()).unwrap();
            let mut position = Decimal::from(start);
            let mut sum = Amount::ZERO;
            for part in parts {
                let fee = graduated_fee(TierType::Tokens1m, &tiers, position, part.into()).unwrap();
                let units: Decimal = fee.breakdown.iter().map(|line| line.units).sum();
                prop_assert_eq!(units, Decimal::from(part));
                position += Decimal::from(part);
                sum = sum.plus(fee.amount).unwrap();
            }
            prop_assert_eq!(sum, whole.amount);
        }

        #[test]
        fn a_requests_hold_covers_the_fee_at_any_later_position(later in 0_u64..40, rates in [0_u32..9, 0..9, 0..9]) {
            let [a, b, c] = rates.map(|rate| rate.to_string());
            let tiers = tiers(&[(0, &a), (10, &b), (20, &c)]);
            let fee = graduated_fee(TierType::Requests, &tiers, later.into(), Decimal::ONE).unwrap();
            prop_assert!(tiers.highest_rate_from(Decimal::ZERO) >= fee.amount);
        }
    }
}
