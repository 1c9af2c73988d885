//! Commands, named in the imperative, and the decisions about them. A decision is pure: it reads states and values, and
//! returns events or a refusal. A refusal appends nothing.

mod add_payment_method;
mod advance_clock;
mod advance_subscription;
mod already_applied;
mod auto_recharge;
mod bill;
mod complete_checkout_session;
mod complete_payment;
mod create_checkout_customer;
mod create_checkout_session;
mod create_customer;
mod create_plan;
mod create_spend_key;
mod create_webhook;
mod credit_wallet;
mod decision;
mod define_meter;
mod delete_customer;
mod delete_meter;
mod delete_plan;
mod delete_spend_key;
mod delete_webhook;
mod edit;
mod issue_secret_key;
mod key_limits;
mod millisecond;
mod open_request;
mod pay_checkout_session;
mod payee;
mod personal_data;
mod recomputed_bill;
mod refusal;
mod register_merchant;
mod report_request;
mod request_payment;
mod revoke_secret_key;
mod rotate_spend_key;
mod set_autopay;
mod settle_request;
mod spend_key_snapshot;
mod start_subscription;
mod timed;
mod update_customer;
mod update_meter;
mod update_plan;
mod update_spend_key;
mod update_subscription;
mod update_webhook;
pub mod wire;

pub use self::add_payment_method::{AddPaymentMethod, NewMethod};
pub use self::advance_clock::{AdvanceClock, MAX_AHEAD_SECONDS};
pub use self::advance_subscription::{AdvanceSubscription, Advanced};
pub use self::already_applied::AlreadyApplied;
pub use self::auto_recharge::AutoRecharge;
pub use self::bill::{ChargedParts, RequestSettings, service_charge_payer};
pub use self::complete_checkout_session::CompleteCheckoutSession;
pub use self::complete_payment::{CompletePayment, Paid};
pub use self::create_checkout_customer::CreateCheckoutCustomer;
pub use self::create_checkout_session::CreateCheckoutSession;
pub use self::create_customer::{CreateCustomer, CreatedCustomer};
pub use self::create_plan::{CreatePlan, NewBundle};
pub use self::create_spend_key::CreateSpendKey;
pub use self::create_webhook::CreateWebhook;
pub use self::credit_wallet::{CreditTarget, CreditWallet, Credited};
pub use self::decision::{Command, DecideError, Decision, decide};
pub use self::define_meter::{DefineMeter, Slug};
pub use self::delete_customer::DeleteCustomer;
pub use self::delete_meter::DeleteMeter;
pub use self::delete_plan::DeletePlan;
pub use self::delete_spend_key::DeleteSpendKey;
pub use self::delete_webhook::DeleteWebhook;
pub use self::edit::Edit;
pub use self::issue_secret_key::IssueSecretKey;
pub use self::millisecond::to_millisecond;
pub use self::open_request::{
    Billing, Caller, CustomerRef, FindOpen, MeterRef, OpenAgain, OpenRequest, Opened,
};
pub use self::pay_checkout_session::PayCheckoutSession;
pub use self::payee::Payee;
pub use self::personal_data::{PersonalChange, PersonalData};
pub use self::recomputed_bill::RecomputedBill;
pub use self::refusal::{
    CheckoutRefusal, CustomerRefusal, MerchantRefusal, MeterRefusal, PaymentRefusal, PlanRefusal, Refusal,
    RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, SubscriptionRefusal, WalletRefusal, WalletShortfall,
    WebhookRefusal,
};
pub use self::register_merchant::RegisterMerchant;
pub use self::report_request::{ReportRequest, Reported};
pub use self::request_payment::{Offered, OfferedTopUp, Purchase, RequestPayment};
pub use self::revoke_secret_key::{RevokeSecretKey, Revoker};
pub use self::rotate_spend_key::RotateSpendKey;
pub use self::set_autopay::{AutopayEdits, SetAutopay};
pub use self::settle_request::{Completeness, Failed, Metered, SettleRequest, Settled};
pub use self::spend_key_snapshot::SpendKeySnapshot;
pub use self::start_subscription::{StartSubscription, Started};
pub use self::timed::Timed;
pub use self::update_customer::UpdateCustomer;
pub use self::update_meter::UpdateMeter;
pub use self::update_plan::{BundleEdit, PlanEdits, UpdatePlan};
pub use self::update_spend_key::{SpendKeyEdits, UpdateSpendKey};
pub use self::update_subscription::{SubscriptionEdit, UpdateSubscription};
pub use self::update_webhook::UpdateWebhook;
