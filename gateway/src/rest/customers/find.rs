//! `GET /customers/{id}`, by id or reference id.

use farthing_ledger::command::PersonalData;
use farthing_ledger::event::{Event, codec};
use farthing_ledger::ids::{CustomerId, MerchantId};
use farthing_projector::ReadModel;
use farthing_projector::customers::query;
use tokio_postgres::Client;

use super::resource::Customer;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Reply, Timestamp};
use crate::rest::params::Named;
use crate::rest::reads::{Reads, within};

/// 200 with the customer.
pub(in crate::rest) async fn find(
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

/// A customer known to be there: from the read model, or from the log itself while that lags.
pub(super) async fn existing(
    reads: &Reads,
    merchant_id: MerchantId,
    id: CustomerId,
) -> Result<Customer, ApiError> {
    let connection = reads.caught_up(ReadModel::Customers).await?;
    match within(query::find(&connection, merchant_id, &id.to_string())).await? {
        Some(row) => Ok(row.into()),
        None => within(as_created(&connection, id)).await,
    }
}

/// The customer as the log says it was created.
async fn as_created(client: &Client, id: CustomerId) -> Result<Customer, ApiError> {
    let row = client.query_one(CREATION, &[&format!("{id}/created"), &id.to_string()]).await?;
    let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let created = match event {
        Ok(Event::CustomerCreated(created)) => created,
        Ok(other) => return Err(ApiError::Internal(format!("{id} was created by {}", other.key()))),
        Err(error) => return Err(ApiError::Internal(error.to_string())),
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
        subscription: (),
        metadata: created.metadata,
        created_at: Timestamp(row.try_get(3)?),
    })
}
