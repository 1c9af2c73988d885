//! A value of every command and outcome, for the tests. The property tests in `tests/decisions` send random ones.

use std::collections::BTreeMap;
use std::fmt::Debug;

use chrono::{DateTime, Utc};

use super::sample_values::{
    BUNDLE, CUSTOMER, GATEWAY, MERCHANT, METER, METHOD, PAYMENT, PLAN, REQUEST, SECRET_KEY, SESSION,
    SPEND_KEY, SUBSCRIPTION, ULID, WALLET, WEBHOOK, card, create_customer, decimal, dollars, failed, golden,
    issue_secret_key, key_hash, metadata, metered, method, model_price, now, offer, open_request, personal,
    plan_terms, price, request_payment, spend_key, spend_key_settings, text, webhook, webhook_settings,
};
use super::{AnyCommand, AnyOutcome, WireCommand, decode_answer, encode_answer};
use crate::command::{
    AddPaymentMethod, AdvanceClock, AdvanceSubscription, Advanced, AlreadyApplied, AutoRecharge,
    AutopayEdits, BundleEdit, Caller, CompleteCheckoutSession, CompletePayment, CreateCheckoutCustomer,
    CreateCheckoutSession, CreatePlan, CreateSpendKey, CreateWebhook, CreatedCustomer, CreditTarget,
    CreditWallet, Credited, CustomerRef, DefineMeter, DeleteCustomer, DeleteMeter, DeletePlan,
    DeleteSpendKey, DeleteWebhook, Edit, MeterRef, NewBundle, Offered, OfferedTopUp, Opened, Paid,
    PayCheckoutSession, Payee, PlanEdits, Purchase, RegisterMerchant, ReportRequest, Reported,
    RevokeSecretKey, Revoker, RotateSpendKey, SetAutopay, SettleRequest, Settled, Slug, SpendKeyEdits,
    StartSubscription, Started, SubscriptionEdit, Timed, UpdateCustomer, UpdateMeter, UpdatePlan,
    UpdateSpendKey, UpdateSubscription, UpdateWebhook, WalletShortfall,
};
use crate::event::{
    CheckoutMode, ContactPart, Cycle, DeclineReason, FailureReason, Hold, RateLimit, RequestShape,
    SpendKeyStatus, SpendLimit, Topic,
};
use crate::hold_scope::CreditScope;
use crate::ids::CreditId;
use crate::meter::{OnDisconnect, Payer};
use crate::model_price::ListPrice;
use crate::money::Amount;
use crate::plan::Rollover;
use crate::state::Meter;

/// The commands that were written and read back.
#[derive(Default)]
pub(super) struct Exchanges {
    pub(super) commands: Vec<AnyCommand>,
}

impl Exchanges {
    /// Checks that `command`, alone and timed, and its `outcomes` read back as they were written.
    fn add<C, const N: usize>(
        &mut self,
        command: C,
        any_outcome: fn(C::Outcome) -> AnyOutcome,
        outcomes: [C::Outcome; N],
    ) where
        C: WireCommand<Outcome: Clone + Debug + PartialEq> + Clone,
    {
        let merchant_id = WireCommand::merchant_id(&command);
        let timed = Timed { command: command.clone(), merchant_id: MERCHANT, now: now() };
        for (command, merchant_id) in [(command.into(), merchant_id), (timed.into(), Some(MERCHANT))] {
            let command: AnyCommand = command;
            let written = command.encode();
            let read = AnyCommand::decode(&written).unwrap();
            assert_eq!(read.encode(), written);
            assert!(read == command, "{written}");
            assert_eq!((read.name(), read.merchant_id()), (C::NAME, merchant_id));
            self.commands.push(read);
        }
        for outcome in outcomes {
            let any = any_outcome(outcome.clone());
            let written = encode_answer(&Ok(any.clone()));
            assert_eq!(decode_answer::<C>(&written).unwrap(), Ok(outcome.clone()), "{written}");
            let written = encode_answer(&Ok(AnyOutcome::Timed(Box::new((any, now())))));
            assert_eq!(decode_answer::<Timed<C>>(&written).unwrap(), Ok((outcome, now())), "{written}");
        }
    }
}

