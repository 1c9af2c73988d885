//! What a conversion keeps and writes is bounded by what it reads: a caller and its provider may be one attacker, who sends
//! little to make a gateway keep or write much.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

use farthing_formats::{Conversion, Format, RequestFacts, ResponseError, StreamConverter};
use serde_json::{Value, json};

const FORMATS: [Format; 4] = [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Google];

/// The most bytes that the process may ever have had: the attacks ask for gigabytes.
const PEAK: u64 = 600 * 1024 * 1024;

fn between(client: Format, provider: Format) -> Conversion {
    Conversion::between(client, provider).unwrap()
}

fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

fn feed(converter: &mut StreamConverter, data: &Value) -> Result<Vec<u8>, ResponseError> {
    converter.feed(&event(data))
}

/// Asserts that the process took no gigabytes, where the operating system tells.
fn took_little() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak * 1024 < PEAK, "{peak} kB");
}

/// The first event of a provider's stream, whose answer has this id and model.
fn begin(provider: Format, id: &str, model: &str) -> Value {
    match provider {
        Format::OpenaiChat => json!({"id": id, "model": model, "choices": []}),
        Format::OpenaiResponses => {
            json!({"type": "response.created", "response": {"id": id, "model": model}})
        }
        Format::Anthropic => json!({"type": "message_start", "message": {"id": id, "model": model}}),
        Format::Google => json!({"responseId": id, "modelVersion": model, "candidates": []}),
    }
}

