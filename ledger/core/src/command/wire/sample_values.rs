//! Values for the tests, and every refusal.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use ulid::Ulid;

use crate::command::{
    Billing, Caller, CheckoutRefusal, Completeness, CreateCustomer, CustomerRef, CustomerRefusal, Failed,
    IssueSecretKey, MerchantRefusal, MeterRef, MeterRefusal, Metered, NewMethod, Offered, OpenRequest, Payee,
    PaymentRefusal, PersonalData, PlanRefusal, Purchase, Refusal, RequestPayment, RequestRefusal,
    RequestSettings, SecretKeyRefusal, SpendKeyRefusal, SpendKeySnapshot, SubscriptionRefusal, WalletRefusal,
    WalletShortfall, WebhookRefusal,
};
use crate::event::{
    BundleOffer, Card, Cycle, FailureReason, ProviderKeyType, RateLimit, RequestLimit, RequestShape,
    SpendKeySettings, SpendKeyStatus, SpendLimit, Topic, WebhookSettings,
};
use crate::hold_scope::CreditScope;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, GatewayId, MerchantId, MeterId, PaymentId,
    PaymentMethodId, PlanId, RequestId, SecretKeyId, SpendKeyId, SubscriptionId, WalletId, WebhookId,
};
use crate::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use crate::model_price::{Above, ListPrice, ModelPrice, PriceFile, TokenRates};
use crate::money::{self, Amount};
use crate::plan::{BillingInterval, PlanTerms, Rollover};
use crate::pricing::{InputLimit, SizeHint};
use crate::secret::{KeyHash, ServerKey};
use crate::spending::Spending;
use crate::state::{SpendKey, Webhook};
use crate::usage::{Cached, Counted, Split, Usage};

pub(super) const ULID: Ulid = Ulid::from_parts(1_700_000_000_123, 0x0123_4567_89ab_cdef);
pub(super) const MERCHANT: MerchantId = MerchantId::new(ULID);
pub(super) const WALLET: WalletId = WalletId::new(ULID);
pub(super) const CUSTOMER: CustomerId = CustomerId::new(ULID);
pub(super) const METER: MeterId = MeterId::new(ULID);
pub(super) const REQUEST: RequestId = RequestId::new(ULID);
pub(super) const GATEWAY: GatewayId = GatewayId::new(ULID);
pub(super) const SPEND_KEY: SpendKeyId = SpendKeyId::new(ULID);
pub(super) const SECRET_KEY: SecretKeyId = SecretKeyId::new(ULID);
pub(super) const PLAN: PlanId = PlanId::new(ULID);
pub(super) const BUNDLE: CreditBundleId = CreditBundleId::new(ULID);
pub(super) const SUBSCRIPTION: SubscriptionId = SubscriptionId::new(ULID);
pub(super) const PAYMENT: PaymentId = PaymentId::new(ULID);
pub(super) const METHOD: PaymentMethodId = PaymentMethodId::new(ULID);
pub(super) const SESSION: CheckoutSessionId = CheckoutSessionId::new(ULID);
pub(super) const WEBHOOK: WebhookId = WebhookId::new(ULID);

pub(super) fn now() -> DateTime<Utc> {
    "2026-11-22T23:59:59.123456Z".parse().unwrap()
}

pub(super) fn dollars(text: &str) -> Amount {
    text.parse().unwrap()
}

pub(super) fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

pub(super) fn text(text: &str) -> String {
    text.to_owned()
}

pub(super) fn key_hash() -> KeyHash {
    ServerKey::from_hex(&"5a".repeat(32)).unwrap().hash("raw")
}

pub(super) fn personal() -> PersonalData {
    PersonalData {
        first_name: Some(text("Zoë \"Z\"\n")),
        last_name: None,
        email: Some(text("zoe@example.com")),
        phone: Some(text("+4912345")),
    }
}

pub(super) fn metadata() -> BTreeMap<String, String> {
    BTreeMap::from([(text("Größe 😀"), text("\"\\\u{0}")), (String::new(), String::new())])
}

pub(super) fn card() -> Card {
    Card { brand: text("visa"), last4: text("4242"), exp_month: 12, exp_year: 2040 }
}

pub(super) fn method() -> NewMethod {
    NewMethod { payment_method_id: METHOD, processor: text("test"), token: text("tok"), card: card() }
}

pub(super) fn price() -> Price {
    let tiers = [("0", "5"), ("1000000", "3.0000000001")];
    let tiers = tiers.map(|(start, rate)| Tier { start: decimal(start), rate: dollars(rate) });
    Price {
        rate_type: RateType::Percentage,
        tier_type: TierType::Tokens1m,
        tiers: Tiers::new(tiers.to_vec()).unwrap(),
        token_basis: TokenBasis::Output,
        base_cost_payer: Payer::Wallet,
        service_charge_payer: Payer::Merchant,
        on_disconnect: OnDisconnect::Cancel,
        max_fee: Some(dollars("12.5")),
    }
}

