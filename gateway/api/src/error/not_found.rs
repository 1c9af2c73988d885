//! The kinds of resource that may not be found.

/// A kind of resource: the first part of the code `<resource>_not_found`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Resource {
    /// `customer_not_found`
    #[error("There is no such customer.")]
    Customer,
    /// `connection_not_found`
    #[error("There is no such connection.")]
    Connection,
    /// `meter_not_found`
    #[error("There is no such meter.")]
    Meter,
    /// `request_not_found`
    #[error("There is no such request.")]
    Request,
    /// `secret_key_not_found`
    #[error("There is no such secret key.")]
    SecretKey,
    /// `spend_key_not_found`
    #[error("There is no such spend key.")]
    SpendKey,
    /// `plan_not_found`
    #[error("There is no such plan.")]
    Plan,
    /// `subscription_not_found`
    #[error("There is no such subscription.")]
    Subscription,
    /// `credit_bundle_not_found`
    #[error("There is no such credit bundle.")]
    CreditBundle,
    /// `checkout_session_not_found`
    #[error("There is no such checkout session.")]
    CheckoutSession,
    /// `wallet_not_found`
    #[error("There is no such wallet.")]
    Wallet,
    /// `payment_method_not_found`
    #[error("There is no such payment method.")]
    PaymentMethod,
    /// `webhook_not_found`
    #[error("There is no such webhook.")]
    Webhook,
    /// `webhook_event_not_found`
    #[error("There is no such event for this webhook.")]
    WebhookEvent,
    /// `model_not_found`
    #[error(
        "No provider offers this model at this endpoint. GET /v1/models lists the models; name a newer one as provider/model."
    )]
    Model,
    /// `route_not_found`
    #[error("There is no resource at this path.")]
    Route,
}

impl Resource {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Customer => "customer_not_found",
            Self::Connection => "connection_not_found",
            Self::Meter => "meter_not_found",
            Self::Request => "request_not_found",
            Self::SecretKey => "secret_key_not_found",
            Self::SpendKey => "spend_key_not_found",
            Self::Plan => "plan_not_found",
            Self::Subscription => "subscription_not_found",
            Self::CreditBundle => "credit_bundle_not_found",
            Self::CheckoutSession => "checkout_session_not_found",
            Self::Wallet => "wallet_not_found",
            Self::PaymentMethod => "payment_method_not_found",
            Self::Webhook => "webhook_not_found",
            Self::WebhookEvent => "webhook_event_not_found",
            Self::Model => "model_not_found",
            Self::Route => "route_not_found",
        }
    }
}
