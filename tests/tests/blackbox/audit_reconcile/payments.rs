//! Payments against the processor's own list.

use farthing_tests::books::decimal;
use farthing_tests::instance::Instance;
use farthing_tests::made_log::{MadeLog, golden};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::json;

use super::{file, reconcile, refused, result, result_on};

const CHARGES: &str =
    "SELECT payment_id, reference, amount::text, declined FROM test_processor.charge ORDER BY payment_id";

#[test]
fn payments_are_matched_with_the_processors_own_list() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let card = |number: &str| json!({"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        let card = |number: &str| json!({"card": card(number)});
        for (number, amount, status) in [
            ("4242424242424242", "25.5", 200),
            ("5555555555554444", "10", 200),
            ("4000000000000341", "30", 402),
        ] {
            merchant.post("/v1/payment_methods", &card(number)).await.expect(201);
            let funded = merchant.post("/v1/wallet/fund", &json!({"amount": amount})).await;
            assert_eq!(funded.status, status, "{funded:?}");
        }
        let charges = merchant.log.sql.query(CHARGES, &[]).await.unwrap();
        let mut rows = Vec::new();
        for row in &charges {
            let (payment, reference, amount): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let declined: Option<String> = row.get(3);
            let status = if declined.is_some() { "failed" } else { "succeeded" };
            rows.push(format!("{reference},{payment},{amount},usd,{status}"));
        }
        assert_eq!(rows.len(), 3, "{rows:?}");
        let list = |rows: &[String]| {
            format!("\u{feff}id,payment_id,amount,currency,status\r\n{}\r\n\r\n", rows.join("\r\n"))
        };
        let path = file(instance, "list.csv", &list(&rows));
        let (whole, code) = result(instance, &["--payments", &path]).await;
        assert_eq!((code, &whole["classes"]["matched"]["listed"]), (Some(0), &json!(3)), "{whole}");
        assert_eq!(whole["total"]["recorded_amount"], "35.5000000000");
        assert_eq!(whole["total"]["listed_amount"], "35.5000000000");

        // The processor lists two failed tries of a payment that succeeded: they are no difference, and take no money.
        let paid = charges.iter().find(|row| row.get::<_, Option<String>>(3).is_none()).unwrap();
        let tries = [1, 2].map(|number| {
            format!("ch_try_{number},{},{},usd,failed", paid.get::<_, &str>(0), paid.get::<_, &str>(2))
        });
        let path = file(instance, "tries.csv", &list(&[&tries[..1], &rows, &tries[1..]].concat()));
        let (whole, code) = result(instance, &["--payments", &path]).await;
        assert_eq!((code, &whole["classes"]["matched"]["listed"]), (Some(0), &json!(3)), "{whole}");
        let failed = json!({"recorded": 0, "listed": 2, "recorded_amount": "0.0000000000",
            "listed_amount": "0.0000000000"});
        assert_eq!(
            (&whole["classes"]["failed_try"], &whole["total"]["listed"]),
            (&failed, &json!(5)),
            "{whole}"
        );
        assert_eq!(whole["total"]["listed_amount"], "35.5000000000");
        let shown = String::from_utf8(reconcile(instance, &["--payments", &path]).await.stdout).unwrap();
        assert!(shown.contains("failed_try") && !shown.contains("missing"), "{shown}");

        // Another amount, a payment that is not in the list, and one that is not in the log.
        let mut other = rows.clone();
        let of_25 = other.iter().position(|row| row.contains("25.5")).unwrap();
        other[of_25] = other[of_25].replace("25.5", "26.5");
        other.retain(|row| !row.contains(",10"));
        other.push("ch_x,,7,usd,succeeded".to_owned());
        let path = file(instance, "other.csv", &list(&other));
        let (differs, code) = result(instance, &["--payments", &path]).await;
        let classes: Vec<_> = differs["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| (found["class"].as_str().unwrap(), found["listed"]["line"].as_u64()))
            .collect();
        let line_of = |text: &str| 2 + other.iter().position(|row| row.contains(text)).unwrap() as u64;
        let expected = [
            ("different", Some(line_of("26.5"))),
            ("missing_in_log", Some(line_of("ch_x"))),
            ("missing_in_list", None),
            ("matched", Some(line_of("failed"))),
        ];
        assert_eq!((code, classes), (Some(1), expected.to_vec()), "{differs}");
        let total = &differs["total"];
        assert_eq!(
            (&total["recorded_amount"], &total["listed_amount"]),
            (&json!("35.5000000000"), &json!("33.5000000000"))
        );
        for side in ["recorded", "listed"] {
            let classes = differs["classes"].as_object().unwrap().values();
            let amount = format!("{side}_amount");
            let sum: Decimal = classes.clone().map(|class| decimal(&class[&amount])).sum();
            assert_eq!(sum, decimal(&total[&amount]), "{differs}");
            let count: u64 = classes.map(|class| class[side].as_u64().unwrap()).sum();
            assert_eq!(Some(count), total[side].as_u64(), "{differs}");
        }
        let shown = String::from_utf8(reconcile(instance, &["--payments", &path]).await.stdout).unwrap();
        assert!(shown.contains("different") && shown.contains("26.5000000000"), "{shown}");
        let csv =
            String::from_utf8(reconcile(instance, &["--payments", &path, "--csv"]).await.stdout).unwrap();
        assert_eq!(csv.lines().count(), 5, "{csv}");

        // A list of successes alone, with other columns.
        let mapping = json!({
            "id": "Charge", "amount": "Cents", "in_cents": true, "status": "State",
            "statuses": {"Paid": "succeeded"}, "delimiter": ";",
        });
        let mapping = file(instance, "mapping.json", &mapping.to_string());
        let paid = charges.iter().filter(|row| row.get::<_, Option<String>>(3).is_none());
        let paid = paid.map(|row| {
            let cents = row.get::<_, &str>(2).parse::<Decimal>().unwrap() * Decimal::ONE_HUNDRED;
            format!("{};{};Paid\n", row.get::<_, String>(1), cents.normalize())
        });
        let path = file(instance, "cents.csv", &format!("Charge;Cents;State\n{}", paid.collect::<String>()));
        let arguments = ["--payments", &path, "--mapping", &mapping, "--without-failures"];
        let (matched, code) = result(instance, &arguments).await;
        assert_eq!(
            (code, &matched["classes"]["nothing_moved"]["recorded"]),
            (Some(0), &json!(1)),
            "{matched}"
        );
        assert_eq!(
            result(instance, &arguments[..4]).await.1,
            Some(1),
            "the declined payment is not in the list"
        );

        for (name, text, why) in [
            ("twice", format!("{}{}\n", list(&rows), rows[0]), "the id \""),
            (
                "thousands",
                "id,amount,status\na,\"1,000.00\",succeeded\n".to_owned(),
                "line 2, column \"amount\"",
            ),
            ("header", "id,amount\n".to_owned(), "the file has no column \"status\""),
            ("empty", String::new(), "the file is empty"),
        ] {
            let path = file(instance, &format!("{name}.csv"), &text);
            refused(instance, &["--payments", &path], why).await;
        }
        refused(instance, &["--payments", "/nowhere.csv"], "cannot read").await;
        let bad = file(instance, "bad.json", r#"{"idd": "x"}"#);
        refused(instance, &["--payments", &path, "--mapping", &bad], "unknown field `idd`").await;
        refused(instance, &["--payments", &path, "--usage", &path], "cannot be used with").await;
    });
}

#[test]
fn a_refunded_payment_is_matched_by_the_processors_id_of_the_refund() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "refunds").await;
        made.append(vec![golden("payment.requested.v1", &[("amount", json!("25.5"))])]).await;
        made.append(vec![golden("payment.voided.v1", &[])]).await;
        let list =
            |name: &str, id: &str| file(instance, name, &format!("id,amount,status\n{id},25.50,refunded\n"));
        let (found, code) = result_on(&made.database_url, &["--payments", &list("re.csv", "re_1")]).await;
        assert_eq!((code, &found["classes"]["matched"]["listed"]), (Some(0), &json!(1)), "{found}");
        assert_eq!(found["matches"][0]["recorded"]["reference"], "re_1", "{found}");
        let (other, code) = result_on(&made.database_url, &["--payments", &list("re2.csv", "re_2")]).await;
        let count = |class: &str| (&other["classes"][class]["recorded"], &other["classes"][class]["listed"]);
        assert_eq!(code, Some(1), "{other}");
        assert_eq!(count("missing_in_list"), (&json!(1), &json!(0)), "{other}");
        assert_eq!(count("missing_in_log"), (&json!(0), &json!(1)), "{other}");
    });
}
