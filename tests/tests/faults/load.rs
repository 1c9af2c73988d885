//! Load: calls from several tasks over all gateways. Each has a marker, which the provider returns as its response id, so that
//! a charge in the log can be traced to a call in the provider's journal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::{Call, Endpoint, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::wait::within;
use serde_json::json;
use tokio::task::JoinHandle;

pub(crate) const TASKS: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(90);

/// A call as its caller observed it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) marker: String,
    pub(crate) request_id: Option<String>,
    pub(crate) status: u16,
    /// Whether the response is complete.
    pub(crate) complete: bool,
    /// Whether it is an error that says that the outcome is not known: the call may be charged.
    pub(crate) is_unknown: bool,
    /// Whether it was sent on the connection of an earlier call.
    pub(crate) on_kept_connection: bool,
}

/// The gateway that a task calls now, by the task's number; `None` while there is none.
pub(crate) type Way = Arc<dyn Fn(usize) -> Option<SocketAddr> + Send + Sync>;

/// Running load.
pub(crate) struct Load {
    parties: Arc<Parties>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<Seen>>>,
}

/// What a task calls.
pub(crate) struct Parties {
    pub(crate) merchant: Merchant,
    pub(crate) customers: Vec<Customer>,
    pub(crate) meters: Vec<Meter>,
    pub(crate) endpoint: Endpoint,
    tokens: Vec<String>,
}

/// Ended load.
pub(crate) struct Ended {
    pub(crate) parties: Arc<Parties>,
    pub(crate) seen: Vec<Seen>,
}

/// The tokens that the provider reports for a call: a pure function of its marker.
pub(crate) fn tokens_of(marker: &str) -> u64 {
    marker.bytes().fold(7_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 9_973) + 1
}

fn respond(call: &Call) -> Vec<Step> {
    let marker = call.target().split("m=").nth(1).unwrap_or_default().to_owned();
    let tokens = tokens_of(&marker);
    let body = json!({"id": marker, "usage": {"tokens": tokens}});
    match tokens % 3 {
        // A stream that takes a moment, so that faults hit calls in flight.
        0 => vec![
            event_stream(),
            chunk("data: {\"a\":1}\n\n"),
            Step::Pause(Duration::from_millis(tokens % 40)),
            chunk(format!("data: {body}\n\n")),
            last_chunk(),
        ],
        1 => {
            let mut steps = vec![Step::Pause(Duration::from_millis(tokens % 25))];
            steps.extend(json(200, &body));
            steps
        }
        _ => json(200, &body),
    }
}

impl Load {
    /// Starts the load.
    pub(crate) async fn start(instance: &'static Instance) -> Self {
        Self::through(instance, Arc::new(|task| instance.try_gateway(task))).await
    }

    /// Starts the load; `gateway` selects the gateway of each task.
    pub(crate) async fn through(instance: &'static Instance, gateway: Way) -> Self {
        Self::of(Merchant::of(instance).await, gateway).await
    }

    /// Starts the load of this merchant.
    pub(crate) async fn of(merchant: Merchant, gateway: Way) -> Self {
        static ROUND: AtomicU64 = AtomicU64::new(0);
        let round = ROUND.fetch_add(1, Ordering::SeqCst);
        merchant.credit_own("1000").await;
        let mut customers = Vec::new();
        for number in 0..3 {
            customers.push(merchant.customer_called(&format!("customer {number}"), "1000").await);
        }
        let by_tokens = json!({
            "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "service_charge_payer": "merchant",
            "tiers": [{"start": 0, "rate": "10"}, {"start": 1_000_000, "rate": "7"}],
        });
        let meters = vec![merchant.meter(by_tokens).await, merchant.call_meter("0.001").await];
        let tokens = customers
            .iter()
            .flat_map(|customer| meters.iter().map(|meter| merchant.billing(customer, meter)))
            .collect();
        let endpoint = merchant.instance.provider.endpoint(respond);
        let parties = Arc::new(Parties { merchant, customers, meters, endpoint, tokens });
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..TASKS)
            .map(|task| {
                let (parties, stop, answered) =
                    (Arc::clone(&parties), Arc::clone(&stop), Arc::clone(&answered));
                let gateway = Arc::clone(&gateway);
                tokio::spawn(async move {
                    let way = || gateway(task);
                    caller(format!("{round}-{task}"), task, parties, &way, stop, answered).await
                })
            })
            .collect();
        Self { parties, stop, answered, tasks }
    }

    /// The merchant that is called.
    pub(crate) fn merchant(&self) -> &Merchant {
        &self.parties.merchant
    }

    /// What its tasks call.
    pub(crate) fn parties(&self) -> &Parties {
        &self.parties
    }

    /// Waits until `count` more calls got a complete response with status 200.
    pub(crate) async fn calls(&self, count: u64) {
        let goal = self.answered.load(Ordering::SeqCst) + count;
        within(Duration::from_secs(90), "calls are completed", async || {
            (self.answered.load(Ordering::SeqCst) >= goal).then_some(())
        })
        .await;
    }

    /// Stops after every running call has ended.
    pub(crate) async fn stop(self) -> Ended {
        self.stop.store(true, Ordering::SeqCst);
        let mut seen = Vec::new();
        for task in self.tasks {
            seen.extend(task.await.expect("a caller does not panic"));
        }
        Ended { parties: self.parties, seen }
    }
}

async fn caller(
    name: String,
    task: usize,
    parties: Arc<Parties>,
    gateway: &(dyn Fn() -> Option<SocketAddr> + Sync),
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut connection = None;
    for number in 0_usize.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let marker = format!("{name}-{number}");
        let token = &parties.tokens[(task + number) % parties.tokens.len()];
        let request = forward("POST", &format!("{}?m={marker}", parties.endpoint.url)).bearer(token);
        let request = request.json(&json!({"n": number}));
        let on_kept_connection = connection.is_some();
        let mut saw = Seen {
            marker,
            request_id: None,
            status: 0,
            complete: false,
            is_unknown: false,
            on_kept_connection,
        };
        let exchange = exchange(&mut connection, gateway, &request, &mut saw);
        let whole = matches!(tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await, Ok(Ok(())));
        if whole {
            answered.fetch_add(u64::from(saw.status == 200), Ordering::SeqCst);
            tokio::time::sleep(PAUSE).await;
        } else {
            connection = None;
            tokio::time::sleep(PAUSE * 20).await;
        }
        seen.push(saw);
    }
    seen
}

async fn exchange(
    kept: &mut Option<Connection>,
    gateway: &(dyn Fn() -> Option<SocketAddr> + Sync),
    request: &Request,
    saw: &mut Seen,
) -> std::io::Result<()> {
    if kept.is_none() {
        let gateway = gateway().ok_or(std::io::ErrorKind::NotConnected)?;
        *kept = Some(Connection::open(gateway).await?);
    }
    let connection = kept.as_mut().expect("it was just opened");
    connection.send(request).await?;
    let head = connection.head("POST").await?;
    saw.request_id = head.header("x-service-request-id").map(str::to_owned);
    saw.status = head.first_line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (body, end) = connection.read.rest().await;
    saw.complete = end.is_ok();
    let said = String::from_utf8_lossy(&body);
    saw.is_unknown = saw.status == 503 && said.contains("whether the request was carried out is not known");
    end
}
