//! Usage and cost against a provider's export, by day and model.

use chrono::Days;
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{json as answer_json, json_text};
use farthing_tests::run;
use serde_json::{Value, json};

use super::{file, refused, result};

#[test]
fn usage_is_compared_by_day_and_model() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        for (model, input, output) in [("big", 1_000, 10), ("big", 500, 5), ("small", 7, 0)] {
            let answer = json!({"model": model, "usage": {"input_tokens": input, "output_tokens": output}});
            let endpoint = instance.provider.endpoint(move |_| answer_json(200, &answer));
            merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        }
        merchant.nothing_is_held().await;
        let opened = merchant.of_kind("request.opened").await;
        let days: Vec<_> = opened.iter().map(|event| event.occurred_at.date_naive().to_string()).collect();
        let mapping = json!({"day": "day", "model": "model", "requests": ["n"], "input_tokens": ["plain", "cached"],
            "output_tokens": ["out"], "models": {"Big One": "big"}});
        let mapping = file(instance, "mapping.json", &mapping.to_string());
        let head = "day,model,n,plain,cached,out\n";
        let rows = [
            format!("{},Big One,1,900,100,10\n", days[0]),
            format!("{},big,1,500,0,5\n", days[1]),
            format!("{},small,1,7.0,,0\n", days[2]),
        ];
        let usage = async |name: &str, rows: &[String], more: &[&str]| {
            let path = file(instance, name, &format!("{head}{}", rows.concat()));
            let arguments = ["--usage", &path, "--provider", "other", "--mapping", &mapping, "--keys", "all"];
            result(instance, &[&arguments, more].concat()).await
        };
        let (same, code) = usage("same.csv", &rows, &[]).await;
        assert_eq!(
            (code, &same["ok"], &same["classes"]["matched"]["rows"]),
            (Some(0), &json!(true), &json!(3)),
            "{same}"
        );
        assert_eq!(
            same["total"]["listed"],
            json!({"requests": "3", "input_tokens": "1507", "output_tokens": "15"})
        );

        let mut other = rows[..2].to_vec();
        other[1] = other[1].replace(",500,", ",501,");
        other.push(format!("{},third,1,1,1,1\n", days[2]));
        let (differs, code) = usage("other.csv", &other, &[]).await;
        let classes: Vec<_> = differs["matches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| (found["class"].as_str().unwrap(), found["model"].as_str().unwrap()))
            .collect();
        let expected = [("different", "big"), ("missing_in_log", "third"), ("missing_in_list", "small")];
        assert_eq!((code, classes), (Some(1), expected.to_vec()), "{differs}");
        assert_eq!(differs["matches"][0]["difference"]["input_tokens"], "1", "{differs}");

        // Rows outside of the period are left out, and counted.
        let next = opened[2].occurred_at.date_naive() + Days::new(1);
        let (none, code) =
            usage("later.csv", &rows, &["--from", &next.to_string(), "--to", "2100-01-01"]).await;
        assert_eq!((code, &none["rows_outside_period"]), (Some(0), &json!(3)), "{none}");

        let path = file(instance, "bad.csv", &format!("{head}soon,m,1,1,1,1\n"));
        let arguments = ["--usage", &path, "--provider", "other", "--mapping", &mapping];
        refused(instance, &arguments, "line 2, column \"day\": \"soon\" is not a date").await;
        refused(instance, &arguments[..4], "no columns are built in for \"other\"").await;
        refused(instance, &arguments[..2], "--provider").await;
        let noon = [&arguments[..], &["--from", "2026-11-01T12:00:00Z"]].concat();
        let fine = file(instance, "bad.csv", &format!("{head}2026-11-02,m,1,1,1,1\n"));
        assert_eq!(fine, path);
        refused(instance, &noon, "--from must be a day").await;
    });
}

#[test]
fn the_exports_of_openai_are_compared_with_managed_calls() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        // The usage of other tests is of other models.
        let model = format!("gpt-4o-of-{}", merchant.id);
        let answer = format!(
            r#"{{"model":"{model}","usage":{{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
            "prompt_tokens_details":{{"cached_tokens":1920}}}}}}"#
        );
        let answer: &'static str = answer.leak();
        let endpoint = managed.openai.endpoint(move |_| json_text(200, answer));
        let response = managed.ask(&merchant.secret_key, &endpoint.url, "gpt-4o").await;
        let metered = merchant.charged(&response).await;
        let opened = merchant.of_kind("request.opened").await;
        let day = opened[0].occurred_at.date_naive();
        let tokens = format!(
            "start_time_iso,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens\n\
             {day}T00:00:00+00:00,1.0,{model},2006.0,300.0,1920.0\n"
        );
        let cost = format!(
            "start_time_iso,amount_value,amount_currency,line_item\n\
             {day}T00:00:00+00:00,{},usd,\"{model}, input\"\n{day}T00:00:00+00:00,{}000,usd,\"{model}, output\"\n",
            metered["model_cost"]["input"].as_str().unwrap(),
            metered["model_cost"]["output"].as_str().unwrap(),
        );
        for (name, text, figure, value) in
            [("tokens", &tokens, "cache_read_tokens", "1920"), ("cost", &cost, "cost", "0.005615")]
        {
            let path = file(merchant.instance, &format!("{}-{name}.csv", merchant.id), text);
            let (report, _) = result(merchant.instance, &["--usage", &path, "--provider", "openai"]).await;
            let matches = report["matches"].as_array().unwrap();
            let own: Vec<_> = matches.iter().filter(|found| found["model"] == json!(model)).collect();
            assert_eq!(own.len(), 1, "{report}");
            assert_eq!(
                (&own[0]["class"], &own[0]["recorded"][figure]),
                (&json!("matched"), &json!(value)),
                "{report}"
            );
        }
        // Calls on keys of the callers do not count.
        let path = file(merchant.instance, &format!("{}-keys.csv", merchant.id), &tokens);
        let arguments = ["--usage", &path, "--provider", "openai", "--keys", "unmanaged"];
        let (report, code) = result(merchant.instance, &arguments).await;
        let matches = report["matches"].as_array().unwrap();
        let own = matches.iter().find(|found| found["model"] == json!(model)).unwrap();
        assert_eq!((code, &own["class"]), (Some(1), &json!("missing_in_log")), "{report}");
    });
}

