//! Errors of input that breaks a rule, each with its issues.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;

/// One rule that the input breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    /// The place in the input: names and indices from the outermost; empty for the whole input.
    pub(crate) path: Vec<String>,
    /// The rule, as the end of a sentence that begins with the path.
    pub(crate) message: String,
}

impl Issue {
    /// `message` about the input at `path`.
    pub(crate) fn new<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.into_iter().map(Into::into).collect(), message: message.into() }
    }
}

/// The input breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InputError {
    /// 400: the input breaks the rules listed.
    #[error("The request is not valid; see the issues.")]
    Validation(Vec<Issue>),
    /// 400: the cursor is not the id of an item of this merchant's list.
    #[error("The cursor is not the id of an item of this list.")]
    CursorInvalid,
}

impl InputError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Validation(_) => (StatusCode::BAD_REQUEST, "validation_error"),
            Self::CursorInvalid => (StatusCode::BAD_REQUEST, "cursor_invalid"),
        }
    }

    pub(super) fn issues(&self) -> Cow<'_, [Issue]> {
        match self {
            Self::Validation(issues) => Cow::Borrowed(issues),
            Self::CursorInvalid => Cow::Owned(vec![Issue::new(["cursor"], "is not the id of an item")]),
        }
    }
}
