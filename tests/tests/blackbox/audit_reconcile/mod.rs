//! `farthing audit reconcile`: calls that somebody must look at, payments against the processor's list, and usage against a
//! provider's export. Every row is in one class, and the classes add up.

mod calls;
mod payments;
mod usage;

use std::process::{Output, Stdio};

use farthing_tests::instance::{Instance, program};
use serde_json::Value;

/// Runs `farthing audit reconcile`.
async fn reconcile(instance: &Instance, arguments: &[&str]) -> Output {
    reconcile_on(&instance.ready().database_url, arguments).await
}

async fn reconcile_on(database_url: &str, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(["audit", "reconcile"]).args(arguments).args(["--database-url", database_url]);
    command.stdin(Stdio::null()).output().await.unwrap()
}

/// The JSON that it prints, with its exit code.
async fn result(instance: &Instance, arguments: &[&str]) -> (Value, Option<i32>) {
    result_on(&instance.ready().database_url, arguments).await
}

async fn result_on(database_url: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = reconcile_on(database_url, &[arguments, &["--json"]].concat()).await;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let result = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
    (result, output.status.code())
}

async fn refused(instance: &Instance, arguments: &[&str], why: &str) {
    let output = reconcile(instance, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
}

/// A file of the instance with this text; its path.
fn file(instance: &Instance, name: &str, text: &str) -> String {
    let path = instance.file(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
