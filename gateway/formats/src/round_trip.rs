//! Property tests: conversations and answers keep their meaning from format to format, whole or streamed.
//! `PROPTEST_CASES` says how many cases are made.
//!
//! A request has what both formats of a conversion have (`of_formats`); golden conversations show that the rest is refused.
//! Not compared, because two conversions may change them: reasoning of earlier turns towards chat, which does not take it
//! back, and Google, which writes its signatures in another way; refusals, which not every provider takes back; effort, budget and display of thinking, which stand for each other in steps; the order of a text
//! and a call, which chat does not have; tools without a schema, which get one; and whether a stream's client asked for
//! usage. Golden conversations have each of them.

mod conversations;

use proptest::prelude::*;

use self::conversations::{arguments, conversation, meaning, of_formats, passed_through, reasoning, text};
use crate::answer::{About, Answer, Finish, Usage};
use crate::conversation::{Conversation, Delivery, Part, ToolCall};
use crate::conversion::{AnswerOptions, Conversion, Format, RequestFacts};
use crate::delta::{Delta, Events, StreamReader, StreamWriter};
use crate::fields::Field;
use crate::json::{Json, object};
use crate::server_sent_events::EventReader;
use crate::{anthropic, google, openai_chat, openai_responses};

const FORMATS: [Format; 4] = [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Google];

const OPTIONS: AnswerOptions = AnswerOptions { include_usage: true, created: 7 };

fn facts(conversation: &Conversation) -> RequestFacts<'_> {
    RequestFacts {
        model: Some(&conversation.model),
        stream: conversation.delivery == Delivery::Stream,
        ..RequestFacts::default()
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let usage = (0_u64..1000, 0_u64..1000, 0_u64..1000, 0_u64..1000).prop_map(
        |(uncached, cached, written, reasoning)| Usage {
            input: uncached + cached,
            cached,
            cache_written: 0,
            output: written + reasoning,
            reasoning: Some(reasoning),
        },
    );
    let calls = prop::collection::vec(arguments(), 0..3);
    (prop::option::of(text()), calls, any::<bool>(), usage).prop_map(|(text, calls, is_cut, usage)| {
        let mut parts: Vec<Part> = text.map(Part::Text).into_iter().collect();
        for (number, arguments) in calls.into_iter().enumerate() {
            let (id, name) = (format!("call_{number}"), "weather".to_owned());
            parts.push(Part::ToolCall(ToolCall { id, name, arguments }));
        }
        let finish = match parts.last() {
            Some(Part::ToolCall(_)) => Finish::ToolCalls,
            _ if is_cut => Finish::Length,
            _ => Finish::Stop,
        };
        let about = About { id: "id1".to_owned(), model: "model-1".to_owned(), created: None };
        Answer { about, parts, finish, usage: Some(usage) }
    })
}

fn write_answer(format: Format, answer: Answer) -> Vec<u8> {
    let written = match format {
        Format::OpenaiChat => openai_chat::write_response(answer, OPTIONS),
        Format::OpenaiResponses => openai_responses::write_response(answer, OPTIONS),
        Format::Anthropic => anthropic::write_response(answer).unwrap(),
        Format::Google => google::write_response(answer).unwrap(),
    };
    written.to_text().into_bytes()
}

fn read_answer(format: Format, bytes: &[u8]) -> Answer {
    let document = Field::root(Json::parse(bytes).unwrap());
    let answer = match format {
        Format::OpenaiChat => openai_chat::read_response(document),
        Format::OpenaiResponses => openai_responses::read_response(document),
        Format::Anthropic => anthropic::read_response(document),
        Format::Google => google::read_response(document),
    };
    answer.map(|answer| Answer { about: About { created: None, ..answer.about }, ..answer }).unwrap()
}

fn writer(format: Format) -> Box<dyn StreamWriter> {
    match format {
        Format::OpenaiChat => openai_chat::stream_writer(OPTIONS),
        Format::OpenaiResponses => openai_responses::stream_writer(OPTIONS),
        Format::Anthropic => anthropic::stream_writer(),
        Format::Google => google::stream_writer(),
    }
}

fn reader(format: Format) -> Box<dyn StreamReader> {
    match format {
        Format::OpenaiChat => openai_chat::stream_reader(),
        Format::OpenaiResponses => openai_responses::stream_reader(),
        Format::Anthropic => anthropic::stream_reader(),
        Format::Google => google::stream_reader(),
    }
}

/// The deltas of an answer, with its texts cut at characters.
fn deltas(answer: &Answer, size: usize) -> Vec<Delta> {
    let pieces = |text: &str| -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        letters.chunks(size).map(|piece| piece.iter().collect()).collect()
    };
    let mut deltas = vec![Delta::Start(answer.about.clone())];
    for part in &answer.parts {
        match part {
            Part::Text(text) => deltas.extend(pieces(text).into_iter().map(Delta::Text)),
            Part::ToolCall(call) => {
                deltas.push(Delta::ToolCall { id: call.id.clone(), name: call.name.clone() });
                deltas.extend(pieces(&call.arguments).into_iter().map(Delta::Arguments));
            }
            Part::Refusal(_)
            | Part::Image(_)
            | Part::Reasoning { .. }
            | Part::RedactedReasoning(_)
            | Part::ToolResult(_) => panic!("{part:?} is not generated"),
        }
    }
    deltas.extend([Delta::Finish(answer.finish.clone())]);
    deltas.extend(answer.usage.map(Delta::Usage));
    deltas.push(Delta::End);
    deltas
}

