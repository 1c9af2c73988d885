//! A minimal HTTP client for the gateway's REST API.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls the REST API of a gateway with one merchant's key.
pub(super) struct RestClient<'a> {
    /// The gateway's address.
    pub(super) gateway: SocketAddr,
    /// The merchant's secret key.
    pub(super) secret_key: &'a str,
}

impl RestClient<'_> {
    /// Sends a POST. Any status but a success is an error.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (status, response) = self.call(Method::POST, path, body.to_string()).await?;
        ensure!(status.is_success(), "POST {path}: {status}: {response}");
        Ok(response)
    }

    /// Sends a GET.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Value)> {
        self.call(Method::GET, path, String::new()).await
    }

    async fn call(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Value)> {
        let doing = format!("{method} {path} at the gateway");
        let result = tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await;
        result.with_context(|| format!("{doing}: no response"))?.context(doing)
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Value)> {
        let stream = TcpStream::connect(self.gateway).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", self.secret_key))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(bytes::Bytes::from(body)))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, serde_json::from_slice(&bytes)?))
        };
        // The connection makes progress only while it is polled. It is dropped with the exchange.
        tokio::pin!(exchange, connection);
        tokio::select! {
            result = &mut exchange => result,
            closed = &mut connection => {
                closed?;
                exchange.await
            }
        }
    }
}
