//! No secret is in the log of a process, in either format and at the level debug, whatever goes wrong.

use farthing_core::secret::SECRETS_BEGIN;
use farthing_tests::client::Request;
use farthing_tests::codings::gzip;
use farthing_tests::instance::Instance;
use farthing_tests::link::free_address;
use farthing_tests::merchant::{forward, token};
use farthing_tests::nats_server::NatsServer;
use farthing_tests::provider::{json as answer, whole};
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tenant::Tenant;
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::{Value, json};

/// All lines, also those of libraries.
const LEVEL: &str = "FARTHING_LOG=debug";

/// Secrets of the test, and what else is nobody's business.
const CALLERS_KEY: &str = "sk-a-callers-own-key";
const MANAGED_KEY: &str = "sk-a-managed-key";
const DATABASE_PASSWORD: &str = "a-password-of-postgres";
const NATS_PASSWORD: &str = "a-password-of-nats";
const CARD: &str = "4000000000000341";
const EMAIL: &str = "ada@private.example";
const PROMPT: &str = "a private thought";
const QUERY: &str = "a-private-query";
const UNKNOWN_KEY: &str = "aks_test_nobodyHasThisKey0123456789abcdef";

/// Makes every row of a table wrong, and then not.
const BREAK: &str = "ALTER TABLE {table} ADD CONSTRAINT broken CHECK (false) NOT VALID";
const MEND: &str = "ALTER TABLE {table} DROP CONSTRAINT broken";

/// The table of customers that the projector writes.
const CUSTOMERS: &str = "SELECT schema_name || '.customers' FROM ledger.read_models WHERE name = 'customers'";

/// Ends all other sessions of the database.
const END_SESSIONS: &str = "\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'farthing\\_%'";

#[test]
fn no_secret_is_logged_as_text() {
    run(nothing_is_logged_in("text"));
}

#[test]
fn no_secret_is_logged_as_json() {
    run(nothing_is_logged_in("json"));
}

async fn nothing_is_logged_in(format: &str) {
    let instance = Instance::shared().await;
    let tenant = Tenant::on(instance, &format!("logged_secrets_{format}"), "test").await;
    let funds = ["wallet", "credit", "--merchant", &tenant.id, "--amount", "100", "--reason", "a test"];
    operate(&tenant.database_url, &funds).await;
    let sql = &tenant.log.sql;
    let server_key: String =
        sql.query_one("SELECT server_key FROM ledger.instance", &[]).await.unwrap().get(0);
    let login = instance.name_of(&format!("logged_{format}"));
    let create = format!(
        "CREATE ROLE {login} LOGIN PASSWORD '{DATABASE_PASSWORD}'; GRANT farthing_gateway, farthing_projector TO {login}"
    );
    sql.batch_execute(&create).await.unwrap();
    let (_, server) = tenant.database_url.split_once('@').unwrap();
    let database_url = format!("postgres://{login}:{DATABASE_PASSWORD}@{server}");
    let users = format!("authorization {{ users: [{{ user: farthing, password: \"{NATS_PASSWORD}\" }}] }}");
    let nats = NatsServer::start(instance, &users).await;
    let nats_url = format!("nats://farthing:{NATS_PASSWORD}@127.0.0.1:{}", nats.port);
    let log_format = format!("--log-format={format}");
    let servers = ["--database-url", &database_url, "--nats-url", &nats_url, &log_format];
    let wrapper = ["env", LEVEL];
    let projector = SideProjector::under(instance, &wrapper, &servers).await;
    let flags = [
        format!("--provider-host=openai={}", instance.openai.authority()),
        instance.provider_key("openai", MANAGED_KEY),
        format!("--server-key-file={}", instance.secret_file(&server_key)),
        "--allow-address=127.0.0.0/8".to_owned(),
        "--webhook-timeout-seconds=5".to_owned(),
        "--pages-url=https://pay.example".to_owned(),
    ];
    let gateway =
        SideGateway::under(instance, &wrapper, &servers, &flags.each_ref().map(String::as_str)).await;

    let mut secrets = things_go_wrong(instance, &tenant, &gateway).await;
    secrets.extend([CALLERS_KEY, MANAGED_KEY, DATABASE_PASSWORD, NATS_PASSWORD].map(str::to_owned));
    secrets.extend([CARD, EMAIL, PROMPT, QUERY, UNKNOWN_KEY, &server_key].map(str::to_owned));
    secrets.extend(SECRETS_BEGIN.map(str::to_owned));

    // A row that Postgres refuses and shows, and sessions that it ends.
    let table: String = sql.query_one(CUSTOMERS, &[]).await.unwrap().get(0);
    sql.batch_execute(&BREAK.replace("{table}", &table)).await.unwrap();
    let customer = json!({"reference_id": "bob", "email": EMAIL});
    tenant.post(gateway.address, "/v1/customers", &customer).await.expect(201);
    let has_logged = async |logged: &dyn Fn() -> String, event: &str| {
        eventually_ok("the line is logged", async || {
            let log = logged();
            if log.contains(&format!("\"{event}\"")) { Ok(()) } else { Err(format!("{event}: {log}")) }
        })
        .await;
    };
    has_logged(&|| projector.logged(), "projection.restarted").await;
    sql.batch_execute(&MEND.replace("{table}", &table)).await.unwrap();
    sql.query(END_SESSIONS, &[]).await.unwrap();
    has_logged(&|| gateway.logged(), "postgres.connection_lost").await;
    for event in ["settings.chosen", "forward.provider_unreachable", "forward.decoding_failed"] {
        has_logged(&|| gateway.logged(), event).await;
    }
    for log in [gateway.logged(), projector.logged()] {
        assert_eq!(log.starts_with('{'), format == "json", "{log}");
        for secret in &secrets {
            let lines: Vec<_> = log.lines().filter(|line| line.contains(secret)).collect();
            assert!(lines.is_empty(), "{secret} is logged as {format}: {lines:#?}");
        }
    }
    drop((gateway, projector));
    sql.batch_execute(&format!("DROP OWNED BY {login}; DROP ROLE {login}")).await.unwrap();
}

