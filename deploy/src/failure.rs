//! The program's edge: why a subcommand failed, as one sentence for the person who ran it.

use std::error::Error;
use std::fmt;

/// Why a subcommand failed.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure told by this sentence.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds what was being done to what went wrong.
pub(crate) trait IntoFailure<T> {
    /// The value, or a failure that says `doing` and why.
    fn or_fail(self, doing: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Error> IntoFailure<T> for Result<T, E> {
    fn or_fail(self, doing: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{doing}: {}", with_causes(&error))))
    }
}

/// The error and its causes, each once.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence = format!("{sentence}: {text}");
        }
        cause = error.source();
    }
    sentence
}
