//! The names of counts in the usage of each provider, and their validation (completion.md section 5). Pure.

use std::collections::BTreeMap;

use farthing_core::usage::{Cached, MAX_COUNT, Split, Usage};
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::value::RawValue;

use super::document::{Member, MemberSelection, Within};

/// The fractional digits of seconds that are kept. Providers send a binary number with all its digits, such as
/// 8.470000267028809.
const SECONDS_SCALE: u32 = 9;

/// The fractional digits of seconds that are read: one more than are kept.
const FRACTION_READ: usize = SECONDS_SCALE as usize + 1;

/// How a provider reports usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The standard `usage` object of interface.md item 7.
    Standard,
    /// OpenAI-compatible: chat completions, responses, transcriptions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Google's `usageMetadata`; its OpenAI-compatible paths report as OpenAI does, but thinking in the total alone.
    Google,
    /// Cohere's `usage` and `meta`, with the units that it bills; its OpenAI-compatible path reports as OpenAI does.
    Cohere,
    /// OpenAI-compatible transcriptions, which may report nothing but the length of the sound.
    Transcription,
    /// Amazon Bedrock's: its own interface, and those of the models behind it.
    Bedrock,
}

impl Shape {
    /// Every shape.
    #[cfg(test)]
    pub(super) const ALL: [Self; 7] = [
        Self::Standard,
        Self::OpenAi,
        Self::Anthropic,
        Self::Google,
        Self::Cohere,
        Self::Transcription,
        Self::Bedrock,
    ];

    /// The headers of an answer that report counts, each with the count's name in a usage.
    pub(super) const fn header_counts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Bedrock => &[
                ("x-amzn-bedrock-input-token-count", "inputTokens"),
                ("x-amzn-bedrock-output-token-count", "outputTokens"),
                ("x-amzn-bedrock-cache-read-input-token-count", "cacheReadInputTokens"),
                ("x-amzn-bedrock-cache-write-input-token-count", "cacheWriteInputTokens"),
            ],
            Self::Standard
            | Self::OpenAi
            | Self::Anthropic
            | Self::Google
            | Self::Cohere
            | Self::Transcription => &[],
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
        const COHERES: &[(&str, Member)] = &[
            ("usage", Member::Usage),
            ("meta", Member::Usage),
            ("id", Member::Id),
            ("generation_id", Member::Id),
            ("model", Member::Model),
            ("created", Member::Created),
        ];
        const TRANSCRIPTIONS: &[(&str, Member)] =
            &[("usage", Member::Usage), ("duration", Member::Duration), ("model", Member::Model)];
        const BEDROCKS: &[(&str, Member)] = &[
            ("usage", Member::Usage),
            // The last event of a stream in a model's own form.
            ("amazon-bedrock-invocationMetrics", Member::Usage),
            ("id", Member::Id),
            ("model", Member::Model),
        ];
        let (members, inside, in_list): (_, &[_], _) = match self {
            Self::Standard => (MEMBERS, &[], false),
            // A streamed response is reported inside its last event; a stream of Groq's in a member of its own, and one of
            // Moonshot's in its last choice.
            Self::OpenAi => (
                MEMBERS,
                &[("response", Within::All), ("x_groq", Within::Usage), ("choices", Within::UsageOfItems)],
                false,
            ),
            // A streamed message begins inside its first event.
            Self::Anthropic => (MEMBERS, &[("message", Within::Beginning)], false),
            // A stream is a list of answers, unless the call requests server-sent events.
            Self::Google => (GOOGLES, &[], true),
            // A streamed message ends with its usage in a change; in the first version, with the whole response.
            Self::Cohere => (COHERES, &[("delta", Within::Usage), ("response", Within::All)], false),
            Self::Transcription => (TRANSCRIPTIONS, &[], false),
            Self::Bedrock => (BEDROCKS, &[("message", Within::Beginning)], false),
        };
        MemberSelection { members, inside, in_list }
    }

    /// Whether the total in such a member may have output tokens that are in no other count. The totals of other providers
    /// may differ from the sum of their counts for other reasons.
    const fn total_has_more_output(self, member: Member) -> bool {
        matches!((self, member), (Self::Google, Member::Usage))
    }

    /// The paths of the counts within a member.
    const fn names(self, member: Member) -> &'static [(&'static [&'static str], Count)] {
        const OPENAI: &[(&[&str], Count)] = &[
            (&["total_tokens"], Count::Tokens),
            (&["prompt_tokens"], Count::InputTokens),
            (&["input_tokens"], Count::InputTokens),
            (&["completion_tokens"], Count::OutputTokens),
            (&["output_tokens"], Count::OutputTokens),
            // One number may stand under several names: the last of them in this list counts that is not 0.
            // DeepSeek's.
            (&["prompt_cache_hit_tokens"], Count::CacheRead),
            // Moonshot's.
            (&["cached_tokens"], Count::CacheRead),
            // Mistral's.
            (&["num_cached_tokens"], Count::CacheRead),
            (&["prompt_token_details", "cached_tokens"], Count::CacheRead),
            (&["prompt_tokens_details", "cached_tokens"], Count::CacheRead),
            (&["input_tokens_details", "cached_tokens"], Count::CacheRead),
            (&["prompt_tokens_details", "cache_write_tokens"], Count::CacheWrite),
            (&["input_tokens_details", "cache_write_tokens"], Count::CacheWrite),
            // DashScope's.
            (&["prompt_tokens_details", "cache_creation_input_tokens"], Count::CacheWrite),
            (&["completion_tokens_details", "reasoning_tokens"], Count::Reasoning),
            (&["output_tokens_details", "reasoning_tokens"], Count::Reasoning),
            (&["seconds"], Count::Seconds),
            // Mistral's.
            (&["prompt_audio_seconds"], Count::Seconds),
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
            // The billed units follow the tokens, and win.
            (Self::Cohere, _) => &[
                (&["prompt_tokens"], Count::InputTokens),
                (&["completion_tokens"], Count::OutputTokens),
                (&["tokens", "input_tokens"], Count::InputTokens),
                (&["tokens", "output_tokens"], Count::OutputTokens),
                (&["billed_units", "input_tokens"], Count::InputTokens),
                (&["billed_units", "output_tokens"], Count::OutputTokens),
            ],
            (Self::Bedrock, _) => &[
                (&["prompt_tokens"], Count::InputTokens),
                (&["completion_tokens"], Count::OutputTokens),
                (&["input_tokens"], Count::InputTokens),
                (&["output_tokens"], Count::OutputTokens),
                (&["cache_read_input_tokens"], Count::CacheRead),
                (&["cache_creation_input_tokens"], Count::CacheWrite),
                (&["inputTokens"], Count::InputTokens),
                (&["outputTokens"], Count::OutputTokens),
                (&["cacheReadInputTokens"], Count::CacheRead),
                (&["cacheWriteInputTokens"], Count::CacheWrite),
                (&["inputTokenCount"], Count::InputTokens),
                (&["outputTokenCount"], Count::OutputTokens),
                (&["cacheReadInputTokenCount"], Count::CacheRead),
                (&["cacheWriteInputTokenCount"], Count::CacheWrite),
            ],
            (Self::OpenAi | Self::Google | Self::Transcription, _) => OPENAI,
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
    /// The length of what was transcribed, in seconds. It counts if no seconds are reported.
    Duration,
}

/// The counts reported so far. A later report of a count replaces an earlier one.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenCounts {
    reported: BTreeMap<Count, Decimal>,
    /// Counted beside the others: what Anthropic used to shorten the conversation before it answered.
    compaction: BTreeMap<Count, Decimal>,
    /// How the last report counted reasoning tokens.
    thoughts: Thoughts,
    /// Whether the rest of the total is output, beside what was reported as such.
    rest_is_output: bool,
    /// What has a usage so far. That of the whole answer has those of its parts in it.
    of: Reported,
    invalid: bool,
}

