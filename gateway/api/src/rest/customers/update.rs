//! `PATCH /customers/{id}`, by id or reference id: only given fields change, and `null` clears them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{Edit, PersonalData, UpdateCustomer};
use farthing_core::event::ContactPart;
use farthing_core::metadata;
use farthing_projector::ReadModel;
use serde::Deserialize;
use utoipa::ToSchema;

use super::find;
use super::resource::Customer;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input::{self, Patch};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::params::Named;
use crate::rest::reads::Reads;
use crate::rules::split_name;
use crate::values;

/// 200 with the updated customer.
#[utoipa::path(
    patch, path = "/customers/{customer_id}", operation_id = "update_customer", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    request_body = CustomerChangesBody,
    responses(
        (status = 200, description = "The updated customer.", body = Customer),
        (status = 404, description = "customer_not_found"),
        (status = 409, description = "reference_id_conflict"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Customer>, ApiError> {
    let CustomerEdits { reference_id, metadata, metadata_literals, contact, personal } =
        input::body::<CustomerChangesBody>(&json)?.into();
    let customer_id = existing_customer(&app, merchant_id, &name, Resource::Customer).await?;
    let now = app.now();
    let command = UpdateCustomer {
        merchant_id,
        customer_id,
        reference_id,
        metadata,
        metadata_literals,
        contact,
        personal,
        now,
    };
    app.submit(merchant_id, command).await?;
    let connection = reads.caught_up_after_write(ReadModel::Customers, merchant_id).await?;
    Ok(Reply::ok(find::existing(&app, connection, merchant_id, customer_id).await?))
}

/// What to change of a customer. An absent field stays; `null` clears it.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = CustomerChanges)]
struct CustomerChangesBody {
    #[serde(default)]
    #[schema(value_type = Option<values::ReferenceId>)]
    reference_id: Patch<values::ReferenceId>,
    /// Split into first and last name at the first space.
    #[serde(default)]
    #[schema(value_type = Option<values::PersonName>)]
    name: Patch<values::PersonName>,
    #[serde(default)]
    #[schema(value_type = Option<values::Email>)]
    email: Patch<values::Email>,
    #[serde(default)]
    #[schema(value_type = Option<values::Phone>)]
    phone: Patch<values::Phone>,
    /// Replaces all key-value pairs.
    #[serde(default)]
    #[schema(value_type = Option<values::CustomerMetadata>)]
    metadata: Patch<values::CustomerMetadata>,
}

/// The changes as the command takes them.
#[derive(Debug, Default, PartialEq, Eq)]
struct CustomerEdits {
    reference_id: Edit<String>,
    /// `None` keeps the metadata.
    metadata: Option<BTreeMap<String, String>>,
    metadata_literals: BTreeSet<String>,
    contact: Vec<ContactPart>,
    personal: PersonalData,
}

impl From<CustomerChangesBody> for CustomerEdits {
    fn from(body: CustomerChangesBody) -> Self {
        let (metadata, metadata_literals) = match body.metadata {
            Patch::Absent => (None, BTreeSet::new()),
            Patch::Null => (Some(BTreeMap::new()), BTreeSet::new()),
            Patch::Value(metadata) => {
                let (texts, literals) = metadata::split(metadata.0);
                (Some(texts), literals)
            }
        };
        let reference_id = body.reference_id.edit(|reference| reference.0);
        let mut edits = Self { reference_id, metadata, metadata_literals, ..Self::default() };
        if let Some(name) = edits.part(ContactPart::Name, body.name.edit(|name| name.0)) {
            (edits.personal.first_name, edits.personal.last_name) = split_name(&name);
        }
        edits.personal.email = edits.part(ContactPart::Email, body.email.edit(|email| email.0));
        edits.personal.phone = edits.part(ContactPart::Phone, body.phone.edit(|phone| phone.0));
        edits
    }
}

impl CustomerEdits {
    /// Lists `part` as changed unless it stays. Returns its new value.
    fn part(&mut self, part: ContactPart, edit: Edit<String>) -> Option<String> {
        let value = match edit {
            Edit::Keep => return None,
            Edit::Clear => None,
            Edit::Set(value) => Some(value),
        };
        self.contact.push(part);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn read(json: &str) -> CustomerEdits {
        input::body::<CustomerChangesBody>(json).unwrap().into()
    }

    #[test]
    fn absent_fields_stay() {
        for json in ["{}", r#"{"unknown":1}"#] {
            assert_eq!(read(json), CustomerEdits::default(), "{json}");
        }
    }

    #[test]
    fn null_clears() {
        let json = r#"{"reference_id":null,"metadata":null,"name":null,"email":null,"phone":null}"#;
        let edits = read(json);
        assert_eq!(edits.reference_id, Edit::Clear);
        assert_eq!(edits.metadata, Some(BTreeMap::new()));
        assert_eq!(edits.contact, [ContactPart::Name, ContactPart::Email, ContactPart::Phone]);
        assert_eq!(edits.personal, PersonalData::default());
    }

    #[test]
    fn a_blank_name_clears_nothing() {
        for json in [r#"{"name":" "}"#, r#"{"name":"\t\u3000"}"#] {
            let Err(ApiError::Input(InputError::Validation(issues))) =
                input::body::<CustomerChangesBody>(json)
            else {
                panic!("accepted: {json}")
            };
            let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
            assert_eq!(paths, ["name"], "{json}");
        }
    }

    #[test]
    fn given_fields_are_set() {
        let json = r#"{"reference_id":"ada","metadata":{"a":"b","c":1.50,"d":true},"name":"Ada King Lovelace","phone":"+4930123456"}"#;
        let edits = read(json);
        assert_eq!(edits.reference_id, Edit::Set("ada".to_owned()));
        let texts = edits.metadata.unwrap();
        assert_eq!((texts["a"].as_str(), texts["c"].as_str(), texts["d"].as_str()), ("b", "1.50", "true"));
        assert_eq!(edits.metadata_literals, ["c".to_owned(), "d".to_owned()].into());
        assert_eq!(edits.contact, [ContactPart::Name, ContactPart::Phone]);
        assert_eq!(edits.personal.last_name.as_deref(), Some("King Lovelace"));
        assert_eq!(edits.personal.email, None);
    }

    #[test]
    fn all_issues_are_listed() {
        let json =
            r#"{"reference_id":"con_x","name":"","email":"nobody","phone":"123","metadata":{"a b":"c"}}"#;
        let Err(ApiError::Input(InputError::Validation(issues))) = input::body::<CustomerChangesBody>(json)
        else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["reference_id", "name", "email", "phone", "metadata.a b"]);
    }
}
