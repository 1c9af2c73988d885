//! A call whose body has come: the provider's URL, the body that is sent there, and what is done to the response. A call
//! whose caller speaks another format than the provider is converted here, before anything is recorded of it.

use axum::body::Body;
use bytes::Bytes;
use farthing_core::command::Caller;
use farthing_formats::{AnswerOptions, Conversion, Format, RequestError, RequestFacts};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Uri};

use std::time::Duration;

use super::credential::Found;
use super::forwarder::Forwarder;
use super::prepare::{ambiguous_member, check_target, key_parameter};
use super::request_body::{Ahead, BodyFingerprint, ReadAhead, RequestBody, read_ahead};
use super::response_change::{ResponseForm, ResponseRule};
use super::turns::Turn;
use super::usage::{
    FormExtent, FormOptions, MAX_MEMBERS, RequestedOptions, Shape, naming_model, read_bedrock_options,
    read_form, read_request, without_member,
};
use crate::body_memory::{MemoryShare, beside_others};
use crate::error::{ApiError, ForwardError, Issue};
use crate::model_endpoints::{AllowedProviders, Chosen, ModelEndpoint, choose};
use crate::providers::{CallersKey, Recognised, StreamUsage};
use crate::rewrite::{Rewrite, with_method};
use crate::target::{self, Query};

/// A call whose body has come.
pub(super) struct ReadCall {
    /// The path that an idempotency key is scoped to.
    pub(super) scope: &'static str,
    /// The URL as the log has it: without the credential's provider key.
    pub(super) recorded: Uri,
    /// The provider's URL.
    pub(super) target: Uri,
    /// The body that is sent.
    pub(super) body: RequestBody,
    /// The same, if all of it is known and JSON.
    pub(super) json: Option<Bytes>,
    /// The form with sound to be transcribed, and how much of it is known.
    pub(super) form: Option<(FormOptions, FormExtent)>,
    /// What it asks for.
    pub(super) options: RequestedOptions,
    /// The model, by the provider's name for it.
    pub(super) model: Option<String>,
    /// Its length, as far as it is known, in bytes.
    pub(super) known_bytes: u64,
    /// What else is asked for, which neither the URL nor the caller's body may say.
    pub(super) asked: String,
    /// What identifies the caller's body under an idempotency key.
    pub(super) fingerprint: Option<BodyFingerprint>,
    /// What is done to the response.
    pub(super) rule: ResponseRule,
}

/// A body as the provider reads it.
struct SentBody {
    json: Bytes,
    options: RequestedOptions,
    model: String,
    stream: bool,
    rule: ResponseRule,
}

