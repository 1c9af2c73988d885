//! Proxies that the environment names: whoever runs there would see the calls with their keys. A gateway uses none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farthing_tests::collector::Collector;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tls::{Authority, Validity};
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

/// The variables that name proxies.
const VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// The variables that name hosts to call without one.
const EXEMPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A server that counts its connections, and closes them.
struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[test]
fn a_gateway_calls_providers_and_its_collector_itself_whatever_proxies_its_environment_names() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (proxy, collector) = (Proxy::start().await, Collector::start().await);
        let proxy_url = format!("http://{}", proxy.address);
        let mut variables = vec![("OTEL_BSP_SCHEDULE_DELAY", "50")];
        variables.extend(VARIABLES.map(|name| (name, proxy_url.as_str())));
        variables.extend(EXEMPTIONS.map(|name| (name, "")));
        let provider = &merchant.instance.provider;
        let authority = Authority::new();
        let front = authority.front(&provider.authority(), &["127.0.0.1"], Validity::Now).await;
        let file = merchant.instance.file(&format!("{}.pem", merchant.id));
        let trusted = format!("--trust-ca={}", authority.write_to(&file).display());
        let traced = format!("--otlp-endpoint={}", collector.url());
        let flags = ["--allow-address=127.0.0.0/8", trusted.as_str(), traced.as_str()];
        let gateway = SideGateway::with_variables(merchant.instance, &flags, &variables).await;
        let endpoint = provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
        let over_tls = format!("https://{}{}", front.address, endpoint.path);
        for url in [endpoint.url.as_str(), over_tls.as_str()] {
            let call = forward("POST", url).json(&json!({"input": "hello"})).bearer(&merchant.secret_key);
            let response = call.send(gateway.address).await.unwrap();
            response.expect(200);
            merchant.charged(&response).await;
            collector.trace_of(&response.request_id()).await;
        }
        assert_eq!((endpoint.calls().len(), front.asked_for().len()), (2, 1));
        // Connections are counted in their order, so all before this one were.
        let _own = TcpStream::connect(proxy.address).await.unwrap();
        let own = async || (proxy.connections() > 0).then_some(());
        eventually("the test's own connection is counted", own).await;
        assert_eq!(proxy.connections(), 1, "the gateway connected to the proxy");
    });
}
