//! A call to each endpoint that forwards, and a provider that answers all of them.

use std::net::SocketAddr;

use farthing_tests::client::{Request, Response};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::forward;
use farthing_tests::provider::{Endpoint, whole};
use serde_json::{Value, json};

/// What each answer of the provider has in it.
pub(super) const SAID: &str = "of the call";

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";
const MESSAGES: &str = "/v1/messages";

/// A call to one of the endpoints, without a credential.
pub(super) struct EndpointCall {
    /// The request.
    pub(super) request: Request,
    /// Where the provider gets it.
    pub(super) reaches: Endpoint,
}

impl EndpointCall {
    /// The path and the query, which tell the calls apart.
    pub(super) fn target(&self) -> &str {
        &self.request.target
    }

    /// Whether the model chooses the provider.
    pub(super) fn is_by_model(&self) -> bool {
        [CHAT, RESPONSES, EMBEDDINGS, MESSAGES].contains(&self.target())
    }

    /// The shape of a spend key that may make it.
    pub(super) fn shape(&self) -> &'static str {
        if self.target() == MESSAGES { "anthropic" } else { "openai" }
    }
}

/// The endpoints of a gateway, and a provider behind them.
pub(super) struct Endpoints {
    managed: Managed,
    chat: Endpoint,
    responses: Endpoint,
    embeddings: Endpoint,
}

impl Endpoints {
    /// Starts them. The provider's answers have these headers.
    pub(super) async fn start(headers: &[(&'static str, &'static str)]) -> Self {
        let managed = Managed::start(&[]).await;
        let at = |path: &str, answer: &Value| {
            let (headers, answer) = (headers.to_vec(), answer.to_string());
            managed.openai.endpoint_at(path, move |_| whole(200, &headers, answer.as_bytes()))
        };
        let message = json!({"role": "assistant", "content": SAID});
        let chat = json!({
            "id": "c-1", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        });
        let text = json!({"type": "output_text", "text": SAID, "annotations": []});
        let responses = json!({
            "id": "resp_1", "object": "response", "model": "gpt-4o",
            "output": [{"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        });
        let embeddings = json!({
            "object": "list", "model": "text-embedding-3-small", "note": SAID,
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        });
        let (chat, responses, embeddings) =
            (at(CHAT, &chat), at(RESPONSES, &responses), at(EMBEDDINGS, &embeddings));
        Self { managed, chat, responses, embeddings }
    }

    /// A call to each of them: unchanged, and converted from each other format.
    pub(super) fn calls(&self) -> Vec<EndpointCall> {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let chat = json!({"model": "gpt-4o", "max_tokens": 9, "messages": messages});
        let google = json!({
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 9},
        });
        // A caller's own key needs the provider's name.
        let by_model = json!({"model": "openai/gpt-4o", "max_tokens": 9, "messages": messages});
        let response = json!({"model": "openai/gpt-4o", "max_output_tokens": 9, "input": "Hi"});
        let embedding = json!({"model": "openai/text-embedding-3-small", "input": "Hi"});
        let url = &self.chat.url;
        let models = "v1beta/models/gpt-4o:generateContent";
        let call = |target: String, body: &Value, reaches: &Endpoint| EndpointCall {
            request: Request::new("POST", target).json(body),
            reaches: reaches.clone(),
        };
        vec![
            call(forward("POST", url).target, &chat, &self.chat),
            call(format!("/v1/forward/{url}"), &chat, &self.chat),
            call(format!("/v1/rewrite/openai/{url}"), &chat, &self.chat),
            call(format!("/v1/rewrite/anthropic/{url}"), &chat, &self.chat),
            call(format!("/v1/rewrite/google/{url}/{models}"), &google, &self.chat),
            call(CHAT.to_owned(), &by_model, &self.chat),
            call(RESPONSES.to_owned(), &response, &self.responses),
            call(EMBEDDINGS.to_owned(), &embedding, &self.embeddings),
            call(MESSAGES.to_owned(), &by_model, &self.chat),
        ]
    }

    /// The calls that the provider has got.
    pub(super) fn received(&self) -> usize {
        [&self.chat, &self.responses, &self.embeddings].map(|endpoint| endpoint.calls().len()).iter().sum()
    }

    /// The address of the gateway.
    pub(super) fn address(&self) -> SocketAddr {
        self.managed.address()
    }

    /// Sends a request to the gateway.
    pub(super) async fn send(&self, request: &Request) -> Response {
        request.send(self.address()).await.unwrap()
    }
}