impl ReadCall {
    /// A call to `target` whose body passes unchanged.
    pub(super) async fn forwarded(
        (provider, caller): (Recognised<'_>, &Caller),
        (recorded, target): (Uri, Uri),
        (headers, body): (&HeaderMap, Body),
        ahead: Ahead,
        (turn, timeout): (Turn, Duration),
    ) -> Result<Self, ApiError> {
        let read = tokio::time::timeout(timeout, read_ahead(headers, body, ahead, turn, timeout));
        let ReadAhead { body, json, form, known_bytes, fingerprint } = read
            .await
            .map_err(|_| ApiError::issue(["body"], "did not come in time"))?
            .map_err(|error| ApiError::issue(["body"], format!("cannot be read: {error}")))?;
        let is_transcription = provider.shape(&target) == Shape::Transcription;
        let form = form.filter(|_| is_transcription).and_then(|(bytes, extent)| {
            let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
            Some((read_form(content_type, &bytes, extent)?, extent))
        });
        let on_spend_key = matches!(caller, Caller::SpendKey(_));
        let mut options = match (&json, &form) {
            (Some(json), _) => read_request(json),
            // What follows the beginning could name another model, which a list of models must not miss.
            (None, Some((form, extent))) if *extent == FormExtent::Whole || !on_spend_key => {
                form.options.clone()
            }
            (None, _) => RequestedOptions::default(),
        };
        // A provider ignores the body's model if the URL names one.
        let model = provider.model_within(&target).or_else(|| options.model.take());
        if let Some(json) = &json {
            read_options_of_model(provider, &mut options, json, &target, model.as_deref());
        }
        Ok(Self {
            scope: "/v1/forward",
            recorded,
            target,
            body,
            json,
            form,
            options,
            model,
            known_bytes,
            asked: String::new(),
            fingerprint,
            rule: ResponseRule::Unchanged,
        })
    }

    /// A call to `target` whose body was read whole and passes unchanged.
    pub(super) fn forwarded_whole(
        provider: Recognised<'_>,
        (recorded, target): (Uri, Uri),
        whole: &Bytes,
    ) -> Result<Self, ApiError> {
        let mut options = if whole.is_empty() { RequestedOptions::default() } else { given_options(whole)? };
        let model = provider.model_within(&target).or_else(|| options.model.take());
        read_options_of_model(provider, &mut options, whole, &target, model.as_deref());
        Ok(Self {
            scope: "/v1/forward",
            recorded,
            target,
            body: RequestBody::whole(whole.clone()),
            json: (!whole.is_empty()).then(|| whole.clone()),
            form: None,
            options,
            model,
            known_bytes: whole.len() as u64,
            asked: String::new(),
            fingerprint: Some(BodyFingerprint::of_whole(whole)),
            rule: ResponseRule::Unchanged,
        })
    }

    /// A call that came to a model endpoint with this body.
    pub(super) fn by_model(
        forwarder: &Forwarder,
        (called, allowed): (ModelEndpoint, &AllowedProviders),
        whole: &Bytes,
        (query, found): (&Query<'_>, &Found),
        share: MemoryShare,
    ) -> Result<Self, ApiError> {
        let providers = &forwarder.app.providers;
        let given = given_options(whole)?;
        if let Some(name) = given.ambiguous {
            return Err(ambiguous_member(name));
        }
        let named = given.model.as_deref().ok_or_else(|| ApiError::issue(["model"], "is required"))?;
        let callers_key =
            if found.credential.provider_key.is_some() { CallersKey::Present } else { CallersKey::Absent };
        let Chosen { model, url, format } = choose(providers, called, named, callers_key, allowed)?;
        let conversion =
            called.format().zip(format).and_then(|(client, provider)| Conversion::between(client, provider));
        // The provider need not be the one whose parameters, and whose key under whatever name, the caller's query has.
        let is_left_out = |name: &str| conversion.is_some() || name != PARAMETER_OF_MODEL_ENDPOINTS;
        let key = key_parameter(found);
        // A credential of ours in the query is refused wherever it stands, also in what does not pass.
        check_target(forwarder, &query.of_url(url.to_string(), key, |_| false)?)?;
        let target = query.of_url(url.to_string(), key, is_left_out)?;
        let sent = match conversion {
            Some(conversion) => {
                let at = providers.at(&target);
                let facts = RequestFacts {
                    model: Some(&model),
                    stream: false,
                    max_output_tokens: providers.max_tokens(at, &target, Some(&model)).output,
                    chat_limit: at.chat_limit(),
                };
                convert(forwarder, (conversion, &target), whole, &facts, share)?
            }
            None if named == model => SentBody::unchanged(whole, given, model),
            None => {
                let renamed = beside_others(whole.len(), || naming_model(whole, &model));
                let renamed = renamed.ok_or_else(|| ApiError::issue(["model"], "is required"))?;
                SentBody { json: kept(share, renamed)?, ..SentBody::unchanged(whole, given, model) }
            }
        };
        Self::sent(called.path(), (target, format), whole, sent)
    }

    /// A call that came to the rewrite endpoint with this body.
    pub(super) fn rewritten(
        forwarder: &Forwarder,
        rewrite: Rewrite,
        whole: &Bytes,
        share: MemoryShare,
    ) -> Result<Self, ApiError> {
        let Rewrite { library, client, provider, target, google } = rewrite;
        let providers = &forwarder.app.providers;
        let given = given_options(whole)?;
        // The model in the provider's URL decides, at Google and Azure.
        let of_client = google.as_ref().map(|call| call.model.clone());
        let in_url = providers.at(&target).model_within(&target).or(of_client);
        let conversion = provider.and_then(|provider| Conversion::between(client, provider));
        // A whole URL that needs no conversion is called as it is.
        let provider = provider.filter(|_| conversion.is_some() || google.is_some());
        let sent = if let Some(conversion) = conversion {
            if let Some(name) = given.ambiguous {
                return Err(ambiguous_member(name));
            }
            let model = in_url.as_deref().or(given.model.as_deref()).unwrap_or_default();
            let at = providers.at(&target);
            let facts = RequestFacts {
                model: in_url.as_deref(),
                stream: google.is_some_and(|call| call.stream),
                max_output_tokens: providers.max_tokens(at, &target, Some(model)).output,
                chat_limit: at.chat_limit(),
            };
            convert(forwarder, (conversion, &target), whole, &facts, share)?
        } else {
            let stream = google.map_or_else(|| is_streamed(&target), |call| call.stream);
            let model = in_url.or_else(|| given.model.clone()).unwrap_or_default();
            SentBody { stream, ..SentBody::unchanged(whole, given, model) }
        };
        Self::sent(library.path(), (target, provider), whole, sent)
    }

    fn sent(
        scope: &'static str,
        (target, format): (Uri, Option<Format>),
        given: &Bytes,
        sent: SentBody,
    ) -> Result<Self, ApiError> {
        let SentBody { json, options, model, stream, rule } = sent;
        let target = match format {
            Some(Format::Google) => {
                let url = with_method(&target, stream).ok_or(ApiError::Forward(ForwardError::UrlMissing))?;
                target::checked(&url).map_err(|why| ApiError::Forward(ForwardError::UrlInvalid(why)))?
            }
            Some(Format::OpenaiChat | Format::OpenaiResponses | Format::Anthropic) | None => target,
        };
        Ok(Self {
            scope,
            asked: format!("{stream} {model}"),
            recorded: target.clone(),
            target,
            body: RequestBody::whole(json.clone()),
            options,
            model: (!model.is_empty()).then_some(model),
            known_bytes: json.len() as u64,
            json: Some(json),
            form: None,
            fingerprint: Some(BodyFingerprint::of_whole(given)),
            rule,
        })
    }
}

impl SentBody {
    fn unchanged(whole: &Bytes, options: RequestedOptions, model: String) -> Self {
        Self { json: whole.clone(), options, model, stream: false, rule: ResponseRule::Unchanged }
    }
}

/// What the caller's body asks for; it must be a JSON object.
fn given_options(whole: &Bytes) -> Result<RequestedOptions, ApiError> {
    if whole.len() > FEW_VALUES_UP_TO && beside_others(whole.len(), || values_of(whole)) > MAX_VALUES {
        return Err(ApiError::issue(["body"], "must have at most 1000000 values"));
    }
    let given = beside_others(whole.len(), || read_request(whole));
    if given.has_too_many_members {
        return Err(too_many_members());
    }
    // A body that was read asks for at least one answer.
    if given.answers == 0 { Err(ApiError::issue(["body"], "must be a JSON object")) } else { Ok(given) }
}

/// Refuses a body that is not read because of the number of its members.
pub(super) fn too_many_members() -> ApiError {
    ApiError::issue(["body"], format!("must have at most {MAX_MEMBERS} members in an object"))
}

/// Reads what the form of `model` alone says, at Bedrock.
fn read_options_of_model(
    provider: Recognised<'_>,
    options: &mut RequestedOptions,
    whole: &Bytes,
    target: &Uri,
    model: Option<&str>,
) {
    if let Some(model) = model.filter(|_| provider.is_bedrock()) {
        beside_others(whole.len(), || read_bedrock_options(options, whole, target.path(), model));
    }
}

/// The query parameter that passes at the model endpoints: Anthropic's clients send it.
const PARAMETER_OF_MODEL_ENDPOINTS: &str = "beta";

/// The most values of a body. Each takes memory beside its bytes while the body is read.
const MAX_VALUES: usize = 1_000_000;

/// The bytes up to which a body has fewer values in any case.
const FEW_VALUES_UP_TO: usize = MAX_VALUES;

/// The values of a JSON text, at least: what begins a list or an object, or separates two values, outside of strings.
fn values_of(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => values += 1,
            _ => {}
        }
    }
    values
}

