//! `POST /customers`: idempotent by `reference_id`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CreateCustomer, CreatedCustomer, PersonalData, Timed};
use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::metadata;
use farthing_projector::ReadModel;
use serde::Deserialize;
use utoipa::ToSchema;

use super::find;
use super::resource::Customer;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::Reply;
use crate::rest::reads::Reads;
use crate::rest::writes::{Rendered, Submitted, Writes};
use crate::rules::split_name;
use crate::values;

/// 201 with the new customer, or 200 with the existing customer of this `reference_id`.
#[utoipa::path(
    post, path = "/customers", operation_id = "create_customer", tag = "customers",
    request_body = NewCustomerBody,
    responses(
        (status = 201, description = "The new customer.", body = Customer),
        (status = 200, description = "The existing customer with this reference_id, unchanged.", body = Customer),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    reads: Reads,
    writes: Writes,
) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let body: NewCustomerBody = input::body(writes.json()?)?;
    let now = app.now();
    let metadata = body.metadata.as_ref().map(|metadata| metadata.0.clone()).unwrap_or_default();
    let (metadata, metadata_literals) = metadata::split(metadata);
    let command = CreateCustomer {
        merchant_id,
        customer_id: CustomerId::new(app.mint.next(now)),
        wallet_id: WalletId::new(app.mint.next(now)),
        personal: body.personal(),
        reference_id: body.reference_id.map(|reference| reference.0),
        metadata,
        metadata_literals,
        now,
    };
    let made = command.clone();
    let render = move |(outcome, at): &(CreatedCustomer, DateTime<Utc>)| match outcome {
        CreatedCustomer::Created(_) => Rendered::Reply(Reply::created(Customer::made_by(made.clone(), *at))),
        CreatedCustomer::Existing(id) => Rendered::Later(*id),
    };
    match writes.submit_or_read(Timed { command, merchant_id, now }, render).await? {
        Submitted::Response(answer) => Ok(answer),
        Submitted::Later(id) => {
            let connection = reads.caught_up(ReadModel::Customers, merchant_id).await?;
            let existing = find::existing(&app, connection, merchant_id, id).await?;
            writes.keep(Reply::ok(existing)).await
        }
    }
}

/// A customer to create.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewCustomer)]
struct NewCustomerBody {
    reference_id: Option<values::ReferenceId>,
    /// Split into first and last name at the first space.
    name: Option<values::PersonName>,
    email: Option<values::Email>,
    phone: Option<values::Phone>,
    metadata: Option<values::CustomerMetadata>,
}

impl NewCustomerBody {
    fn personal(&self) -> PersonalData {
        let name = self.name.as_ref().map(|name| split_name(&name.0));
        let (first_name, last_name) = name.unwrap_or_default();
        let email = self.email.as_ref().map(|email| email.0.clone());
        let phone = self.phone.as_ref().map(|phone| phone.0.clone());
        PersonalData { first_name, last_name, email, phone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    #[test]
    fn every_field_is_optional() {
        let body: NewCustomerBody = input::body("{}").unwrap();
        assert_eq!(body.personal(), PersonalData::default());
        assert!(body.reference_id.is_none() && body.metadata.is_none());
    }

    #[test]
    fn a_blank_name_is_refused() {
        assert!(input::body::<NewCustomerBody>(r#"{"name":" Ada "}"#).is_ok());
        for json in [r#"{"name":" "}"#, r#"{"name":"\n\u00a0"}"#] {
            let refused = input::body::<NewCustomerBody>(json).is_err();
            assert!(refused, "{json}");
        }
    }

    #[test]
    fn all_issues_are_listed() {
        let json =
            r#"{"reference_id":"con_x","name":7,"email":"nobody","phone":"123","metadata":{"a b":"c"}}"#;
        let Err(ApiError::Input(InputError::Validation(issues))) = input::body::<NewCustomerBody>(json)
        else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["reference_id", "name", "email", "phone", "metadata.a b"]);
    }
}
