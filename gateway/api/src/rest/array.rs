//! Bare arrays of all items that a merchant has. They are read in pages and written as they are read, so what is in memory at
//! once is the array's text, which takes a share of the merchant's memory, and one page.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use farthing_projector::query::{MAX_PAGE_BYTES, Page};
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use super::response_headers::HasShare;
use crate::body_memory::MemoryShare;
use crate::error::ApiError;

/// The most items of a page.
const MOST_ITEMS: u16 = 1_000;

/// The fewest items that a page asks for.
const FEWEST_ITEMS: u16 = 8;

/// Where the pages of a list have been read to.
#[derive(Debug)]
pub(super) struct Pages {
    cursor: Option<String>,
    limit: u16,
    is_over: bool,
}

impl Pages {
    /// Before the first page.
    pub(super) const fn new() -> Self {
        Self { cursor: None, limit: MOST_ITEMS, is_over: false }
    }

    /// The next page to read; `None` after the last.
    pub(super) fn next(&self) -> Option<Page<'_>> {
        let page = Page { cursor: self.cursor.as_deref(), limit: self.limit, max_bytes: MAX_PAGE_BYTES };
        (!self.is_over).then_some(page)
    }

    /// Notes that the page had `items`, with the id of the last. Postgres reads all items that a page asks for, also those
    /// beyond the bytes of a page, so the next page asks for at most twice as many as this one had.
    pub(super) fn has_read(&mut self, items: usize, has_more: bool, last: Option<String>) {
        self.is_over = !has_more || last.is_none();
        self.cursor = last;
        let twice = u16::try_from(items.saturating_mul(2)).unwrap_or(MOST_ITEMS);
        self.limit = twice.clamp(FEWEST_ITEMS, MOST_ITEMS);
    }
}

/// The text of an array, as far as it is written.
#[derive(Debug)]
pub(super) struct Array {
    text: Vec<u8>,
    share: MemoryShare,
}

impl Array {
    /// An array without items, which takes `share`.
    pub(super) fn new(share: MemoryShare) -> Self {
        Self { text: vec![b'['], share }
    }

    /// Appends an item. Fails if there is no memory for it.
    pub(super) fn push(&mut self, item: &impl Serialize) -> Result<(), ApiError> {
        let item = serde_json::to_vec(item)
            .map_err(|error| ApiError::internal(format!("a resource cannot be written: {error}")))?;
        // A comma before it, a bracket at the end.
        let length = self.text.len() + item.len() + 2;
        if length > self.text.capacity() {
            let roomy = length + length / 4;
            let capacity = match self.share.grow_to(roomy) {
                Ok(()) => roomy,
                Err(_) => self.share.grow_to(length).map(|()| length)?,
            };
            self.text.reserve_exact(capacity - self.text.len());
        }
        if self.text.len() > 1 {
            self.text.push(b',');
        }
        self.text.extend_from_slice(&item);
        Ok(())
    }
}

impl IntoResponse for Array {
    /// 200.
    fn into_response(self) -> Response {
        let Self { mut text, share } = self;
        text.push(b']');
        let mut response = Response::new(Body::from(share.kept_by(text)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.extensions_mut().insert(HasShare);
        response
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::ids::MerchantId;
    use http_body_util::BodyExt as _;
    use ulid::Ulid;

    use super::*;
    use crate::body_memory::{BodyKind, BodyMemory};

    fn array(memory: &BodyMemory) -> Array {
        Array::new(memory.share(MerchantId::new(Ulid::nil()), BodyKind::Response))
    }

    async fn text(array: Array) -> String {
        let body = array.into_response().into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn items_stand_between_commas() {
        let memory = BodyMemory::default();
        assert_eq!(text(array(&memory)).await, "[]");
        let mut three = array(&memory);
        for item in [1, 2, 3] {
            three.push(&item).unwrap();
        }
        assert_eq!(text(three).await, "[1,2,3]");
    }

    #[tokio::test]
    async fn a_long_array_takes_memory_as_it_grows_until_it_is_sent() {
        let memory = BodyMemory::default();
        let taken = || memory.bytes(BodyKind::Response);
        let (mut long, item) = (array(&memory), "x".repeat(100_000));
        let mut before = 0.0;
        for _ in 0..20 {
            long.push(&item).unwrap();
            assert!(taken() >= before);
            before = taken();
        }
        assert!(before > 1_500_000.0, "{before}");
        let error = (0..).find_map(|_| long.push(&item).err()).unwrap();
        assert!(matches!(error, ApiError::Server(_)), "{error:?}");
        let body = long.into_response().into_body();
        assert!(taken() >= before);
        drop(body);
        assert!(taken() <= 0.0);
    }

    #[test]
    fn a_page_asks_for_about_what_fits() {
        let mut pages = Pages::new();
        assert_eq!(pages.next().map(|page| (page.cursor, page.limit)), Some((None, 1_000)));
        for (items, limit) in [(1_000, 1_000), (30, 60), (60, 120), (1, 8), (0, 8)] {
            pages.has_read(items, true, Some("id".to_owned()));
            assert_eq!(
                pages.next().map(|page| (page.cursor, page.limit)),
                Some((Some("id"), limit)),
                "{items}"
            );
        }
        pages.has_read(3, false, Some("id".to_owned()));
        assert_eq!(pages.next(), None);
    }
}