/// Whether a URL of Google's form asks for a stream.
fn is_streamed(target: &Uri) -> bool {
    target.path().ends_with(":streamGenerateContent")
}

/// Converts the body into the provider's format.
fn convert(
    forwarder: &Forwarder,
    (conversion, target): (Conversion, &Uri),
    whole: &Bytes,
    facts: &RequestFacts<'_>,
    share: MemoryShare,
) -> Result<SentBody, ApiError> {
    let converted = beside_others(whole.len(), || conversion.request(whole, facts)).map_err(refused)?;
    let created = u64::try_from(forwarder.app.now().timestamp()).unwrap_or_default();
    let answer = AnswerOptions { created, ..converted.answer };
    let provider = forwarder.app.providers.at(target);
    let tells_unasked = converted.stream && provider.stream_usage(target) != StreamUsage::OnRequest;
    let body = match converted.body {
        // It always reports the usage of a stream, and may refuse to be asked.
        body if tells_unasked => {
            let unasked = beside_others(body.len(), || without_member(&body, "stream_options"));
            unasked.unwrap_or(body)
        }
        body => body,
    };
    let json = kept(share, body)?;
    let options = beside_others(json.len(), || read_request(&json));
    let form = if converted.stream { ResponseForm::Stream } else { ResponseForm::Whole };
    Ok(SentBody {
        json,
        options,
        model: converted.model,
        stream: converted.stream,
        rule: ResponseRule::Converted(conversion.for_answer(answer), form),
    })
}

