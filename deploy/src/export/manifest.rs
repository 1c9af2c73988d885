//! The manifest of an export: what was exported, its files with their sums, and the part of the log that they cover. The next
//! incremental export begins where it ends.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use chrono::{DateTime, Utc};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use farthing_core::statement::Period;
use farthing_log::audit::export::{CoveredRange, Selection, Table, focus};
use serde::{Deserialize, Serialize};

use super::Format;
use crate::bounded_file;

/// The version of the tables. A column that is removed, renamed or holds something else raises it.
const SCHEMA_VERSION: u32 = 1;

/// The largest manifest. It has a line for each partition and file.
const MAX_BYTES: u64 = 16 << 20;

/// The manifest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    schema_version: u32,
    /// The program that wrote it.
    farthing_version: String,
    format: String,
    /// The version of FOCUS, in its format.
    focus_version: Option<String>,
    created_at: DateTime<Utc>,
    currency: String,
    pub(super) period: Period,
    pub(super) merchant_id: Option<MerchantId>,
    pub(super) partition: Option<Partition>,
    /// SHA-256 of the manifest that it continues.
    since_sha256: Option<String>,
    pub(super) files: Vec<File>,
    /// The part of each partition that was covered.
    pub(super) log: Vec<CoveredRange>,
}

/// A file of an export.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct File {
    pub(super) table: Table,
    #[serde(rename = "file")]
    pub(super) name: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The exact sum of each column of amounts or quantities.
    pub(super) sums: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn new(
        format: Format,
        created_at: DateTime<Utc>,
        selection: &Selection,
        since_sha256: Option<String>,
        files: Vec<File>,
        log: Vec<CoveredRange>,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            farthing_version: env!("CARGO_PKG_VERSION").to_owned(),
            format: match format {
                Format::Csv => "csv",
                Format::Parquet => "parquet",
                Format::Ndjson => "ndjson",
                Format::Focus => "focus",
            }
            .to_owned(),
            focus_version: (format == Format::Focus).then(|| focus::VERSION.to_owned()),
            created_at,
            currency: "USD".to_owned(),
            period: selection.period,
            merchant_id: selection.merchant_id,
            partition: selection.partition,
            since_sha256,
            files,
            log,
        }
    }

    /// Its text.
    pub(super) fn to_json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self).context("cannot serialize the manifest")?;
        Ok(json + "\n")
    }

    /// Fails unless the export has all of these tables: what is new of another table is not known.
    pub(super) fn has(&self, tables: &[Table]) -> Result<()> {
        for table in tables {
            ensure!(
                self.files.iter().any(|file| file.table == *table),
                "the previous export has no table {}, so what is new in it is not known",
                table.name()
            );
        }
        Ok(())
    }
}

/// Reads the manifest of a previous export. Returns its SHA-256, too.
pub(super) fn read(file: &Path) -> Result<(Manifest, String)> {
    let text = bounded_file::read(file, MAX_BYTES)?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no manifest of an export", file.display()))?;
    ensure!(
        manifest.schema_version == SCHEMA_VERSION,
        "{} has the schema version {}, this program writes {SCHEMA_VERSION}: begin a new export",
        file.display(),
        manifest.schema_version
    );
    let sha256 = hex(digest(&SHA256, &text).as_ref());
    Ok((manifest, sha256))
}
