//! Where the files of archives are: a folder, or a bucket.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use serde_json::Value;
use url::Url;

use super::file::Content;
use super::range::ArchivedRange;
use super::{Error, bucket, file};

/// The contents that are kept between the pages of their readers, each of which reads one partition.
const KEPT: usize = 8;

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".unfinished";

/// The size of the largest manifest that is read. One has less than 1 KB.
const MANIFEST_BYTES: u64 = 64 * 1_024;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The location is no URL of a folder or bucket. It may have a password in it, so it is not shown.
    #[error("the location of the archive is refused: {0}")]
    Location(&'static str),
    /// The bucket cannot be used with the variables of this process.
    #[error("the bucket {0} cannot be used: {1}")]
    Bucket(String, object_store::Error),
    /// The folder is not there, perhaps because its file system is not mounted.
    #[error("the folder {0:?} of the archive does not exist")]
    NoFolder(PathBuf),
    /// The storage does not answer, or refuses.
    #[error("the archive at {location} fails for {object}: {source}")]
    Storage {
        /// Its URL.
        location: String,
        /// The name of the file.
        object: String,
        /// What it says.
        source: object_store::Error,
    },
    /// A file could not be decoded, because the process ends.
    #[error("the reading of {0} was stopped")]
    Stopped(String),
}

/// A folder or bucket with archives.
#[derive(Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// What all names begin with.
    prefix: Path,
    location: String,
    /// The folder, if it is one.
    folder: Option<Folder>,
    /// The contents that were used last, by their names, the newest use first.
    kept: Mutex<VecDeque<(String, Content)>>,
}

/// A folder of this machine.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    files: LocalFileSystem,
}

/// What is under a name.
pub(super) enum Got {
    File(Bytes),
    Nothing,
    /// It has this size, and was not read.
    TooLarge(u64),
    /// A folder, a pipe or a device, which is not read.
    NoFile,
}

impl Store {
    /// The store at `location`, a URL such as `file:///var/lib/farthing/archive`. Nothing is read yet.
    pub fn open(location: &str) -> Result<Self, StoreError> {
        let refused = StoreError::Location;
        let url = Url::parse(location)
            .map_err(|_| refused("it must be a URL such as file:///srv/archive or s3://bucket/folder"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("it must have no query"));
        }
        let prefix = Path::from_url_path(url.path()).map_err(|_| refused("its path cannot be used"))?;
        let location = location.trim_end_matches('/').to_owned();
        let (objects, folder): (Arc<dyn ObjectStore>, _) = match (url.scheme(), url.host_str()) {
            ("file", _) => {
                let path = url
                    .to_file_path()
                    .map_err(|()| refused("it must be an absolute path of this machine"))?;
                let files = LocalFileSystem::new();
                (Arc::new(files.clone()), Some(Folder { path, files }))
            }
            ("s3", Some(name)) if url.username().is_empty() && url.port().is_none() => {
                (bucket::open(name).map_err(|error| StoreError::Bucket(location.clone(), error))?, None)
            }
            ("s3", _) => return Err(refused("it must be s3://bucket/folder, without a login or port")),
            _ => return Err(refused("this program reaches folders (file:///…) and buckets (s3://…)")),
        };
        Ok(Self { objects, prefix, location, folder, kept: Mutex::default() })
    }

    /// A store in the memory of this process.
    pub fn in_memory() -> Self {
        Self {
            objects: Arc::new(InMemory::new()),
            prefix: Path::default(),
            location: "memory:".to_owned(),
            folder: None,
            kept: Mutex::default(),
        }
    }

