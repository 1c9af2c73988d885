//! `POST /requests`: reports usage that was measured elsewhere; idempotent by `request_id` (completion.md section 5).

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{Metered, ReportRequest, Reported, Timed};
use farthing_core::event::{Event, RequestEvent, RequestMetered, RequestOpened};
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_core::secret;
use farthing_log::reader;
use farthing_projector::ReadModel;
use farthing_projector::requests::query::{self, RequestRow};
use tokio_postgres::Client;

use super::report::{NewRequestBody, Report};
use super::resource::Request;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::rest::body::Reply;
use crate::rest::reads::Reads;
use crate::rest::writes::{Rendered, Submitted, Writes};

/// 201 with the new request, or 200 with the unchanged request that was reported with this id before.
#[utoipa::path(
    post, path = "/requests", operation_id = "report_request", tag = "requests",
    request_body = NewRequestBody,
    responses(
        (status = 201, description = "The request, priced and charged.", body = Request),
        (status = 200, description = "The unchanged request that was reported with this id before.", body = Request),
        (status = 400, description = "model_not_priced"),
        (status = 404, description = "customer_not_found meter_not_found"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    reads: Reads,
    writes: Writes,
) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let report = Report::read(writes.json()?)?;
    let now = app.now();
    let list_price = app.providers.listed(&report.provider, report.metered.model.as_deref());
    let command = ReportRequest {
        merchant_id,
        reported_id: report.reported_id,
        request_id: RequestId::new(app.mint.next(now)),
        gateway_id: app.gateway_id,
        customer: report.customer,
        meter: report.meter,
        provider: masked(&report.provider),
        endpoint: masked(&report.endpoint),
        metadata: secret::masked_pairs(&report.metadata),
        list_price,
        metered: Metered {
            response_id: report.metered.response_id.as_deref().map(masked),
            model: report.metered.model.as_deref().map(masked),
            ..report.metered
        },
        service_charge_rate: app.settings.service_charge_rate,
        now,
    };
    let render = move |(outcome, at): &(Reported, DateTime<Utc>)| match outcome {
        Reported::New(opened, metered) => {
            let row = RequestRow::reported((**opened).clone(), (**metered).clone(), *at);
            Rendered::Reply(Reply::created(Request::from(row)))
        }
        Reported::Existing(id) => Rendered::Later(*id),
    };
    match writes.submit_or_read(Timed { command, merchant_id, now }, render).await? {
        Submitted::Response(answer) => Ok(answer),
        Submitted::Later(id) => {
            let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
            let found = within(query::find(connection.partition(), merchant_id, &id.to_string())).await?;
            let row = if let Some(row) = found {
                row
            } else {
                let reported = as_reported(&connection, app.partitions.of(merchant_id), id);
                connection.within(reported).await?
            };
            writes.keep(Reply::ok(Request::from(row))).await
        }
    }
}

/// `text` as it is recorded: without secrets of this service.
fn masked(text: &str) -> String {
    secret::masked(text).into_owned()
}

/// Reads the request from the log, while the read model lags. It was opened and metered in one commit.
async fn as_reported(client: &Client, partition: Partition, id: RequestId) -> Result<RequestRow, ApiError> {
    let (mut opened, mut metered): (Option<RequestOpened>, Option<RequestMetered>) = (None, None);
    let mut at = DateTime::UNIX_EPOCH;
    for recorded in reader::find_commit(client, partition, &format!("{id}/opened")).await? {
        match recorded.fact.event {
            Event::Request(RequestEvent::Opened(event)) if event.request_id == id => opened = Some(*event),
            Event::Request(RequestEvent::Metered(event)) if event.request_id == id => {
                (metered, at) = (Some(*event), recorded.fact.occurred_at);
            }
            _ => {}
        }
    }
    match (opened, metered) {
        (Some(opened), Some(metered)) => Ok(RequestRow::reported(opened, metered, at)),
        _ => Err(ApiError::internal(format!("{id} was reported and is not in the log"))),
    }
}
