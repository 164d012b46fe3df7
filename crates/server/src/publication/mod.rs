//! Publishing alert databases: what is closed in the hot store becomes parts of tables, which users read through views.
//!
//! An [`Edition`] is published in one transaction of the catalog: parts of all its tables, among them a row of the table `Edition`. So the
//! rows of that table tell which editions are published, and each is published once, whatever happens to whoever publishes. Columns that the
//! schema has got since the tables were made come with the next edition, in the same transaction, and so do the views as they are to be then.
//!
//! Invariant: an edition is published with every column that its rows have.

mod archive_rows;
mod background;
mod emptying;
mod following;
mod reseed;
mod rows;
mod solar_system;
mod tables;
mod views;
mod words;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use alerts::{AlertDatabase, AlertSchema, AlertsError, Edition, EditionTable, Operation};
use catalog::{Catalog, CatalogError};
use engine::{Archive, EngineError};
use ingest::{AppendAllRequest, IngestError, Progress, TableRows, append_all};
use tokio::runtime::Handle;

pub(crate) use archive_rows::ArchiveRows;
pub(crate) use background::{Publishing, publish_in_background};
pub use emptying::empty_store;
pub(crate) use following::{Following, follow_in_background};
pub use reseed::{RELEASES, ReseedReport, ReseedRequest, TableCounts, reseed};
use rows::EditionRows;

/// Memory that a publication may take for rows: it runs beside queries.
const MEMORY: u64 = 256 << 20;

/// Why an alert database could not be published. Nothing is half published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublicationError {
    /// The hot store cannot be read, or another server has it.
    #[error(transparent)]
    Alerts(#[from] AlertsError),
    /// The tables cannot be written.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The views cannot be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A release cannot take the place of what is there. Nothing has changed.
    #[error("{0}")]
    Release(String),
    /// The archive has a database of the name that is another one.
    #[error("{database} cannot be published: {reason}")]
    InTheWay {
        /// The alert database.
        database: String,
        /// What is in the way, and what to do.
        reason: String,
    },
}

/// An edition that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedEdition {
    /// Its number.
    pub number: i64,
    /// The ids of its replica chunks.
    pub chunks: String,
    /// The rows of its tables.
    pub rows: u64,
}

/// What is published of an alert database, and what waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublicationStatus {
    /// The last edition that is published; 0 if none is.
    pub published: i64,
    /// Editions that are closed and not published.
    pub waiting: u64,
    /// Replica chunks of no edition yet.
    pub open: u64,
    /// Those among them that are over, with which the next edition begins.
    pub over: u64,
}

impl PublicationStatus {
    /// Of a database that keeps replica chunks.
    ///
    /// # Errors
    /// The store or the catalog cannot be read.
    pub async fn of(catalog: &Catalog, database: &AlertDatabase) -> Result<Self, PublicationError> {
        let published = last_published(catalog, database).await?;
        let waiting = database.editions(published).await?.len() as u64;
        let chunks = database.open_chunks(now_us()).await?;
        Ok(Self {
            published,
            waiting,
            open: chunks.open,
            over: chunks.over,
        })
    }
}

/// Publishes what is closed by now of an alert database, and tells of each edition. `archive` sees everything.
///
/// # Errors
/// The database keeps no replica chunks, another server stores into it, or nothing can be written. Editions that were published stay.
pub async fn publish(
    archive: &Arc<Archive>,
    database: &Arc<AlertDatabase>,
) -> Result<Vec<PublishedEdition>, PublicationError> {
    let catalog = archive.catalog();
    let now = now_us();
    reseed::recover(catalog, database).await?;
    check_is_same(catalog, database).await?;
    // Whoever closes an edition becomes the writer for a moment: that is not done for nothing.
    if database.replica_seconds().is_none() || database.open_chunks(now).await?.over > 0 {
        let operation = Operation::CloseEdition { now_us: now };
        database.apply(operation).await?;
    }
    publish_closed(archive, database).await
}

