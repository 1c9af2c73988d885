//! The cost of a usage by the provider's list price.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::model_price::ModelPrice;
use crate::money::{Amount, Error, round_line};
use crate::usage::Usage;

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
pub(super) struct Line {
    dollars: Decimal,
    millionths: Decimal,
}

impl Line {
    pub(super) fn tokens(self, count: u64, rate: Amount) -> Result<Self, Error> {
        let more = rate.decimal().checked_mul(count.into()).ok_or(Error::OutOfRange)?;
        Ok(Self { millionths: self.millionths.checked_add(more).ok_or(Error::OutOfRange)?, ..self })
    }

    pub(super) fn units(self, count: Decimal, rate: Option<Amount>) -> Result<Self, Error> {
        let more = rate.unwrap_or_default().decimal().checked_mul(count).ok_or(Error::OutOfRange)?;
        Ok(Self { dollars: self.dollars.checked_add(more).ok_or(Error::OutOfRange)?, ..self })
    }

    pub(super) fn rounded(self) -> Result<Amount, Error> {
        let tokens = self.millionths.checked_div(TOKENS_PER_RATE.into()).ok_or(Error::OutOfRange)?;
        round_line(tokens.checked_add(self.dollars).ok_or(Error::OutOfRange)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_price::{Above, TokenRates};
    use crate::usage::{Cached, Split};

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
        let oracles: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/oracles.json")).unwrap();
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
}