/// The bytes of a body, for which there must be memory.
fn kept(mut share: MemoryShare, bytes: Vec<u8>) -> Result<Bytes, ApiError> {
    share.grow_to(bytes.len())?;
    Ok(share.kept_by(bytes))
}

/// The answer to a body that is not converted.
fn refused(error: RequestError) -> ApiError {
    match error {
        RequestError::NotJson { message } => {
            ApiError::issue(["body"], format!("must be a JSON object: {message}"))
        }
        RequestError::Invalid { field, message } => ApiError::issue(path_of(&field), message),
        RequestError::Unsupported { field, why } => {
            ApiError::Forward(ForwardError::ConversionUnsupported(Issue::new(path_of(&field), why)))
        }
    }
}

/// The parts of a path such as `messages[0].content`.
fn path_of(field: &str) -> Vec<String> {
    let parts = field.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::body_memory::tests::is_beside_others;
    use crate::providers::Providers;
    use crate::providers::catalogue::Catalogue;

    #[test]
    fn the_form_of_a_long_body_is_read_beside_other_tasks() {
        let providers = Providers::new(Vec::new(), BTreeMap::new(), Catalogue::default());
        for (length, is_long) in [(1_000_000, true), (1_000, false)] {
            let body = Bytes::from(format!(r#"{{"max_gen_len":9,"prompt":"{}"}}"#, "x".repeat(length)));
            let url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/meta.m/invoke";
            let target: Uri = url.parse().unwrap();
            let mut options = RequestedOptions { limited_answers: Some(1), ..RequestedOptions::default() };
            let mut read = || {
                let at = providers.at(&target);
                read_options_of_model(at, &mut options, &body, &target, Some("meta.m"));
            };
            assert_eq!(is_beside_others(&mut read), is_long);
            read();
            assert_eq!(options.max_output_tokens(&[]), Some(9));
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (json, values) in
            [(r#"{"a":[1,2,3],"b":"x,[{"}"#, 5), (r#"{"a":"\",[","b":1}"#, 2), (r#""x,""#, 0)]
        {
            assert_eq!(values_of(json.as_bytes()), values, "{json}");
        }
    }

    #[test]
    fn the_field_that_cannot_be_converted_is_named_part_by_part() {
        let why = "it has no counterpart".to_owned();
        let field = "messages[0].content[12].logit_bias".to_owned();
        let error = refused(RequestError::Unsupported { field, why });
        assert_eq!(error.code(), "conversion_unsupported");
        assert_eq!(
            error.message(),
            "The field messages.0.content.12.logit_bias cannot be converted into the provider's format: it has no \
             counterpart."
        );
        let invalid = refused(RequestError::Invalid { field: "n".to_owned(), message: "x".to_owned() });
        assert_eq!(invalid, ApiError::issue(["n"], "x"));
        assert_eq!(refused(RequestError::NotJson { message: "x".to_owned() }).code(), "validation_error");
    }
}
