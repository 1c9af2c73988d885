//! Reads the page's form. Invariant: types that hold card data have no `Debug`, and card data is never written into a
//! page.

use std::collections::BTreeMap;

use farthing_core::command::PersonalData;
use farthing_core::ids::PaymentMethodId;
use farthing_core::money::Amount;

use super::offer::{CheckoutTarget, Offer, PlanStart};
use crate::rules::{self, split_name};
use farthing_worker::payments::CardInput;

/// The submitted values by field name. No `Debug`: they include card data.
#[derive(Default)]
pub(super) struct FormInput(BTreeMap<String, String>);

/// A problem with a field of the form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormProblem {
    /// The field's name.
    pub(super) field: &'static str,
    /// The message, one sentence.
    pub(super) message: String,
}

/// A valid form. No `Debug`: it includes card data.
pub(super) struct Submission {
    /// The customer's details; `None` if the form does not ask for them.
    pub(super) person: Option<PersonalData>,
    /// The amount of a top-up.
    pub(super) amount: Option<Amount>,
    /// The payment method.
    pub(super) payment: PaymentChoice,
}

/// The payment method that the form chooses.
pub(super) enum PaymentChoice {
    /// No payment method.
    None,
    /// The wallet's saved card, which the page showed.
    SavedCard(PaymentMethodId),
    /// A new card.
    Card(CardInput),
}

impl FormProblem {
    /// A problem whose message is the field's label followed by `message`.
    pub(super) fn new(field: &'static str, message: &str) -> Self {
        Self { field, message: format!("{} {message}.", label(field)) }
    }

    /// The offer has changed since the form was shown.
    pub(super) fn changed() -> Self {
        Self { field: "pay", message: "The offer has changed. Please review it and try again.".to_owned() }
    }

    /// A payment that another page began is in progress.
    pub(super) fn in_progress() -> Self {
        let message = "Another payment is in progress. You were not charged.";
        Self { field: "pay", message: message.to_owned() }
    }
}

/// The label of a field.
pub(super) fn label(field: &str) -> &'static str {
    match field {
        "name" => "Name",
        "email" => "Email address",
        "phone" => "Phone number",
        "amount" => "Amount",
        "card_number" => "Card number",
        "card_expiry" => "Expiry date",
        "card_cvc" => "Security code",
        _ => "This field",
    }
}

impl FormInput {
    /// Reads a form.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut answers = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(bytes) {
            answers.entry(name.into_owned()).or_insert_with(|| value.trim().to_owned());
        }
        Self(answers)
    }

    /// The value of a field; empty if it is missing.
    pub(super) fn get(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }
}

/// The valid form, or all its problems.
pub(super) fn read(answers: &FormInput, offer: &Offer) -> Result<Submission, Vec<FormProblem>> {
    let mut reader = FormReader { answers, problems: Vec::new() };
    let person = offer.asks_details.then(|| reader.person());
    let amount = matches!(offer.target, CheckoutTarget::Topup).then(|| reader.amount()).flatten();
    let payment = reader.payment(offer);
    if !OfferFields::of(offer).are_in(answers, &payment) {
        reader.problems.push(FormProblem::changed());
    }
    if reader.problems.is_empty() { Ok(Submission { person, amount, payment }) } else { Err(reader.problems) }
}

/// The values that the form submits as hidden fields, to detect a changed offer.
pub(super) struct OfferFields {
    /// The price, also if it is not paid now; empty without a fixed price.
    pub(super) price: String,
    /// The credit; empty without a fixed price.
    pub(super) credit: String,
    /// The price and credit of what a plan buys automatically; empty if it buys nothing.
    pub(super) auto_top_up: String,
    /// `later` if a plan starts when the current billing period ends, `replacing` if it replaces the current plan now;
    /// otherwise empty.
    pub(super) starts: &'static str,
    /// The saved card; empty without one.
    pub(super) payment_method_id: String,
}