pub(super) fn model_price() -> ModelPrice {
    let rates = TokenRates { input_per_1m: Some(dollars("1.25")), ..TokenRates::default() };
    let above = vec![Above { input_tokens: u64::MAX, rates }];
    let file = Some(PriceFile::new(NaiveDate::MAX, "{}"));
    ModelPrice { rates, per_second: Some(dollars("0.0000000001")), above, file, ..ModelPrice::default() }
}

pub(super) fn metered() -> Metered {
    Metered {
        http_status: 201,
        usage: Some(Usage {
            tokens: Split { input: 1_000_000_000_000, output: 2 },
            cached: Cached { read: 3, write: 4 },
            reasoning_tokens: 1,
            characters: Split { input: 5, output: 6 },
            seconds: Split { input: decimal("0.10"), output: decimal("79228162514264337593543950335") },
        }),
        ending: Completeness::Partial,
        counted: Some(Counted { input: u64::MAX, output: 0, characters: 7 }),
        raw_usage: Some(text("{\"tokens\": 1e999}")),
        response_id: Some(text("chatcmpl-123")),
        model: Some(text("gpt-4o")),
        provider_timestamp: Some(DateTime::UNIX_EPOCH),
    }
}

pub(super) fn failed() -> Failed {
    Failed { http_status: Some(429), ..Failed::because(FailureReason::ProviderStatus) }
}

pub(super) fn offer() -> BundleOffer {
    BundleOffer { name: text("more"), cost: dollars("5"), credit_amount: dollars("5.5") }
}

pub(super) fn plan_terms() -> PlanTerms {
    PlanTerms {
        name: text("plan"),
        period_amount: dollars("10"),
        included_credit: dollars("9.9999999999"),
        billing_interval: BillingInterval::Year,
        rollover_type: Rollover::Full,
        bundle_rollover_type: Rollover::None,
        meter_ids: vec![METER],
        default_auto_top_up_bundle_id: Some(BUNDLE),
    }
}

pub(super) fn spend_key_settings() -> SpendKeySettings {
    SpendKeySettings {
        name: text("key"),
        allowed_models: Some(Vec::new()),
        allowed_providers: Some(vec![text("openai")]),
        spend_limit: Some(SpendLimit { amount: Amount::MAX, cycle: Cycle::Total }),
        request_limit: Some(RequestLimit { count: u64::MAX, cycle: Cycle::Daily }),
        rate_limit: Some(RateLimit { rpm: 60, burst: 10 }),
        expires_at: Some(DateTime::<Utc>::MAX_UTC),
        request_shape: Some(RequestShape::Anthropic),
    }
}

pub(super) fn spend_key() -> SpendKeySnapshot {
    let mut spending = Spending::new(Some(RateLimit { rpm: 60, burst: 10 }), now());
    spending.admit(now(), dollars("0.5")).unwrap();
    let key = SpendKey {
        merchant_id: MERCHANT,
        wallet_id: WALLET,
        customer_id: Some(CUSTOMER),
        key_hash: key_hash(),
        key_preview: text("spk_abcd****"),
        rotation: 1,
        revision: 2,
        status: SpendKeyStatus::Paused,
        settings: spend_key_settings(),
        created_at: now(),
    };
    SpendKeySnapshot { key, spending }
}

pub(super) fn webhook_settings() -> WebhookSettings {
    WebhookSettings {
        name: Some(text("orders")),
        url: text("https://example.com/?a=b"),
        topics: Some(vec![Topic::ALL[2]]),
        enabled: false,
    }
}

pub(super) fn webhook() -> Webhook {
    Webhook { merchant_id: MERCHANT, settings: webhook_settings(), revision: 3, created_at: now() }
}

pub(super) fn create_customer() -> CreateCustomer {
    CreateCustomer {
        merchant_id: MERCHANT,
        customer_id: CUSTOMER,
        wallet_id: WALLET,
        reference_id: Some(text("u/1")),
        metadata: metadata(),
        metadata_literals: metadata().into_keys().take(1).collect(),
        personal: personal(),
        now: now(),
    }
}

pub(super) fn issue_secret_key() -> IssueSecretKey {
    IssueSecretKey {
        merchant_id: MERCHANT,
        secret_key_id: SECRET_KEY,
        key_hash: key_hash(),
        hint: text("abcd"),
        name: text("first"),
        now: now(),
    }
}

