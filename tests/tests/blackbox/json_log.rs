//! With `--log-format json`, whatever a process writes to stderr is a JSON object per line, also the error that ends it.

use std::process::{Command, Output, Stdio};

use farthing_tests::instance::{Instance, program};
use farthing_tests::run;
use serde_json::{Value, json};

/// Runs the program to its end, which is an error.
fn fails(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    let output = command.output().expect("the program can be run");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    output
}

/// The last line of stderr, all of whose lines are JSON.
fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut lines: Vec<Value> = text.lines().map(line).collect();
    lines.pop().unwrap_or_else(|| panic!("nothing is logged"))
}

#[test]
fn the_error_that_ends_a_process_is_a_line_of_its_log() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.ready().database_url;
        // A setting that is wrong, and a failure after the start: the address is in use.
        let listen = format!("--listen={}", instance.gateway(0));
        let in_use = ["gateway", &listen, "--log-format=json", "--no-webhooks"];
        let unusable = ["projector", "--log-format=json"];
        for (arguments, url, said) in [
            (&in_use[..], url.as_str(), "the gateway failed: cannot listen on "),
            (&unusable[..], "postgres://u:a-password@h/d?sslmode=strange", "the database URL cannot be used"),
        ] {
            let line = last_line(&fails(arguments, &[("FARTHING_DATABASE_URL", url)]));
            assert_eq!(
                (&line["level"], &line["event"]),
                (&json!("ERROR"), &json!("process.failed")),
                "{line}"
            );
            assert!(line["error"].as_str().unwrap().starts_with(said), "{line}");
            assert!(!line.to_string().contains("a-password"), "{line}");
        }
        // Nothing hides it: where the filter of the log does, it is text.
        let variables =
            [("FARTHING_DATABASE_URL", "postgres://h/d?sslmode=strange"), ("FARTHING_LOG", "off")];
        let hidden = fails(&unusable, &variables);
        let text = String::from_utf8_lossy(&hidden.stderr).into_owned();
        assert!(text.starts_with("farthing: the database URL cannot be used"), "{text}");
    });
}

#[test]
fn a_wrong_filter_of_the_log_is_reported_and_neither_it_nor_an_empty_one_hides_anything() {
    run(async {
        let url = Instance::shared().await.ready().database_url;
        let listen = format!("--listen={}", Instance::shared().await.gateway(0));
        let logged = |filter: &str| {
            let variables = [("FARTHING_DATABASE_URL", url.as_str()), ("FARTHING_LOG", filter)];
            let gateway = ["gateway", &listen, "--operator-listen=127.0.0.1:0", "--no-webhooks"];
            let output = fails(&gateway, &variables);
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let (unset, empty, wrong) = (logged("info"), logged(" "), logged("farthing_api=loud"));
        let information = "event=\"operator.listening\"";
        for text in [&unset, &empty, &wrong] {
            assert!(text.contains(information), "{text}");
        }
        let refused = |text: &str| text.contains("event=\"log.filter_refused\"");
        assert!(!refused(&unset) && !refused(&empty) && refused(&wrong), "{empty} {wrong}");
    });
}

#[test]
fn the_variable_that_leaves_webhooks_to_other_gateways_takes_the_words_for_yes_and_no_alone() {
    run(async {
        let url = Instance::shared().await.ready().database_url;
        let listen = format!("--listen={}", Instance::shared().await.gateway(0));
        let said = |value: &str, code: i32| {
            let mut gateway = Command::new(program());
            gateway.args(["gateway", &listen]).stdin(Stdio::null());
            gateway.envs([("FARTHING_DATABASE_URL", url.as_str()), ("FARTHING_NO_WEBHOOKS", value)]);
            let output = gateway.output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{value}: {output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        for value in ["1", "true", "yes", "on", "0", "false", "no", "off"] {
            assert!(said(value, 1).contains("cannot listen on "), "{value}");
        }
        assert!(said("maybe", 2).contains("--no-webhooks"));
    });
}

#[test]
fn a_secret_in_place_of_the_name_of_its_file_is_not_shown() {
    run(async {
        let url = Instance::shared().await.ready().database_url;
        let names = |arguments: &[&str], variables: &[(&str, &str)], setting: &str| {
            let output = fails(arguments, variables);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains(setting) && !text.contains("a-secret"), "{setting}: {text}");
        };
        for (flag, setting) in [
            ("--server-key-file=0123-a-secret", "--server-key-file"),
            ("--provider-key-file=openai=sk-a-secret", "--provider-key-file"),
            ("--nats-nkey-file=SUA-a-secret", "nats-nkey-file"),
            ("--nats-credentials-file=-----BEGIN a-secret", "nats-credentials-file"),
            ("--nats-ca-file=a-secret", "nats-ca-file"),
        ] {
            let arguments = ["gateway", "--nats-url=nats://127.0.0.1:1", flag];
            names(&arguments, &[("FARTHING_DATABASE_URL", &url)], setting);
        }
        let file = [("FARTHING_DATABASE_URL_FILE", "postgres://u:a-secret@h/d")];
        names(&["projector"], &file, "--database-url-file");
        // A path is shown, so that a slip in it can be found.
        let tls = format!("{url}?sslmode=require&sslcert=/nowhere/cert.pem&sslkey=a-secret");
        names(&["projector"], &[("FARTHING_DATABASE_URL", &tls)], "sslcert: /nowhere/cert.pem");
        let passfile = "postgres://u@h/d?passfile=h:1:d:u:a-secret";
        names(&["projector"], &[("FARTHING_DATABASE_URL", passfile)], "passfile: the file that was named");
    });
}
