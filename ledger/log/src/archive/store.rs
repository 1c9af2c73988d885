//! Where the files of archives are: a folder, or a bucket.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use url::Url;

use super::file::Content;
use super::range::ArchivedRange;
use super::{Error, bucket};

/// The contents that are kept between the pages of their readers, each of which reads one partition.
const KEPT: usize = 8;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The location is no URL of a folder or bucket.
    #[error("{0:?} is no location of an archive: {1}")]
    Location(String, &'static str),
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
    folder: Option<PathBuf>,
    /// The contents that were read last, by their names.
    kept: Mutex<VecDeque<(String, Content)>>,
}

impl Store {
    /// The store at `location`, a URL such as `file:///var/lib/farthing/archive`. Nothing is read yet.
    pub fn open(location: &str) -> Result<Self, StoreError> {
        let refused = |why| StoreError::Location(location.to_owned(), why);
        let url = Url::parse(location)
            .map_err(|_| refused("it must be a URL such as file:///srv/archive or s3://bucket/folder"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("it has a query"));
        }
        let prefix = Path::from_url_path(url.path()).map_err(|_| refused("its path cannot be used"))?;
        let location = location.trim_end_matches('/').to_owned();
        let (objects, folder): (Arc<dyn ObjectStore>, _) = match (url.scheme(), url.host_str()) {
            ("file", _) => {
                let folder = url
                    .to_file_path()
                    .map_err(|()| refused("it must be an absolute path of this machine"))?;
                (Arc::new(LocalFileSystem::new().with_fsync(true)), Some(folder))
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
            Some(folder) if !folder.is_dir() => Err(StoreError::NoFolder(folder.clone())),
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
        let put = self.objects.put(&self.path(object), PutPayload::from(bytes)).await;
        put.map(drop).map_err(|error| self.failed(object, error))
    }

    /// Reads a file; `None` if there is none.
    pub(super) async fn get(&self, object: &str) -> Result<Option<Bytes>, StoreError> {
        let got = async { self.objects.get(&self.path(object)).await?.bytes().await };
        match got.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => self.check().map(|()| None),
            Err(error) => Err(self.failed(object, error)),
        }
    }

    /// Reads the file of `range` from the storage.
    pub(super) async fn read(&self, range: &ArchivedRange) -> Result<Content, StoreError> {
        let Some(bytes) = self.get(&range.object).await? else { return Ok(Content::missing()) };
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
        if let Some((_, content)) = kept().iter().find(|(object, _)| *object == range.object) {
            return Ok(content.clone());
        }
        let content = self.read(range).await?;
        if content.damage.is_none() {
            let mut kept = kept();
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

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::super::file::tests::{batches, range};
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("farthing-archive-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
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
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_not_an_archive_without_files() {
        let folder = scratch("gone");
        let store = Store::open(Url::from_directory_path(&folder).unwrap().as_str()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(store.get("x").await, Err(StoreError::NoFolder(_))));
        assert!(matches!(store.check(), Err(StoreError::NoFolder(_))));
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
            assert!(matches!(Store::open(location), Err(StoreError::Location(..))), "{location}");
        }
        for location in ["file:///srv/an%20archive", "s3://a.bucket", "s3://a.bucket/of/ours"] {
            assert_eq!(Store::open(&format!("{location}/")).unwrap().location(), location);
        }
    }
}
