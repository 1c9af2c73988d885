//! In test mode a merchant has its own clock. The creation times in the response of every documented POST, and in later reads,
//! are by that clock.

use chrono::{DateTime, Utc};
use farthing_tests::document::Document;
use farthing_tests::run;
use serde_json::{Value, json};

use super::scene::Scene;
use super::{documented, own_cases, provoker};

/// How far the clock is ahead: months and cycles differ.
const AHEAD_SECONDS: i64 = 100 * 86_400;

/// The creation times in a response.
const MADE: [&str; 3] = ["created_at", "started_at", "cycle_start_at"];

async fn put_forward(scene: &Scene, seconds: i64) -> DateTime<Utc> {
    let answer =
        scene.merchant.post("/v1/test_clock", &json!({"advance_seconds": seconds})).await.expect(200);
    answer["now"].as_str().unwrap().parse().unwrap()
}

#[test]
fn every_post_shows_creation_times_by_the_merchants_clock() {
    run(async {
        let own = own_cases();
        let mut held = 0;
        for operation in Document::served().await.standard() {
            if operation.method != "POST" {
                continue;
            }
            for answer in documented(&operation).into_iter().filter(|answer| answer.starts_with('2')) {
                let scene = Scene::new().await;
                let before = put_forward(&scene, AHEAD_SECONDS).await;
                let call = provoker(&own, &operation, &answer).unwrap()(&scene, &operation).await;
                let shown = call.request.send(call.to).await.unwrap();
                assert_eq!(shown.status.to_string(), answer, "{}: {}", operation.name(), shown.text());
                let shown = shown.json();
                let after = put_forward(&scene, 1).await;
                for name in MADE {
                    let Some(at) = shown[name].as_str() else { continue };
                    let at: DateTime<Utc> = at.parse().unwrap();
                    assert!(before <= at && at <= after, "{} {answer} {name}: {shown}", operation.name());
                    held += 1;
                }
                is_read_later(&scene, &operation.target(|_| String::new()), &shown).await;
                scene.close().await;
            }
        }
        assert!(held > 15, "{held} instants");
    });
}

/// Asserts that the list at `path`, if it is a list, shows the same creation times as the response.
async fn is_read_later(scene: &Scene, path: &str, shown: &Value) {
    let listed = scene.merchant.get(path).await;
    if listed.status != 200 {
        return;
    }
    let listed = listed.json();
    let items = listed["data"].as_array().or(listed.as_array());
    let ids: Vec<_> = shown.as_object().unwrap().iter().filter(|(name, _)| name.ends_with("_id")).collect();
    let is_it = |item: &&Value| ids.iter().all(|(name, id)| item.get(*name).is_none_or(|there| there == *id));
    let found = items.and_then(|items| items.iter().find(is_it));
    let found = found.unwrap_or_else(|| panic!("{shown} is not in {path}: {listed}"));
    assert_eq!(found["created_at"], shown["created_at"], "{path}");
}