    /// Its URL.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Fails if the folder is not there. It is not created: it may be one of a file system that is not mounted.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &self.folder {
            Some(folder) if !folder.path.is_dir() => Err(StoreError::NoFolder(folder.path.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), Path::join)
    }

    fn failed(&self, object: &str, source: object_store::Error) -> StoreError {
        StoreError::Storage { location: self.location.clone(), object: object.to_owned(), source }
    }

    /// Writes a file, whole or not at all. It is on the disk when this returns.
    pub(super) async fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = self.path(object);
        let put = match &self.folder {
            Some(folder) => put_private(folder, &path, bytes).await,
            None => self.objects.put(&path, PutPayload::from(bytes)).await.map(drop),
        };
        put.map_err(|error| self.failed(object, error))
    }

    /// Reads a file of at most `limit` bytes.
    pub(super) async fn get(&self, object: &str, limit: u64) -> Result<Got, StoreError> {
        let path = self.path(object);
        let got = async {
            if self.is_no_file(&path).await? {
                return Ok(Got::NoFile);
            }
            // The answer of a bucket is read whole, so its size is asked for first.
            if self.folder.is_none() {
                let size = self.objects.head(&path).await?.size;
                if size > limit {
                    return Ok(Got::TooLarge(size));
                }
            }
            let found = self.objects.get(&path).await?;
            if found.meta.size > limit {
                return Ok(Got::TooLarge(found.meta.size));
            }
            found.bytes().await.map(Got::File)
        };
        match got.await {
            Ok(got) => Ok(got),
            Err(object_store::Error::NotFound { .. }) => self.check().map(|()| Got::Nothing),
            Err(error) => Err(self.failed(object, error)),
        }
    }

    /// The size of a file; `None` if there is none.
    pub(super) async fn size(&self, object: &str) -> Result<Option<u64>, StoreError> {
        match self.objects.head(&self.path(object)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => self.check().map(|()| None),
            Err(error) => Err(self.failed(object, error)),
        }
    }

    /// Whether the folder has something else than a file under the name. To open a pipe would wait for its writer.
    async fn is_no_file(&self, path: &Path) -> Result<bool, object_store::Error> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let found = tokio::fs::metadata(folder.files.path_to_filesystem(path)?).await;
        Ok(found.is_ok_and(|found| !found.is_file()))
    }

    /// The manifest of `range`; `None` if there is none that can be read.
    pub(super) async fn manifest(&self, range: &ArchivedRange) -> Result<Option<Value>, StoreError> {
        match self.get(&range.manifest_object(), MANIFEST_BYTES).await? {
            Got::File(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Got::Nothing | Got::TooLarge(_) | Got::NoFile => Ok(None),
        }
    }

    /// Reads the file of `range` from the storage. One that is larger than its text can become is not read.
    pub(super) async fn read(&self, range: &ArchivedRange) -> Result<Content, StoreError> {
        let bytes = match self.get(&range.object, file::most_bytes(range)).await? {
            Got::File(bytes) => bytes,
            Got::Nothing => return Ok(Content::unread("the file is missing".to_owned())),
            Got::NoFile => return Ok(Content::unread("it is not a file".to_owned())),
            Got::TooLarge(size) => {
                let what = format!("it has {size} bytes, recorded were {}", range.bytes);
                return Ok(Content::unread(what));
            }
        };
        let (range, stopped) = (range.clone(), StoreError::Stopped(range.object.clone()));
        let read = tokio::task::spawn_blocking(move || Content::read(&range, &bytes));
        read.await.map_err(|_| stopped)
    }

    /// The content of `range`, whose bytes and chain of hashes are those that were recorded.
    pub(super) async fn proven(&self, range: &ArchivedRange) -> Result<Content, Error> {
        let content = self.read(range).await?;
        let damage = match &content.damage {
            Some(damage) => Some(damage.clone()),
            None => range
                .check(&content.batches)
                .err()
                .map(|(position, why)| format!("position {position}: {why}")),
        };
        match damage {
            Some(what) => Err(Error::Damaged { object: range.object.clone(), what }),
            None => Ok(content),
        }
    }

    /// The content of `range`, perhaps as it was read a moment ago.
    pub(crate) async fn content(&self, range: &ArchivedRange) -> Result<Content, StoreError> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = used(&mut kept(), &range.object) {
            return Ok(content);
        }
        let content = self.read(range).await?;
        if content.damage.is_none() {
            let mut kept = kept();
            // Another reader may have read it meanwhile.
            kept.retain(|(object, _)| *object != range.object);
            kept.truncate(KEPT - 1);
            kept.push_front((range.object.clone(), content.clone()));
        }
        Ok(content)
    }

    /// Forgets the content of `range`, whose reader has come to its end.
    pub(crate) fn forget(&self, range: &ArchivedRange) {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(object, _)| *object != range.object);
    }
}

