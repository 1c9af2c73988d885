//! The setting of a case: a merchant, its resources, and its calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use farthing_tests::client::{Body, Request};
use farthing_tests::document::Operation;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::{
    self, Endpoint, Gate, Provider, Step, event_stream, json as answer_json, last_chunk,
};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tenant::Tenant;
use serde_json::{Value, json};

/// A call and the address of its gateway.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) to: SocketAddr,
}

impl Call {
    pub(super) fn json(mut self, body: &Value) -> Self {
        self.request = self.request.json(body);
        self
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(super) fn bearer(mut self, token: &str) -> Self {
        self.request.headers.retain(|(name, _)| name != "Authorization");
        self.request = self.request.bearer(token);
        self
    }

    pub(super) fn body(mut self, content_type: &str, bytes: &[u8]) -> Self {
        self.request = self.request.header("Content-Type", content_type).body(Body::Whole(bytes.to_vec()));
        self
    }

    pub(super) fn at(mut self, to: SocketAddr) -> Self {
        self.to = to;
        self
    }

    /// Adds to the query.
    pub(super) fn query(mut self, more: &str) -> Self {
        self.request.target.push(if self.request.target.contains('?') { '&' } else { '?' });
        self.request.target.push_str(more);
        self
    }
}

/// A merchant with money, and functions that make calls for it.
pub(super) struct Scene {
    pub(super) merchant: Merchant,
    gates: Mutex<Vec<Gate>>,
    made: AtomicU32,
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self { merchant: Merchant::funded("100").await, gates: Mutex::default(), made: AtomicU32::new(0) }
    }

    /// Releases everything that waits at the gate.
    pub(super) async fn close(self) {
        for gate in self.gates.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            gate.open();
        }
        self.merchant.nothing_is_held().await;
    }

    /// A gate that opens when the scene closes.
    pub(super) fn gate(&self) -> Gate {
        let gate = Gate::default();
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).push(gate.clone());
        gate
    }

    /// A user of a provider who waits until the scene closes.
    pub(super) fn waiting_user(&self) -> String {
        let user = format!("{} of {}", self.fresh(), self.merchant.id);
        GATES.lock().unwrap_or_else(PoisonError::into_inner).insert(user.clone(), self.gate());
        user
    }

    /// An unused name.
    pub(super) fn fresh(&self) -> String {
        format!("fresh-{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// A call of the operation with the merchant's key, where its path has no parameters.
    pub(super) fn call(&self, at: &Operation) -> Call {
        self.call_of(
            at,
            at.target(|segment| panic!("{}: no value for the parameter after {segment}/", at.name())),
        )
    }

    /// The same, with `name` in place of each parameter of the path.
    pub(super) fn named(&self, at: &Operation, name: &str) -> Call {
        self.call_of(at, at.target(|_| encoded(name)))
    }

    /// The same, with the words of `name` in place of the path's parameters, in order.
    pub(super) fn call_of(&self, at: &Operation, target: String) -> Call {
        let request = Request::new(&at.method, target).bearer(&self.merchant.secret_key);
        Call { request, to: self.merchant.gateway() }
    }

    /// A `POST` of `body` where the path has no parameters.
    pub(super) fn posts(&self, at: &Operation, body: &Value) -> Call {
        self.call(at).json(body)
    }

    /// The response to a `POST` of `body` at `path`.
    pub(super) async fn made(&self, path: &str, body: &Value) -> Value {
        self.merchant.post(path, body).await.expect(201)
    }

    /// The member `name` of the response to a `POST` of `body` at `path`.
    pub(super) async fn id(&self, path: &str, name: &str, body: &Value) -> String {
        let made = self.made(path, body).await;
        made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned()
    }

    /// A new customer's id.
    pub(super) async fn customer(&self) -> String {
        self.id("/v1/customers", "customer_id", &json!({})).await
    }

    /// A new meter's id, with this price per call.
    pub(super) async fn meter(&self, rate: &str) -> String {
        let meter =
            json!({"name": "per call", "tier_type": "requests", "tiers": [{"start": 0, "rate": rate}]});
        self.id("/v1/meters", "meter_id", &meter).await
    }

    /// A new plan with a bundle, at this price per month.
    pub(super) async fn plan(&self, price: &str) -> Value {
        let plan = json!({
            "name": "a plan", "period_amount": price,
            "credit_bundles": [{"name": "more", "cost": "1", "credit_amount": "1"}],
        });
        self.made("/v1/plans", &plan).await
    }

    /// A new subscription of a new customer to a free plan: the subscription and the plan.
    pub(super) async fn subscription(&self) -> (Value, Value) {
        let (customer, plan) = (self.customer().await, self.plan("0").await);
        let body = json!({"customer_id": customer, "plan_id": plan["plan_id"]});
        (self.made("/v1/subscriptions", &body).await["subscription"].clone(), plan)
    }

    /// A new spend key: its id and the key.
    pub(super) async fn spend_key(&self, settings: &Value) -> (String, String) {
        let mut body = json!({"name": "a spend key"});
        body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let made = self.made("/v1/spend_keys", &body).await;
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("spend_key_id"), text("key"))
    }

    /// A spend key that has expired, by the merchant's clock.
    pub(super) async fn expired_spend_key(&self) -> String {
        let now = self.merchant.post("/v1/test_clock", &json!({"advance_seconds": 1})).await.expect(200);
        let now: chrono::DateTime<chrono::Utc> = now["now"].as_str().unwrap().parse().unwrap();
        let (_, key) = self.spend_key(&json!({"expires_at": now + chrono::Duration::hours(1)})).await;
        self.merchant.post("/v1/test_clock", &json!({"advance_seconds": 7200})).await.expect(200);
        key
    }

    /// A spend key that is paused.
    pub(super) async fn paused_spend_key(&self) -> String {
        let (id, key) = self.spend_key(&json!({})).await;
        let pause = Request::new("PUT", format!("/v1/spend_keys/{id}")).json(&json!({"status": "paused"}));
        self.merchant.rest(pause).await.expect(200);
        key
    }

    /// Adds a card with a well-known test number to the merchant.
    pub(super) async fn card(&self, number: &str) {
        self.made("/v1/payment_methods", &card(number)).await;
    }

    /// An endpoint of kind `other` that responds at once.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})))
    }
}