/// Calls and writes of all kinds, most of which fail. Returns the secrets that were made for them.
async fn things_go_wrong(instance: &Instance, tenant: &Tenant, gateway: &SideGateway) -> Vec<String> {
    let address = gateway.address;
    let text = |value: &Value, name: &str| -> String {
        value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}")).to_owned()
    };
    let post = async |path: &str, body: Value| tenant.post(address, path, &body).await;
    let nowhere = free_address();
    let webhook =
        post("/v1/webhooks", json!({"url": format!("http://{nowhere}/?{QUERY}")})).await.expect(201);
    let customer = post("/v1/customers", json!({"reference_id": "ada", "email": EMAIL})).await.expect(201);
    let customer_id = text(&customer, "customer_id");
    let meter = json!({"name": "m", "rate_type": "fixed", "tier_type": "requests",
        "service_charge_payer": "merchant", "tiers": [{"start": 0, "rate": "1"}]});
    let meter = post("/v1/meters", meter).await.expect(201);
    let spend_key =
        post("/v1/spend_keys", json!({"name": "k", "customer_id": customer_id})).await.expect(201);
    let session = json!({"checkout_mode": "onboarding", "origin_url": "https://app.example"});
    let session = post("/v1/checkout_sessions", session).await.expect(201);
    let card = json!({"card": {"number": CARD, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
    post("/v1/payment_methods", card).await.expect(201);
    post("/v1/wallet/fund", json!({"amount": "10"})).await.refused(402, "payment_declined");

    // The provider is away; its compressed answer is broken; it refuses; and calls that are refused before.
    let billing = token(&json!({"secret_key": tenant.secret_key, "customer_id": customer_id,
        "meter_slug": meter["meter_slug"], "provider_key": CALLERS_KEY}));
    let mut packed = gzip(b"{}");
    packed[10..].fill(0xff);
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let broken = instance.provider.endpoint(move |_| whole(200, &headers, &packed));
    let refusing = instance.openai.endpoint(|_| answer(401, &json!({"error": CALLERS_KEY})));
    let prompt =
        json!({"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5});
    for (url, credential, status) in [
        (format!("http://{nowhere}/?{QUERY}"), tenant.secret_key.as_str(), 502),
        (format!("{}?{QUERY}", broken.url), tenant.secret_key.as_str(), 200),
        (format!("{}?{QUERY}", refusing.url), tenant.secret_key.as_str(), 401),
        (format!("http://10.0.0.1/?{QUERY}"), tenant.secret_key.as_str(), 400),
        (format!("{}?{QUERY}", refusing.url), billing.as_str(), 402),
        (format!("http://{nowhere}/?key={}", tenant.secret_key), tenant.secret_key.as_str(), 400),
        (format!("http://{nowhere}/?{QUERY}"), UNKNOWN_KEY, 401),
        (format!("http://{nowhere}/?{QUERY}"), text(&spend_key, "key").as_str(), 502),
    ] {
        let call = forward("POST", &url).header("x-api-key", CALLERS_KEY).bearer(credential).json(&prompt);
        let response = call.send(address).await.unwrap();
        assert_eq!(response.status, status, "{url}: {}", response.text());
    }
    let managed = Request::new("POST", "/v1/chat/completions").bearer(&tenant.secret_key).json(&prompt);
    managed.send(address).await.unwrap();
    // The webhook is tried, and is not there.
    let path = format!("/v1/webhooks/{}/deliveries", text(&webhook, "webhook_id"));
    eventually("a delivery has failed", async || {
        let listed = tenant.rest(address, Request::new("GET", path.clone())).await;
        let tried =
            listed.json()["data"].as_array()?.iter().any(|delivery| delivery["attempts"].as_u64() >= Some(1));
        tried.then_some(())
    })
    .await;
    let url = text(&session, "url");
    let connection = tenant.rest(address, Request::new("GET", "/v1/connections/ada")).await.expect(200);
    vec![
        tenant.secret_key.clone(),
        billing,
        text(&connection, "connection_secret"),
        text(&meter, "product_secret"),
        text(&spend_key, "key"),
        text(&webhook, "webhook_secret"),
        url.rsplit('/').next().unwrap().to_owned(),
    ]
}
