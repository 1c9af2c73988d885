//! Lists: newest first, one page after another; the cursor is the last item's id (completion.md section 1).

use farthing_projector::query::Page;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::openapi::values;

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

/// The parameters of every list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Params::page` reads")]
pub(super) struct PageQuery {
    /// The last id of the page before.
    #[param(inline)]
    cursor: Option<values::Filter>,
    /// Items of the page.
    #[param(minimum = 1, maximum = 100, default = 10)]
    limit: Option<u16>,
}

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct List<T> {
    data: Vec<T>,
    /// Is there another page?
    has_more: bool,
    /// The cursor of the next page, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> List<T> {
    /// The page of `data`, whose last item's id is `last`.
    pub(super) fn new(data: Vec<T>, has_more: bool, last: Option<String>) -> Self {
        Self { data, has_more, next_cursor: last.filter(|_| has_more) }
    }
}
