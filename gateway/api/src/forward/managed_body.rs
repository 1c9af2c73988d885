//! What the body of a call on a managed provider key may ask for: nothing that its list price does not know.

use bytes::Bytes;
use farthing_core::model_price::ListPrice;
use http_body::Body as _;

use super::body_memory::beside_others;
use super::request_body::RequestBody;
use super::usage::{CachePrice, FormExtent, FormOptions, unpriced_at_bedrock, unpriced_member};
use crate::error::ApiError;
use crate::providers::Recognised;

/// Refuses a body that asks for what has no listed price, or that cannot be read: it may ask for anything. `json` and `form`
/// are the body, if it is one.
pub(super) fn check_managed_body(
    provider: Recognised<'_>,
    (json, form): (Option<&Bytes>, Option<&(FormOptions, FormExtent)>),
    body: &RequestBody,
    list_price: &ListPrice,
) -> Result<(), ApiError> {
    let unpriced = match (json, form) {
        (Some(json), _) => beside_others(json.len(), || {
            let member = unpriced_member(json, provider.unpriced_members());
            let at_bedrock = || unpriced_at_bedrock(json, CachePrice::of(list_price));
            member.or_else(|| if provider.is_bedrock() { at_bedrock() } else { None })
        }),
        (None, Some((form, FormExtent::Whole))) => form.hides_duration.then_some("response_format"),
        (None, _) => (!body.is_end_stream()).then_some("body"),
    };
    match unpriced {
        Some("body") => Err(ApiError::issue(
            ["body"],
            "must be a JSON object, or a form with sound, of at most 256 KiB, with its type",
        )),
        Some(name @ "response_format") if form.is_some() => {
            Err(ApiError::issue([name], "must be json or verbose_json: others do not report the duration"))
        }
        Some(name) => {
            Err(ApiError::issue([name], "requests a feature that has no listed price, or cannot be read"))
        }
        None => Ok(()),
    }
}