/// The answer that a stream of a format tells, and whether it has ended.
fn collect(format: Format, bytes: &[u8]) -> (Answer, bool) {
    let (mut reader, mut events) = (reader(format), EventReader::default());
    let mut deltas = Vec::new();
    events.feed(bytes, |data| reader.event(data, &mut deltas)).unwrap();
    // What is written in Chat Completions says `[DONE]`.
    if format != Format::OpenaiChat {
        reader.end(&mut deltas);
    }
    let (mut answer, mut has_ended) = (Answer::default(), false);
    for delta in deltas {
        match delta {
            Delta::Start(about) => answer.about = About { created: None, ..about },
            Delta::Text(piece) => match answer.parts.last_mut() {
                Some(Part::Text(text)) => text.push_str(&piece),
                _ => answer.parts.push(Part::Text(piece)),
            },
            Delta::ToolCall { id, name } => {
                answer.parts.push(Part::ToolCall(ToolCall { id, name, arguments: String::new() }));
            }
            Delta::Arguments(piece) => match answer.parts.last_mut() {
                Some(Part::ToolCall(call)) => call.arguments.push_str(&piece),
                other => panic!("arguments after {other:?}"),
            },
            Delta::Finish(finish) => answer.finish = finish,
            Delta::Usage(usage) => answer.usage = Some(usage),
            Delta::End => has_ended = true,
            Delta::Refusal(_)
            | Delta::Reasoning(_)
            | Delta::Signature(_)
            | Delta::RedactedReasoning(_)
            | Delta::Failure(_) => panic!("{delta:?} is not generated"),
        }
    }
    (answer, has_ended)
}

/// The request of a client that sends an answer back as it got it.
fn with_history(client: Format, response: &Json) -> Json {
    let first = |list: &str| match response.get(list) {
        Some(Json::List(items)) => items[0].clone(),
        other => panic!("{other:?} is no list"),
    };
    let member = |object: &Json, name: &str| object.get(name).unwrap().clone();
    let user = || object! { "role": "user", "content": "Hi" };
    match client {
        Format::OpenaiChat => {
            let message = member(&first("choices"), "message");
            object! { "model": "model-1", "messages": vec![user(), message, user()] }
        }
        Format::OpenaiResponses => {
            let Json::List(mut items) = member(response, "output") else { panic!("no output") };
            items.insert(0, user());
            items.push(user());
            object! { "model": "model-1", "input": items }
        }
        Format::Anthropic => {
            let message = object! { "role": "assistant", "content": member(response, "content") };
            object! { "model": "model-1", "max_tokens": 100_u64, "messages": vec![user(), message, user()] }
        }
        Format::Google => {
            let user = || object! { "role": "user", "parts": vec![object! { "text": "Hi" }] };
            let content = member(&first("candidates"), "content");
            object! { "contents": vec![user(), content, user()] }
        }
    }
}

/// What the assistant said in a provider's response, or in the second turn of a request to it.
fn said(provider: Format, document: &Json) -> Vec<Json> {
    let at = |path: &[&str]| {
        path.iter().try_fold(document.clone(), |value, step| match (step.parse::<usize>(), value) {
            (Ok(index), Json::List(items)) => items.get(index).cloned(),
            (_, value) => value.get(step).cloned(),
        })
    };
    let list = |response: &[&str], request: &[&str]| match at(response).or_else(|| at(request)) {
        Some(Json::List(items)) => items,
        other => panic!("{other:?} is no list"),
    };
    match provider {
        Format::Anthropic => list(&["content"], &["messages", "1", "content"]),
        Format::Google => list(&["candidates", "0", "content", "parts"], &["contents", "1", "parts"]),
        Format::OpenaiResponses => {
            let items = list(&["output"], &["input"]).into_iter();
            let items = items.filter(|item| item.get("role") != Some(&"user".into()));
            items.map(without_labels).collect()
        }
        Format::OpenaiChat => panic!("chat takes no reasoning back"),
    }
}

/// An item of Responses without what the provider adds to it.
fn without_labels(value: Json) -> Json {
    let labels = ["id", "status", "annotations", "logprobs"];
    match value {
        Json::Object(members) => {
            let kept = members.into_iter().filter(|(name, _)| !labels.contains(&name.as_str()));
            let mut kept: Vec<_> = kept.map(|(name, value)| (name, without_labels(value))).collect();
            kept.sort_by(|one, other| one.0.cmp(&other.0));
            Json::Object(kept)
        }
        Json::List(items) => Json::List(items.into_iter().map(without_labels).collect()),
        other => other,
    }
}

