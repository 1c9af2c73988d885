//! The database: its migrations, the protection of the log, its shape against that of this program, and the server key.

use anyhow::{Context as _, Result};
use farthing_core::secret::ServerKey;
use farthing_core::state::{generation, shape};
use farthing_log::server_key;
use farthing_schema::history::{self, Difference};

use super::finding::Finding;
use super::session::Session;
use crate::database::KeyOverride;

/// The triggers of the log, which of them fire in any case, and the body of their function.
const TRIGGERS: &str = "\
SELECT t.tgname::text, t.tgenabled::text, p.prosrc
FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE t.tgrelid = to_regclass('ledger.batches') AND NOT t.tgisinternal";

/// The triggers that keep the log append-only.
const APPEND_ONLY: [&str; 2] = ["append_only_rows", "append_only_statements"];

/// The trigger that keeps new record batches out of archived ranges. A log on Citus has no archives, and no such trigger.
const NOT_ARCHIVED: &str = "not_archived";

const HAS_CITUS: &str = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

/// The newest shape of the states, and the oldest generation that is live.
const SHAPES: &str = "SELECT max(shape), min(generation), count(*) FROM ledger.heads";

const INSTANCE_KEY: &str = "SELECT server_key FROM ledger.instance";

/// Checks the database.
pub(super) async fn check(session: &Session, key: &KeyOverride) -> Vec<Finding> {
    vec![
        session.check("database.migrations", migrations(session)).await,
        session.check("database.append_only", append_only(session)).await,
        session.check("database.shape", shapes(session)).await,
        session.check("database.read_models", read_models(session)).await,
        session.check("database.server_key", key_of_instance(session, key)).await,
    ]
}

async fn migrations(session: &Session) -> Result<Finding> {
    Ok(judge_migrations(history::compare(&session.client).await?.as_ref()))
}

fn judge_migrations(difference: Option<&Difference>) -> Finding {
    let check = "database.migrations";
    let Some(Difference { known, missing, changed, unknown }) = difference else {
        return Finding::failed(check, "there is no log in this database", "run `farthing migrate`");
    };
    if !changed.is_empty() {
        let found = format!("migrations differ from those of this version: {}", changed.join(", "));
        return Finding::failed(
            check,
            found,
            "use the version that migrated the database, or restore a backup",
        );
    }
    if !missing.is_empty() {
        let found = format!("migrations are missing: {}", missing.join(", "));
        return Finding::failed(check, found, "run `farthing migrate` of this version");
    }
    if !unknown.is_empty() {
        let found = format!("a newer version has migrated the database: {}", unknown.join(", "));
        return Finding::warning(check, found, "use that version, unless an upgrade is under way");
    }
    Finding::ok(check, format!("all {} migrations are applied", known.len()))
}

async fn append_only(session: &Session) -> Result<Finding> {
    let mut triggers = Vec::new();
    for row in session.client.query(TRIGGERS, &[]).await? {
        let body: String = row.try_get(2)?;
        triggers.push((row.try_get(0)?, row.try_get(1)?, history::contains(body.trim())));
    }
    let has_citus: bool = session.client.query_one(HAS_CITUS, &[]).await?.try_get(0)?;
    let expected = APPEND_ONLY.into_iter().chain((!has_citus).then_some(NOT_ARCHIVED));
    Ok(judge_append_only(expected, &triggers))
}

