//! Pricing: pure functions from usage, list prices and terms to costs, fees and bounds (completion.md sections 3 to
//! 5). Each line is rounded once; totals are sums of lines.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::meter::{Price, RateType, Terms, Tier, TierType, Tiers};
use crate::model_price::ModelPrice;
use crate::money::{Amount, Error, round_line};
pub use crate::size_hint::{InputLimit, SizeHint};
use crate::usage::{Split, Usage};

/// Tokens that a listed rate pays for.
const TOKENS_PER_RATE: u64 = 1_000_000;

/// The cost of a usage by the provider's list price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelCost {
    /// The cost of the input.
    pub input: Amount,
    /// The cost of the output.
    pub output: Amount,
    /// Their sum.
    pub total: Amount,
}

/// The cost of `usage` by the provider's list price: an input line and an output line. An error if the usage is
/// inconsistent (more cached tokens than input tokens) or the cost is out of range.
pub fn model_cost(price: &ModelPrice, usage: &Usage) -> Result<ModelCost, Error> {
    let rates = price.rates_of(usage);
    let cached = usage.cached;
    let plain =
        cached.read.checked_add(cached.write).and_then(|cached| usage.tokens.input.checked_sub(cached));
    let input = Line::default()
        .tokens(plain.ok_or(Error::OutOfRange)?, rates.input)?
        .tokens(cached.read, rates.cache_read)?
        .tokens(cached.write, rates.cache_write)?
        .units(Decimal::ONE, price.per_request)?
        .units(usage.characters.input.into(), price.per_character)?
        .units(usage.seconds.input, price.per_second)?
        .rounded()?;
    let output = Line::default()
        .tokens(usage.tokens.output, rates.output)?
        .units(usage.characters.output.into(), price.per_character)?
        .units(usage.seconds.output, price.per_second)?
        .rounded()?;
    Ok(ModelCost { input, output, total: input.plus(output)? })
}

/// A cost line before rounding: dollars, and separately the costs priced per million tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    dollars: Decimal,
    millionths: Decimal,
}

impl Line {
    fn tokens(self, count: u64, rate: Amount) -> Result<Self, Error> {
        let more = rate.decimal().checked_mul(count.into()).ok_or(Error::OutOfRange)?;
        Ok(Self { millionths: self.millionths.checked_add(more).ok_or(Error::OutOfRange)?, ..self })
    }

    fn units(self, count: Decimal, rate: Option<Amount>) -> Result<Self, Error> {
        let more = rate.unwrap_or_default().decimal().checked_mul(count).ok_or(Error::OutOfRange)?;
        Ok(Self { dollars: self.dollars.checked_add(more).ok_or(Error::OutOfRange)?, ..self })
    }

    fn rounded(self) -> Result<Amount, Error> {
        let tokens = self.millionths.checked_div(TOKENS_PER_RATE.into()).ok_or(Error::OutOfRange)?;
        round_line(tokens.checked_add(self.dollars).ok_or(Error::OutOfRange)?)
    }
}

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

fn line_cost(tier_type: TierType, rate: Amount, units: Decimal) -> Result<Amount, Error> {
    let exact = rate.decimal().checked_mul(units).ok_or(Error::OutOfRange)?;
    round_line(exact.checked_div(tier_type.units_per_rate()).ok_or(Error::OutOfRange)?)
}

/// The service charge on a fee, rounded as one line.
pub fn service_charge(fee: Amount, rate: Decimal) -> Result<Amount, Error> {
    round_line(fee.decimal().checked_mul(rate).ok_or(Error::OutOfRange)?)
}

/// A bound of a cost, as far as it is known before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Exactly this amount, independent of the provider's report.
    Exact(Amount),
    /// At most this amount.
    AtMost(Amount),
    /// No bound.
    Unknown,
}

impl Bound {
    /// An upper bound. If it is out of range it becomes [`Amount::MAX`], which is above every cap.
    fn at_most(bound: Result<Amount, Error>) -> Self {
        Self::AtMost(bound.unwrap_or(Amount::MAX))
    }
}

