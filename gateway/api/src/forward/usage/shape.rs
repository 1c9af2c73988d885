//! The names of counts in the usage of each provider, and their validation (completion.md section 5). Pure.

use std::collections::BTreeMap;

use farthing_core::usage::{Cached, MAX_COUNT, Split, Usage};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::value::RawValue;

use super::document::{Member, MemberSelection};

/// The most fractional digits of seconds.
const MAX_SECONDS_SCALE: u32 = 9;

/// How a provider reports usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The standard `usage` object of interface.md item 7.
    Standard,
    /// OpenAI-compatible: chat completions, responses, transcriptions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Google's `usageMetadata`; its OpenAI-compatible paths report as OpenAI does.
    Google,
}

impl Shape {
    /// The shape of the provider with this name.
    pub(crate) fn of(provider: &str) -> Self {
        match provider {
            "openai" | "deepseek" | "mistral" | "xai" | "groq" => Self::OpenAi,
            "anthropic" => Self::Anthropic,
            "google" => Self::Google,
            _ => Self::Standard,
        }
    }

    pub(super) const fn selection(self) -> MemberSelection {
        const MEMBERS: &[(&str, Member)] = &[
            ("usage", Member::Usage),
            ("id", Member::Id),
            ("model", Member::Model),
            ("created", Member::Created),
            ("created_at", Member::Created),
        ];
        const GOOGLES: &[(&str, Member)] = &[
            ("usageMetadata", Member::UsageMetadata),
            ("responseId", Member::Id),
            ("modelVersion", Member::Model),
            ("createTime", Member::Created),
            ("usage", Member::Usage),
            ("id", Member::Id),
            ("model", Member::Model),
            ("created", Member::Created),
        ];
        match self {
            Self::Standard => MemberSelection { members: MEMBERS, inside: &[], in_list: false },
            // A streamed response is reported inside its last event.
            Self::OpenAi => MemberSelection { members: MEMBERS, inside: &["response"], in_list: false },
            // A streamed message begins inside its first event.
            Self::Anthropic => MemberSelection { members: MEMBERS, inside: &["message"], in_list: false },
            // A stream is a list of answers, unless the call requests server-sent events.
            Self::Google => MemberSelection { members: GOOGLES, inside: &[], in_list: true },
        }
    }

    /// The paths of the counts within a member.
    const fn names(self, member: Member) -> &'static [(&'static [&'static str], Count)] {
        const OPENAI: &[(&[&str], Count)] = &[
            (&["total_tokens"], Count::Tokens),
            (&["prompt_tokens"], Count::InputTokens),
            (&["input_tokens"], Count::InputTokens),
            (&["completion_tokens"], Count::OutputTokens),
            (&["output_tokens"], Count::OutputTokens),
            (&["prompt_cache_hit_tokens"], Count::CacheRead),
            (&["prompt_tokens_details", "cached_tokens"], Count::CacheRead),
            (&["input_tokens_details", "cached_tokens"], Count::CacheRead),
            (&["completion_tokens_details", "reasoning_tokens"], Count::Reasoning),
            (&["output_tokens_details", "reasoning_tokens"], Count::Reasoning),
            (&["seconds"], Count::Seconds),
        ];
        match (self, member) {
            (Self::Standard, _) => &[
                (&["tokens"], Count::Tokens),
                (&["input_tokens"], Count::InputTokens),
                (&["output_tokens"], Count::OutputTokens),
                (&["characters"], Count::Characters),
                (&["duration_seconds"], Count::Seconds),
            ],
            (Self::Anthropic, _) => &[
                (&["input_tokens"], Count::InputTokens),
                (&["output_tokens"], Count::OutputTokens),
                (&["cache_read_input_tokens"], Count::CacheRead),
                (&["cache_creation_input_tokens"], Count::CacheWrite),
                // Its OpenAI-compatible path.
                (&["prompt_tokens"], Count::InputTokens),
                (&["completion_tokens"], Count::OutputTokens),
            ],
            (Self::Google, Member::UsageMetadata) => &[
                (&["totalTokenCount"], Count::Tokens),
                (&["promptTokenCount"], Count::InputTokens),
                (&["toolUsePromptTokenCount"], Count::ToolInput),
                (&["candidatesTokenCount"], Count::OutputTokens),
                (&["thoughtsTokenCount"], Count::Reasoning),
                (&["cachedContentTokenCount"], Count::CacheRead),
            ],
            (Self::OpenAi | Self::Google, _) => OPENAI,
        }
    }
}

