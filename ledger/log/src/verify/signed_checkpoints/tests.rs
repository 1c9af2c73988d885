//! Checkpoints are read as they were written, and nothing that was changed is taken.

use farthing_core::partition::Partitions;
use farthing_core::state::{State, StateKey};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::chain::GENESIS;
use crate::verify::verdict::Finding;

/// Signs by hashing with a secret, as a stand-in for a key pair.
struct Seal(&'static str);

impl Seal {
    fn of(&self, message: &[u8]) -> String {
        hex(&Sha256::new_with_prefix(self.0).chain_update(message).finalize())
    }
}

impl Signer for Seal {
    fn sign(&self, message: &[u8]) -> (String, String) {
        ("key".to_owned(), self.of(message))
    }
}

impl SignatureCheck for Seal {
    fn verify(&self, _: Option<&str>, signature: Option<&str>, message: &[u8]) -> Result<(), String> {
        if signature == Some(&self.of(message)) { Ok(()) } else { Err("wrong signature".to_owned()) }
    }
}

const PARTITION: Partition = Partition::new(3);
const HASH: Hash = [7; 32];

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("farthing-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, position: i64, end: &str) -> PathBuf {
        self.0.join(file_name(PARTITION, position, end))
    }

    fn open(&self, key: &'static str) -> Result<Checkpoints, Error> {
        self.plan(key, None)
    }

    fn open_to_write(&self, key: &'static str) -> Result<Checkpoints, Error> {
        self.plan(key, Some(Arc::new(Seal(key))))
    }

    fn plan(
        &self,
        key: &'static str,
        signer: Option<Arc<dyn Signer + Send + Sync>>,
    ) -> Result<Checkpoints, Error> {
        let (folder, trusted) = (self.0.clone(), Arc::new(Seal(key)));
        Checkpoints::open(CheckpointPlan {
            folder,
            trusted,
            beginning: Beginning::Checkpoint,
            signer,
            every: 10,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// States with keys of one part and of two.
fn fold(count: usize) -> Fold {
    let mut fold = Fold::new(Partitions::new(8).unwrap());
    let mut add = |key: &str, state: &str| {
        let key: StateKey = serde_json::from_str(key).unwrap();
        let state = State::from_json(&key, shape(), state).unwrap();
        fold.states.insert(key, state);
    };
    for number in 0..count {
        add(
            &format!(r#"{{"reference":["mer_01ARZ3NDEKTSV4RRFFQ69G5FAV","a \"name\" {number}"]}}"#),
            r#""con_01ARZ3NDEKTSV4RRFFQ69G5FAV""#,
        );
    }
    add(r#"{"webhooks":"mer_01ARZ3NDEKTSV4RRFFQ69G5FAV"}"#, "[]");
    fold
}

fn write(folder: &Folder, position: i64, fold: &Fold, tallies: &Tallies) {
    let checkpoints = folder.open_to_write("secret").unwrap();
    let begin = checkpoints.of(PARTITION).last();
    let mut writer = checkpoints.writer(PARTITION, begin).unwrap();
    writer.write((position, &HASH), fold, tallies).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let (folder, mut tallies) = (Folder::new(), Tallies::default());
    tallies.checked(Check::Events, 5);
    tallies.trust(Check::Events, 15);
    write(&folder, 20, &fold(1_000), &tallies);
    write(&folder, 30, &fold(3), &tallies);
    let checkpoints = folder.open("secret").unwrap();
    let [first, second] = checkpoints.of(PARTITION) else { panic!("{checkpoints:?}") };
    assert_eq!((first.position(), second.position(), second.hash()), (20, 30, &HASH));
    assert_eq!(first.checked().find(|(check, _)| *check == Check::Events), Some((Check::Events, 20)));
    assert_eq!(
        (first.manifest().previous.as_deref(), second.manifest().previous.as_deref()),
        (None, Some(first.digest()))
    );
    assert_eq!(first.is_of_another_fold(), None);
    for (signed, expected) in [(first, fold(1_000)), (second, fold(3))] {
        let mut loaded = fold(0);
        checkpoints.load(signed, &mut loaded).unwrap();
        assert_eq!(loaded.states, expected.states);
    }
    let names = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(names, 5, "two files each, and the lock");
}

#[test]
fn a_checkpoint_that_was_changed_or_signed_with_another_key_is_passed_over() {
    let (folder, tallies) = (Folder::new(), Tallies::default());
    write(&folder, 20, &fold(3), &tallies);
    let passed_over = |checkpoints: Checkpoints| {
        assert!(checkpoints.of(PARTITION).is_empty(), "{checkpoints:?}");
        checkpoints.passed_over.concat()
    };
    assert!(passed_over(folder.open("another").unwrap()).ends_with("20.json: wrong signature"));
    let manifest = std::fs::read_to_string(folder.file(20, MANIFEST)).unwrap();
    for (changed, why) in [
        (manifest.replace(r#""position":20"#, r#""position":21"#), "wrong signature"),
        (manifest.replace(r#""signature":"#, r#""sign":"#), "no manifest"),
        (manifest[..manifest.len() / 2].to_owned(), "no manifest"),
        (String::new(), "no manifest"),
    ] {
        assert_ne!(changed, manifest);
        std::fs::write(folder.file(20, MANIFEST), &changed).unwrap();
        let passed_over = passed_over(folder.open("secret").unwrap());
        assert!(passed_over.contains(why), "{passed_over}");
    }
    // To open a pipe would wait for ever.
    std::fs::remove_file(folder.file(20, MANIFEST)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.file(20, MANIFEST)).status().unwrap().success());
    assert!(passed_over(folder.open("secret").unwrap()).contains("no regular file"));
    // A manifest that is sound does not pass for one of another place.
    std::fs::remove_file(folder.file(20, MANIFEST)).unwrap();
    std::fs::write(folder.file(40, MANIFEST), &manifest).unwrap();
    assert!(passed_over(folder.open("secret").unwrap()).contains("another place"));
}

#[test]
fn states_that_are_not_those_that_were_signed_are_not_loaded() {
    let (folder, tallies) = (Folder::new(), Tallies::default());
    write(&folder, 20, &fold(3), &tallies);
    write(&folder, 30, &fold(4), &tallies);
    let checkpoints = folder.open("secret").unwrap();
    let own = std::fs::read(folder.file(20, STATES)).unwrap();
    let other = std::fs::read(folder.file(30, STATES)).unwrap();
    let mut flipped = own.clone();
    flipped[own.len() / 2] ^= 1;
    for changed in [&other, &flipped, &own[..own.len() / 2].to_vec(), &Vec::new(), &b"states".to_vec()] {
        std::fs::write(folder.file(20, STATES), changed).unwrap();
        let mut loaded = fold(0);
        let why = checkpoints.load(&checkpoints.of(PARTITION)[0], &mut loaded).unwrap_err();
        assert!(why.starts_with("its states"), "{why}");
        assert_eq!(loaded.states, fold(0).states, "nothing of it is taken");
    }
    std::fs::remove_file(folder.file(20, STATES)).unwrap();
    checkpoints.load(&checkpoints.of(PARTITION)[0], &mut fold(0)).unwrap_err();
}

#[test]
fn nothing_is_signed_once_something_is_broken() {
    let (folder, mut tallies) = (Folder::new(), Tallies::default());
    let (text, expected, found) = Default::default();
    tallies.find(Check::States, Finding { partition: PARTITION, position: 1, text, expected, found });
    write(&folder, 20, &fold(3), &tallies);
    let mut lost = fold(3);
    lost.is_whole = false;
    write(&folder, 20, &lost, &Tallies::default());
    assert!(folder.open("secret").unwrap().of(PARTITION).is_empty());
    let checkpoints = folder.open_to_write("secret").unwrap();
    let mut writer = checkpoints.writer(PARTITION, None).unwrap();
    assert!(!writer.is_due(9) && writer.is_due(10));
    writer.write((10, &GENESIS), &fold(1), &Tallies::default()).unwrap();
    assert!(!writer.is_due(19) && writer.is_due(20));
}

#[test]
fn one_run_at_a_time_writes_and_removes_what_was_not_finished() {
    let folder = Folder::new();
    let unfinished = folder.file(20, "states.gz.unfinished");
    std::fs::write(&unfinished, "x").unwrap();
    let reads = folder.open("secret").unwrap();
    assert!(unfinished.exists() && reads.writer(PARTITION, None).is_none());
    let writes = folder.open_to_write("secret").unwrap();
    assert!(!unfinished.exists());
    assert!(matches!(folder.open_to_write("secret"), Err(Error::InUse(_))));
    assert!(folder.open("secret").is_ok(), "others may read");
    drop(writes);
    assert!(folder.open_to_write("secret").is_ok());
}
