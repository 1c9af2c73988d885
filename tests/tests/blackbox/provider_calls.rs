//! The endpoints that each built-in provider documents, with a call to each and the answer that the provider documents
//! (`provider_table.rs`, `providers_by_model.rs`).

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::forward;
use farthing_tests::provider::{Endpoint, Provider, chunk, event_stream, json_text, last_chunk, whole};
use serde_json::{Value, json};

use super::providers::{prices, tokens};

/// The columns of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Chat,
    Completions,
    Responses,
    Messages,
    GenerateContent,
    Embeddings,
    Speech,
    Transcription,
    Images,
    Batches,
    Files,
}

use Column::{
    Batches, Chat, Completions, Embeddings, Files, GenerateContent, Images, Messages, Responses, Speech,
    Transcription,
};

/// The columns with their titles.
pub(super) const COLUMNS: [(Column, &str); 11] = [
    (Chat, "chat"),
    (Completions, "completions"),
    (Responses, "responses"),
    (Messages, "messages"),
    (GenerateContent, "generateContent"),
    (Embeddings, "embeddings"),
    (Speech, "speech"),
    (Transcription, "transcription"),
    (Images, "images"),
    (Batches, "batches"),
    (Files, "files"),
];

impl Column {
    /// Whether a managed key is used for such a call at the public host of `provider`.
    pub(super) fn is_sold_at(self, provider: &str) -> bool {
        match self {
            Chat | Completions | Responses | Messages | GenerateContent | Embeddings | Speech => true,
            Transcription => provider == "openai",
            Images | Batches | Files => false,
        }
    }
}