/// A count that a provider reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    Tokens,
    InputTokens,
    /// Reported in addition to the input tokens.
    ToolInput,
    OutputTokens,
    CacheRead,
    CacheWrite,
    Reasoning,
    Characters,
    Seconds,
}

/// The counts reported so far. A later report of a count replaces an earlier one.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenCounts {
    reported: BTreeMap<Count, Decimal>,
    /// How the last report counted reasoning tokens.
    thoughts: Thoughts,
    seen: bool,
    invalid: bool,
}

/// Whether the reported output tokens include reasoning tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Thoughts {
    #[default]
    Within,
    Beside,
}

type JsonMembers<'a> = BTreeMap<String, &'a RawValue>;

fn member<'a>(members: &JsonMembers<'a>, path: &[&str]) -> Option<&'a str> {
    let (name, rest) = path.split_first()?;
    let value = members.get(*name).map(|value| value.get()).filter(|value| *value != "null")?;
    match rest {
        [] => Some(value),
        rest => member(&serde_json::from_str(value).ok()?, rest),
    }
}

impl TokenCounts {
    /// Reads the text of a usage member. `null` reports nothing.
    pub(super) fn report(&mut self, shape: Shape, name: Member, text: &str) {
        if text == "null" {
            return;
        }
        self.seen = true;
        let Ok(members) = serde_json::from_str::<JsonMembers<'_>>(text) else {
            self.invalid = true;
            return;
        };
        for (path, count) in shape.names(name) {
            let Some(value) = member(&members, path) else { continue };
            match believed(*count, value) {
                Some(number) => {
                    self.reported.insert(*count, number);
                }
                None => self.invalid = true,
            }
        }
        // Google reports reasoning tokens in addition to output tokens. So do some other providers; their total shows
        // it.
        let total_tells = || {
            let count = |count| self.reported.get(&count).copied().unwrap_or_default();
            let beside = count(Count::InputTokens) + count(Count::OutputTokens) + count(Count::Reasoning);
            !count(Count::Reasoning).is_zero() && count(Count::Tokens) == beside
        };
        let beside = name == Member::UsageMetadata || (shape != Shape::Standard && total_tells());
        self.thoughts = if beside { Thoughts::Beside } else { Thoughts::Within };
    }

    /// Whether a report was invalid.
    pub(super) const fn is_invalid(&self) -> bool {
        self.invalid
    }

    /// The usage of all reports, from a provider that reports in `shape`.
    pub(super) fn reported(&self, shape: Shape) -> ReportedUsage {
        if self.invalid {
            return ReportedUsage::Invalid;
        }
        if !self.seen {
            return ReportedUsage::Nothing;
        }
        let told = |count: Count| self.reported.get(&count).and_then(Decimal::to_u64);
        let count = |count: Count| told(count).unwrap_or(0);
        let cached = Cached { read: count(Count::CacheRead), write: count(Count::CacheWrite) };
        let reasoning = count(Count::Reasoning);
        // Each count is at most MAX_COUNT, so their sums cannot overflow.
        let beside_input =
            count(Count::ToolInput) + if shape == Shape::Anthropic { cached.read + cached.write } else { 0 };
        let beside_output = if self.thoughts == Thoughts::Beside { reasoning } else { 0 };
        let tokens = match (told(Count::InputTokens), told(Count::OutputTokens)) {
            // A total without input and output counts is input.
            (None, None) if beside_input == 0 && beside_output == 0 => {
                Split { input: count(Count::Tokens), output: 0 }
            }
            (input, output) => Split {
                input: input.unwrap_or(0) + beside_input,
                output: output.unwrap_or(0) + beside_output,
            },
        };
        if cached.read + cached.write > tokens.input {
            return ReportedUsage::Inconsistent;
        }
        let seconds = self.reported.get(&Count::Seconds).copied().unwrap_or_default();
        ReportedUsage::Usage(Usage {
            tokens,
            cached,
            reasoning_tokens: reasoning.min(tokens.output),
            characters: Split { input: count(Count::Characters), output: 0 },
            seconds: Split { input: seconds, output: Decimal::ZERO },
        })
    }
}

