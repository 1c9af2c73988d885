//! The bound of a fee covers every fee of a call within its size, to the last digit: each tier of a fee is rounded for
//! itself.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use farthing_core::ids::MeterId;
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Terms, Tier, TierType, Tiers, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::pricing::{Bound, SizeHint, fee, max_fee};
use proptest::prelude::*;
use rust_decimal::Decimal;
use ulid::Ulid;

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
}
