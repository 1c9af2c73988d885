//! The spans of a forwarded call: one of the call, and one of each of its stages. docs/operations/traces.md lists them.
//!
//! Invariant: no span holds a key, a body, a query or anything else of a customer. Names that a caller or a provider wrote
//! are shown only if they look like names.

use std::time::SystemTime;

use farthing_core::command::{Completeness, Failed, Metered, OpenRequest, Settled};
use farthing_core::event::{FailureReason, ProviderKeyType};
use farthing_core::ids::RequestId;
use farthing_telemetry::traces::{KeyValue, Span, Traces};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper_util::client::legacy::connect::CaptureConnection;
use tracing::Instrument as _;

use super::called_endpoint::CalledEndpoint;
use crate::error::ApiError;
use crate::model_endpoints::ModelEndpoint;
use crate::providers::trace_name;
use crate::target;

/// The most characters of a name that is shown.
const MAX_NAME: usize = 100;

/// The trace of a call. Copies share its spans; the span of the call ends with the last one.
#[derive(Debug, Clone)]
pub(super) struct CallTrace {
    /// When the call began, if calls are traced.
    began: Option<SystemTime>,
    call: Span,
    /// The context of log lines.
    log: tracing::Span,
}

impl CallTrace {
    /// That of a call that begins. It has no spans before [`Self::authenticated`].
    pub(super) fn begin(traces: &Traces) -> Self {
        let began = traces.are_on().then(SystemTime::now);
        Self { began, call: Span::default(), log: tracing::Span::none() }
    }

    /// It is known who makes the call, so the caller's own trace may be continued. Decides whether the call is traced.
    pub(super) fn authenticated(
        &mut self,
        traces: &Traces,
        (called, parts): (CalledEndpoint, &Parts),
        request_id: RequestId,
    ) {
        let Some(began) = self.began else { return };
        self.call = traces.request(&parts.headers, call_name(called, &parts.method), began);
        let Some(trace_id) = self.call.trace_id() else { return };
        self.call.set(|| {
            [
                KeyValue::new("http.request.method", method_name(&parts.method)),
                KeyValue::new("http.route", called.path()),
                KeyValue::new("url.path", called.path()),
                KeyValue::new("url.scheme", "http"),
                KeyValue::new("farthing.request_id", request_id.to_string()),
            ]
        });
        drop(self.call.child_since("authenticate", began));
        // Of the highest level, so that every line that is logged has it.
        self.log = tracing::error_span!("call", %request_id, %trace_id);
    }

    /// The span of a stage of the call.
    pub(super) fn stage(&self, name: &'static str) -> Span {
        self.call.child(name)
    }

    /// Does the `work` for the call. Its log lines have the ids of the call and of its trace.
    pub(super) fn logged<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        work.instrument(self.log.clone())
    }

    /// The caller is answered with a response of `status`, or with an error of the gateway.
    pub(super) fn answered(&self, answer: Result<StatusCode, &ApiError>) {
        let status = answer.unwrap_or_else(ApiError::status);
        self.call.set(|| [KeyValue::new("http.response.status_code", i64::from(status.as_u16()))]);
        if let Err(error) = answer {
            self.call.set(|| [KeyValue::new("error.type", error.code())]);
        }
        if status.is_server_error() {
            self.call.fail();
        }
    }

    /// What is said of the request to the provider. Empty if the call is not traced.
    pub(super) fn request_to_provider<B>(
        &self,
        command: &OpenRequest,
        outgoing: &Request<B>,
    ) -> Vec<KeyValue> {
        if !self.call.is_recording() {
            return Vec::new();
        }
        let uri = outgoing.uri();
        let mut attributes = vec![KeyValue::new("http.request.method", method_name(outgoing.method()))];
        let host = uri.host().filter(|host| is_a_name(host));
        attributes.extend(host.map(|host| KeyValue::new("server.address", host.to_owned())));
        let port = uri.port_u16().or_else(|| match uri.scheme_str() {
            Some("https") => Some(443),
            Some("http") => Some(80),
            Some(_) | None => None,
        });
        attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
        let provider = trace_name(&command.provider);
        attributes.extend(provider.map(|name| KeyValue::new("gen_ai.provider.name", name)));
        let model = command.model.as_deref().filter(|model| is_a_name(model));
        attributes.extend(model.map(|model| KeyValue::new("gen_ai.request.model", model.to_owned())));
        attributes.push(KeyValue::new(
            "farthing.provider_key",
            match command.provider_key_type {
                ProviderKeyType::Managed => "managed",
                ProviderKeyType::Unmanaged => "caller",
            },
        ));
        attributes
    }

    /// The exchange with the provider begins.
    pub(super) fn exchange(&self, method: &Method, request_to_provider: Vec<KeyValue>) -> Exchange {
        Exchange {
            provider: self.call.client(method_name(method), request_to_provider),
            response: Span::default(),
            trace: self.clone(),
        }
    }
}

/// The span of the exchange with a provider, and the trace of its call, which lives as long.
#[derive(Debug)]
pub(super) struct Exchange {
    trace: CallTrace,
    provider: Span,
    /// The span of the response's body.
    response: Span,
}

impl Exchange {
    /// Begins to wait for the `connection`, and then for the head of the response.
    pub(super) fn sending(&self, connection: &CaptureConnection) -> Sending {
        if !self.provider.is_recording() {
            return Sending(None);
        }
        Sending(Some((connection.clone(), self.provider.child("connect"), self.provider.clone())))
    }