/// The providers and the paths of the endpoints that they document. A batch is created, and a file is sent, at the path.
pub(super) const PROVIDERS: [(&str, &[(Column, &str)]); 25] = [
    (
        "openai",
        &[
            (Chat, "/v1/chat/completions"),
            (Completions, "/v1/completions"),
            (Responses, "/v1/responses"),
            (Embeddings, "/v1/embeddings"),
            (Speech, "/v1/audio/speech"),
            (Transcription, "/v1/audio/transcriptions"),
            (Images, "/v1/images/generations"),
            (Batches, "/v1/batches"),
            (Files, "/v1/files"),
        ],
    ),
    (
        "anthropic",
        &[
            (Messages, "/v1/messages"),
            (Chat, "/v1/chat/completions"),
            (Batches, "/v1/messages/batches"),
            (Files, "/v1/files"),
        ],
    ),
    (
        "google",
        &[
            (GenerateContent, "/v1beta/models/m:generateContent"),
            (Chat, "/v1beta/openai/chat/completions"),
            (Embeddings, "/v1beta/openai/embeddings"),
            (Images, "/v1beta/openai/images/generations"),
            (Batches, "/v1beta/models/m:batchGenerateContent"),
            (Files, "/upload/v1beta/files"),
        ],
    ),
    (
        "deepseek",
        &[
            (Chat, "/chat/completions"),
            (Completions, "/beta/completions"),
            (Messages, "/anthropic/v1/messages"),
        ],
    ),
    (
        "mistral",
        &[
            (Chat, "/v1/chat/completions"),
            (Completions, "/v1/fim/completions"),
            (Embeddings, "/v1/embeddings"),
            (Batches, "/v1/batch/jobs"),
            (Files, "/v1/files"),
        ],
    ),
    (
        "xai",
        &[
            (Chat, "/v1/chat/completions"),
            (Responses, "/v1/responses"),
            (Messages, "/v1/messages"),
            (Images, "/v1/images/generations"),
            (Batches, "/v1/batches"),
            (Files, "/v1/files"),
        ],
    ),
    (
        "groq",
        &[
            (Chat, "/openai/v1/chat/completions"),
            (Responses, "/openai/v1/responses"),
            (Speech, "/openai/v1/audio/speech"),
            (Transcription, "/openai/v1/audio/transcriptions"),
            (Batches, "/openai/v1/batches"),
            (Files, "/openai/v1/files"),
        ],
    ),
    (
        "together",
        &[
            (Chat, "/v1/chat/completions"),
            (Completions, "/v1/completions"),
            (Embeddings, "/v1/embeddings"),
            (Speech, "/v1/audio/speech"),
            (Transcription, "/v1/audio/transcriptions"),
            (Images, "/v1/images/generations"),
            (Batches, "/v1/batches"),
            (Files, "/v1/files/upload"),
        ],
    ),
    (
        "fireworks",
        &[
            (Chat, "/inference/v1/chat/completions"),
            (Completions, "/inference/v1/completions"),
            (Responses, "/inference/v1/responses"),
            (Embeddings, "/inference/v1/embeddings"),
        ],
    ),
    ("cohere", &[(Chat, "/compatibility/v1/chat/completions"), (Embeddings, "/compatibility/v1/embeddings")]),
    ("cerebras", &[(Chat, "/v1/chat/completions"), (Completions, "/v1/completions")]),
    ("perplexity", &[(Chat, "/chat/completions")]),
    (
        "openrouter",
        &[
            (Chat, "/api/v1/chat/completions"),
            (Completions, "/api/v1/completions"),
            (Responses, "/api/v1/responses"),
        ],
    ),
    (
        "deepinfra",
        &[
            (Chat, "/v1/openai/chat/completions"),
            (Completions, "/v1/openai/completions"),
            (Embeddings, "/v1/openai/embeddings"),
            (Images, "/v1/openai/images/generations"),
        ],
    ),
    (
        "nebius",
        &[
            (Chat, "/v1/chat/completions"),
            (Completions, "/v1/completions"),
            (Embeddings, "/v1/embeddings"),
            (Batches, "/v1/batches"),
            (Files, "/v1/files"),
        ],
    ),
    ("sambanova", &[(Chat, "/v1/chat/completions")]),
    ("hyperbolic", &[(Chat, "/v1/chat/completions"), (Completions, "/v1/completions")]),
    (
        "moonshot",
        &[(Chat, "/v1/chat/completions"), (Messages, "/anthropic/v1/messages"), (Files, "/v1/files")],
    ),
    (
        "zai",
        &[
            (Chat, "/api/paas/v4/chat/completions"),
            (Messages, "/api/anthropic/v1/messages"),
            (Images, "/api/paas/v4/images/generations"),
        ],
    ),
    (
        "dashscope",
        &[(Chat, "/compatible-mode/v1/chat/completions"), (Embeddings, "/compatible-mode/v1/embeddings")],
    ),
    ("nvidia", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    ("github", &[(Chat, "/inference/chat/completions"), (Embeddings, "/inference/embeddings")]),
    ("huggingface", &[(Chat, "/v1/chat/completions"), (Responses, "/v1/responses")]),
    ("vercel", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    (
        "azure",
        &[
            (Chat, "/openai/deployments/m/chat/completions"),
            (Completions, "/openai/deployments/m/completions"),
            (Responses, "/openai/v1/responses"),
            (Embeddings, "/openai/deployments/m/embeddings"),
            (Speech, "/openai/deployments/s/audio/speech"),
            (Transcription, "/openai/deployments/t/audio/transcriptions"),
            (Images, "/openai/deployments/m/images/generations"),
            (Batches, "/openai/v1/batches"),
            (Files, "/openai/v1/files"),
        ],
    ),
];

/// The providers that document a usage in the answer of images.
const IMAGES_WITH_USAGE: [&str; 2] = ["openai", "azure"];

/// What the answer of a call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Tokens { input: u64, output: u64 },
    Characters(u64),
    Seconds(u64),
    Nothing,
}

impl Counted {
    /// The member of the usage with it, and the value.
    pub(super) fn in_usage(self) -> (&'static str, Value) {
        match self {
            Self::Tokens { input, output } => ("tokens", tokens(input, output)),
            Self::Characters(count) => ("characters", tokens(count, 0)),
            Self::Seconds(count) => ("seconds", json!({"input": count.to_string(), "output": "0"})),
            Self::Nothing => ("tokens", tokens(0, 0)),
        }
    }
}

/// What is asked, what is answered and what is metered at an endpoint.
pub(super) struct Case {
    /// The call, without its URL.
    request: Request,
    pub(super) endpoint: Endpoint,
    pub(super) counted: Counted,
    /// What the prices of the test make of it.
    pub(super) cost: &'static str,
}

impl Case {
    /// The call to the endpoint.
    pub(super) fn request(&self) -> Request {
        self.request_to(&self.endpoint.url)
    }

    /// The same call to `url`.
    pub(super) fn request_to(&self, url: &str) -> Request {
        Request { target: forward("POST", url).target, ..self.request.clone() }
    }
}

/// The call to the endpoint of `column` at `name`, a provider's.
pub(super) fn case((name, provider): (&str, &Provider), column: Column, path: &str) -> Case {
    let (images_usage, is_googles) = (IMAGES_WITH_USAGE.contains(&name), name == "google");
    let endpoint = provider.endpoint_ending(path, move |_| match column {
        Speech => whole(200, &[("Content-Type", "audio/mpeg")], b"\xff\xfb\x90"),
        Images if !images_usage => json_text(200, r#"{"created":1,"data":[{"url":"https://h/i.png"}]}"#),
        Chat if is_googles => json_text(200, GOOGLES_CHAT),
        column => json_text(200, answer(column)),
    });
    let post = forward("POST", &endpoint.url);
    let chat = Counted::Tokens { input: 1000, output: 50 };
    let (request, counted, cost) = match column {
        Chat | Responses | Messages => {
            let body = json!({"model": "m", "max_tokens": 100, "messages": [], "input": []});
            (post.json(&body), chat, "0.0022000000")
        }
        Completions => {
            let body = json!({"model": "m", "max_tokens": 100, "prompt": "x"});
            (post.json(&body), chat, "0.0022000000")
        }
        GenerateContent => {
            let body = json!({"contents": [], "generationConfig": {"maxOutputTokens": 100}});
            (post.json(&body), chat, "0.0022000000")
        }
        Embeddings => {
            let counted = Counted::Tokens { input: 1000, output: 0 };
            (post.json(&json!({"model": "m", "input": "x"})), counted, "0.0020000000")
        }
        Speech => {
            let body = json!({"model": "s", "voice": "v", "input": "café 😀"});
            (post.json(&body), Counted::Characters(6), "0.0060000000")
        }
        Transcription => (form(post, &[("model", "t")]), Counted::Seconds(9), "0.0090000000"),
        Images => {
            let request = post.json(&json!({"model": "m", "prompt": "x"}));
            if images_usage {
                (request, Counted::Tokens { input: 50, output: 272 }, "0.0011880000")
            } else {
                (request, Counted::Nothing, "0.0000000000")
            }
        }
        Batches => {
            let body = json!({"input_file_id": "file-1", "requests": []});
            (post.json(&body), Counted::Nothing, "0.0000000000")
        }
        Files => (form(post, &[("purpose", "batch")]), Counted::Nothing, "0.0000000000"),
    };
    Case { request, endpoint, counted, cost }
}

/// The answer to a chat on Google's path for OpenAI's clients, which reports thinking in the total alone.
const GOOGLES_CHAT: &str =
    r#"{"id":"c-1","choices":[],"usage":{"completion_tokens":10,"prompt_tokens":1000,"total_tokens":1050}}"#;

/// What an endpoint answers, unless it answers with sound.
fn answer(column: Column) -> &'static str {
    match column {
        Chat => {
            r#"{"id":"c-1","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#
        }
        Completions => {
            r#"{"id":"cmpl-1","object":"text_completion","choices":[{"text":"x"}],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#
        }
        Responses => {
            r#"{"id":"resp_1","output":[],"usage":{"input_tokens":1000,"output_tokens":50,"total_tokens":1050}}"#
        }
        Messages => {
            r#"{"id":"msg_1","type":"message","content":[],"usage":{"input_tokens":1000,"output_tokens":50}}"#
        }
        GenerateContent => {
            r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050}}"#
        }
        Embeddings => r#"{"data":[],"usage":{"prompt_tokens":1000,"total_tokens":1000}}"#,
        Transcription => r#"{"text":"x","usage":{"type":"duration","seconds":9}}"#,
        Images => {
            r#"{"created":1,"data":[{"b64_json":"x"}],"usage":{"input_tokens":50,"output_tokens":272,"total_tokens":322,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}"#
        }
        Batches => r#"{"id":"batch_1","status":"validating"}"#,
        Files => r#"{"id":"file-1","bytes":3}"#,
        Speech => "",
    }
}

