//! The path of every POST into the ledger. Invariant: with an `Idempotency-Key`, the answer is stored in the transaction
//! of its events, so that a repeated call gets the same answer and has no second effect, on any gateway (completion.md
//! section 1).

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts as _, OriginalUri, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use farthing_core::command::wire::WireCommand;
use farthing_core::command::{AlreadyApplied, Refusal};
use farthing_core::idempotency::{Claim, Scope};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::appender::{ClaimRecord, IdempotentOutcome};
use farthing_log::claims;
use http::HeaderMap;
use http::request::Parts;
use serde::Serialize;

use super::authenticate::Merchant;
use super::body::{self, Reply};
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::idempotency::{self, StoredResponse};

/// A merchant's POST, read whole. A repeated call with a stored answer is answered during extraction.
pub(super) struct Writes {
    /// The caller.
    pub(super) merchant_id: MerchantId,
    app: Arc<App>,
    headers: HeaderMap,
    body: Bytes,
    claim: Option<Claim>,
}

impl FromRequest<Arc<App>> for Writes {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let read = Self::read(&mut parts, body, app).await;
        let writes = read.map_err(ApiError::into_response)?;
        match writes.stored_response().await {
            Ok(None) => Ok(writes),
            Ok(Some(answer)) => Err(answer.into_response()),
            Err(error) => Err(error.into_response()),
        }
    }
}

/// The rendering of a command's outcome.
pub(super) enum Rendered<T, L> {
    /// The answer.
    Reply(Reply<T>),
    /// Nothing was written, and the answer must be read first and then stored by [`Writes::keep`].
    Later(L),
}

/// The result of a submitted command.
pub(super) enum Submitted<L> {
    /// The answer.
    Response(StoredResponse),
    /// As [`Rendered::Later`].
    Later(L),
}

impl Writes {
    /// Submits `command`. `render` makes the answer from its outcome, without I/O: it runs within the transaction and may
    /// run several times.
    pub(super) async fn submit<C, T, R>(&self, command: C, render: R) -> Result<StoredResponse, ApiError>
    where
        C: WireCommand + Clone,
        T: Serialize,
        R: Fn(&C::Outcome) -> Reply<T> + Send + Sync + 'static,
    {
        let rendered = move |outcome: &C::Outcome| Rendered::<T, Infallible>::Reply(render(outcome));
        match self.submit_or_read(command, rendered).await? {
            Submitted::Response(answer) => Ok(answer),
            Submitted::Later(never) => match never {},
        }
    }

    /// As [`Self::submit`], for a command that may have been applied before.
    pub(super) async fn submit_or_read<C, T, L, R>(
        &self,
        command: C,
        render: R,
    ) -> Result<Submitted<L>, ApiError>
    where
        C: WireCommand + Clone,
        T: Serialize,
        R: Fn(&C::Outcome) -> Rendered<T, L> + Send + Sync + 'static,
    {
        let answer_of = move |outcome: &Result<C::Outcome, Refusal>| match outcome {
            Ok(outcome) => match render(outcome) {
                Rendered::Reply(reply) => Submitted::Response(reply.into()),
                Rendered::Later(later) => Submitted::Later(later),
            },
            Err(refusal) => Submitted::Response(ApiError::from(refusal.clone()).into()),
        };
        let Some(claim) = self.claim.clone() else {
            let outcome = self.app.submit(self.merchant_id, command).await?;
            return Ok(answer_of(&Ok(outcome)));
        };
        let answer_of = Arc::new(answer_of);
        let (app, id) = (Arc::clone(&self.app), claim.id.clone());
        let answering = Arc::clone(&answer_of);
        let keep = move |outcome: &Result<C::Outcome, Refusal>| match answering(outcome) {
            Submitted::Response(answer) if !answer.status.is_server_error() => {
                ClaimRecord::Answer(answer.seal(&app.server_key, &id))
            }
            Submitted::Response(_) | Submitted::Later(_) => ClaimRecord::Nothing,
        };
        let id = claim.id.clone();
        match self.app.ledger.submit_idempotent(self.partition(), command, claim, keep).await? {
            IdempotentOutcome::Decided(_, Some(kept)) => {
                Ok(Submitted::Response(StoredResponse::open(&self.app.server_key, &id, &kept)?))
            }
            IdempotentOutcome::Decided(outcome, None) => Ok(answer_of(&outcome)),
            IdempotentOutcome::Repeated(status) => {
                idempotency::response_to(status, &self.app.server_key, &id).map(Submitted::Response)
            }
        }
    }

    /// Stores an answer that had to be read ([`Rendered::Later`]). If another one was stored first, returns that.
    pub(super) async fn keep<T: Serialize>(&self, reply: Reply<T>) -> Result<StoredResponse, ApiError> {
        let answer = StoredResponse::from(reply);
        let Some(claim) = self.claim.clone() else { return Ok(answer) };
        let (id, kept) = (claim.id.clone(), answer.seal(&self.app.server_key, &claim.id));
        let keep = move |_: &Result<(), Refusal>| ClaimRecord::Answer(kept.clone());
        match self.app.ledger.submit_idempotent(self.partition(), AlreadyApplied, claim, keep).await? {
            IdempotentOutcome::Decided(..) => Ok(answer),
            IdempotentOutcome::Repeated(status) => {
                idempotency::response_to(status, &self.app.server_key, &id)
            }
        }
    }

    /// Reads a call with the answer that an earlier call with the same idempotency key stored.
    pub(super) async fn with_stored_answer(
        request: Request,
        app: &Arc<App>,
    ) -> Result<(Self, Option<StoredResponse>), ApiError> {
        let (mut parts, body) = request.into_parts();
        let writes = Self::read(&mut parts, body, app).await?;
        let before = writes.stored_response().await?;
        Ok((writes, before))
    }

    /// The partition of the caller.
    fn partition(&self) -> Partition {
        self.app.partition(self.merchant_id)
    }

    /// The body as JSON text; an empty one counts as `{}`.
    pub(super) fn json(&self) -> Result<&str, ApiError> {
        body::json_text(&self.headers, &self.body)
    }

    async fn read(parts: &mut Parts, body: axum::body::Body, app: &Arc<App>) -> Result<Self, ApiError> {
        let Merchant { merchant_id } = Merchant::from_request_parts(parts, app).await?;
        let key = idempotency::key(&parts.headers)?.map(str::to_owned);
        let body = body::collect(app.timeouts.body, &parts.headers, body).await?;
        let claim = key.map(|key| {
            // The path as called: an alias is another scope.
            let called = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri);
            let scope = Scope { merchant_id, method: parts.method.as_str(), path: called.path() };
            Claim::new(&app.server_key, scope, &key, &[&body])
        });
        let headers = std::mem::take(&mut parts.headers);
        Ok(Self { merchant_id, app: Arc::clone(app), headers, body, claim })
    }

    /// The stored answer, looked up before the call is checked: what was valid then may be invalid now. Whether a key is
    /// unused is decided only with the command.
    async fn stored_response(&self) -> Result<Option<StoredResponse>, ApiError> {
        let Some(claim) = &self.claim else { return Ok(None) };
        let connection = self.app.connection().await?;
        let status = within(claims::find(&connection, self.partition(), claim)).await?;
        status.map(|status| idempotency::response_to(status, &self.app.server_key, &claim.id)).transpose()
    }
}
