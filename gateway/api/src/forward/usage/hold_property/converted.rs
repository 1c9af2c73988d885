//! The holds of converted calls cover them, too: the output limit that a client states is that of the converted body.

use farthing_formats::{Conversion, Format, RequestFacts};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::shop::Shop;
use super::{
    ADDED_FOR_TOOLS, Drawn, Host, InputKind, Medium, called, covers, limits_at, openai_format, read_report,
    read_request, size_of_call,
};
use crate::model_endpoints::{AllowedProviders, ModelEndpoint, choose};
use crate::providers::CallersKey;
use crate::providers::catalogue::Listed;

/// What a client calls, and the output limit of its format.
const CLIENTS: [(ModelEndpoint, &str); 4] = [
    (ModelEndpoint::ChatCompletions, "max_tokens"),
    (ModelEndpoint::ChatCompletions, "max_completion_tokens"),
    (ModelEndpoint::Responses, "max_output_tokens"),
    (ModelEndpoint::Messages, "max_tokens"),
];

/// The body of a client's call.
fn body(format: Format, model: &str, drawn: &Drawn) -> Value {
    let number = |number: u64| usize::try_from(number).unwrap();
    let mut tools = Vec::new();
    let content = match drawn.input_kind {
        InputKind::Prompts(prompts) => json!("a".repeat(number(prompts))),
        InputKind::Image => json!([image(format)]),
        InputKind::Inputs(images, Medium::Images) | InputKind::Requests(images, Medium::Images) => {
            json!(vec![image(format); number(images)])
        }
        InputKind::Tools { described, named } => {
            // Tools that are only named are those of one provider, and are not converted.
            tools = vec![tool(format); number(described + named)];
            json!("a")
        }
        InputKind::Text | InputKind::Inputs(_, Medium::Texts) | InputKind::Requests(_, Medium::Texts) => {
            json!("a")
        }
    };
    let message = json!([{"role": "user", "content": content}]);
    let mut body = match format {
        Format::OpenaiResponses => json!({"model": model, "input": message}),
        Format::OpenaiChat | Format::Anthropic | Format::Google => {
            json!({"model": model, "messages": message})
        }
    };
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    body
}

/// An image at a URL, as a client sends it.
fn image(format: Format) -> Value {
    let url = "https://images.example/a.png";
    match format {
        Format::OpenaiResponses => json!({"type": "input_image", "image_url": url}),
        Format::Anthropic => json!({"type": "image", "source": {"type": "url", "url": url}}),
        Format::OpenaiChat | Format::Google => super::image(),
    }
}

/// A tool, as a client describes it.
fn tool(format: Format) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    match format {
        Format::OpenaiResponses => json!({"type": "function", "name": "f", "parameters": schema}),
        Format::Anthropic => json!({"name": "f", "input_schema": schema}),
        Format::OpenaiChat | Format::Google => {
            json!({"type": "function", "function": {"name": "f", "parameters": schema}})
        }
    }
}

/// The most input of a converted call, which is one conversation.
fn most_input(drawn: &Drawn, model_limit: Option<u64>) -> u64 {
    if let InputKind::Tools { described, named } = drawn.input_kind {
        return drawn.input_bytes + ADDED_FOR_TOOLS * u64::from(described + named > 0);
    }
    if drawn.is_text() { drawn.input_bytes } else { model_limit.unwrap_or(drawn.input_bytes) }
}

impl Shop {
    /// Converts, opens and settles a call, and checks its hold. Returns whether the provider needs a conversion.
    pub(super) fn converted_call(
        &mut self,
        provider: &str,
        model: &str,
        listed: &Listed,
        drawn: &Drawn,
    ) -> Result<bool, TestCaseError> {
        let (endpoint, name) = CLIENTS[drawn.dialect];
        let host = if drawn.host == Host::OwnName { Host::Public } else { drawn.host };
        let (providers, _) = called(provider, host, "/");
        let named = format!("{provider}/{model}");
        let Ok(chosen) = choose(&providers, endpoint, &named, CallersKey::Present, &AllowedProviders::All)
        else {
            return Ok(false);
        };
        let client = endpoint.format().unwrap();
        let conversion = chosen.format.and_then(|format| Conversion::between(client, format));
        let Some(conversion) = conversion else { return Ok(false) };
        let (at, target) = (providers.at(&chosen.url), &chosen.url);
        let model_limit = listed.max_tokens.output.unwrap_or(1_000);
        let limit = drawn.limit.map(|share| (model_limit * share / 100).max(1));
        let mut asked = body(client, model, drawn);
        if let Some(limit) = limit {
            asked[name] = json!(limit);
        }
        let facts = RequestFacts {
            model: Some(&chosen.model),
            max_output_tokens: listed.max_tokens.output,
            chat_limit: at.chat_limit(),
            ..RequestFacts::default()
        };
        // A client of Anthropic's must state a limit.
        let Ok(converted) = conversion.request(asked.to_string().as_bytes(), &facts) else {
            prop_assert_eq!((client, limit), (Format::Anthropic, None), "{} is refused", asked);
            return Ok(false);
        };
        let options = read_request(&converted.body);
        let limits = limits_at(&providers, target, listed.max_tokens);
        let size = size_of_call(&options, &converted.body, drawn, limits);
        let most_input = most_input(drawn, listed.max_tokens.input);
        let usage = drawn.usage(most_input, limit.unwrap_or(model_limit));
        let format = openai_format(provider, target.path());
        let usage = read_report(at.shape(target), format, drawn.form, &usage);
        let (opened, metered) = self.open_and_settle(&listed.price, drawn.payer, size, usage);
        covers(&opened, &metered, limit.is_some() && drawn.is_text())?;
        Ok(true)
    }
}
