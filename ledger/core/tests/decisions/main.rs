//! Random sequences of commands through `decide` and `evolve`. Every invariant of money holds at every step, by books
//! kept here from the facts alone.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod actions;
mod books;
mod key_books;
mod recurring;
mod shop;
mod till;
mod years;

use proptest::prelude::*;

use self::actions::{Action, action};
use self::shop::Shop;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_commands_keeps_every_invariant(
        actions in proptest::collection::vec(action(), 1..120),
    ) {
        let mut shop = Shop::open();
        for action in actions {
            shop.act(&action);
            shop.check();
        }
        shop.check_a_fold_from_nothing();
    }

    #[test]
    fn concurrent_calls_on_a_fixed_fee_admit_exactly_what_the_wallet_covers(
        cents in 0_u32..600, fee_cents in 1_u32..40, calls in 1_u32..60,
    ) {
        let mut shop = Shop::open();
        let admitted = shop.open_at_a_fixed_fee(cents, fee_cents, calls);
        prop_assert_eq!(admitted, calls.min(cents / fee_cents));
        shop.settle_everything();
        shop.check();
        prop_assert_eq!(shop.balance_of_first_customer_in_cents(), cents - admitted * fee_cents);
        shop.check_a_fold_from_nothing();
    }
}

#[test]
fn two_calls_in_flight_together_never_share_a_tier_position() {
    let mut shop = Shop::open();
    for action in [
        Action::Customer { merchant: 0, reference: None },
        Action::CreditCustomer { customer: 0, cents: 100_000 },
        Action::token_meter(),
        Action::billed_call(),
        Action::billed_call(),
        Action::reported(1, 700_000),
        Action::reported(0, 700_000),
    ] {
        shop.act(&action);
        shop.check();
    }
    // Tiers 0→5, 1,000,000→3 per million: 0.7×5, then 0.3×5 + 0.4×3.
    assert_eq!(shop.fees(), ["3.5000000000", "2.7000000000"]);
}
