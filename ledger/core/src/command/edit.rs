//! An edit of an optional value.

/// An edit of an optional value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Edit<T> {
    /// Keeps the value.
    #[default]
    Keep,
    /// Clears the value.
    Clear,
    /// Sets the value.
    Set(T),
}
