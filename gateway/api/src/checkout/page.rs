//! Renders the pages: one template, and headers that restrict them to their own style and script, to frames of the
//! merchant's app, and to no cache.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use farthing_core::event::{Card, CheckoutMode};
use farthing_core::ids::PaymentId;
use farthing_core::money::Amount;
use farthing_core::plan::BillingInterval;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

use super::form::{FormInput, FormProblem, OfferFields, label};
use super::offer::{Cards, CheckoutTarget, Offer, PlanStart};
use super::session::{Session, SessionStatus};
use crate::error::{ApiError, BillingError};

/// The content security policy, without the origin that may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'self'; frame-ancestors";

/// The time until the page of a pending payment loads itself again.
const PENDING_RELOAD_SECONDS: u64 = 2;

/// The name of the pending payment in the query of the page that loads itself again.
pub(super) const PAYMENT: &str = "payment";

/// A page without a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Unknown,
    /// It reloads: the link may be that of a pending payment.
    TooManyViews {
        retry_after_seconds: u64,
    },
    /// It stays: loading it again would show an empty form.
    TooManyForms,
    PaymentPending,
    AttemptsUsedUp,
    Unavailable,
    AlreadySubscribed,
    Expired,
    Completed,
}

/// The data of the template.
#[derive(Template, Default)]
#[template(path = "checkout.html")]
struct Page<'a> {
    title: &'a str,
    text: String,
    merchant: &'a str,
    /// Whether the page shows the test mode notice.
    test_mode: bool,
    icon: Icon,
    /// The time until the page loads itself again.
    reload_seconds: Option<u64>,
    /// The query of that page; empty if it stays the same.
    reload_query: String,
    /// The type of the message that the page posts to the merchant's app when it loads; empty for none.
    message_type: &'a str,
    origin: &'a str,
    checkout_session_id: String,
    customer_id: String,
    form: Option<Form<'a>>,
}

/// The icon above the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Icon {
    #[default]
    None,
    Success,
    Pending,
    Warning,
}

/// The summary of the product.
struct ProductSummary<'a> {
    name: &'a str,
    price: String,
    /// For example `per month`; empty if it is paid once.
    interval: String,
    terms: Vec<String>,
}

/// The form.
struct Form<'a> {
    product: Option<ProductSummary<'a>>,
    person: Vec<Field<'a>>,
    amount: Vec<Field<'a>>,
    card: Vec<Field<'a>>,
    known_card: Option<String>,
    pays_with_known: bool,
    card_is_optional: bool,
    offer: OfferFields,
    button: String,
    problems: &'a [FormProblem],
}

/// A field of the form.
struct Field<'a> {
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    autocomplete: &'static str,
    inputmode: &'static str,
    /// Whether the browser requires a value.
    required: bool,
    /// Whether the label marks it as optional.
    optional: bool,
    hint: &'static str,
    value: &'a str,
    error: Option<&'a str>,
    focused: bool,
}

impl Form<'_> {
    /// Whether the first problem concerns the whole form.
    fn focuses_problems(&self) -> bool {
        self.problems.first().is_some_and(|problem| !self.has(problem))
    }

    /// Whether `problem` concerns a field of this form.
    fn has(&self, problem: &FormProblem) -> bool {
        [&self.person, &self.amount, &self.card]
            .iter()
            .any(|fields| fields.iter().any(|field| field.name == problem.field))
    }
}

