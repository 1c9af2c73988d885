//! A bucket of S3, or of a service that has its interface. The crate `object_store` signs the requests and repeats them; the
//! libraries that the rest of the program uses send them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::uri::Scheme;
use http_body_util::{BodyExt as _, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Connector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, ObjectStore};

/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time of a request with its answer. A file has about 16 MiB at most.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(5);

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// The bucket `name`. Where it is, and who reads it, say the variables of AWS (`AWS_REGION`, `AWS_ACCESS_KEY_ID`,
/// `AWS_ENDPOINT_URL` and so on), or else the machine's role.
pub(super) fn open(name: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    let bucket = AmazonS3Builder::from_env().with_bucket_name(name).with_http_connector(Sender);
    Ok(Arc::new(bucket.build()?))
}

/// Makes the clients that send requests.
#[derive(Debug)]
struct Sender;

impl HttpConnector for Sender {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (authorities, errors) = farthing_tls::system_authorities();
        for error in errors {
            tracing::warn!(
                event = "archive.system_certificates_unreadable",
                %error,
                "some of this machine's trusted certificates cannot be read"
            );
        }
        let connector = farthing_tls::http_connector(authorities, CONNECT_TIMEOUT);
        let connector = connector
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(connector);
        let allows_http =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        Ok(HttpClient::new(Exchanges { client, allows_http }))
    }
}

/// Sends requests, and reads their answers whole.
#[derive(Debug)]
struct Exchanges {
    client: Client<HttpsConnector<Connector>, HttpRequestBody>,
    /// Whether requests may be sent without TLS.
    allows_http: bool,
}

/// The endpoint is a `http` URL.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint of the bucket is a http URL, which AWS_ALLOW_HTTP=true would allow")]
struct PlainHttp;

#[async_trait]
impl HttpService for Exchanges {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.allows_http && request.uri().scheme() != Some(&Scheme::HTTPS) {
            return Err(HttpError::new(HttpErrorKind::Unknown, PlainHttp));
        }
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let kind =
                    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
                HttpError::new(kind, error)
            })?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
            Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body.to_bytes())))
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
        answer.map_err(|elapsed| HttpError::new(HttpErrorKind::Timeout, elapsed))?
    }
}
