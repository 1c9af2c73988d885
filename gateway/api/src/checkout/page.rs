//! The pages as they are sent: one template, and headers that let them load nothing but their own style and script, be
//! framed by the merchant's app alone, and be kept by nobody.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use farthing_core::event::{Card, CheckoutMode};
use farthing_core::money::Amount;
use farthing_core::plan::BillingInterval;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

use super::form::{Answers, Problem, label, told_in_the_form};
use super::offer::{Asked, Begins, Offer};
use super::session::{Session, Standing};
use crate::error::ApiError;

/// What a page may do, but for who may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'self'; frame-ancestors";

/// A page that says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Unknown,
    UnderWay,
    Closed,
    Gone,
    HasIt,
    Expired,
    Completed,
}

/// The page.
#[derive(Template, Default)]
#[template(path = "checkout.html")]
struct Page<'a> {
    title: &'a str,
    text: String,
    merchant: &'a str,
    /// No money is moved: the page says so.
    plays: bool,
    mark: Mark,
    reloads: bool,
    /// What the merchant's app is told as soon as the page is there.
    tells: &'a str,
    origin: &'a str,
    checkout_session_id: String,
    customer_id: String,
    form: Option<Form<'a>>,
}

/// The picture above a title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mark {
    #[default]
    None,
    Done,
    Waits,
    Halts,
}

/// What is for sale, at a glance.
struct Wares<'a> {
    name: &'a str,
    price: String,
    /// `a month`; empty where it is paid once.
    every: String,
    terms: Vec<String>,
}

/// The form.
#[derive(Default)]
struct Form<'a> {
    wares: Option<Wares<'a>>,
    person: Vec<Field<'a>>,
    amount: Vec<Field<'a>>,
    card: Vec<Field<'a>>,
    known_card: Option<String>,
    pays_with_known: bool,
    card_is_optional: bool,
    price: String,
    credit: String,
    button: String,
    problems: &'a [Problem],
}

/// A field of the form.
struct Field<'a> {
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    autocomplete: &'static str,
    inputmode: &'static str,
    /// The browser insists on it.
    required: bool,
    /// The label says that it need not be filled in.
    optional: bool,
    hint: &'static str,
    value: &'a str,
    error: Option<&'a str>,
    focused: bool,
}

impl Form<'_> {
    /// Is what is wrong no field's?
    fn heads(&self) -> bool {
        self.problems.first().is_some_and(|problem| !self.has(problem))
    }

    /// Is `problem` about a field that the form has?
    fn has(&self, problem: &Problem) -> bool {
        [&self.person, &self.amount, &self.card]
            .iter()
            .any(|fields| fields.iter().any(|field| field.name == problem.field))
    }
}

/// A page that says something, and tells the merchant's app of a session that is completed.
pub(super) fn notice(notice: Notice, session: Option<&Session>) -> Response {
    let (status, title, text) = match notice {
        Notice::Unknown => {
            (StatusCode::NOT_FOUND, "This link is not valid", "Please ask for a new one where you found it.")
        }
        Notice::UnderWay => {
            (StatusCode::OK, "Your payment is being made", "This page tells as soon as it is done.")
        }
        Notice::Closed => (
            StatusCode::FORBIDDEN,
            "Too many attempts",
            "This page was tried too often and takes no more payments. Please ask for a new link where you found it.",
        ),
        Notice::HasIt => {
            (StatusCode::OK, "This is your plan already", "There is nothing to be paid or changed.")
        }
        Notice::Gone => {
            (StatusCode::GONE, "Not on offer any more", "Please ask for a new link where you found this one.")
        }
        Notice::Expired => (
            StatusCode::GONE,
            "This link has expired",
            "It was good for 24 hours. Please ask for a new one where you found it.",
        ),
        Notice::Completed => (StatusCode::OK, "All done", done(session)),
    };
    let mark = match notice {
        Notice::Completed => Mark::Done,
        Notice::UnderWay => Mark::Waits,
        Notice::Unknown | Notice::Closed | Notice::Gone | Notice::HasIt | Notice::Expired => Mark::Halts,
    };
    let reloads = notice == Notice::UnderWay;
    let mut page = Page { title, text: text.to_owned(), mark, reloads, ..Page::default() };
    if let Some(session) = session {
        page.address(session);
        if let Standing::Completed(customer_id) = session.standing {
            page.customer_id = customer_id.to_string();
            page.tells = "checkout_success";
        }
    }
    send(status, &page, session)
}

/// What a completed session came to.
fn done(session: Option<&Session>) -> &'static str {
    match session.map(|session| session.created.checkout_mode) {
        Some(CheckoutMode::Onboarding) => "Your details are saved. You can close this page.",
        Some(CheckoutMode::Topup) => "The money is in your balance. You can close this page.",
        Some(CheckoutMode::Subscription) => "Your plan is set. You can close this page.",
        Some(CheckoutMode::CreditBundle) => "The credit is yours. You can close this page.",
        None => "You can close this page.",
    }
}

/// An error that is nobody's typing.
pub(super) fn failed(error: ApiError, session: Option<&Session>) -> Response {
    let (title, text) = if error.status().is_server_error() {
        ("That did not work", "The service could not answer. Please try again in a moment.".to_owned())
    } else {
        ("That did not work", error.message())
    };
    let mut page = Page { title, text, mark: Mark::Halts, ..Page::default() };
    if let Some(session) = session {
        page.address(session);
    }
    // The error's own answer is logged as any other; its envelope gives way to the page.
    let status = error.into_response().status();
    send(status, &page, session)
}

