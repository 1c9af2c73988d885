//! An edit of an optional value.

/// What an update does to something that need not be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Edit<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is there no more.
    Clear,
    /// It is this from now on.
    Set(T),
}
