//! The JSON object of a forward token. Invariant: an answer lists every field that breaks a rule; a connection or product
//! secret that is not valid has its own error code, and is reported only if the fields before it break no rule.

use farthing_core::command::{Billing, Caller, CustomerRef, MeterRef};
use farthing_core::secret::ServerKey;
use serde::Deserialize;

use super::{Credential, SPEND_KEY};
use crate::error::{ApiError, AuthError, ForwardError, Issue};
use crate::input::{self, Issues, Patch};
use crate::values::{ProviderKeyText, SlugOrId, Text};

/// The fields of a token; unknown ones are ignored. `null` and absence differ in the fields that name nobody explicitly.
#[derive(Deserialize)]
pub(super) struct TokenBody {
    secret_key: Option<Text>,
    spend_key: Option<Text>,
    provider_key: Option<ProviderKeyText>,
    connection_id: Option<Text>,
    /// The newer name of `connection_id`.
    #[serde(default)]
    customer_id: Patch<Text>,
    #[serde(default)]
    connection_secret: Patch<Text>,
    product_id: Option<SlugOrId>,
    /// The newer name of `product_id`.
    meter_id: Option<SlugOrId>,
    #[serde(default)]
    meter_slug: Patch<Text>,
    #[serde(default)]
    product_secret: Patch<Text>,
    disable_billing: Option<bool>,
}

impl TokenBody {
    /// Reads the JSON object `json`.
    pub(super) fn read(json: &str) -> Result<Self, ApiError> {
        input::unambiguous_body_or_issues(json).map_err(invalid)
    }

    /// The credential, checked by the rules between the fields.
    pub(super) fn credential(self, server_key: &ServerKey) -> Result<Credential, ApiError> {
        let mut issues = Issues::default();
        let is_nobody_explicit = self.names_nobody_explicitly();
        let payers = self.payers();
        let is_billing_disabled = self.disable_billing.unwrap_or(false);
        let caller = caller(self.secret_key, self.spend_key, server_key, &mut issues);
        let provider_key = self.provider_key.map(|ProviderKeyText(key)| key);
        let customer = CustomerFields {
            connection_id: self.connection_id,
            customer_id: self.customer_id.value(),
            connection_secret: self.connection_secret.value(),
        };
        let meter = MeterFields {
            product_id: self.product_id,
            meter_id: self.meter_id,
            meter_slug: self.meter_slug.value(),
            product_secret: self.product_secret.value(),
        };
        let named = customer
            .check(server_key, &mut issues)
            .and_then(|customer| Ok((customer, meter.check(server_key, &mut issues)?)));
        if named.is_ok() && matches!(caller, Some(Caller::SpendKey(_))) {
            // The spend key's own wallet pays.
            for name in payers.into_iter().chain(is_billing_disabled.then_some("disable_billing")) {
                issues.refuse([name], "must not be combined with a spend key");
            }
        }
        issues.into_result().map_err(invalid)?;
        let (customer, meter) = named.map_err(ApiError::Auth)?;
        let caller = caller.ok_or_else(|| ApiError::internal("a required field was not checked"))?;
        let nobody = customer.is_none() && meter.is_none() && is_nobody_explicit && provider_key.is_some();
        let billing = match (nobody, is_billing_disabled) {
            (true, _) => Billing::MeteringOnly,
            (false, true) => Billing::Disabled,
            (false, false) => Billing::Usual,
        };
        Ok(Credential { caller, customer, meter, billing, provider_key })
    }

    /// Whether both secrets, or both names, are `null`.
    fn names_nobody_explicitly(&self) -> bool {
        let both_null = |a: &Patch<Text>, b: &Patch<Text>| (a, b) == (&Patch::Null, &Patch::Null);
        both_null(&self.connection_secret, &self.product_secret)
            || both_null(&self.customer_id, &self.meter_slug)
    }

    /// The fields present that name a customer or a meter.
    fn payers(&self) -> Vec<&'static str> {
        let is_given = |field: &Patch<Text>| matches!(field, Patch::Value(_));
        [
            ("customer_id", is_given(&self.customer_id)),
            ("connection_id", self.connection_id.is_some()),
            ("connection_secret", is_given(&self.connection_secret)),
            ("meter_id", self.meter_id.is_some()),
            ("product_id", self.product_id.is_some()),
            ("meter_slug", is_given(&self.meter_slug)),
            ("product_secret", is_given(&self.product_secret)),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect()
    }
}

