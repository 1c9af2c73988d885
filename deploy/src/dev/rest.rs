//! The little of an HTTP client that setting up the demo needs.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::failure::{Failure, IntoFailure as _};

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The REST API of a gateway, as one merchant.
pub(super) struct Rest<'a> {
    /// Where the gateway listens.
    pub(super) gateway: SocketAddr,
    /// The merchant's key.
    pub(super) secret_key: &'a str,
}

impl Rest<'_> {
    /// Creates something; any answer but a success is a failure.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let (status, answer) = self.call(Method::POST, path, body.to_string()).await?;
        if status.is_success() {
            Ok(answer)
        } else {
            Err(Failure::new(format!("POST {path}: {status}: {answer}")))
        }
    }

    /// Reads something.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Value), Failure> {
        self.call(Method::GET, path, String::new()).await
    }

    async fn call(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Value), Failure> {
        let answered = tokio::time::timeout(ANSWER_WITHIN, self.exchange(method, path, body)).await;
        answered.or_fail(format_args!("no answer from the gateway to {path}"))?
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, Value), Failure> {
        let doing = format!("the gateway's answer to {path}");
        let stream = TcpStream::connect(self.gateway).await.or_fail(&doing)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.or_fail(&doing)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", self.secret_key))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(bytes::Bytes::from(body)))
            .or_fail(&doing)?;
        let exchange = async {
            let response = sender.send_request(request).await.or_fail(&doing)?;
            let status = response.status();
            let bytes = response.into_body().collect().await.or_fail(&doing)?.to_bytes();
            let answer = serde_json::from_slice(&bytes).or_fail(&doing)?;
            Ok((status, answer))
        };
        // The connection is driven beside the exchange and dropped with it.
        tokio::pin!(exchange, connection);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => {
                ended.or_fail(&doing)?;
                exchange.await
            }
        }
    }
}
