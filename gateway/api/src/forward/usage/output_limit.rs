//! The output limits of a request body. A limit counts if its provider reads the member that it stands in. What a
//! provider may pass over, or understand in another way, does not make a bound smaller. Pure.

use super::members::Member;

/// A member of a request body that limits the tokens of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitMember {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
    /// `max_output_tokens`.
    MaxOutputTokens,
    /// `generationConfig.maxOutputTokens`, also in the spelling with underscores.
    GenerationConfig,
    /// `inferenceConfig.maxTokens`.
    InferenceConfig,
    /// A member with such a name where no known format has it.
    Elsewhere,
}

impl LimitMember {
    /// The members of every format.
    pub(crate) const ALL: &'static [Self] = &[
        Self::MaxTokens,
        Self::MaxCompletionTokens,
        Self::MaxOutputTokens,
        Self::GenerationConfig,
        Self::InferenceConfig,
        Self::Elsewhere,
    ];

    /// The names that such members have.
    pub(super) const NAMES: [&str; 5] =
        ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"];

    fn of(object: LimitObject, name: &str) -> Self {
        match (object, name) {
            (LimitObject::Body, "max_tokens") => Self::MaxTokens,
            (LimitObject::Body, "max_completion_tokens") => Self::MaxCompletionTokens,
            (LimitObject::Body, "max_output_tokens") => Self::MaxOutputTokens,
            (LimitObject::GenerationConfig, "maxOutputTokens" | "max_output_tokens") => {
                Self::GenerationConfig
            }
            (LimitObject::InferenceConfig, "maxTokens") => Self::InferenceConfig,
            (LimitObject::Body | LimitObject::GenerationConfig | LimitObject::InferenceConfig, _) => {
                Self::Elsewhere
            }
        }
    }
}

/// An object with output limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitObject {
    /// The body itself.
    Body,
    /// `generationConfig`.
    GenerationConfig,
    /// `inferenceConfig`.
    InferenceConfig,
}

/// The output limit of one answer of Amazon Bedrock, whose bodies have the form of their model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BedrockLimit {
    /// So many tokens.
    Tokens(u64),
    /// There is none.
    Absent,
    /// The form is not known, or the limit cannot be read.
    Unknown,
}

/// The output limits that a body gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OutputLimits {
    given: Vec<(LimitMember, Option<u64>)>,
}

impl OutputLimits {
    /// Adds the limits among the members of an object. `null` is no limit.
    pub(super) fn add(&mut self, object: LimitObject, members: &[Member<'_>]) {
        let limits = members.iter().filter(|member| {
            member.is_exact && LimitMember::NAMES.contains(&member.name) && member.value.get() != "null"
        });
        self.given.extend(limits.map(|member| {
            let tokens = member.value.get().parse::<u64>().ok().filter(|tokens| *tokens > 0);
            (LimitMember::of(object, member.name), tokens)
        }));
    }

    /// The limit of one answer at a provider that reads these members: the largest of all limits given, if one stands in
    /// such a member and all of them are whole numbers above 0.
    pub(crate) fn read_in(&self, members: &[LimitMember]) -> Option<u64> {
        if !self.given.iter().any(|(member, _)| members.contains(member)) {
            return None;
        }
        let tokens: Option<Vec<u64>> = self.given.iter().map(|(_, tokens)| *tokens).collect();
        tokens?.into_iter().max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_request;
    use super::*;

    fn limit(body: &str, members: &[LimitMember]) -> Option<u64> {
        read_request(body.as_bytes()).limits.read_in(members)
    }

    #[test]
    fn a_limit_counts_where_its_member_is_read_and_a_larger_one_beside_it_counts_more() {
        use LimitMember::{
            Elsewhere, GenerationConfig, InferenceConfig, MaxCompletionTokens, MaxOutputTokens, MaxTokens,
        };
        for (body, read, not_read) in [
            (r#"{"max_tokens":5}"#, MaxTokens, MaxCompletionTokens),
            (r#"{"max_completion_tokens":5}"#, MaxCompletionTokens, MaxTokens),
            (r#"{"max_output_tokens":5}"#, MaxOutputTokens, GenerationConfig),
            (r#"{"generationConfig":{"maxOutputTokens":5}}"#, GenerationConfig, MaxOutputTokens),
            (r#"{"generation_config":{"max_output_tokens":5}}"#, GenerationConfig, MaxOutputTokens),
            (r#"{"inferenceConfig":{"maxTokens":5}}"#, InferenceConfig, MaxTokens),
            (r#"{"maxOutputTokens":5}"#, Elsewhere, GenerationConfig),
            (r#"{"maxTokens":5}"#, Elsewhere, InferenceConfig),
            (r#"{"generationConfig":{"max_tokens":5}}"#, Elsewhere, MaxTokens),
            (r#"{"inferenceConfig":{"max_tokens":5}}"#, Elsewhere, MaxTokens),
        ] {
            assert_eq!(limit(body, &[read]), Some(5), "{body}");
            assert_eq!(limit(body, &[not_read]), None, "{body}");
            assert_eq!(limit(body, LimitMember::ALL), Some(5), "{body}");
            assert_eq!(limit(body, &[]), None, "{body}");
        }
        let both = r#"{"max_tokens":5,"max_completion_tokens":9}"#;
        assert_eq!(limit(both, &[MaxTokens]), Some(9));
        assert_eq!(limit(both, &[MaxCompletionTokens]), Some(9));
        assert_eq!(limit(both, &[MaxOutputTokens]), None);
        let twice =
            r#"{"generationConfig":{"maxOutputTokens":8},"generation_config":{"max_output_tokens":9}}"#;
        assert_eq!(limit(twice, &[GenerationConfig]), Some(9));
    }

    #[test]
    fn a_limit_that_is_no_whole_number_above_zero_is_none_and_neither_is_one_beside_it() {
        for odd in
            ["\"abc\"", "\"5\"", "1e99", "1e2", "5.0", "-1", "0", "[]", "{}", "true", "99999999999999999999"]
        {
            for body in [
                format!(r#"{{"max_tokens":{odd}}}"#),
                format!(r#"{{"max_tokens":5,"max_completion_tokens":{odd}}}"#),
                format!(r#"{{"max_tokens":5,"generationConfig":{{"maxOutputTokens":{odd}}}}}"#),
            ] {
                assert_eq!(limit(&body, LimitMember::ALL), None, "{body}");
            }
        }
        assert_eq!(limit(r#"{"max_tokens":null}"#, LimitMember::ALL), None);
        assert_eq!(limit(r#"{"max_tokens":null,"max_completion_tokens":5}"#, LimitMember::ALL), Some(5));
        // The member that the provider reads is not there.
        let null = r#"{"max_tokens":null,"max_completion_tokens":5}"#;
        assert_eq!(limit(null, &[LimitMember::MaxTokens]), None);
    }
}
