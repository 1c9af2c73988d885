//! Lists whose items are as long as a merchant can make them, and answers that nobody reads.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use farthing_tests::client::Request;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::resident_kib;
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const MIB: usize = 1024 * 1024;

/// The longest page: the bytes after which it ends, the last item and what JSON adds.
const LONGEST_PAGE: usize = 2 * MIB;

/// Spend keys, whose lists have about 200 kB each.
const KEYS: usize = 60;

/// Plans, with 100 bundles of about 1 kB each.
const PLANS: usize = 25;

/// Answers that nobody reads. Those of unbounded pages would have 12 MB each.
const UNREAD: usize = 60;

/// The memory that they may take: what a merchant gets for long responses, and what a read takes for a moment.
const MOST_KIB: u64 = 192 * 1024;

/// A merchant with spend keys of long lists; with the keys' ids.
async fn merchant_of_long_keys() -> (Merchant, BTreeSet<String>) {
    let merchant = Merchant::new().await;
    let names = |list: &str| (0..1_000).map(|number| format!("{list}{number:0>95}")).collect::<Vec<_>>();
    let mut ids = BTreeSet::new();
    for _ in 0..KEYS {
        let body = json!({"name": "long", "allowed_models": names("m"), "allowed_providers": names("p")});
        let key = merchant.post("/v1/spend_keys", &body).await.expect(201);
        ids.insert(key["spend_key_id"].as_str().unwrap().to_owned());
    }
    (merchant, ids)
}

/// Reads all pages of a list, of which none is too long. Returns their items, and the number of pages.
async fn pages(merchant: &Merchant, path: &str) -> (Vec<Value>, usize) {
    let (mut items, mut count, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = merchant.rest(Request::new("GET", format!("{path}{cursor}"))).await;
        assert!(page.body.len() <= LONGEST_PAGE, "{path}: {} bytes", page.body.len());
        let page = page.expect(200);
        items.extend(page["data"].as_array().unwrap().iter().cloned());
        count += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (items, count),
        }
    }
}

#[test]
fn a_page_of_long_items_ends_early_and_the_pages_have_all_of_them() {
    run(async {
        let (merchant, ids) = merchant_of_long_keys().await;
        let (keys, count) = pages(&merchant, "/v1/spend_keys?limit=100").await;
        let listed: Vec<_> = keys.iter().map(|key| key["spend_key_id"].as_str().unwrap()).collect();
        assert_eq!(listed.len(), KEYS);
        assert!(listed.iter().map(ToString::to_string).eq(ids.iter().rev().cloned()), "newest first");
        assert!((KEYS / 8..KEYS / 2).contains(&count), "{count}");
        // A page of one item has one, however long it is.
        let (keys, count) = pages(&merchant, "/v1/spend_keys?limit=1").await;
        assert_eq!((keys.len(), count), (KEYS, KEYS));
        let (events, count) = pages(&merchant, "/v1/ledger/events?limit=100&kind=spend_key.created").await;
        let created: BTreeSet<_> =
            events.iter().map(|event| event["body"]["spend_key_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!((events.len(), created), (KEYS, ids));
        assert!((KEYS / 8..KEYS / 2).contains(&count), "{count}");
        // What belongs to an item counts, too.
        let name = "\u{1f600}".repeat(255);
        let bundle = json!({"name": name, "cost": "1", "credit_amount": "1"});
        let plan = json!({"name": name, "period_amount": "1", "credit_bundles": vec![&bundle; 100]});
        let mut ids = Vec::new();
        for _ in 0..PLANS {
            let made = merchant.post("/v1/plans", &plan).await.expect(201);
            ids.push(made["plan_id"].as_str().unwrap().to_owned());
        }
        let (plans, count) = pages(&merchant, "/v1/plans?limit=100").await;
        let listed: Vec<_> = plans.iter().map(|plan| plan["plan_id"].as_str().unwrap()).collect();
        assert!(listed.into_iter().eq(ids.iter().rev().map(String::as_str)), "newest first");
        assert!(plans.iter().all(|plan| plan["credit_bundles"].as_array().map(Vec::len) == Some(100)));
        assert!(count > 1, "{count}");
    });
}

/// Calls for a list and reads the first line of the answer. Little of the rest fits into the caller's socket.
async fn begin_to_read(gateway: SocketAddr, secret_key: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut caller = socket.connect(gateway).await.unwrap();
    let head = format!(
        "GET /v1/spend_keys?limit=100 HTTP/1.1\r\nHost: {gateway}\r\nAuthorization: Bearer {secret_key}\r\n\r\n"
    );
    caller.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 12];
    caller.read_exact(&mut line).await.unwrap();
    assert!([b"HTTP/1.1 200", b"HTTP/1.1 503"].contains(&&line), "{}", line.escape_ascii());
    caller
}

#[test]
fn answers_that_nobody_reads_take_a_bounded_memory() {
    run(async {
        let (merchant, _) = merchant_of_long_keys().await;
        let victim = Merchant::new().await;
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let list = Request::new("GET", "/v1/spend_keys?limit=100").bearer(&merchant.secret_key);
        list.send(gateway.address).await.unwrap().expect(200);
        let before = resident_kib(gateway.pid());
        let mut unread = Vec::new();
        for _ in 0..UNREAD {
            unread.push(begin_to_read(gateway.address, &merchant.secret_key).await);
        }
        let taken = resident_kib(gateway.pid()).saturating_sub(before);
        assert!(taken < MOST_KIB, "{taken} KiB");
        let read = Request::new("GET", "/v1/spend_keys?limit=100").bearer(&victim.secret_key);
        read.send(gateway.address).await.unwrap().expect(200);
        drop(unread);
        eventually("the memory is free", async || {
            let taken = scrape(gateway.operator).await.values("farthing_long_body_memory_bytes", &[]);
            taken.iter().all(|taken| *taken == 0.0).then_some(())
        })
        .await;
    });
}
