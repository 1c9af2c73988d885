//! The address between gateways. Strangers: without its token nothing is carried out, nor read. With the token: what is
//! forged or malformed changes nothing.

use std::net::SocketAddr;

use farthing_core::secret::ServerKey;
use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::instance::address_of;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// Those of the instance's own gateways. The gateways of other tests deliver nothing.
const ADDRESSES: &str =
    "SELECT DISTINCT address FROM ledger.leases WHERE delivers AND expires_at > clock_timestamp()";

/// The header with the token.
const TOKEN: &str = "X-Farthing-Gateway";

/// The addresses between the gateways of the merchant's instance.
pub(super) async fn between_gateways(merchant: &Merchant) -> Vec<SocketAddr> {
    let rows = merchant.log.sql.query(ADDRESSES, &[]).await.unwrap();
    let addresses: Vec<_> = rows.iter().map(|row| address_of(row.get::<_, &str>(0))).collect();
    assert!(!addresses.is_empty());
    addresses
}

#[test]
fn without_the_token_no_gateway_is_heard() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let key = &merchant.secret_key;
        let before = merchant.events().await.len();
        let command = r#"{"version":1,"partition":0,"term":1,"sent_at":"2026-11-22T00:00:00Z","work":{"states":{"keys":[],"merchant_id":null}}}"#;
        let tokens = ["", "x", &"0".repeat(64), key.as_str(), "Bearer x"];
        for address in between_gateways(&merchant).await {
            for token in [None].into_iter().chain(tokens.map(Some)) {
                for request in [
                    Request::new("POST", "/commands").body(Body::Whole(command.into())),
                    Request::new("POST", "/v1/customers").bearer(key).json(&json!({"reference_id": "x"})),
                    Request::new("GET", "/v1/wallet").bearer(key),
                    Request::new("GET", format!("/v1/forward?u=http://192.0.2.1/&key={key}")),
                    Request::new("GET", "/v1/openapi.json"),
                    Request::new("GET", "/docs"),
                    Request::new("GET", "/nothing"),
                    Request::new("DELETE", "/"),
                ] {
                    let request = match token {
                        Some(token) => request.header(TOKEN, token),
                        None => request,
                    };
                    let answer = request.send(address).await.unwrap();
                    assert_eq!((answer.status, answer.body.len()), (403, 0), "{}", request.target);
                }
            }
        }
        assert_eq!(merchant.events().await.len(), before);
    });
}

#[test]
fn a_stranger_is_refused_before_its_message_is_read() {
    run(async {
        let merchant = Merchant::new().await;
        for address in between_gateways(&merchant).await {
            let mut stranger = Connection::open(address).await.unwrap();
            let message = Request::new("POST", "/commands").header("Content-Length", "60000000");
            stranger.send_head(&message).await.unwrap();
            assert_eq!(stranger.response("POST").await.unwrap().status, 403);
        }
    });
}

#[test]
fn the_header_of_gateways_means_nothing_to_the_api() {
    run(async {
        let merchant = Merchant::new().await;
        for gateway in 0..2 {
            let request = Request::new("POST", "/v1/customers").header(TOKEN, "0".repeat(64));
            let request = request.header("Idempotency-Key", "once").json(&json!({"reference_id": "ada"}));
            let request = request.bearer(&merchant.secret_key);
            request.send(merchant.instance.gateway(gateway)).await.unwrap().expect(201);
            let commands = Request::new("POST", "/commands").header(TOKEN, "0".repeat(64));
            let answer = commands.send(merchant.instance.gateway(gateway)).await.unwrap();
            answer.refused(404, "route_not_found");
        }
    });
}

/// More than a gateway keeps of strangers.
const STRANGERS: usize = 600;

/// The token of the merchant's instance.
async fn token(merchant: &Merchant) -> String {
    let row = merchant.log.sql.query_one("SELECT server_key FROM ledger.instance", &[]).await.unwrap();
    ServerKey::from_hex(row.get(0)).unwrap().token_of_gateways()
}

#[test]
fn strangers_that_hold_connections_do_not_keep_gateways_out() {
    run(async {
        let merchant = Merchant::new().await;
        let token = token(&merchant).await;
        let address = between_gateways(&merchant).await[0];
        let request = Request::new("POST", "/commands").header(TOKEN, &token);
        let mut known = Connection::open(address).await.unwrap();
        known.send(&request).await.unwrap();
        assert_eq!(known.response("POST").await.unwrap().status, 200);
        let mut strangers = Vec::new();
        for _ in 0..STRANGERS {
            strangers.push(Connection::open(address).await.unwrap());
        }
        for oldest in &mut strangers[..STRANGERS / 10] {
            eventually("the oldest strangers make place", async || {
                oldest.head("GET").await.is_err().then_some(())
            })
            .await;
        }
        // Who has shown the token keeps its connection, and a new gateway gets one.
        known.send(&request).await.unwrap();
        assert_eq!(known.response("POST").await.unwrap().status, 200);
        assert_eq!(request.send(address).await.unwrap().status, 200);
    });
}

