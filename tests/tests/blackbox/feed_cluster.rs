//! The feed on a cluster of three NATS servers, beside a Postgres that is none.

use async_nats::jetstream::{self, stream::Stream};
use farthing_tests::client::Request;
use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually_ok;
use serde_json::json;

const SERVERS: [&str; 3] = ["first", "second", "third"];

/// The stream of the only partition, as any of these servers knows it.
async fn stream(instance: &Instance, urls: &[String]) -> Result<Stream, String> {
    let client = async_nats::connect(urls.to_vec()).await.map_err(|error| error.to_string())?;
    let stream = jetstream::new(client).get_stream(feed::name(instance, 0)).await;
    stream.map_err(|error| error.to_string())
}

/// Waits until the stream has the whole log, and checks it. Returns its leader.
async fn holds_the_log(instance: &Instance, urls: &[String], log: &Log) -> String {
    let events = log.after(0).await;
    let (stream, leader) = eventually_ok("the feed is as long as the log, and has a leader", async || {
        let stream = stream(instance, urls).await?;
        let (end, last) = (feed::end(&stream).await, events.last().map(|event| event.position));
        // While the servers choose one, there is none, and nobody answers.
        let info = stream.get_info().await.map_err(|error| error.to_string())?;
        match info.cluster.and_then(|cluster| cluster.leader) {
            Some(leader) if end == last => Ok((stream, leader)),
            leader => Err(format!("{end:?} of {last:?} at {leader:?}")),
        }
    })
    .await;
    feed::check_beginning(instance, &stream, &events).await;
    assert_eq!(stream.cached_info().config.num_replicas, 3);
    leader
}

#[test]
fn the_feed_goes_on_when_the_leader_of_its_stream_stops() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("feed_cluster").await;
        operate(&url, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        let servers = NatsServer::start_cluster(instance, SERVERS).await;
        let urls = servers.each_ref().map(|server| format!("nats://127.0.0.1:{}", server.port));
        let all = urls.join(",");
        let flags = ["--database-url", &url, "--nats-url", &all];
        let projector = SideProjector::with(instance, &[&flags[..], &["--feed-replicas=3"]].concat()).await;
        let gateway = SideGateway::with(instance, &flags, &[]).await;
        let merchant = operate(&url, &["merchant", "create"]).await;
        let append = async |reference: &str| {
            let request = Request::new("POST", "/v1/customers").json(&json!({"reference_id": reference}));
            let request = request.bearer(merchant["secret_key"].as_str().unwrap());
            request.send(gateway.address).await.unwrap().expect(201);
        };
        append("before").await;
        let log = Log::open(&url).await;
        let before = holds_the_log(instance, &urls, &log).await;

        let (stopped, others): (Vec<_>, Vec<_>) =
            SERVERS.into_iter().zip(servers).zip(urls).partition(|((name, _), _)| *name == before);
        assert_eq!(stopped.len(), 1, "{before} led");
        drop(stopped);
        append("after").await;
        // They run until the end of the test.
        let urls: Vec<String> = others.iter().map(|(_, url)| url.clone()).collect();
        let after = holds_the_log(instance, &urls, &log).await;
        assert_ne!(after, before, "{}", projector.logged());
    });
}
