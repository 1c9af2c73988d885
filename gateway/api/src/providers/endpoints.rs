//! What the URL of a call says of it: the kind of its endpoint and its model. Pure.

use http::Uri;
use percent_encoding::percent_decode_str;

use super::bedrock::operation_of;
use super::facts::{ModelInUrl, ProviderFacts};

/// The unit by which an endpoint is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BilledBy {
    /// What its answer reports.
    Report,
    /// The characters of the request's `input`: its answer is sound and reports nothing.
    InputCharacters,
}

/// The unit by which the endpoint of `target` is billed, at a built-in provider.
pub(super) fn billed_by(target: &Uri) -> BilledBy {
    if target.path().ends_with("/audio/speech") { BilledBy::InputCharacters } else { BilledBy::Report }
}

/// Whether the provider answers at once with its output and usage. Managed keys are used for these endpoints only.
pub(super) fn is_answered_at_once(facts: &ProviderFacts, target: &Uri) -> bool {
    let path = target.path();
    if facts.is_bedrock() {
        return operation_of(path).is_some();
    }
    let spelled = path.replace(':', "/");
    // Some providers take the same calls here, and keep their answers to be fetched later.
    let is_kept = path.split('/').any(|segment| segment.eq_ignore_ascii_case("async"));
    is_plain(path) && !is_kept && facts.endpoints.iter().any(|end| spelled.ends_with(end))
}

/// Whether every server reads the same in the path, and so the same model.
pub(super) fn is_plain(path: &str) -> bool {
    !path.contains(['%', '\\']) && !path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Whether the path is `…/models` or `…/models/{model}`.
pub(super) fn is_model_list(target: &Uri) -> bool {
    let mut segments = target.path().trim_end_matches('/').rsplit('/');
    let (last, before) = (segments.next(), segments.next());
    let is_plain =
        |segment: &str| segment.starts_with(|c: char| c.is_ascii_alphanumeric()) && !segment.contains('%');
    last == Some("models") || (before == Some("models") && last.is_some_and(is_plain))
}

/// The model in the path of a URL. A provider ignores the body's model if the URL names one.
pub(super) fn model_within(facts: &ProviderFacts, target: &Uri) -> Option<String> {
    let of_method = || method_model_within(target.path()).map(str::to_owned);
    match facts.model_in_url {
        ModelInUrl::Method => of_method(),
        ModelInUrl::MethodOfAnyCollection => of_method().or_else(|| model_of_collection(target.path())),
        ModelInUrl::After(segment) => model_after(segment, target.path()).or_else(of_method),
    }
}

/// The model in a path of Google's form: `…/models/{model}:{method}`.
pub(crate) fn method_model_within(path: &str) -> Option<&str> {
    let (path, last) = path.rsplit_once('/')?;
    let (model, method) = last.split_once(':')?;
    let is_plain = !model.is_empty() && !method.is_empty() && !last.contains('%');
    (is_plain && path.ends_with("/models")).then_some(model)
}

/// The model in a path of Google's form, `…/{collection}/{model}:{method}`, decoded: `{model}` of the models that it publishes,
/// and `{collection}/{model}` of others, such as tuned ones. Other methods are those of files and batches, too.
fn model_of_collection(path: &str) -> Option<String> {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let mut segments = path.rsplit('/');
    let (model, method) = segments.next()?.split_once(':')?;
    if !matches!(method, "generateContent" | "streamGenerateContent") {
        return None;
    }
    match segments.next().unwrap_or_default() {
        "models" => Some(model.to_owned()),
        collection => Some(format!("{collection}/{model}")),
    }
}

/// The model in the segment after `before`, decoded as its server reads it, if another segment follows.
fn model_after(before: &str, path: &str) -> Option<String> {
    // In whatever case: the server may not look at it.
    let mut segments = path.split('/').skip_while(|segment| !segment.eq_ignore_ascii_case(before)).skip(1);
    let name = segments.next().filter(|name| !name.is_empty())?;
    segments.next()?;
    Some(percent_decode_str(name).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::built_in::{BUILT_IN, OTHER};
    use super::*;

    fn uri(path: &str) -> Uri {
        format!("https://h{path}").parse().unwrap()
    }

    #[test]
    fn a_url_may_name_the_model() {
        let model = |path: &str| model_within(&OTHER, &uri(path));
        assert_eq!(model("/v1beta/models/gemini-2.5-pro:generateContent").as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(model("/v1/models/a:b?c=/models/d:e").as_deref(), Some("a"));
        for path in [
            "/v1beta/models",
            "/v1/models/m",
            "/v1/other/m:x",
            "/v1/models/:x",
            "/v1/models/m%3ax:y",
            "/openai/deployments/gpt/chat/completions",
        ] {
            assert_eq!(model(path), None, "{path}");
        }
    }

    #[test]
    fn google_names_models_of_several_collections_in_the_url() {
        let google = BUILT_IN.iter().find(|facts| facts.name == "google").unwrap();
        for (path, model) in [
            ("/v1beta/models/gemini-2.5-pro:generateContent", Some("gemini-2.5-pro")),
            ("/v1beta/models/gemini%2D2.5-pro%3AgenerateContent", Some("gemini-2.5-pro")),
            ("/v1beta/tunedModels/ours:generateContent", Some("tunedModels/ours")),
            ("/v1beta/dynamic/a:streamGenerateContent?alt=sse", Some("dynamic/a")),
            ("/v1beta/a:generateContent", Some("v1beta/a")),
            ("/a:generateContent", Some("/a")),
            ("/v1beta/openai/chat/completions", None),
            ("/v1beta/models", None),
            ("/v1beta/files/abc:download?alt=media", None),
            ("/v1beta/batches/1:cancel", None),
        ] {
            assert_eq!(model_within(google, &uri(path)).as_deref(), model, "{path}");
        }
    }

    #[test]
    fn azure_names_the_deployment_in_the_url() {
        let azure = BUILT_IN.iter().find(|facts| facts.name == "azure").unwrap();
        for (path, model) in [
            ("/openai/deployments/gpt-ours/chat/completions?api-version=2024-10-21", Some("gpt-ours")),
            ("/openai/deployments/gpt%2Dours/chat/completions", Some("gpt-ours")),
            ("/openai/Deployments/gpt-ours/chat/completions", Some("gpt-ours")),
            ("/openai/deployments/gpt-ours", None),
            ("/openai/deployments//chat/completions", None),
            ("/openai/v1/chat/completions", None),
        ] {
            assert_eq!(model_within(azure, &uri(path)).as_deref(), model, "{path}");
        }
    }

    #[test]
    fn bedrock_names_the_model_in_the_url() {
        let bedrock = BUILT_IN.iter().find(|facts| facts.name == "bedrock").unwrap();
        for (path, model) in [
            ("/model/amazon.nova-lite-v1:0/converse", Some("amazon.nova-lite-v1:0")),
            ("/model/amazon.nova-lite-v1%3A0/converse-stream", Some("amazon.nova-lite-v1:0")),
            ("/model/m", None),
            ("/guardrail/g/apply", None),
        ] {
            assert_eq!(model_within(bedrock, &uri(path)).as_deref(), model, "{path}");
        }
    }
}
