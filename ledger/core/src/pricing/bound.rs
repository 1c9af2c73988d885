//! Upper bounds of costs and fees, from what is known of a call before it is made. Holds are made of them.

use rust_decimal::Decimal;

use super::fee::line_cost;
use super::model_cost::Line;
use crate::meter::{Price, RateType, Terms, TierType, Tiers};
use crate::model_price::ModelPrice;
use crate::money::{Amount, Error, round_line};
use crate::size_hint::SizeHint;
use crate::usage::{Split, Usage};

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
    use crate::pricing::model_cost;
    use crate::size_hint::InputLimit;
    use crate::usage::Cached;

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

    proptest! {
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
    }
}
