//! `GET /customers/{id}`, by id or reference id.

use farthing_core::command::PersonalData;
use farthing_core::event::{CustomerEvent, Event, codec};
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_core::state::StateKey;
use farthing_projector::ReadModel;
use farthing_projector::customers::query;
use tokio_postgres::Client;

use super::resource::Customer;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the customer.
#[utoipa::path(
    get, path = "/customers/{customer_id}", operation_id = "get_customer", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The customer.", body = Customer),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Customer>, ApiError> {
    let connection = reads.caught_up(ReadModel::Customers).await?;
    let row = within(query::find(&connection, merchant_id, &name)).await?;
    Ok(Reply::ok(row.ok_or(ApiError::NotFound(Resource::Customer))?.into()))
}

const CREATION: &str = "\
SELECT e.kind, e.schema_version, e.body::text, e.occurred_at, p.first_name, p.last_name, p.email, p.phone
FROM ledger.events AS e
LEFT JOIN personal.customer AS p ON p.customer_id = $2
WHERE e.key = $1";

/// Reads an existing customer from the read model or, while that lags, from the log.
pub(super) async fn existing(
    app: &App,
    reads: &Reads,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Customer, ApiError> {
    let connection = reads.caught_up(ReadModel::Customers).await?;
    if let Some(row) = within(query::find(&connection, merchant_id, &id.to_string())).await? {
        return Ok(row.into());
    }
    // The customer may have been deleted in the meantime.
    match app.state(StateKey::Customer(id)).await? {
        Some(_) => within(as_created(&connection, id)).await,
        None => Err(ApiError::NotFound(Resource::Customer)),
    }
}

/// Reads the customer from its creation in the log.
async fn as_created(client: &Client, id: CustomerId) -> Result<Customer, ApiError> {
    let row = client.query_one(CREATION, &[&format!("{id}/created"), &id.to_string()]).await?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let created = match event {
        Ok(Event::Customer(CustomerEvent::Created(created))) => created,
        Ok(other) => return Err(ApiError::internal(format!("{id} was created by {}", other.key()))),
        Err(error) => return Err(ApiError::internal(error.to_string())),
    };
    let personal = PersonalData {
        first_name: row.try_get(4)?,
        last_name: row.try_get(5)?,
        email: row.try_get(6)?,
        phone: row.try_get(7)?,
    };
    Ok(Customer {
        customer_id: id,
        connection_id: id,
        reference_id: created.reference_id,
        contact: personal.into(),
        subscription: None,
        metadata: created.metadata,
        created_at: Timestamp(row.try_get(3)?),
    })
}
