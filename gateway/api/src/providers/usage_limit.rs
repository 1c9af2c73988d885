//! What is known of a call's usage before its answer: the most that one on a managed provider key may report (decision
//! 0058), and the characters that were sent where the provider bills by them. Pure.

use farthing_core::event::Hold;
use farthing_core::money::Amount;
use farthing_core::pricing::Bound;
use farthing_core::size_hint::SizeHint;
use farthing_core::usage::{Counted, Split, Usage};

/// How many times the limits of a model, as the catalogue lists them, are believed. Providers raise the limits of a model
/// after its price was taken, and offer longer contexts on request.
const TOLERANCE: u64 = 10;

/// The most tokens that a call could have used; `None` if it is not known. Characters and seconds have no listed limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UsageLimit {
    tokens: Split<Option<u64>>,
    /// The most tokens that the model reads at once, as the catalogue lists it.
    model_input: Option<u64>,
    /// The characters of the request, if the provider bills by them and its answer does not report them.
    sent_characters: Option<u64>,
    /// What is counted if the usage stays unknown, of a call whose hold may be less than its cost.
    counted: Option<Countable>,
}

/// What is known of a call whose hold may be less than its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Countable {
    /// The bytes of its body, and at most the tokens that its model reads at once: however many answers are asked for, the
    /// input is billed once.
    input: u64,
    /// The most tokens of all its answers, by its body and by its model.
    most_output: Option<u64>,
    /// The characters of its input, if its provider bills by them. Then its answer is sound, and no text is counted.
    characters: Option<u64>,
    /// Whether its cost has a bound. Then its hold covers the bound, or was capped.
    has_bound: bool,
}

impl UsageLimit {
    /// The limit of a call that asks a model with these limits for at most so many answers.
    pub(super) fn new(max_tokens: Split<Option<u64>>, answers: u64) -> Self {
        let of_call =
            |tokens: Option<u64>| Some(tokens?.saturating_mul(TOLERANCE).saturating_mul(answers.max(1)));
        let tokens = Split { input: of_call(max_tokens.input), output: of_call(max_tokens.output) };
        Self { tokens, model_input: max_tokens.input, ..Self::default() }
    }

    /// The same for a call whose request has so many characters, by which its provider bills.
    pub(crate) fn with_sent_characters(self, sent_characters: Option<u64>) -> Self {
        Self { sent_characters, ..self }
    }

    /// The same for a call of this size on a managed provider key: it is counted, unless its `cost` is exact.
    pub(crate) fn counting(self, size: &SizeHint, cost: Bound) -> Self {
        let is_counted = !matches!(cost, Bound::Exact(_));
        let counted = Countable {
            input: self.model_input.map_or(size.input_bytes, |most| size.input_bytes.min(most)),
            most_output: [size.max_output_tokens, size.model_output_tokens].into_iter().flatten().min(),
            characters: size.input_characters,
            has_bound: matches!(cost, Bound::AtMost(_)),
        };
        Self { counted: is_counted.then_some(counted), ..self }
    }

    /// The same for a call that was opened with this hold. Below `cap` it was not capped: it covers the bound of the cost, if
    /// there is one, and nothing needs to be counted.
    pub(crate) fn held(self, hold: Hold, cap: Amount) -> Self {
        let is_uncapped = hold.total().is_ok_and(|held| held < cap);
        Self { counted: self.counted.filter(|counted| !(counted.has_bound && is_uncapped)), ..self }
    }

    /// Whether the text of the answer is to be counted.
    pub(crate) const fn counts_text(self) -> bool {
        matches!(self.counted, Some(Countable { characters: None, .. }))
    }

