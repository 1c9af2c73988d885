//! What a call on a managed provider key may ask for, and its headers: the instance pays for it, so nothing in it may leave
//! its usage out of the answer or have another price than the listed one.

use farthing_core::model_price::ListPrice;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Uri};

use super::Terms;
use crate::error::ApiError;
use crate::forward::headers;
use crate::forward::managed_body::check_managed_body;
use crate::forward::read_call::ReadCall;
use crate::forward::usage::RequestedOptions;
use crate::providers::{AwsCredentials, BilledBy, ProviderKey, Recognised};

/// Checks the call and fits its headers, with the `key` among them. Returns the AWS credentials that the call is signed with,
/// if the key has some: it is not sent then.
pub(super) fn check_and_fit(
    terms: Terms<'_>,
    key: &ProviderKey,
    read: &ReadCall,
    list_price: &ListPrice,
    outgoing: &mut HeaderMap,
) -> Result<Option<AwsCredentials>, ApiError> {
    let Terms { provider, .. } = terms;
    check_options(&read.options)?;
    // A call without a list price is refused for that.
    if *list_price != ListPrice::Unlisted {
        let given = (read.json.as_ref(), read.form.as_ref());
        check_managed_body(provider, (&read.target, read.model.as_deref()), given, &read.body, list_price)?;
    }
    fit_headers(terms, read.json.is_some(), outgoing)?;
    check_query(provider, &read.target)?;
    let credentials = provider
        .credentials_within(key.reveal())
        .map_err(|invalid| ApiError::internal(format!("the key of {}: {invalid}", provider.name)))?;
    if credentials.is_none() {
        let (name, value) = provider.key_header(&read.target, key);
        outgoing.insert(name, value);
    }
    Ok(credentials)
}

/// Refuses an answer that is produced in the background, and a number of answers that cannot be read.
fn check_options(options: &RequestedOptions) -> Result<(), ApiError> {
    if options.is_background {
        return Err(ApiError::issue(["background"], "must not be true"));
    }
    match options.unread_count {
        Some(name) => Err(ApiError::issue([name], "must be a whole number")),
        None => Ok(()),
    }
}

/// Lets the provider read the call as it was read here, and answer in a form that can be read for its usage. Refuses headers
/// that choose another price.
fn fit_headers(terms: Terms<'_>, is_json: bool, outgoing: &mut HeaderMap) -> Result<(), ApiError> {
    // A compressed response may be too long to be read for its usage.
    outgoing.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if is_json {
        // The provider reads the body as it was read here.
        outgoing.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers::fit_managed_key(outgoing);
    if terms.billed_by == BilledBy::Report {
        headers::ask_for_a_readable_answer(outgoing);
    }
    if terms.provider.is_bedrock() {
        headers::fit_managed_key_of_bedrock(outgoing).map_err(|name| {
            ApiError::issue([name.as_str()], "requests a feature that has no listed price")
        })?;
    }
    Ok(())
}

/// Refuses a query that shapes the response.
fn check_query(provider: Recognised<'_>, target: &Uri) -> Result<(), ApiError> {
    let Some(name) = provider.parameter_of_the_response(target) else { return Ok(()) };
    let message = format!(
        "has the query parameter {name}, which a call on a managed provider key may not have: it could leave the usage \
         out of the response"
    );
    Err(ApiError::issue(["u"], message))
}
