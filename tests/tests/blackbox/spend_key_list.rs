//! The list of spend keys: every page and every filter in both vocabularies, with the same counters as a single key.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::{Value, json};

const PATHS: [&str; 2] = ["/v1/spend_keys", "/v1/manage/spend_keys"];

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["spend_key_id"].as_str().unwrap()).collect()
}

async fn made(merchant: &Merchant, name: &str, customer: Option<&str>) -> Value {
    let mut body = json!({"name": name, "request_limit": {"count": 9, "cycle": "daily"}});
    if let Some(customer) = customer {
        body["customer_id"] = customer.into();
    }
    merchant.post("/v1/spend_keys", &body).await.expect(201)
}

#[test]
fn spend_keys_are_listed_newest_first_in_pages_as_shown_singly() {
    run(async {
        let merchant = Merchant::new().await;
        let mut keys = Vec::new();
        for number in 0..12 {
            keys.push(made(&merchant, &format!("key {number}"), None).await);
        }
        keys.reverse();
        let wanted = ids(&keys);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        for _ in 0..2 {
            let raw = keys[3]["key"].as_str().unwrap();
            merchant.send(raw, forward("GET", &endpoint.url)).await.expect(200);
        }
        for path in PATHS {
            for limit in [1, 5, 12, 100] {
                let listed = merchant.pages(path, limit).await;
                assert_eq!(ids(&listed), wanted, "{path} by {limit}");
                for item in listed {
                    let id = item["spend_key_id"].as_str().unwrap();
                    assert_eq!(item, merchant.get(&format!("{path}/{id}")).await.expect(200));
                    assert_eq!(item.get("key"), None, "a raw key is shown once");
                }
            }
            let page = merchant.get(path).await.expect(200);
            assert_eq!(ids(page["data"].as_array().unwrap()), wanted[..10], "10 by default");
            assert_eq!((&page["has_more"], &page["next_cursor"]), (&json!(true), &json!(wanted[9])));
            let used = &page["data"][3];
            assert_eq!((&used["current_requests"], &used["total_requests"]), (&json!(2), &json!(2)));
        }
    });
}

#[test]
fn spend_keys_are_filtered_by_either_id_of_a_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let (ada, bob) =
            (merchant.customer_called("ada", "0").await, merchant.customer_called("bob", "0").await);
        let (of_ada, of_bob) =
            (made(&merchant, "a", Some(&ada.id)).await, made(&merchant, "b", Some("bob")).await);
        let later = made(&merchant, "a again", Some("ada")).await;
        let own = made(&merchant, "own", None).await;
        let id = |key: &Value| key["spend_key_id"].as_str().unwrap().to_owned();
        let both_of_ada = vec![id(&later), id(&of_ada)];
        for (filter, wanted) in [
            (String::new(), vec![id(&own), id(&later), id(&of_bob), id(&of_ada)]),
            (format!("customer_id={}", ada.id), both_of_ada.clone()),
            (format!("connection_id={}", ada.id), both_of_ada.clone()),
            ("customer_id=ada".to_owned(), both_of_ada.clone()),
            ("connection_id=ada".to_owned(), both_of_ada.clone()),
            (format!("customer_id={0}&connection_id={0}", ada.id), both_of_ada),
            (format!("customer_id={}", bob.id), vec![id(&of_bob)]),
            ("customer_id=nobody".to_owned(), vec![]),
            ("customer_id=con_01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(), vec![]),
        ] {
            for path in PATHS {
                for limit in [1, 100] {
                    let listed = merchant.pages(&format!("{path}?{filter}"), limit).await;
                    assert_eq!(ids(&listed), wanted, "{path}?{filter} by {limit}");
                }
            }
        }
        for (filter, parameter) in [
            ("customer_id=ada&connection_id=bob".to_owned(), "customer_id"),
            ("connection_id=con_x".to_owned(), "connection_id"),
            ("customer_id=".to_owned(), "customer_id"),
            ("customer_id=ada&customer_id=ada".to_owned(), "customer_id"),
            (format!("customer_id={}", encoded(&"x".repeat(256))), "customer_id"),
        ] {
            let error =
                merchant.get(&format!("/v1/spend_keys?{filter}")).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([parameter]), "{filter}: {error}");
        }
    });
}

#[test]
fn a_deleted_key_leaves_the_list_but_its_cursor_stays_valid() {
    run(async {
        let merchant = Merchant::new().await;
        let mut keys = Vec::new();
        for name in ["oldest", "middle", "newest"] {
            keys.push(made(&merchant, name, None).await["spend_key_id"].as_str().unwrap().to_owned());
        }
        let path = format!("/v1/spend_keys/{}", keys[1]);
        merchant.rest(Request::new("DELETE", path.as_str())).await.expect(200);
        let listed = merchant.pages("/v1/spend_keys", 1).await;
        assert_eq!(ids(&listed), [&keys[2], &keys[0]]);
        let after = merchant.get(&format!("/v1/spend_keys?cursor={}", keys[1])).await.expect(200);
        assert_eq!(ids(after["data"].as_array().unwrap()), [&keys[0]]);
        merchant.get(&path).await.refused(404, "spend_key_not_found");
        let stranger = Merchant::new().await;
        stranger.get(&format!("/v1/spend_keys?cursor={}", keys[0])).await.refused(400, "cursor_invalid");
        assert_eq!(stranger.get("/v1/spend_keys").await.expect(200)["data"], json!([]));
        let report = merchant.instance.operate(&["projections", "verify", "spend_keys"]).await;
        assert_eq!(report["differences"], 0, "{report}");
    });
}
