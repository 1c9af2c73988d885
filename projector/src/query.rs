//! Shared parts of the queries of all read models: keyset pages, newest first by (instant, id), and typed errors
//! (completion.md section 1, Lists).

use std::fmt::Display;
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_log::connect::redacted;
use farthing_schema::read_model::ReadModel;
use futures_util::TryStreamExt as _;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::row::{FromRow, ReadColumn as _, Unreadable};
use crate::schemas::Schemas;

/// The bytes after which a page ends with fewer items than its limit. Items are as long as their owner made them, and a
/// page is held in memory until its reader has received it.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// An error of a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cursor is not the id of an item of this list.
    #[error("the cursor is not an id of this list")]
    CursorInvalid,
    /// The event at this position is in the archive of the log, which gateways do not read.
    #[error("the event at position {0} is archived")]
    Archived(i64),
    /// Postgres does not answer.
    #[error("cannot read the read model: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// A row holds a value that no projection writes.
    #[error("a row of the read model cannot be read: {0}")]
    Row(#[from] Unreadable),
}

/// A connection, for reading the rows of one partition. Parameter $1 of every statement is the partition.
#[derive(Clone, Copy)]
pub struct PartitionClient<'a> {
    client: &'a Client,
    schemas: &'a Schemas,
    partition: i16,
    unanswered: Option<&'a AtomicUsize>,
}

impl<'a> PartitionClient<'a> {
    /// Reads the rows of `partition` over `client`, in the generations of `schemas`.
    pub const fn new(client: &'a Client, schemas: &'a Schemas, partition: Partition) -> Self {
        Self { client, schemas, partition: partition.number(), unanswered: None }
    }

    /// The same. Counts the statements that Postgres has not answered: one whose reader is dropped stays counted, because
    /// the connection is still busy with it.
    #[must_use]
    pub const fn counting(self, unanswered: &'a AtomicUsize) -> Self {
        Self { unanswered: Some(unanswered), ..self }
    }

    /// The schema and the version of the generation of `model`.
    pub(crate) fn generation(self, model: ReadModel) -> (&'a str, i64) {
        self.schemas.generation(model)
    }

    /// The rows that `sql` selects, which names the schema of a read model as `{customers}`. `parameters` are those from
    /// $2 on.
    pub(crate) async fn query(
        self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        Ok(self.query_up_to(usize::MAX, sql, parameters).await?.rows)
    }

    /// The same, up to the row with which they have `max_bytes`. The first row is read whatever its length.
    pub(crate) async fn query_up_to(
        self,
        max_bytes: usize,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<FirstRows, tokio_postgres::Error> {
        let partition: Parameter<'_> = (&self.partition, Type::INT2);
        let all = std::iter::once(partition).chain(parameters.iter().cloned());
        if let Some(unanswered) = self.unanswered {
            unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let answer = first_rows(self.client, max_bytes, &self.schemas.sql(sql), all).await;
        // While Postgres sends further rows, the connection is busy with the statement.
        if let Some(unanswered) = self.unanswered
            && !matches!(answer, Ok(FirstRows { is_cut: true, .. }))
        {
            unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        answer
    }
}

/// The first rows of a query.
pub(crate) struct FirstRows {
    pub(crate) rows: Vec<Row>,
    /// Whether rows follow that were not read.
    pub(crate) is_cut: bool,
}

async fn first_rows<'a>(
    client: &Client,
    max_bytes: usize,
    sql: &str,
    parameters: impl IntoIterator<Item = Parameter<'a>>,
) -> Result<FirstRows, tokio_postgres::Error> {
    let mut found = pin!(client.query_typed_raw(sql, parameters).await?);
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    while let Some(row) = found.try_next().await? {
        if bytes >= max_bytes {
            return Ok(FirstRows { rows, is_cut: true });
        }
        bytes = bytes.saturating_add(row.raw_size_bytes());
        rows.push(row);
    }
    Ok(FirstRows { rows, is_cut: false })
}

/// The part of a list that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// The id of the last item of the page before; `None` for the first page.
    pub cursor: Option<&'a str>,
    /// The largest number of items.
    pub limit: u16,
    /// About the largest number of bytes.
    pub max_bytes: usize,
}

impl Page<'_> {
    /// Looks up the item that the cursor, an id of type `I`, names. `sql` selects the item's instant as `at`; its
    /// parameters after the partition are `owner` and the id.
    pub(crate) async fn start<I: FromStr + Display>(
        self,
        db: PartitionClient<'_>,
        sql: &str,
        owner: &str,
    ) -> Result<Start, Error> {
        let Some(cursor) = self.cursor else { return Ok(Start::default()) };
        let id = cursor.parse::<I>().map_err(|_| Error::CursorInvalid)?.to_string();
        let row = first_row(db, sql, &[text(&owner), text(&id)]).await?.ok_or(Error::CursorInvalid)?;
        Ok(Start { at: Some(row.plain("at")?), id })
    }

