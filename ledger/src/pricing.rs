//! Pricing: pure functions from usage and terms to fees and holds (completion.md sections 3 and 4). Each line is
//! rounded once; totals are sums of lines.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::meter::{Terms, Tier, TierType, Tiers};
use crate::money::{Amount, Error, round_line};

/// One line of a fee: the units that fell into one tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeeLine {
    /// The tier.
    pub tier: Tier,
    /// Units (tokens, characters, seconds, calls) of the call inside the tier.
    pub units: Decimal,
    /// What they cost.
    pub cost: Amount,
}

/// What a call costs by its meter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fee {
    /// The sum of the lines.
    pub amount: Amount,
    /// One line per tier touched; none when no unit was counted.
    pub breakdown: Vec<FeeLine>,
}

/// The fee of `units` counted from `position` over graduated tiers.
pub fn graduated_fee(
    tier_type: TierType,
    tiers: &Tiers,
    position: Decimal,
    units: Decimal,
) -> Result<Fee, Error> {
    let end = position.checked_add(units).ok_or(Error::OutOfRange)?;
    let mut breakdown = Vec::with_capacity(1);
    for (tier, tier_end) in tiers.spans() {
        let from = tier.start.max(position);
        let to = tier_end.map_or(end, |tier_end| tier_end.min(end));
        if to <= from {
            continue;
        }
        let inside = to.checked_sub(from).ok_or(Error::OutOfRange)?.normalize();
        let cost = line_cost(tier_type, tier.rate, inside)?;
        breakdown.push(FeeLine { tier: tier.clone(), units: inside, cost });
    }
    let amount = Amount::sum(breakdown.iter().map(|line| line.cost))?;
    Ok(Fee { amount, breakdown })
}

fn line_cost(tier_type: TierType, rate: Amount, units: Decimal) -> Result<Amount, Error> {
    let exact = rate.decimal().checked_mul(units).ok_or(Error::OutOfRange)?;
    round_line(exact.checked_div(tier_type.units_per_rate()).ok_or(Error::OutOfRange)?)
}

/// The service charge on a fee, one line of its own.
pub fn service_charge(fee: Amount, rate: Decimal) -> Result<Amount, Error> {
    round_line(fee.decimal().checked_mul(rate).ok_or(Error::OutOfRange)?)
}

/// What may be known of a call's size before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SizeHint {
    /// The output limit that the body names, in tokens.
    pub max_output_tokens: Option<u64>,
    /// Bytes of the body, which bound its tokens and characters from above.
    pub input_bytes: u64,
}

/// The dearest fee a call could come to from `position` on, or none where its size has no upper bound.
///
/// Exact for `requests`; for tokens an upper bound by the body's output limit; characters and seconds of an
/// answer are not bounded by anything a caller sends.
pub fn dearest_fee(terms: &Terms, position: Decimal, hint: SizeHint) -> Result<Option<Amount>, Error> {
    let price = &terms.price;
    let rate = price.tiers.dearest_rate_from(position);
    let units = match price.tier_type {
        TierType::Requests => Decimal::ONE,
        TierType::Tokens1m => match hint.max_output_tokens {
            Some(output) => Decimal::from(output) + Decimal::from(hint.input_bytes),
            None => return Ok(None),
        },
        TierType::Characters1m | TierType::Minutes => return Ok(None),
    };
    line_cost(price.tier_type, rate, units).map(Some)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tiers(steps: &[(u64, &str)]) -> Tiers {
        let tier = |(start, rate): &(u64, &str)| Tier { start: (*start).into(), rate: rate.parse().unwrap() };
        Tiers::new(steps.iter().map(tier).collect()).unwrap()
    }

    /// The figures of the specification's `oracles.json`, which this file keeps a copy of.
    #[test]
    fn graduated_tiers_match_the_published_figures() {
        let oracles: serde_json::Value = serde_json::from_str(include_str!("../tests/oracles.json")).unwrap();
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
    fn the_dearest_rate_looks_only_forward() {
        let tiers = tiers(&[(0, "5"), (10, "1"), (20, "3")]);
        for (position, rate) in [(0, "5"), (9, "5"), (10, "3"), (25, "3")] {
            assert_eq!(tiers.dearest_rate_from(position.into()), rate.parse().unwrap());
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
            prop_assert!(tiers.dearest_rate_from(Decimal::ZERO) >= fee.amount);
        }
    }
}
