//! Answers of providers that report a usage: in each shape, whole and streamed. They are read as a gateway reads them.

use farthing_core::usage::{Cached, Split, Usage};
use http::HeaderMap;
use serde_json::{Value, json};

use super::super::findings::{Extent, Findings};
use super::super::shape::{ReportedUsage, Shape};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A JSON document.
    Whole,
    /// Server-sent events; at Bedrock, whose streams are binary, a whole answer with the counts in headers.
    Stream,
    /// The binary messages of Bedrock's streams; elsewhere server-sent events.
    BinaryStream,
}

/// The format of OpenAI in which a provider of its shape answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenaiFormat {
    /// Chat Completions.
    Chat,
    /// Chat Completions with the usage of a stream in `x_groq`.
    GroqsChat,
    /// Chat Completions with tokens of reasoning in the total alone.
    GooglesChat,
    /// Chat Completions with cached tokens beside the details, and the usage of a stream in its last choice.
    MoonshotsChat,
    /// Responses.
    Responses,
    /// Embeddings, which have no stream and no output.
    Embeddings,
}

/// The report of `usage` by a provider of `shape`, as it is read.
pub(super) fn read_report(shape: Shape, format: OpenaiFormat, form: Form, usage: &Usage) -> Usage {
    let form = match (form, shape) {
        (Form::BinaryStream, shape) if shape != Shape::Bedrock => Form::Stream,
        (form, _) => form,
    };
    let form = if format == OpenaiFormat::Embeddings && shape == Shape::OpenAi { Form::Whole } else { form };
    let content_type = match form {
        Form::Whole => "application/json",
        Form::Stream => "text/event-stream",
        Form::BinaryStream => "application/vnd.amazon.eventstream",
    };
    let mut findings = Findings::new(shape, content_type);
    let documents = documents(shape, format, form, usage);
    for document in &documents {
        let bytes = match form {
            Form::Whole => document.to_string().into_bytes(),
            Form::Stream => format!("data: {document}\n\n").into_bytes(),
            Form::BinaryStream => binary_message(document),
        };
        findings.feed(&bytes, u64::MAX);
    }
    if (shape, form) == (Shape::Bedrock, Form::Stream) {
        findings.read_headers(&headers(usage));
    }
    let ReportedUsage::Usage(read) = findings.report(Extent::Whole).reported else {
        panic!("{documents:?} is not believed")
    };
    assert_eq!((read.tokens, read.seconds), (usage.tokens, usage.seconds), "{documents:?}");
    read
}

/// The documents of an answer: the only one, or those of the events of a stream.
fn documents(shape: Shape, format: OpenaiFormat, form: Form, usage: &Usage) -> Vec<Value> {
    let Split { input, output } = usage.tokens;
    let Cached { read, write } = usage.cached;
    match (shape, form) {
        (Shape::Standard, Form::Whole) => {
            vec![json!({"usage": {"input_tokens": input, "output_tokens": output}})]
        }
        (Shape::Standard, Form::Stream | Form::BinaryStream) => {
            vec![json!({"text": "a"}), json!({"usage": {"input_tokens": input, "output_tokens": output}})]
        }
        (Shape::OpenAi, _) => openais(format, form, usage),
        (Shape::Anthropic, form) => {
            let input = json!({
                "input_tokens": input - read - write, "output_tokens": 1,
                "cache_read_input_tokens": read, "cache_creation_input_tokens": write,
            });
            match form {
                Form::Whole => {
                    let mut whole = input;
                    whole["output_tokens"] = json!(output);
                    vec![json!({"type": "message", "usage": whole})]
                }
                Form::Stream | Form::BinaryStream => vec![
                    json!({"type": "message_start", "message": {"usage": input}}),
                    json!({"type": "message_delta", "usage": {"output_tokens": output}}),
                ],
            }
        }
        (Shape::Google, form) if format == OpenaiFormat::GooglesChat => openais(format, form, usage),
        (Shape::Google, form) => {
            let report = |output: u64, reasoning: u64| {
                json!({"candidates": [], "usageMetadata": {
                    "promptTokenCount": input, "candidatesTokenCount": output - reasoning,
                    "thoughtsTokenCount": reasoning, "cachedContentTokenCount": read,
                    "totalTokenCount": input + output,
                }})
            };
            let whole = report(output, usage.reasoning_tokens);
            match form {
                Form::Whole => vec![whole],
                Form::Stream | Form::BinaryStream => vec![report(output / 2, 0), whole],
            }
        }
        (Shape::Cohere, form) => {
            let count = json!({"input_tokens": input, "output_tokens": output});
            // What is billed counts, not what was sent.
            let sent = json!({"input_tokens": input + 7, "output_tokens": output + 7});
            let report = json!({"billed_units": count, "tokens": sent});
            match form {
                Form::Whole => vec![json!({"id": "c-1", "message": {}, "usage": report})],
                Form::Stream | Form::BinaryStream => vec![
                    json!({"id": "c-1", "type": "message-start", "delta": {"message": {}}}),
                    json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": report}}),
                ],
            }
        }
        // A stream of transcriptions ends with the whole text and its usage.
        (Shape::Transcription, _) => match usage.seconds.input {
            seconds if seconds.is_zero() => {
                vec![json!({"text": "a", "usage": {"input_tokens": input, "output_tokens": output}})]
            }
            seconds => {
                let seconds: Value = serde_json::from_str(&seconds.to_string()).unwrap();
                vec![json!({"text": "a", "usage": {"type": "duration", "seconds": seconds}})]
            }
        },
        (Shape::Bedrock, Form::Whole) => vec![json!({"output": {}, "usage": {
            "inputTokens": input - read - write, "outputTokens": output, "totalTokens": input + output,
            "cacheReadInputTokens": read, "cacheWriteInputTokens": write,
        }})],
        (Shape::Bedrock, Form::Stream) => Vec::new(),
        // `converse-stream` ends with the usage of the whole answer.
        (Shape::Bedrock, Form::BinaryStream) => vec![
            json!({"contentBlockIndex": 0, "delta": {"text": "a"}}),
            json!({"metrics": {"latencyMs": 7}, "usage": {
                "inputTokens": input - read - write, "outputTokens": output, "totalTokens": input + output,
                "cacheReadInputTokens": read, "cacheWriteInputTokens": write,
            }}),
        ],
    }
}

