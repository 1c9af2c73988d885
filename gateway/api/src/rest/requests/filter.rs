//! Which requests are asked for, in either vocabulary; lists and reports of usage take the same words.

use farthing_core::ids::MerchantId;
use farthing_projector::requests::RequestFilter;
use utoipa::IntoParams;

use crate::app::App;
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::named::{Customer, Meter};
use crate::rest::params::Params;

/// The parameter that narrows requests down beside those of their customer and their meter.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Params::metadata_filters` reads")]
pub(in crate::rest) struct MetadataQuery {
    /// Only those with all of this metadata: a JSON array of [key, value] pairs of strings.
    #[param(inline)]
    metadata_filters: Option<values::MetadataFilters>,
}

/// The conditions of a query; all must hold.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rest) struct Narrowed {
    customer: Option<Customer>,
    meter: Option<Meter>,
    metadata: Vec<(String, String)>,
}

impl Narrowed {
    /// `customer_id` or `connection_id` (by reference id as well), `meter_id` or `product_id` (by slug as well),
    /// `metadata_filters`.
    pub(in crate::rest) fn read(params: &mut Params) -> Self {
        let customer = Customer::read(params);
        let meter = Meter::read(params);
        let metadata = params.metadata_filters();
        Self { customer, meter, metadata }
    }

    /// The conditions as the queries take them; none when nothing has the reference id or slug, hence no request.
    pub(in crate::rest) async fn filter(
        self,
        app: &App,
        merchant_id: MerchantId,
    ) -> Result<Option<RequestFilter>, ApiError> {
        let connection_id = match &self.customer {
            None => None,
            Some(customer) => match customer.id(app, merchant_id).await? {
                Some(id) => Some(id),
                None => return Ok(None),
            },
        };
        let product_id = match &self.meter {
            None => None,
            Some(meter) => match meter.id(app, merchant_id).await? {
                Some(id) => Some(id),
                None => return Ok(None),
            },
        };
        Ok(Some(RequestFilter { connection_id, product_id, metadata: self.metadata }))
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use farthing_core::command::MeterRef;
    use farthing_core::ids::{CustomerId, MeterId, Mint};

    use super::*;
    use crate::error::InputError;

    fn read(pairs: &[(&str, &str)]) -> Result<Narrowed, ApiError> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut params = Params::of(pairs.collect());
        let narrowed = Narrowed::read(&mut params);
        params.checked().map(|()| narrowed)
    }

    #[test]
    fn both_vocabularies_name_the_same_filters() {
        let mint = Mint::default();
        let customer = CustomerId::new(mint.next(Utc::now()));
        let meter = MeterId::new(mint.next(Utc::now()));
        let (con, prd) = (customer.to_string(), meter.to_string());
        let older = read(&[("connection_id", &con), ("product_id", &prd)]).unwrap();
        let newer = read(&[("customer_id", &con), ("meter_id", &prd)]).unwrap();
        let both = read(&[("customer_id", &con), ("connection_id", &con), ("meter_id", &prd)]).unwrap();
        assert_eq!(older, newer);
        assert_eq!(both, newer);
        assert_eq!(
            (older.customer, older.meter),
            (Some(Customer::Id(customer)), Some(Meter(MeterRef::Id(meter))))
        );
        for (name, other) in [("customer_id", "connection_id"), ("connection_id", "customer_id")] {
            let by_reference = read(&[(name, "user-1")]).unwrap();
            assert_eq!(by_reference.customer, Some(Customer::Reference("user-1".to_owned())));
            assert!(read(&[(name, "user-1"), (other, "user-2")]).is_err(), "two names for two things");
        }
        for name in ["meter_id", "product_id"] {
            assert_eq!(
                read(&[(name, "chat")]).unwrap().meter,
                Some(Meter(MeterRef::Slug("chat".to_owned())))
            );
        }
    }

    #[test]
    fn junk_is_refused_with_the_name_of_the_parameter() {
        let long = "x".repeat(10 * 1024);
        for (name, value) in [
            ("connection_id", "con_x"),
            ("connection_id", "\0"),
            ("customer_id", "con_x"),
            ("customer_id", &long),
            ("customer_id", "a\0b"),
            ("product_id", "prd_01ARZ3NDEKTSV4RRFFQ69G5FA"),
            ("product_id", "two words"),
            ("meter_id", ""),
        ] {
            let Err(ApiError::Input(InputError::Validation(issues))) = read(&[(name, value)]) else {
                panic!("{name}={value:?}")
            };
            assert_eq!(issues[0].path, [name]);
        }
    }
}
