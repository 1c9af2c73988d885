//! The bound of a fee covers every fee of a call within its size, to the last digit: each tier of a fee is rounded for
//! itself. What a call is billed by its characters is known exactly before it.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use farthing_core::ids::MeterId;
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Terms, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::{ModelPrice, TokenRates};
use farthing_core::money::Amount;
use farthing_core::pricing::{
    Bound, InputLimit, SizeHint, fee, max_fee, max_model_cost, max_model_cost_by_model, model_cost,
};
use farthing_core::usage::{Split, Usage};
use proptest::prelude::*;
use rust_decimal::Decimal;
use ulid::Ulid;

fn spoken(characters: u64) -> (SizeHint, Usage) {
    let size = SizeHint { input_bytes: 4_000, input_characters: Some(characters), ..SizeHint::default() };
    (size, Usage { characters: Split { input: characters, output: 0 }, ..Usage::default() })
}

#[test]
fn speech_at_a_price_per_character_is_bounded_by_its_exact_price() {
    let amount = |text: &str| Some(text.parse::<Amount>().unwrap());
    let (size, usage) = spoken(1_234);
    let price =
        ModelPrice { per_character: amount("0.00003"), per_request: amount("0.01"), ..ModelPrice::default() };
    let cost = model_cost(&price, &usage).unwrap().total;
    assert_eq!(Some(cost), amount("0.04702"));
    // What its body holds beside the text does not matter.
    for input_limit in [InputLimit::Body, InputLimit::Tokens(9), InputLimit::Unknown] {
        let size = SizeHint { input_limit, ..size };
        assert_eq!(max_model_cost(&price, size), Bound::Exact(cost));
        assert_eq!(max_model_cost_by_model(&price, size), Bound::Exact(cost));
    }
    // Without its characters, or with a price for what is not known, there is no bound.
    let unread = SizeHint { input_characters: None, ..size };
    let output = TokenRates { output_per_1m: amount("1"), ..TokenRates::default() };
    for (price, size) in [
        (price.clone(), unread),
        (ModelPrice { per_second: amount("0.1"), ..price.clone() }, size),
        (ModelPrice { rates: output, ..price.clone() }, size),
    ] {
        assert_eq!(max_model_cost(&price, size), Bound::Unknown, "{price:?} {size:?}");
        assert_eq!(max_model_cost_by_model(&price, size), Bound::Unknown, "{price:?} {size:?}");
    }
    // A price per token beside it is a part of the bound.
    let input = TokenRates { input_per_1m: amount("1"), ..TokenRates::default() };
    let both = ModelPrice { rates: input, ..price };
    assert_eq!(max_model_cost(&both, size), Bound::AtMost(amount("0.05102").unwrap()));
}

fn terms(rate_type: RateType, tier_type: TierType, starts: &[u32], rate: Amount) -> Terms {
    let tiers = starts.iter().map(|start| Tier { start: (*start).into(), rate }).collect();
    let price = Price {
        rate_type,
        tier_type,
        tiers: Tiers::new(tiers).unwrap(),
        token_basis: TokenBasis::InputOutput,
        base_cost_payer: Payer::Wallet,
        service_charge_payer: Payer::Wallet,
        on_disconnect: OnDisconnect::Complete,
        max_fee: None,
    };
    let meter_id = MeterId::new(Ulid::from_parts(1, 1));
    Terms { meter_id, price, service_charge_rate: Decimal::ZERO }
}

proptest! {
    #![proptest_config(ProptestConfig::with_source_file(file!()))]

    #[test]
    fn a_bound_covers_a_fee_that_is_rounded_in_every_tier(
        (widths, digits) in (proptest::collection::vec(1_u32..9, 1..12), 1_i64..100_000_000_000),
        (before, input, output) in (0_u32..20, 0_u64..40, 1_u64..40),
        cost_digits in 1_i64..100_000_000_000, is_percentage: bool, is_exact: bool,
    ) {
        let starts: Vec<u32> = widths.iter().scan(0, |at, width| { let start = *at; *at += width; Some(start) }).collect();
        let amount = |digits: i64| Decimal::new(digits, 10).to_string().parse::<Amount>().unwrap();
        let rate_type = if is_percentage { RateType::Percentage } else { RateType::Fixed };
        let terms = terms(rate_type, TierType::Tokens1m, &starts, amount(digits));
        let size = SizeHint { input_bytes: input, max_output_tokens: Some(output), ..SizeHint::default() };
        let cost = amount(cost_digits);
        let known = if is_exact { Bound::Exact(cost) } else { Bound::AtMost(cost) };
        // The call that uses all that its size allows.
        let charged = fee(&terms.price, before.into(), (input + output).into(), cost).unwrap().amount;
        match max_fee(&terms, before.into(), size, known).unwrap() {
            Bound::Exact(bound) => prop_assert_eq!(bound, charged),
            Bound::AtMost(bound) => prop_assert!(bound >= charged, "{} of {}", charged, bound),
            Bound::Unknown => prop_assert!(false, "the size is known"),
        }
    }

    #[test]
    fn a_fee_per_character_of_speech_is_bounded_before_the_call(
        (widths, digits) in (proptest::collection::vec(1_u32..9, 1..6), 1_i64..100_000_000_000),
        (before, characters) in (0_u32..40, 0_u64..60), is_output: bool,
    ) {
        let starts: Vec<u32> = widths.iter().scan(0, |at, width| { let start = *at; *at += width; Some(start) }).collect();
        let rate = Decimal::new(digits, 10).to_string().parse::<Amount>().unwrap();
        let mut terms = terms(RateType::Fixed, TierType::Characters1m, &starts, rate);
        if is_output {
            terms.price.token_basis = TokenBasis::Output;
        }
        let (size, usage) = spoken(characters);
        let units = usage.units(terms.price.tier_type, terms.price.token_basis);
        let charged = fee(&terms.price, before.into(), units, Amount::ZERO).unwrap().amount;
        let is_in_last_tier = starts.last().is_some_and(|start| *start <= before);
        match max_fee(&terms, before.into(), size, Bound::Unknown).unwrap() {
            Bound::Exact(bound) => {
                prop_assert!(is_in_last_tier);
                prop_assert_eq!(bound, charged);
            }
            Bound::AtMost(bound) => {
                prop_assert!(!is_in_last_tier);
                prop_assert!(bound >= charged, "{} of {}", charged, bound);
            }
            Bound::Unknown => prop_assert!(false, "the characters are known"),
        }
        let unread = SizeHint { input_characters: None, ..size };
        prop_assert_eq!(max_fee(&terms, before.into(), unread, Bound::Unknown).unwrap(), Bound::Unknown);
    }
}
