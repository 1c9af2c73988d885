//! Where a call goes, as far as its head says, and which URLs are refused.

use std::net::IpAddr;

use http::{Method, Uri};

use super::provider_key::key_place;
use crate::error::{ApiError, ForwardError};
use crate::forward::called_endpoint::CalledEndpoint;
use crate::forward::credential::{self, Found};
use crate::forward::forwarder::Forwarder;
use crate::forward::headers::{KeyPlace, Slot};
use crate::model_endpoints::ModelEndpoint;
use crate::providers::Recognised;
use crate::rewrite::Rewrite;
use crate::target::{self, KeyParameter, Query};

/// Where a call goes, as far as its head says.
pub(super) enum Addressed<'a> {
    /// To the URL `u`, or the one in the path.
    Forward {
        /// The provider at both URLs, which differ in their query alone.
        provider: Recognised<'a>,
        /// The URL as the log has it: without the credential's provider key.
        recorded: Uri,
        target: Uri,
    },
    /// To the provider of its model.
    ByModel(ModelEndpoint),
    /// To the URL in the path.
    Rewrite(Rewrite),
}

impl<'a> Addressed<'a> {
    pub(super) fn read(
        forwarder: &'a Forwarder,
        called: CalledEndpoint,
        uri: &Uri,
        query: &Query<'_>,
        found: &Found,
    ) -> Result<Self, ApiError> {
        match called {
            CalledEndpoint::Forward => Self::forwarded(forwarder, uri, query, found),
            CalledEndpoint::Model(endpoint) => Ok(Self::ByModel(endpoint)),
            CalledEndpoint::Rewrite => {
                let rewrite = Rewrite::read(uri.path(), query, key_parameter(found))?;
                check_target(forwarder, &rewrite.target)?;
                Ok(Self::Rewrite(rewrite))
            }
        }
    }

    fn forwarded(
        forwarder: &'a Forwarder,
        uri: &Uri,
        query: &Query<'_>,
        found: &Found,
    ) -> Result<Self, ApiError> {
        let in_path = uri.path().split_once("/forward/").map(|(_, given)| given);
        let in_path = in_path.filter(|given| !given.is_empty());
        let named = in_path.map(|given| query.with_url_in_path(given)).transpose()?;
        let query = named.as_ref().unwrap_or(query);
        let recorded = target(query, found, None)?;
        check_target(forwarder, &recorded)?;
        let provider = forwarder.app.providers.at(&recorded);
        let in_url = key_place(provider, &recorded, found.slot) == KeyPlace::Carrier(Slot::Query);
        let key_in_url = found.credential.provider_key.as_deref().filter(|_| in_url);
        let target = match key_in_url {
            Some(_) => target(query, found, key_in_url)?,
            None => recorded.clone(),
        };
        Ok(Self::Forward { provider, recorded, target })
    }
}

/// Refuses a URL with a credential of this service, and one whose address is forbidden.
pub(in crate::forward) fn check_target(forwarder: &Forwarder, target: &Uri) -> Result<(), ApiError> {
    let authority = target.authority().map_or("", |authority| authority.as_str());
    let path_and_query = target.path_and_query().map_or("", |path| path.as_str());
    if credential::is_within(authority)
        || credential::is_within(path_and_query)
        || target::keys_within(target).iter().any(|key| credential::is_ours(key))
    {
        return Err(ApiError::Forward(ForwardError::UrlInvalid("contains a credential of this service")));
    }
    if let Some(address) = literal_address(target)
        && !forwarder.guard.permits(address)
    {
        return Err(ApiError::Forward(ForwardError::UrlForbidden));
    }
    Ok(())
}

/// What the query parameter `key` is.
pub(in crate::forward) fn key_parameter(found: &Found) -> KeyParameter {
    if found.slots.contains(&Slot::Query) { KeyParameter::IsCredential } else { KeyParameter::IsProviders }
}

/// The method and the URL as the log has them: without any key.
pub(super) fn recorded_endpoint(method: &Method, recorded: &Uri) -> String {
    let mut endpoint = method.to_string();
    endpoint.push(' ');
    endpoint.push_str(&target::without_keys(&recorded.to_string()));
    endpoint
}

fn target(query: &Query<'_>, found: &Found, provider_key: Option<&str>) -> Result<Uri, ApiError> {
    Ok(query.target(key_parameter(found), provider_key)?)
}

/// The IP address that the URL names literally, if any. Checking it here refuses the call before it is opened; the
/// dialer checks every resolved address again.
fn literal_address(target: &Uri) -> Option<IpAddr> {
    target.host()?.trim_matches(['[', ']']).parse().ok()
}