/// The request with a form that has these fields and a file.
pub(super) fn form(request: Request, fields: &[(&str, &str)]) -> Request {
    let field = |(name, value): &(&str, &str)| {
        format!("--b1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = concat!(
        "--b1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n",
        "Content-Type: audio/mpeg\r\n\r\nID3\r\n--b1--\r\n"
    );
    let form = format!("{}{file}", fields.iter().map(field).collect::<String>());
    let request = request.header("Content-Type", "multipart/form-data; boundary=b1");
    request.body(Body::Whole(form.into_bytes()))
}

/// The call again as a stream, which reports in its last event; None where the endpoint has no streams, or where
/// `provider_endpoints` and `sound_streams` test them. It asks for its usage where `asks` says so; without, the gateway
/// does so on a managed key, if the provider must be asked.
pub(super) fn streamed(
    (name, provider): (&str, &Provider),
    column: Column,
    path: &str,
    asks: bool,
) -> Option<(Request, Endpoint)> {
    let events: &[&str] = match column {
        Chat if name == "google" => &[
            r#"{"id":"c-1","choices":[{"delta":{"content":"x"}}],"usage":{"completion_tokens":1,"prompt_tokens":1000,"total_tokens":1041}}"#,
            r#"{"id":"c-1","choices":[{"delta":{}}],"usage":{"completion_tokens":10,"prompt_tokens":1000,"total_tokens":1050}}"#,
            "[DONE]",
        ],
        Chat if name == "moonshot" => &[
            r#"{"id":"c-1","choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"id":"c-1","choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}]}"#,
            "[DONE]",
        ],
        Chat => &[
            r#"{"id":"c-1","choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"id":"c-1","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#,
            "[DONE]",
        ],
        Completions => &[
            r#"{"id":"cmpl-1","object":"text_completion","choices":[{"text":"x"}]}"#,
            r#"{"id":"cmpl-1","object":"text_completion","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#,
            "[DONE]",
        ],
        Responses => &[
            r#"{"type":"response.created","response":{"id":"resp_1"}}"#,
            r#"{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":1000,"output_tokens":50,"total_tokens":1050}}}"#,
        ],
        Messages => &[
            r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":1000,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":50}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        GenerateContent => &[
            r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":1}}"#,
            r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050}}"#,
        ],
        Embeddings | Speech | Transcription | Images | Batches | Files => return None,
    };
    let path = path.replace(":generateContent", ":streamGenerateContent");
    let endpoint = provider.endpoint_ending(&path, move |_| {
        let events = events.iter().map(|data| chunk(format!("data: {data}\n\n")));
        std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
    });
    if column == GenerateContent {
        let body = json!({"contents": [], "generationConfig": {"maxOutputTokens": 100}});
        return Some((forward("POST", &format!("{}?alt=sse", endpoint.url)).json(&body), endpoint));
    }
    let mut body = json!({"model": "m", "max_tokens": 100, "stream": true});
    if column == Completions {
        body["prompt"] = json!("x");
    } else {
        body["messages"] = json!([]);
        body["input"] = json!([]);
    }
    if asks {
        body["stream_options"] = json!({"include_usage": true});
    }
    Some((forward("POST", &endpoint.url).json(&body), endpoint))
}

/// Prices of the same numbers at every provider.
pub(super) fn price_list() -> String {
    let models = PROVIDERS.iter().flat_map(|(provider, _)| {
        [
            format!(r#"{{"provider":"{provider}","model":"m","input_per_1m":"2","output_per_1m":"4"}}"#),
            format!(r#"{{"provider":"{provider}","model":"s","per_character":"0.001"}}"#),
            format!(r#"{{"provider":"{provider}","model":"t","per_second":"0.001"}}"#),
        ]
    });
    prices(&models.collect::<Vec<_>>().join(","))
}