/// The maximum provider's cost of a call of this size: at its output limit and the highest rates, including those above
/// thresholds. Exact for a price per call, and for one per character if the call is billed by the characters of its input.
/// Nothing in another call limits the number of characters and seconds.
pub fn max_model_cost(price: &ModelPrice, hint: SizeHint) -> Bound {
    let is_exact = price.has_no_token_rates();
    let output = match hint.max_output_tokens {
        Some(output) => output,
        None if price.steps().any(|rates| !rates.output.is_zero()) => return Bound::Unknown,
        None => 0,
    };
    if price.is_by_second() || (price.is_by_character() && hint.input_characters.is_none()) {
        return Bound::Unknown;
    }
    let characters = hint.input_characters.unwrap_or_default();
    let input = price.steps().map(crate::model_price::CallRates::highest_input).max().unwrap_or_default();
    let highest_output = price.steps().map(|rates| rates.output).max().unwrap_or_default();
    let bound = Line::default()
        .tokens(hint.input_bytes, input)
        .and_then(|line| {
            line.units(Decimal::ONE, price.per_request)?.units(characters.into(), price.per_character)
        })
        .and_then(Line::rounded)
        .and_then(|input| input.plus(Line::default().tokens(output, highest_output)?.rounded()?));
    match bound {
        Ok(exact) if is_exact => Bound::Exact(exact),
        bound => Bound::at_most(bound),
    }
}

/// The maximum provider's cost of a call, at the model's own limits where its body sets none (completion.md section 10).
pub fn max_model_cost_by_model(price: &ModelPrice, hint: SizeHint) -> Bound {
    match (max_model_cost(price, hint), hint.by_model()) {
        (Bound::Exact(exact), _) => Bound::Exact(exact),
        (Bound::AtMost(_) | Bound::Unknown, Some(size)) => max_model_cost(price, size),
        (Bound::AtMost(_) | Bound::Unknown, None) => Bound::Unknown,
    }
}

/// The maximum fee of a call after `tier_usage`, if the provider's cost is within `cost`.
///
/// Exact for `requests`. For tokens, an upper bound from the output limit. For characters, known where the call is billed
/// by those of its input; exactly, where one tier is left. Unknown for seconds, because nothing in a call limits them. A
/// percentage fee is known as exactly as the cost, where one tier is left.
pub fn max_fee(terms: &Terms, tier_usage: Decimal, hint: SizeHint, cost: Bound) -> Result<Bound, Error> {
    let price = &terms.price;
    let rate = price.tiers.highest_rate_from(tier_usage);
    if rate.is_zero() {
        return Ok(Bound::Exact(Amount::ZERO));
    }
    match price.rate_type {
        RateType::Percentage => percentage_bound(price, tier_usage, cost),
        RateType::Fixed => match (price.tier_type, hint.max_output_tokens) {
            (TierType::Requests, _) => line_cost(price.tier_type, rate, Decimal::ONE).map(Bound::Exact),
            (TierType::Tokens1m, Some(output)) => {
                let units = Decimal::from(output) + Decimal::from(hint.input_bytes);
                let lines = rounded_lines(&price.tiers, tier_usage);
                Ok(Bound::at_most(line_cost(price.tier_type, rate, units).and_then(|fee| fee.plus(lines))))
            }
            (TierType::Characters1m, _) => Ok(characters_bound(price, tier_usage, hint)),
            (TierType::Tokens1m, None) | (TierType::Minutes, _) => Ok(Bound::Unknown),
        },
    }
}

fn characters_bound(price: &Price, tier_usage: Decimal, hint: SizeHint) -> Bound {
    let Some(input) = hint.input_characters else { return Bound::Unknown };
    let usage = Usage { characters: Split { input, output: 0 }, ..Usage::default() };
    let units = usage.units(price.tier_type, price.token_basis);
    let rate = price.tiers.highest_rate_from(tier_usage);
    let (fee, lines) = (line_cost(price.tier_type, rate, units), rounded_lines(&price.tiers, tier_usage));
    match fee {
        Ok(fee) if lines.is_zero() => Bound::Exact(fee),
        fee => Bound::at_most(fee.and_then(|fee| fee.plus(lines))),
    }
}

fn percentage_bound(price: &Price, tier_usage: Decimal, cost: Bound) -> Result<Bound, Error> {
    let rate = price.tiers.highest_rate_from(tier_usage);
    let percentage = |cost: Amount| {
        let exact = rate.decimal().checked_mul(cost.decimal()).ok_or(Error::OutOfRange)?;
        round_line(exact.checked_div(Decimal::ONE_HUNDRED).ok_or(Error::OutOfRange)?)
    };
    let lines = rounded_lines(&price.tiers, tier_usage);
    match cost {
        Bound::Exact(cost) if lines.is_zero() => percentage(cost).map(Bound::Exact),
        Bound::Exact(cost) | Bound::AtMost(cost) => {
            Ok(Bound::at_most(percentage(cost).and_then(|fee| fee.plus(lines))))
        }
        Bound::Unknown => Ok(Bound::Unknown),
    }
}

