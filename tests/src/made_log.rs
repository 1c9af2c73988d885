//! A log that a test makes: a database of its own, with a merchant, to which events are appended as they are given. No gateway
//! runs on it.

use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::event::{Event, Fact, codec};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::record;
use serde_json::Value;

use crate::instance::Instance;
use crate::log::{Log, next_hash};
use crate::scratch::operate;

const APPEND: &str = "
INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
VALUES ($1, $2, $3, $4, 'a test', $5, $6)";

const MOVE_HEAD: &str = "UPDATE ledger.heads SET position = $2, hash = $3 WHERE partition = $1";

const CAUGHT_UP: &str = "\
INSERT INTO {model}.checkpoint (partition, position, generation) SELECT partition, position, 1 FROM ledger.heads
ON CONFLICT (partition) DO UPDATE SET position = excluded.position";

/// The log.
pub struct MadeLog {
    /// The URL of its database.
    pub database_url: String,
    /// A connection as its owner.
    pub log: Log,
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The merchant's own wallet.
    pub wallet_id: String,
    /// The merchant's key.
    pub secret_key: String,
    /// The merchant's partition.
    pub partition: Partition,
}

impl MadeLog {
    /// A new database called `name`, with a merchant.
    pub async fn new(instance: &Instance, name: &str) -> Self {
        let database_url = instance.create_database(name).await;
        operate(&database_url, &["migrate", "--mode", "test"]).await;
        let log = Log::open(&database_url).await;
        let made = operate(&database_url, &["merchant", "create"]).await;
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
        let partition = log.partition_of(&text("merchant_id")).await;
        // The states are stored, and do not follow what is appended here.
        log.stored().await;
        let merchant_id = text("merchant_id").parse().expect("a merchant's id");
        let (wallet_id, secret_key) = (text("wallet_id"), text("secret_key"));
        Self { database_url, log, merchant_id, wallet_id, secret_key, partition }
    }

    /// Appends events as one record batch. They occur a millisecond apart, from now on. Returns the position of the first.
    pub async fn append(&self, events: Vec<Event>) -> i64 {
        let number = self.partition.number();
        let head = self.log.heads().await.into_iter().find(|head| head.partition == number).unwrap();
        let recorded_at = DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).unwrap();
        let (first, mut hash, mut hashes, mut lines) =
            (head.position + 1, head.hash, Vec::<u8>::new(), Vec::new());
        for ((event, position), millis) in events.into_iter().zip(first..).zip(0..) {
            let occurred_at = recorded_at + TimeDelta::milliseconds(millis);
            let mut line = String::new();
            record::write(&Fact { merchant_id: self.merchant_id, occurred_at, event }, &mut line);
            hash = next_hash(&hash, position, recorded_at.timestamp_micros(), "a test", &line);
            hashes.extend(&hash);
            lines.push(line);
        }
        let (count, events) = (i32::try_from(lines.len()).unwrap(), lines.join("\n").into_bytes());
        let sql = &self.log.sql;
        sql.execute(APPEND, &[&number, &first, &count, &recorded_at, &events, &hashes]).await.unwrap();
        let last = first + i64::from(count) - 1;
        sql.execute(MOVE_HEAD, &[&number, &last, &hash]).await.unwrap();
        let stored = "UPDATE ledger.checkpoints SET position = $2 WHERE partition = $1";
        sql.execute(stored, &[&number, &last]).await.unwrap();
        first
    }

    /// Folds a read model to the present end of the log. No projector runs here.
    pub async fn project(&self, model: &str) {
        self.log.sql.batch_execute(&CAUGHT_UP.replace("{model}", model)).await.unwrap();
        operate(&self.database_url, &["projections", "rebuild", model]).await;
    }
}

/// The event of a golden file, such as `payment.voided.v1`, with other values of members of its body.
pub fn golden(file: &str, changes: &[(&str, Value)]) -> Event {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ledger/core/tests/golden");
    let text = std::fs::read_to_string(folder.join(format!("{file}.json"))).unwrap();
    let mut body: Value = serde_json::from_str(&text).unwrap();
    for (name, value) in changes {
        body[*name] = value.clone();
    }
    let (kind, _) = file.split_once(".v1").expect("a golden file has a version");
    codec::decode(kind, 1, &body.to_string()).unwrap()
}
