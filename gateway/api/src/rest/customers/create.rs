//! `POST /customers`: idempotent by `reference_id`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Utc};
use farthing_core::command::{CreateCustomer, CustomerMade, PersonalData, Timed};
use farthing_core::ids::{CustomerId, WalletId};
use utoipa::ToSchema;

use super::find;
use super::resource::Customer;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::Answer;
use crate::openapi::values;
use crate::rest::body::Reply;
use crate::rest::fields::Fields;
use crate::rest::reads::Reads;
use crate::rest::writes::{Rendered, Submitted, Writes};
use crate::rules;
use crate::rules::split_name;

/// 201 with a new customer, or 200 with the one that has the `reference_id` already.
#[utoipa::path(
    post, path = "/customers", operation_id = "create_customer", tag = "customers",
    request_body = NewCustomer,
    responses(
        (status = 201, description = "The new customer.", body = Customer),
        (status = 200, description = "The customer that has this reference_id already, unchanged.", body = Customer),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    reads: Reads,
    writes: Writes,
) -> Result<Answer, ApiError> {
    let merchant_id = writes.merchant_id;
    let wanted = Wanted::read(writes.json()?)?;
    let now = app.now();
    let command = CreateCustomer {
        merchant_id,
        customer_id: CustomerId::new(app.mint.next(now)),
        wallet_id: WalletId::new(app.mint.next(now)),
        reference_id: wanted.reference_id,
        metadata: wanted.metadata,
        personal: wanted.personal,
        now,
    };
    let made = command.clone();
    let render = move |(outcome, at): &(CustomerMade, DateTime<Utc>)| match outcome {
        CustomerMade::Created(_) => Rendered::Reply(Reply::created(Customer::made_by(made.clone(), *at))),
        CustomerMade::Existing(id) => Rendered::Later(*id),
    };
    match writes.submit_or_read(Timed { command, merchant_id, now }, render).await? {
        Submitted::Answer(answer) => Ok(answer),
        Submitted::Later(id) => {
            writes.keep(Reply::ok(find::existing(&app, &reads, merchant_id, id).await?)).await
        }
    }
}

/// A customer to create.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `Wanted::read` reads")]
struct NewCustomer {
    reference_id: Option<values::ReferenceId>,
    /// Splits at its first space.
    name: Option<values::Text>,
    email: Option<values::Email>,
    phone: Option<values::Phone>,
    metadata: Option<values::Metadata>,
}

/// What the body asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    reference_id: Option<String>,
    personal: PersonalData,
    metadata: BTreeMap<String, String>,
}

impl Wanted {
    fn read(json: &str) -> Result<Self, ApiError> {
        let mut body = Fields::of(json)?;
        let reference_id = body.ruled("reference_id", rules::reference_id);
        let name = body.text("name", rules::MAX_TEXT);
        let email = body.ruled("email", rules::email);
        let phone = body.ruled("phone", rules::phone);
        let metadata = body.metadata("metadata").unwrap_or_default();
        body.checked()?;
        let (first_name, last_name) = name.as_deref().map(split_name).unwrap_or_default();
        Ok(Self { reference_id, personal: PersonalData { first_name, last_name, email, phone }, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    #[test]
    fn every_field_is_optional() {
        let wanted = Wanted::read("{}").unwrap();
        assert_eq!(wanted.personal, PersonalData::default());
        assert_eq!((wanted.reference_id, wanted.metadata.len()), (None, 0));
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let json =
            r#"{"reference_id":"con_x","name":7,"email":"nobody","phone":"123","metadata":{"a b":"c"}}"#;
        let Err(ApiError::Input(InputError::Validation(issues))) = Wanted::read(json) else {
            panic!("accepted")
        };
        let paths: Vec<_> = issues.iter().map(|issue| issue.path.join(".")).collect();
        assert_eq!(paths, ["reference_id", "name", "email", "phone", "metadata.a b"]);
    }
}
