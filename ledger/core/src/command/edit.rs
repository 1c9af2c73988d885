//! An edit of an optional value.

use serde::{Deserialize, Serialize};

/// An edit of an optional value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit<T> {
    /// Keeps the value.
    #[default]
    Keep,
    /// Clears the value.
    Clear,
    /// Sets the value.
    Set(T),
}

impl<T> Edit<T> {
    /// Whether the value is kept.
    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}
