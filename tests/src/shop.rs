//! A merchant with a funded customer and a meter of a dollar a call, on a database whose gateways are side gateways.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Request, Response};
use crate::instance::Instance;
use crate::merchant::{forward, token};
use crate::provider::{Endpoint, json as answer};
use crate::scratch::operate;
use crate::wait::eventually_ok;

/// The merchant.
pub struct Shop {
    secret_key: String,
    /// Bills the customer.
    bearer: String,
    /// The provider of its calls.
    endpoint: Endpoint,
}

impl Shop {
    /// Creates it over the database at `database_url` and the API of `gateway`.
    pub async fn open(instance: &Instance, database_url: &str, gateway: SocketAddr) -> Self {
        let made = operate(database_url, &["merchant", "create"]).await;
        let text = |value: &Value, name: &str| value[name].as_str().expect("a text").to_owned();
        let secret_key = text(&made, "secret_key");
        let credit = async |flag: &str, id: &str| {
            let credit = ["wallet", "credit", flag, id, "--amount", "1000", "--reason", "a test"];
            operate(database_url, &credit).await;
        };
        credit("--merchant", &text(&made, "merchant_id")).await;
        let post = async |path: &str, body: Value| {
            let request = Request::new("POST", path).json(&body).bearer(&secret_key);
            request.send(gateway).await.expect("the gateway answers").expect(201)
        };
        let meter = json!({"name": "m", "rate_type": "fixed", "tier_type": "requests",
            "service_charge_payer": "merchant", "tiers": [{"start": 0, "rate": "1"}]});
        let meter = post("/v1/meters", meter).await;
        let customer = text(&post("/v1/customers", json!({})).await, "customer_id");
        credit("--connection", &customer).await;
        let bearer = token(&json!({"secret_key": secret_key, "customer_id": customer,
            "meter_slug": meter["meter_slug"]}));
        let endpoint = instance.provider.endpoint(|_| answer(200, &json!({})));
        Self { secret_key, bearer, endpoint }
    }

    /// A call through `gateway`.
    pub async fn call(&self, gateway: SocketAddr) -> std::io::Result<Response> {
        forward("GET", &self.endpoint.url).bearer(&self.bearer).send(gateway).await
    }

    /// A `GET` of the merchant's.
    pub async fn get(&self, gateway: SocketAddr, path: &str) -> std::io::Result<Response> {
        Request::new("GET", path).bearer(&self.secret_key).send(gateway).await
    }

    /// Waits until the row of a call at `gateway` says that it was charged a dollar.
    pub async fn is_charged(&self, gateway: SocketAddr, request_id: &str) {
        let path = format!("/v1/requests/{request_id}");
        eventually_ok("the call is charged", async || {
            let shown = self.get(gateway, &path).await.map_err(|error| error.to_string())?;
            let is_shown = shown.status == 200 && shown.json()["status"] == "completed";
            if !is_shown {
                return Err(shown.text());
            }
            assert_eq!(shown.json()["total_wallet_cost"], "1.0000000000", "{}", shown.text());
            Ok(())
        })
        .await;
    }
}