fn openais(format: OpenaiFormat, form: Form, usage: &Usage) -> Vec<Value> {
    let Split { input, output } = usage.tokens;
    let (Cached { read, write }, reasoning) = (usage.cached, usage.reasoning_tokens);
    let mut chat = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    });
    if format == OpenaiFormat::GooglesChat {
        chat["completion_tokens"] = json!(output - reasoning);
        chat["completion_tokens_details"] = Value::Null;
        chat["prompt_tokens_details"] = json!({"cached_tokens": read});
    }
    if format == OpenaiFormat::MoonshotsChat {
        chat["prompt_tokens_details"] = Value::Null;
        chat["cached_tokens"] = json!(read);
    }
    let text = json!({"choices": [{"delta": {"content": "a"}}], "usage": null});
    match (format, form) {
        (
            OpenaiFormat::Chat
            | OpenaiFormat::GroqsChat
            | OpenaiFormat::GooglesChat
            | OpenaiFormat::MoonshotsChat,
            Form::Whole,
        ) => {
            vec![json!({"choices": [], "usage": chat})]
        }
        (OpenaiFormat::MoonshotsChat, Form::Stream | Form::BinaryStream) => {
            vec![text, json!({"choices": [{"delta": {}, "finish_reason": "stop", "usage": chat}]})]
        }
        (OpenaiFormat::Embeddings, _) => {
            vec![json!({"data": [], "usage": {"prompt_tokens": input, "total_tokens": input}})]
        }
        (OpenaiFormat::Chat | OpenaiFormat::GooglesChat, Form::Stream | Form::BinaryStream) => {
            vec![text, json!({"choices": [], "usage": chat})]
        }
        (OpenaiFormat::GroqsChat, Form::Stream | Form::BinaryStream) => vec![
            json!({"choices": [], "x_groq": {"id": "req_1"}}),
            json!({"choices": [{"delta": {}}], "x_groq": {"id": "req_1", "usage": chat}}),
        ],
        (OpenaiFormat::Responses, form) => {
            let report = json!({
                "input_tokens": input, "output_tokens": output,
                "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
                "output_tokens_details": {"reasoning_tokens": reasoning},
            });
            match form {
                Form::Whole => vec![json!({"output": [], "usage": report})],
                Form::Stream | Form::BinaryStream => vec![
                    json!({"type": "response.created", "response": {"usage": null}}),
                    json!({"type": "response.completed", "response": {"usage": report}}),
                ],
            }
        }
    }
}

/// A message of a binary stream: its length, that of its headers, of which it has none, a checksum, the document, and a
/// checksum.
fn binary_message(document: &Value) -> Vec<u8> {
    let text = document.to_string();
    let length = u32::try_from(16 + text.len()).unwrap().to_be_bytes();
    [&length[..], &[0; 4], &[7; 4], text.as_bytes(), &[9; 4]].concat()
}

/// The counts in the headers of Bedrock's `invoke`.
fn headers(usage: &Usage) -> HeaderMap {
    let Cached { read, write } = usage.cached;
    let counts = [
        ("x-amzn-bedrock-input-token-count", usage.tokens.input - read - write),
        ("x-amzn-bedrock-output-token-count", usage.tokens.output),
        ("x-amzn-bedrock-cache-read-input-token-count", read),
        ("x-amzn-bedrock-cache-write-input-token-count", write),
    ];
    counts.into_iter().map(|(name, count)| (name.parse().unwrap(), count.into())).collect()
}

#[test]
fn a_usage_is_read_in_every_shape_whole_and_streamed() {
    let usage = Usage {
        tokens: Split { input: 1_000, output: 90 },
        cached: Cached { read: 300, write: 20 },
        reasoning_tokens: 40,
        ..Usage::default()
    };
    for shape in Shape::ALL {
        for form in [Form::Whole, Form::Stream, Form::BinaryStream] {
            for format in [
                OpenaiFormat::Chat,
                OpenaiFormat::GroqsChat,
                OpenaiFormat::GooglesChat,
                OpenaiFormat::MoonshotsChat,
                OpenaiFormat::Responses,
            ] {
                // No other provider's total says more than its counts.
                if format == OpenaiFormat::GooglesChat && shape != Shape::Google {
                    continue;
                }
                let read = read_report(shape, format, form, &usage);
                let reports_cache = !matches!(shape, Shape::Standard | Shape::Cohere | Shape::Transcription);
                let reports_writes = reports_cache
                    && shape != Shape::Google
                    && (shape, format) != (Shape::OpenAi, OpenaiFormat::MoonshotsChat);
                let expected = Cached {
                    read: if reports_cache { usage.cached.read } else { 0 },
                    write: if reports_writes { usage.cached.write } else { 0 },
                };
                assert_eq!(read.cached, expected, "{shape:?} {form:?} {format:?}");
            }
        }
    }
}