    /// What counts of a call whose usage stays unknown, and whose answer has begun and streamed so many bytes of text: the
    /// characters of its input, or upper bounds of its tokens. Without any text these do not count: the provider may have
    /// refused the call.
    pub(crate) fn counted(self, streamed_text: u64) -> Option<Counted> {
        let Countable { input, most_output, characters, has_bound: _ } = self.counted?;
        if let Some(characters) = characters {
            return (characters > 0).then(|| Counted { characters, ..Counted::default() });
        }
        let output = most_output.map_or(streamed_text, |most| streamed_text.min(most));
        (streamed_text > 0).then(|| Counted { input, output, ..Counted::default() })
    }

    /// The usage of a call that was answered: what the answer reported, and the characters of the request if the answer
    /// reports none.
    pub(crate) fn with_what_was_sent(self, reported: Option<Usage>) -> Option<Usage> {
        let Some(input) = self.sent_characters else { return reported };
        let usage = reported.unwrap_or_default();
        let is_reported = usage.characters != Split::default();
        let characters = if is_reported { usage.characters } else { Split { input, output: 0 } };
        Some(Usage { characters, ..usage })
    }

    /// Whether a call may have used so much.
    pub(crate) fn permits(self, usage: &Usage) -> bool {
        let is_within = |tokens: u64, limit: Option<u64>| limit.is_none_or(|limit| tokens <= limit);
        is_within(usage.tokens.input, self.tokens.input) && is_within(usage.tokens.output, self.tokens.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage { tokens: Split { input, output }, ..Usage::default() }
    }

    fn tokens(input: u64, output: u64) -> Counted {
        Counted { input, output, ..Counted::default() }
    }

    #[test]
    fn a_call_uses_at_most_ten_times_its_models_limits_for_each_answer() {
        let max_tokens = Split { input: Some(1_000), output: Some(100) };
        for (answers, input, output) in [(0, 10_000, 1_000), (1, 10_000, 1_000), (3, 30_000, 3_000)] {
            let limit = UsageLimit::new(max_tokens, answers);
            assert!(limit.permits(&usage(input, output)), "{answers}");
            assert!(!limit.permits(&usage(input + 1, 0)), "{answers}");
            assert!(!limit.permits(&usage(0, output + 1)), "{answers}");
        }
        assert!(UsageLimit::new(max_tokens, u64::MAX).permits(&usage(u64::MAX, u64::MAX)));
    }

    #[test]
    fn characters_that_were_sent_count_where_none_are_reported() {
        let characters = |input| Usage { characters: Split { input, output: 0 }, ..Usage::default() };
        let none = UsageLimit::default();
        assert_eq!(none.with_what_was_sent(None), None);
        assert_eq!(none.with_what_was_sent(Some(usage(1, 2))), Some(usage(1, 2)));
        let sent = none.with_sent_characters(Some(7));
        assert_eq!(sent.with_what_was_sent(None), Some(characters(7)));
        assert_eq!(sent.with_what_was_sent(Some(characters(3))), Some(characters(3)));
        let both = Usage { tokens: Split { input: 1, output: 2 }, ..characters(7) };
        assert_eq!(sent.with_what_was_sent(Some(usage(1, 2))), Some(both));
    }

    #[test]
    fn a_call_is_counted_up_to_what_its_body_and_its_model_let_it_answer() {
        let size = SizeHint { input_bytes: 7, model_output_tokens: Some(100), ..SizeHint::default() };
        let counted = |size, text| UsageLimit::default().counting(&size, Bound::Unknown).counted(text);
        assert_eq!(counted(size, 5), Some(tokens(7, 5)));
        assert_eq!(counted(size, 500), Some(tokens(7, 100)));
        assert_eq!(counted(size, 0), None);
        let unlisted = SizeHint { model_output_tokens: None, ..size };
        assert_eq!(counted(unlisted, 500), Some(tokens(7, 500)));
        for (limit, output) in [(1, 1), (60, 60), (1_000, 100)] {
            let limited = SizeHint { max_output_tokens: Some(limit), ..size };
            assert_eq!(counted(limited, 500), Some(tokens(7, output)), "{limit}");
        }
        let limited = SizeHint { max_output_tokens: Some(60), ..unlisted };
        assert_eq!(counted(limited, 500), Some(tokens(7, 60)));
        assert_eq!(UsageLimit::default().counted(5), None);
    }

    #[test]
    fn speech_whose_hold_may_be_less_than_its_cost_is_counted_by_its_characters_alone() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        let spoken = |characters| SizeHint {
            input_bytes: 70,
            input_characters: Some(characters),
            max_output_tokens: Some(9),
            ..SizeHint::default()
        };
        let held = |wallet: &str, cost, characters| {
            let hold = Hold { wallet: amount(wallet), ..Hold::default() };
            UsageLimit::default().counting(&spoken(characters), cost).held(hold, amount("1"))
        };
        let of_characters = |characters| Some(Counted { characters, ..Counted::default() });
        // With a rate per token of output there is no bound; with one per token of input the bound may be capped.
        for (wallet, cost, counted) in [
            ("0.01", Bound::Unknown, of_characters(7)),
            ("1", Bound::AtMost(amount("5")), of_characters(7)),
            ("0.5", Bound::AtMost(amount("0.5")), None),
            ("5", Bound::Exact(amount("5")), None),
        ] {
            let limit = held(wallet, cost, 7);
            assert!(!limit.counts_text(), "{cost:?}");
            for streamed_text in [0, 5] {
                assert_eq!(limit.counted(streamed_text), counted, "{cost:?} {streamed_text}");
            }
        }
        assert_eq!(held("0.01", Bound::Unknown, 0).counted(5), None);
    }