    /// The head of the response has come.
    pub(super) fn responded(&mut self, status: StatusCode) {
        self.provider.set(|| [KeyValue::new("http.response.status_code", i64::from(status.as_u16()))]);
        if status.is_client_error() || status.is_server_error() {
            self.provider.set(|| [KeyValue::new("error.type", status.as_str().to_owned())]);
            self.provider.fail();
        }
        self.response = self.provider.child("receive response");
    }

    /// Nothing more is read of the response.
    pub(super) fn received(&mut self) {
        self.response = Span::default();
    }

    /// The exchange has ended as `settled` says. The call is settled in the span that is returned.
    pub(super) fn ended(&mut self, settled: &Settled) -> Span {
        self.received();
        let provider = std::mem::take(&mut self.provider);
        match settled {
            Settled::Metered(Metered { usage, model, ending, .. }) => {
                provider.set(|| {
                    let model = model.clone().filter(|model| is_a_name(model));
                    let model = model.map(|model| KeyValue::new("gen_ai.response.model", model));
                    let count = |name, tokens: u64| {
                        i64::try_from(tokens).ok().map(|tokens| KeyValue::new(name, tokens))
                    };
                    let tokens = usage.map(|usage| usage.tokens);
                    let input = tokens.and_then(|tokens| count("gen_ai.usage.input_tokens", tokens.input));
                    let output = tokens.and_then(|tokens| count("gen_ai.usage.output_tokens", tokens.output));
                    let ending = KeyValue::new("farthing.ending", ending_name(*ending));
                    [Some(ending), model, input, output].into_iter().flatten()
                });
            }
            // The status has been said.
            Settled::Failed(Failed { reason: FailureReason::ProviderStatus, .. }) => {}
            Settled::Failed(Failed { reason, .. }) => {
                provider.set(|| [KeyValue::new("error.type", reason_name(*reason))]);
                provider.fail();
            }
        }
        drop(provider);
        let metered = matches!(settled, Settled::Metered(_));
        self.trace.call.set(|| [KeyValue::new("farthing.metered", metered)]);
        self.trace.stage("settle")
    }

    /// The trace of the call.
    pub(super) const fn trace(&self) -> &CallTrace {
        &self.trace
    }
}

/// A request on its way to its provider.
pub(super) struct Sending(Option<(CaptureConnection, Span, Span)>);

impl Sending {
    /// Waits for the `response`, first for its connection.
    pub(super) async fn until<F: Future>(self, response: F) -> F::Output {
        let Some((mut captured, connect, provider)) = self.0 else { return response.await };
        let connected = async move {
            captured.wait_for_connection_metadata().await;
        };
        tokio::pin!(response);
        tokio::select! {
            biased;
            response = &mut response => return response,
            () = connected => {}
        }
        drop(connect);
        let _wait = provider.child("wait for response");
        response.await
    }
}

/// The name of the span of a call. A path is the same with a slash at its end, and without the URL that follows it.
fn call_name(called: CalledEndpoint, method: &Method) -> &'static str {
    match (called, method) {
        (CalledEndpoint::Model(ModelEndpoint::ChatCompletions), _) => "POST /v1/chat/completions",
        (CalledEndpoint::Model(ModelEndpoint::Responses), _) => "POST /v1/responses",
        (CalledEndpoint::Model(ModelEndpoint::Embeddings), _) => "POST /v1/embeddings",
        (CalledEndpoint::Model(ModelEndpoint::Messages), _) => "POST /v1/messages",
        (CalledEndpoint::Rewrite, _) => "POST /v1/rewrite",
        (CalledEndpoint::Forward, &Method::GET) => "GET /v1/forward",
        (CalledEndpoint::Forward, &Method::HEAD) => "HEAD /v1/forward",
        (CalledEndpoint::Forward, &Method::POST) => "POST /v1/forward",
        (CalledEndpoint::Forward, &Method::PUT) => "PUT /v1/forward",
        (CalledEndpoint::Forward, &Method::PATCH) => "PATCH /v1/forward",
        (CalledEndpoint::Forward, &Method::DELETE) => "DELETE /v1/forward",
        (CalledEndpoint::Forward, _) => called.path(),
    }
}

/// A method that is forwarded.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "_OTHER",
    }
}

/// A reason as the log and the API write it.
fn reason_name(reason: FailureReason) -> String {
    let name = serde_json::to_value(reason).ok();
    name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}

const fn ending_name(ending: Completeness) -> &'static str {
    match ending {
        Completeness::Whole => "whole",
        Completeness::Partial => "partial",
        Completeness::Unread => "unread",
        Completeness::GivenUp(_) => "given_up",
        Completeness::Implausible => "implausible",
    }
}

/// Whether a text that a caller or a provider wrote looks like the name of a model or a host, and not like a key.
fn is_a_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@[]".contains(&byte);
    if !(1..=MAX_NAME).contains(&text.len()) || !text.bytes().all(is_plain) || text.contains("//") {
        return false;
    }
    let path = format!("/{text}");
    target::without_keys(&path) == path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_and_keys_are_not() {
        for name in [
            "gpt-4o-2024-08-06",
            "claude-3-5-sonnet@20240620",
            "models/gemini-1.5-pro",
            "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "o1",
            "api.openai.com",
            "[::1]",
        ] {
            assert!(is_a_name(name), "{name}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for text in [
            "",
            "spk_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "aks_live_0123456789abcdef",
            "models/sk-proj-Abc123Def456",
            "sk-ant-api03-0123456789",
            "9f86d081884c7d659a2feaa0c55ad015",
            "a model",
            "gpt-4o\n",
            "x://sk-ant-api03-0123456789",
            "gpt-4o?key=1",
            "émile",
            &long,
        ] {
            assert!(!is_a_name(text), "{text}");
        }
    }
}
