//! `GET /requests`.

use std::sync::Arc;

use axum::extract::State;
use farthing_ledger::ids::{CustomerId, MeterId};
use farthing_projector::ReadModel;
use farthing_projector::requests::query;

use super::resource::Request;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageParams};
use crate::rest::params::Params;
use crate::rest::reads::{Reads, within};
use crate::rest::rules;

/// 200 with a page of the merchant's requests; all filters that are given must hold.
pub(in crate::rest) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    params: Params,
) -> Result<Reply<List<Request>>, ApiError> {
    let wanted = Wanted::read(params)?;
    let connection_id = match &wanted.customer {
        None => None,
        Some(Customer::Id(id)) => Some(*id),
        Some(Customer::Reference(reference)) => match app.customer_id(merchant_id, reference).await? {
            Some(id) => Some(id),
            // Nobody has this reference id, hence no request.
            None => return Ok(Reply::ok(List::new(Vec::new(), false, None))),
        },
    };
    let filter = query::Filter { connection_id, product_id: wanted.meter_id, metadata: wanted.metadata };
    let connection = reads.caught_up(ReadModel::Requests).await?;
    let listed = within(query::list(&connection, merchant_id, wanted.page.as_query(), &filter)).await?;
    let last = listed.items.last().map(|row| row.request_id.to_string());
    let shown = listed.items.into_iter().map(Request::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}

/// Whose requests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Customer {
    Id(CustomerId),
    Reference(String),
}

/// What the query asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    page: PageParams,
    customer: Option<Customer>,
    meter_id: Option<MeterId>,
    metadata: Vec<(String, String)>,
}

impl Wanted {
    fn read(mut params: Params) -> Result<Self, ApiError> {
        let page = params.page();
        let connection_id = params.id("connection_id").map(Customer::Id);
        let customer = params.ruled("customer_id", |name| match name.parse() {
            Ok(id) => Ok(Customer::Id(id)),
            Err(_) => rules::reference_id(name).map(Customer::Reference),
        });
        let product_id = params.id("product_id");
        let meter_id = params.id("meter_id");
        if connection_id.is_some() && customer.is_some() && connection_id != customer {
            params.refuse("customer_id", "names another thing than connection_id");
        }
        if product_id.is_some() && meter_id.is_some() && product_id != meter_id {
            params.refuse("meter_id", "names another thing than product_id");
        }
        let metadata = params.metadata_filters();
        params.checked()?;
        Ok(Self { page, customer: customer.or(connection_id), meter_id: meter_id.or(product_id), metadata })
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use farthing_ledger::ids::Mint;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Wanted, ApiError> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Wanted::read(Params::of(pairs.collect()))
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
        assert_eq!((older.customer, older.meter_id), (Some(Customer::Id(customer)), Some(meter)));
        let by_reference = read(&[("customer_id", "user-1")]).unwrap();
        assert_eq!(by_reference.customer, Some(Customer::Reference("user-1".to_owned())));
    }

    #[test]
    fn junk_is_refused_with_the_name_of_the_parameter() {
        let long = "x".repeat(10 * 1024);
        for (name, value) in [
            ("connection_id", "user-1"),
            ("connection_id", "\0"),
            ("customer_id", "con_x"),
            ("customer_id", &long),
            ("customer_id", "a\0b"),
            ("product_id", "con_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            ("meter_id", ""),
            ("limit", "0"),
        ] {
            let Err(ApiError::Validation(issues)) = read(&[(name, value)]) else {
                panic!("{name}={value:?}")
            };
            assert_eq!(issues[0].path, [name]);
        }
    }
}
