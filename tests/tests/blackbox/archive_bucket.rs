//! An archive in a bucket: a real object store with the interface of S3, which checks signatures, behind TLS.

use std::process::Stdio;

use farthing_tests::bucket::{KEY_ID, ObjectStore, SECRET};
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::tls::{Authority, Validity};
use farthing_tests::wait::eventually;
use farthing_tests::{left_out, run};
use serde_json::{Value, json};

const ARCHIVE: &str = "s3://ledgers/the first";

/// The content of the record batches of partition $1.
const CONTENT: &str = "\
SELECT count(*), coalesce(md5(string_agg(md5(b::text), '' ORDER BY b.first_position)), '')
FROM ledger.batches AS b WHERE b.partition = $1 AND b.first_position <= $2";

/// The files of the archive of partition $1.
const OBJECTS: &str = "SELECT object FROM ledger.archived WHERE partition = $1 ORDER BY first_position";

/// How a command reaches the bucket.
#[derive(Clone)]
struct Variables(Vec<(&'static str, String)>);

impl Variables {
    fn but(&self, name: &'static str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.retain(|(each, _)| *each != name);
        all.push((name, value.to_owned()));
        Self(all)
    }

    /// The exit code, the report and the errors of a command.
    async fn run(&self, instance: &Instance, arguments: &[&str]) -> (Option<i32>, Value, String) {
        let mut command = tokio::process::Command::new(program());
        command.args(arguments).args(["--archive", ARCHIVE, "--json"]);
        command.args(["--database-url", &instance.ready().database_url]);
        command.envs(self.0.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        let output = command.output().await.unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn an_archive_in_a_bucket_is_written_read_and_restored() {
    run(async {
        let instance = Instance::of_test(1).await;
        let Some(store) = ObjectStore::start(&instance.file("object store")).await else {
            return left_out("an archive in a bucket: SeaweedFS is not installed (tests/bucket/install)");
        };
        let merchant = Merchant::of(instance).await;
        for _ in 0..8 {
            merchant.credit_own("1").await;
        }
        let (of, sql) = (merchant.partition().await, &merchant.log.sql);
        let partition = of.to_string();
        let last: i64 = sql
            .query_one("SELECT position - 2 FROM ledger.heads WHERE partition = $1", &[&of])
            .await
            .unwrap()
            .get(0);
        let content = async || -> (i64, String) {
            let row = sql.query_one(CONTENT, &[&of, &last]).await.unwrap();
            (row.get(0), row.get(1))
        };
        let before = content().await;

        let authority = Authority::new();
        let front = authority.front(&store.address.to_string(), &["localhost"], Validity::Now).await;
        let authorities = authority.write_to(&instance.file("authority.pem"));
        let variables = Variables(vec![
            ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "eu-central-1".to_owned()),
            ("AWS_ENDPOINT_URL", format!("https://localhost:{}", front.port())),
            ("SSL_CERT_FILE", authorities.to_str().unwrap().to_owned()),
        ]);
        let to = last.to_string();
        let create = ["archive", "create", "--partition", &partition, "--to", &to, "--keep-events", "0"];

        // Nothing leaves the log for a store that refuses, that nobody vouches for, or that would get the events unencrypted.
        let plain = format!("http://{}", store.address);
        for (variables, why) in [
            (variables.but("AWS_SECRET_ACCESS_KEY", "another secret"), "ignature"),
            (variables.but("SSL_CERT_FILE", "/dev/null"), "certificate"),
            (variables.but("AWS_ENDPOINT_URL", &plain), "AWS_ALLOW_HTTP=true"),
        ] {
            let refused = eventually("a range can be archived", async || {
                let (code, report, errors) = variables.run(instance, &create).await;
                // Without anything to archive, the store is not asked.
                (code != Some(0)).then_some((code, report, errors))
            });
            let (code, report, errors) = refused.await;
            assert_eq!(code, Some(2), "{why}: {report} {errors}");
            assert!(errors.contains(why) && errors.contains(ARCHIVE), "{why}: {errors}");
            assert!(!errors.contains(SECRET) && !errors.contains("another secret"), "{errors}");
            assert_eq!(content().await, before, "{why}");
        }

        eventually("the range is archived", async || {
            let (code, report, errors) = variables.run(instance, &create).await;
            assert_eq!(code, Some(0), "{report} {errors}");
            (content().await.0 < before.0).then_some(())
        })
        .await;
        assert!(front.asked_for().iter().all(|host| host.as_deref() == Some("localhost")));
        let objects = sql.query(OBJECTS, &[&of]).await.unwrap();
        let objects: Vec<String> = objects.iter().map(|row| row.get(0)).collect();
        let object = format!("ledgers/the%20first/{}", objects[0]);
        assert!(store.object(&object).await.is_some(), "{object}");

        for command in [["archive", "verify"], ["audit", "verify"]] {
            let (code, report, errors) = variables.run(instance, &command).await;
            assert_eq!(code, Some(0), "{command:?}: {report} {errors}");
        }
        // The rows come back from the bucket as they were.
        let restore = ["archive", "restore", "--partition", &partition];
        let (code, report, errors) = variables.run(instance, &restore).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        assert_eq!(content().await, before);
        eventually("the range is archived again, without TLS", async || {
            let variables = variables.but("AWS_ENDPOINT_URL", &plain).but("AWS_ALLOW_HTTP", "true");
            let (code, report, errors) = variables.run(instance, &create).await;
            assert_eq!(code, Some(0), "{report} {errors}");
            (content().await.0 < before.0).then_some(())
        })
        .await;

        store.delete(&object).await;
        let (code, report, errors) = variables.run(instance, &["archive", "verify"]).await;
        assert_eq!(code, Some(1), "{report} {errors}");
        assert_eq!(report["findings"][0]["object"], json!(objects[0]), "{report}");
        let (code, report, errors) = variables.run(instance, &["audit", "verify"]).await;
        assert_eq!(code, Some(1), "{report} {errors}");
    });
}
