//! A failover of Postgres to a standby that lacks the end of the log, while gateway and projector go on.

use std::net::SocketAddr;

use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::link::{Cut, Link};
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::{eventually, within};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::{HEAL, put_away, run};

/// A merchant's customers, at the gateway.
struct Shop {
    address: SocketAddr,
    secret_key: String,
}

impl Shop {
    async fn send(&self, request: Request) -> Option<Response> {
        request.bearer(&self.secret_key).send(self.address).await.ok()
    }

    /// Creates customers with these names, each once the gateway can, and waits until they are shown.
    async fn create(&self, name: &str, count: usize) {
        for number in 0..count {
            let reference = format!("{name}-{number}");
            let created = within(2 * HEAL, "a customer is created", async || {
                let request = Request::new("POST", "/v1/customers").json(&json!({"reference_id": reference}));
                self.send(request).await.filter(|response| response.status == 201)
            })
            .await;
            let path = format!("/v1/customers/{}", created.json()["customer_id"].as_str().unwrap());
            within(2 * HEAL, "it is shown", async || {
                self.send(Request::new("GET", &path)).await.filter(|shown| shown.status == 200)
            })
            .await;
        }
    }

    /// The names of the customers that are shown, without their numbers, in order.
    async fn shown(&self) -> Vec<String> {
        let list = self.send(Request::new("GET", "/v1/customers?limit=100")).await.unwrap().expect(200);
        let name = |customer: &Value| {
            let reference = customer["reference_id"].as_str()?;
            reference.split_once('-').map(|(name, _)| name.to_owned())
        };
        let mut names: Vec<String> = list["data"].as_array().unwrap().iter().filter_map(name).collect();
        names.sort_unstable();
        names
    }
}

async fn connect(database_url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(database_url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The port of a URL.
fn port(url: &str) -> u16 {
    url.rsplit_once('/').unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The URL of a server and of another one at `further`, of which the one that takes writes is meant.
fn either(first: &str, further: u16) -> String {
    let (server, database) = first.rsplit_once('/').unwrap();
    format!("{server},127.0.0.1:{further}/{database}?target_session_attrs=read-write")
}

/// Cuts the standby off once it has all that the primary has.
async fn cut_off(primary: &PostgresServer, standby: &PostgresServer) -> Client {
    let (log, copy) = (connect(&primary.database_url).await, connect(&standby.database_url).await);
    let end: String = log.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
    let has_all = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
    eventually("the standby has all", async || {
        copy.query_one(&has_all, &[]).await.unwrap().get::<_, bool>(0).then_some(())
    })
    .await;
    copy.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
    copy.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    eventually("the standby receives no more", async || {
        let receivers = copy.query("SELECT FROM pg_stat_wal_receiver", &[]).await.unwrap();
        receivers.is_empty().then_some(())
    })
    .await;
    copy
}

#[test]
fn what_a_failover_lost_is_shown_nowhere_and_what_follows_is_shown() {
    run(async {
        let instance = Instance::of_test(1).await;
        let Some(primary) = PostgresServer::start(instance).await else { return put_away(instance).await };
        operate(&primary.database_url, &["migrate", "--mode", "test"]).await;
        let standby = primary.standby(instance).await.expect("Postgres's programs were found before");
        let both = either(&primary.database_url, port(&standby.database_url));
        let merchant = operate(&both, &["merchant", "create", "--name", "a merchant"]).await;
        let projector = SideProjector::on(instance, &both).await;
        let gateway = SideGateway::on(instance, &both, &[]).await;
        let secret_key = merchant["secret_key"].as_str().unwrap().to_owned();
        let shop = Shop { address: gateway.address, secret_key };

        shop.create("kept", 3).await;
        let copy = cut_off(&primary, &standby).await;
        // The projector has these in memory, and has shown them.
        shop.create("lost", 5).await;
        drop(primary);
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        // More than were lost, so the log goes on beyond where it was.
        shop.create("next", 8).await;

        let expected = [vec!["kept"; 3], vec!["next"; 8]].concat();
        assert_eq!(shop.shown().await, expected, "{}", projector.logged());
        for model in ["customers", "connections", "journal"] {
            operate(&standby.database_url, &["projections", "verify", model, "--sha256"]).await;
        }
        operate(&standby.database_url, &["audit", "verify"]).await;
        drop((gateway, projector));
        put_away(instance).await;
    });
}

#[test]
fn a_host_whose_connections_hang_is_left_for_the_next_one() {
    run(async {
        let instance = Instance::of_test(1).await;
        let Some(postgres) = PostgresServer::start(instance).await else { return put_away(instance).await };
        operate(&postgres.database_url, &["migrate", "--mode", "test"]).await;
        let port = port(&postgres.database_url);
        let link = Link::to(([127, 0, 0, 1], port).into()).await;
        let through = postgres.database_url.replace(&port.to_string(), &link.address.port().to_string());
        let both = either(&through, port);
        let merchant = operate(&both, &["merchant", "create", "--name", "a merchant"]).await;
        let projector = SideProjector::on(instance, &both).await;
        let gateway = SideGateway::on(instance, &both, &[]).await;
        let secret_key = merchant["secret_key"].as_str().unwrap().to_owned();
        let shop = Shop { address: gateway.address, secret_key };

        shop.create("before", 2).await;
        link.cut(Cut::Hanging);
        shop.create("after", 8).await;
        let expected = [vec!["after"; 8], vec!["before"; 2]].concat();
        assert_eq!(shop.shown().await, expected, "{} {}", gateway.logged(), projector.logged());

        // Other processes begin at the host that says nothing.
        let url = format!("{both}&connect_timeout=1");
        operate(&url, &["merchant", "list"]).await;
        let gateway = SideGateway::on(instance, &url, &[]).await;
        let shop = Shop { address: gateway.address, ..shop };
        shop.create("then", 1).await;
        drop((gateway, projector));
        put_away(instance).await;
    });
}
