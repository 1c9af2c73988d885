//! A merchant on a database of its own beside an instance's, in either mode, with a gateway that can be replaced.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Request, Response};
use crate::instance::Instance;
use crate::log::{Log, Logged};
use crate::scratch::operate;
use crate::side_gateway::SideGateway;

/// A merchant on a database of its own.
pub struct Tenant {
    /// The database, as its owner.
    pub database_url: String,
    /// A connection to the log.
    pub log: Log,
    /// `mer_…`
    pub id: String,
    /// Its key.
    pub secret_key: String,
}

impl Tenant {
    /// A merchant on a database called `name`, which must be new, in this `mode`. No gateway runs there.
    pub async fn on(instance: &Instance, name: &str, mode: &str) -> Self {
        let database_url = instance.create_database(name).await;
        operate(&database_url, &["migrate", "--mode", mode]).await;
        let merchant = operate(&database_url, &["merchant", "create"]).await;
        let text =
            |name: &str| merchant[name].as_str().unwrap_or_else(|| panic!("{name} in {merchant}")).to_owned();
        let (id, secret_key) = (text("merchant_id"), text("secret_key"));
        assert!(secret_key.starts_with(&format!("aks_{mode}_")), "{secret_key}");
        Self { log: Log::open(&database_url).await, database_url, id, secret_key }
    }

    /// Starts a gateway on its database, which may call the test's providers.
    pub async fn gateway(&self, instance: &Instance) -> SideGateway {
        let flags = ["--allow-address=127.0.0.0/8", "--pages-url=https://pay.example"];
        SideGateway::on(instance, &self.database_url, &flags).await
    }

    /// Sends a request with the merchant's key.
    pub async fn rest(&self, to: SocketAddr, request: Request) -> Response {
        request.bearer(&self.secret_key).send(to).await.expect("the gateway answers")
    }

    /// `POST`.
    pub async fn post(&self, to: SocketAddr, path: &str, body: &Value) -> Response {
        self.rest(to, Request::new("POST", path).json(body)).await
    }

    /// Its events so far.
    pub async fn events(&self) -> Vec<Logged> {
        self.log.of_merchant(&self.id, 0).await
    }

    /// Its events of this kind so far.
    pub async fn of_kind(&self, kind: &str) -> Vec<Logged> {
        let mut events = self.events().await;
        events.retain(|event| event.kind == kind);
        events
    }

    /// Creates a checkout session of `mode`, with further fields; returns the path of its page.
    pub async fn page(&self, to: SocketAddr, mode: &str, fields: &Value) -> String {
        let mut body = json!({"checkout_mode": mode, "origin_url": "https://app.example"});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let session = self.post(to, "/v1/checkout_sessions", &body).await.expect(201);
        let url = session["url"].as_str().expect("a session has a URL");
        url.split_once("/embed/").map(|(_, rest)| format!("/embed/{rest}")).expect("a hosted page")
    }
}
