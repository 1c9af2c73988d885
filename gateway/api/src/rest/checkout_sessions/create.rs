//! `POST /checkout_sessions`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CreateCheckoutSession, CustomerRef, Timed};
use farthing_core::event::{CheckoutMode, CheckoutSessionCreated};
use farthing_core::ids::{CheckoutSessionId, CustomerId, MerchantId};

use super::base::Base;
use super::resource::CheckoutSession;
use super::wanted::{NewCheckoutSession, Wanted};
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::Answer;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;

/// 201 with the new session, whose page is at `url` for 24 hours.
#[utoipa::path(
    post, path = "/checkout_sessions", operation_id = "create_checkout_session", tag = "checkout_sessions",
    request_body = NewCheckoutSession,
    responses(
        (status = 201, description = "The new checkout session.", body = CheckoutSession),
        (status = 404, description = "customer_not_found plan_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    base: Base,
    writes: Writes,
) -> Result<Answer, ApiError> {
    let merchant_id = writes.merchant_id;
    let wanted = Wanted::read(writes.json()?)?;
    let customer = customer(&app, merchant_id, &wanted).await?;
    let now = app.now();
    let command = CreateCheckoutSession {
        merchant_id,
        checkout_session_id: CheckoutSessionId::new(app.mint.next(now)),
        checkout_mode: wanted.checkout_mode,
        origin_url: wanted.origin_url,
        customer: customer.map(CustomerRef::Id),
        reference_id: wanted.reference_id,
        plan_id: wanted.plan_id,
        credit_bundle_id: wanted.credit_bundle_id,
        now,
    };
    let key = app.server_key.clone();
    let render = move |(created, at): &(CheckoutSessionCreated, DateTime<Utc>)| {
        Reply::created(CheckoutSession::new(created.clone(), *at, &key, &base))
    };
    writes.submit(Timed { command, merchant_id, now }, render).await
}

/// The customer, where it is there: one that is named by its id must be, and one who buys a bundle.
async fn customer(
    app: &App,
    merchant_id: MerchantId,
    wanted: &Wanted,
) -> Result<Option<CustomerId>, ApiError> {
    let unknown = || ApiError::NotFound(Resource::Customer);
    let referred = match &wanted.reference_id {
        Some(reference) => app.customer_id(merchant_id, reference).await?,
        None => None,
    };
    if let Some(name) = &wanted.customer {
        let id = app.customer_id(merchant_id, name).await?.ok_or_else(unknown)?;
        if wanted.reference_id.is_some() && referred != Some(id) {
            return Err(ApiError::issue(["reference_id"], "names another customer than customer_id"));
        }
        return Ok(Some(id));
    }
    match wanted.checkout_mode {
        CheckoutMode::CreditBundle => referred.map(Some).ok_or_else(unknown),
        CheckoutMode::Onboarding | CheckoutMode::Topup | CheckoutMode::Subscription => Ok(referred),
    }
}
