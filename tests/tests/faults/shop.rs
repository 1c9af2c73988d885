//! A merchant with a funded customer and a meter of half a dollar a call.

use farthing_tests::client::Response;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Customer, Merchant, forward};
use farthing_tests::provider::{Endpoint, json};
use serde_json::json;

pub(crate) struct Shop {
    pub(crate) merchant: Merchant,
    pub(crate) customer: Customer,
    /// Bills the customer.
    pub(crate) credential: String,
    /// The provider of its calls.
    pub(crate) endpoint: Endpoint,
}

impl Shop {
    pub(crate) async fn open(instance: &'static Instance) -> Self {
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("10").await;
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("0.5").await;
        let credential = merchant.billing(&customer, &meter);
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        Self { merchant, customer, credential, endpoint }
    }

    /// Makes a call with one pair of metadata.
    pub(crate) async fn call(&self) -> Response {
        let request = forward("POST", &self.endpoint.url).header("x-service-metadata", r#"{"a":"b"}"#);
        let response = self.merchant.send(&self.credential, request.json(&json!({}))).await;
        response.expect(200);
        response
    }
}
