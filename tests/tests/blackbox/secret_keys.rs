//! Secret keys: listed without the raw keys, revoked at once when deleted, and the last one cannot be deleted.

use farthing_tests::client::{Body, Request, Response};
use farthing_tests::merchant::{Merchant, deleted, forward};
use farthing_tests::run;
use serde_json::{Value, json};

/// Creates another key of the merchant: its id and the raw key.
async fn issued(merchant: &Merchant, name: &str) -> (String, String) {
    let made = merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id, "--name", name]).await;
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("secret_key_id"), text("secret_key"))
}

async fn with(key: &str, gateway: usize, request: Request) -> Response {
    let merchant = farthing_tests::instance::Instance::shared().await;
    request.bearer(key).send(merchant.gateway(gateway)).await.unwrap()
}

async fn listed(merchant: &Merchant) -> Vec<Value> {
    let list = merchant.get("/v1/secret_keys?limit=100").await.expect(200);
    assert_eq!(list["has_more"], false);
    list["data"].as_array().unwrap().clone()
}

#[test]
fn the_list_shows_every_active_key_and_never_a_raw_key() {
    run(async {
        let merchant = Merchant::new().await;
        let mut made = Vec::new();
        for number in 0..4 {
            made.push(issued(&merchant, &format!("number {number}")).await);
        }
        let list = listed(&merchant).await;
        assert_eq!(list.len(), 5, "and the first one");
        let (id, raw) = made.last().unwrap();
        let shown = list[0].as_object().unwrap();
        assert_eq!(shown["secret_key_id"], id.as_str());
        assert_eq!(shown["name"], "number 3");
        assert_eq!(shown["secret_key_hint"], raw[raw.len() - 4..]);
        assert!(shown["created_at"].as_str().unwrap().ends_with('Z'));
        assert_eq!(shown.len(), 4, "nothing else: {shown:?}");
        assert!(!json!(list).to_string().contains(raw));

        let mut walked = Vec::new();
        let mut path = "/v1/secret_keys?limit=2".to_owned();
        loop {
            let page = merchant.get(&path).await.expect(200);
            walked.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else {
                assert_eq!(page["has_more"], false);
                break;
            };
            path = format!("/v1/secret_keys?limit=2&cursor={cursor}");
            if walked.len() == 2 {
                // The key of a cursor may be deleted before the next page is read.
                merchant.rest(Request::new("DELETE", format!("/v1/secret_keys/{cursor}"))).await.expect(200);
            }
        }
        assert_eq!(walked, list);
        let other = Merchant::new().await;
        assert_eq!(listed(&other).await.len(), 1, "no keys of another merchant");
        for (query, code) in [
            ("limit=0", "validation_error"),
            ("limit=101", "validation_error"),
            ("cursor=x", "cursor_invalid"),
            ("cursor=key_01ARZ3NDEKTSV4RRFFQ69G5FAV", "cursor_invalid"),
        ] {
            let refused = merchant.get(&format!("/v1/secret_keys?{query}")).await;
            refused.refused(400, code);
        }
        let foreign = listed(&other).await[0]["secret_key_id"].as_str().unwrap().to_owned();
        merchant.get(&format!("/v1/secret_keys?cursor={foreign}")).await.refused(400, "cursor_invalid");
    });
}

