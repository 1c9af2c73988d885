//! The filters of lists of requests and of usage reports.

use farthing_core::command::MeterRef;
use farthing_core::ids::MerchantId;
use farthing_projector::requests;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::older_and_newer_names::{self, CustomerQuery, MeterQuery};
use crate::rules;
use crate::values::{self, CustomerName};

/// The filter by metadata.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::rest) struct MetadataQuery {
    /// Only items with all of this metadata: a JSON array of [key, value] pairs of strings.
    #[param(inline)]
    metadata_filters: Option<values::MetadataFilters>,
}

/// The parameters of all filters.
pub(in crate::rest) type RequestQuery = (CustomerQuery, MeterQuery, MetadataQuery);

/// The checked filters. A request matches if it passes all of them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rest) struct RequestFilter {
    customer: Option<CustomerName>,
    meter: Option<MeterRef>,
    metadata: Vec<(String, String)>,
}

impl RequestFilter {
    /// Checks the rules between the parameters. The filters may be used if it notes no issue.
    pub(in crate::rest) fn checked((customer, meter, metadata): RequestQuery, issues: &mut Issues) -> Self {
        Self {
            customer: customer.customer(issues),
            meter: meter.meter(issues),
            metadata: metadata.pairs(issues),
        }
    }

    /// The filters as the queries take them, or `None` if nothing has the reference id or the slug, so no request matches.
    pub(in crate::rest) async fn resolved(
        self,
        app: &App,
        merchant_id: MerchantId,
    ) -> Result<Option<requests::RequestFilter>, ApiError> {
        let connection_id = match &self.customer {
            None => None,
            Some(customer) => match older_and_newer_names::customer_id(app, merchant_id, customer).await? {
                Some(id) => Some(id),
                None => return Ok(None),
            },
        };
        let product_id = match &self.meter {
            None => None,
            Some(meter) => match older_and_newer_names::meter_id(app, merchant_id, meter).await? {
                Some(id) => Some(id),
                None => return Ok(None),
            },
        };
        Ok(Some(requests::RequestFilter { connection_id, product_id, metadata: self.metadata }))
    }
}

impl MetadataQuery {
    fn pairs(self, issues: &mut Issues) -> Vec<(String, String)> {
        let pairs = self.metadata_filters.map(|filters| filters.0).unwrap_or_default();
        for (index, (key, value)) in pairs.iter().enumerate() {
            let checked = rules::metadata_key(key).and_then(|()| rules::text(value.clone(), rules::MAX_TEXT));
            if let Err(message) = checked {
                issues.refuse(["metadata_filters", &index.to_string()], message);
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use farthing_core::command::MeterRef;
    use farthing_core::ids::{CustomerId, MeterId, Mint};

    use super::*;
    use crate::error::InputError;
    use crate::input;

    fn read(pairs: &[(&str, &str)]) -> Result<RequestFilter, ApiError> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let query = input::query::<RequestQuery>(pairs.collect())?;
        let mut issues = Issues::default();
        let filter = RequestFilter::checked(query, &mut issues);
        issues.checked().map(|()| filter)
    }

    #[test]
    fn older_and_newer_names_are_the_same_filters() {
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
            (Some(CustomerName::Id(customer)), Some(MeterRef::Id(meter)))
        );
        for (name, other) in [("customer_id", "connection_id"), ("connection_id", "customer_id")] {
            let by_reference = read(&[(name, "user-1")]).unwrap();
            assert_eq!(by_reference.customer, Some(CustomerName::Reference("user-1".to_owned())));
            assert!(read(&[(name, "user-1"), (other, "user-2")]).is_err(), "two names for two things");
        }
        for name in ["meter_id", "product_id"] {
            assert_eq!(read(&[(name, "chat")]).unwrap().meter, Some(MeterRef::Slug("chat".to_owned())));
        }
    }

    #[test]
    fn issues_name_the_parameter() {
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

    #[test]
    fn metadata_filters_keep_the_rules_of_metadata() {
        let filters = |json: &str| read(&[("metadata_filters", json)]);
        assert_eq!(filters(r#"[["a","b"],["c","d"]]"#).unwrap().metadata.len(), 2);
        for bad in ["[[\"a-b\",\"c\"]]", "[[\"a\",\"\"]]", "[[\"a\",\"\\u0000\"]]"] {
            let Err(ApiError::Input(InputError::Validation(issues))) = filters(bad) else { panic!("{bad}") };
            assert_eq!(issues[0].path, ["metadata_filters", "0"]);
        }
    }
}
