//! The operator's commands: they use the same decisions as the gateway, and bad input changes nothing.

use chrono::{DateTime, Utc};
use farthing_tests::client::Request;
use farthing_tests::faketime::faketime;
use farthing_tests::instance::{Instance, program, program_under};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use serde_json::Value;
use tokio::process::Command;

#[test]
fn a_merchant_has_a_wallet_and_a_key_that_is_shown_once() {
    run(async {
        let merchant = Merchant::new().await;
        assert!(merchant.id.starts_with("mer_") && merchant.wallet_id.starts_with("wal_"));
        assert!(merchant.secret_key.starts_with("aks_test_"), "a dev instance runs in test mode");
        merchant.get("/v1/requests").await.expect(200);
        let kinds: Vec<_> = merchant.events().await.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ["merchant.registered", "secret_key.issued"]);
    });
}

#[test]
fn a_credit_adds_exactly_its_amount() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0.0000000001").await;
        for amount in ["1", "2.5", "0.1234567890"] {
            merchant.credit(&customer, amount).await;
        }
        assert_eq!(merchant.balance(&customer).await, "3.6234567891");
        merchant.credit_own("7").await;
        assert_eq!(merchant.own_balance().await, "7.0000000000");
    });
}

#[test]
fn a_command_has_the_time_of_postgres_whatever_the_clock_of_its_machine_shows() {
    run(async {
        let instance = Instance::shared().await;
        let Some(wrapper) = faketime(3_600) else { return };
        let mut command = Command::from(program_under(&wrapper.each_ref().map(String::as_str)));
        command.args(["merchant", "create", "--name", "a merchant", "--json"]);
        command.args(["--database-url", &instance.ready().database_url]);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let merchant: Value = serde_json::from_slice(&output.stdout).unwrap();
        let log = instance.log().await;
        let id = merchant["merchant_id"].as_str().unwrap();
        let events = log.of_merchant(id, 0).await;
        let now =
            log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap().get::<_, DateTime<Utc>>(0);
        assert!(
            !events.is_empty() && events.iter().all(|event| event.occurred_at <= now),
            "{now}: {events:?}"
        );
    });
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("1").await;
        let before = merchant.events().await.len();
        let nobody = "con_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let long = "x".repeat(300);
        let credit = |target: &'static str, id: &str, amount: &str, reason: &str| -> Vec<String> {
            ["wallet", "credit", target, id, "--amount", amount, "--reason", reason]
                .map(str::to_owned)
                .to_vec()
        };
        let id = customer.id.as_str();
        let mut attempts = Vec::new();
        for amount in
            ["0", "-1", "-0.1", "1e3", "NaN", "0.00000000001", "x", "", "1000000000001", "1,5", "+1"]
        {
            attempts.push(credit("--connection", id, amount, "a test"));
        }
        attempts.push(credit("--connection", nobody, "1", "a test"));
        attempts.push(credit("--connection", "con_", "1", "a test"));
        attempts.push(credit("--connection", &merchant.id, "1", "a test"));
        attempts.push(credit("--merchant", "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV", "1", "a test"));
        attempts.push(credit("--connection", id, "1", ""));
        attempts.push(credit("--connection", id, "1", &long));
        attempts.push(["wallet", "credit", "--amount", "1", "--reason", "x"].map(str::to_owned).to_vec());
        attempts.push(
            ["key", "issue", "--merchant", "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV"].map(str::to_owned).to_vec(),
        );
        attempts.push(["key", "issue", "--merchant", "x"].map(str::to_owned).to_vec());
        attempts.push(["merchant", "create", "--name", &long].map(str::to_owned).to_vec());
        attempts.push(["merchant", "create", "--name", ""].map(str::to_owned).to_vec());
        for attempt in &attempts {
            let words: Vec<&str> = attempt.iter().map(String::as_str).collect();
            let output = merchant.instance.command(&words).await;
            assert!(!output.status.success(), "{words:.60?}");
            assert!(matches!(output.status.code(), Some(1 | 2)), "{words:.60?}: {output:?}");
            assert!(!output.stderr.is_empty(), "{words:.60?} has no error output");
            assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
        }
        assert_eq!(merchant.events().await.len(), before);
        assert_eq!(merchant.balance(&customer).await, "1.0000000000");
    });
}

#[test]
fn keys_are_issued_listed_and_revoked() {
    run(async {
        let merchant = Merchant::new().await;
        let operate = async |arguments: &[&str]| merchant.instance.operate(arguments).await;
        let made = operate(&["key", "issue", "--merchant", &merchant.id, "--name", "further"]).await;
        let id = made["secret_key_id"].as_str().unwrap();
        let list = operate(&["key", "list", "--merchant", &merchant.id]).await;
        let keys = list["data"].as_array().unwrap();
        assert_eq!(
            (keys.len(), &keys[0]["secret_key_id"], &keys[0]["name"]),
            (2, &id.into(), &"further".into())
        );
        assert!(
            !list.to_string().contains(made["secret_key"].as_str().unwrap()),
            "the key itself is not listed"
        );
        let page = operate(&["key", "list", "--merchant", &merchant.id, "--limit", "1"]).await;
        assert_eq!((page["has_more"].as_bool(), page["next_cursor"].as_str()), (Some(true), Some(id)));
        let rest = operate(&["key", "list", "--merchant", &merchant.id, "--cursor", id]).await;
        assert_eq!(rest["data"][0]["name"], "first key");

        let revoked = operate(&["key", "revoke", id]).await;
        assert_eq!(revoked["merchant_id"], merchant.id.as_str());
        let list = operate(&["key", "list", "--merchant", &merchant.id]).await;
        let remaining = list["data"][0]["secret_key_id"].as_str().unwrap();
        for attempt in [
            ["key", "revoke", id].as_slice(),
            &["key", "revoke", remaining],
            &["key", "revoke", "key_01ARZ3NDEKTSV4RRFFQ69G5FAV"],
            &["key", "list", "--merchant", "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV"],
        ] {
            let output = merchant.instance.command(attempt).await;
            assert_eq!(output.status.code(), Some(1), "{attempt:?}: {output:?}");
        }
        for attempt in [
            ["key", "revoke", "x"].as_slice(),
            &["key", "revoke"],
            &["key", "list"],
            &["key", "list", "--merchant", &merchant.id, "--limit", "0"],
            &["merchant", "list", "--limit", "1001"],
        ] {
            assert_eq!(merchant.instance.command(attempt).await.status.code(), Some(2), "{attempt:?}");
        }
        merchant.get("/v1/requests").await.expect(200);
        let kinds: Vec<_> = merchant.events().await.into_iter().map(|event| event.kind).collect();
        let expected =
            ["merchant.registered", "secret_key.issued", "secret_key.issued", "secret_key.revoked"];
        assert_eq!(kinds, expected);
    });
}

