//! Attacks without a key (F10).

use std::future::pending;
use std::time::Duration;

use farthing_tests::client::Request;
use farthing_tests::merchant::forward;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::time::sleep;

use super::super::scene::Attacker;
use super::responses::index;
use super::{Way, meant};

const KIB: usize = 1024;

pub(super) fn all(attacker: &Attacker) -> Vec<Way> {
    vec![idle(attacker), slow_heads(attacker), large_heads(attacker), unknown_keys(attacker)]
}

/// Connections without a request.
fn idle(attacker: &Attacker) -> Way {
    let attacker = attacker.clone();
    Way::holding("idle", 300, move |_| {
        let attacker = attacker.clone();
        async move {
            let _connection = attacker.connect().await?;
            pending().await
        }
    })
}

/// Long heads that come byte by byte, and do not end.
fn slow_heads(attacker: &Attacker) -> Way {
    let attacker = attacker.clone();
    Way::holding("slow_heads", 300, move |_| {
        let attacker = attacker.clone();
        async move {
            let mut connection = attacker.connect().await?;
            let head = format!("GET /v1/requests HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(60 * KIB));
            connection.write.write_all(head.as_bytes()).await?;
            loop {
                connection.write.write_all(b"x").await?;
                sleep(Duration::from_secs(1)).await;
            }
        }
    })
}

/// Heads as long as they may be, and longer.
fn large_heads(attacker: &Attacker) -> Way {
    let attacker = attacker.clone();
    Way::new("large_heads", 4, move |number| {
        let attacker = attacker.clone();
        async move {
            let length = [60, 63, 64, 100][index(number, 4)];
            let request = Request::new("GET", "/v1/requests").header("X-Long", "x".repeat(length * KIB));
            let response = attacker.send(&request).await?;
            meant(matches!(response.status, 401 | 431))
        }
    })
}

/// Keys that do not exist, with bodies.
fn unknown_keys(attacker: &Attacker) -> Way {
    let attacker = attacker.clone();
    let url = attacker.server.endpoint(|_| Vec::new()).url;
    let body = json!({"input": "x".repeat(100 * KIB)});
    Way::new("unknown_keys", 16, move |number| {
        let kind = ["spk_", "aks_test_"][index(number, 2)];
        let key = format!("{kind}{number:032x}");
        let to = [forward("POST", &url), Request::new("POST", "/v1/customers")][index(number / 2, 2)].clone();
        let (attacker, request) = (attacker.clone(), to.bearer(&key).json(&body));
        async move {
            let response = attacker.send(&request).await?;
            meant(matches!(response.status, 401 | 503))
        }
    })
}
