//! Texts in comma-separated values. Invariant: none begins a formula in a spreadsheet. See decision 0090.

use std::borrow::Cow;
use std::io::Write;

use csv::{Terminator, Writer, WriterBuilder};

/// What a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian scripts. A tab or a line
/// break before it is skipped by some.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// A writer of comma-separated values as RFC 4180 has them: lines end in CRLF.
pub(crate) fn writer<W: Write>(out: W) -> Writer<W> {
    WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out)
}

/// The text, with an apostrophe before it if it would be a formula, or if it would be taken for one that was changed so.
pub(crate) fn no_formula(text: &str) -> Cow<'_, str> {
    if text.trim_start_matches('\'').starts_with(FORMULA) {
        return Cow::Owned(format!("'{text}"));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_would_be_a_formula_gets_an_apostrophe_that_can_be_taken_off_again() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''@a"] {
            assert_eq!(no_formula(text), format!("'{text}"), "{text:?}");
        }
        for text in ["", "gpt-4o", "a=1", "'", "'a", "GET https://a/", "{\"a\":\"=1\"}", " "] {
            assert_eq!(no_formula(text), text, "{text:?}");
        }
    }
}
