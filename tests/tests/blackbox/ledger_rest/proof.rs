//! `GET /ledger/proof` states the hash of an event of the merchant's partition, signed with the operator's key. It is verified
//! with openssl, by the commands of docs/auditing.md.

use std::process::Stdio;

use farthing_core::secret::hex;
use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

/// Runs shell commands in a folder; returns what they print.
async fn sh(folder: &std::path::Path, commands: &str) -> String {
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-euc", commands]).current_dir(folder).stdin(Stdio::null());
    let output = shell.output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    String::from_utf8(output.stdout).unwrap() + &stderr
}

/// The block of the documentation that begins with this line.
fn documented(first: &str) -> String {
    let page = include_str!("../../../../docs/auditing.md");
    // Every second fence opens a block, and may name its language.
    let mut blocks = page.split("\n```").skip(1).step_by(2);
    let block = blocks.find_map(|block| block.split_once('\n').filter(|(_, text)| text.starts_with(first)));
    let (_, text) = block.unwrap_or_else(|| panic!("no block begins with {first}"));
    text.to_owned()
}

async fn proof(gateway: &SideGateway, merchant: &Merchant, query: &str) -> Value {
    let request = Request::new("GET", format!("/v1/ledger/proof{query}")).bearer(&merchant.secret_key);
    request.send(gateway.address).await.unwrap().expect(200)
}

#[test]
fn a_proof_is_verified_with_openssl_as_documented() {
    run(async {
        let instance = Instance::shared().await;
        let merchant = Merchant::funded("1").await;
        let folder = instance.file(&format!("proof-{}", merchant.id));
        std::fs::create_dir(&folder).unwrap();
        let make = documented("openssl genpkey -algorithm ed25519 -out audit.pem");
        let keys = make.lines().filter(|line| line.starts_with("openssl")).collect::<Vec<_>>().join("\n");
        sh(&folder, &keys).await;
        let key = folder.join("audit.pem");
        let signing = SideGateway::start(instance, &["--audit-key-file", key.to_str().unwrap()]).await;
        let verify = documented("jq -j .message proof.json > message");
        let verified = async |proof: &Value| {
            std::fs::write(folder.join("proof.json"), proof.to_string()).unwrap();
            sh(&folder, &verify).await
        };

        let events = merchant.events().await;
        for event in [events.first().unwrap(), events.last().unwrap()] {
            let proof = proof(&signing, &merchant, &format!("?position={}", event.position)).await;
            let stated = (&proof["partition"], &proof["position"], proof["hash"].as_str().unwrap());
            assert_eq!(stated, (&json!(event.partition), &json!(event.position), hex(&event.hash).as_str()));
            let message: Value = serde_json::from_str(proof["message"].as_str().unwrap()).unwrap();
            for name in ["partition", "position", "hash", "stated_at"] {
                assert_eq!(message[name], proof[name], "{proof}");
            }
            assert_eq!(message.as_object().unwrap().len(), 4, "{message}");
            assert!(verified(&proof).await.contains("Signature Verified Successfully"));
            // Another message, and the signature of another message.
            let mut forged = proof.clone();
            forged["message"] =
                json!(proof["message"].as_str().unwrap().replace("\"position\":", "\"position\":1"));
            let refused = verified(&forged).await;
            assert!(
                !refused.contains("Verified Successfully") && refused.contains("Verification Failure"),
                "{refused}"
            );
        }
        let head = proof(&signing, &merchant, "").await;
        assert!(head["position"].as_i64().unwrap() >= events.last().unwrap().position, "{head}");
        let at_head = merchant.log.after(head["position"].as_i64().unwrap() - 1).await;
        let at_head = at_head.iter().find(|event| {
            (json!(event.partition), json!(event.position))
                == (head["partition"].clone(), head["position"].clone())
        });
        assert_eq!(head["hash"], hex(&at_head.unwrap().hash));
        assert!(verified(&head).await.contains("Signature Verified Successfully"));

        // Without a key, nothing is signed.
        let unsigned = merchant.get("/v1/ledger/proof").await.expect(200);
        assert_eq!(
            (&unsigned["signature"], &unsigned["public_key"]),
            (&Value::Null, &Value::Null),
            "{unsigned}"
        );
        let beyond = merchant.get("/v1/ledger/proof?position=9007199254740991").await;
        let error = beyond.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["position"]), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