/// `triggers` have a name, when they fire, and whether their function is that of the migrations.
fn judge_append_only<'e>(
    expected: impl IntoIterator<Item = &'e str>,
    triggers: &[(String, String, bool)],
) -> Finding {
    let check = "database.append_only";
    let mut wrong = Vec::new();
    for name in expected {
        match triggers.iter().find(|(found, ..)| found == name) {
            None => wrong.push(format!("there is no trigger {name}")),
            Some((_, fires, _)) if fires != "A" => {
                wrong.push(format!("the trigger {name} does not always fire"));
            }
            Some((.., false)) => wrong.push(format!("the function of the trigger {name} was changed")),
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        return Finding::ok(check, "triggers refuse every change of the log");
    }
    let advice =
        "run `farthing log verify`, find who did it, and create triggers and functions as the migrations do";
    Finding::failed(check, wrong.join(", "), advice)
}

async fn shapes(session: &Session) -> Result<Finding> {
    let row = session.client.query_one(SHAPES, &[]).await?;
    let newest: Option<i64> = row.try_get(0)?;
    let oldest: Option<i16> = row.try_get(1)?;
    Ok(judge_shapes(newest.zip(oldest), row.try_get(2)?))
}

/// `of_log` is the newest shape and the oldest generation.
fn judge_shapes(of_log: Option<(i64, i16)>, partitions: i64) -> Finding {
    let check = "database.shape";
    match of_log {
        None => Finding::failed(check, "the log has no partitions", "run `farthing migrate`"),
        Some((newest, _)) if newest > i64::from(shape()) => Finding::failed(
            check,
            format!("the states have the shape {newest} of a newer version, and this one has {}", shape()),
            "use the newer version: this one leads no partition any more",
        ),
        Some((_, oldest)) if oldest < generation() => Finding::warning(
            check,
            format!("the states are of the generation {oldest}, and this version keeps {}", generation()),
            "start gateways of this version: they build the states and take the partitions over",
        ),
        Some((newest, _)) => Finding::ok(check, format!("{partitions} partitions, states of shape {newest}")),
    }
}

async fn read_models(session: &Session) -> Result<Finding> {
    let unbuilt = farthing_projector::unbuilt(&session.client).await;
    match unbuilt {
        Ok(unbuilt) => Ok(judge_read_models(&unbuilt.iter().map(|model| model.name()).collect::<Vec<_>>())),
        Err(farthing_projector::Error::Database(error)) => Err(error.into()),
        Err(error) => Ok(Finding::failed(
            "database.read_models",
            error.to_string(),
            "run `farthing migrate` of this version",
        )),
    }
}

fn judge_read_models(unbuilt: &[&str]) -> Finding {
    let check = "database.read_models";
    if unbuilt.is_empty() {
        return Finding::ok(check, "all read models of this version are built");
    }
    let found = format!("read models of this version are not built yet: {}", unbuilt.join(", "));
    Finding::warning(check, found, "start a projector of this version: gateways wait until it has built them")
}

async fn key_of_instance(session: &Session, key: &KeyOverride) -> Result<Finding> {
    let check = "database.server_key";
    let given = match key.read() {
        Ok(given) => given,
        Err(error) => {
            let found = format!("{error:#}");
            return Ok(Finding::failed(check, found, "give the key that the gateways use"));
        }
    };
    let key = if let Some(key) = given {
        key
    } else {
        let row = session.client.query_opt(INSTANCE_KEY, &[]).await?;
        let row = row.context("the database has no instance: run `farthing migrate`")?;
        ServerKey::from_hex(row.try_get(0)?).context("the server key in the database is malformed")?
    };
    Ok(judge_key(server_key::is_of_instance(&session.client, &key).await?))
}

/// `matches` says whether the mark is of this key; `None` if there is no mark.
fn judge_key(matches: Option<bool>) -> Finding {
    let check = "database.server_key";
    match matches {
        Some(true) => Finding::ok(check, "the key is the one that the instance uses"),
        Some(false) => Finding::failed(
            check,
            "the key is not the one that the instance uses",
            "give the key that its gateways use, in FARTHING_SERVER_KEY_FILE or FARTHING_SERVER_KEY, or neither for the \
             key in the database",
        ),
        None => Finding::skipped(
            check,
            "no process has used a key yet: the first gateway leaves a mark of its key",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn migrations_may_be_missing_changed_or_of_a_newer_version() {
        let same = || Difference {
            known: vec!["V1__log".to_owned()],
            missing: Vec::new(),
            changed: Vec::new(),
            unknown: Vec::new(),
        };
        let other = || vec!["V2__x".to_owned()];
        assert_eq!(judge_migrations(None).verdict, Verdict::Failed);
        assert_eq!(judge_migrations(Some(&same())).verdict, Verdict::Ok);
        let missing = Difference { missing: other(), ..same() };
        assert_eq!(judge_migrations(Some(&missing)).verdict, Verdict::Failed);
        let changed = Difference { changed: other(), ..same() };
        assert_eq!(judge_migrations(Some(&changed)).verdict, Verdict::Failed);
        let unknown = Difference { unknown: other(), ..same() };
        assert_eq!(judge_migrations(Some(&unknown)).verdict, Verdict::Warning);
    }

    #[test]
    fn both_triggers_fire_always_and_have_their_function() {
        let trigger = |name: &str, fires: &str, is_ours| (name.to_owned(), fires.to_owned(), is_ours);
        let [rows, statements] = APPEND_ONLY;
        let whole = [trigger(rows, "A", true), trigger(statements, "A", true)];
        assert_eq!(judge_append_only(APPEND_ONLY, &whole).verdict, Verdict::Ok);
        let with_archives = APPEND_ONLY.into_iter().chain([NOT_ARCHIVED]);
        assert_eq!(judge_append_only(with_archives, &whole).verdict, Verdict::Failed);
        for broken in [
            vec![],
            vec![trigger(rows, "A", true)],
            vec![trigger(rows, "O", true), trigger(statements, "A", true)],
            vec![trigger(rows, "A", true), trigger(statements, "D", true)],
            vec![trigger(rows, "A", true), trigger(statements, "A", false)],
        ] {
            assert_eq!(judge_append_only(APPEND_ONLY, &broken).verdict, Verdict::Failed, "{broken:?}");
        }
    }

    #[test]
    fn a_newer_shape_shuts_this_program_out_and_an_older_generation_is_built() {
        let (ours, kept) = (i64::from(shape()), generation());
        assert_eq!(judge_shapes(None, 0).verdict, Verdict::Failed);
        assert_eq!(judge_shapes(Some((ours, kept)), 8).verdict, Verdict::Ok);
        assert_eq!(judge_shapes(Some((ours + 1, kept)), 8).verdict, Verdict::Failed);
        assert_eq!(judge_shapes(Some((ours, kept - 1)), 8).verdict, Verdict::Warning);
        assert_eq!(judge_read_models(&[]).verdict, Verdict::Ok);
        assert_eq!(judge_read_models(&["plans"]).verdict, Verdict::Warning);
    }

    #[test]
    fn another_server_key_is_a_failure() {
        assert_eq!(judge_key(Some(true)).verdict, Verdict::Ok);
        assert_eq!(judge_key(Some(false)).verdict, Verdict::Failed);
        assert_eq!(judge_key(None).verdict, Verdict::Skipped);
    }
}
