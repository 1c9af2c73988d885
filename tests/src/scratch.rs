//! A separate database on an instance's server, with a merchant whose read models are filled with synthetic requests, for tests
//! of very long lists.

use std::process::Stdio;

use serde_json::Value;
use tokio_postgres::{Client, NoTls};

use crate::instance::{Instance, program};
use crate::log::partition_of;

/// Requests in the order of their numbers, five seconds apart, of a hundred customers and five meters. All have the metadata
/// `env`, one in a hundred a shared `team`, one in a hundred thousand `rare`. The rows are as the projection writes them; they
/// have no log.
const FILL: &str = "
    CREATE FUNCTION pg_temp.id(prefix text, number bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$ SELECT prefix || '_01' || lpad(number::text, 24, '0') $$;
    CREATE FUNCTION pg_temp.part(text text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
        $$ SELECT int8send(octet_length(text)::bigint) || convert_to(text, 'UTF8') $$;
    CREATE TEMPORARY TABLE made AS
        SELECT n, pg_temp.id('req', n) AS request_id, now() - make_interval(secs => 5 * ({count} - n)) AS created_at,
               jsonb_build_object('env', 'production', 'team', 'team ' || n % 100)
                   || CASE WHEN n % 100000 = 1 THEN '{\"rare\": \"yes\"}'::jsonb ELSE '{}' END AS metadata
        FROM generate_series(1, {count}) AS n;
    INSERT INTO requests.opened
        (partition, request_id, merchant_id, connection_id, product_id, created_at, charge, provider, provider_key_type, endpoint,
         model, rate_type, tier_type, token_basis, base_cost_payer, service_charge_payer, metadata)
    SELECT {partition}, request_id, '{merchant}', pg_temp.id('con', n % 100), pg_temp.id('prd', n % 5), created_at,
           'customer_billing', 'openai', 'unmanaged', 'POST https://provider.example/v1/chat/completions', 'model-1',
           'fixed', 'requests', 'input+output', 'wallet', 'wallet', metadata
    FROM made ORDER BY n;
    INSERT INTO requests.ended
        (partition, request_id, status, ended_at, http_status, response_id, model, usage, total_tokens, units, breakdown,
         service_charge_payer, input_cost, output_cost, model_cost, fee_amount, service_charge_amount,
         total_request_cost, total_wallet_cost, total_merchant_cost, overrun)
    SELECT {partition}, request_id, 'completed', created_at + interval '1 second', 200, 'answer-' || n, 'model-1',
           '{\"tokens\":{\"input\":120,\"output\":450},\"characters\":{\"input\":0,\"output\":0},\"seconds\":{\"input\":\"0\",\"output\":\"0\"}}',
           570, 1, '[{\"tier\":{\"start\":\"0\",\"rate\":\"0.1000000000\"},\"units\":\"1\",\"cost\":\"0.1000000000\"}]',
           'wallet', 0, 0, 0, 0.1, 0.0019, 0.1019, 0.1019, 0, 0
    FROM made ORDER BY n;
    INSERT INTO requests.metadata_pairs (partition, pair, created_at, request_id, connection_id, product_id)
    SELECT {partition}, substring(sha256(pg_temp.part('{merchant}') || pg_temp.part(key) || pg_temp.part(value)) FOR 16),
           created_at, request_id, pg_temp.id('con', n % 100), pg_temp.id('prd', n % 5)
    FROM made CROSS JOIN LATERAL jsonb_each_text(metadata) ORDER BY n;
    DROP TABLE made;";

/// Marks every read model as caught up: no projector runs here.
const CAUGHT_UP: &str = "\
INSERT INTO {model}.checkpoint (partition, position, generation) SELECT partition, position, 1 FROM ledger.heads
ON CONFLICT (partition) DO UPDATE SET position = excluded.position";

/// The schemas of the read models.
const MODELS: &str =
    "SELECT table_schema::text FROM information_schema.tables WHERE table_name = 'checkpoint'";

/// The database, migrated, with a merchant.
pub struct Scratch {
    /// Its URL.
    pub database_url: String,
    /// A connection as its owner.
    pub sql: Client,
    /// `mer_…`
    pub merchant_id: String,
    /// The merchant's key.
    pub secret_key: String,
}

impl Scratch {
    /// A database called `name`, which must be new, with a merchant of `count` requests.
    pub async fn filled(instance: &Instance, name: &str, count: u64) -> Self {
        let database_url = instance.create_database(name).await;
        operate(&database_url, &["migrate", "--mode", "test"]).await;
        let made = operate(&database_url, &["merchant", "create"]).await;
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{name} in {made}")).to_owned();
        let (sql, connection) =
            tokio_postgres::connect(&database_url, NoTls).await.expect("the database can be opened");
        tokio::spawn(connection);
        let scratch =
            Self { database_url, sql, merchant_id: text("merchant_id"), secret_key: text("secret_key") };
        scratch.fill(count).await;
        scratch
    }

    async fn fill(&self, count: u64) {
        let partition = self.partition().await;
        let fill = FILL.replace("{count}", &count.to_string()).replace("{merchant}", &self.merchant_id);
        let fill = fill.replace("{partition}", &partition.to_string());
        self.sql.batch_execute(&fill).await.expect("synthetic rows fit");
        for row in self.sql.query(MODELS, &[]).await.expect("the read models exist") {
            let caught_up = CAUGHT_UP.replace("{model}", row.get(0));
            self.sql.batch_execute(&caught_up).await.expect("a checkpoint can be moved");
        }
        self.sql.batch_execute("VACUUM ANALYZE").await.expect("tables can be vacuumed");
    }

    /// The partition of its merchant.
    pub async fn partition(&self) -> i16 {
        let partitions = self.sql.query_one("SELECT count(*) FROM ledger.heads", &[]).await;
        partition_of(&self.merchant_id, partitions.expect("the log has heads").get(0))
    }

    /// The id of a request by its number, from 1.
    pub fn request(number: u64) -> String {
        format!("req_01{number:024}")
    }

    /// Creates another key of the merchant.
    pub async fn further_key(&self) -> String {
        let issued = operate(&self.database_url, &["key", "issue", "--merchant", &self.merchant_id]).await;
        self.sql
            .batch_execute(&CAUGHT_UP.replace("{model}", "requests"))
            .await
            .expect("a checkpoint can be moved");
        issued["secret_key"].as_str().expect("a key").to_owned()
    }
}

/// Runs a command of the program on a database and returns its output.
pub async fn operate(database_url: &str, arguments: &[&str]) -> Value {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--json", "--database-url", database_url]).stdin(Stdio::null());
    let output = command.output().await.expect("the program can be run");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an answer in JSON")
}