/// Writes a file of this machine that its owner can read, and the group that the archive's folder admits: events hold what is
/// a merchant's secret, such as the URL of a webhook.
async fn put_private(folder: &Folder, path: &Path, bytes: Vec<u8>) -> Result<(), object_store::Error> {
    let (root, path) = (folder.path.clone(), folder.files.path_to_filesystem(path)?);
    let failed = |source| object_store::Error::Generic { store: "folder", source };
    let written = tokio::task::spawn_blocking(move || write_private(&root, &path, &bytes)).await;
    written.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}

/// Writes a file of the archive in `root`, under another name first. What a process that was killed left there is removed: one
/// process at a time writes an archive.
fn write_private(root: &std::path::Path, path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let (folder_mode, file_mode) = if admits_group(root) { (0o750, 0o640) } else { (0o700, 0o600) };
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let folder = path.parent().unwrap_or(path);
    if !folder.is_dir() {
        DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
        add_mode(folder, folder_mode)?;
    }
    // It may have another mode or group.
    let _ = fs::remove_file(&unfinished);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(file_mode)
        .open(&unfinished)
        .and_then(|mut file| {
            add_mode(&unfinished, file_mode)?;
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&unfinished, path));
    if let Err(error) = written {
        // What is on a full disk would keep its space.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    // The names of the file and of its folder, which may be new.
    folder.ancestors().take(2).try_for_each(|folder| File::open(folder)?.sync_all())
}

/// Whether the folder's group reads it and others do not. A folder that others read, too, has the mode of any new folder: its
/// group was not chosen.
fn admits_group(folder: &std::path::Path) -> bool {
    fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o057 == 0o050)
}

/// Adds the bits that the umask took. A setgid bit, which a folder inherits, stays.
fn add_mode(path: &std::path::Path, mode: u32) -> io::Result<()> {
    let given = fs::metadata(path)?.permissions().mode();
    if given & mode == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(given | mode))
}

