//! An alert database: where it is, who writes into it, and how stores of several detectors are committed together.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use arrow::array::RecordBatch;
use sky::Region;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use crate::archived::DatabaseArchive;
use crate::config::{Config, StoreKind};
use crate::definition::{Definition, format_of, upgrade_tables, write_new};
use crate::editions::{Edition, EditionTable, OpenChunks};
use crate::error::{AlertsError, Result};
use crate::follow::Follows;
use crate::operation::{Operation, Outcome};
use crate::published::{EmptyStep, NeededRows, PublishedRows, RecalledRows, Through};
use crate::reads::{Reader, ReplicaChunk, SourceSelection};
use crate::reseed::ReseedState;
use crate::schema::{AlertSchema, AlertTable};
use crate::statements::{Dialect, SET_METADATA, drop_tables, following_tables, tables, upgrade};
use crate::store::{Connection, PostgresStore, SqliteStore, Store, Values};
use crate::transaction::emptied;
use crate::updates::UpdateRecord;
use crate::writer::{Job, Writer};

/// The directory of a data directory in which alert databases are, each in one of its name.
const DIRECTORY: &str = "alerts";
pub(crate) const CONFIG: &str = "config.json";
const SQLITE_FILE: &str = "hot.sqlite";
/// Operations that wait for the writer.
const MOST_WAITING: usize = 1024;
const LONGEST_NAME: usize = 48;
/// How often an operation is begun anew because of rows that only the archive has.
const MOST_RECALLS: usize = 8;

/// An alert database, opened.
#[derive(Debug)]
pub struct AlertDatabase {
    name: String,
    pub(crate) directory: PathBuf,
    kind: StoreKind,
    pub(crate) store: Arc<dyn Store>,
    definition: Arc<RwLock<Arc<Definition>>>,
    writer: mpsc::Sender<Job>,
    archive: DatabaseArchive,
    /// Whether this process has a turn at writing.
    pub(crate) visits: Arc<AtomicBool>,
    /// Held by whoever follows another database.
    pub(crate) turn: Mutex<()>,
}

