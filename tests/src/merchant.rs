//! A test's merchant, with functions to create its resources over REST and to forward calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::books::decimal;
use crate::client::{Body, Request, Response};
use crate::instance::Instance;
use crate::leader;
use crate::log::{Log, Logged, partition_of};
use crate::wait::{eventually, eventually_ok};

/// A merchant.
pub struct Merchant {
    /// Its instance.
    pub instance: &'static Instance,
    /// A connection to the log.
    pub log: Log,
    /// `mer_…`
    pub id: String,
    /// Its own wallet.
    pub wallet_id: String,
    /// Its key.
    pub secret_key: String,
}

/// A customer of the merchant.
#[derive(Debug, Clone)]
pub struct Customer {
    /// `con_…`
    pub id: String,
    /// The merchant's own id of the customer.
    pub reference_id: String,
}

/// A meter of the merchant.
#[derive(Debug, Clone)]
pub struct Meter {
    /// `prd_…`
    pub id: String,
    /// Its slug.
    pub slug: String,
    /// Its secret.
    pub secret: String,
}

/// A forward token with this JSON.
pub fn token(fields: &Value) -> String {
    STANDARD.encode(fields.to_string())
}

/// `text`, percent-encoded.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A forwarded call of `method` to `url`, without a credential.
pub fn forward(method: &str, url: &str) -> Request {
    Request::new(method, format!("/v1/forward?u={}", encoded(url)))
}

impl Merchant {
    /// A new merchant of the shared instance.
    pub async fn new() -> Self {
        Self::of(Instance::shared().await).await
    }

    /// A new merchant of `instance`.
    pub async fn of(instance: &'static Instance) -> Self {
        let log = instance.log().await.from_now_on().await;
        let made = Self::made(instance).await;
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
        let (id, wallet_id, secret_key) = (text("merchant_id"), text("wallet_id"), text("secret_key"));
        Self { instance, log, id, wallet_id, secret_key }
    }

    /// What is shown of a new merchant. If another test ends the gateway that is asked, it is not known whether there is one:
    /// then another is made.
    async fn made(instance: &'static Instance) -> Value {
        loop {
            let create = ["merchant", "create", "--name", "a test's"];
            let output = instance.command(&create).await;
            let error = String::from_utf8_lossy(&output.stderr);
            if !error.contains("it is not known whether this was done") {
                assert!(output.status.success(), "{create:?}: {error}");
                return serde_json::from_slice(&output.stdout).expect("a command answers in JSON");
            }
        }
    }

    /// A new merchant whose partition `gateway` leads, by its name in the leases.
    pub async fn led_by(instance: &'static Instance, gateway: &str) -> Self {
        loop {
            let merchant = Self::of(instance).await;
            let led = leader::led(&merchant.log.sql).await;
            let led = led.get(gateway).unwrap_or_else(|| panic!("{gateway} leads nothing: {led:?}"));
            if led.contains(&merchant.partition().await) {
                return merchant;
            }
        }
    }

    /// A new merchant whose partition `is_wanted`.
    pub async fn whose_partition(instance: &'static Instance, is_wanted: impl Fn(i16) -> bool) -> Self {
        loop {
            let merchant = Self::of(instance).await;
            if is_wanted(merchant.partition().await) {
                return merchant;
            }
        }
    }

    /// A new merchant in the same partition.
    pub async fn neighbour(&self) -> Self {
        let own = self.partition().await;
        Self::whose_partition(self.instance, |partition| partition == own).await
    }

    /// The partition of its events.
    pub async fn partition(&self) -> i16 {
        let partitions = self.log.heads().await.len();
        partition_of(&self.id, i64::try_from(partitions).expect("a log has few partitions"))
    }

    /// A new merchant with `amount` in its own wallet.
    pub async fn funded(amount: &str) -> Self {
        let merchant = Self::new().await;
        merchant.credit_own(amount).await;
        merchant
    }

    /// A new one on an instance of this test alone, for a test that holds up or breaks what the merchants of an instance share.
    pub async fn alone(gateways: u32) -> Self {
        Self::of(Instance::of_test(gateways).await).await
    }

