//! What the body of a call on a managed provider key may ask for: nothing that its list price does not know.

use bytes::Bytes;
use farthing_core::model_price::ListPrice;
use http::Uri;
use http_body::Body as _;

use super::request_body::RequestBody;
use super::usage::{FormExtent, FormOptions, Unpriced, unpriced_at_bedrock, unpriced_member};
use crate::body_memory::beside_others;
use crate::error::ApiError;
use crate::providers::Recognised;

/// Refuses a body that asks for what has no listed price, or that cannot be read: it may ask for anything. `json` and `form`
/// are the body, if it is one. The call is one of `model` to `target`.
pub(super) fn check_managed_body(
    provider: Recognised<'_>,
    (target, model): (&Uri, Option<&str>),
    (json, form): (Option<&Bytes>, Option<&(FormOptions, FormExtent)>),
    body: &RequestBody,
    list_price: &ListPrice,
) -> Result<(), ApiError> {
    let unpriced = match (json, form) {
        (Some(json), _) => beside_others(json.len(), || {
            let member = unpriced_member(json, provider.unpriced_members()).map(Unpriced::member);
            let at_bedrock = || unpriced_at_bedrock(json, (target.path(), model), list_price);
            member.or_else(|| if provider.is_bedrock() { at_bedrock() } else { None })
        }),
        (None, Some((form, FormExtent::Whole))) => {
            form.hides_duration.then_some(Unpriced::member("response_format"))
        }
        (None, _) => (!body.is_end_stream()).then_some(Unpriced::member("body")),
    };
    match unpriced {
        Some(Unpriced { member: "body", .. }) => Err(ApiError::issue(
            ["body"],
            "must be a JSON object, or a form with sound, of at most 256 KiB, with its type",
        )),
        Some(Unpriced { member: member @ "response_format", .. }) if form.is_some() => {
            Err(ApiError::issue([member], "must be json or verbose_json: others do not report the duration"))
        }
        Some(Unpriced { member, why }) => Err(ApiError::issue([member], why)),
        None => Ok(()),
    }
}
