//! `POST /wallet/fund`: money into the merchant's own wallet.
//!
//! Invariant: the answer comes from the log alone, which holds the payment's request with its idempotency key and the
//! payment's result. So a repeated call gets the same answer, even if a process died in between.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse as _, Response};
use farthing_core::command::{Paid, Payee, Purchase, RequestPayment};
use farthing_core::ids::{MerchantId, PaymentId, PaymentMethodId};
use farthing_core::money::Amount;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, BillingError};
use crate::idempotency::StoredResponse;
use crate::input;
use crate::request_id;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;
use crate::values;
use farthing_worker::payments;

/// A payment into the wallet.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Funding)]
struct FundingBody {
    /// A payment method of the wallet; by default the one that was added last.
    payment_method_id: Option<PaymentMethodId>,
    /// Dollars, from 10 to 10,000.
    amount: values::FundingAmount,
}

/// The result of a payment into the wallet.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Funded {
    /// `succeeded`; a payment that was declined is 402.
    status: &'static str,
    payment_id: PaymentId,
    /// The wallet's balance right after the payment, in dollars.
    balance: Amount,
}

/// The record under the idempotency key: the payment that the call started.
#[derive(Debug, Serialize, Deserialize)]
struct StartedPayment {
    payment_id: PaymentId,
}

/// A funding call, with the answer that an earlier call with the same idempotency key stored.
pub(super) struct FundingCall {
    writes: Writes,
    started: Option<StoredResponse>,
}

impl FromRequest<Arc<App>> for FundingCall {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Response> {
        let (writes, started) =
            Writes::with_stored_answer(request, app).await.map_err(ApiError::into_response)?;
        match started {
            Some(answer) if answer.status != StatusCode::ACCEPTED => Err(answer.into_response()),
            started => Ok(Self { writes, started }),
        }
    }
}

/// 200 once the money is in the wallet.
#[utoipa::path(
    post, path = "/wallet/fund", operation_id = "fund_wallet", tag = "wallet",
    request_body = FundingBody,
    responses(
        (status = 200, description = "The payment succeeded, and the money is in the wallet.", body = Funded),
        (status = 402, description = "payment_declined"),
        (status = 404, description = "payment_method_not_found"),
        (status = 409, description = "payment_in_progress"),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn fund(
    State(app): State<Arc<App>>,
    FundingCall { writes, started }: FundingCall,
) -> Result<StoredResponse, ApiError> {
    app.payments.processor()?;
    let started = match started {
        Some(started) => started,
        None => start(&app, &writes).await?,
    };
    if started.status != StatusCode::ACCEPTED {
        return Ok(started);
    }
    let StartedPayment { payment_id } = serde_json::from_slice(&started.body)
        .map_err(|error| ApiError::internal(format!("the stored payment of a funding call: {error}")))?;
    match carry_out(&app, writes.merchant_id, payment_id).await {
        Ok(answer) => Ok(answer.given_like(&started)),
        // The payment is in the log and will be carried out, so the caller must not start another one.
        Err(error) => {
            let request_id = request_id::log_field();
            tracing::warn!(
                event = "wallet.funding_pending",
                request_id,
                %payment_id,
                ?error,
                "funding still in progress"
            );
            Err(ApiError::Billing(BillingError::PaymentInProgress))
        }
    }
}

/// Carries out the payment and answers with its result.
async fn carry_out(
    app: &App,
    merchant_id: MerchantId,
    payment_id: PaymentId,
) -> Result<StoredResponse, ApiError> {
    let partition = app.partition(merchant_id);
    match app.payments.carry_out(partition, payment_id).await? {
        Paid::Declined(reason) => Ok(ApiError::Billing(BillingError::PaymentDeclined(reason)).into()),
        Paid::Accepted(_) => {
            let connection = app.read_after_write(merchant_id).await?;
            let balance = payments::balance_after(&connection, partition, payment_id);
            let balance = connection.within(balance).await?;
            Ok(Reply::ok(Funded { status: "succeeded", payment_id, balance }).into())
        }
        Paid::Voided(_) => Err(ApiError::internal(format!(
            "{payment_id} was taken back although merchants are never deleted"
        ))),
    }
}

/// Requests the payment in the log.
async fn start(app: &App, writes: &Writes) -> Result<StoredResponse, ApiError> {
    let FundingBody { payment_method_id, amount } = input::body(writes.json()?)?;
    let now = app.now();
    let payment_id = PaymentId::new(app.mint.next(now));
    let command = RequestPayment {
        merchant_id: writes.merchant_id,
        payment_id,
        payee: Payee::Merchant,
        payment_method_id,
        purchase: Purchase::Fund(amount.0),
        offered: None,
        checkout_session_id: None,
        now,
    };
    writes.submit(command, move |()| Reply::accepted(StartedPayment { payment_id })).await
}