/// States are stored up to 200 ms after the answer: the list must not depend on them.
#[test]
fn keys_of_a_merchant_are_listed_as_soon_as_it_exists() {
    run(async {
        let instance = Merchant::new().await.instance;
        for _ in 0..10 {
            let merchant = instance.operate(&["merchant", "create", "--name", "new"]).await;
            let id = merchant["merchant_id"].as_str().unwrap();
            let list = instance.operate(&["key", "list", "--merchant", id]).await;
            assert_eq!(list["data"].as_array().unwrap().len(), 1);
        }
    });
}

#[test]
fn merchants_are_listed_page_by_page_in_order_of_creation() {
    run(async {
        let (first, second) = (Merchant::new().await, Merchant::new().await);
        first.log.stored().await;
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let mut arguments = vec!["merchant", "list", "--limit", "1000"];
            arguments.extend(cursor.iter().flat_map(|cursor: &String| ["--cursor", cursor]));
            let page = first.instance.operate(&arguments).await;
            seen.extend(page["data"].as_array().unwrap().iter().cloned());
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        let at = |id: &str| seen.iter().position(|merchant| merchant["merchant_id"] == id).unwrap();
        assert!(at(&first.id) < at(&second.id));
        let shown = &seen[at(&second.id)];
        assert_eq!(shown["wallet_id"], second.wallet_id.as_str());
        assert_eq!((shown["name"].as_str(), shown["secret_keys"].as_u64()), (Some("a test's"), Some(1)));
        let after = ["merchant", "list", "--limit", "1", "--cursor", &first.id];
        let page = first.instance.operate(&after).await;
        assert_eq!(page["data"].as_array().unwrap().len(), 1);
        assert!(page["data"][0]["merchant_id"].as_str().unwrap() > first.id.as_str());
        let text = Command::new(program())
            .args(["merchant", "list", "--database-url", &first.instance.ready().database_url])
            .output()
            .await
            .unwrap();
        assert!(text.status.success() && !String::from_utf8_lossy(&text.stdout).contains('{'), "{text:?}");
    });
}

#[test]
fn commands_without_a_database_say_that_they_need_one() {
    run(async {
        let output = Command::new(program())
            .args(["merchant", "create"])
            .env_remove("FARTHING_DATABASE_URL")
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let output = Command::new(program())
            .args(["merchant", "create", "--database-url", "postgres://nobody@127.0.0.1:1/none"])
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    });
}

#[test]
fn the_values_in_the_ready_file_work() {
    run(async {
        let instance = Instance::shared().await;
        let ready = instance.ready();
        assert!(ready.base_url.ends_with("/v1/"));
        assert_eq!(ready.gateways.len(), 2);
        assert_eq!(ready.pids.gateways.len(), 2);
        let get = async |path: String| {
            Request::new("GET", path)
                .bearer(&ready.secret_key)
                .send(instance.gateway(0))
                .await
                .unwrap()
                .expect(200)
        };
        assert_eq!(
            get(format!("/v1/customers/{}", ready.customer_id)).await["reference_id"],
            ready.reference_id.as_str()
        );
        assert_eq!(
            get(format!("/v1/customers/{}", ready.reference_id)).await["customer_id"],
            ready.customer_id.as_str()
        );
        let shown = get(format!("/v1/connections/{}", ready.customer_id)).await;
        assert_eq!(shown["connection_secret"], ready.connection_secret.as_str());
        assert!(ready.spend_key.starts_with("spk_") && ready.product_secret.starts_with("prds_"));
        let token = farthing_tests::merchant::token(&serde_json::json!({
            "secret_key": ready.secret_key, "customer_id": ready.reference_id, "meter_slug": ready.meter_slug,
        }));
        let url = format!("{}/echo", ready.provider_url.trim_end_matches('/'));
        for path in ["/v1/forward", "/v1/forward/"] {
            let target = format!("{path}?u={}", farthing_tests::merchant::encoded(&url));
            let response = Request::new("POST", target).bearer(&token).json(&serde_json::json!({"a": 1}));
            response.send(instance.gateway(1)).await.unwrap().expect(200);
        }
    });
}

#[test]
fn a_second_launcher_on_the_same_data_is_refused_and_changes_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let before = merchant.instance.ready();
        let output = Command::new(program())
            .args(["dev", "--listen", "127.0.0.1:0", "--data"])
            .arg(&merchant.instance.data)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!output.stderr.is_empty());
        merchant.get("/v1/requests").await.expect(200);
        assert_eq!(merchant.instance.ready().pids.gateways, before.pids.gateways);
    });
}
