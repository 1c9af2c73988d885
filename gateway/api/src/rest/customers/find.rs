//! `GET /customers/{id}`, by id or reference id.

use farthing_core::command::PersonalData;
use farthing_core::event::{CustomerEvent, Event, Fact, Recorded};
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_core::metadata;
use farthing_core::partition::Partition;
use farthing_core::state::StateKey;
use farthing_log::reader;
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
use crate::rest::reads::{MerchantConnection, Reads};

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
    let connection = reads.caught_up(ReadModel::Customers, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, &name)).await?;
    Ok(Reply::ok(row.ok_or(ApiError::NotFound(Resource::Customer))?.into()))
}

const PERSONAL: &str = "SELECT first_name, last_name, email, phone FROM personal.customer WHERE partition = $1 AND customer_id = $2";

/// Reads an existing customer from the read model of customers or, while that lags, from the log.
pub(super) async fn existing(
    app: &App,
    connection: MerchantConnection,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Customer, ApiError> {
    if let Some(row) = within(query::find(connection.partition(), merchant_id, &id.to_string())).await? {
        return Ok(row.into());
    }
    let created = connection.within(as_created(&connection, app.partition(merchant_id), id)).await;
    drop(connection);
    // The customer may have been deleted in the meantime.
    match app.state(merchant_id, StateKey::Customer(id)).await? {
        Some(_) => created,
        None => Err(ApiError::NotFound(Resource::Customer)),
    }
}

/// Reads the customer from its creation in the log.
async fn as_created(client: &Client, partition: Partition, id: CustomerId) -> Result<Customer, ApiError> {
    let found = reader::find(client, partition, &[&format!("{id}/created")]).await?;
    let Some(Recorded {
        fact: Fact { event: Event::Customer(CustomerEvent::Created(created)), occurred_at, .. },
        ..
    }) = found.into_iter().next()
    else {
        return Err(ApiError::internal(format!("the creation of {id} is not in the log")));
    };
    let personal = client.query_opt(PERSONAL, &[&partition.number(), &id.to_string()]).await?;
    let personal = personal.map(|row| -> Result<_, tokio_postgres::Error> {
        Ok(PersonalData {
            first_name: row.try_get("first_name")?,
            last_name: row.try_get("last_name")?,
            email: row.try_get("email")?,
            phone: row.try_get("phone")?,
        })
    });
    let personal = personal.transpose()?.unwrap_or_default();
    Ok(Customer {
        customer_id: id,
        connection_id: id,
        reference_id: created.reference_id,
        contact: personal.into(),
        subscription: None,
        metadata: metadata::join(&created.metadata, &created.metadata_literals),
        created_at: Timestamp(occurred_at),
    })
}
