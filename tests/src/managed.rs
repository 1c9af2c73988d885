//! A gateway with managed provider keys, whose providers are the test's.

use std::net::SocketAddr;

use serde_json::json;

use crate::client::{Request, Response};
use crate::instance::Instance;
use crate::merchant::forward;
use crate::provider::Provider;
use crate::side_gateway::SideGateway;

/// A gateway with managed keys for OpenAI, Anthropic and Google, whose hosts are the test's.
pub struct Managed {
    gateway: SideGateway,
    /// `openai`.
    pub openai: Provider,
    /// `anthropic`.
    pub anthropic: Provider,
    /// `google`.
    pub google: Provider,
    /// `mistral`, which is configured without a key.
    pub mistral: Provider,
}

impl Managed {
    /// Starts it beside the shared instance, with further flags.
    pub async fn start(more: &[&str]) -> Self {
        let instance = Instance::shared().await;
        let [openai, anthropic, google, mistral] = [
            Provider::start().await,
            Provider::start().await,
            Provider::start().await,
            Provider::start().await,
        ];
        let named =
            |name: &str, provider: &Provider| format!("--provider-host={name}={}", provider.authority());
        let hosts = [
            named("openai", &openai),
            named("anthropic", &anthropic),
            named("google", &google),
            named("mistral", &mistral),
        ];
        let keys = [
            instance.provider_key("openai", "sk-managed-openai"),
            instance.provider_key("anthropic", "sk-managed-anthropic"),
            instance.provider_key("google", "managed-google"),
        ];
        let mut flags: Vec<&str> = hosts.iter().map(String::as_str).collect();
        flags.extend(keys.iter().map(String::as_str));
        flags.push("--allow-address=127.0.0.0/8");
        flags.extend(more);
        let gateway = SideGateway::start(instance, &flags).await;
        Self { gateway, openai, anthropic, google, mistral }
    }

    /// The address of its gateway.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// Stops its gateway, and waits for the end.
    pub async fn stop(&mut self) {
        self.gateway.terminate();
        assert!(self.gateway.ended().await.success());
    }

    /// Forwards a request with a credential.
    pub async fn send(&self, credential: &str, request: Request) -> Response {
        request.bearer(credential).send(self.gateway.address).await.expect("the gateway answers")
    }

    /// Asks for a completion of `model`.
    pub async fn ask(&self, credential: &str, url: &str, model: &str) -> Response {
        self.send(credential, forward("POST", url).json(&json!({"model": model, "max_tokens": 500}))).await
    }
}