/// Exchanges every command.
pub(super) fn exchanges() -> Exchanges {
    let mut all = Exchanges::default();
    all.add(
        AddPaymentMethod {
            merchant_id: MERCHANT,
            payee: Payee::Merchant,
            payment_method_id: METHOD,
            processor: text("test"),
            token: text("tok"),
            card: card(),
            now: now(),
        },
        AnyOutcome::AddPaymentMethod,
        [()],
    );
    all.add(
        AdvanceClock { merchant_id: MERCHANT, seconds: i64::MIN, now: now() },
        AnyOutcome::AdvanceClock,
        [now(), DateTime::<Utc>::MAX_UTC, DateTime::<Utc>::MIN_UTC],
    );
    all.add(
        AdvanceSubscription { subscription_id: SUBSCRIPTION, payment_id: PAYMENT, now: now() },
        AnyOutcome::AdvanceSubscription,
        [Advanced::NothingDue, Advanced::PaymentRequested(PAYMENT), Advanced::Done],
    );
    all.add(AlreadyApplied, AnyOutcome::AlreadyApplied, [()]);
    for credit_scope in [CreditScope::All, CreditScope::BesidePlan] {
        all.add(
            AutoRecharge {
                short: WalletShortfall { wallet_id: WALLET, credit_scope },
                payment_id: PAYMENT,
                hold: dollars("-0.0000000001"),
                now: now(),
            },
            AnyOutcome::AutoRecharge,
            [Some(PAYMENT), None],
        );
    }
    let top_up = OfferedTopUp { price: dollars("2"), credit: dollars("3") };
    let plan = |auto_top_up| Some(Offered { price: Amount::ZERO, credit: dollars("1"), auto_top_up });
    for offered in [None, plan(None), plan(Some(top_up))] {
        all.add(
            CompleteCheckoutSession {
                merchant_id: MERCHANT,
                checkout_session_id: SESSION,
                customer_id: CUSTOMER,
                contact: Some(personal()),
                method: Some(method()),
                offered,
                subscription_id: SUBSCRIPTION,
                now: now(),
            },
            AnyOutcome::CompleteCheckoutSession,
            [()],
        );
    }
    let paid = [
        Paid::Accepted(text("taken")),
        Paid::Declined(DeclineReason::ExpiredCard),
        Paid::Voided(Some(text("refund"))),
        Paid::Voided(None),
    ];
    for one in &paid {
        let command = CompletePayment { payment_id: PAYMENT, paid: one.clone(), now: now() };
        all.add(command, AnyOutcome::CompletePayment, paid.clone());
    }
    all.add(
        CreateCheckoutCustomer { checkout_session_id: SESSION, create: create_customer() },
        AnyOutcome::CreateCheckoutCustomer,
        [CreatedCustomer::Created(CUSTOMER)],
    );
    all.add(
        CreateCheckoutSession {
            merchant_id: MERCHANT,
            checkout_session_id: SESSION,
            checkout_mode: CheckoutMode::CreditBundle,
            origin_url: text("https://example.com"),
            customer: Some(CustomerRef::Reference(text("u/1"))),
            reference_id: None,
            plan_id: Some(PLAN),
            credit_bundle_id: Some(BUNDLE),
            now: now(),
        },
        AnyOutcome::CreateCheckoutSession,
        [golden("checkout_session.created.v1.json")],
    );
    all.add(
        create_customer(),
        AnyOutcome::CreateCustomer,
        [CreatedCustomer::Created(CUSTOMER), CreatedCustomer::Existing(CUSTOMER)],
    );
    all.add(
        CreatePlan {
            merchant_id: MERCHANT,
            plan_id: PLAN,
            terms: plan_terms(),
            bundles: vec![NewBundle { credit_bundle_id: BUNDLE, offer: offer() }],
            now: now(),
        },
        AnyOutcome::CreatePlan,
        [now()],
    );
    for status in [SpendKeyStatus::Active, SpendKeyStatus::Paused] {
        all.add(
            CreateSpendKey {
                merchant_id: MERCHANT,
                spend_key_id: SPEND_KEY,
                customer_id: None,
                key_hash: key_hash(),
                key_preview: text("spk_abcd****"),
                settings: spend_key_settings(),
                status,
                now: now(),
            },
            AnyOutcome::CreateSpendKey,
            [spend_key()],
        );
    }
    all.add(
        CreateWebhook {
            merchant_id: MERCHANT,
            webhook_id: WEBHOOK,
            settings: webhook_settings(),
            now: now(),
        },
        AnyOutcome::CreateWebhook,
        [webhook()],
    );
    for target in [CreditTarget::Customer(CUSTOMER), CreditTarget::Merchant(MERCHANT)] {
        all.add(
            CreditWallet {
                credit_id: CreditId::new(ULID),
                target,
                amount: dollars("0.0000000001"),
                reason: text("paid"),
                now: now(),
            },
            AnyOutcome::CreditWallet,
            [Credited { wallet_id: WALLET, balance: Amount::MAX }],
        );
    }
    for slug in [Slug::Given(text("slug")), Slug::Made(text("name"))] {
        all.add(
            DefineMeter {
                merchant_id: MERCHANT,
                meter_id: METER,
                slug,
                name: text("meter"),
                price: price(),
                now: now(),
            },
            AnyOutcome::DefineMeter,
            [text("name-2")],
        );
    }
    all.add(
        DeleteCustomer { merchant_id: MERCHANT, customer_id: CUSTOMER, now: now() },
        AnyOutcome::DeleteCustomer,
        [()],
    );
    all.add(
        DeleteMeter { merchant_id: MERCHANT, meter_id: METER, now: now() },
        AnyOutcome::DeleteMeter,
        [()],
    );
    all.add(DeletePlan { merchant_id: MERCHANT, plan_id: PLAN, now: now() }, AnyOutcome::DeletePlan, [()]);
    all.add(
        DeleteSpendKey { merchant_id: MERCHANT, spend_key_id: SPEND_KEY, now: now() },
        AnyOutcome::DeleteSpendKey,
        [()],
    );
    all.add(
        DeleteWebhook { merchant_id: MERCHANT, webhook_id: WEBHOOK, now: now() },
        AnyOutcome::DeleteWebhook,
        [()],
    );
    all.add(issue_secret_key(), AnyOutcome::IssueSecretKey, [()]);
    for caller in [Caller::SecretKey(key_hash()), Caller::SpendKey(key_hash())] {
        let hold =
            Hold { wallet: dollars("0.25"), merchant: dollars("1"), beside_plan: true, plan_changes: 7 };
        let opened = Opened {
            merchant_id: MERCHANT,
            hold,
            on_disconnect: OnDisconnect::Cancel,
            customer_id: Some(CUSTOMER),
            spend_key_id: Some(SPEND_KEY),
        };
        all.add(open_request(caller), AnyOutcome::OpenRequest, [opened]);
    }
    all.add(
        PayCheckoutSession {
            payment: request_payment(Purchase::Fund(dollars("1"))),
            contact: Some((CUSTOMER, personal())),
            method: Some(method()),
        },
        AnyOutcome::PayCheckoutSession,
        [()],
    );
    all.add(
        RegisterMerchant { wallet_id: WALLET, name: text("shop"), first_key: issue_secret_key(), now: now() },
        AnyOutcome::RegisterMerchant,
        [()],
    );
    for list_price in [ListPrice::Nothing, ListPrice::Listed(model_price()), ListPrice::Unlisted] {
        all.add(
            ReportRequest {
                merchant_id: MERCHANT,
                reported_id: text("r/1"),
                request_id: REQUEST,
                gateway_id: GATEWAY,
                customer: Some(CustomerRef::Id(CUSTOMER)),
                meter: Some(MeterRef::Secret(METER)),
                provider: text("other"),
                endpoint: String::new(),
                metadata: metadata(),
                list_price,
                metered: metered(),
                service_charge_rate: decimal("0.0190"),
                now: now(),
            },
            AnyOutcome::ReportRequest,
            [
                Reported::New(
                    golden("request.opened.v1.priced.json"),
                    golden("request.metered.v1.cached.json"),
                ),
                Reported::Existing(REQUEST),
            ],
        );
    }
    for purchase in
        [Purchase::Fund(dollars("1")), Purchase::Bundle(BUNDLE), Purchase::Plan(PLAN, SUBSCRIPTION)]
    {
        all.add(request_payment(purchase), AnyOutcome::RequestPayment, [()]);
    }
    for revoker in [Revoker::Merchant(MERCHANT), Revoker::Operator] {
        all.add(
            RevokeSecretKey { revoker, secret_key_id: SECRET_KEY, now: now() },
            AnyOutcome::RevokeSecretKey,
            [MERCHANT],
        );
    }
    all.add(
        RotateSpendKey {
            merchant_id: MERCHANT,
            spend_key_id: SPEND_KEY,
            key_hash: key_hash(),
            key_preview: text("spk_efgh****"),
            now: now(),
        },
        AnyOutcome::RotateSpendKey,
        [spend_key()],
    );
    all.add(
        SetAutopay {
            merchant_id: MERCHANT,
            payee: Payee::Merchant,
            edits: AutopayEdits {
                enabled: Some(true),
                threshold: Edit::Set(dollars("0.5")),
                amount: Edit::Clear,
            },
            now: now(),
        },
        AnyOutcome::SetAutopay,
        [()],
    );
    for settled in [Settled::Metered(metered()), Settled::Failed(failed())] {
        all.add(
            SettleRequest { request_id: REQUEST, settled, now: now() },
            AnyOutcome::SettleRequest,
            [None, Some(FailureReason::UsageInvalid)],
        );
    }
    all.add(
        StartSubscription {
            merchant_id: MERCHANT,
            customer: CustomerRef::Id(CUSTOMER),
            subscription_id: SUBSCRIPTION,
            plan_id: PLAN,
            auto_top_up_bundle_id: Some(BUNDLE),
            now: now(),
        },
        AnyOutcome::StartSubscription,
        [Started {
            event: golden("subscription.started.v1.json"),
            started_at: now(),
            bundle_credit: dollars("0.1"),
        }],
    );
    for reference_id in [Edit::Keep, Edit::Clear, Edit::Set(String::new())] {
        all.add(
            UpdateCustomer {
                merchant_id: MERCHANT,
                customer_id: CUSTOMER,
                reference_id,
                metadata: Some(BTreeMap::new()),
                metadata_literals: [text("size")].into(),
                contact: vec![ContactPart::Name, ContactPart::Email, ContactPart::Phone],
                personal: personal(),
                now: now(),
            },
            AnyOutcome::UpdateCustomer,
            [()],
        );
    }
    all.add(
        UpdateMeter {
            merchant_id: MERCHANT,
            meter_id: METER,
            name: Some(text("name")),
            tiers: Some(price().tiers),
            base_cost_payer: Some(Payer::Merchant),
            service_charge_payer: None,
            on_disconnect: Some(OnDisconnect::Complete),
            max_fee: Edit::Set(dollars("2.5")),
            now: now(),
        },
        AnyOutcome::UpdateMeter,
        [Box::new(Meter {
            merchant_id: MERCHANT,
            meter_slug: text("meter"),
            name: text("name"),
            price: price(),
            revision: u32::MAX,
            created_at: now(),
        })],
    );
    let edits = [
        BundleEdit::Create(BUNDLE, offer()),
        BundleEdit::Update { id: BUNDLE, name: None, cost: Some(dollars("1")), credit_amount: None },
        BundleEdit::Delete(BUNDLE),
    ];
    all.add(
        UpdatePlan {
            merchant_id: MERCHANT,
            plan_id: PLAN,
            edits: PlanEdits {
                name: Some(text("name")),
                included_credit: Some(Amount::ZERO),
                rollover_type: Some(Rollover::None),
                bundle_rollover_type: None,
                meter_ids: Some(Vec::new()),
                default_auto_top_up_bundle_id: Edit::Set(BUNDLE),
                bundles: edits.to_vec(),
            },
            now: now(),
        },
        AnyOutcome::UpdatePlan,
        [()],
    );
    all.add(
        UpdateSpendKey {
            merchant_id: MERCHANT,
            spend_key_id: SPEND_KEY,
            edits: SpendKeyEdits {
                name: Some(text("name")),
                status: Some(SpendKeyStatus::Paused),
                allowed_models: Edit::Set(Vec::new()),
                allowed_providers: Edit::Clear,
                spend_limit: Edit::Set(SpendLimit { amount: dollars("1"), cycle: Cycle::Weekly }),
                request_limit: Edit::Keep,
                rate_limit: Edit::Set(RateLimit { rpm: 1, burst: u64::MAX }),
                expires_at: Edit::Set(now()),
                request_shape: Edit::Set(RequestShape::Openai),
            },
            now: now(),
        },
        AnyOutcome::UpdateSpendKey,
        [spend_key()],
    );
    for edit in [
        SubscriptionEdit::AutoTopUp(Edit::Set(BUNDLE)),
        SubscriptionEdit::Cancel,
        SubscriptionEdit::Downgrade(PLAN),
    ] {
        all.add(
            UpdateSubscription { merchant_id: MERCHANT, subscription_id: SUBSCRIPTION, edit, now: now() },
            AnyOutcome::UpdateSubscription,
            [()],
        );
    }
    all.add(
        UpdateWebhook {
            merchant_id: MERCHANT,
            webhook_id: WEBHOOK,
            name: Edit::Set(text("orders")),
            url: Some(text("https://example.com")),
            topics: Edit::Set(Topic::ALL.to_vec()),
            enabled: Some(true),
            now: now(),
        },
        AnyOutcome::UpdateWebhook,
        [Box::new(webhook())],
    );
    all
}