/// What a provider has reported the usage of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reported {
    #[default]
    Nothing,
    Part,
    Whole,
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
    /// Reads the text of a usage member. Returns whether it reports something: `null` does not.
    pub(super) fn report(&mut self, shape: Shape, name: Member, text: &str) -> bool {
        let of = if name == Member::ItemUsage { Reported::Part } else { Reported::Whole };
        if text == "null" || (of, self.of) == (Reported::Part, Reported::Whole) {
            return false;
        }
        if (self.of, of) == (Reported::Part, Reported::Whole) {
            self.reported.clear();
        }
        self.of = of;
        let Ok(members) = serde_json::from_str::<JsonMembers<'_>>(text) else {
            self.invalid = true;
            return true;
        };
        let mut counts = BTreeMap::new();
        for (path, count) in shape.names(name) {
            let Some(value) = member(&members, path) else { continue };
            match believed(*count, value) {
                // Relays write OpenAI's counts under the names of both its formats, and 0 under one of them. Cohere's 0 is one.
                Some(zero) if zero.is_zero() && shape != Shape::Cohere => {
                    counts.entry(*count).or_insert(zero);
                }
                Some(number) => {
                    counts.insert(*count, number);
                }
                // Mistral's, of a call without sound.
                None if *count == Count::Seconds && value == "{}" => {}
                None => self.invalid = true,
            }
        }
        self.reported.extend(counts);
        if shape == Shape::Anthropic {
            self.report_compaction(shape.names(name), &members);
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
        self.rest_is_output = shape.total_has_more_output(name);
        true
    }

    /// Reads the `iterations` of an answer. Its own counts leave out those that shortened the conversation, so these are
    /// added. Those of other models have other prices.
    fn report_compaction(&mut self, names: &[(&[&str], Count)], members: &JsonMembers<'_>) {
        let Some(list) = member(members, &["iterations"]) else { return };
        let Ok(iterations) = serde_json::from_str::<Vec<&RawValue>>(list) else { return };
        let mut sums = BTreeMap::new();
        for iteration in iterations {
            let Ok(iteration) = serde_json::from_str::<JsonMembers<'_>>(iteration.get()) else { continue };
            if member(&iteration, &["type"]) != Some("\"compaction\"") {
                continue;
            }
            for (path, count) in names {
                let Some(value) = member(&iteration, path) else { continue };
                let sum: &mut Decimal = sums.entry(*count).or_default();
                match believed(*count, value).map(|number| *sum + number) {
                    Some(more) if more <= Decimal::from(MAX_COUNT) => *sum = more,
                    Some(_) | None => self.invalid = true,
                }
            }
        }
        self.compaction = sums;
    }

    /// Reads the length of what was transcribed: a number, or a text with one.
    pub(super) fn report_duration(&mut self, text: &str) {
        if text == "null" {
            return;
        }
        self.of = Reported::Whole;
        match believed(Count::Duration, text.trim_matches('"')) {
            Some(seconds) => {
                self.reported.insert(Count::Duration, seconds);
            }
            None => self.invalid = true,
        }
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
        if self.of == Reported::Nothing {
            return ReportedUsage::Nothing;
        }
        let sum = |count: Count| {
            let parts = [self.reported.get(&count), self.compaction.get(&count)];
            parts.into_iter().flatten().copied().reduce(|sum, part| sum + part)
        };
        if self.compaction.keys().filter_map(|count| sum(*count)).any(|sum| sum > Decimal::from(MAX_COUNT)) {
            return ReportedUsage::Invalid;
        }
        let told = |count: Count| sum(count).as_ref().and_then(Decimal::to_u64);
        let count = |count: Count| told(count).unwrap_or(0);
        let cached = Cached { read: count(Count::CacheRead), write: count(Count::CacheWrite) };
        let reasoning = count(Count::Reasoning);
        // Each count is at most MAX_COUNT, so their sums cannot overflow.
        let excludes_cached = matches!(shape, Shape::Anthropic | Shape::Bedrock);
        let beside_input =
            count(Count::ToolInput) + if excludes_cached { cached.read + cached.write } else { 0 };
        let beside_output = if self.thoughts == Thoughts::Beside { reasoning } else { 0 };
        let tokens = match (told(Count::InputTokens), told(Count::OutputTokens)) {
            // A total without input and output counts is input.
            (None, None) if beside_input == 0 && beside_output == 0 => {
                Split { input: count(Count::Tokens), output: 0 }
            }
            (input, output) => {
                let rest = input.filter(|_| self.rest_is_output);
                let rest = rest.map_or(0, |input| count(Count::Tokens).saturating_sub(input));
                Split {
                    input: input.unwrap_or(0) + beside_input,
                    output: (output.unwrap_or(0) + beside_output).max(rest),
                }
            }
        };
        if cached.read + cached.write > tokens.input {
            return ReportedUsage::Inconsistent;
        }
        let seconds = self.reported.get(&Count::Seconds).or_else(|| self.reported.get(&Count::Duration));
        let seconds = seconds.copied().unwrap_or_default();
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

/// A number without the fractional digits that rounding to [`SECONDS_SCALE`] never looks at. A decimal has room for few.
fn without_far_digits(number: &str) -> &str {
    let Some((whole, fraction)) = number.split_once('.') else { return number };
    let is_long = fraction.len() > FRACTION_READ && fraction.bytes().all(|digit| digit.is_ascii_digit());
    if is_long { &number[..whole.len() + 1 + FRACTION_READ] } else { number }
}

/// The number, if it is not negative, at most [`MAX_COUNT`], and an integer unless it counts seconds, which are rounded.
fn believed(count: Count, text: &str) -> Option<Decimal> {
    if text.len() > 40 || !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let are_seconds = matches!(count, Count::Seconds | Count::Duration);
    let number = if text.contains(['e', 'E']) {
        Decimal::from_scientific(text).ok()?
    } else {
        Decimal::from_str_exact(if are_seconds { without_far_digits(text) } else { text }).ok()?
    };
    if number.is_sign_negative() && !number.is_zero() || number > Decimal::from(MAX_COUNT) {
        return None;
    }
    let number = if are_seconds {
        number.round_dp_with_strategy(SECONDS_SCALE, RoundingStrategy::MidpointAwayFromZero)
    } else {
        number
    };
    (are_seconds || number.is_integer()).then_some(number.abs().normalize())
}

#[cfg(test)]
mod tests;
