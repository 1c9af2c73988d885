//! `POST /test_clock`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{AdvanceClock, MAX_AHEAD_SECONDS};
use farthing_core::secret::Mode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::Answer;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::fields::Fields;
use crate::rest::writes::Writes;

/// By how much the clock is put forward.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `advance` reads")]
struct ClockAdvance {
    /// Whole seconds; a hundred years in all.
    #[schema(minimum = 1, maximum = 3_162_240_000_i64)]
    advance_seconds: u64,
}

/// What the merchant's clock says.
#[derive(Debug, Serialize, ToSchema)]
struct TestClock {
    now: Timestamp,
}

/// 200 with what the clock says now. Whatever is decided for the merchant from now on is decided at its time; what has
/// come due meanwhile happens at once. On a live instance there is no such route.
#[utoipa::path(
    post, path = "/test_clock", operation_id = "advance_test_clock", tag = "test_clock",
    request_body = ClockAdvance,
    responses(
        (status = 200, description = "What the merchant's clock says now.", body = TestClock),
        (status = 404, description = "route_not_found"),
    ),
)]
pub(super) async fn advance(State(app): State<Arc<App>>, writes: Writes) -> Result<Answer, ApiError> {
    if app.mode == Mode::Live {
        return Err(ApiError::NotFound(Resource::Route));
    }
    let mut fields = Fields::of(writes.json()?)?;
    let seconds = fields.count("advance_seconds");
    let seconds = fields.required("advance_seconds", seconds).and_then(|seconds| i64::try_from(seconds).ok());
    if seconds.is_some_and(|seconds| seconds > MAX_AHEAD_SECONDS) {
        fields.refuse("advance_seconds", "must be at most a hundred years");
    }
    fields.checked()?;
    let seconds = seconds.ok_or_else(|| ApiError::issue(["advance_seconds"], "is required"))?;
    let now = app.now();
    let command = AdvanceClock { merchant_id: writes.merchant_id, seconds, now };
    let render = |now: &DateTime<Utc>| Reply::ok(TestClock { now: Timestamp(*now) });
    let answer = writes.submit(command, render).await?;
    app.payments.wake();
    Ok(answer)
}
