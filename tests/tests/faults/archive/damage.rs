//! Archived files that are damaged, cut off or missing: each is named, and nothing is loaded from it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Archived, check, head, outcome, put};
use crate::checkpoints::key;
use crate::run;

#[test]
fn a_damaged_file_is_found_wherever_an_audit_begins() {
    run(async {
        let mut archived = Archived::start(30).await;
        let instance = archived.merchant.instance;
        let (private, public) = key(instance, "audit");
        let path = |name: &str| instance.file(name).into_os_string().into_string().unwrap();
        let (heads, early, late) = (path("heads"), path("early checkpoints"), path("late checkpoints"));
        let merchant = &archived.merchant;
        let position = head(&merchant.log.sql, archived.number()).await;
        let (code, report, errors) =
            outcome(instance, &["audit", "head", "--append", &heads, "--key-file", &private]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        for _ in 0..10 {
            merchant.credit_own("0.01").await;
        }
        archived.position = head(&merchant.log.sql, archived.number()).await - 2;
        merchant.credit_own("0.01").await;
        merchant.log.stored().await;
        let to = position.to_string();
        let writes = ["--key-file", &private, "--checkpoints"];
        for rest in [vec![early.as_str(), "--to", &to], vec![late.as_str()]] {
            let (code, report, errors) = archived.audit(&[writes.as_slice(), &rest].concat()).await;
            assert_eq!(code, Some(0), "{report} {errors}");
        }
        archived.create_up_to_the_position("100000").await;
        let end = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            name.split('-').nth(1).unwrap().parse::<i64>().unwrap()
        };
        let file =
            archived.files().into_iter().find(|file| end(file) >= position).expect("a file with the head");
        let name = file.file_name().unwrap().to_str().unwrap();
        let original = std::fs::read(&file).unwrap();
        let from = (position + 1).to_string();
        let reads = ["--public-key-file", public.as_str()];
        let audits = [
            ("--from", vec!["--from", &from], "hash_chain"),
            ("a checkpoint", [reads.as_slice(), &["--checkpoints", &early]].concat(), "signed_checkpoints"),
            (
                "a published head before the checkpoint",
                [reads.as_slice(), &["--checkpoints", &late, "--head", &heads]].concat(),
                "published_heads",
            ),
        ];
        for (what, arguments, _) in &audits {
            let (code, report, errors) = archived.audit(arguments).await;
            assert_eq!(code, Some(0), "{what}: {report} {errors}");
        }
        for bytes in [Some(flipped(&original)), None] {
            put(&file, bytes.as_deref());
            for (what, arguments, skipped) in &audits {
                let (code, report, errors) = archived.audit(arguments).await;
                assert_eq!(
                    (code, &report["verdict"]),
                    (Some(1), &json!("broken")),
                    "{what}: {report} {errors}"
                );
                let of_files = check(&report, "archives");
                assert_eq!(of_files["broken"], 1, "{what}: {report}");
                assert!(
                    of_files["findings"][0]["text"].as_str().unwrap().contains(name),
                    "{what}: {of_files}"
                );
                if arguments.contains(&"--from") {
                    assert_eq!(check(&report, "read_tables")["verdict"], "skipped", "{report}");
                }
                let skipped = check(&report, skipped);
                assert_eq!(skipped["broken"], 0, "{what}: {skipped}");
                assert!(skipped["skipped"].to_string().contains(name), "{what}: {skipped}");
            }
        }
        put(&file, Some(&original));
        archived.verified().await;
        archived.put_away().await;
    });
}

