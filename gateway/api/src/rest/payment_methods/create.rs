//! `POST /payment_methods`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{AddPaymentMethod, Payee, Timed};
use farthing_core::ids::PaymentMethodId;
use utoipa::ToSchema;

use super::resource::PaymentMethod;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::Answer;
use crate::openapi::values;
use crate::rest::body::Reply;
use crate::rest::fields::Fields;
use crate::rest::writes::Writes;
use farthing_worker::payments::{CardInput, CardRefused};

/// A card of the merchant's own.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `card` reads")]
struct NewPaymentMethod {
    card: NewCard,
}

/// The card goes to the payment processor and is kept nowhere else.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `card` reads")]
struct NewCard {
    /// Its number; on the built-in `test` processor one of the well-known test numbers.
    number: values::Text,
    #[schema(minimum = 1, maximum = 12)]
    exp_month: u64,
    #[schema(minimum = 2000, maximum = 2099)]
    exp_year: u64,
    /// Three or four digits.
    cvc: values::Text,
}

/// The longest number that is looked at, in characters.
const MAX_NUMBER: usize = 64;

fn card(json: &str) -> Result<CardInput, ApiError> {
    let mut fields = Fields::of(json)?;
    let card = fields.object("card", |card| {
        let number = card.text("number", MAX_NUMBER);
        let number = card.required("number", number);
        let exp_month = card.count("exp_month");
        let exp_month = card.required("exp_month", exp_month);
        let exp_year = card.count("exp_year");
        let exp_year = card.required("exp_year", exp_year);
        let cvc = card.text("cvc", MAX_NUMBER);
        let cvc = card.required("cvc", cvc);
        Some(CardInput {
            number: number?,
            // What is out of range is no month and no year to come.
            exp_month: u8::try_from(exp_month?).unwrap_or(0),
            exp_year: u16::try_from(exp_year?).unwrap_or(0),
            cvc: cvc?,
        })
    });
    let card = fields.required("card", card);
    fields.checked()?;
    card.ok_or_else(|| ApiError::issue(["card"], "is required"))
}

/// 201 with the payment method, which payments are made with from now on.
#[utoipa::path(
    post, path = "/payment_methods", operation_id = "create_payment_method", tag = "payment_methods",
    request_body = NewPaymentMethod,
    responses((status = 201, description = "The payment method.", body = PaymentMethod)),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<Answer, ApiError> {
    let stored = app.payments.processor().store(card(writes.json()?)?).await;
    let stored =
        stored.map_err(|why| ApiError::ledger_unavailable(format!("the payment processor: {why}")))?;
    let stored = stored.map_err(|refused| {
        let part = match refused {
            CardRefused::Number => "number",
            CardRefused::Expiry => "exp_month",
            CardRefused::Cvc => "cvc",
        };
        ApiError::issue(["card", part], refused.to_string())
    })?;
    let now = app.now();
    let payment_method_id = PaymentMethodId::new(app.mint.next(now));
    let command = AddPaymentMethod {
        merchant_id: writes.merchant_id,
        payee: Payee::Merchant,
        payment_method_id,
        processor: app.payments.processor().name().to_owned(),
        token: stored.token,
        card: stored.card.clone(),
        now,
    };
    let card = stored.card;
    let render = move |((), at): &((), DateTime<Utc>)| {
        Reply::created(PaymentMethod::new(payment_method_id, card.clone(), true, *at))
    };
    writes.submit(Timed { command, merchant_id: writes.merchant_id, now }, render).await
}
