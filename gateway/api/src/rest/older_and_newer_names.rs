//! The query parameters that name a customer or a meter, by id or by the merchant's own identifier, with their older
//! and newer names.

use farthing_core::command::MeterRef;
use farthing_core::ids::{CustomerId, MerchantId, MeterId};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::input::Issues;
use crate::values::{self, CustomerName};

/// The filter by customer.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CustomerQuery {
    /// Only items of this customer, by id or `reference_id`.
    #[param(inline)]
    connection_id: Option<values::CustomerFilter>,
    /// The newer name of `connection_id`.
    #[param(inline)]
    customer_id: Option<values::CustomerFilter>,
}

impl CustomerQuery {
    /// The customer, if one is named.
    pub(super) fn customer(self, issues: &mut Issues) -> Option<CustomerName> {
        let named = issues.either(("connection_id", self.connection_id), ("customer_id", self.customer_id));
        named.map(|named| named.0)
    }
}

/// The id of the merchant's customer with this id or reference id. Without such a customer, the error is that there is
/// no such `resource`: `customer` or `connection`, as the called path has it.
pub(super) async fn existing_customer(
    app: &App,
    merchant_id: MerchantId,
    name: &str,
    resource: Resource,
) -> Result<CustomerId, ApiError> {
    app.customer_id(merchant_id, name).await?.ok_or(ApiError::NotFound(resource))
}

/// The customer's id, or `None` if no customer has the reference id. The id of a deleted customer is still found, since
/// its history stays.
pub(super) async fn customer_id(
    app: &App,
    merchant_id: MerchantId,
    name: &CustomerName,
) -> Result<Option<CustomerId>, ApiError> {
    match name {
        CustomerName::Id(id) => Ok(Some(*id)),
        CustomerName::Reference(reference) => app.customer_id(merchant_id, reference).await,
    }
}

/// The filter by meter.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MeterQuery {
    /// Only items of this meter, by id or slug.
    #[param(inline)]
    product_id: Option<values::SlugOrId>,
    /// The newer name of `product_id`.
    #[param(inline)]
    meter_id: Option<values::SlugOrId>,
}

impl MeterQuery {
    /// The meter, if one is named.
    pub(super) fn meter(self, issues: &mut Issues) -> Option<MeterRef> {
        let named = issues.either(("product_id", self.product_id), ("meter_id", self.meter_id));
        named.map(|named| named.0)
    }
}

/// The meter's id, or `None` if no meter has the slug. The id of a deleted meter is still found, since its history
/// stays.
pub(super) async fn meter_id(
    app: &App,
    merchant_id: MerchantId,
    meter: &MeterRef,
) -> Result<Option<MeterId>, ApiError> {
    match meter {
        MeterRef::Id(id) | MeterRef::Secret(id) => Ok(Some(*id)),
        MeterRef::Slug(slug) => Ok(app.meter(merchant_id, slug).await?.map(|(id, _)| id)),
    }
}
