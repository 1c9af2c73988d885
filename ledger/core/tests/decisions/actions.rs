//! Random actions in a shop, and the size and the end of random calls.

use farthing_core::command::{Completeness, Edit};
use farthing_core::event::ProviderKeyType;
use farthing_core::meter::TierType;
use farthing_core::model_price::{Above, ListPrice, ModelPrice, TokenRates};
use farthing_core::money::Amount;
use farthing_core::usage::{Cached, MAX_COUNT, Split, Usage};
use proptest::prelude::*;
use rust_decimal::Decimal;

/// The shape of a call that names its customer and its meter by id and is billed as usual.
pub(crate) const USUAL_BY_ID: u8 = 0b0010_1010;

/// A random action. Numbers select things by their order, modulo their count.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Customer { merchant: u8, reference: Option<u8> },
    Meter { merchant: u8, slug: Option<u8>, tier_type: TierType, steps: Vec<(u32, u32)>, terms: u8 },
    UpdateCustomer { merchant: u8, customer: u8, reference: Edit<u8> },
    DeleteCustomer { merchant: u8, customer: u8 },
    UpdateMeter { merchant: u8, meter: u8, rate: u32 },
    DeleteMeter { merchant: u8, meter: u8 },
    SpendKey { merchant: u8, customer: Option<u8>, limits: u16 },
    Rotate { merchant: u8, key: u8 },
    IssueKey { merchant: u8 },
    RevokeKey { revoker: Option<u8>, key: u8 },
    UpdateKey { merchant: u8, key: u8, limits: u16 },
    DeleteKey { merchant: u8, key: u8 },
    OpenOnKey { key: u8, model: u8, asked: Asked, model_limit: Option<u32> },
    CreditCustomer { customer: u8, cents: u32 },
    CreditMerchant { merchant: u8, cents: u32 },
    Open { merchant: u8, customer: Option<u8>, meter: Option<u8>, shape: u8, asked: Asked },
    Reopen { request: u8 },
    Settle { request: u8, how: Ended },
    Report { merchant: u8, id: u8, customer: Option<u8>, meter: Option<u8>, shape: u8, how: Ended },
    Wait { hours: u16 },
    Forget,
}

/// The provider, the price and the size of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) key: ProviderKeyType,
    pub(crate) list_price: ListPrice,
    pub(crate) output_limit: Option<u32>,
}

impl Asked {
    /// Provider `other`, which charges nothing.
    pub(crate) const OTHER: Self =
        Self { key: ProviderKeyType::Unmanaged, list_price: ListPrice::Nothing, output_limit: None };
}

fn asked() -> impl Strategy<Value = Asked> {
    // Rates are in cents per million tokens; the second set is for long calls.
    let rates = || {
        proptest::array::uniform4(proptest::option::weighted(0.8, 0_u32..2_000)).prop_map(
            |[input, output, read, write]| {
                let rate = |cents: Option<u32>| cents.map(cents_to_amount);
                TokenRates {
                    input_per_1m: rate(input),
                    output_per_1m: rate(output),
                    cache_read_per_1m: rate(read),
                    cache_write_per_1m: rate(write),
                }
            },
        )
    };
    let above = (1_u64..2_000_000, rates()).prop_map(|(input_tokens, rates)| Above { input_tokens, rates });
    let extra = || proptest::option::weighted(0.2, (0_u32..20).prop_map(cents_to_amount));
    let listed = (rates(), proptest::collection::vec(above, 0..3), extra(), extra(), extra()).prop_map(
        |(rates, above, per_request, per_character, per_second)| {
            let price = ModelPrice { rates, per_request, per_character, per_second, above, file: None };
            ListPrice::Listed(price)
        },
    );
    let key = prop_oneof![3 => Just(ProviderKeyType::Managed), 1 => Just(ProviderKeyType::Unmanaged)];
    let list_price = prop_oneof![6 => listed, 1 => Just(ListPrice::Unlisted), 1 => Just(ListPrice::Nothing)];
    let other = Just((ProviderKeyType::Unmanaged, ListPrice::Nothing));
    let limit = proptest::option::of(0_u32..100_000);
    (prop_oneof![1 => other, 2 => (key, list_price)], limit)
        .prop_map(|((key, list_price), output_limit)| Asked { key, list_price, output_limit })
}

pub(crate) fn cents_to_amount(cents: u32) -> Amount {
    Decimal::new(cents.into(), 2).to_string().parse().unwrap()
}

/// The end of a call.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    Reported { usage: Usage, ending: Completeness },
    Silent,
    Unread,
    Left { usage: Option<Usage> },
    Failed,
}

impl Action {
    /// Tokens at 5 and, from 1,000,000 on, 3 per million.
    pub(crate) fn token_meter() -> Self {
        let steps = vec![(0, 500_000), (1_000_000, 300_000)];
        Self::Meter { merchant: 0, slug: None, tier_type: TierType::Tokens1m, steps, terms: 0 }
    }

    /// A call of the first customer on the first meter.
    pub(crate) fn billed_call() -> Self {
        let (shape, asked) = (USUAL_BY_ID, Asked::OTHER);
        Self::Open { merchant: 0, customer: Some(0), meter: Some(0), shape, asked }
    }

