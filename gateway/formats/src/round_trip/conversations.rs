//! Random conversations, what two formats have in common of them, and what they mean.

use proptest::prelude::*;

use crate::conversation::{
    Conversation, Delivery, Given, Image, ImageSource, Outcome, OutputFormat, Part, Role, Sampling,
    Strictness, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::conversion::Format;
use crate::json::{Json, object};

/// The name that OpenAI gets of a schema that has none.
const NAME_OF_UNNAMED: &str = "output";

fn given<T>(value: T) -> Given<T> {
    Given { field: String::new(), value }
}

/// Text of letters and of what is special in JSON, events and Unicode.
pub(super) fn text() -> impl Strategy<Value = String> {
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

pub(super) fn arguments() -> impl Strategy<Value = String> {
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
    let source = prop_oneof![
        Just(ImageSource::Url("https://example.com/a.png".to_owned())),
        Just(ImageSource::Base64 { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() }),
    ];
    let detail = prop_oneof![Just(None), Just(Some("low".to_owned()))];
    (source, detail).prop_map(|(source, detail)| Part::Image(Image { source, detail }))
}

/// The arguments of a call, and what it returned: a text and an image, or an error.
type Call = (String, String, Option<Part>, bool);

/// A question, and the reasoning, words, calls and results that answer it.
type Exchange = (Vec<Part>, Option<Part>, Vec<String>, Vec<Call>);

fn exchange() -> impl Strategy<Value = Exchange> {
    let question = prop::collection::vec(prop_oneof![3 => text().prop_map(Part::Text), 1 => image()], 1..3);
    let call = (arguments(), text(), prop::option::weighted(0.3, image()), any::<bool>());
    let words = prop::collection::vec(text(), 1..3);
    (question, prop::option::of(reasoning()), words, prop::collection::vec(call, 0..3))
}

/// Reasoning that its provider can read again.
pub(super) fn reasoning() -> impl Strategy<Value = Part> {
    (text(), text()).prop_map(|(text, signature)| Part::Reasoning { text, signature: Some(signature) })
}

fn tool_choice() -> impl Strategy<Value = Option<ToolChoice>> {
    prop_oneof![
        Just(None),
        Just(Some(ToolChoice::Auto)),
        Just(Some(ToolChoice::None)),
        Just(Some(ToolChoice::Required)),
        Just(Some(ToolChoice::Named("weather".to_owned()))),
        Just(Some(ToolChoice::RequiredAmong(TOOLS.map(str::to_owned).to_vec()))),
    ]
}

/// The names of the tools.
const TOOLS: [&str; 2] = ["weather", "time"];

fn schema() -> Json {
    object! { "type": "object", "properties": object! { "z": object! { "type": "string" }, "a": object! {} } }
}

fn output() -> impl Strategy<Value = Option<OutputFormat>> {
    let named = (prop::option::of(text()), any::<bool>()).prop_map(|(description, is_strict)| {
        let strictness = Strictness::Chosen(Some(is_strict));
        OutputFormat::Schema { name: Some("answer".to_owned()), description, schema: schema(), strictness }
    });
    prop_oneof![2 => Just(None), 1 => Just(Some(OutputFormat::Json)), 3 => named.prop_map(Some)]
}

/// The tools, each strict or not.
fn tools() -> impl Strategy<Value = Vec<Tool>> {
    let strict = || prop_oneof![Just(None), any::<bool>().prop_map(Some)];
    let both = (strict(), strict()).prop_map(|strict| {
        let tool = |name: &str, description: Option<&str>, strict| Tool {
            field: String::new(),
            name: name.to_owned(),
            description: description.map(str::to_owned),
            parameters: Some(schema()),
            strict,
        };
        vec![tool(TOOLS[0], Some("The weather"), strict.0), tool(TOOLS[1], None, strict.1)]
    });
    prop_oneof![Just(Vec::new()), both]
}

fn sampling() -> impl Strategy<Value = Sampling> {
    let number = || prop::option::of(prop::sample::select(&[0.125, 0.3, 0.5, 0.75, 1.0][..]));
    let count = || prop::option::of(1_u64..100);
    (number(), number(), number(), number(), count(), count()).prop_map(
        |(temperature, top_p, frequency, presence, top_k, seed)| {
            let real = |number: Option<f64>| number.and_then(serde_json::Number::from_f64).map(given);
            let whole = |number: Option<u64>| number.map(|number| given(number.into()));
            Sampling {
                temperature: real(temperature),
                top_p: real(top_p),
                top_k: whole(top_k),
                frequency_penalty: real(frequency),
                presence_penalty: real(presence),
                seed: whole(seed),
            }
        },
    )
}

/// A conversation, also of what only some formats have.
pub(super) fn conversation() -> impl Strategy<Value = Conversation> {
    let stop = prop::option::of(prop::collection::vec(text(), 1..4));
    let word = |words: &'static [&'static str]| prop::option::of(prop::sample::select(words));
    let settings = (any::<bool>(), 1_u64..100_000, prop::option::of(any::<bool>()), stop, sampling());
    let others = (tools(), tool_choice(), output(), word(&["low", "high"]), word(&["user-1"]));
    let exchanges = prop::collection::vec(exchange(), 0..4);
    (prop::option::of(text()), exchanges, text(), settings, others).prop_map(
        |(system, exchanges, last, settings, (tools, choice, output, verbosity, user))| {
            let (is_stream, limit, parallel_calls, stop, sampling) = settings;
            let mut conversation = Conversation {
                model: "model-1".to_owned(),
                delivery: Delivery::streamed(is_stream),
                max_output_tokens: Some(limit),
                sampling,
                stop: stop.map(given),
                tool_choice: choice.filter(|_| !tools.is_empty()).map(given),
                parallel_calls: parallel_calls.map(given),
                tools,
                output: output.map(given),
                verbosity: verbosity.map(str::to_owned).map(given),
                user: user.map(str::to_owned),
                ..Conversation::default()
            };
            if let Some(system) = system {
                conversation.add(Role::System, "", vec![given(Part::Text(system))]);
            }
            let mut count = 0;
            for (question, reasoning, words, calls) in exchanges {
                conversation.add(Role::User, "", question.into_iter().map(given).collect());
                let mut said: Vec<Part> =
                    reasoning.into_iter().chain(words.into_iter().map(Part::Text)).collect();
                let mut results = Vec::new();
                for (arguments, result, image, has_failed) in calls {
                    let (id, name) = (format!("call_{count}"), TOOLS[count % TOOLS.len()].to_owned());
                    count += 1;
                    said.push(Part::ToolCall(ToolCall { id: id.clone(), name, arguments }));
                    let image = image.filter(|_| !has_failed);
                    results.push(Part::ToolResult(ToolResult {
                        call_id: id,
                        content: [Part::Text(result)].into_iter().chain(image).map(given).collect(),
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

/// The conversation without what one of two formats does not have.
pub(super) fn of_formats(mut conversation: Conversation, formats: [Format; 2]) -> Conversation {
    use Format::{Anthropic, Google, OpenaiChat, OpenaiResponses};
    let have = |all: &[Format]| formats.iter().all(|format| all.contains(format));
    if !have(&[OpenaiChat, Anthropic, Google]) {
        conversation.stop = None;
    }
    if !have(&[Anthropic, Google]) {
        conversation.sampling.top_k = None;
    }
    if !have(&[OpenaiChat, Google]) {
        let Sampling { frequency_penalty, presence_penalty, seed, .. } = &mut conversation.sampling;
        (*frequency_penalty, *presence_penalty, *seed) = (None, None, None);
    }
    if !have(&[OpenaiChat, OpenaiResponses, Anthropic]) {
        conversation.parallel_calls = None;
        conversation.user = None;
        // Google has one mode for the calls of all tools.
        conversation.tools.iter_mut().for_each(|tool| tool.strict = None);
    }
    if !have(&[OpenaiChat, OpenaiResponses, Google]) {
        conversation.tool_choice.take_if(|choice| matches!(choice.value, ToolChoice::RequiredAmong(_)));
        conversation.output.take_if(|output| output.value == OutputFormat::Json);
    }
    let are_openais = have(&[OpenaiChat, OpenaiResponses]);
    if !are_openais {
        conversation.verbosity = None;
        if let Some(Given { value: OutputFormat::Schema { name, description, strictness, .. }, .. }) =
            &mut conversation.output
        {
            // The others have no name, put the description into the schema, and always keep to it.
            (*name, *description, *strictness) = (None, None, Strictness::Always);
        }
    }
    if !have(&[OpenaiResponses, Anthropic]) {
        for turn in &mut conversation.turns {
            turn.parts.retain(|part| !matches!(part.value, Part::Reasoning { .. }));
        }
    }
    let has_images_in_results = have(&[OpenaiResponses, Anthropic]);
    for part in conversation.turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        match &mut part.value {
            Part::Image(image) if !are_openais => image.detail = None,
            Part::ToolResult(result) => {
                result.content.retain(|part| has_images_in_results || matches!(part.value, Part::Text(_)));
                for part in &mut result.content {
                    if let Part::Image(image) = &mut part.value
                        && !are_openais
                    {
                        image.detail = None;
                    }
                }
            }
            Part::Image(_)
            | Part::Text(_)
            | Part::Refusal(_)
            | Part::Reasoning { .. }
            | Part::RedactedReasoning(_)
            | Part::ToolCall(_) => {}
        }
    }
    conversation
}

/// What a conversation says after it passed through two formats. OpenAI's have no mark for a tool that failed: the text of
/// its result says it. That text is no mark again, since a client of OpenAI's may mean what a tool found.
pub(super) fn passed_through(mut conversation: Conversation, formats: [Format; 2]) -> Conversation {
    if !formats.iter().any(|format| matches!(format, Format::OpenaiChat | Format::OpenaiResponses)) {
        return conversation;
    }
    for part in conversation.turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        if let Part::ToolResult(result) = &mut part.value
            && result.outcome == Outcome::Failed
        {
            let text = object! { "error": result.text().unwrap() }.to_text();
            (result.content, result.outcome) = (vec![given(Part::Text(text))], Outcome::Worked);
        }
    }
    conversation
}

/// What a conversation means, without what formats write in different ways.
pub(super) fn meaning(conversation: Conversation) -> String {
    let Conversation { model, delivery, max_output_tokens, verbosity, user, .. } = &conversation;
    let mut lines = vec![format!("{model} {delivery:?} {max_output_tokens:?} {user:?}")];
    let number =
        |number: &Option<Given<serde_json::Number>>| number.as_ref().map(|given| given.value.as_f64());
    let Sampling { temperature, top_p, top_k, frequency_penalty, presence_penalty, seed } =
        &conversation.sampling;
    let sampling = [temperature, top_p, top_k, frequency_penalty, presence_penalty, seed].map(number);
    let stop = conversation.stop.as_ref().map(|stop| &stop.value);
    lines.push(format!("{sampling:?} {stop:?} {:?}", verbosity.as_ref().map(|verbosity| &verbosity.value)));
    let choice = conversation.tool_choice.as_ref().map(|choice| choice.value.clone());
    let may_call = !conversation.tools.is_empty() && choice != Some(ToolChoice::None);
    // Who may call nothing calls nothing in parallel.
    let is_serial = may_call && conversation.parallel_calls.as_ref().is_some_and(|calls| !calls.value);
    lines.push(format!("{:?} {is_serial}", choice.filter(|choice| *choice != ToolChoice::Auto)));
    for tool in &conversation.tools {
        let is_strict = tool.strict == Some(true);
        lines.push(format!("{} {:?} {:?} {is_strict}", tool.name, tool.description, tool.parameters));
    }
    lines.push(match conversation.output.as_ref().map(|output| &output.value) {
        None => "text".to_owned(),
        Some(OutputFormat::Json) => "JSON".to_owned(),
        Some(OutputFormat::Schema { name, description, schema, strictness }) => {
            // Only who names a schema says whether it is kept to.
            let name = name.as_ref().filter(|name| *name != NAME_OF_UNNAMED);
            let strictness = name.map(|_| strictness);
            format!("{name:?} {description:?} {strictness:?} {}", schema.to_text())
        }
    });
    for turn in conversation.joined_turns() {
        lines.push(format!("{:?}:", turn.role));
        for part in turn.parts {
            lines.push(match part.value {
                Part::ToolResult(result) => {
                    let content: Vec<&Part> = result.content.iter().map(|part| &part.value).collect();
                    format!("{} {:?} {content:?}", result.call_id, result.outcome)
                }
                part => format!("{part:?}"),
            });
        }
    }
    lines.join("\n")
}