#[test]
fn a_changed_cut_off_or_missing_file_is_found_and_nothing_is_loaded_from_it() {
    run(async {
        let archived = Archived::start(60).await;
        archived.unneeded().await;
        archived.create_up_to_the_position("100000").await;
        // An amount of an event: a quote within the text of an event is escaped.
        let (amount, more) = (r#"\"0.01"#, r#"\"9.01"#);
        // The line of a batch with an amount, with lines before it and after it.
        let (file, original, text, line) = archived
            .files()
            .into_iter()
            .find_map(|file| {
                let original = std::fs::read(&file).unwrap();
                let text = String::from_utf8(zstd::stream::decode_all(&*original).unwrap()).unwrap();
                let line = text.lines().skip(1).find(|line| line.contains(amount))?.to_owned();
                (!text.ends_with(&format!("{line}\n"))).then_some((file, original, text, line))
            })
            .expect("a file with an amount in the middle");
        let (file, line) = (file.as_path(), line.as_str());
        let batch: Value = serde_json::from_str(line).unwrap();
        let (first, events) =
            (batch["first_position"].as_i64().unwrap(), batch["events"].as_array().unwrap());
        let index = events.iter().position(|event| event.as_str().unwrap().contains("\"0.01")).unwrap();
        let position = first + i64::try_from(index).unwrap();
        let changed_line = line.replacen(amount, more, 1);
        let compress = |text: &str| zstd::stream::encode_all(text.as_bytes(), 3).unwrap();
        let changed = compress(&text.replacen(line, &changed_line, 1));
        let without = compress(&text.replacen(&format!("{line}\n"), "", 1));
        let last = text.lines().last().unwrap();
        let cut: Value = serde_json::from_str(last).unwrap();
        let cut_position = cut["first_position"].as_i64().unwrap();
        let shorter = compress(&text[..text.len() - last.len() - 1]);
        for (what, bytes, position) in [
            ("an event is changed", Some(changed), Some(position)),
            ("a batch is missing", Some(without), Some(first)),
            ("the last batch is missing", Some(shorter), Some(cut_position)),
            ("a byte is changed", Some(flipped(&original)), None),
            ("it is cut off", Some(original[..original.len() / 2].to_vec()), None),
            ("it is gone", None, None),
        ] {
            put(file, bytes.as_deref());
            is_broken(&archived, file, what, position).await;
        }
        put(file, Some(&original));
        archived.verified().await;
        let (code, report, errors) = archived.run(&["archive", "verify"]).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        archived.put_away().await;
    });
}

#[test]
fn the_files_after_a_damaged_one_are_restored_whole_and_nothing_is_loaded_from_it() {
    run(async {
        let archived = Archived::start(30).await;
        archived.unneeded().await;
        let all = archived.content().await;
        archived.create_up_to_the_position("10").await;
        let files = archived.files();
        let [.., damaged, last] = files.as_slice() else { panic!("one file alone: {files:?}") };
        let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
        let original = std::fs::read(damaged).unwrap();
        put(damaged, Some(&flipped(&original)));
        let restore = ["archive", "restore", "--partition", archived.partition.as_str()];
        let (code, report, errors) = archived.run(&restore).await;
        assert_eq!(code, Some(1), "{report} {errors}");
        assert!(errors.contains(&name(damaged)), "{errors}");
        assert!(errors.contains("nothing of this file was archived, deleted or loaded"), "{errors}");
        let archived_up_to = archived.last().await.unwrap();
        let first = |file: &Path| name(file).split('-').next().unwrap().parse::<i64>().unwrap();
        assert_eq!(archived_up_to + 1, first(last), "the last file is back, and the damaged one is not");
        let (code, report, errors) = archived.audit(&[]).await;
        assert_eq!(code, Some(1), "{report} {errors}");
        let of_files = check(&report, "archives");
        assert_eq!(of_files["broken"], 1, "{of_files}");
        assert!(of_files["findings"][0]["text"].as_str().unwrap().contains(&name(damaged)), "{of_files}");
        put(damaged, Some(&original));
        let (code, report, errors) = archived.run(&restore).await;
        assert_eq!(code, Some(0), "{report} {errors}");
        assert_eq!(archived.content().await, all);
        archived.verified().await;
        archived.put_away().await;
    });
}

pub(super) fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    bytes
}

/// Asserts that the file is named as broken, at the position if it is known, and that it is not restored.
async fn is_broken(archived: &Archived, file: &Path, what: &str, position: Option<i64>) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let (code, report, errors) = archived.run(&["archive", "verify"]).await;
    let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{what}: {report} {errors}"));
    assert_eq!(code, Some(1), "{what}: {report}");
    let [finding] = findings.as_slice() else { panic!("{what}: not one finding: {report}") };
    assert!(finding["object"].as_str().unwrap().ends_with(name), "{what}: {finding}");
    let (code, report, errors) = archived.run(&["audit", "verify", "--skip-read-tables"]).await;
    assert_eq!(code, Some(1), "{what}: {report} {errors}");
    let checked = check(&report, "archives");
    assert_eq!(checked["broken"], 1, "{what}: {checked}");
    assert!(checked["findings"][0]["text"].as_str().unwrap().contains(name), "{what}: {checked}");
    if let Some(position) = position {
        assert_eq!(report["first_broken"][0]["position"], position, "{what}: {report}");
        assert_eq!(finding["position"], position, "{what}: {finding}");
    }
    let before = archived.content().await;
    let restore = ["archive", "restore", "--partition", archived.partition.as_str()];
    let (code, _, errors) = archived.run(&restore).await;
    assert!(
        code == Some(1) && errors.contains("nothing of this file was archived, deleted or loaded"),
        "{what}: {errors}"
    );
    assert_eq!(archived.content().await, before, "{what}");
}