/// The replies to a message, by the numbers of its commands.
fn replies(answer: &Response) -> Vec<(u64, Value)> {
    let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut replies: Vec<_> = lines
        .map(|line| {
            let mut reply: Value = serde_json::from_slice(line).unwrap();
            (reply["command"].as_u64().unwrap(), reply["reply"].take())
        })
        .collect();
    replies.sort_by_key(|(number, _)| *number);
    replies
}

#[test]
fn forged_and_malformed_messages_change_nothing() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let token = token(&merchant).await;
        let before = merchant.events().await.len();
        let leads = "SELECT partition, address, term FROM ledger.leases
            WHERE delivers AND partition > 0 AND expires_at > clock_timestamp()";
        let row = merchant.log.sql.query(leads, &[]).await.unwrap().remove(0);
        let (partition, address, term): (i16, &str, i64) = (row.get(0), row.get(1), row.get(2));
        let command = |partition: &str, term: &str, sent_at: &str, work: &str| {
            format!(
                r#"{{"version":1,"partition":{partition},"term":{term},"sent_at":"{sent_at}","work":{work}}}"#
            )
        };
        let (number, now) = (partition.to_string(), "2026-11-22T00:00:00Z");
        let (term, read) = (term.to_string(), r#"{"states":{"keys":[],"merchant_id":null}}"#);
        let negative = format!("-{}", i32::from(partition) + 32_000);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let credit = r#"{"settle":{"credit_wallet":{}}}"#;
        let forged = [
            command(&negative, &term, now, read),
            command(&format!("-{number}"), &term, now, read),
            command("-32768", &term, now, read),
            command("32767", &term, now, read),
            command("99999", &term, now, read),
            command(&number, "0", now, read),
            command(&number, "-1", now, read),
            command(&number, "9223372036854775807", now, read),
            command(&number, "18446744073709551616", now, read),
            command(&number, &term, "yesterday", read),
            command(&number, &term, now, &deep),
            command(&number, &term, now, credit),
            command(&number, &term, now, r#"{"states":{"keys":[{"customer":"x"}],"merchant_id":null}}"#),
            r#"{"version":1,"version":1}"#.to_owned(),
            r#"{"version":65535}"#.to_owned(),
            "[".repeat(100_000),
            "\0".to_owned(),
            "null".to_owned(),
        ];
        let send = async |message: String| {
            let request = Request::new("POST", "/commands").header(TOKEN, &token);
            request.body(Body::Whole(message.into_bytes())).send(address_of(address)).await.unwrap()
        };
        // A good command among them is answered all the same.
        let message = format!("{}\n{}\n", forged.join("\n"), command(&number, &term, now, read));
        let answers = replies(&send(message).await);
        let numbers: Vec<u64> = answers.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..=forged.len() as u64).collect::<Vec<_>>(), "each has one reply");
        let (good, refused) = answers.split_last().unwrap();
        for ((_, reply), forged) in refused.iter().zip(&forged) {
            assert!(reply["failed"].is_string() || reply["failed"].is_object(), "{forged:.100}: {reply}");
        }
        // The lease may have moved meanwhile.
        assert!(good.1["states"].is_object() || good.1["failed"] == "moved", "{}", good.1);
        // More than the queue takes, read by nobody.
        let flood = format!("{}\n", command(&number, &term, now, read)).repeat(5_000);
        let mut unread = Vec::new();
        for _ in 0..4 {
            let mut connection = Connection::open(address_of(address)).await.unwrap();
            let request = Request::new("POST", "/commands").header(TOKEN, &token);
            let _ = connection.send(&request.body(Body::Whole(flood.clone().into_bytes()))).await;
            unread.push(connection);
        }
        for empty in [String::new(), "\n".repeat(100_000)] {
            assert_eq!(replies(&send(empty).await), []);
        }
        merchant.get("/v1/wallet").await.expect(200);
        assert_eq!(merchant.events().await.len(), before);
    });
}

#[test]
fn what_a_caller_may_send_to_a_gateway_can_be_passed_on_to_the_leader() {
    run(async {
        let merchant = Merchant::new().await;
        // Each of the gateways, one of which passes it on. A head has 100 headers and 64 KiB at most.
        for gateway in 0..2 {
            let post = |name: &str| {
                let body = json!({"reference_id": format!("{name} {gateway}")});
                let key = format!("{name} {gateway}");
                let request =
                    Request::new("POST", "/v1/customers").header("Idempotency-Key", key).json(&body);
                request.bearer(&merchant.secret_key)
            };
            // Besides Host, Content-Length, Content-Type, Authorization and Idempotency-Key.
            let many =
                (5..100).fold(post("many"), |request, number| request.header(&format!("X-{number}"), "x"));
            let long = post("long").header("X-Long", "x".repeat(63 * 1024));
            for request in [many, long] {
                request.send(merchant.instance.gateway(gateway)).await.unwrap().expect(201);
            }
        }
    });
}