    /// A complete response that reports `tokens`.
    pub(crate) fn reported(request: u8, tokens: u64) -> Self {
        let usage = Usage { tokens: Split { input: tokens, output: 0 }, ..Usage::default() };
        Self::Settle { request, how: Ended::Reported { usage, ending: Completeness::Whole } }
    }
}

fn ended() -> impl Strategy<Value = Ended> {
    let count = prop_oneof![8 => 0_u64..3_000_000, 1 => Just(0), 1 => Just(MAX_COUNT)];
    let usage = (count.clone(), count.clone(), count, 0_u32..100_000).prop_map(
        |(input, output, characters, tenths)| Usage {
            tokens: Split { input, output },
            cached: Cached { read: input / 3, write: input / 7 },
            reasoning_tokens: output / 2,
            characters: Split { input: characters, output: input },
            seconds: Split {
                input: Decimal::new(tenths.into(), 1),
                output: Decimal::new(output.min(9_999).cast_signed(), 2),
            },
        },
    );
    let ending = prop_oneof![Just(Completeness::Whole), Just(Completeness::Partial)];
    prop_oneof![
        6 => (usage.clone(), ending).prop_map(|(usage, ending)| Ended::Reported { usage, ending }),
        1 => Just(Ended::Silent),
        1 => Just(Ended::Unread),
        1 => proptest::option::of(usage).prop_map(|usage| Ended::Left { usage }),
        1 => Just(Ended::Failed),
    ]
}

/// Any action.
pub(crate) fn action() -> impl Strategy<Value = Action> {
    let tier_type = prop_oneof![
        Just(TierType::Tokens1m),
        Just(TierType::Characters1m),
        Just(TierType::Minutes),
        Just(TierType::Requests),
    ];
    // A rate is in hundred-thousandths of a dollar; rarely the maximum rate.
    let rate = prop_oneof![9 => 0_u32..2_000_000, 1 => Just(u32::MAX)];
    let steps = proptest::collection::vec((1_u32..2_000_000, rate), 1..5);
    let edit = prop_oneof![1 => Just(Edit::Keep), 1 => Just(Edit::Clear), 3 => (0_u8..6).prop_map(Edit::Set)];
    let maybe = |range: std::ops::Range<u8>| proptest::option::weighted(0.8, range);
    prop_oneof![
        2 => (0_u8..2, maybe(0..6)).prop_map(|(merchant, reference)| Action::Customer { merchant, reference }),
        2 => (0_u8..2, maybe(0..6), tier_type, steps, any::<u8>()).prop_map(
            |(merchant, slug, tier_type, steps, terms)| Action::Meter { merchant, slug, tier_type, steps, terms }),
        1 => (0_u8..2, 0_u8..8, edit).prop_map(
            |(merchant, customer, reference)| Action::UpdateCustomer { merchant, customer, reference }),
        1 => (0_u8..2, 0_u8..8).prop_map(|(merchant, customer)| Action::DeleteCustomer { merchant, customer }),
        1 => (0_u8..2, 0_u8..8, 0_u32..2_000_000).prop_map(
            |(merchant, meter, rate)| Action::UpdateMeter { merchant, meter, rate }),
        1 => (0_u8..2, 0_u8..8).prop_map(|(merchant, meter)| Action::DeleteMeter { merchant, meter }),
        2 => (0_u8..2, maybe(0..8), any::<u16>()).prop_map(
            |(merchant, customer, limits)| Action::SpendKey { merchant, customer, limits }),
        1 => (0_u8..2, any::<u8>(), any::<u16>()).prop_map(
            |(merchant, key, limits)| Action::UpdateKey { merchant, key, limits }),
        1 => (0_u8..2, any::<u8>()).prop_map(|(merchant, key)| Action::DeleteKey { merchant, key }),
        6 => (any::<u8>(), any::<u8>(), asked(), proptest::option::of(1_u32..200_000)).prop_map(
            |(key, model, asked, model_limit)| Action::OpenOnKey { key, model, asked, model_limit }),
        1 => (0_u8..2, any::<u8>()).prop_map(|(merchant, key)| Action::Rotate { merchant, key }),
        1 => (0_u8..2).prop_map(|merchant| Action::IssueKey { merchant }),
        2 => (maybe(0..2), any::<u8>()).prop_map(|(revoker, key)| Action::RevokeKey { revoker, key }),
        3 => (any::<u8>(), 0_u32..2_000).prop_map(|(customer, cents)| Action::CreditCustomer { customer, cents }),
        1 => (0_u8..2, 0_u32..2_000).prop_map(|(merchant, cents)| Action::CreditMerchant { merchant, cents }),
        9 => (0_u8..2, maybe(0..8), maybe(0..8), any::<u8>(), asked()).prop_map(
            |(merchant, customer, meter, shape, asked)| Action::Open { merchant, customer, meter, shape, asked }),
        1 => any::<u8>().prop_map(|request| Action::Reopen { request }),
        4 => (0_u8..2, 0_u8..40, maybe(0..8), maybe(0..8), any::<u8>(), ended()).prop_map(
            |(merchant, id, customer, meter, shape, how)| Action::Report {
                merchant, id, customer, meter, shape, how }),
        8 => (any::<u8>(), ended()).prop_map(|(request, how)| Action::Settle { request, how }),
        1 => (1_u16..400).prop_map(|hours| Action::Wait { hours }),
        1 => Just(Action::Forget),
    ]
}