/// Publishes the editions that are closed and not published.
async fn publish_closed(
    archive: &Arc<Archive>,
    database: &Arc<AlertDatabase>,
) -> Result<Vec<PublishedEdition>, PublicationError> {
    let catalog = archive.catalog();
    let mut done = Vec::new();
    let published = last_published(catalog, database).await?;
    let editions = database.editions(published).await?;
    if editions.is_empty() {
        return Ok(done);
    }
    // Read after the editions were closed: it has all columns of their rows.
    let schema = database.stored_schema().await?;
    tables::make(catalog, database, &schema).await?;
    views::make(archive, database, &schema).await?;
    solar_system::make(archive, database, &schema).await?;
    words::describe(catalog, database, &schema).await?;
    for edition in editions {
        match publish_edition(catalog, database, &schema, &edition).await {
            Ok(rows) => done.push(PublishedEdition {
                number: edition.number,
                chunks: edition.chunk_ids(),
                rows,
            }),
            // Another process has published it meanwhile.
            Err(PublicationError::Ingest(IngestError::Catalog(CatalogError::TableChanged {
                ..
            }))) if last_published(catalog, database).await? >= edition.number => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Sees that the store knows the editions that are published: an older copy of it gives their numbers to others.
async fn check_is_same(
    catalog: &Catalog,
    database: &AlertDatabase,
) -> Result<(), PublicationError> {
    let published = last_published(catalog, database).await?;
    if let Some(emptied) = database.emptied().await?
        && emptied.edition > published
    {
        return Err(PublicationError::InTheWay {
            database: database.name().to_owned(),
            reason: format!(
                "the archive has the editions through {published}, and the rows of those through {} are nowhere else: restore it from a backup",
                emptied.edition
            ),
        });
    }
    let known = database.editions(published - 1).await?;
    if published == 0 || known.iter().any(|edition| edition.number == published) {
        return Ok(());
    }
    Err(PublicationError::InTheWay {
        database: database.name().to_owned(),
        reason: format!(
            "the archive has edition {published}, which the alert database does not know: it was made anew, or is a copy from before. \
             `meridian drop database --db {}` removes what is published; then everything is published anew",
            database.name()
        ),
    })
}

/// The number of the last edition that is published: each has one row in the table of editions, in their order.
async fn last_published(catalog: &Catalog, database: &AlertDatabase) -> Result<i64, CatalogError> {
    let name = EditionTable::Edition.name();
    let found = catalog.table(database.name(), name).await?;
    Ok(found.map_or(0, |table| table.rows().cast_signed()))
}

async fn publish_edition(
    catalog: &Catalog,
    database: &Arc<AlertDatabase>,
    schema: &Arc<AlertSchema>,
    edition: &Edition,
) -> Result<u64, PublicationError> {
    let views = views::with_new_columns(catalog, database, schema).await?;
    let edition = Arc::new(edition.clone());
    let runtime = Handle::current();
    let rows = |table: EditionTable| TableRows {
        table: table.name().to_owned(),
        rows: Arc::new(EditionRows::new(
            Arc::clone(database),
            schema,
            Arc::clone(&edition),
            table,
            runtime.clone(),
        )),
    };
    let before = edition.number.unsigned_abs().saturating_sub(1);
    let request = AppendAllRequest {
        data_dir: catalog.data_dir().to_owned(),
        database: database.name().to_owned(),
        tables: EditionTable::ALL.into_iter().map(rows).collect(),
        source: format!(
            "edition {}, replica chunks {}",
            edition.number,
            edition.chunk_ids()
        ),
        expects: Some((EditionTable::Edition.name().to_owned(), before)),
        views,
        memory: Some(MEMORY),
        threads: Some(1),
    };
    let appended = append_all(request, Arc::new(Progress::default())).await?;
    Ok(appended.iter().map(|part| part.rows).sum())
}

/// Microseconds since 1970 (UTC).
fn now_us() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_micros() as i64)
}
