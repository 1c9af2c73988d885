//! The forms that the bodies of Amazon Bedrock's `invoke` have, by the names of models, and where each limits its output.
//! Pure.

/// The path of a limit: a member, or a member of a member.
pub(super) type Path = &'static [&'static str];

/// The form of the bodies of a family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// They ask for text, which these members limit.
    Text(&'static [Path]),
    /// They ask for embeddings, which have no output. Only the tokens of texts are reported.
    Embeddings,
}

/// The limit that models read of the chat format that many share.
const MAX_TOKENS: Form = Form::Text(&[&["max_tokens"]]);

/// That of Amazon's own models.
const NOVA: Form = Form::Text(&[&["inferenceConfig", "maxTokens"], &["inferenceConfig", "max_new_tokens"]]);

/// Models by how their names begin, each with its form, as AWS documents it. The first that fits counts. Models that report
/// no tokens, such as those that draw or rank, are in no row.
const FORMS: [(&str, Form); 19] = [
    // The older of its two formats requires the second one.
    ("anthropic.", Form::Text(&[&["max_tokens"], &["max_tokens_to_sample"]])),
    ("amazon.nova-micro", NOVA),
    ("amazon.nova-lite", NOVA),
    ("amazon.nova-pro", NOVA),
    ("amazon.nova-premier", NOVA),
    ("amazon.nova-2-lite", NOVA),
    ("amazon.nova-2-pro", NOVA),
    ("amazon.titan-text", Form::Text(&[&["textGenerationConfig", "maxTokenCount"]])),
    ("amazon.titan-embed", Form::Embeddings),
    ("meta.", Form::Text(&[&["max_gen_len"]])),
    ("mistral.", MAX_TOKENS),
    ("cohere.command", MAX_TOKENS),
    ("cohere.embed", Form::Embeddings),
    ("deepseek.", MAX_TOKENS),
    ("ai21.j2", Form::Text(&[&["maxTokens"]])),
    ("ai21.jamba", MAX_TOKENS),
    ("openai.", Form::Text(&[&["max_completion_tokens"]])),
    ("qwen.", MAX_TOKENS),
    ("writer.", MAX_TOKENS),
];

/// The limit of `converse`.
pub(super) const CONVERSE: &[Path] = &[&["inferenceConfig", "maxTokens"]];

/// Every limit that some form has. Beside a limit that its model reads, a larger one of these counts more.
pub(super) const EVERY_LIMIT: [Path; 10] = [
    &["max_tokens"],
    &["max_completion_tokens"],
    &["max_output_tokens"],
    &["max_tokens_to_sample"],
    &["max_gen_len"],
    &["max_new_tokens"],
    &["maxTokens"],
    &["inferenceConfig", "maxTokens"],
    &["inferenceConfig", "max_new_tokens"],
    &["textGenerationConfig", "maxTokenCount"],
];

/// The form of the bodies of `model`, if it is known. An inference profile has the name of its model behind that of its
/// regions; an ARN of AWS's own models and profiles ends in their name.
pub(super) fn form_of(model: &str) -> Option<Form> {
    let name = name_in_arn(model).unwrap_or(model);
    let behind_regions = name.split_once('.').map(|(_, rest)| rest);
    let names = [Some(name), behind_regions].into_iter().flatten();
    let mut forms = names.filter_map(|name| FORMS.iter().find(|(begin, _)| name.starts_with(begin)));
    forms.next().map(|(_, form)| *form)
}

/// The name in `arn:aws:bedrock:{region}:{account}:foundation-model/{name}`, or the same of an inference profile. Other
/// resources have names of a customer's choice.
fn name_in_arn(model: &str) -> Option<&str> {
    let resource = model.strip_prefix("arn:")?.splitn(5, ':').nth(4)?;
    ["foundation-model/", "inference-profile/"].into_iter().find_map(|kind| resource.strip_prefix(kind))
}

/// Whether the form of the bodies of `model` for `invoke` is known, and its answers report their usage.
pub(crate) fn has_known_form(model: &str) -> bool {
    form_of(model).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_known_by_the_name_of_its_model() {
        for (model, form) in [
            ("mistral.mistral-large-2407-v1:0", Some(MAX_TOKENS)),
            ("us.amazon.nova-pro-v1:0", Some(NOVA)),
            ("global.amazon.nova-2-lite-v1:0", Some(NOVA)),
            ("ai21.j2-ultra-v1", Some(Form::Text(&[&["maxTokens"]]))),
            ("ai21.jamba-1-5-large-v1:0", Some(MAX_TOKENS)),
            ("amazon.titan-embed-image-v1", Some(Form::Embeddings)),
            ("cohere.embed-v4:0", Some(Form::Embeddings)),
            (
                "arn:aws:bedrock:us-east-1::foundation-model/meta.llama3-8b-instruct-v1:0",
                Some(Form::Text(&[&["max_gen_len"]])),
            ),
            ("arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.amazon.nova-lite-v1:0", Some(NOVA)),
            ("arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/mistral.x", None),
            ("arn:aws:bedrock:eu-west-1:111122223333:provisioned-model/x", None),
            ("arn:aws:bedrock:eu-west-1:111122223333:custom-model/inference-profile/mistral.x", None),
            // They report no tokens.
            ("amazon.nova-canvas-v1:0", None),
            ("amazon.nova-reel-v1:1", None),
            ("amazon.nova-2-multimodal-embeddings-v1:0", None),
            ("amazon.titan-image-generator-v2:0", None),
            ("cohere.rerank-v3-5:0", None),
            ("amazon.rerank-v1:0", None),
            ("stability.sd3-5-large-v1:0", None),
            ("twelvelabs.marengo-embed-2-7-v1:0", None),
            ("eu.eu.mistral.x", None),
            ("Mistral.x", None),
            ("", None),
        ] {
            assert_eq!(form_of(model), form, "{model}");
        }
    }
}
