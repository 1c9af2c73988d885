//! The path of every POST into the ledger. Invariant: with an `Idempotency-Key`, the answer is stored in the transaction
//! of its events, so that a repeated call gets the same answer and has no second effect, on any gateway (completion.md
//! section 1).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts as _, OriginalUri, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use farthing_core::command::wire::WireCommand;
use farthing_core::command::{AlreadyApplied, Command, Refusal};
use farthing_core::idempotency::{Claim, Scope};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::appender::{self, ClaimRecord, IdempotentOutcome};
use farthing_log::claims;
use farthing_log::leases::Elsewhere;
use farthing_log::ledger::NoReply;
use http::header::DATE;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use tokio::time::Instant;

use super::authenticate::Merchant;
use super::body::{self, Reply};
use crate::app::App;
use crate::error::ApiError;
use crate::headers::without_framing;
use crate::idempotency::{self, StoredResponse};
use crate::peers::{Forwarded, FromGateway};
use crate::read_turns::Reader;

/// A merchant's POST, read whole. A repeated call with a stored answer is answered during extraction.
pub(super) struct Writes {
    /// The caller.
    pub(super) merchant_id: MerchantId,
    app: Arc<App>,
    headers: HeaderMap,
    body: Bytes,
    claim: Option<Claim>,
    method: Method,
    /// The path as called, with its query.
    path: String,
    /// Whether another gateway passed the call on.
    is_passed_on: bool,
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

/// The answer of the leader.
enum Answer<T> {
    /// This gateway leads; the outcome is to be rendered.
    Here(T),
    /// Another gateway answered the whole call.
    There(StoredResponse),
}

/// How long a call waits for a gateway that takes it.
const LEADER_TIMEOUT: Duration = Duration::from_secs(8);

/// The pause between attempts.
const LEADER_PAUSE: Duration = Duration::from_millis(20);

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
        match self.at_leader(command, claim, keep).await? {
            Answer::There(answer) => Ok(Submitted::Response(answer)),
            Answer::Here(IdempotentOutcome::Decided(_, Some(kept))) => {
                Ok(Submitted::Response(StoredResponse::open(&self.app.server_key, &id, &kept)?))
            }
            Answer::Here(IdempotentOutcome::Decided(outcome, None)) => Ok(answer_of(&outcome)),
            Answer::Here(IdempotentOutcome::Repeated(status)) => {
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
        match self.at_leader(AlreadyApplied, claim, keep).await? {
            Answer::There(answer) => Ok(answer),
            Answer::Here(IdempotentOutcome::Decided(..)) => Ok(answer),
            Answer::Here(IdempotentOutcome::Repeated(status)) => {
                idempotency::response_to(status, &self.app.server_key, &id)
            }
        }
    }

    /// For what a call does outside the log before [`Self::keep`]: with an idempotency key it is done by the gateway that
    /// leads the caller's partition. Returns the answer of that gateway, if it is another one.
    pub(super) async fn answer_of_another_leader(&self) -> Result<Option<StoredResponse>, ApiError> {
        if self.claim.is_none() {
            return Ok(None);
        }
        match self.here_or_passed_on(|| std::future::ready(Ok(()))).await? {
            Answer::Here(()) => Ok(None),
            Answer::There(answer) => Ok(Some(answer)),
        }
    }

    /// Submits `command` under `claim` if this gateway leads the caller's partition. Otherwise passes the call on.
    async fn at_leader<C, K>(
        &self,
        command: C,
        claim: Claim,
        keep: K,
    ) -> Result<Answer<IdempotentOutcome<C::Outcome>>, ApiError>
    where
        C: Command + Clone,
        K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Clone + Send + 'static,
    {
        self.here_or_passed_on(|| {
            let (ledger, partition, merchant_id) =
                (self.app.ledger.clone(), self.partition(), self.merchant_id);
            let (command, claim, keep) = (command.clone(), claim.clone(), keep.clone());
            async move { ledger.submit_idempotent_here(partition, merchant_id, command, claim, keep).await }
        })
        .await
    }

    /// The result of `here` if this gateway leads the caller's partition. Otherwise passes the call on to the leader, as
    /// it came: an idempotency key lets it be passed on again when an answer is lost.
    async fn here_or_passed_on<T, F>(&self, here: impl Fn() -> F) -> Result<Answer<T>, ApiError>
    where
        F: Future<Output = Result<T, appender::Error>>,
    {
        let (ledger, partition) = (&self.app.ledger, self.partition());
        let deadline = Instant::now() + LEADER_TIMEOUT;
        loop {
            let elsewhere = ledger.leads_elsewhere(partition).await?;
            let refused = match elsewhere {
                None => match here().await {
                    Ok(outcome) => return Ok(Answer::Here(outcome)),
                    Err(error @ appender::Error::Moved) => error.into(),
                    Err(error) => return Err(error.into()),
                },
                Some(_) if self.is_passed_on => return Err(appender::Error::Moved.into()),
                Some(leader) => match self.pass_on(&leader).await {
                    Ok(answer) if answer.status != StatusCode::SERVICE_UNAVAILABLE => {
                        return Ok(Answer::There(answer));
                    }
                    Ok(answer) if Instant::now() >= deadline => return Ok(Answer::There(answer)),
                    Ok(_) => appender::Error::Moved.into(),
                    Err(error) => ApiError::ledger_unavailable(error.to_string()),
                },
            };
            if Instant::now() >= deadline {
                return Err(refused);
            }
            tokio::time::sleep(LEADER_PAUSE).await;
        }
    }

    /// Sends the call to another gateway, and returns its answer. None is waited for when the partition has moved: the next
    /// leader can be asked.
    async fn pass_on(&self, leader: &Elsewhere) -> Result<StoredResponse, NoReply> {
        let (method, headers, body) = (self.method.clone(), self.headers.clone(), self.body.clone());
        let answer = tokio::select! {
            biased;
            answer = self.app.peers.forward(&leader.address, method, &self.path, headers, body) => answer,
            () = self.app.ledger.moved_from(self.partition(), leader) => Err(NoReply::moved()),
        };
        let Forwarded { status, mut headers, body } = answer?;
        without_framing(&mut headers);
        headers.remove(DATE);
        Ok(StoredResponse { status, headers, body })
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
        let body = body::whole_body(app, parts, body).await?;
        // The path as called: an alias is another scope.
        let called = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri);
        let path = called.path_and_query().map_or_else(String::new, ToString::to_string);
        let claim = key.map(|key| {
            let scope = Scope { merchant_id, method: parts.method.as_str(), path: called.path() };
            Claim::new(&app.server_key, scope, &key, &[&body])
        });
        let headers = std::mem::take(&mut parts.headers);
        let is_passed_on = parts.extensions.get::<FromGateway>().is_some();
        let (app, method) = (Arc::clone(app), parts.method.clone());
        Ok(Self { merchant_id, app, headers, body, claim, method, path, is_passed_on })
    }

    /// The stored answer, looked up before the call is checked: what was valid then may be invalid now. Whether a key is
    /// unused is decided only with the command.
    async fn stored_response(&self) -> Result<Option<StoredResponse>, ApiError> {
        let Some(claim) = &self.claim else { return Ok(None) };
        let connection = self.app.short_read(Reader::Merchant(self.merchant_id)).await?;
        let status = connection.within(claims::find(&connection, self.partition(), claim)).await?;
        status.map(|status| idempotency::response_to(status, &self.app.server_key, &claim.id)).transpose()
    }
}