/// What rounding can add to a fee over the tiers from `tier_usage` on: a unit of the last digit for each line but one.
fn rounded_lines(tiers: &Tiers, tier_usage: Decimal) -> Amount {
    let left = tiers.spans().filter(|(_, end)| end.is_none_or(|end| end > tier_usage)).count();
    Amount::last_digits(u32::try_from(left.saturating_sub(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model_price::{Above, TokenRates};
    use crate::usage::Cached;

    fn tiers(steps: &[(u64, &str)]) -> Tiers {
        let tier = |(start, rate): &(u64, &str)| Tier { start: (*start).into(), rate: rate.parse().unwrap() };
        Tiers::new(steps.iter().map(tier).collect()).unwrap()
    }

    /// The figures of the specification's `oracles.json`, of which `tests/oracles.json` is a copy.
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

    fn amount_at(case: &serde_json::Value, name: &str) -> Option<Amount> {
        case.get(name).map(|text| text.as_str().unwrap().parse().unwrap())
    }

    fn rates(listed: &serde_json::Value) -> TokenRates {
        TokenRates {
            input_per_1m: amount_at(listed, "input"),
            output_per_1m: amount_at(listed, "output"),
            cache_read_per_1m: amount_at(listed, "cache_read"),
            cache_write_per_1m: amount_at(listed, "cache_write"),
        }
    }

    #[test]
    fn token_costs_match_the_published_figures() {
        let oracles: serde_json::Value = serde_json::from_str(include_str!("../tests/oracles.json")).unwrap();
        let cases = oracles["token_cost"].as_array().unwrap();
        assert_eq!(cases.len(), 5);
        for case in cases {
            let usage = &case["usage"];
            let count = |name: &str| usage.get(name).map_or(0, |count| count.as_u64().unwrap());
            let cached = Cached { read: count("cached"), write: count("cache_write") };
            // The input is given either with or without the cached tokens.
            let input = match usage.get("input_including_cached") {
                Some(input) => input.as_u64().unwrap(),
                None => count("input") + cached.read + cached.write,
            };
            let usage =
                Usage { tokens: Split { input, output: count("output") }, cached, ..Usage::default() };
            let price = match case.get("above_200k_per_1m") {
                Some(dearer) => ModelPrice {
                    rates: rates(&serde_json::json!({"input": "1.25", "output": "10"})),
                    above: vec![Above { input_tokens: 200_000, rates: rates(dearer) }],
                    ..ModelPrice::default()
                },
                None => ModelPrice { rates: rates(&case["per_1m"]), ..ModelPrice::default() },
            };
            let cost = model_cost(&price, &usage).unwrap();
            assert_eq!(cost.total.to_string(), case["cost"].as_str().unwrap(), "{case}");
        }
    }

    #[test]
    fn percentages_match_the_published_figures() {
        let oracles: serde_json::Value = serde_json::from_str(include_str!("../tests/oracles.json")).unwrap();
        let cases = oracles["percentage"].as_array().unwrap();
        assert_eq!(cases.len(), 1);
        for case in cases {
            let steps = case["tiers"].as_array().unwrap().iter().map(|step| Tier {
                start: step[0].as_str().unwrap().parse().unwrap(),
                rate: step[1].as_str().unwrap().parse().unwrap(),
            });
            let tiers = Tiers::new(steps.collect()).unwrap();
            let cost = amount_at(case, "provider_cost").unwrap();
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
    fn every_part_of_a_list_price_counts_once() {
        let text = r#"{"input_per_1m":"1","output_per_1m":"2","cache_read_per_1m":"0.1","per_request":"0.5",
            "per_character":"0.01","per_second":"0.001","above":[{"input_tokens":1000,"output_per_1m":"4"}]}"#;
        let price: ModelPrice = serde_json::from_str(text).unwrap();
        let usage = |input| Usage {
            tokens: Split { input, output: 500_000 },
            cached: Cached { read: 400, write: 100 },
            reasoning_tokens: 400_000,
            characters: Split { input: 3, output: 4 },
            seconds: Split { input: "1.5".parse().unwrap(), output: "2".parse().unwrap() },
        };
        // 500 plain and 100 written (at the input rate, because none is listed), 400 read; 0.5; 0.03; 0.0015.
        let cost = model_cost(&price, &usage(1_000)).unwrap();
        assert_eq!(cost.input.to_string(), "0.5321400000");
        assert_eq!(cost.output.to_string(), "1.0420000000");
        assert_eq!(cost.total.to_string(), "1.5741400000");
        // With one token more the whole call is at the higher rates; unlisted rates stay.
        let cost = model_cost(&price, &usage(1_001)).unwrap();
        assert_eq!(cost.input.to_string(), "0.5321410000");
        assert_eq!(cost.output.to_string(), "2.0420000000");
        assert_eq!(model_cost(&price, &usage(499)), Err(Error::OutOfRange), "more cached than sent");
    }

    #[test]
    fn a_price_per_request_is_known_before_the_call_and_lengths_never_are() {
        let price = |text: &str| serde_json::from_str::<ModelPrice>(text).unwrap();
        let hint =
            SizeHint { max_output_tokens: Some(1_000_000), input_bytes: 1_000_000, ..SizeHint::default() };
        let maximum = |text: &str, hint| max_model_cost(&price(text), hint);
        let amount = |text: &str| text.parse().unwrap();
        assert_eq!(maximum(r#"{"per_request":"0.25"}"#, SizeHint::default()), Bound::Exact(amount("0.25")));
        assert_eq!(maximum(r#"{"per_second":"0.25"}"#, hint), Bound::Unknown);
        let both = r#"{"input_per_1m":"1","output_per_1m":"2","cache_write_per_1m":"3"}"#;
        assert_eq!(maximum(both, hint), Bound::AtMost(amount("5")));
        assert_eq!(maximum(both, SizeHint { max_output_tokens: None, ..hint }), Bound::Unknown);
        let embedding = SizeHint { max_output_tokens: None, ..hint };
        assert_eq!(maximum(r#"{"input_per_1m":"1"}"#, embedding), Bound::AtMost(amount("1")));
        let endless =
            SizeHint { max_output_tokens: Some(u64::MAX), input_bytes: u64::MAX, ..SizeHint::default() };
        assert_eq!(maximum(both, endless), Bound::AtMost(Amount::MAX));
        // Without an output limit in the body, the model's own limits a call; without a known input, nothing does.
        let open = SizeHint { max_output_tokens: None, model_output_tokens: Some(2_000_000), ..hint };
        let by_model = |text: &str, hint| max_model_cost_by_model(&price(text), hint);
        assert_eq!(maximum(both, open), Bound::Unknown);
        assert_eq!(by_model(both, open), Bound::AtMost(amount("7")));
        assert_eq!(by_model(both, SizeHint { model_output_tokens: None, ..open }), Bound::Unknown);
        let unread = SizeHint { input_limit: InputLimit::Unknown, ..hint };
        assert_eq!(by_model(both, unread), Bound::Unknown);
        assert_eq!(by_model(r#"{"per_request":"0.25"}"#, unread), Bound::Exact(amount("0.25")));
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
        fn a_bound_covers_every_usage_within_its_size(
            cents in proptest::array::uniform8(0_u32..5_000), thresholds in [0_u64..3_000, 3_000..9_000],
            size in (0_u64..10_000, 0_u64..10_000), part in (0_u64..=100, 0_u64..=100, 0_u64..=50, 0_u64..=50),
        ) {
            let rate = |at: usize| Some(Decimal::new(cents[at].into(), 2).to_string().parse().unwrap());
            let price = ModelPrice {
                rates: TokenRates { input_per_1m: rate(0), output_per_1m: rate(1), cache_read_per_1m: rate(2),
                    cache_write_per_1m: rate(3) },
                above: vec![
                    Above { input_tokens: thresholds[0], rates: TokenRates { input_per_1m: rate(4),
                        output_per_1m: rate(5), ..TokenRates::default() } },
                    Above { input_tokens: thresholds[1], rates: TokenRates { output_per_1m: rate(6),
                        cache_read_per_1m: rate(7), ..TokenRates::default() } },
                ],
                ..ModelPrice::default()
            };
            let hint =
                SizeHint { input_bytes: size.0, max_output_tokens: Some(size.1), ..SizeHint::default() };
            let input = size.0 * part.0 / 100;
            let usage = Usage {
                tokens: Split { input, output: size.1 * part.1 / 100 },
                cached: Cached { read: input * part.2 / 100, write: input * part.3 / 100 },
                ..Usage::default()
            };
            let cost = model_cost(&price, &usage).unwrap().total;
            match max_model_cost(&price, hint) {
                Bound::Exact(exact) => prop_assert_eq!(cost, exact),
                Bound::AtMost(bound) => prop_assert!(cost <= bound),
                Bound::Unknown => prop_assert!(false, "the size is known"),
            }
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
