//! Pages of lists, newest first. The cursor of the next page is the id of the last item (completion.md section 1).

use farthing_projector::query::{MAX_PAGE_BYTES, Page};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::values;

/// The items of a page without a `limit`.
const DEFAULT_LIMIT: u16 = 10;

/// The parameters of every list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// The last id of the previous page.
    #[param(inline)]
    cursor: Option<values::Filter>,
    /// The number of items on the page.
    #[param(inline)]
    limit: Option<values::PageLimit>,
}

impl PageQuery {
    /// The last id of the previous page. The list itself checks it.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursor.as_ref().map(|cursor| cursor.0.as_str())
    }

    /// The number of items on the page.
    pub(super) fn limit(&self) -> u16 {
        self.limit.as_ref().map_or(DEFAULT_LIMIT, |limit| limit.0)
    }

    /// The page as the queries take it.
    pub(super) fn as_query(&self) -> Page<'_> {
        Page { cursor: self.cursor(), limit: self.limit(), max_bytes: MAX_PAGE_BYTES }
    }
}

/// The filter of lists of customers, by the merchant's own identifier.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ReferenceQuery {
    /// Only items with this `reference_id`.
    #[param(inline)]
    reference_id: Option<values::Filter>,
}

impl ReferenceQuery {
    /// The identifier, if one is given.
    pub(super) fn reference_id(&self) -> Option<&str> {
        self.reference_id.as_ref().map(|reference| reference.0.as_str())
    }
}

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct List<T> {
    data: Vec<T>,
    /// Whether there is another page.
    has_more: bool,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> List<T> {
    /// The page of `data`; `last` is the id of its last item.
    pub(super) fn new(data: Vec<T>, has_more: bool, last: Option<String>) -> Self {
        Self { data, has_more, next_cursor: last.filter(|_| has_more) }
    }
}