impl OfferFields {
    /// The fields of this offer.
    pub(super) fn of(offer: &Offer) -> Self {
        let offered = offer.target.offered();
        let auto_top_up = offered.and_then(|offered| offered.auto_top_up);
        let auto_top_up = auto_top_up.map(|bought| format!("{} {}", bought.price, bought.credit));
        let offered = offered.map(|offered| (offered.price.to_string(), offered.credit.to_string()));
        let (price, credit) = offered.unwrap_or_default();
        let starts = match offer.target {
            CheckoutTarget::Plan { starts: PlanStart::AfterCurrentCycle, .. } => "later",
            CheckoutTarget::Plan { starts: PlanStart::Replacing, .. } => "replacing",
            CheckoutTarget::Plan { starts: PlanStart::Immediately, .. }
            | CheckoutTarget::Details
            | CheckoutTarget::Topup
            | CheckoutTarget::Bundle { .. } => "",
        };
        let saved = offer.saved_card();
        let payment_method_id = saved.map(|saved| saved.payment_method_id.to_string()).unwrap_or_default();
        let auto_top_up = auto_top_up.unwrap_or_default();
        Self { price, credit, auto_top_up, starts, payment_method_id }
    }

    /// Whether the form has these values. The saved card counts only if it pays.
    fn are_in(&self, answers: &FormInput, payment: &PaymentChoice) -> bool {
        let is_same_card = match payment {
            PaymentChoice::SavedCard(_) => answers.get("payment_method_id") == self.payment_method_id,
            PaymentChoice::Card(_) | PaymentChoice::None => true,
        };
        is_same_card
            && answers.get("price") == self.price
            && answers.get("credit") == self.credit
            && answers.get("auto_top_up") == self.auto_top_up
            && answers.get("starts") == self.starts
    }
}

struct FormReader<'a> {
    answers: &'a FormInput,
    problems: Vec<FormProblem>,
}

impl FormReader<'_> {
    fn wrong(&mut self, field: &'static str, message: &str) {
        self.problems.push(FormProblem::new(field, message));
    }

    fn ruled(
        &mut self,
        field: &'static str,
        required: bool,
        rule: impl FnOnce(String) -> Result<String, String>,
    ) -> Option<String> {
        let text = self.answers.get(field);
        if text.is_empty() {
            if required {
                self.wrong(field, "is required");
            }
            return None;
        }
        rule(text.to_owned()).map_err(|message| self.wrong(field, &message)).ok()
    }

    fn person(&mut self) -> PersonalData {
        let name = self.ruled("name", true, |name| rules::text(name, rules::MAX_TEXT));
        let email = self.ruled("email", true, rules::email);
        let phone = self.ruled("phone", false, |phone| {
            let plain = phone.chars().filter(|c| !matches!(c, ' ' | '-' | '(' | ')' | '.' | '/')).collect();
            rules::phone(plain)
        });
        let (first_name, last_name) = name.as_deref().map(split_name).unwrap_or_default();
        PersonalData { first_name, last_name, email, phone }
    }

    fn amount(&mut self) -> Option<Amount> {
        let text = self.answers.get("amount");
        let text = text.strip_prefix('$').unwrap_or(text);
        let amount = text.parse::<Amount>().ok().filter(|amount| {
            (rules::MIN_FUNDING.into()..=rules::MAX_FUNDING.into()).contains(&amount.decimal())
                && rules::is_payable(*amount)
        });
        if amount.is_none() {
            self.wrong("amount", "must be between $10 and $10,000, such as 25 or 12.50");
        }
        amount
    }

    fn payment(&mut self, offer: &Offer) -> PaymentChoice {
        let typed = ["card_number", "card_expiry", "card_cvc"];
        let typed = typed.iter().any(|field| !self.answers.get(field).is_empty());
        let paid = offer.target.is_paid();
        if let Some(saved) = offer.saved_card()
            && self.answers.get("pay") == "known"
        {
            return PaymentChoice::SavedCard(saved.payment_method_id);
        }
        let offered = matches!(offer.target, CheckoutTarget::Details) && typed;
        if !paid && !offered {
            return PaymentChoice::None;
        }
        let before = self.problems.len();
        let number = self.ruled("card_number", true, Ok).unwrap_or_default();
        let expiry = self.ruled("card_expiry", true, Ok);
        let cvc = self.ruled("card_cvc", true, Ok).unwrap_or_default();
        let month_and_year = expiry.as_deref().and_then(month_and_year);
        if expiry.is_some() && month_and_year.is_none() {
            self.wrong("card_expiry", "must be a month and year, such as 04/30");
        }
        match month_and_year {
            Some((exp_month, exp_year)) if self.problems.len() == before => {
                PaymentChoice::Card(CardInput { number, exp_month, exp_year, cvc })
            }
            Some(_) | None => PaymentChoice::None,
        }
    }
}