/// A whole answer with this many calls and this id.
fn answer_with(provider: Format, calls: usize, id: &str) -> Value {
    let list = |call: Value| vec![call; calls];
    match provider {
        Format::OpenaiChat => {
            let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
            let message = json!({"role": "assistant", "content": null, "tool_calls": list(call)});
            json!({"id": id, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        }
        Format::OpenaiResponses => {
            let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
            json!({"id": id, "model": "m", "status": "completed", "output": list(call)})
        }
        Format::Anthropic => {
            let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
            json!({"id": id, "model": "m", "content": list(call), "stop_reason": "tool_use"})
        }
        Format::Google => {
            let call = json!({"functionCall": {"id": "c", "name": "f", "args": {}}});
            let content = json!({"role": "model", "parts": list(call)});
            json!({"responseId": id, "modelVersion": "m", "candidates": [{"content": content, "finishReason": "STOP"}]})
        }
    }
}

#[test]
fn a_whole_answer_becomes_a_bounded_stream() {
    let long = "x".repeat(513);
    for provider in FORMATS {
        for client in FORMATS.into_iter().filter(|client| *client != provider) {
            // Responses has each item again in its last event.
            let most = if client == Format::OpenaiResponses { 4_000 } else { 10_000 };
            for (calls, id, is_taken) in
                [(1_000, &long[1..], true), (3, &long, false), (most, "i", true), (most + 100, "i", false)]
            {
                let body = answer_with(provider, calls, id).to_string();
                let events = between(client, provider).response_as_stream(body.as_bytes());
                assert_eq!(events.is_ok(), is_taken, "{provider:?} {client:?} {calls}: {:?}", events.err());
            }
        }
    }
    took_little();
}

#[test]
fn the_id_and_the_model_of_an_answer_are_repeated_and_so_must_be_short() {
    let long = "x".repeat(513);
    for provider in FORMATS {
        for client in FORMATS.into_iter().filter(|client| *client != provider) {
            for (id, model, is_taken) in [
                ("i", "m", true),
                (&long[1..], "m", true),
                ("i", &long[1..], true),
                (&long, "m", false),
                ("i", &long, false),
            ] {
                let mut converter = between(client, provider).stream();
                let fed = feed(&mut converter, &begin(provider, id, model));
                assert_eq!(fed.is_ok(), is_taken, "{provider:?} {client:?} {id} {model}: {fed:?}");
                // A part of it is written.
                let most = if model == "m" { 128 } else { 256 };
                let written = String::from_utf8(fed.unwrap_or_default()).unwrap();
                assert!(!written.contains(&long[..=most]), "{provider:?} {client:?}: {written}");
            }
        }
    }
}

#[test]
fn the_id_of_a_whole_answer_must_be_short() {
    let long = "x".repeat(513);
    let texts = json!([{"type": "output_text", "text": "t"}]);
    let choices = json!([{"message": {"content": "t"}, "finish_reason": "stop"}]);
    for (provider, client, answer) in [
        (Format::OpenaiChat, Format::Anthropic, json!({"id": long, "model": "m", "choices": choices})),
        (
            Format::OpenaiResponses,
            Format::Anthropic,
            json!({"id": long, "model": "m", "status": "completed", "output": [{"type": "message", "content": texts}]}),
        ),
        (
            Format::Anthropic,
            Format::OpenaiResponses,
            json!({"id": long, "model": "m", "content": [{"type": "text", "text": "t"}], "stop_reason": "end_turn"}),
        ),
        (
            Format::Google,
            Format::OpenaiResponses,
            json!({"responseId": long, "candidates": [{"content": {"parts": [{"text": "t"}]}, "finishReason": "STOP"}]}),
        ),
    ] {
        let conversion = between(client, provider);
        let refused = conversion.response(answer.to_string().as_bytes());
        assert!(matches!(refused, Err(ResponseError::Invalid { .. })), "{provider:?}: {refused:?}");
        let short = answer.to_string().replace(&long, "x");
        assert!(conversion.response(short.as_bytes()).is_ok(), "{provider:?}");
    }
}

#[test]
fn an_answer_that_has_begun_does_not_begin_again() {
    for client in [Format::OpenaiChat, Format::OpenaiResponses, Format::Google] {
        let mut converter = between(client, Format::Anthropic).stream();
        let start = begin(Format::Anthropic, "msg_1", "m");
        feed(&mut converter, &start).unwrap();
        let again = feed(&mut converter, &start);
        assert!(matches!(again, Err(ResponseError::Invalid { .. })), "{client:?}: {again:?}");
    }
}

/// Feeds what these events are until the converter refuses one; returns how many it took.
fn taken(converter: &mut StreamConverter, events: impl Fn(usize) -> Value) -> usize {
    for number in 0..100_000 {
        match feed(converter, &events(number)) {
            Ok(_) => assert!(converter.kept_bytes() <= 17 * 1024 * 1024),
            Err(ResponseError::TooLong { .. }) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it keeps more and more");
}

#[test]
fn everything_that_a_client_of_responses_gets_again_at_the_end_is_counted() {
    let chat = || {
        let mut converter = between(Format::OpenaiResponses, Format::OpenaiChat).stream();
        feed(&mut converter, &begin(Format::OpenaiChat, "i", "m")).unwrap();
        converter
    };
    let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
    // Calls of nothing.
    let call = |number: usize| delta(json!({"tool_calls": [{"index": number, "function": {"name": "f"}}]}));
    assert!(taken(&mut chat(), call) < 5_000);
    // Calls with long names.
    let name = "n".repeat(1024 * 1024);
    let named = |number: usize| delta(json!({"tool_calls": [{"index": number, "function": {"name": name}}]}));
    assert!(taken(&mut chat(), named) < 17);
    // Contents of a letter.
    let kinds = ["content", "refusal"];
    let content = |number: usize| delta(json!({kinds[number % 2]: "x"}));
    assert!(taken(&mut chat(), content) < 40_000);
    // Signatures of reasoning.
    let mut converter = between(Format::OpenaiResponses, Format::Anthropic).stream();
    feed(&mut converter, &begin(Format::Anthropic, "i", "m")).unwrap();
    let signature = |_| {
        let delta = json!({"type": "signature_delta", "signature": name});
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    };
    assert!(taken(&mut converter, signature) < 17);
}

#[test]
fn an_event_has_a_bounded_number_of_parts() {
    let mut converter = between(Format::Anthropic, Format::OpenaiChat).stream();
    feed(&mut converter, &begin(Format::OpenaiChat, "i", "m")).unwrap();
    let parts = |count: usize| json!({"choices": vec![json!({"delta": {"content": "x"}}); count]});
    assert!(feed(&mut converter, &parts(512)).is_ok());
    let refused = feed(&mut converter, &parts(513));
    assert!(matches!(refused, Err(ResponseError::Unsupported { .. })), "{refused:?}");
}

#[test]
fn a_long_name_is_not_repeated_for_each_value_below_it() {
    let choices = vec![json!({}); 20_000];
    let schema = json!({"type": "OBJECT", "properties": {"n".repeat(500_000): {"anyOf": choices}}});
    let function = json!({"name": "f", "parameters": schema});
    let body = json!({
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [function]}],
    });
    let facts = RequestFacts { model: Some("m"), ..RequestFacts::default() };
    let conversion = between(Format::Google, Format::OpenaiChat);
    conversion.request(body.to_string().as_bytes(), &facts).unwrap();
    took_little();
}

#[test]
fn the_name_of_a_function_is_written_with_each_result_and_so_must_be_short() {
    let conversation = |name: &str| {
        let function = json!({"name": name, "arguments": "{}"});
        let call = json!({"id": "c", "type": "function", "function": function});
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.extend(vec![json!({"role": "tool", "tool_call_id": "c", "content": "x"}); 20_000]);
        json!({"model": "m", "messages": messages}).to_string().into_bytes()
    };
    let conversion = between(Format::OpenaiChat, Format::Google);
    let facts = RequestFacts::default();
    let refused = conversion.request(&conversation(&"n".repeat(500_000)), &facts).unwrap_err();
    assert!(refused.to_string().contains("at most 512 bytes"), "{refused}");
    conversion.request(&conversation("n"), &facts).unwrap();
    took_little();
}

#[test]
fn the_arguments_of_all_calls_together_have_a_bounded_number_of_values() {
    let arguments = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(300_000));
    let conversation = |calls: usize| {
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "c", "type": "function", "function": function});
        let messages = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": vec![call; calls]},
            {"role": "user", "content": "Hi"},
        ]);
        json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string().into_bytes()
    };
    for provider in [Format::Anthropic, Format::Google] {
        let conversion = between(Format::OpenaiChat, provider);
        conversion.request(&conversation(3), &RequestFacts::default()).unwrap();
        let refused = conversion.request(&conversation(4), &RequestFacts::default()).unwrap_err();
        assert!(refused.to_string().contains("more than 1000000 values"), "{provider:?}: {refused}");
    }
}
