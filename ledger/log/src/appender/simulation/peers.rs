//! The network between the gateways of a simulation. Messages have the form of real ones; they are delayed and lost, and
//! what was sent may be carried out after its sender has given it up. No message arrives twice, as over HTTP: a gateway
//! that sends a command again sends another message.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::database::{Database, Fault};
use super::gateway::{Others, Process};
use crate::ledger::{NoReply, Peers, Reply, Request};

/// The longest time until an answer, as of real gateways.
const TIMEOUT: Duration = Duration::from_secs(7);

/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The way of one gateway to the others.
pub(super) struct SimulatedPeers {
    pub(super) database: Database,
    pub(super) gateways: Others,
    /// The process of the gateway.
    pub(super) process: Process,
}

impl fmt::Debug for SimulatedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedPeers")
    }
}

type Answer = Result<Reply, NoReply>;

impl Peers for SimulatedPeers {
    fn send(&self, address: String, request: Request) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            let message = serde_json::to_vec(&request).expect("a request can be written");
            self.database.notes.count("a command was sent to another gateway");
            let answer = timeout(TIMEOUT, self.carry(&address, message)).await;
            answer.unwrap_or_else(|_| Err(unknown("the answer takes too long")))
        })
    }
}

fn unknown(why: &str) -> NoReply {
    NoReply::Unknown(why.to_owned())
}

fn not_sent(why: &str) -> NoReply {
    NoReply::NotSent(why.to_owned())
}

impl SimulatedPeers {
    async fn carry(&self, address: &str, message: Vec<u8>) -> Answer {
        let Self { database, gateways, process } = self;
        let latency = database.latency();
        let other = gateways.upgrade().and_then(|gateways| gateways.named(address));
        let Some((ledger, other)) = other else {
            sleep(latency).await;
            return Err(not_sent("the connection is refused"));
        };
        if process.link.is_cut_off_peers() || other.link.is_cut_off_peers() {
            database.notes.count("a gateway did not reach another");
            sleep(CONNECT_TIMEOUT).await;
            return Err(not_sent("there is no connection to be had"));
        }
        let arrives = |delay| {
            let (ledger, other, message) = (ledger.clone(), other.clone(), message.clone());
            let reply: JoinHandle<Option<Reply>> = tokio::spawn(async move {
                sleep(delay).await;
                let serve = async move {
                    match Request::read(&message) {
                        Ok(request) => ledger.serve(request).await,
                        Err(refused) => refused,
                    }
                };
                other.run(serve).await
            });
            reply
        };
        match database.fault() {
            Fault::None | Fault::Repeat => {}
            Fault::Cancel => {
                sleep(latency).await;
                return Err(not_sent("the connection is closed"));
            }
            Fault::LoseRequest => {
                sleep(latency).await;
                return Err(unknown("the connection broke"));
            }
            Fault::LoseReply => {
                let _ = arrives(latency).await;
                database.notes.count("the answer of another gateway was lost");
                return Err(unknown("the connection broke"));
            }
            Fault::Late => {
                drop(arrives(database.lateness()));
                database.notes.count("a command arrived late at another gateway");
                sleep(latency).await;
                return Err(unknown("the connection broke"));
            }
            Fault::Silence => {
                drop(arrives(database.lateness()));
                return std::future::pending().await;
            }
            Fault::SilentLoss => return std::future::pending().await,
        }
        let reply = arrives(latency).await.expect("a gateway panicked");
        sleep(database.latency()).await;
        match reply {
            Some(reply) => {
                let message = serde_json::to_vec(&reply).expect("a reply can be written");
                Ok(serde_json::from_slice(&message).expect("a reply can be read"))
            }
            None => Err(unknown("the connection broke")),
        }
    }
}