    /// The number of rows to select: one more than the page has, which shows whether there are more.
    pub(crate) fn rows_to_select(self) -> i64 {
        i64::from(self.limit) + 1
    }
}

/// The item after which a page begins: its instant and its id. The first page has no instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Start {
    pub(crate) at: Option<DateTime<Utc>>,
    pub(crate) id: String,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// The items, newest first.
    pub items: Vec<T>,
    /// Whether there are older items. A page may have fewer than its limit then: it ends after the bytes of a page.
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// A list without items.
    pub(crate) const fn empty() -> Self {
        Self { items: Vec::new(), has_more: false }
    }

    /// The page of `items`, one of which is beyond its limit if there is one. `is_cut` says that others follow.
    pub(crate) fn cut(mut items: Vec<T>, is_cut: bool, page: Page<'_>) -> Self {
        let has_more = is_cut || items.len() > usize::from(page.limit);
        items.truncate(usize::from(page.limit));
        Self { items, has_more }
    }
}

/// A parameter and its type. With the types given, a query needs no round trip to be prepared, and Postgres plans it
/// for the values of its parameters.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A parameter of type `text`.
pub(crate) const fn text<T: ToSql + Sync>(value: &T) -> Parameter<'_> {
    (value, Type::TEXT)
}

/// A parameter of type `timestamptz`.
pub(crate) const fn instant<T: ToSql + Sync>(value: &T) -> Parameter<'_> {
    (value, Type::TIMESTAMPTZ)
}

/// The first row of a query.
pub(crate) async fn first_row(
    db: PartitionClient<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Option<Row>, tokio_postgres::Error> {
    Ok(db.query(sql, parameters).await?.into_iter().next())
}

/// The first row of a query, as its type.
pub(crate) async fn first<R: FromRow>(
    db: PartitionClient<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Option<R>, Error> {
    Ok(first_row(db, sql, parameters).await?.as_ref().map(R::from_row).transpose()?)
}

/// All rows of a query, as their type.
pub(crate) async fn all<R: FromRow>(
    db: PartitionClient<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<R>, Error> {
    Ok(read(&db.query(sql, parameters).await?)?)
}

/// The rows, as their type.
pub(crate) fn read<R: FromRow>(rows: &[Row]) -> Result<Vec<R>, Unreadable> {
    rows.iter().map(R::from_row).collect()
}

/// The page of the rows that `sql` selects, which are [`Page::rows_to_select`] at most.
pub(crate) async fn page<R: FromRow>(
    db: PartitionClient<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
    page: Page<'_>,
) -> Result<Listed<R>, Error> {
    let FirstRows { rows, is_cut } = db.query_up_to(page.max_bytes, sql, parameters).await?;
    Ok(Listed::cut(read(&rows)?, is_cut, page))
}

/// The items of a page. The parameters of `sql` after the partition are `parameters`, then the instant and the id after which the page
/// begins, then the number of rows.
pub(crate) async fn list<R: FromRow>(
    db: PartitionClient<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
    start: &Start,
    page: Page<'_>,
) -> Result<Listed<R>, Error> {
    let limit = page.rows_to_select();
    let mut parameters = parameters.to_vec();
    parameters.extend([instant(&start.at), text(&start.id), (&limit, Type::INT8)]);
    self::page(db, sql, &parameters, page).await
}

/// Whether a stored text can equal `text`: Postgres stores no NUL.
pub(crate) fn findable(text: &str) -> bool {
    !text.contains('\0')
}
