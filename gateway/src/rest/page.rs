//! Lists: newest first, one page after another; the cursor is the last item's id (completion.md section 1).

use farthing_projector::query::Page;
use serde::Serialize;

/// Which page a caller wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageParams {
    /// The last id of the page before.
    pub(super) cursor: Option<String>,
    /// Items of a page.
    pub(super) limit: u16,
}

impl PageParams {
    /// The page as the queries take it.
    pub(super) fn as_query(&self) -> Page<'_> {
        Page { cursor: self.cursor.as_deref(), limit: self.limit }
    }
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub(super) struct List<T> {
    data: Vec<T>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> List<T> {
    /// The page of `data`, whose last item's id is `last`.
    pub(super) fn new(data: Vec<T>, has_more: bool, last: Option<String>) -> Self {
        Self { data, has_more, next_cursor: last.filter(|_| has_more) }
    }
}
