//! Property tests: conversations and answers keep their meaning from format to format, whole or streamed.
//! `PROPTEST_CASES` says how many cases are made.

use proptest::prelude::*;

use crate::answer::{About, Answer, Finish, Usage};
use crate::conversation::{
    Conversation, Delivery, Given, Image, ImageSource, Outcome, OutputFormat, Part, Role, Sampling,
    Strictness, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::conversion::{AnswerOptions, Conversion, Format, RequestFacts};
use crate::delta::{Delta, Events, StreamReader, StreamWriter};
use crate::fields::Field;
use crate::json::{Json, object};
use crate::server_sent_events::EventReader;
use crate::{anthropic, google, openai_chat, openai_responses};

const FORMATS: [Format; 4] = [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Google];

const OPTIONS: AnswerOptions = AnswerOptions { include_usage: true, created: 7 };

fn given<T>(value: T) -> Given<T> {
    Given { field: String::new(), value }
}

/// Text of letters and of what is special in JSON, events and Unicode.
fn text() -> impl Strategy<Value = String> {
    let pieces = &[
        "a",
        "Hello",
        " ",
        "\n",
        "\r\n",
        "\"",
        "\\",
        "{}",
        "data: [DONE]",
        "\u{0}",
        "é",
        "\u{1F600}",
        "\u{2028}",
    ];
    prop::collection::vec(prop::sample::select(&pieces[..]), 1..5).prop_map(|pieces| pieces.concat())
}

fn arguments() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        text().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        Just(Json::Null),
        text().prop_map(|text| object! { "z": text, "a": vec![Json::Null] }),
    ];
    prop::collection::vec(value, 0..3).prop_map(|values| {
        let names = ["z", "b", "a"];
        Json::Object(names.iter().map(|name| (*name).to_owned()).zip(values).collect()).to_text()
    })
}

fn image() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(ImageSource::Url("https://example.com/a.png".to_owned())),
        Just(ImageSource::Base64 { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() }),
    ]
    .prop_map(|source| Part::Image(Image { source, detail: None }))
}

/// A question, and the calls, results and words that answer it.
type Exchange = (Vec<Part>, Vec<String>, Vec<(String, String, bool)>);

fn exchange() -> impl Strategy<Value = Exchange> {
    let question = prop::collection::vec(prop_oneof![3 => text().prop_map(Part::Text), 1 => image()], 1..3);
    let calls = prop::collection::vec((arguments(), text(), any::<bool>()), 0..3);
    (question, prop::collection::vec(text(), 1..3), calls)
}

fn tool_choice() -> impl Strategy<Value = Option<ToolChoice>> {
    prop_oneof![
        Just(None),
        Just(Some(ToolChoice::Auto)),
        Just(Some(ToolChoice::None)),
        Just(Some(ToolChoice::Required)),
        Just(Some(ToolChoice::Named("weather".to_owned()))),
    ]
}