/// A page without a form. That of a completed session notifies the merchant's app.
pub(super) fn notice(notice: Notice, session: Option<&Session>) -> Response {
    let (status, title, text) = match notice {
        Notice::Unknown => (
            StatusCode::NOT_FOUND,
            "This link is not valid",
            "Request a new link from the site that sent you here.",
        ),
        Notice::TooManyViews { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests",
            "This page was opened too often. It loads again in a moment.",
        ),
        Notice::TooManyForms => (
            StatusCode::TOO_MANY_REQUESTS,
            "Too many requests",
            "This page was requested too often, and this request had no effect. Please try again in a moment.",
        ),
        Notice::PaymentPending => {
            (StatusCode::OK, "Processing your payment", "This page updates when the payment completes.")
        }
        Notice::AttemptsUsedUp => (
            StatusCode::FORBIDDEN,
            "Too many attempts",
            "This link accepts no more payments. Request a new link from the site that sent you here.",
        ),
        Notice::AlreadySubscribed => {
            (StatusCode::OK, "You already have this plan", "There is nothing to pay or change.")
        }
        Notice::Unavailable => {
            (StatusCode::GONE, "No longer available", "Request a new link from the site that sent you here.")
        }
        Notice::Expired => (
            StatusCode::GONE,
            "This link has expired",
            "Links are valid for 24 hours. Request a new link from the site that sent you here.",
        ),
        Notice::Completed => (StatusCode::OK, completed_title(session), completed_text(session)),
    };
    let icon = match notice {
        Notice::Completed => Icon::Success,
        Notice::PaymentPending => Icon::Pending,
        Notice::Unknown
        | Notice::TooManyViews { .. }
        | Notice::TooManyForms
        | Notice::AttemptsUsedUp
        | Notice::Unavailable
        | Notice::AlreadySubscribed
        | Notice::Expired => Icon::Warning,
    };
    let reload_seconds = match notice {
        Notice::PaymentPending => Some(PENDING_RELOAD_SECONDS),
        Notice::TooManyViews { retry_after_seconds } => Some(retry_after_seconds),
        Notice::Unknown
        | Notice::TooManyForms
        | Notice::AttemptsUsedUp
        | Notice::Unavailable
        | Notice::AlreadySubscribed
        | Notice::Expired
        | Notice::Completed => None,
    };
    let mut page = Page { title, text: text.to_owned(), icon, reload_seconds, ..Page::default() };
    if let Some(session) = session {
        page.set_session(session);
        match session.status {
            SessionStatus::Completed(customer_id) => {
                page.customer_id = customer_id.to_string();
                page.message_type = "checkout_success";
            }
            SessionStatus::PaymentPending(payment_id) => page.reload_query = naming(payment_id),
            SessionStatus::Open(_)
            | SessionStatus::AttemptsUsedUp
            | SessionStatus::Unavailable
            | SessionStatus::AlreadySubscribed
            | SessionStatus::PaymentsUnavailable
            | SessionStatus::Expired => {}
        }
    }
    send(status, &page, session)
}

/// The query that names a pending payment.
pub(super) fn naming(payment_id: PaymentId) -> String {
    format!("?{PAYMENT}={payment_id}")
}

/// The title of a completed session's page.
fn completed_title(session: Option<&Session>) -> &'static str {
    match session.map(|session| session.created.checkout_mode) {
        Some(CheckoutMode::Topup | CheckoutMode::CreditBundle) => "Payment complete",
        Some(CheckoutMode::Onboarding | CheckoutMode::Subscription) | None => "All done",
    }
}

/// The text of a completed session's page.
fn completed_text(session: Option<&Session>) -> &'static str {
    match session.map(|session| session.created.checkout_mode) {
        Some(CheckoutMode::Onboarding) => "Your details are saved. You can close this page.",
        Some(CheckoutMode::Topup) => "The amount has been added to your balance. You can close this page.",
        Some(CheckoutMode::Subscription) => "Your subscription is active. You can close this page.",
        Some(CheckoutMode::CreditBundle) => {
            "The credit has been added to your balance. You can close this page."
        }
        None => "You can close this page.",
    }
}

/// A page for an error that does not concern the form's values.
pub(super) fn failed(error: ApiError, session: Option<&Session>) -> Response {
    let (title, text) = if matches!(error, ApiError::Billing(BillingError::PaymentsUnavailable)) {
        (
            "Payments are not available",
            "This site cannot take payments at the moment. You were not charged.".to_owned(),
        )
    } else if error.status().is_server_error() {
        (
            "Something went wrong",
            "The service is temporarily unavailable. Please try again in a moment.".to_owned(),
        )
    } else {
        ("Something went wrong", error.message())
    };
    let mut page = Page { title, text, icon: Icon::Warning, ..Page::default() };
    if let Some(session) = session {
        page.set_session(session);
    }
    // Converting the error logs it; only its status is used.
    let status = error.into_response().status();
    send(status, &page, session)
}