/// The match of this model in a report.
fn of_model<'r>(report: &'r Value, model: &str) -> &'r Value {
    let matches = report["matches"].as_array().unwrap();
    let mut own = matches.iter().filter(|found| found["model"] == json!(model));
    let found = own.next().unwrap_or_else(|| panic!("{model}: {report}"));
    assert!(own.next().is_none(), "{model}: {report}");
    found
}

#[test]
fn the_exports_of_anthropic_are_compared_with_managed_calls() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        // The usage of other tests is of other models.
        let model = format!("claude-haiku-4-5-of-{}", merchant.id);
        let answer = format!(
            r#"{{"id":"msg_1","model":"{model}","usage":{{"input_tokens":10000,"cache_creation_input_tokens":8000,
            "cache_read_input_tokens":100000,"output_tokens":400}}}}"#
        );
        let answer: &'static str = answer.leak();
        let endpoint = managed.anthropic.endpoint(move |_| json_text(200, answer));
        let response = managed.ask(&merchant.secret_key, &endpoint.url, "claude-haiku-4-5").await;
        // Three times a cent for the input, the cache's writes and its reads, and a fifth of one for the output.
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], "0.0320000000");
        let day = merchant.of_kind("request.opened").await[0].occurred_at.date_naive();
        let export = |name: &str, text: &str| {
            file(
                merchant.instance,
                &format!("{}-{name}.csv", merchant.id),
                &text.replace("{day}", &day.to_string()),
            )
        };
        let compare = async |path: &str, more: &[&str]| {
            let arguments = ["--usage", path, "--provider", "anthropic"];
            result(merchant.instance, &[&arguments, more].concat()).await.0
        };

        // A row for each key, and one of a day without usage.
        let header = "usage_date_utc,model_version,api_key,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,\
            usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens\n";
        let rows =
            format!("{{day}},{model},one,9000,7000,900,100000,400\n{{day}},{model},two,1000,0,100,0,0\n");
        let same = compare(&export("tokens", &format!("{header}{rows}{{day}},,,,,,,\n")), &[]).await;
        let found = of_model(&same, &model);
        assert_eq!(found["class"], "matched", "{same}");
        for (figure, value) in [
            ("input_tokens", "118000"),
            ("cache_read_tokens", "100000"),
            ("cache_write_tokens", "8000"),
            ("output_tokens", "400"),
        ] {
            assert_eq!(found["recorded"][figure], value, "{figure}: {same}");
        }
        assert_eq!(same["idle_rows"], 1, "{same}");
        let fewer = rows.replace(",900,", ",899,");
        let differs = compare(&export("fewer", &format!("{header}{fewer}")), &[]).await;
        let found = of_model(&differs, &model);
        assert_eq!(
            (&found["class"], &found["difference"]["cache_write_tokens"]),
            (&json!("different"), &json!("-1"))
        );
        assert_eq!(found["difference"]["input_tokens"], "-1", "{differs}");

        // Costs are in whole cents, under the names that people read.
        let shown = format!("Claude of {}", merchant.id);
        let header = "usage_date_utc,model,token_type,cost_usd\n";
        let kinds = [("input", "0.01"), ("cache write", "0.01"), ("cache read", "0.01"), ("output", "0.00")];
        let rows: String = kinds.map(|(kind, cost)| format!("{{day}},{shown},{kind},{cost}\n")).concat();
        let cost = export("cost", &format!("{header}{rows}"));
        let unnamed = compare(&cost, &[]).await;
        assert_eq!(of_model(&unnamed, &shown)["class"], "missing_in_log", "{unnamed}");
        assert_eq!(of_model(&unnamed, &model)["class"], "missing_in_list", "{unnamed}");
        let mapping = json!({"day": "usage_date_utc", "model": "model", "cost": ["cost_usd"], "models": {(&shown): model}});
        let mapping = file(merchant.instance, &format!("{}-mapping.json", merchant.id), &mapping.to_string());
        let exact = compare(&cost, &["--mapping", &mapping]).await;
        let found = of_model(&exact, &model);
        assert_eq!(
            (&found["class"], &found["difference"]["cost"]),
            (&json!("different"), &json!("-0.002")),
            "{exact}"
        );
        let near = compare(&cost, &["--mapping", &mapping, "--tolerance", "0.002"]).await;
        assert_eq!(of_model(&near, &model)["class"], "matched", "{near}");
    });
}
