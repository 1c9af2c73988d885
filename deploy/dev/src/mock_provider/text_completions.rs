//! OpenAI's text completions, plain or streamed.

use chrono::Utc;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{
    Answer, Asked, Content, Ending, Last, Thinking, answers_of, count_words, is_true, model_of,
};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Stream, usage_of, with_usage};

/// The response to `POST /v1/completions`.
pub(super) fn respond(call: &Call<'_>) -> MockResponse {
    let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
    let Some(prompt) = body.get("prompt") else {
        return Api::OpenAi.error(StatusCode::BAD_REQUEST, "the body must be a JSON object with a prompt");
    };
    let asked = Asked {
        model: model_of(&body),
        input_tokens: count_words(prompt),
        limit: body.get("max_tokens").and_then(Value::as_u64),
        tools: Vec::new(),
        last: Last::Speaker,
        schema: None,
        thinking: Thinking::Off,
    };
    let answer = Answer::to(&asked, call);
    let answers = answers_of(&body, "n");
    // More answers may be made than are given.
    let made = answers.max(answers_of(&body, "best_of"));
    let usage = usage_of(call, || {
        let (prompt, completion) = (asked.input_tokens, answer.output_tokens * made);
        let usage = json!({
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        });
        usage.to_string()
    });
    let created = Utc::now().timestamp();
    let object = |choices: Value| {
        json!({
            "id": format!("cmpl-mock-{}", call.id), "object": "text_completion", "created": created,
            "model": asked.model, "choices": choices,
        })
    };
    let choice = |index: usize, text: &str, reason: Option<&str>| json!({"text": text, "index": index, "logprobs": null, "finish_reason": reason});
    let reason = match answer.ending {
        Ending::Length => "length",
        Ending::Stop | Ending::Calls => "stop",
    };
    if !is_true(&body, "/stream") {
        let text = answer.text().unwrap_or_default();
        let whole = object((0..answers).map(|index| choice(index, &text, Some(reason))).collect());
        return MockResponse::json(with_usage(&whole, usage.as_deref()), usage);
    }
    let usage = usage.filter(|_| is_true(&body, "/stream_options/include_usage"));
    // With a usage, there is one more chunk for it, and the others say that they have none.
    let none_yet = usage.as_ref().map(|_| "null");
    let mut stream = Stream::default();
    for index in 0..answers {
        if let Content::Text(pieces) = &answer.content {
            for piece in pieces {
                stream.data(&with_usage(&object(json!([choice(index, piece, None)])), none_yet));
            }
        }
        stream.data(&with_usage(&object(json!([choice(index, "", Some(reason))])), none_yet));
    }
    if usage.is_some() {
        stream.data(&with_usage(&object(json!([])), usage.as_deref()));
        stream.reports(usage.as_deref());
    }
    stream.data("[DONE]");
    stream.events()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_provider::endpoints::tests::{events, post};

    const PATH: &str = "/v1/completions";

    #[test]
    fn a_completion_counts_words_and_stops_at_the_limit() {
        let (text, _) = post(PATH, r#"{"model":"m","prompt":"one two","max_tokens":3}"#);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["usage"], json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}));
        assert_eq!(
            (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
            (&json!("This is the"), &json!("length"))
        );
        assert_eq!(post(PATH, "{}").1.status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn as_many_choices_as_are_asked_for_are_given_and_those_that_are_made_are_counted() {
        for (asked, given, tokens) in
            [("\"n\":2", 2, 6), ("\"n\":2,\"best_of\":4", 2, 12), ("\"best_of\":3", 1, 9)]
        {
            let body = format!(r#"{{"prompt":"one two","max_tokens":3,{asked}}}"#);
            let answer: Value = serde_json::from_str(&post(PATH, &body).0).unwrap();
            let choices = answer["choices"].as_array().unwrap();
            assert_eq!(
                (choices.len(), &answer["usage"]["completion_tokens"]),
                (given, &json!(tokens)),
                "{asked}"
            );
        }
        let events = events(&post(PATH, r#"{"prompt":"x","stream":true,"max_tokens":1,"n":2}"#).0);
        let indexes: Vec<_> = events.iter().map(|event| &event["choices"][0]["index"]).collect();
        assert_eq!(indexes, [0, 0, 1, 1]);
    }

    #[test]
    fn a_stream_reports_its_usage_only_on_request() {
        let (text, response) = post(PATH, r#"{"prompt":"x","stream":true}"#);
        assert!(!text.contains("usage") && response.usage.is_none(), "{text}");
        let body = r#"{"prompt":"x","stream":true,"stream_options":{"include_usage":true}}"#;
        let (text, response) = post(PATH, body);
        let events = events(&text);
        let said: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert!(said.starts_with("This is the mock provider speaking;"), "{said}");
        assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 10);
        assert!(response.usage.is_some() && text.ends_with("data: [DONE]\n\n"), "{text}");
    }
}
