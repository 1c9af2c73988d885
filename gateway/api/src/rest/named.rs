//! Customers and meters as the parameters of a query name them: by id or by the merchant's own name, in either
//! vocabulary.

use farthing_core::command::MeterRef;
use farthing_core::ids::{CustomerId, MerchantId, MeterId};
use utoipa::IntoParams;

use super::params::Params;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::values;
use crate::rules;

/// The parameters that narrow a list down to a customer.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Customer::read` reads")]
pub(super) struct CustomerQuery {
    /// Only this customer's.
    #[param(inline)]
    connection_id: Option<values::ReferenceOrId>,
    /// The same in the newer word.
    #[param(inline)]
    customer_id: Option<values::ReferenceOrId>,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Customer {
    /// By its id.
    Id(CustomerId),
    /// By the merchant's own name.
    Reference(String),
}

impl Customer {
    /// `customer_id` or `connection_id`.
    pub(super) fn read(params: &mut Params) -> Option<Self> {
        params.either("connection_id", "customer_id", |name| match name.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => rules::reference_id(name).map(Self::Reference),
        })
    }

    /// Its id; none where nobody has the reference id. What is deleted is still found by its id: its history stays.
    pub(super) async fn id(
        &self,
        app: &App,
        merchant_id: MerchantId,
    ) -> Result<Option<CustomerId>, ApiError> {
        match self {
            Self::Id(id) => Ok(Some(*id)),
            Self::Reference(reference) => app.customer_id(merchant_id, reference).await,
        }
    }
}

/// The parameters that narrow a list down to a meter.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Meter::read` reads")]
pub(super) struct MeterQuery {
    /// Only those counted on this meter.
    #[param(inline)]
    product_id: Option<values::SlugOrId>,
    /// The same in the newer word.
    #[param(inline)]
    meter_id: Option<values::SlugOrId>,
}

/// A meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meter(pub(super) MeterRef);

impl Meter {
    /// `meter_id` or `product_id`.
    pub(super) fn read(params: &mut Params) -> Option<Self> {
        params.either("product_id", "meter_id", rules::meter).map(Self)
    }

    /// Its id; none where no meter has the slug. What is deleted is still found by its id: its history stays.
    pub(super) async fn id(&self, app: &App, merchant_id: MerchantId) -> Result<Option<MeterId>, ApiError> {
        match &self.0 {
            MeterRef::Id(id) | MeterRef::Secret(id) => Ok(Some(*id)),
            MeterRef::Slug(slug) => Ok(app.meter(merchant_id, slug).await?.map(|(id, _)| id)),
        }
    }
}
