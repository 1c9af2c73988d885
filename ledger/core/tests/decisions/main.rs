//! Random sequences of commands through `decide` and `evolve`. After every step, each invariant of money is checked
//! against separate books that are kept here from the facts alone.
//!
//! The seed of a failing case is added to `proptest-regressions/decisions.txt`. Commit that file: every run replays
//! its seeds before it makes new cases. `PROPTEST_CASES=20000` runs that many new cases of each property instead of
//! a few hundred.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod actions;
mod books;
mod key_books;
mod recurring;
mod shop;
mod till;
mod years;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use self::actions::{Action, action};
use self::shop::Shop;

/// The seeds of cases that once failed, replayed by every property of this binary.
const REGRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/decisions.txt");

/// Runs `cases` new cases, or as many as `PROPTEST_CASES` says, after the seeds of [`REGRESSIONS`].
fn config(cases: u32) -> ProptestConfig {
    let by_environment = ProptestConfig::default();
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if is_set { by_environment.cases } else { cases },
        // An integration test has no `src` folder that proptest's default could derive a path from.
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        ..by_environment
    }
}

proptest! {
    #![proptest_config(config(300))]

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
