//! Random events of a year.

use proptest::prelude::*;

/// A random step of a year. Numbers select things by their order, modulo their count.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Plan {
        cents: u32,
        credit: u32,
        interval: u8,
        rollovers: u8,
        only_first_meter: bool,
        bundle: u32,
    },
    ChangePlan {
        plan: u8,
        credit: u32,
        rollover: bool,
    },
    DeletePlan {
        plan: u8,
    },
    Subscribe {
        customer: u8,
        plan: u8,
    },
    Downgrade {
        customer: u8,
        plan: u8,
    },
    Cancel {
        customer: u8,
    },
    AutoTopUp {
        customer: u8,
        on: bool,
    },
    Autopay {
        customer: u8,
        cents: Option<u32>,
    },
    BuyBundle {
        customer: u8,
    },
    Fund {
        customer: u8,
        cents: u32,
    },
    Call {
        customer: u8,
        meter: u8,
        output_limit: u32,
    },
    Settle {
        call: u8,
        tokens: Option<u32>,
    },
    Pay {
        payment: u8,
        accepts: bool,
    },
    DeleteCustomer {
        customer: u8,
    },
    PassTime {
        hours: u32,
        by_test_clock: bool,
    },
    Schedule,
    /// For four days, every payment is declined.
    HardTimes,
    Forget,
}

pub(super) fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    let cents = 0_u32..3_000;
    prop_oneof![
        1 => (prop_oneof![Just(0), cents.clone()], 0_u32..100, 0_u8..4, 0_u8..4, any::<bool>(), 0_u32..500)
            .prop_map(|(cents, percent, interval, rollovers, only_first_meter, bundle)| {
                let credit = if cents == 0 { percent * 10 } else { cents * percent / 100 };
                H::Plan { cents, credit, interval, rollovers, only_first_meter, bundle }
            }),
        1 => (any::<u8>(), 0_u32..500, any::<bool>())
            .prop_map(|(plan, credit, rollover)| H::ChangePlan { plan, credit, rollover }),
        1 => any::<u8>().prop_map(|plan| H::DeletePlan { plan }),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(customer, plan)| H::Subscribe { customer, plan }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(customer, plan)| H::Downgrade { customer, plan }),
        1 => any::<u8>().prop_map(|customer| H::Cancel { customer }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(customer, on)| H::AutoTopUp { customer, on }),
        1 => (any::<u8>(), proptest::option::of(100_u32..1_000))
            .prop_map(|(customer, cents)| H::Autopay { customer, cents }),
        2 => any::<u8>().prop_map(|customer| H::BuyBundle { customer }),
        2 => (any::<u8>(), 1_u32..2_000).prop_map(|(customer, cents)| H::Fund { customer, cents }),
        8 => (any::<u8>(), any::<u8>(), 0_u32..2_000_000)
            .prop_map(|(customer, meter, output_limit)| H::Call { customer, meter, output_limit }),
        8 => (any::<u8>(), proptest::option::weighted(0.9, 0_u32..3_000_000))
            .prop_map(|(call, tokens)| H::Settle { call, tokens }),
        6 => (any::<u8>(), proptest::bool::weighted(0.8)).prop_map(|(payment, accepts)| H::Pay { payment, accepts }),
        1 => any::<u8>().prop_map(|customer| H::DeleteCustomer { customer }),
        5 => (0_u32..1_000, any::<bool>())
            .prop_map(|(hours, by_test_clock)| H::PassTime { hours, by_test_clock }),
        5 => Just(H::Schedule),
        1 => Just(H::HardTimes),
        1 => Just(H::Forget),
    ]
}
