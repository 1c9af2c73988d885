//! `POST /test_clock`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{AdvanceClock, MAX_AHEAD_SECONDS};
use farthing_core::secret::Mode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::writes::Writes;
use crate::values;

/// How far to move the clock forward.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ClockAdvance)]
struct ClockAdvanceBody {
    /// Whole seconds, in total at most a hundred years.
    #[schema(value_type = u64, minimum = 1, maximum = 3_162_240_000_i64)]
    advance_seconds: values::Count,
}

/// The merchant's clock.
#[derive(Debug, Serialize, ToSchema)]
struct TestClock {
    now: Timestamp,
}

/// 200 with the new time. The merchant's time applies to everything from now on, and work that has become due is done at
/// once. A live instance has no such route.
#[utoipa::path(
    post, path = "/test_clock", operation_id = "advance_test_clock", tag = "test_clock",
    request_body = ClockAdvanceBody,
    responses(
        (status = 200, description = "The merchant's time after the change.", body = TestClock),
        (status = 404, description = "route_not_found"),
    ),
)]
pub(super) async fn advance(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    if app.mode == Mode::Live {
        return Err(ApiError::NotFound(Resource::Route));
    }
    let body: ClockAdvanceBody = input::body(writes.json()?)?;
    let seconds = i64::try_from(body.advance_seconds.0).unwrap_or(i64::MAX);
    if seconds > MAX_AHEAD_SECONDS {
        return Err(ApiError::issue(["advance_seconds"], "must be at most a hundred years"));
    }
    let now = app.now();
    let command = AdvanceClock { merchant_id: writes.merchant_id, seconds, now };
    let render = |now: &DateTime<Utc>| Reply::ok(TestClock { now: Timestamp(*now) });
    let answer = writes.submit(command, render).await?;
    app.payments.wake();
    Ok(answer)
}