proptest! {
    #[test]
    fn a_provider_gets_its_reasoning_back_through_any_client(answer in answer(), reasoning in reasoning()) {
        let mut answer = answer;
        answer.parts.insert(0, reasoning);
        for provider in [Format::OpenaiResponses, Format::Anthropic, Format::Google] {
            let response = write_answer(provider, answer.clone());
            let wrote = said(provider, &Json::parse(&response).unwrap());
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let got = Json::parse(&conversion.response(&response).unwrap()).unwrap();
                let request = with_history(client, &got).to_text();
                let facts = RequestFacts {
                    model: Some("model-1"),
                    max_output_tokens: Some(100),
                    ..RequestFacts::default()
                };
                let converted = conversion.request(request.as_bytes(), &facts).unwrap();
                let gets = said(provider, &Json::parse(&converted.body).unwrap());
                prop_assert_eq!(&gets, &wrote, "{:?} by {:?}", provider, client);
            }
        }
    }

    #[test]
    fn a_request_means_the_same_after_two_conversions(conversation in conversation()) {
        let facts = facts(&conversation);
        for client in FORMATS {
            let own = of_formats(conversation.clone(), [client, client]);
            let source = client.write_request(own.clone(), client, &facts).unwrap();
            let read = client.read_request(source.clone(), &facts).unwrap();
            let expected = meaning(passed_through(own, [client, client]));
            prop_assert_eq!(meaning(read), expected, "{:?}: {}", client, source.to_text());
            for provider in FORMATS {
                let Some(there) = Conversion::between(client, provider) else { continue };
                let back = Conversion::between(provider, client).unwrap();
                let common = of_formats(conversation.clone(), [client, provider]);
                let source = client.write_request(common.clone(), client, &facts).unwrap();
                let converted = there.request(source.to_text().as_bytes(), &facts).unwrap();
                let returned = back.request(&converted.body, &facts).unwrap();
                let read = client.read_request(Json::parse(&returned.body).unwrap(), &facts).unwrap();
                let expected = meaning(passed_through(common, [client, provider]));
                prop_assert_eq!(meaning(read), expected, "{:?} by {:?}", client, provider);
            }
        }
    }

    #[test]
    fn a_response_means_the_same_after_a_conversion(answer in answer()) {
        for provider in FORMATS {
            let source = write_answer(provider, answer.clone());
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let converted = conversion.response(&source).unwrap();
                prop_assert_eq!(read_answer(client, &converted), answer.clone(), "{:?} to {:?}", provider, client);
            }
        }
    }

    #[test]
    fn a_response_is_told_as_a_stream_to_a_client_that_asked_for_one(answer in answer()) {
        for provider in FORMATS {
            let source = write_answer(provider, answer.clone());
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let events = conversion.for_answer(OPTIONS).response_as_stream(&source).unwrap();
                let (told, has_ended) = collect(client, &events);
                prop_assert!(has_ended, "{provider:?} to {client:?}");
                prop_assert_eq!(told, answer.clone(), "{:?} to {:?}", provider, client);
            }
        }
    }

    #[test]
    fn a_stream_tells_the_same_answer_however_it_is_cut(
        answer in answer(), text_size in 1_usize..6, piece_size in 1_usize..300,
    ) {
        for provider in FORMATS {
            let (mut source, mut writer) = (Events::default(), writer(provider));
            for delta in deltas(&answer, text_size) {
                writer.write(delta, &mut source).unwrap();
            }
            let source = source.into_bytes();
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let mut converter = conversion.for_answer(OPTIONS).stream();
                let mut converted = Vec::new();
                for piece in source.chunks(piece_size) {
                    converted.extend(converter.feed(piece).unwrap());
                }
                converted.extend(converter.finish().unwrap());
                let (told, has_ended) = collect(client, &converted);
                prop_assert!(has_ended, "{provider:?} to {client:?}");
                prop_assert_eq!(told, answer.clone(), "{:?} to {:?}", provider, client);
            }
        }
    }

    #[test]
    fn a_stream_that_broke_off_has_no_end(answer in answer(), part in 0_usize..1000) {
        for provider in FORMATS {
            let (mut source, mut writer) = (Events::default(), writer(provider));
            for delta in deltas(&answer, 3) {
                writer.write(delta, &mut source).unwrap();
            }
            let mut source = source.into_bytes();
            // At least the last byte of the last event is lost.
            source.truncate(source.len() * part / 1000);
            // Some providers of Chat Completions say nothing after the reason to end.
            let events = String::from_utf8_lossy(&source);
            let events = events.rsplit_once("\n\n").map_or("", |(events, _)| events);
            let is_whole = provider == Format::OpenaiChat && events.contains("\"finish_reason\":\"");
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let mut converter = conversion.stream();
                let mut converted = converter.feed(&source).unwrap();
                converted.extend(converter.finish().unwrap());
                let (_, has_ended) = collect(client, &converted);
                prop_assert_eq!(has_ended, is_whole, "{:?} to {:?}", provider, client);
            }
        }
    }
}