/// The alert databases of a data directory, in the order of their names.
///
/// # Errors
/// The directory cannot be read.
pub fn list(data_dir: &Path) -> Result<Vec<String>> {
    let directory = data_dir.join(DIRECTORY);
    let failed = |source| AlertsError::File {
        path: directory.clone(),
        source,
    };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.path().join(CONFIG).is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether there is an alert database of a name, in whatever case. The archive's database of that name is changed by publishing alone.
///
/// # Errors
/// The directory of alert databases cannot be read.
pub fn is_one(data_dir: &Path, name: &str) -> Result<bool> {
    let folded = name.to_lowercase();
    Ok((list(data_dir)?.iter()).any(|it| it.to_lowercase() == folded))
}

/// Makes an alert database, which may follow another one. It is there as a whole, or not at all.
///
/// # Errors
/// There is one of the name, the name cannot be used, or the store cannot be reached or has one already.
pub async fn create(
    data_dir: &Path,
    name: &str,
    kind: &StoreKind,
    schema: &AlertSchema,
    replica_seconds: Option<i64>,
    keep_nights: Option<u32>,
    follows: Option<Follows>,
) -> Result<()> {
    let directory = directory_of(data_dir, name)?;
    if directory.join(CONFIG).exists() {
        return Err(AlertsError::Exists {
            name: name.to_owned(),
            path: directory,
        });
    }
    let failed = |source| AlertsError::File {
        path: directory.clone(),
        source,
    };
    std::fs::create_dir_all(&directory).map_err(failed)?;
    // What a creation that was killed has left is in nobody's way: it has no configuration.
    let opened = open_store(&directory, name, kind).await?;
    let mut writer = opened.store.writer().await?;
    let connection = writer.as_mut();
    connection.run("BEGIN").await?;
    if kind == &StoreKind::Sqlite {
        connection.run(&drop_tables()).await?;
    }
    connection
        .run(&tables(opened.dialect))
        .await
        .map_err(|error| match (kind, &error) {
            (StoreKind::Postgres { .. }, AlertsError::Storage(source))
                if source.to_string().contains("already exists") =>
            {
                AlertsError::Conflict(format!(
                    "the PostgreSQL database has an alert database {name} already, in its schema meridian_{}: choose another name, or drop the schema if no server uses it",
                    name.to_lowercase()
                ))
            }
            _ => error,
        })?;
    if follows.is_some() {
        connection.run(&following_tables(opened.dialect)).await?;
    }
    write_new(
        connection,
        schema,
        replica_seconds,
        keep_nights,
        follows.is_some(),
    )
    .await?;
    let metadata = [
        ("version:schema", schema.version().to_owned()),
        ("version:meridian", env!("CARGO_PKG_VERSION").to_owned()),
        (
            "config:replica_seconds",
            replica_seconds.unwrap_or(0).to_string(),
        ),
    ];
    let keys = Values::texts(metadata.iter().map(|(key, _)| (*key).to_owned()));
    let values = Values::texts(metadata.into_iter().map(|(_, value)| value));
    connection.change(SET_METADATA, &[keys, values]).await?;
    connection.run("COMMIT").await?;
    drop(writer);
    let config = Config {
        kind: kind.clone(),
        follows,
    };
    config.write(&directory.join(CONFIG)).map_err(failed)
}

/// Names are of letters, digits and underscores, so that they can stand in paths, URLs and statements.
pub(crate) fn directory_of(data_dir: &Path, name: &str) -> Result<PathBuf> {
    let is_usable = (1..=LONGEST_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_usable {
        true => Ok(data_dir.join(DIRECTORY).join(name)),
        false => Err(AlertsError::Invalid(format!(
            "{name:?} cannot be the name of an alert database: it has 1 to {LONGEST_NAME} ASCII letters, digits or underscores"
        ))),
    }
}

struct OpenedStore {
    store: Arc<dyn Store>,
    dialect: Dialect,
}

async fn open_store(directory: &Path, name: &str, kind: &StoreKind) -> Result<OpenedStore> {
    Ok(match kind {
        StoreKind::Sqlite => OpenedStore {
            store: Arc::new(SqliteStore::open(name, &directory.join(SQLITE_FILE)).await?),
            dialect: Dialect::Sqlite,
        },
        StoreKind::Postgres { url } => OpenedStore {
            store: Arc::new(PostgresStore::open(name, url).await?),
            dialect: Dialect::Postgres,
        },
    })
}

/// Reads; rows that another server has stored with a later schema are read with that.
macro_rules! read {
    ($database:ident, $method:ident($($argument:expr),*)) => {
        read!($database, reader, $method($($argument),*))
    };
    ($database:ident, $connection:ident, $method:ident($($argument:expr),*)) => {{
        let mut reader = $database.$connection().await?;
        match reader.$method($($argument),*).await {
            Err(AlertsError::UnknownLayout { .. }) => {
                $database.redefine(&mut reader).await?;
                reader.$method($($argument),*).await
            }
            outcome => outcome,
        }
    }};
}

impl AlertDatabase {
    /// Opens an alert database.
    ///
    /// # Errors
    /// There is none of the name, or it cannot be read.
    pub async fn open(data_dir: &Path, name: &str) -> Result<Self> {
        let no_database = || AlertsError::NoDatabase {
            name: name.to_owned(),
        };
        let directory = directory_of(data_dir, name).map_err(|_| no_database())?;
        let config = Config::read(&directory.join(CONFIG))?.ok_or_else(no_database)?;
        let kind = config.kind;
        let opened = open_store(&directory, name, &kind).await?;
        let format = format_of(opened.store.reader().await?.as_mut()).await?;
        if format.is_some_and(|format| upgrade(format, opened.dialect).is_some()) {
            let mut writer = opened.store.writer().await?;
            upgrade_tables(writer.as_mut(), opened.dialect).await?;
        }
        let store = opened.store;
        let definition = Definition::read(name, store.reader().await?.as_mut()).await?;
        let definition = Arc::new(RwLock::new(Arc::new(definition)));
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        let visits = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            visits: Arc::clone(&visits),
            gave_way: false,
            looked: Instant::now(),
            name: name.to_owned(),
            store: Arc::clone(&store),
            definition: Arc::clone(&definition),
            connection: None,
        };
        tokio::spawn(writer.run(receiver));
        Ok(Self {
            name: name.to_owned(),
            directory,
            visits,
            turn: Mutex::default(),
            kind,
            store,
            definition,
            writer: sender,
            archive: DatabaseArchive::new(name),
        })
    }

    /// Reads what is only in an archive there. Without one, a database that was emptied cannot be read.
    #[must_use]
    pub fn with_archive(mut self, archive: Arc<dyn PublishedRows>) -> Self {
        self.archive = self.archive.with(archive);
        self
    }

    /// The directory in which it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where rows are kept.
    pub fn kind(&self) -> &StoreKind {
        &self.kind
    }

    /// The schema.
    pub fn schema(&self) -> Arc<AlertSchema> {
        Arc::clone(&self.definition().schema)
    }

    /// The time span of a replica chunk in seconds, if they are kept.
    pub fn replica_seconds(&self) -> Option<i64> {
        self.definition().replica_seconds
    }

    pub(crate) fn definition(&self) -> Arc<Definition> {
        Arc::clone(
            &self
                .definition
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Does an operation. When this returns without an error, what it did is on disk.
    ///
    /// # Errors
    /// It was refused, or could not be done; then nothing of it was.
    pub async fn apply(&self, operation: Operation) -> Result<Outcome> {
        let operation = Arc::new(operation);
        let (mut needed, mut recalled) = (NeededRows::default(), None);
        for _ in 0..MOST_RECALLS {
            match self.send(&operation, recalled.take()).await {
                Err(AlertsError::OnlyPublished(more)) => {
                    needed.extend(*more);
                    recalled = Some(read!(self, snapshot, recalled(&needed))?);
                }
                outcome => return outcome,
            }
        }
        Err(AlertsError::Conflict(
            "rows that it needs were published and changed meanwhile: send it again".to_owned(),
        ))
    }

    async fn send(
        &self,
        operation: &Arc<Operation>,
        recalled: Option<RecalledRows>,
    ) -> Result<Outcome> {
        let (reply, outcome) = oneshot::channel();
        let job = Job {
            operation: Arc::clone(operation),
            recalled,
            reply,
        };
        self.writer
            .send(job)
            .await
            .map_err(|_| AlertsError::Ending)?;
        outcome.await.map_err(|_| AlertsError::Ending)?
    }

    /// Removes what is published in an edition or before; tells how many rows that were. Stores go on meanwhile.
    ///
    /// # Errors
    /// Another server stores into it, or nothing can be written. What was removed stays so.
    pub async fn empty(&self, through: i64) -> Result<u64> {
        let step = None;
        self.apply(Operation::Empty { through, step }).await?;
        let mut removed = 0;
        for step in self.empty_steps(through).await? {
            loop {
                match self.apply(step.operation(through)).await?.count {
                    0 => break,
                    count => removed += count,
                }
            }
        }
        Ok(removed)
    }

    /// What can be removed of what is published in an edition or before.
    pub(crate) async fn empty_steps(&self, through: i64) -> Result<Vec<EmptyStep>> {
        read!(self, empty_steps(through))
    }

    /// The release that is being put in the place of what is published, if one is.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn reseed_state(&self) -> Result<Option<ReseedState>> {
        read!(self, reseed_state())
    }

    /// From when on users see the last release, in microseconds since 1970 (UTC), if there was one.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn reseeded(&self) -> Result<Option<i64>> {
        read!(self, reseeded())
    }

    /// How many nights rows stay in the store after they are published: what the metadata `config:keep_nights` says, or else what was said
    /// when the database was made. `None` for ever.
    ///
    /// # Errors
    /// It says no number, or the store cannot be read.
    pub async fn keep_nights(&self) -> Result<Option<u32>> {
        read!(self, keep_nights())
    }

    /// Up to which edition rows are only in the archive.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn emptied(&self) -> Result<Option<Through>> {
        emptied(self.store.reader().await?.as_mut()).await
    }

    /// What reads with a connection of its own.
    async fn reader(&self) -> Result<Reader> {
        Ok(self.reading(self.store.reader().await?))
    }

    /// What reads as of one moment.
    async fn snapshot(&self) -> Result<Reader> {
        Ok(self.reading(self.store.snapshot().await?))
    }

    fn reading(&self, connection: Box<dyn Connection>) -> Reader {
        Reader {
            connection,
            definition: self.definition(),
            archive: self.archive.clone(),
        }
    }

    /// The schema as the store has it: another server may have set it since this database was opened.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn stored_schema(&self) -> Result<Arc<AlertSchema>> {
        let mut reader = self.store.reader().await?;
        let stored = Arc::new(Definition::read(&self.name, reader.as_mut()).await?);
        let mut known = self
            .definition
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // Each schema has layouts of its own beside those before.
        if stored.layouts.len() > known.layouts.len() {
            *known = Arc::clone(&stored);
        }
        Ok(Arc::clone(&stored.schema))
    }

    /// Reads anew what is known of the database.
    async fn redefine(&self, reader: &mut Reader) -> Result<()> {
        let definition = Arc::new(Definition::read(&self.name, reader.connection.as_mut()).await?);
        reader.definition = Arc::clone(&definition);
        *self
            .definition
            .write()
            .unwrap_or_else(PoisonError::into_inner) = definition;
        Ok(())
    }

    /// The latest versions of the live objects in a region.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn latest_objects(&self, region: &Region) -> Result<Vec<RecordBatch>> {
        read!(self, latest_objects(region))
    }

    /// The objects whose latest version began at a time or later, as MJD (TAI); without a time, since
    /// [`Operation::ResetDeduplication`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn objects_since(&self, since: Option<f64>) -> Result<Vec<RecordBatch>> {
        read!(self, objects_since(since))
    }

    /// Sources whose exposures' middle is at a time or later, as MJD (TAI). Those of the solar system are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn sources(
        &self,
        selection: &SourceSelection,
        since: f64,
    ) -> Result<Vec<RecordBatch>> {
        read!(self, snapshot, sources(selection, since))
    }

    /// Forced sources whose exposures' middle is at a time or later, as MJD (TAI).
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn forced_sources(
        &self,
        selection: &SourceSelection,
        since: f64,
    ) -> Result<Vec<RecordBatch>> {
        read!(self, snapshot, forced(selection, since))
    }

    /// Whether a source or a forced source of an exposure of a detector was stored.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn contains(&self, visit: i64, detector: i64) -> Result<bool> {
        read!(self, contains(visit, detector))
    }

    /// How many live objects have exactly one source.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn objects_of_one_source(&self) -> Result<u64> {
        read!(self, objects_of_one_source())
    }

    /// All metadata, in the order of the keys.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn metadata(&self) -> Result<Vec<(String, String)>> {
        read!(self, metadata())
    }

    /// The replica chunks, in the order of their times; `None` if the database keeps none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn replica_chunks(&self) -> Result<Option<Vec<ReplicaChunk>>> {
        match self.replica_seconds() {
            None => Ok(None),
            Some(_) => {
                self.check_has_chunks()?;
                read!(self, replica_chunks()).map(Some)
            }
        }
    }

    /// The rows of a table that were stored in these chunks, with the column `apdb_replica_chunk` behind the others.
    ///
    /// # Errors
    /// The database keeps no chunks, or the store cannot be read.
    pub async fn rows_of_chunks(
        &self,
        table: AlertTable,
        chunks: &[i64],
    ) -> Result<Vec<RecordBatch>> {
        self.check_has_chunks()?;
        read!(self, rows_of_chunks(table, chunks))
    }

    /// The updates that were logged in these chunks, in their order.
    ///
    /// # Errors
    /// The database keeps no chunks, or the store cannot be read.
    pub async fn updates_of_chunks(&self, chunks: &[i64]) -> Result<Vec<UpdateRecord>> {
        self.check_has_chunks()?;
        read!(self, updates_of_chunks(chunks))
    }

    /// The editions after the one of a number, in their order.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn editions(&self, after: i64) -> Result<Vec<Edition>> {
        read!(self, editions(after))
    }

    /// The numbers of all editions in their order, and when they were closed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn closings(&self) -> Result<Vec<Through>> {
        read!(self, closings())
    }

    /// What is of no edition yet, at a time in microseconds since 1970 (UTC).
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn open_chunks(&self, now_us: i64) -> Result<OpenChunks> {
        read!(self, open_chunks(now_us))
    }

    /// The rows of a part of a table of an edition, in the table's columns: the same ones whenever they are read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn edition_rows(
        &self,
        edition: &Edition,
        table: EditionTable,
        part: usize,
    ) -> Result<Vec<RecordBatch>> {
        read!(self, edition_rows(edition, table, part))
    }

    fn check_has_chunks(&self) -> Result<()> {
        match self.replica_seconds() {
            Some(_) if self.is_follower() => Err(AlertsError::Conflict(format!(
                "the alert database {} has the rows of another one: copy the replica chunks of that one",
                self.name
            ))),
            Some(_) => Ok(()),
            None => Err(AlertsError::Conflict(format!(
                "the alert database {} keeps no replica chunks: it was made without --replica",
                self.name
            ))),
        }
    }
}