/// The form of an open session.
pub(super) fn form(session: &Session, offer: &Offer, answers: &Answers, problems: &[Problem]) -> Response {
    let (title, text, wares) = about(&offer.asked);
    let fields = Fields { answers, problems };
    let known_card = offer.customer.as_ref().and_then(|customer| customer.card.as_ref()).map(shown);
    let paid = offer.asked.is_paid();
    let known_card = known_card.filter(|_| paid);
    let card_is_optional = matches!(offer.asked, Asked::Person);
    let price = offer.asked.price();
    let (told_price, told_credit) = told_in_the_form(offer);
    let form = Form {
        wares,
        person: if offer.asks_person { fields.person() } else { Vec::new() },
        amount: if matches!(offer.asked, Asked::Money) { fields.amount() } else { Vec::new() },
        card: if paid || card_is_optional { fields.card(paid && known_card.is_none()) } else { Vec::new() },
        // One that was just declined is not offered first.
        pays_with_known: answers.get("pay") != "card"
            && !problems.iter().any(|problem| problem.field == "card_number"),
        known_card,
        card_is_optional,
        price: told_price,
        credit: told_credit,
        button: match (&offer.asked, price) {
            (_, Some(price)) => format!("Pay {}", dollars(price)),
            (Asked::Money, None) => "Pay".to_owned(),
            (Asked::Plan { begins: Begins::Now, .. }, None) => "Subscribe".to_owned(),
            (Asked::Plan { begins: Begins::Instead | Begins::AfterThisCycle, .. }, None) => {
                "Change plan".to_owned()
            }
            (Asked::Person | Asked::Bundle { .. }, None) => "Continue".to_owned(),
        },
        problems,
    };
    let mut page = Page { title, text, form: Some(form), ..Page::default() };
    page.address(session);
    if let Some(known) = &offer.customer {
        page.customer_id = known.customer_id.to_string();
    }
    let status = if problems.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    send(status, &page, Some(session))
}

/// What is asked for, in words.
fn about(asked: &Asked) -> (&'static str, String, Option<Wares<'_>>) {
    match asked {
        Asked::Person => {
            let text = "Tell us who you are. A card can be added now or later.";
            ("Your details", text.to_owned(), None)
        }
        Asked::Money => {
            let text = "It goes into your balance at once and is there until it is used.";
            ("Add money", text.to_owned(), None)
        }
        Asked::Plan { name, price, credit, interval, begins, .. } => {
            let title = match begins {
                Begins::Now => "Subscribe",
                Begins::Instead | Begins::AfterThisCycle => "Change your plan",
            };
            let every = match interval {
                BillingInterval::Day => "day",
                BillingInterval::Week => "week",
                BillingInterval::Month => "month",
                BillingInterval::Year => "year",
            };
            let mut terms = Vec::new();
            if !credit.is_zero() {
                terms.push(format!("{} of credit each {every}", dollars(*credit)));
            }
            terms.push(
                match begins {
                    Begins::Now => "Begins at once and renews by itself",
                    Begins::Instead => "Takes the place of your present plan at once and renews by itself",
                    Begins::AfterThisCycle => "Begins when your present cycle ends; nothing is paid before",
                }
                .to_owned(),
            );
            let price = if price.is_zero() { "Free".to_owned() } else { dollars(*price) };
            let every = if price == "Free" { String::new() } else { format!("a {every}") };
            (title, String::new(), Some(Wares { name, price, every, terms }))
        }
        Asked::Bundle { name, price, credit, .. } => {
            let terms = vec![format!("{} of credit", dollars(*credit)), "Paid once".to_owned()];
            let wares = Wares { name, price: dollars(*price), every: String::new(), terms };
            ("Buy credit", String::new(), Some(wares))
        }
    }
}

impl<'a> Page<'a> {
    /// Says whose page it is.
    fn address(&mut self, session: &'a Session) {
        self.origin = &session.origin;
        self.merchant = &session.merchant;
        self.plays = session.plays;
        self.checkout_session_id = session.id.to_string();
    }
}

/// The fields, each with what was typed and what is wrong.
struct Fields<'a> {
    answers: &'a Answers,
    problems: &'a [Problem],
}

impl<'a> Fields<'a> {
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
            hint: "With the country code, such as +49 30 123456.",
            ..self.field("phone", "tel", "tel")
        };
        vec![self.field("name", "text", "name"), self.field("email", "email", "email"), phone]
    }

    fn amount(&self) -> Vec<Field<'a>> {
        let amount = self.field("amount", "text", "transaction-amount");
        vec![Field { inputmode: "decimal", hint: "In dollars, from 10 to 10,000.", ..amount }]
    }

    /// What was typed of a card is not written into the page again.
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

/// `$12.50`: at least two digits, and all that there are.
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
            return ApiError::internal(format!("a page cannot be written: {error}")).into_response();
        }
    };
    let Ok(policy) = HeaderValue::from_str(&format!("{POLICY} {origin}")) else {
        return ApiError::internal("an origin that no header can hold").into_response();
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
