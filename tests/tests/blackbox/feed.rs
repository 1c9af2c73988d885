//! The public feed: every event of the log, in order, on the JetStream stream `LEDGER`.

use async_nats::jetstream;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

#[test]
fn the_stream_holds_every_event_in_order_under_its_facts_key() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        let client = merchant.instance.nats().await;
        let stream = jetstream::new(client).get_stream("LEDGER").await.unwrap();
        let events = merchant.log.after(0).await;
        eventually("the feed catches up", async || {
            let info = stream.get_info().await.unwrap();
            (info.state.messages >= events.len() as u64).then_some(())
        })
        .await;
        for event in &events {
            let sequence = u64::try_from(event.position).unwrap();
            let message = stream.get_raw_message(sequence).await.unwrap();
            let header = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
            assert_eq!(message.subject.as_str(), format!("ledger.{}.{}", event.merchant_id, event.kind));
            assert_eq!(header("Nats-Msg-Id").as_deref(), Some(event.key.as_str()));
            assert_eq!(header("farthing-position"), Some(event.position.to_string()));
            assert_eq!(header("farthing-hash"), Some(farthing_core::secret::hex(&event.hash)));
            assert_eq!(message.payload.as_ref(), event.text.as_bytes(), "the exact bytes of the body");
        }
    });
}

#[test]
fn the_wake_up_notification_carries_the_newest_position() {
    run(async {
        use futures_util::StreamExt as _;
        let merchant = Merchant::funded("1").await;
        let client = merchant.instance.nats().await;
        let mut bell = client.subscribe("farthing.head").await.unwrap();
        client.flush().await.unwrap();
        let before = merchant.log.head().await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        // The instance is shared: a notification of another append may come first.
        let newer = async {
            while let Some(message) = bell.next().await {
                let position: i64 = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
                if position > before {
                    return;
                }
            }
            panic!("the subscription ended");
        };
        tokio::time::timeout(farthing_tests::wait::DEADLINE, newer)
            .await
            .expect("a notification of the call's append");
    });
}
