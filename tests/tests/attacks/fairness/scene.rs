//! Who takes part: two gateways that share an instance, of which one is attacked, an attacker and a victim whose
//! merchants are in the same partition.

use std::net::{Ipv4Addr, SocketAddr};

use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::instance::Instance;
use farthing_tests::leader::{Led, led, spread};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::Provider;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;

/// The victim's price of a call.
pub(super) const CHARGE: &str = "0.0010000000";

/// What the operator charges the victim for it.
pub(super) const SERVICE_CHARGE: &str = "0.0000190000";

const EPOCHS: &str = "SELECT partition, epoch FROM ledger.heads ORDER BY partition";

/// The scene.
pub(super) struct Scene {
    instance: &'static Instance,
    /// The gateway that is attacked.
    pub(super) gateway: SideGateway,
    pub(super) victim: Merchant,
    /// The credential of the victim's calls.
    pub(super) victims_credential: String,
    pub(super) attacker: Attacker,
    /// A name server of the attacker.
    _names: NameServer,
}

/// What the attacker has.
#[derive(Clone)]
pub(super) struct Attacker {
    /// The gateway that it attacks.
    pub(super) gateway: SocketAddr,
    /// Its own address.
    pub(super) address: Ipv4Addr,
    pub(super) spend_key: String,
    /// Its own server.
    pub(super) server: &'static Provider,
    /// A provider for which the gateway has a managed key.
    pub(super) managed: &'static Provider,
}

impl Scene {
    pub(super) async fn start() -> Self {
        let instance = Instance::of_test_with(1, &["--no-journal", "--sweep-after-seconds=15"]).await;
        let names = NameServer::start(|name| match name {
            _ if name.starts_with("slow") => Answer::Silence,
            _ if name.starts_with("fails") => Answer::Failure,
            _ if name.starts_with("half") => Answer::half_silence(&["127.0.0.1"]),
            _ if name.starts_with("many") => Answer::of(&["10.0.0.1"; 100], 0),
            _ => Answer::NoSuchName,
        })
        .await;
        let (server, managed): (&Provider, &Provider) =
            (Box::leak(Box::new(Provider::start().await)), Box::leak(Box::new(Provider::start().await)));
        let host = format!("--provider-host=openai={}", managed.authority());
        let key = instance.provider_key("openai", "sk-managed");
        let further = std::env::var("FARTHING_ATTACK_FLAGS").unwrap_or_default();
        let names_flag = names.flag();
        let mut flags = vec!["--allow-address=127.0.0.0/8", &key, &host, &names_flag];
        flags.extend(further.split_whitespace());
        let gateway = SideGateway::start(instance, &flags).await;
        let victim = {
            spread(&instance.log().await.sql, 2).await;
            gateway.merchant_of_its_own(instance, "1000").await
        };
        let customer = victim.customer("1000").await;
        let victims_credential = victim.billing(&customer, &victim.call_meter("0.001").await);
        let attackers = victim.neighbour().await;
        attackers.credit_own("1000").await;
        let key = attackers.post("/v1/spend_keys", &json!({"name": "the attacker's"})).await.expect(201);
        let attacker = Attacker {
            gateway: gateway.address,
            address: Ipv4Addr::new(127, 0, 0, 2),
            spend_key: key["key"].as_str().unwrap().to_owned(),
            server,
            managed,
        };
        Self { instance, gateway, victim, victims_credential, attacker, _names: names }
    }

    /// Who leads which partitions, and the epoch of each: it grows when a leader changes.
    pub(super) async fn leaders(&self) -> (Led, Vec<(i16, i64)>) {
        let epochs = self.victim.log.sql.query(EPOCHS, &[]).await.unwrap();
        let epochs = epochs.iter().map(|row| (row.get(0), row.get(1))).collect();
        (led(&self.victim.log.sql).await, epochs)
    }

    pub(super) async fn put_away(self) {
        drop(self.gateway);
        self.instance.stop().await;
        self.instance.clear();
    }
}
