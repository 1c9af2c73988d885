//! The demo merchant with a customer, a meter, a spend key and money in its wallets: made on the first start by the
//! operator's commands and the REST API, like any other; its raw keys are kept in the data folder to be shown again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farthing_core::command::CreditTarget;
use farthing_core::ids::{CustomerId, MerchantId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::folder::Folder;
use super::ready::connectable;
use super::rest::Rest;
use crate::database::{Database, KeyOverride};
use crate::failure::{Failure, IntoFailure as _};
use crate::operator::{Access, Operator};
use crate::{lifetime, merchant_create, wallet_credit};

const FILE: &str = "demo.json";
const REFERENCE_ID: &str = "demo-customer";
const METER_SLUG: &str = "demo-meter";
const CUSTOMER_FUNDS: &str = "100";
const MERCHANT_FUNDS: &str = "1000";

/// How long the read models may take to show a new connection.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// The demo merchant's things, raw keys included.
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

/// The demo merchant of this data folder, made if there is none.
pub(super) async fn ensure(
    folder: &Folder,
    database_url: &str,
    key: &KeyOverride,
    gateway: SocketAddr,
) -> Result<Demo, Failure> {
    let gateway = connectable(gateway);
    let file = folder.at(FILE);
    if let Ok(text) = std::fs::read(&file) {
        let demo: Demo =
            serde_json::from_slice(&text).or_fail(format_args!("cannot read {}", file.display()))?;
        // Kept keys are of no use once the cluster was deleted and made anew.
        let rest = Rest { gateway, secret_key: &demo.secret_key };
        if rest.get("/v1/requests?limit=1").await?.0 != StatusCode::UNAUTHORIZED {
            return Ok(demo);
        }
    }
    let database = Database { database_url: database_url.to_owned() };
    let operator = Operator::open(&Access { database, key: key.clone() }).await?;
    let made = make(&operator, gateway).await;
    operator.close().await;
    let demo = made?;
    lifetime::write_json(&file, &demo)?;
    Ok(demo)
}

async fn make(operator: &Operator, gateway: SocketAddr) -> Result<Demo, Failure> {
    let merchant = merchant_create::create(operator, "Demo merchant".to_owned()).await?;
    let rest = Rest { gateway, secret_key: &merchant.secret_key };
    let person = json!({
        "reference_id": REFERENCE_ID, "name": "Ada Demo", "email": "ada@example.com", "phone": "+15550100200",
    });
    let customer = rest.post("/v1/customers", &person).await?;
    let price = json!({
        "name": "Demo meter", "meter_slug": METER_SLUG, "rate_type": "fixed", "tier_type": "requests",
        "tiers": [{"start": 0, "rate": "0.01"}],
    });
    let meter = rest.post("/v1/meters", &price).await?;
    let spend_key = rest.post("/v1/spend_keys", &json!({"name": "Demo spend key"})).await?;

    let customer_id = text(&customer, "customer_id")?;
    let customer_id: CustomerId = customer_id.parse().or_fail("the new customer's id is malformed")?;
    for (target, funds) in [
        (CreditTarget::Customer(customer_id), CUSTOMER_FUNDS),
        (CreditTarget::Merchant(merchant.merchant_id), MERCHANT_FUNDS),
    ] {
        let amount = funds.parse().or_fail("the demo's funds are malformed")?;
        wallet_credit::credit(operator, target, amount, "demo funds".to_owned()).await?;
    }
    let connection = shown_connection(&rest, customer_id).await?;
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

/// Waits until the connection is shown with its money.
async fn shown_connection(rest: &Rest<'_>, customer_id: CustomerId) -> Result<Value, Failure> {
    let until = Instant::now() + SHOWN_WITHIN;
    loop {
        let (status, answer) = rest.get(&format!("/v1/connections/{customer_id}")).await?;
        let balance = answer.pointer("/wallet/balance").and_then(Value::as_str).unwrap_or_default();
        if status.is_success() && balance.starts_with(CUSTOMER_FUNDS) {
            return Ok(answer);
        }
        if Instant::now() >= until {
            return Err(Failure::new(format!(
                "the demo customer's connection does not show its money: {answer}"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn text(answer: &Value, field: &str) -> Result<String, Failure> {
    let found = answer.get(field).and_then(Value::as_str);
    found
        .map(ToOwned::to_owned)
        .ok_or_else(|| Failure::new(format!("the gateway's answer has no {field}: {answer}")))
}
