//! `PATCH /customers/{id}`, by id or reference id: only what is given changes, and `null` clears it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{Edit, PersonalData, UpdateCustomer};
use farthing_core::event::ContactPart;
use utoipa::ToSchema;

use super::find;
use super::resource::Customer;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::openapi::values;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::fields::Fields;
use crate::rest::params::Named;
use crate::rest::reads::Reads;
use crate::rules;
use crate::rules::split_name;

/// 200 with the customer as it is now.
#[utoipa::path(
    patch, path = "/customers/{customer_id}", operation_id = "update_customer", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    request_body = CustomerChanges,
    responses(
        (status = 200, description = "The customer as it is now.", body = Customer),
        (status = 404, description = "customer_not_found"),
        (status = 409, description = "reference_id_conflict"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    JsonText(json): JsonText,
) -> Result<Reply<Customer>, ApiError> {
    let Wanted { reference_id, metadata, contact, personal } = Wanted::read(&json)?;
    let customer_id = app.customer_id(merchant_id, &name).await?;
    let customer_id = customer_id.ok_or(ApiError::NotFound(Resource::Customer))?;
    let now = app.now();
    let command = UpdateCustomer { merchant_id, customer_id, reference_id, metadata, contact, personal, now };
    app.ledger.submit(command).await?;
    Ok(Reply::ok(find::existing(&app, &reads, merchant_id, customer_id).await?))
}

/// The body, as the document describes it; [`Wanted::read`] reads it. What is absent stays; `null` clears.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
struct CustomerChanges {
    reference_id: Option<values::ReferenceId>,
    /// Splits at its first space.
    name: Option<values::Text>,
    email: Option<values::Email>,
    phone: Option<values::Phone>,
    /// All key-value pairs from now on.
    metadata: Option<values::Metadata>,
}

/// What the body asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    reference_id: Edit<String>,
    /// None where it stays; empty where it is cleared.
    metadata: Option<BTreeMap<String, String>>,
    contact: Vec<ContactPart>,
    personal: PersonalData,
}

impl Wanted {
    fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let mut wanted = Self {
            reference_id: body.edit("reference_id", |body, name| body.ruled(name, rules::reference_id)),
            metadata: match body.edit("metadata", Fields::metadata) {
                Edit::Keep => None,
                Edit::Clear => Some(BTreeMap::new()),
                Edit::Set(metadata) => Some(metadata),
            },
            ..Self::default()
        };
        let name = body.edit("name", |body, name| body.text(name, rules::MAX_TEXT));
        if let Some(name) = wanted.part(ContactPart::Name, name) {
            (wanted.personal.first_name, wanted.personal.last_name) = split_name(&name);
        }
        let email = body.edit("email", |body, name| body.ruled(name, rules::email));
        wanted.personal.email = wanted.part(ContactPart::Email, email);
        let phone = body.edit("phone", |body, name| body.ruled(name, rules::phone));
        wanted.personal.phone = wanted.part(ContactPart::Phone, phone);
        body.checked()?;
        Ok(wanted)
    }

    /// Notes that a part of the contact is to change, if it is; what it is then.
    fn part(&mut self, part: ContactPart, edit: Edit<String>) -> Option<String> {
        match edit {
            Edit::Keep => None,
            Edit::Clear => {
                self.contact.push(part);
                None
            }
            Edit::Set(value) => {
                self.contact.push(part);
                Some(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    #[test]
    fn what_is_absent_stays() {
        for json in ["{}", r#"{"unknown":1}"#] {
            assert_eq!(Wanted::read(json).unwrap(), Wanted::default(), "{json}");
        }
    }

    #[test]
    fn null_clears() {
        let json = r#"{"reference_id":null,"metadata":null,"name":null,"email":null,"phone":null}"#;
        let wanted = Wanted::read(json).unwrap();
        assert_eq!(wanted.reference_id, Edit::Clear);
        assert_eq!(wanted.metadata, Some(BTreeMap::new()));
        assert_eq!(wanted.contact, [ContactPart::Name, ContactPart::Email, ContactPart::Phone]);
        assert_eq!(wanted.personal, PersonalData::default());
    }

    #[test]
    fn what_is_given_is_set() {
        let json =
            r#"{"reference_id":"ada","metadata":{"a":"b"},"name":"Ada King Lovelace","phone":"+4930123456"}"#;
        let wanted = Wanted::read(json).unwrap();
        assert_eq!(wanted.reference_id, Edit::Set("ada".to_owned()));
        assert_eq!(wanted.metadata.unwrap().len(), 1);
        assert_eq!(wanted.contact, [ContactPart::Name, ContactPart::Phone]);
        assert_eq!(wanted.personal.last_name.as_deref(), Some("King Lovelace"));
        assert_eq!(wanted.personal.email, None);
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let json =
            r#"{"reference_id":"con_x","name":"","email":"nobody","phone":"123","metadata":{"a b":"c"}}"#;
        let Err(ApiError::Input(InputError::Validation(issues))) = Wanted::read(json) else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["reference_id", "metadata.a b", "name", "email", "phone"]);
    }
}
