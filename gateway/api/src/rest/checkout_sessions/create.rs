//! `POST /checkout_sessions`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CreateCheckoutSession, CustomerRef, Timed};
use farthing_core::event::{CheckoutMode, CheckoutSessionCreated};
use farthing_core::ids::{CheckoutSessionId, CustomerId, MerchantId};
use farthing_core::state::{State as Stored, StateKey};

use super::body::{NewCheckoutSessionBody, NewSession};
use super::resource::CheckoutSession;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;

/// 201 with the new session. Its page is available at `url` for 24 hours.
#[utoipa::path(
    post, path = "/checkout_sessions", operation_id = "create_checkout_session", tag = "checkout_sessions",
    request_body = NewCheckoutSessionBody,
    responses(
        (status = 201, description = "The new checkout session.", body = CheckoutSession),
        (status = 404, description = "customer_not_found plan_not_found credit_bundle_not_found"),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let session = input::body::<NewCheckoutSessionBody>(writes.json()?)?.checked()?;
    if takes_money(&app, merchant_id, &session).await? {
        app.payments.processor()?;
    }
    let customer = customer(&app, merchant_id, &session).await?;
    let now = app.now();
    let command = CreateCheckoutSession {
        merchant_id,
        checkout_session_id: CheckoutSessionId::new(app.mint.next(now)),
        checkout_mode: session.checkout_mode,
        origin_url: session.origin_url,
        customer: customer.map(CustomerRef::Id),
        reference_id: session.reference_id,
        plan_id: session.plan_id,
        credit_bundle_id: session.credit_bundle_id,
        now,
    };
    let (key, pages) = (app.server_key.clone(), app.pages_url.clone());
    let render = move |(created, at): &(CheckoutSessionCreated, DateTime<Utc>)| {
        Reply::created(CheckoutSession::new(created.clone(), *at, &key, &pages))
    };
    writes.submit(Timed { command, merchant_id, now }, render).await
}

/// Whether the session is there to pay something. One for an unknown plan is refused later.
async fn takes_money(app: &App, merchant_id: MerchantId, session: &NewSession) -> Result<bool, ApiError> {
    match (session.checkout_mode, session.plan_id) {
        (CheckoutMode::Topup | CheckoutMode::CreditBundle, _) => Ok(true),
        (CheckoutMode::Onboarding | CheckoutMode::Subscription, Some(plan_id)) => {
            match app.state(merchant_id, StateKey::Plan(plan_id)).await? {
                Some(Stored::Plan(plan)) => Ok(plan.merchant_id == merchant_id && !plan.terms.is_free()),
                Some(_) | None => Ok(false),
            }
        }
        (CheckoutMode::Onboarding | CheckoutMode::Subscription, None) => Ok(false),
    }
}

/// The existing customer of the session. It must exist if `customer_id` names it, or if it buys a bundle.
async fn customer(
    app: &App,
    merchant_id: MerchantId,
    session: &NewSession,
) -> Result<Option<CustomerId>, ApiError> {
    let unknown = || ApiError::NotFound(Resource::Customer);
    let referred = match &session.reference_id {
        Some(reference) => app.customer_id(merchant_id, reference).await?,
        None => None,
    };
    if let Some(name) = &session.customer {
        let id = app.customer_id(merchant_id, name).await?.ok_or_else(unknown)?;
        if session.reference_id.is_some() && referred != Some(id) {
            return Err(ApiError::issue(["reference_id"], "must name the same customer as customer_id"));
        }
        return Ok(Some(id));
    }
    match session.checkout_mode {
        CheckoutMode::CreditBundle => referred.map(Some).ok_or_else(unknown),
        CheckoutMode::Onboarding | CheckoutMode::Topup | CheckoutMode::Subscription => Ok(referred),
    }
}