#[test]
fn a_deleted_key_is_refused_at_once_on_every_gateway() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (id, raw) = issued(&merchant, "to go").await;
        let url =
            merchant.instance.provider.endpoint(|_| farthing_tests::provider::json(200, &json!({}))).url;
        for gateway in [0, 1] {
            with(&raw, gateway, Request::new("GET", "/v1/requests")).await.expect(200);
            with(&raw, gateway, forward("GET", &url)).await.expect(200);
        }
        let gone = merchant.rest(Request::new("DELETE", format!("/v1/secret_keys/{id}"))).await;
        assert_eq!(gone.expect(200), deleted(&id));
        for gateway in [1, 0] {
            let refused = with(&raw, gateway, Request::new("GET", "/v1/requests")).await;
            refused.refused(401, "secret_key_invalid");
            with(&raw, gateway, forward("GET", &url)).await.refused(401, "secret_key_invalid");
        }
        assert_eq!(listed(&merchant).await.len(), 1);
        for path in [
            format!("/v1/secret_keys/{id}"),
            "/v1/secret_keys/key_01ARZ3NDEKTSV4RRFFQ69G5FAV".into(),
            "/v1/secret_keys/nothing".into(),
            "/v1/secret_keys/%00".into(),
        ] {
            let unknown = merchant.rest(Request::new("DELETE", path)).await;
            unknown.refused(404, "secret_key_not_found");
        }
        let other = Merchant::new().await;
        let foreign = listed(&other).await[0]["secret_key_id"].as_str().unwrap().to_owned();
        let refused = merchant.rest(Request::new("DELETE", format!("/v1/secret_keys/{foreign}"))).await;
        refused.refused(404, "secret_key_not_found");
        other.get("/v1/requests").await.expect(200);
        Request::new("DELETE", format!("/v1/secret_keys/{foreign}"))
            .send(merchant.gateway())
            .await
            .unwrap()
            .refused(401, "auth_header_missing");
        merchant.post("/v1/secret_keys", &json!({})).await.refused(403, "secret_key_issuance_paused");
    });
}

#[test]
fn concurrent_deletions_keep_the_last_key() {
    run(async {
        let delete = |id: &str| Request::new("DELETE", format!("/v1/secret_keys/{id}"));
        for _ in 0..5 {
            let merchant = Merchant::new().await;
            let first = listed(&merchant).await[0]["secret_key_id"].as_str().unwrap().to_owned();
            merchant.rest(delete(&first)).await.refused(400, "secret_key_last_remaining");
            let (second, raw) = issued(&merchant, "second").await;
            // Each key deletes the other, at the same time, on two gateways.
            let (one, two) =
                tokio::join!(with(&merchant.secret_key, 0, delete(&second)), with(&raw, 1, delete(&first)));
            let (kept, lost) = if one.status == 200 { (&merchant.secret_key, two) } else { (&raw, one) };
            // The loser finds that its key is the last one, or that it is deleted.
            match lost.status {
                400 => lost.refused(400, "secret_key_last_remaining"),
                _ => lost.refused(401, "secret_key_invalid"),
            };
            let left = with(kept, 0, Request::new("GET", "/v1/secret_keys")).await.expect(200);
            assert_eq!(left["data"].as_array().unwrap().len(), 1, "one is kept");
            let good = merchant.log.states("issued_key").await;
            let mine = good.iter().filter(|(_, body)| body["merchant_id"] == merchant.id.as_str());
            assert_eq!(mine.count(), 1);
        }
    });
}

#[test]
fn no_key_is_issued_whatever_the_call_contains() {
    run(async {
        let merchant = Merchant::new().await;
        let before = merchant.events().await.len();
        let post = || Request::new("POST", "/v1/secret_keys");
        let json = |body: Vec<u8>| post().header("Content-Type", "application/json").body(Body::Whole(body));
        let calls = [
            post(),
            post().json(&json!({"name": "a key"})),
            json(b"{".to_vec()),
            json(vec![b' '; 2 * 1024 * 1024]),
            post().header("Content-Type", "text/plain").body(Body::Whole(b"x".to_vec())),
            post().header("Idempotency-Key", ""),
            post().header("Idempotency-Key", "x".repeat(256)),
            post().header("Idempotency-Key", "one").header("Idempotency-Key", "two"),
            post().header("Idempotency-Key", "one").json(&json!({"name": "a key"})),
            post().header("Idempotency-Key", "one").json(&json!({"name": "another key"})),
        ];
        for call in calls {
            let stranger = call.send(merchant.gateway()).await.unwrap();
            stranger.refused(401, "auth_header_missing");
            let refused = merchant.rest(call).await;
            refused.refused(403, "secret_key_issuance_paused");
            assert_eq!(refused.head.header("idempotency-replayed"), None);
        }
        assert_eq!(merchant.events().await.len(), before, "nothing was appended");
    });
}