fn invalid(issues: Vec<Issue>) -> ApiError {
    ApiError::Forward(ForwardError::TokenJsonInvalid(issues))
}

/// The secret key or spend key. A spend key is also accepted as `secret_key`, for clients that have only that field.
fn caller(
    secret_key: Option<Text>,
    spend_key: Option<Text>,
    server_key: &ServerKey,
    issues: &mut Issues,
) -> Option<Caller> {
    match (secret_key, spend_key) {
        (Some(_), Some(_)) => {
            issues.refuse(["spend_key"], "must not be combined with secret_key");
            None
        }
        (None, None) => issues.required("secret_key", None),
        (Some(Text(key)), None) if !key.starts_with(SPEND_KEY) => {
            Some(Caller::SecretKey(server_key.hash(&key)))
        }
        (Some(Text(key)), None) | (None, Some(Text(key))) => Some(Caller::SpendKey(server_key.hash(&key))),
    }
}

/// The fields that name a customer.
struct CustomerFields {
    connection_id: Option<Text>,
    customer_id: Option<Text>,
    connection_secret: Option<Text>,
}

impl CustomerFields {
    fn check(self, server_key: &ServerKey, issues: &mut Issues) -> Result<Option<CustomerRef>, AuthError> {
        let by_name = |Text(name): Text| match name.parse() {
            Ok(id) => CustomerRef::Id(id),
            Err(_) => CustomerRef::Reference(name),
        };
        let mut customer = issues.either(
            ("connection_id", self.connection_id.map(by_name)),
            ("customer_id", self.customer_id.map(by_name)),
        );
        if let Some(Text(secret)) = self.connection_secret {
            match server_key.read_connection_secret(&secret) {
                Some((id, 1)) => {
                    let both = (CustomerRef::Id(id), CustomerRef::Secret(id));
                    set_secret(&mut customer, both, "connection_secret", issues);
                }
                Some(_) | None => return Err(AuthError::ConnectionSecretInvalid),
            }
        }
        Ok(customer)
    }
}

/// The fields that name a meter.
struct MeterFields {
    product_id: Option<SlugOrId>,
    meter_id: Option<SlugOrId>,
    meter_slug: Option<Text>,
    product_secret: Option<Text>,
}

impl MeterFields {
    fn check(self, server_key: &ServerKey, issues: &mut Issues) -> Result<Option<MeterRef>, AuthError> {
        let by_name = issues.either(("product_id", self.product_id), ("meter_id", self.meter_id));
        let mut meter = by_name.map(|SlugOrId(meter)| meter);
        if let Some(Text(slug)) = self.meter_slug {
            set_once(&mut meter, MeterRef::Slug(slug), "meter_slug", issues);
        }
        if let Some(Text(secret)) = self.product_secret {
            match server_key.read_product_secret(&secret) {
                Some((id, 1)) => {
                    let both = (MeterRef::Id(id), MeterRef::Secret(id));
                    set_secret(&mut meter, both, "product_secret", issues);
                }
                Some(_) | None => return Err(AuthError::ProductSecretInvalid),
            }
        }
        Ok(meter)
    }
}

/// Sets `found`, and refuses a second name for the same customer or meter.
fn set_once<T>(found: &mut Option<T>, named: T, name: &str, issues: &mut Issues) {
    if found.replace(named).is_some() {
        refuse_second(name, issues);
    }
}

/// Sets `found` to what a secret names. The id of the same customer or meter may stand beside it. A reference or a slug may not:
/// whose it is, the ledger alone knows.
fn set_secret<T: PartialEq>(
    found: &mut Option<T>,
    (by_id, by_secret): (T, T),
    name: &str,
    issues: &mut Issues,
) {
    if found.replace(by_secret).is_some_and(|named| named != by_id) {
        refuse_second(name, issues);
    }
}

fn refuse_second(name: &str, issues: &mut Issues) {
    issues.refuse([name], "conflicts with another field that names the same thing");
}
