//! What providers call their counts, and what of it is believed (completion.md section 5). Pure.

use std::collections::BTreeMap;

use farthing_ledger::usage::{MAX_COUNT, Split, Usage};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::value::RawValue;

use super::document::{Member, Wanted};

/// Fractional digits of seconds that are believed.
const MAX_SECONDS_SCALE: u32 = 9;

/// How a provider reports usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The standard `usage` object of interface.md item 7.
    Standard,
    /// OpenAI-compatible: chat completions, responses, transcriptions.
    OpenAi,
}

impl Shape {
    /// The shape that the provider of this name speaks.
    pub(crate) fn of(provider: &str) -> Self {
        if provider == "openai" { Self::OpenAi } else { Self::Standard }
    }

    pub(super) const fn wanted(self) -> Wanted {
        const MEMBERS: &[(&str, Member)] = &[
            ("usage", Member::Usage),
            ("id", Member::Id),
            ("model", Member::Model),
            ("created", Member::Created),
            ("created_at", Member::Created),
        ];
        match self {
            Self::Standard => Wanted { members: MEMBERS, inside: &[] },
            // A streamed response is reported inside its last event.
            Self::OpenAi => Wanted { members: MEMBERS, inside: &["response"] },
        }
    }

    const fn names(self) -> &'static [(&'static str, Count)] {
        match self {
            Self::Standard => &[
                ("tokens", Count::Tokens),
                ("input_tokens", Count::InputTokens),
                ("output_tokens", Count::OutputTokens),
                ("characters", Count::Characters),
                ("duration_seconds", Count::Seconds),
            ],
            Self::OpenAi => &[
                ("total_tokens", Count::Tokens),
                ("prompt_tokens", Count::InputTokens),
                ("input_tokens", Count::InputTokens),
                ("completion_tokens", Count::OutputTokens),
                ("output_tokens", Count::OutputTokens),
                ("seconds", Count::Seconds),
            ],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    Tokens,
    InputTokens,
    OutputTokens,
    Characters,
    Seconds,
}

/// The counts reported so far; a later report of a count takes the place of an earlier one.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    reported: BTreeMap<Count, Decimal>,
    seen: bool,
    invalid: bool,
}

impl Counts {
    /// Takes in the text of a `usage` member. `null` reports nothing.
    pub(super) fn report(&mut self, shape: Shape, text: &str) {
        if text == "null" {
            return;
        }
        self.seen = true;
        let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            self.invalid = true;
            return;
        };
        for (name, count) in shape.names() {
            let Some(value) = members.get(*name).map(|value| value.get()).filter(|value| *value != "null")
            else {
                continue;
            };
            match believed(*count, value) {
                Some(number) => {
                    self.reported.insert(*count, number);
                }
                None => self.invalid = true,
            }
        }
    }

    /// What all reports come to.
    pub(super) fn reported(&self) -> Reported {
        if self.invalid {
            return Reported::Invalid;
        }
        if !self.seen {
            return Reported::Nothing;
        }
        let whole = |count: Count| self.reported.get(&count).and_then(Decimal::to_u64);
        let divided = (whole(Count::InputTokens), whole(Count::OutputTokens));
        let tokens = match divided {
            // An undivided count is input; a divided one wins over it.
            (None, None) => Split { input: whole(Count::Tokens).unwrap_or(0), output: 0 },
            (input, output) => Split { input: input.unwrap_or(0), output: output.unwrap_or(0) },
        };
        let seconds = self.reported.get(&Count::Seconds).copied().unwrap_or_default();
        Reported::Usage(Usage {
            tokens,
            characters: Split { input: whole(Count::Characters).unwrap_or(0), output: 0 },
            seconds: Split { input: seconds, output: Decimal::ZERO },
        })
    }
}

/// What a provider reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// No usage at all.
    Nothing,
    /// This.
    Usage(Usage),
    /// Something that is not believed.
    Invalid,
}

/// The number, if it is one, not negative, not absurd, and whole where whole is needed.
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
        Count::Tokens | Count::InputTokens | Count::OutputTokens | Count::Characters => number.is_integer(),
        Count::Seconds => number.scale() <= MAX_SECONDS_SCALE,
    };
    fits.then_some(number.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(shape: Shape, reports: &[&str]) -> Reported {
        let mut counts = Counts::default();
        for text in reports {
            counts.report(shape, text);
        }
        counts.reported()
    }

    fn tokens(input: u64, output: u64) -> Reported {
        Reported::Usage(Usage { tokens: Split { input, output }, ..Usage::default() })
    }

    #[test]
    fn the_standard_object_is_read() {
        let standard = |text| reported(Shape::Standard, &[text]);
        assert_eq!(standard(r#"{"tokens":7}"#), tokens(7, 0));
        assert_eq!(standard(r#"{"tokens":9,"input_tokens":3,"output_tokens":4}"#), tokens(3, 4));
        assert_eq!(standard(r#"{"output_tokens":1e3}"#), tokens(0, 1000));
        assert_eq!(standard(r#"{"input_tokens":5.0,"output_tokens":null}"#), tokens(5, 0));
        assert_eq!(standard(r#"{"prompt_tokens":5}"#), tokens(0, 0));
        assert_eq!(standard("null"), Reported::Nothing);
        let Reported::Usage(usage) = standard(r#"{"characters":12,"duration_seconds":1.25}"#) else {
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
            assert_eq!(reported(Shape::Standard, &[text]), Reported::Invalid, "{text}");
        }
        assert_eq!(reported(Shape::Standard, &[r#"{"tokens":1000000000000}"#]), tokens(1_000_000_000_000, 0));
    }
}