/// The form of an open session.
pub(super) fn form(
    session: &Session,
    offer: &Offer,
    answers: &FormInput,
    problems: &[FormProblem],
) -> Response {
    let (title, text, product) = about(offer);
    let fields = FieldBuilder { answers, problems };
    let known_card = offer.saved_card().map(|saved| shown(&saved.card));
    let paid = offer.target.is_paid();
    let card_is_optional = matches!(offer.target, CheckoutTarget::Details) && offer.cards == Cards::Accepted;
    let price = offer.target.price();
    let form = Form {
        product,
        person: if offer.asks_details { fields.person() } else { Vec::new() },
        amount: if matches!(offer.target, CheckoutTarget::Topup) { fields.amount() } else { Vec::new() },
        card: if paid || card_is_optional { fields.card(paid && known_card.is_none()) } else { Vec::new() },
        // A card that was just declined is not preselected.
        pays_with_known: answers.get("pay") != "card"
            && !problems.iter().any(|problem| problem.field == "card_number"),
        known_card,
        card_is_optional,
        offer: OfferFields::of(offer),
        button: match (&offer.target, price) {
            (_, Some(price)) => format!("Pay {}", dollars(price)),
            (CheckoutTarget::Topup, None) => "Pay".to_owned(),
            (CheckoutTarget::Plan { starts: PlanStart::Immediately, .. }, None) => "Subscribe".to_owned(),
            (
                CheckoutTarget::Plan { starts: PlanStart::Replacing | PlanStart::AfterCurrentCycle, .. },
                None,
            ) => "Change plan".to_owned(),
            (CheckoutTarget::Details | CheckoutTarget::Bundle { .. }, None) => "Continue".to_owned(),
        },
        problems,
    };
    let mut page = Page { title, text, form: Some(form), ..Page::default() };
    page.set_session(session);
    if let Some(known) = &offer.customer {
        page.customer_id = known.customer_id.to_string();
    }
    let status = if problems.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    send(status, &page, Some(session))
}

/// The title, text and product of the form's page.
fn about(offer: &Offer) -> (&'static str, String, Option<ProductSummary<'_>>) {
    match &offer.target {
        CheckoutTarget::Details => {
            let text = match offer.cards {
                Cards::Accepted => "Enter your details. You can add a card now or later.",
                Cards::Unavailable => "Enter your details.",
            };
            ("Your details", text.to_owned(), None)
        }
        CheckoutTarget::Topup => {
            let text = "The amount is added to your balance immediately and does not expire.";
            ("Add money", text.to_owned(), None)
        }
        CheckoutTarget::Plan { name, price, credit, interval, starts, auto_top_up, .. } => {
            let title = match starts {
                PlanStart::Immediately => "Subscribe",
                PlanStart::Replacing | PlanStart::AfterCurrentCycle => "Change your plan",
            };
            let every = match interval {
                BillingInterval::Day => "day",
                BillingInterval::Week => "week",
                BillingInterval::Month => "month",
                BillingInterval::Year => "year",
            };
            let mut terms = Vec::new();
            if !credit.is_zero() {
                terms.push(format!("{} of credit per {every}", dollars(*credit)));
            }
            if let Some(bought) = auto_top_up {
                let (credit, price) = (dollars(bought.credit), dollars(bought.price));
                terms.push(format!(
                    "Each time your credit is used up, {credit} more is bought automatically for {price}."
                ));
            }
            terms.push(
                match starts {
                    PlanStart::Immediately => "Starts today. Renews automatically.",
                    PlanStart::Replacing => "Replaces your current plan today. Renews automatically.",
                    PlanStart::AfterCurrentCycle => {
                        "Starts when your current billing period ends. You pay nothing today."
                    }
                }
                .to_owned(),
            );
            let price = if price.is_zero() { "Free".to_owned() } else { dollars(*price) };
            let interval = if price == "Free" { String::new() } else { format!("per {every}") };
            (title, String::new(), Some(ProductSummary { name, price, interval, terms }))
        }
        CheckoutTarget::Bundle { name, price, credit, .. } => {
            let terms = vec![format!("{} of credit", dollars(*credit)), "One-time payment".to_owned()];
            let product = ProductSummary { name, price: dollars(*price), interval: String::new(), terms };
            ("Buy credit", String::new(), Some(product))
        }
    }
}