    #[test]
    fn the_input_is_counted_once_whatever_the_number_of_answers() {
        let size = SizeHint { input_bytes: 7_000, model_output_tokens: Some(100), ..SizeHint::default() };
        for answers in [0, 1, 33, u64::MAX] {
            for (model_input, input) in [(Some(3), 3), (Some(8_000), 7_000), (None, 7_000)] {
                let limit = UsageLimit::new(Split { input: model_input, output: Some(100) }, answers);
                let counted = limit.counting(&size, Bound::Unknown).counted(5);
                assert_eq!(counted, Some(tokens(input, 5)), "{answers} {model_input:?}");
            }
        }
    }

    #[test]
    fn a_call_is_counted_unless_its_hold_is_the_bound_of_its_cost() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        let size = SizeHint { input_bytes: 7, max_output_tokens: Some(100), ..SizeHint::default() };
        let (above, below) = (Bound::AtMost(amount("5")), Bound::AtMost(amount("0.5")));
        for (cost, wallet, merchant, is_counted) in [
            (above, "1", "0", true),
            (above, "0", "1", true),
            (below, "0.5", "0", false),
            (below, "0.4999999999", "0.5", false),
            // With a fee that took a part of the cap, or all of it, the hold may be less than the bound.
            (below, "0.5", "0.5", true),
            (below, "1", "0", true),
            // Without a bound it is the default hold.
            (Bound::Unknown, "0.01", "0", true),
            (Bound::Exact(amount("5")), "5", "0", false),
            (Bound::Exact(amount("0.5")), "0.5", "1", false),
        ] {
            let hold = Hold { wallet: amount(wallet), merchant: amount(merchant), ..Hold::default() };
            let limit = UsageLimit::default().counting(&size, cost).held(hold, amount("1"));
            assert_eq!(limit.counts_text(), is_counted, "{cost:?} {hold:?}");
            let counted = is_counted.then_some(tokens(7, 5));
            assert_eq!(limit.counted(5), counted, "{cost:?} {hold:?}");
        }
    }

    #[test]
    fn a_model_without_limits_may_use_what_it_reports() {
        assert!(UsageLimit::default().permits(&usage(u64::MAX, u64::MAX)));
        let input_alone = UsageLimit::new(Split { input: Some(1), output: None }, 1);
        assert!(input_alone.permits(&usage(10, u64::MAX)));
        assert!(!input_alone.permits(&usage(11, 0)));
    }
}
