//! What the queries of all read models have in common: keyset pages, newest first by (`created_at`, id), and typed
//! errors (completion.md section 1, Lists).

use farthing_log::connect::redacted;
use tokio_postgres::types::{ToSql, Type};

use crate::column;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cursor is not the id of a thing in this list.
    #[error("the cursor is not an id of this list")]
    CursorInvalid,
    /// Postgres does not answer.
    #[error("the read model is out of reach: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// A row holds what no projection writes.
    #[error("a row of the read model cannot be read: {0}")]
    Row(#[from] column::Unreadable),
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// The id of the last item of the page before; none for the first page.
    pub cursor: Option<&'a str>,
    /// How many items at most.
    pub limit: u16,
}

impl Page<'_> {
    /// One more row than wanted tells whether there are more.
    pub(crate) fn rows_to_ask(self) -> i64 {
        i64::from(self.limit) + 1
    }
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// The items, newest first.
    pub items: Vec<T>,
    /// Are there older ones?
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// A list without items.
    pub(crate) const fn empty() -> Self {
        Self { items: Vec::new(), has_more: false }
    }

    /// Cuts off the row that was asked for beyond the page.
    pub(crate) fn cut(mut items: Vec<T>, page: Page<'_>) -> Self {
        let has_more = items.len() > usize::from(page.limit);
        items.truncate(usize::from(page.limit));
        Self { items, has_more }
    }
}

/// A parameter and its type: queries are planned for their values, and need no round trip to prepare them.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Postgres keeps no NUL in a text: nothing can be found by a name with one.
pub(crate) fn findable(text: &str) -> bool {
    !text.contains('\0')
}