/// The content of `object`, which becomes the one that was used last.
fn used(kept: &mut VecDeque<(String, Content)>, object: &str) -> Option<Content> {
    let index = kept.iter().position(|(name, _)| name == object)?;
    let found = kept.remove(index)?;
    let content = found.1.clone();
    kept.push_front(found);
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::super::file::tests::{batches, range};
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("farthing-archive-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[tokio::test]
    async fn a_folder_and_the_memory_keep_a_file_as_it_was_written() {
        let folder = scratch("a folder");
        let local = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
        for store in [local, Store::in_memory()] {
            let batches = batches();
            let file = file::write(&batches).unwrap();
            let range = range(&batches, &file);
            assert!(store.read(&range).await.unwrap().damage.unwrap().contains("missing"));
            assert!(matches!(store.proven(&range).await, Err(Error::Damaged { .. })));
            for _ in 0..2 {
                store.put(&range.object, file.bytes.clone()).await.unwrap();
                assert_eq!(*store.proven(&range).await.unwrap().batches, batches);
            }
            assert_eq!(*store.content(&range).await.unwrap().batches, batches);
            store.put(&range.object, file.bytes[1..].to_vec()).await.unwrap();
            assert!(matches!(store.proven(&range).await, Err(Error::Damaged { .. })));
            store.forget(&range);
            assert!(store.content(&range).await.unwrap().damage.is_some(), "it is read again");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn files_and_folders_are_the_owner_s_alone() {
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = scratch("private");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let store = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
        let (path, left) = (folder.join("3/a"), folder.join("3/a.unfinished"));
        for text in ["one", "two"] {
            store.put("3/a", text.into()).await.unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!((mode(&folder.join("3")), mode(&path), left.exists()), (0o700, 0o600, false));
            // As an older release wrote it, and as a process leaves it that is killed.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            fs::write(&left, "half a file that is longer").unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::remove_file(&left).unwrap();
        fs::create_dir(&left).unwrap();
        assert!(store.put("3/a", b"three".into()).await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn the_group_reads_the_files_of_a_folder_that_admits_it_alone() {
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (private, shared) = ((0o700, 0o600), (0o750, 0o640));
        for (root, expected) in [
            (0o700, private),
            (0o710, private),
            (0o740, private),
            (0o755, private),
            (0o750, shared),
            (0o770, shared),
            (0o2750, (0o2750, 0o640)),
        ] {
            let folder = scratch(&format!("group {root:o}"));
            fs::set_permissions(&folder, fs::Permissions::from_mode(root)).unwrap();
            let store = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
            store.put("3/a", b"one".into()).await.unwrap();
            assert_eq!((mode(&folder.join("3")), mode(&folder.join("3/a"))), expected, "{root:o}");
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn the_umask_takes_nothing_from_the_group() {
        let folder = scratch("umask");
        // As mkdir leaves a folder under umask 077 in a folder with setgid.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o2700)).unwrap();
        add_mode(&folder, 0o750).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o2750);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_not_an_archive_without_files() {
        let folder = scratch("gone");
        let store = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(store.get("x", 1).await, Err(StoreError::NoFolder(_))));
        assert!(matches!(store.check(), Err(StoreError::NoFolder(_))));
    }

    #[tokio::test]
    async fn what_cannot_be_an_archived_file_is_not_read() {
        let folder = scratch("foreign");
        let store = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
        let batches = batches();
        let file = file::write(&batches).unwrap();
        let range = range(&batches, &file);
        let path = folder.join(&range.object);
        fs::create_dir_all(path.parent().unwrap()).unwrap();

        // A sparse file of 1 TB.
        let large = File::create(&path).unwrap();
        large.set_len(1 << 40).unwrap();
        let damage = store.read(&range).await.unwrap().damage.unwrap();
        assert!(damage.contains("1099511627776 bytes"), "{damage}");
        fs::remove_file(&path).unwrap();
        let manifest = folder.join(range.manifest_object());
        fs::write(&manifest, range.manifest().to_string()).unwrap();
        assert_eq!(store.manifest(&range).await.unwrap(), Some(range.manifest()));
        File::create(&manifest).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(store.manifest(&range).await.unwrap(), None);

        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let pipe = tokio::time::timeout(std::time::Duration::from_secs(10), store.read(&range));
        let damage = pipe.await.expect("no writer of a pipe is waited for").unwrap().damage.unwrap();
        assert!(damage.contains("not a file"), "{damage}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(store.read(&range).await.unwrap().damage.is_some());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn the_contents_that_were_used_last_are_kept() {
        let store = Store::in_memory();
        let batches = batches();
        let file = file::write(&batches).unwrap();
        let ranges: Vec<_> = (0..=KEPT)
            .map(|number| ArchivedRange { object: format!("{number}"), ..range(&batches, &file) })
            .collect();
        for one in &ranges {
            store.put(&one.object, file.bytes.clone()).await.unwrap();
        }
        for one in &ranges[..KEPT] {
            store.content(one).await.unwrap();
        }
        store.content(&ranges[0]).await.unwrap();
        store.content(&ranges[KEPT]).await.unwrap();
        let kept = store.kept.lock().unwrap();
        let names: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["8", "0", "7", "6", "5", "4", "3", "2"], "1 was not used for the longest");
    }

    #[test]
    fn a_location_is_the_url_of_a_folder_or_bucket() {
        for location in [
            "",
            "/srv/archive",
            "s3:///path",
            "s3://key:secret@bucket/path",
            "s3://bucket:1/path",
            "s3://bucket/path?a=b",
            "http://host/path",
            "file:///a?b",
            "file://host/a",
        ] {
            assert!(matches!(Store::open(location), Err(StoreError::Location(_))), "{location}");
        }
        for location in ["file:///srv/an%20archive", "s3://a.bucket", "s3://a.bucket/of/ours"] {
            assert_eq!(Store::open(&format!("{location}/")).unwrap().location(), location);
        }
    }
}