/// A conversation of what all formats have.
fn conversation() -> impl Strategy<Value = Conversation> {
    let settings = (tool_choice(), any::<bool>(), any::<bool>(), any::<bool>(), 1_u64..100_000, 0.0..=1.0);
    let exchanges = prop::collection::vec(exchange(), 0..4);
    (prop::option::of(text()), exchanges, text(), settings).prop_map(
        |(system, exchanges, last, (choice, is_stream, has_schema, has_tools, limit, temperature))| {
            let mut conversation = Conversation {
                model: "model-1".to_owned(),
                delivery: Delivery::streamed(is_stream),
                max_output_tokens: Some(limit),
                sampling: Sampling {
                    temperature: serde_json::Number::from_f64(temperature).map(given),
                    ..Sampling::default()
                },
                ..Conversation::default()
            };
            let schema = object! { "type": "object", "properties": object! { "z": object! { "type": "string" }, "a": object! {} } };
            if has_tools {
                conversation.tools.push(Tool {
                    field: String::new(),
                    name: "weather".to_owned(),
                    description: Some("The weather".to_owned()),
                    parameters: Some(schema.clone()),
                    strict: None,
                });
                conversation.tool_choice = choice.map(given);
            }
            if has_schema {
                conversation.output = Some(given(OutputFormat::Schema {
                    name: None,
                    description: None,
                    schema,
                    strictness: Strictness::Always,
                }));
            }
            if let Some(system) = system {
                conversation.add(Role::System, "", vec![given(Part::Text(system))]);
            }
            let mut count = 0;
            for (question, words, calls) in exchanges {
                conversation.add(Role::User, "", question.into_iter().map(given).collect());
                let mut said: Vec<Part> = words.into_iter().map(Part::Text).collect();
                let mut results = Vec::new();
                for (arguments, result, has_failed) in calls {
                    let id = format!("call_{count}");
                    count += 1;
                    said.push(Part::ToolCall(ToolCall { id: id.clone(), name: "weather".to_owned(), arguments }));
                    results.push(Part::ToolResult(ToolResult {
                        call_id: id,
                        content: vec![given(Part::Text(result))],
                        outcome: if has_failed { Outcome::Failed } else { Outcome::Worked },
                    }));
                }
                conversation.add(Role::Assistant, "", said.into_iter().map(given).collect());
                if !results.is_empty() {
                    conversation.add(Role::User, "", results.into_iter().map(given).collect());
                }
            }
            conversation.add(Role::User, "", vec![given(Part::Text(last))]);
            conversation
        },
    )
}

/// What a conversation means, without what formats write in different ways.
fn meaning(conversation: Conversation) -> String {
    let mut lines = vec![format!(
        "{} {:?} {:?} {:?}",
        conversation.model,
        conversation.delivery,
        conversation.max_output_tokens,
        conversation.sampling.temperature.as_ref().map(|given| given.value.as_f64()),
    )];
    let choice = conversation.tool_choice.as_ref().map(|choice| choice.value.clone());
    lines.push(format!("{:?}", choice.filter(|choice| *choice != ToolChoice::Auto)));
    for tool in &conversation.tools {
        lines.push(format!("{} {:?} {:?}", tool.name, tool.description, tool.parameters));
    }
    if let Some(Given { value: OutputFormat::Schema { schema, .. }, .. }) = &conversation.output {
        lines.push(schema.to_text());
    }
    for turn in conversation.joined_turns() {
        lines.push(format!("{:?}:", turn.role));
        for part in turn.parts {
            lines.push(match part.value {
                Part::ToolResult(result) => {
                    let id = result.call_id.clone();
                    // A format without a mark for a failure says it in the text.
                    let content = result.plain_content().unwrap();
                    format!("{id} {:?}", content.iter().map(|part| &part.value).collect::<Vec<_>>())
                }
                part => format!("{part:?}"),
            });
        }
    }
    lines.join("\n")
}

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
    reader.end(&mut deltas);
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

proptest! {
    #[test]
    fn a_request_means_the_same_after_two_conversions(conversation in conversation()) {
        let facts = facts(&conversation);
        for client in FORMATS {
            let source = client.write_request(conversation.clone(), client, &facts).unwrap();
            let read = client.read_request(source.clone(), &facts).unwrap();
            prop_assert_eq!(meaning(read), meaning(conversation.clone()), "{:?}: {}", client, source.to_text());
            for provider in FORMATS {
                let Some(there) = Conversion::between(client, provider) else { continue };
                let back = Conversion::between(provider, client).unwrap();
                let converted = there.request(source.to_text().as_bytes(), &facts).unwrap();
                let returned = back.request(&converted.body, &facts).unwrap();
                let read = client.read_request(Json::parse(&returned.body).unwrap(), &facts).unwrap();
                prop_assert_eq!(meaning(read), meaning(conversation.clone()), "{:?} by {:?}", client, provider);
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
            for client in FORMATS {
                let Some(conversion) = Conversion::between(client, provider) else { continue };
                let mut converter = conversion.stream();
                let mut converted = converter.feed(&source).unwrap();
                converted.extend(converter.finish().unwrap());
                let (_, has_ended) = collect(client, &converted);
                prop_assert!(!has_ended, "{provider:?} to {client:?}");
            }
        }
    }
}
