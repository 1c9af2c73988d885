//! The demo merchant, with a customer, a meter, a spend key and money in its wallets. The first start creates it
//! through operator commands and the REST API. Its raw keys are kept in the data folder, for later starts to show.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use farthing_core::ids::{CustomerId, MerchantId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::data_folder::DataFolder;
use super::operator::Operator;
use super::rest_client::RestClient;
use crate::private_file;

const FILE: &str = "demo.json";
const REFERENCE_ID: &str = "demo-customer";
const METER_SLUG: &str = "demo-meter";
const CUSTOMER_FUNDS: &str = "100";
const MERCHANT_FUNDS: &str = "1000";
const REASON: &str = "demo funds";

/// How long the read models may take to show a new connection.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The ids and raw keys of the demo merchant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Demo {
    pub(super) merchant_id: MerchantId,
    pub(super) secret_key: String,
    pub(super) customer_id: CustomerId,
    pub(super) reference_id: String,
    pub(super) connection_secret: String,
    pub(super) meter_slug: String,
    pub(super) product_secret: String,
    pub(super) spend_key: String,
}

/// The demo merchant of this data folder, created if there is none.
pub(super) async fn find_or_create(
    folder: &DataFolder,
    operator: &Operator<'_>,
    gateway: SocketAddr,
) -> Result<Demo> {
    let file = folder.path(FILE);
    if let Some(text) = private_file::read(&file)? {
        let demo: Demo =
            serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))?;
        // The kept key is invalid if the Postgres cluster was deleted and created again.
        let client = RestClient { gateway, secret_key: &demo.secret_key };
        if client.get("/v1/requests?limit=1").await?.0 != StatusCode::UNAUTHORIZED {
            return Ok(demo);
        }
    }
    let demo = create(operator, gateway).await?;
    private_file::write_json(&file, &demo)?;
    Ok(demo)
}

async fn create(operator: &Operator<'_>, gateway: SocketAddr) -> Result<Demo> {
    let merchant = operator.create_merchant("Demo merchant").await?;
    let client = RestClient { gateway, secret_key: &merchant.secret_key };
    let customer = json!({
        "reference_id": REFERENCE_ID, "name": "Ada Demo", "email": "ada@example.com", "phone": "+15550100200",
    });
    let customer = client.post("/v1/customers", &customer).await?;
    let meter = json!({
        "name": "Demo meter", "meter_slug": METER_SLUG, "rate_type": "fixed", "tier_type": "requests",
        "tiers": [{"start": 0, "rate": "0.01"}],
    });
    let meter = client.post("/v1/meters", &meter).await?;
    let spend_key = client.post("/v1/spend_keys", &json!({"name": "Demo spend key"})).await?;

    let customer_id: CustomerId =
        text(&customer, "customer_id")?.parse().context("the new customer's id is malformed")?;
    operator.credit_customer(customer_id, CUSTOMER_FUNDS, REASON).await?;
    operator.credit_merchant(merchant.merchant_id, MERCHANT_FUNDS, REASON).await?;
    let connection = funded_connection(&client, customer_id).await?;
    Ok(Demo {
        merchant_id: merchant.merchant_id,
        customer_id,
        reference_id: REFERENCE_ID.to_owned(),
        connection_secret: text(&connection, "connection_secret")?,
        meter_slug: text(&meter, "meter_slug")?,
        product_secret: text(&meter, "product_secret")?,
        spend_key: text(&spend_key, "key")?,
        secret_key: merchant.secret_key,
    })
}

/// Waits until the API shows the connection with its funds.
async fn funded_connection(client: &RestClient<'_>, customer_id: CustomerId) -> Result<Value> {
    let deadline = Instant::now() + VISIBLE_TIMEOUT;
    loop {
        let (status, connection) = client.get(&format!("/v1/connections/{customer_id}")).await?;
        let balance = connection.pointer("/wallet/balance").and_then(Value::as_str).unwrap_or_default();
        if status.is_success() && balance.starts_with(CUSTOMER_FUNDS) {
            return Ok(connection);
        }
        ensure!(
            Instant::now() < deadline,
            "the demo customer's wallet does not show its funds: {connection}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn text(response: &Value, field: &str) -> Result<String> {
    let found = response.get(field).and_then(Value::as_str);
    found.map(ToOwned::to_owned).with_context(|| format!("the gateway's response has no {field}: {response}"))
}
