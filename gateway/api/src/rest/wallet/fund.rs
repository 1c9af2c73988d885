//! `POST /wallet/fund`: money into the merchant's own wallet.
//!
//! Invariant: what is answered is told by the log alone: that the payment is asked for stands there with its idempotency
//! key, and how it ended beside it. So a repeated call gets the same answer, whoever died in between.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse as _, Response};
use farthing_core::command::{Paid, Payee, Purchase, RequestPayment};
use farthing_core::ids::{PaymentId, PaymentMethodId};
use farthing_core::money::Amount;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, BillingError};
use crate::idempotency::Answer;
use crate::openapi::values;
use crate::rest::body::Reply;
use crate::rest::fields::Fields;
use crate::rest::writes::Writes;

/// The least and the most, in dollars, that is paid at once.
const LEAST: i64 = 10;
const MOST: i64 = 10_000;

/// Money to be paid into the wallet.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct Funding {
    /// One of the wallet's own; the one that was added last when absent.
    payment_method_id: Option<PaymentMethodId>,
    /// Dollars, from 10 to 10,000.
    amount: values::FundingAmount,
}

struct Wanted {
    payment_method_id: Option<PaymentMethodId>,
    amount: Amount,
}

impl Wanted {
    fn read(json: &str) -> Result<Self, ApiError> {
        let mut fields = Fields::of(json)?;
        let payment_method_id = fields.ruled("payment_method_id", |text| {
            text.parse().map_err(|_| "must be the id of a payment method".to_owned())
        });
        let amount = fields.payable("amount");
        let amount = fields.required("amount", amount);
        let in_range = |amount: Amount| (LEAST.into()..=MOST.into()).contains(&amount.decimal());
        if amount.is_some_and(|amount| !in_range(amount)) {
            fields.refuse("amount", "must be from 10 to 10000");
        }
        fields.checked()?;
        let amount = amount.ok_or_else(|| ApiError::issue(["amount"], "is required"))?;
        Ok(Self { payment_method_id, amount })
    }
}

/// How a payment into the wallet ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Funded {
    /// `succeeded`; a payment that was declined is 402.
    status: &'static str,
    payment_id: PaymentId,
    /// The wallet's balance right after the payment, in dollars.
    balance: Amount,
}

/// What is kept under the idempotency key: which payment it began.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    payment_id: PaymentId,
}

/// A funding of a merchant, and the payment that an earlier call of the same began.
pub(super) struct Fundings {
    writes: Writes,
    begun: Option<Answer>,
}

impl FromRequest<Arc<App>> for Fundings {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Response> {
        let (writes, begun) =
            Writes::with_answer_before(request, app).await.map_err(ApiError::into_response)?;
        match begun {
            Some(answer) if answer.status != StatusCode::ACCEPTED => Err(answer.into_response()),
            begun => Ok(Self { writes, begun }),
        }
    }
}

/// 200 once the money is in the wallet.
#[utoipa::path(
    post, path = "/wallet/fund", operation_id = "fund_wallet", tag = "wallet",
    request_body = Funding,
    responses(
        (status = 200, description = "The payment succeeded, and the money is in the wallet.", body = Funded),
        (status = 402, description = "payment_declined"),
        (status = 404, description = "payment_method_not_found"),
        (status = 409, description = "payment_in_progress"),
    ),
)]
pub(super) async fn fund(
    State(app): State<Arc<App>>,
    Fundings { writes, begun }: Fundings,
) -> Result<Answer, ApiError> {
    let begun = match begun {
        Some(begun) => begun,
        None => begin(&app, &writes).await?,
    };
    if begun.status != StatusCode::ACCEPTED {
        return Ok(begun);
    }
    let Begun { payment_id } = serde_json::from_slice(&begun.body)
        .map_err(|error| ApiError::internal(format!("what is kept of a funding: {error}")))?;
    match ended(&app, payment_id).await {
        Ok(answer) => Ok(answer.given_like(&begun)),
        // It is asked for, and will be carried out: who asked is not to ask for another one.
        Err(error) => {
            tracing::warn!(%payment_id, ?error, "a funding is under way still");
            Err(ApiError::Billing(BillingError::PaymentInProgress))
        }
    }
}

/// The payment is carried out; how it ended.
async fn ended(app: &App, payment_id: PaymentId) -> Result<Answer, ApiError> {
    match app.payments.carry_out(payment_id).await? {
        Paid::Declined(reason) => Ok(ApiError::Billing(BillingError::PaymentDeclined(reason)).into()),
        Paid::Accepted(_) => {
            let balance = app.payments.balance_after(payment_id).await?;
            Ok(Reply::ok(Funded { status: "succeeded", payment_id, balance }).into())
        }
        Paid::TakenBack(_) => Err(ApiError::internal(format!("{payment_id}: a merchant is never deleted"))),
    }
}

/// The payment is asked for.
async fn begin(app: &App, writes: &Writes) -> Result<Answer, ApiError> {
    let Wanted { payment_method_id, amount } = Wanted::read(writes.json()?)?;
    let now = app.now();
    let payment_id = PaymentId::new(app.mint.next(now));
    let command = RequestPayment {
        merchant_id: writes.merchant_id,
        payment_id,
        payee: Payee::Merchant,
        payment_method_id,
        purchase: Purchase::Fund(amount),
        offered: None,
        checkout_session_id: None,
        now,
    };
    writes.submit(command, move |()| Reply::accepted(Begun { payment_id })).await
}