impl<'a> Page<'a> {
    /// Sets the data of the session and its merchant.
    fn set_session(&mut self, session: &'a Session) {
        self.origin = &session.origin;
        self.merchant = &session.merchant;
        self.test_mode = session.test_mode;
        self.checkout_session_id = session.id.to_string();
    }
}

/// Builds fields with their submitted values and problems.
struct FieldBuilder<'a> {
    answers: &'a FormInput,
    problems: &'a [FormProblem],
}

impl<'a> FieldBuilder<'a> {
    fn field(&self, name: &'static str, kind: &'static str, autocomplete: &'static str) -> Field<'a> {
        let problem = self.problems.iter().find(|problem| problem.field == name);
        Field {
            name,
            label: label(name),
            kind,
            autocomplete,
            inputmode: if kind == "text" { "text" } else { kind },
            required: true,
            optional: false,
            hint: "",
            value: self.answers.get(name),
            error: problem.map(|problem| problem.message.as_str()),
            focused: self.problems.first().is_some_and(|first| first.field == name),
        }
    }

    fn person(&self) -> Vec<Field<'a>> {
        let phone = Field {
            required: false,
            optional: true,
            hint: "Include the country code, such as +49 30 123456.",
            ..self.field("phone", "tel", "tel")
        };
        vec![self.field("name", "text", "name"), self.field("email", "email", "email"), phone]
    }

    fn amount(&self) -> Vec<Field<'a>> {
        let amount = self.field("amount", "text", "transaction-amount");
        vec![Field { inputmode: "decimal", hint: "From $10 to $10,000.", ..amount }]
    }

    /// The card's fields. Submitted card data is never written into the page.
    fn card(&self, required: bool) -> Vec<Field<'a>> {
        let card = |name, autocomplete, hint| Field {
            inputmode: "numeric",
            required,
            hint,
            value: "",
            ..self.field(name, "text", autocomplete)
        };
        vec![
            card("card_number", "cc-number", ""),
            card("card_expiry", "cc-exp", "MM/YY, such as 04/30."),
            card("card_cvc", "cc-csc", "3 or 4 digits."),
        ]
    }
}

/// `Visa ending in 4242`.
fn shown(card: &Card) -> String {
    let mut brand = card.brand.chars();
    let first = brand.next().map(|first| first.to_ascii_uppercase()).into_iter();
    format!("{} ending in {}", first.chain(brand).collect::<String>(), card.last4)
}

/// `$12.50`: with at least two fractional digits, and more if the amount has them.
fn dollars(amount: Amount) -> String {
    let decimal = amount.decimal().normalize();
    let digits = usize::try_from(decimal.scale()).unwrap_or(0).max(2);
    format!("${decimal:.digits$}")
}

fn send(status: StatusCode, page: &Page<'_>, session: Option<&Session>) -> Response {
    let origin = session.map_or("'none'", |session| session.origin.as_str());
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => {
            return ApiError::internal(format!("a page cannot be rendered: {error}")).into_response();
        }
    };
    let Ok(policy) = HeaderValue::from_str(&format!("{POLICY} {origin}")) else {
        return ApiError::internal("an origin is not a valid header value").into_response();
    };
    let plain = HeaderValue::from_static;
    let headers = [
        (CONTENT_TYPE, plain("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, plain("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, plain("nosniff")),
        (CACHE_CONTROL, plain("no-store")),
    ];
    (status, headers, html).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_have_two_digits_or_more() {
        let shown = |text: &str| dollars(text.parse().unwrap());
        assert_eq!(shown("10"), "$10.00");
        assert_eq!(shown("12.5"), "$12.50");
        assert_eq!(shown("0.125"), "$0.125");
    }
}
