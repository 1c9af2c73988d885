//! The public feed: every event of a partition of the log, in order, on its JetStream stream.

use farthing_tests::feed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

#[test]
fn the_stream_holds_every_event_in_order_and_proves_the_hash_chain() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        let partition = merchant.partition().await;
        let mut events = merchant.log.after(0).await;
        events.retain(|event| event.partition == partition);
        let stream = feed::stream_of(merchant.instance, partition).await.unwrap();
        eventually("the feed catches up", async || {
            (feed::end(&stream).await? >= events.last()?.position).then_some(())
        })
        .await;
        feed::check_beginning(merchant.instance, &stream, &events).await;
    });
}

#[test]
fn the_relay_keeps_its_connection() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let instance = merchant.instance;
        // Two checks of the stream, a second apart.
        eventually("the stream is three seconds old", async || {
            let created = feed::stream_of(instance, 0).await?.get_info().await.ok()?.created;
            (chrono::Utc::now().timestamp() - created.unix_timestamp() > 3).then_some(())
        })
        .await;
        let said = std::fs::read_to_string(instance.data.join("logs/projector-0.log")).unwrap();
        assert!(!said.contains("relay.restarted"), "{said}");
    });
}

#[test]
fn the_wake_up_notification_carries_the_newest_position() {
    run(async {
        use futures_util::StreamExt as _;
        let merchant = Merchant::funded("1").await;
        let client = merchant.instance.nats().await;
        let subject = feed::wake_up(merchant.instance, merchant.partition().await);
        let mut bell = client.subscribe(subject).await.unwrap();
        client.flush().await.unwrap();
        let before = merchant.events().await.last().unwrap().position;
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