/// The usage that a provider reported, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportedUsage {
    /// No usage.
    Nothing,
    /// A valid usage.
    Usage(Usage),
    /// A usage that fails validation: completion.md section 5 has the call end uncharged.
    Invalid,
    /// More tokens used the cache than were sent. Section 5 does not name it.
    Inconsistent,
    /// None was found, and the response could not be read to its end.
    Unread,
}

/// The number, if it is not negative, at most [`MAX_COUNT`], and an integer unless it counts seconds.
fn believed(count: Count, text: &str) -> Option<Decimal> {
    if text.len() > 40 || !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let number = if text.contains(['e', 'E']) {
        Decimal::from_scientific(text).ok()?
    } else {
        Decimal::from_str_exact(text).ok()?
    };
    let number = number.normalize();
    if number.is_sign_negative() && !number.is_zero() || number > Decimal::from(MAX_COUNT) {
        return None;
    }
    let fits = match count {
        Count::Tokens
        | Count::InputTokens
        | Count::ToolInput
        | Count::OutputTokens
        | Count::CacheRead
        | Count::CacheWrite
        | Count::Reasoning
        | Count::Characters => number.is_integer(),
        Count::Seconds => number.scale() <= MAX_SECONDS_SCALE,
    };
    fits.then_some(number.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(shape: Shape, reports: &[&str]) -> ReportedUsage {
        let mut counts = TokenCounts::default();
        for text in reports {
            let google = shape == Shape::Google && text.contains("Count");
            counts.report(shape, if google { Member::UsageMetadata } else { Member::Usage }, text);
        }
        counts.reported(shape)
    }

    fn tokens(input: u64, output: u64) -> ReportedUsage {
        ReportedUsage::Usage(Usage { tokens: Split { input, output }, ..Usage::default() })
    }

    #[test]
    fn the_standard_object_is_read() {
        let standard = |text| reported(Shape::Standard, &[text]);
        assert_eq!(standard(r#"{"tokens":7}"#), tokens(7, 0));
        assert_eq!(standard(r#"{"tokens":9,"input_tokens":3,"output_tokens":4}"#), tokens(3, 4));
        assert_eq!(standard(r#"{"output_tokens":1e3}"#), tokens(0, 1000));
        assert_eq!(standard(r#"{"input_tokens":5.0,"output_tokens":null}"#), tokens(5, 0));
        assert_eq!(standard(r#"{"prompt_tokens":5}"#), tokens(0, 0));
        assert_eq!(standard("null"), ReportedUsage::Nothing);
        let ReportedUsage::Usage(usage) = standard(r#"{"characters":12,"duration_seconds":1.25}"#) else {
            panic!("usage is reported")
        };
        assert_eq!(usage.characters.input, 12);
        assert_eq!(usage.seconds.input.to_string(), "1.25");
    }

    #[test]
    fn the_openai_object_is_read_and_the_last_report_wins() {
        let chunks = [
            "null",
            r#"{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}"#,
            r#"{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}"#,
        ];
        assert_eq!(reported(Shape::OpenAi, &chunks), tokens(10, 20));
        assert_eq!(reported(Shape::OpenAi, &[r#"{"input_tokens":4,"output_tokens":5}"#]), tokens(4, 5));
        assert_eq!(reported(Shape::OpenAi, &[r#"{"total_tokens":8}"#]), tokens(8, 0));
    }

    fn cached(input: u64, output: u64, read: u64, write: u64, reasoning_tokens: u64) -> ReportedUsage {
        let (tokens, cached) = (Split { input, output }, Cached { read, write });
        ReportedUsage::Usage(Usage { tokens, cached, reasoning_tokens, ..Usage::default() })
    }

    #[test]
    fn cached_tokens_are_among_the_input_whichever_way_they_are_counted() {
        let openai = |text| reported(Shape::OpenAi, &[text]);
        assert_eq!(
            openai(
                r#"{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920},
                "completion_tokens_details":{"reasoning_tokens":128}}"#
            ),
            cached(2006, 300, 1920, 0, 128)
        );
        assert_eq!(
            openai(
                r#"{"input_tokens":75,"input_tokens_details":{"cached_tokens":5},"output_tokens":1186,
                "output_tokens_details":{"reasoning_tokens":1024},"total_tokens":1261}"#
            ),
            cached(75, 1186, 5, 0, 1024)
        );
        assert_eq!(
            openai(
                r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}"#
            ),
            cached(9, 1, 6, 0, 0)
        );
        assert_eq!(
            openai(r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":null}"#),
            tokens(9, 1)
        );
        let anthropic = |reports: &[&str]| reported(Shape::Anthropic, reports);
        assert_eq!(
            anthropic(&[
                r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":0,"output_tokens":550}"#
            ]),
            cached(12_307, 550, 0, 12_304, 0)
        );
        assert_eq!(
            anthropic(&[
                r#"{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":12304,"output_tokens":2}"#,
                r#"{"output_tokens":550}"#,
            ]),
            cached(12_307, 550, 12_304, 0, 0)
        );
        let google = |text| reported(Shape::Google, &[text]);
        assert_eq!(
            google(
                r#"{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":20,"thoughtsTokenCount":7,
                "toolUsePromptTokenCount":5,"totalTokenCount":132}"#
            ),
            cached(105, 27, 40, 0, 7)
        );
        assert_eq!(google(r#"{"promptTokenCount":8,"totalTokenCount":8}"#), tokens(8, 0));
        assert_eq!(google(r#"{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}"#), tokens(8, 2));
        let more_cached = r#"{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":6}}"#;
        assert_eq!(openai(more_cached), ReportedUsage::Inconsistent);
        for text in [
            r#"{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}"#,
            r#"{"prompt_tokens":5,"completion_tokens_details":{"reasoning_tokens":0.5}}"#,
        ] {
            assert_eq!(openai(text), ReportedUsage::Invalid, "{text}");
        }
    }

    #[test]
    fn reasoning_beside_the_completion_is_output_where_the_total_says_so() {
        let openai = |text| reported(Shape::OpenAi, &[text]);
        let details = r#""completion_tokens_details":{"reasoning_tokens":91}"#;
        let beside = format!(r#"{{"prompt_tokens":41,"completion_tokens":87,"total_tokens":219,{details}}}"#);
        assert_eq!(openai(&beside), cached(41, 178, 0, 0, 91));
        let within =
            format!(r#"{{"prompt_tokens":41,"completion_tokens":178,"total_tokens":219,{details}}}"#);
        assert_eq!(openai(&within), cached(41, 178, 0, 0, 91));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        for text in [
            r#"{"tokens":-1}"#,
            r#"{"tokens":1.5}"#,
            r#"{"tokens":"7"}"#,
            r#"{"tokens":true}"#,
            r#"{"tokens":[]}"#,
            r#"{"tokens":1000000000001}"#,
            r#"{"tokens":1e13}"#,
            r#"{"tokens":1e400}"#,
            r#"{"characters":0.1}"#,
            r#"{"tokens":99999999999999999999999999999999999999}"#,
            r#"{"duration_seconds":-0.5}"#,
            r#"{"tokens":1e-1}"#,
            "7",
            "[]",
            r#""tokens""#,
            "{",
            r#"{"input_tokens":1,"output_tokens":-5}"#,
        ] {
            assert_eq!(reported(Shape::Standard, &[text]), ReportedUsage::Invalid, "{text}");
        }
        assert_eq!(reported(Shape::Standard, &[r#"{"tokens":1000000000000}"#]), tokens(1_000_000_000_000, 0));
    }
}