pub(super) fn open_request(caller: Caller) -> OpenRequest {
    OpenRequest {
        request_id: REQUEST,
        gateway_id: GATEWAY,
        merchant_id: MERCHANT,
        caller,
        customer: Some(CustomerRef::Secret(CUSTOMER)),
        meter: Some(MeterRef::Slug(text("meter"))),
        billing: Billing::MeteringOnly,
        provider: text("openai"),
        provider_key_type: ProviderKeyType::Managed,
        endpoint: text("POST https://example.com/?a=%C3%A4"),
        model: Some(text("gpt-4o")),
        list_price: ListPrice::Listed(model_price()),
        metadata: metadata(),
        size: SizeHint {
            max_output_tokens: Some(u64::MAX),
            input_bytes: 1,
            model_output_tokens: Some(2),
            input_limit: InputLimit::Tokens(3),
            input_characters: Some(4),
        },
        settings: RequestSettings {
            service_charge_rate: decimal("0.019"),
            default_hold: dollars("0.1"),
            hold_cap: dollars("1.5"),
        },
        now: now(),
    }
}

pub(super) fn request_payment(purchase: Purchase) -> RequestPayment {
    RequestPayment {
        merchant_id: MERCHANT,
        payment_id: PAYMENT,
        payee: Payee::Customer(CUSTOMER),
        payment_method_id: Some(METHOD),
        purchase,
        offered: Some(Offered { price: dollars("1"), credit: Amount::ZERO, auto_top_up: None }),
        checkout_session_id: Some(SESSION),
        now: now(),
    }
}

pub(super) fn golden<T: DeserializeOwned>(file: &str) -> T {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every refusal.
pub(super) fn refusals() -> Vec<Refusal> {
    let mut all: Vec<Refusal> = Vec::new();
    all.extend([MerchantRefusal::NotFound, MerchantRefusal::ClockOutOfRange].map(Refusal::Merchant));
    let secret_key = [SecretKeyRefusal::Invalid, SecretKeyRefusal::NotFound, SecretKeyRefusal::LastRemaining];
    all.extend(secret_key.map(Refusal::SecretKey));
    let customer =
        [CustomerRefusal::NotFound, CustomerRefusal::SecretInvalid, CustomerRefusal::ReferenceIdTaken];
    all.extend(customer.map(Refusal::Customer));
    let meter = [MeterRefusal::NotFound, MeterRefusal::SecretInvalid, MeterRefusal::SlugTaken];
    all.extend(meter.map(Refusal::Meter));
    let spend_key = [
        SpendKeyRefusal::NotFound,
        SpendKeyRefusal::Invalid,
        SpendKeyRefusal::Expired,
        SpendKeyRefusal::Paused,
        SpendKeyRefusal::ModelNotAllowed,
        SpendKeyRefusal::ProviderNotAllowed,
        SpendKeyRefusal::RequestLimitExceeded { retry_after_seconds: None },
        SpendKeyRefusal::RequestLimitExceeded { retry_after_seconds: Some(u64::MAX) },
        SpendKeyRefusal::RateLimitExceeded { retry_after_seconds: 1 },
        SpendKeyRefusal::SpendLimitExceeded { left: dollars("-1"), needed: dollars("0.0000000001") },
    ];
    all.extend(spend_key.map(Refusal::SpendKey));
    let auto_recharge = Some(WalletShortfall { wallet_id: WALLET, credit_scope: CreditScope::BesidePlan });
    let (available, needed) = (Amount::ZERO, Amount::MAX);
    let wallet = [
        WalletRefusal::InsufficientBalance { available, needed, auto_recharge },
        WalletRefusal::InsufficientBalance { available, needed, auto_recharge: None },
        WalletRefusal::AmountNotPositive,
        WalletRefusal::TooManyBundles,
        WalletRefusal::AutopayIncomplete { enabled: true, threshold: false, amount: true },
    ];
    all.extend(wallet.map(Refusal::Wallet));
    let request = [RequestRefusal::NotOpen, RequestRefusal::ModelNotPriced, RequestRefusal::UsageOutOfRange];
    all.extend(request.map(Refusal::Request));
    let plan = [
        PlanRefusal::NotFound,
        PlanRefusal::NotFree,
        PlanRefusal::CreditAbovePrice,
        PlanRefusal::BundleNotFound,
        PlanRefusal::BundlePlanMismatch,
        PlanRefusal::TooManyBundles,
    ];
    all.extend(plan.map(Refusal::Plan));
    let subscription = [SubscriptionRefusal::NotFound, SubscriptionRefusal::AlreadyActive];
    all.extend(subscription.map(Refusal::Subscription));
    let payment = [
        PaymentRefusal::NotOpen,
        PaymentRefusal::MethodNotFound,
        PaymentRefusal::NoMethod,
        PaymentRefusal::OfferChanged,
        PaymentRefusal::InProgress,
    ];
    all.extend(payment.map(Refusal::Payment));
    all.extend([CheckoutRefusal::SessionNotFound, CheckoutRefusal::SessionExpired].map(Refusal::Checkout));
    all.extend([WebhookRefusal::NotFound, WebhookRefusal::LimitReached].map(Refusal::Webhook));
    let amount = [money::Error::Malformed, money::Error::TooPrecise, money::Error::OutOfRange];
    all.extend(amount.map(Refusal::Amount));
    all
}