    /// Credits the merchant's own wallet.
    pub async fn credit_own(&self, amount: &str) {
        let arguments =
            ["wallet", "credit", "--merchant", &self.id, "--amount", amount, "--reason", "a test"];
        self.instance.operate(&arguments).await;
    }

    /// Credits a customer's wallet.
    pub async fn credit(&self, customer: &Customer, amount: &str) {
        let arguments =
            ["wallet", "credit", "--connection", &customer.id, "--amount", amount, "--reason", "a test"];
        self.instance.operate(&arguments).await;
    }

    /// The address of the first gateway.
    pub fn gateway(&self) -> SocketAddr {
        self.instance.gateway(0)
    }

    /// The address of the first gateway's hosted pages.
    pub fn hosted_pages(&self) -> SocketAddr {
        self.instance.hosted_pages(0)
    }

    /// Sends a REST request with the merchant's key.
    pub async fn rest(&self, request: Request) -> Response {
        request.bearer(&self.secret_key).send(self.gateway()).await.expect("the gateway answers")
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Response {
        self.rest(Request::new("GET", path)).await
    }

    /// `POST` of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.rest(Request::new("POST", path).json(body)).await
    }

    /// `PATCH` of JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Response {
        self.rest(Request::new("PATCH", path).json(body)).await
    }

    /// `DELETE`.
    pub async fn delete(&self, path: &str) -> Response {
        self.rest(Request::new("DELETE", path)).await
    }

    /// All pages of a list, `limit` at a time.
    pub async fn pages(&self, path: &str, limit: usize) -> Vec<Value> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let after = cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let page = self.get(&format!("{path}{joint}limit={limit}{after}")).await.expect(200);
            let data = page["data"].as_array().expect("a list has data");
            assert!(data.len() <= limit);
            items.extend(data.iter().cloned());
            if page["has_more"] == json!(false) {
                assert!(page.get("next_cursor").is_none_or(Value::is_null), "{page}");
                return items;
            }
            assert_eq!(data.len(), limit, "a page before the last is full");
            cursor = Some(page["next_cursor"].as_str().expect("a cursor").to_owned());
        }
    }

    /// A new customer with `amount` in the wallet.
    pub async fn customer(&self, amount: &str) -> Customer {
        let reference_id = format!("customer of {}", self.id);
        self.customer_called(&reference_id, amount).await
    }

    /// A new customer of this name with `amount` in the wallet.
    pub async fn customer_called(&self, reference_id: &str, amount: &str) -> Customer {
        let made = self.post("/v1/customers", &json!({"reference_id": reference_id})).await.expect(201);
        let id = made["customer_id"].as_str().expect("an id").to_owned();
        let customer = Customer { id, reference_id: reference_id.to_owned() };
        if amount != "0" {
            self.credit(&customer, amount).await;
        }
        customer
    }

    /// A new meter.
    pub async fn meter(&self, fields: Value) -> Meter {
        let made = self.post("/v1/meters", &fields).await.expect(201);
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
        Meter { id: text("meter_id"), slug: text("meter_slug"), secret: text("product_secret") }
    }

    /// So many new spend keys of the merchant.
    pub async fn spend_keys(&self, count: usize) -> Vec<String> {
        let mut keys = Vec::new();
        for number in 0..count {
            let body = json!({"name": format!("key {number}")});
            let made = self.post("/v1/spend_keys", &body).await.expect(201);
            keys.push(made["key"].as_str().expect("a new key is shown").to_owned());
        }
        keys
    }

    /// A new meter at a fixed rate per call.
    pub async fn call_meter(&self, rate: &str) -> Meter {
        self.meter(json!({
            "name": "per call", "rate_type": "fixed", "tier_type": "requests",
            "tiers": [{"start": 0, "rate": rate}], "service_charge_payer": "merchant",
        }))
        .await
    }

    /// A token that bills `customer` by `meter`.
    pub fn billing(&self, customer: &Customer, meter: &Meter) -> String {
        token(&json!({"secret_key": self.secret_key, "customer_id": customer.id, "meter_slug": meter.slug}))
    }

    /// Forwards a request with a credential in `Authorization`.
    pub async fn send(&self, credential: &str, request: Request) -> Response {
        request.bearer(credential).send(self.gateway()).await.expect("the gateway answers")
    }

    /// Forwards `POST` of JSON to `url`.
    pub async fn call(&self, credential: &str, url: &str) -> Response {
        self.send(credential, forward("POST", url).json(&json!({"input": "hello"}))).await
    }

    /// Forwards `GET` to `url`.
    pub async fn fetch(&self, credential: &str, url: &str) -> Response {
        self.send(credential, forward("GET", url)).await
    }

    /// The merchant's events so far.
    pub async fn events(&self) -> Vec<Logged> {
        self.log.of_merchant(&self.id, 0).await
    }

    /// The body of a call's `request.metered`, if it is in the log now.
    pub async fn metered(&self, response: &Response) -> Option<Value> {
        self.log.event(&format!("{}/metered", response.request_id())).await.map(|event| event.body)
    }

    /// The body of a call's `request.metered`, which must be in the log.
    pub async fn charged(&self, response: &Response) -> Value {
        let metered = self.metered(response).await;
        metered.unwrap_or_else(|| panic!("not metered: {} {}", response.status, response.text()))
    }

    /// Waits for the body of a call's `request.failed`; asserts that it is not metered.
    pub async fn failed(&self, response: &Response) -> Value {
        self.failed_request(&response.request_id()).await
    }

    /// The same, by the request's id.
    pub async fn failed_request(&self, id: &str) -> Value {
        let failed =
            eventually("the call ends as failed", async || self.log.event(&format!("{id}/failed")).await)
                .await;
        assert!(self.log.event(&format!("{id}/metered")).await.is_none(), "failed and metered");
        failed.body
    }

    /// Waits until the merchant's wallets hold nothing and it has no open request.
    pub async fn nothing_is_held(&self) {
        eventually("every hold is released", async || {
            let open = self.log.states_of_merchant("request", &self.id).await;
            let wallets = self.log.states_of_merchant("wallet", &self.id).await;
            assert!(!wallets.is_empty(), "a merchant has a wallet");
            (open.is_empty() && wallets.iter().all(|wallet| wallet["held"] == "0.0000000000")).then_some(())
        })
        .await;
    }

    /// The balance of a customer's wallet, by the stored states.
    pub async fn balance(&self, customer: &Customer) -> String {
        let state = self.log.state("customer", &customer.id).await.expect("the customer exists");
        self.balance_of(state["wallet_id"].as_str().unwrap_or_default()).await
    }

    /// The balance of the merchant's own wallet.
    pub async fn own_balance(&self) -> String {
        self.balance_of(&self.wallet_id).await
    }

    async fn balance_of(&self, wallet_id: &str) -> String {
        let wallet = self.log.state("wallet", wallet_id).await.expect("the wallet exists");
        wallet["balance"].as_str().unwrap_or_default().to_owned()
    }

    /// The accounts of the merchant's trial balance that are not zero, as REST shows them. They add up to zero.
    pub async fn trial_balance(&self) -> BTreeMap<String, Decimal> {
        let shown = self.get("/v1/ledger/trial_balance").await.expect(200);
        let accounts = shown["accounts"].as_array().expect("a list").iter();
        let accounts: BTreeMap<_, _> = accounts
            .map(|account| {
                let name = account["account"].as_str().expect("an account has a name");
                (name.to_owned(), decimal(&account["balance"]).normalize())
            })
            .filter(|(_, balance)| !balance.is_zero())
            .collect();
        assert_eq!(accounts.values().sum::<Decimal>(), Decimal::ZERO, "{accounts:?}");
        accounts
    }

    /// Waits until a request has `status`, and returns it as REST shows it.
    pub async fn shown(&self, id: &str, status: &str) -> Value {
        eventually_ok("the request is shown", async || {
            let response = self.get(&format!("/v1/requests/{id}")).await;
            let shown = (response.status == 200).then(|| response.json());
            shown.filter(|shown| shown["status"] == status).ok_or_else(|| response.text())
        })
        .await
    }
}

/// What a deletion of `id` answers.
pub fn deleted(id: &str) -> Value {
    json!({"success": true, "deleted": true, "id": id})
}

/// A body, for requests that stream.
pub fn chunks(pieces: &[&str]) -> Body {
    Body::Chunks(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect())
}
