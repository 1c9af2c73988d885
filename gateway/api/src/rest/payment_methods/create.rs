//! `POST /payment_methods`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{AddPaymentMethod, Payee, Timed};
use farthing_core::ids::PaymentMethodId;
use serde::Deserialize;
use utoipa::ToSchema;

use super::resource::PaymentMethod;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;
use crate::values;
use farthing_worker::payments::{CardInput, CardRefused};

/// A card for the merchant's own wallet.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewPaymentMethod)]
struct NewPaymentMethodBody {
    card: NewCard,
}

// No `Debug`: it is card data.
/// A card. It is passed to the payment processor and not stored.
#[derive(Deserialize, ToSchema)]
struct NewCard {
    /// The card number. The built-in `test` processor takes the well-known test numbers.
    number: values::CardText,
    #[schema(value_type = u64, minimum = 1, maximum = 12)]
    exp_month: values::Count,
    #[schema(value_type = u64, minimum = 2000, maximum = 2099)]
    exp_year: values::Count,
    /// Three or four digits.
    cvc: values::CardText,
}

impl From<NewCard> for CardInput {
    fn from(card: NewCard) -> Self {
        Self {
            number: card.number.0,
            // A number that is too large becomes 0, which the processor refuses.
            exp_month: u8::try_from(card.exp_month.0).unwrap_or(0),
            exp_year: u16::try_from(card.exp_year.0).unwrap_or(0),
            cvc: card.cvc.0,
        }
    }
}

/// 201 with the payment method. It becomes the default of the wallet.
#[utoipa::path(
    post, path = "/payment_methods", operation_id = "create_payment_method", tag = "payment_methods",
    request_body = NewPaymentMethodBody,
    responses(
        (status = 201, description = "The payment method.", body = PaymentMethod),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    app.payments.processor()?;
    let body: NewPaymentMethodBody = input::body(writes.json()?)?;
    let stored = app.payments.store(body.card.into()).await?;
    let (processor, stored) = stored.map_err(|refused| {
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
        processor: processor.to_owned(),
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
