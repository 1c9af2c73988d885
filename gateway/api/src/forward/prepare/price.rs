//! The list price of a call, its size, and the usage that it may report.

use farthing_core::model_price::ListPrice;
use farthing_core::pricing;
use farthing_core::size_hint::SizeHint;
use http::Method;

use super::Terms;
use crate::app::App;
use crate::body_memory::beside_others;
use crate::error::ApiError;
use crate::forward::read_call::ReadCall;
use crate::forward::size;
use crate::providers::{BilledBy, Unpriced, UsageLimit};

/// The list price of the call, or why it has none.
pub(super) fn list_price(
    app: &App,
    terms: Terms<'_>,
    method: &Method,
    read: &ReadCall,
) -> (ListPrice, Option<Unpriced>) {
    let Terms { provider, key, .. } = terms;
    match app.providers.list_price(provider, key, method, &read.target, read.model.as_deref()) {
        Ok(list_price) => (list_price, None),
        Err(why) => (ListPrice::Unlisted, Some(why)),
    }
}

/// Counts the characters of the body where they are billed.
pub(super) fn count_characters(terms: Terms<'_>, read: &mut ReadCall) {
    let ReadCall { json, options, .. } = read;
    if terms.billed_by == BilledBy::InputCharacters
        && let Some(json) = json.as_deref()
    {
        beside_others(json.len(), || options.read_input_characters(json));
    }
}

/// The size of the call. What limits its input matters on a spend key alone.
pub(super) fn size(app: &App, terms: Terms<'_>, read: &ReadCall) -> SizeHint {
    let Terms { provider, billed_by, on_spend_key, .. } = terms;
    let ReadCall { target, json, form, options, model, known_bytes, .. } = read;
    let limits = size::Limits {
        members: provider.limit_members(target),
        model: app.providers.max_tokens(provider, target, model.as_deref()),
        billed_by,
        unbounded: provider.unbounded(model.as_deref()),
    };
    match json.as_deref().filter(|_| on_spend_key) {
        Some(json) => beside_others(json.len(), || size::of_call(options, Some(json), *known_bytes, limits)),
        None if on_spend_key && form.is_some() => size::of_form(options, *known_bytes, limits),
        None => size::of_call(options, None, *known_bytes, limits),
    }
}

/// The usage that the call may report. Refuses one on a managed key whose characters are billed and cannot be counted.
pub(super) fn usage_limit(
    app: &App,
    terms: Terms<'_>,
    read: &ReadCall,
    list_price: &ListPrice,
    size: SizeHint,
) -> Result<UsageLimit, ApiError> {
    let (is_managed, options) = (terms.is_managed(), &read.options);
    let mut limit = if is_managed {
        app.providers.usage_limit(terms.provider, &read.target, read.model.as_deref(), options.answers)
    } else {
        UsageLimit::default()
    };
    if terms.billed_by == BilledBy::InputCharacters {
        if is_managed && options.input_characters.is_none() {
            return Err(ApiError::issue(["input"], "must be a text: the price is one for its characters"));
        }
        limit = limit.with_sent_characters(options.input_characters);
    }
    if is_managed && let ListPrice::Listed(price) = list_price {
        limit = limit.counting(&size, pricing::max_model_cost(price, size));
    }
    Ok(limit)
}