/// `04/30`, `04 / 2030` and the like.
fn month_and_year(text: &str) -> Option<(u8, u16)> {
    let digits: String = text.chars().filter(|c| !matches!(c, ' ' | '/' | '-' | '.')).collect();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (month, year) = digits.split_at_checked(2)?;
    let year = match year.len() {
        2 => format!("20{year}"),
        4 => year.to_owned(),
        _ => return None,
    };
    Some((month.parse().ok()?, year.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::offer::Cards;
    use super::*;

    fn read_money(form: &str) -> Result<Submission, Vec<FormProblem>> {
        read(
            &FormInput::of(form.as_bytes()),
            &Offer {
                customer: None,
                asks_details: true,
                target: CheckoutTarget::Topup,
                cards: Cards::Accepted,
            },
        )
    }

    fn wrong(form: &str) -> Vec<&'static str> {
        let Err(problems) = read_money(form) else { panic!("accepted: {form}") };
        problems.into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn everything_that_is_missing_is_told() {
        assert_eq!(wrong(""), ["name", "email", "amount", "card_number", "card_expiry", "card_cvc"]);
        let blank = wrong("name=+%09%C2%A0&email=+");
        assert_eq!(blank, ["name", "email", "amount", "card_number", "card_expiry", "card_cvc"]);
        let person = "name=Ada+King&email=ada%40example.com&phone=%2B49+30-123456";
        assert_eq!(
            wrong(&format!("{person}&amount=9.99&card_number=1&card_expiry=1&card_cvc=1")),
            ["amount", "card_expiry"]
        );
        let good = format!("{person}&amount=%2412.50&card_number=4242&card_expiry=04+/+2031&card_cvc=123");
        let submission = read_money(&good).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(submission.amount, "12.5".parse().ok());
        assert_eq!(submission.person.unwrap().phone.as_deref(), Some("+4930123456"));
        let PaymentChoice::Card(card) = submission.payment else { panic!("no card") };
        assert_eq!((card.exp_month, card.exp_year), (4, 2031));
    }

    #[test]
    fn an_amount_is_of_whole_cents_within_its_bounds() {
        let wrongs = ["0", "-10", "9.99", "10000.01", "12.345", "1e3", "ten", "99999999999999999999"];
        for amount in wrongs.into_iter().chain(["%24%2425", "25%24", "%24-25", "1_000", "25."]) {
            let form = format!("name=A&email=a@b&amount={amount}&card_number=1&card_expiry=0130&card_cvc=1");
            assert_eq!(wrong(&form), ["amount"], "{amount}");
        }
    }

    #[test]
    fn a_date_is_read_as_people_write_it() {
        for (text, read) in [
            ("04/30", Some((4, 2030))),
            ("0430", Some((4, 2030))),
            ("04 - 2030", Some((4, 2030))),
            ("4/30", None),
            ("é4/30", None),
            ("0", None),
            ("٠٤/٣٠", None),
        ] {
            assert_eq!(month_and_year(text), read, "{text}");
        }
    }
}