pub(super) fn card(number: &str) -> Value {
    json!({"card": {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}})
}

/// A gateway with a managed key and its own prices for the instance's `openai`, and one with a response timeout of a second.
pub(super) struct Beside {
    pub(super) managed: SideGateway,
    pub(super) hurried: SideGateway,
    /// The provider that these gateways know as `anthropic`.
    _anthropic: Provider,
}

/// The model of a provider that costs a cent.
pub(super) fn a_cent(provider: &str) -> &'static str {
    match provider {
        "openai" => "a-cent",
        "anthropic" => "a-cent-at-anthropic",
        other => panic!("{other}"),
    }
}

/// Gates by the `user` of the calls that wait at them.
static GATES: Mutex<BTreeMap<String, Gate>> = Mutex::new(BTreeMap::new());

/// Responds at once; to a call whose `user` has a gate once that is open; to others as their `user` says.
fn by_the_user(call: &provider::Call) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let user = body["user"].as_str().or(body["metadata"]["user_id"].as_str()).unwrap_or_default();
    match user {
        "streamed" => return vec![event_stream(), last_chunk()],
        "broken" => return vec![Step::Close],
        _ => {}
    }
    let gate = GATES.lock().unwrap_or_else(PoisonError::into_inner).get(user).cloned();
    let mut steps: Vec<Step> = gate.into_iter().map(Step::Wait).collect();
    steps.extend(answer_json(200, &json!({"usage": {"input_tokens": 1, "output_tokens": 1}})));
    steps
}

impl Beside {
    pub(super) async fn started() -> &'static Self {
        static STARTED: tokio::sync::OnceCell<Beside> = tokio::sync::OnceCell::const_new();
        STARTED.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        const LOCAL: &str = "--allow-address=127.0.0.0/8";
        let instance = Instance::shared().await;
        let prices = instance.file("documented-prices.json");
        let models = ["openai", "anthropic"]
            .map(|provider| json!({"provider": provider, "model": a_cent(provider), "per_request": "0.01"}));
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": models});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let anthropic = Provider::start().await;
        // A port without a listener: it was just closed.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", instance.openai.authority()),
            format!("--provider-host=anthropic={}", anthropic.authority()),
            format!("--provider-host=xai={closed}"),
            instance.provider_key("openai", "sk-managed"),
            instance.provider_key("anthropic", "sk-managed-anthropic"),
            LOCAL.to_owned(),
        ];
        for path in ["/v1/chat/completions", "/v1/responses", "/v1/embeddings"] {
            instance.openai.endpoint_at(path, by_the_user);
        }
        anthropic.endpoint_at("/v1/messages", by_the_user);
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let managed = SideGateway::start(instance, &flags).await;
        flags.push("--answer-timeout-seconds=1");
        let hurried = SideGateway::start(instance, &flags).await;
        Self { managed, hurried, _anthropic: anthropic }
    }
}

impl Call {
    /// The same call on a live instance, which has no payment processor.
    pub(super) async fn on_real_money(self) -> Self {
        let real = RealMoney::started().await;
        self.bearer(&real.secret_key).at(real.gateway.address)
    }
}

/// A gateway on a live-mode database beside the instance's, and a merchant's key there.
pub(super) struct RealMoney {
    pub(super) gateway: SideGateway,
    pub(super) secret_key: String,
}

impl RealMoney {
    pub(super) async fn started() -> &'static Self {
        static STARTED: tokio::sync::OnceCell<RealMoney> = tokio::sync::OnceCell::const_new();
        STARTED.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "real_money", "live").await;
        Self { gateway: tenant.gateway(instance).await, secret_key: tenant.secret_key }
    }
}
