//! A log with a second partition: everything that reads the log reads it too. Its events are written by the test.

use farthing_tests::feed;
use farthing_tests::instance::{Instance, is_running, kill};
use farthing_tests::log::{Logged, next_hash, partition_of};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::Value;

const ADD_PARTITION: &str =
    "INSERT INTO ledger.heads (partition, shape) SELECT 1, shape FROM ledger.heads WHERE partition = 0";

const APPEND: &str = "\
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
VALUES (1, $1, $2, to_timestamp(0), 'a test', $3, $4)";

const MOVE_HEAD: &str = "UPDATE ledger.heads SET position = $1, hash = $2 WHERE partition = 1";

/// A merchant that no gateway knows.
const OTHER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// Appends `lines` to partition 1 after position `after`, whose hash is `previous`; returns the hash of the last event.
async fn append(merchant: &Merchant, after: i64, previous: Vec<u8>, lines: &[String]) -> Vec<u8> {
    let (mut last, mut hashes) = (previous, Vec::new());
    for (position, line) in (after + 1..).zip(lines) {
        last = next_hash(&last, position, 0, "a test", line);
        hashes.extend_from_slice(&last);
    }
    let count = i32::try_from(lines.len()).unwrap();
    let events = lines.join("\n").into_bytes();
    let sql = &merchant.log.sql;
    sql.batch_execute("BEGIN").await.unwrap();
    sql.execute(APPEND, &[&(after + 1), &count, &events, &hashes]).await.unwrap();
    sql.execute(MOVE_HEAD, &[&(after + i64::from(count)), &last]).await.unwrap();
    sql.batch_execute("COMMIT").await.unwrap();
    last
}

/// The lines of `events`, as those of another merchant with other secret keys.
fn of_other_merchant(events: &[Logged], merchant_id: &str) -> Vec<String> {
    let ulid = merchant_id.strip_prefix("mer_").unwrap();
    let other = |event: &Logged| {
        let line = event.record.replace(ulid, OTHER);
        event.text("secret_key_id").strip_prefix("key_").map_or(line.clone(), |key| line.replace(key, OTHER))
    };
    events.iter().map(other).collect()
}

#[test]
fn a_second_partition_is_projected_published_rebuilt_and_audited() {
    run(async {
        let instance: &'static Instance = Box::leak(Box::new(Instance::start(1).await));
        let merchant = Merchant::of(instance).await;
        let sql = &merchant.log.sql;
        let events = merchant.log.of_merchant(&merchant.id, 0).await;
        let issued: Vec<_> =
            events.iter().filter(|event| event.kind == "secret_key.issued").cloned().collect();
        let lines = of_other_merchant(&issued[..1], &merchant.id);

        // A projector learns of the partitions when it starts.
        sql.batch_execute(ADD_PARTITION).await.unwrap();
        let first = append(&merchant, 0, vec![0; 32], &lines).await;
        let pid = instance.ready().pids.projectors[0];
        kill(pid);
        eventually("another projector runs", async || {
            let now = *instance.try_ready()?.pids.projectors.first()?;
            (now != pid && is_running(now)).then_some(())
        })
        .await;
        let rows = "SELECT count(*) FROM secret_keys.secret_keys WHERE merchant_id = $1";
        let other = format!("mer_{OTHER}");
        assert_eq!(partition_of(&other, 2), 1);
        eventually("the events of partition 1 are projected", async || {
            let row = sql.query_one(rows, &[&other]).await.unwrap();
            (row.get::<_, i64>(0) == 1).then_some(())
        })
        .await;

        let of_rows =
            "SELECT DISTINCT partition FROM secret_keys.secret_keys WHERE (merchant_id = $1) = $2 ORDER BY 1";
        for (is_other, partition) in [(true, 1), (false, 0)] {
            let row = sql.query_one(of_rows, &[&other, &is_other]).await.unwrap();
            assert_eq!(row.get::<_, i16>(0), partition, "a row has the partition of its events");
        }

        // Both partitions go on, each with its own positions.
        let body = format!(r#"{{"secret_key_id":"key_{OTHER}","key_hash":""}}"#);
        let (head, _) = lines[0].split_once(r#""body":"#).unwrap();
        let head = head.replace("secret_key.issued", "secret_key.revoked").replace("/issued", "/revoked");
        let revoked = format!(r#"{head}"body":{body}}}"#);
        append(&merchant, 1, first, &[revoked]).await;
        merchant.credit_own("1").await;
        let own = merchant.log.of_merchant(&merchant.id, 0).await.last().unwrap().position;
        let checkpoint = "SELECT position FROM secret_keys.checkpoint ORDER BY partition";
        let cursor = "SELECT position FROM webhooks.cursor ORDER BY partition";
        for positions in [checkpoint, cursor] {
            eventually("both partitions are read to their heads", async || {
                let rows = sql.query(positions, &[]).await.unwrap();
                let positions: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                (positions.len() == 2 && positions[0] >= own && positions[1] == 2).then_some(())
            })
            .await;
        }
        let active =
            "SELECT count(*) FROM secret_keys.secret_keys WHERE merchant_id = $1 AND revoked_at IS NULL";
        assert_eq!(
            sql.query_one(active, &[&other]).await.unwrap().get::<_, i64>(0),
            0,
            "the key was revoked"
        );

        for command in ["verify", "rebuild"] {
            let report = instance.operate(&["projections", command, "secret_keys"]).await;
            let heads = sql.query_one("SELECT sum(position)::bigint FROM ledger.heads", &[]).await.unwrap();
            assert_eq!((&report["differences"], report["events"].as_i64()), (&0.into(), Some(heads.get(0))));
        }
        let all = merchant.log.after(0).await;
        for partition in [0, 1] {
            let events: Vec<_> = all.iter().filter(|event| event.partition == partition).cloned().collect();
            let stream = eventually("the feed of the partition catches up", async || {
                let stream = feed::stream_of(instance, partition).await?;
                (feed::end(&stream).await? >= events.last()?.position).then_some(stream)
            })
            .await;
            feed::check_beginning(&stream, &events).await;
        }

        let ahead = "UPDATE ledger.heads SET position = position + $1 WHERE partition = 1";
        sql.execute(ahead, &[&100_i64]).await.unwrap();
        let response = merchant.get("/v1/secret_keys").await;
        assert_eq!(
            response.head.header("x-service-stale"),
            None,
            "partition 0 does not wait for partition 1"
        );
        response.expect(200);
        sql.execute(ahead, &[&-100_i64]).await.unwrap();

        the_audit_names_the_partition(&merchant).await;
        instance.stop().await;
    });
}

async fn the_audit_names_the_partition(merchant: &Merchant) {
    let sql = &merchant.log.sql;
    let tamper = "ALTER TABLE ledger.batches DISABLE TRIGGER ALL;
        UPDATE ledger.batches SET writer = 'another' WHERE partition = 1 AND first_position = 2";
    sql.batch_execute(tamper).await.unwrap();
    let output = merchant.instance.command(&["log", "verify"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let chain = "partition 1, position 2: the hash does not follow";
    assert!(findings.iter().any(|finding| finding.starts_with(chain)), "{findings:?}");
    assert!(!findings.iter().any(|finding| finding.starts_with("partition 0") && finding.contains("hash")));
    assert_eq!(report["heads"][1]["position"], 2);
}
