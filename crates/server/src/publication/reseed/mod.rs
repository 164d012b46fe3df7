//! A release takes the place of everything that was published before its cut.
//!
//! 1. The files of the release are read and checked, by themselves and with the rows that stay, before anything is changed.
//! 2. The store closes and publishes an edition, and removes what is published ([`alerts::ReseedStep::Begin`]): what stays of it is in the
//!    archive alone.
//! 3. The release and what stays are written as new files of all published tables, and prepared in the store.
//! 4. One transaction of the catalog shows the files, and one of the store puts what is prepared in its place.
//!
//! The catalog decides, for whoever goes on after somebody was killed ([`recover`]). A lock beside the store says whether somebody is at it.

mod checks;
mod files;
mod prepare;
mod recover;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;

use alerts::{AlertDatabase, AlertSchema, AlertTable, AlertsError, EditionTable, ReseedStep, Turn};
use catalog::{Catalog, CatalogError, TableKind};
use engine::Archive;
use ingest::{LoadRequest, Progress, Replacement, load};

use super::rows::NoRows;
use super::{PublicationError, last_published, now_us, publish_closed, tables, views};
use files::Scratch;
pub(super) use recover::recover;
use recover::{ReseedLock, settle};

/// The table of the archive that tells of releases.
pub const RELEASES: &str = "AlertRelease";

/// What is to take the place of what is published.
#[derive(Debug, Clone)]
pub struct ReseedRequest {
    /// The directory of the release.
    pub release: PathBuf,
    /// The time of the release, as MJD (TAI): it has what is from before, and what is from then on stays.
    pub cut: f64,
    /// Only look whether it could.
    pub dry_run: bool,
    /// Memory for joins and sorts, in bytes.
    pub memory: usize,
    /// Disk that these may take.
    pub spilled: u64,
}

/// Rows of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Those of the release.
    pub release: u64,
    /// Those that stay.
    pub kept: u64,
}

/// What was done, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReseedReport {
    /// Of each table, in the order of [`AlertTable::ALL`].
    pub tables: [TableCounts; 3],
    /// Rows that stay whose objects do not: sources and forced sources.
    pub without_object: [u64; 2],
    /// The edition that the release is; 0 if nothing was changed.
    pub edition: i64,
    /// The number of the release.
    pub release: i64,
}

/// How many releases an archive has had.
pub(super) async fn releases(catalog: &Catalog, database: &str) -> Result<i64, CatalogError> {
    let found = catalog.table(database, RELEASES).await?;
    Ok(found.map_or(0, |table| table.rows().cast_signed()))
}

/// Puts a release in the place of everything that was published before its cut, beside a server that stores. When it fails, everything is
/// as it was, or will be when it is begun anew or a server publishes.
///
/// # Errors
/// The release does not fit, somebody else is at it, or something cannot be read or written; each as a sentence.
pub async fn reseed(
    archive: &Arc<Archive>,
    database: &Arc<AlertDatabase>,
    request: &ReseedRequest,
) -> Result<ReseedReport, PublicationError> {
    let catalog = archive.catalog();
    if database.is_follower() || database.replica_seconds().is_none() {
        return Err(PublicationError::Release(format!(
            "{} cannot be reseeded: {}",
            database.name(),
            match database.is_follower() {
                true => "it follows another database, or did",
                false => "nothing of it can be published, since it was made without --replica",
            }
        )));
    }
    let Some(lock) = ReseedLock::take(database)? else {
        return Err(PublicationError::Release(format!(
            "{} is being reseeded already",
            database.name()
        )));
    };
    let mut turn = database.turn();
    if database.reseed_state().await?.is_some() {
        settle(catalog, database, Some(&mut turn)).await?;
    }
    super::check_is_same(catalog, database).await?;
    let schema = database.stored_schema().await?;
    let scratch = Scratch::make(archive, database.name(), &schema, request).await?;
    let mut report = ReseedReport::default();
    scratch.copy_release(request, &mut report).await?;
    checks::release(&scratch, request.cut).await?;
    if request.dry_run {
        scratch.copy_kept(request.cut, &mut report).await?;
        checks::together(&scratch, request.cut, &mut report).await?;
        return Ok(report);
    }
    let begin = ReseedStep::Begin {
        cut: request.cut,
        now_us: now_us(),
        is_postgres: matches!(database.kind(), alerts::StoreKind::Postgres { .. }),
    };
    let begun = turn.step(begin).await?;
    turn.give_back().await;
    let run = Run {
        archive,
        database,
        schema: &schema,
        scratch: &scratch,
        request,
    };
    let last = begun.count.cast_signed();
    let done = Box::pin(run.run(&mut turn, last, &mut report)).await;
    // Whatever went wrong, the catalog says what is to be done.
    let settled = settle(catalog, database, Some(&mut turn)).await;
    drop(lock);
    done?;
    settled?;
    Ok(report)
}

struct Run<'a> {
    archive: &'a Arc<Archive>,
    database: &'a Arc<AlertDatabase>,
    schema: &'a Arc<AlertSchema>,
    scratch: &'a Scratch,
    request: &'a ReseedRequest,
}

impl Run<'_> {
    /// Does everything but the last step.
    async fn run(
        &self,
        turn: &mut Turn<'_>,
        last: i64,
        report: &mut ReseedReport,
    ) -> Result<(), PublicationError> {
        let (catalog, database) = (self.archive.catalog(), self.database);
        publish_closed(self.archive, database).await?;
        tables::make(catalog, database, self.schema).await?;
        views::make(self.archive, database, self.schema).await?;
        make_releases(catalog, database).await?;
        let published = last_published(catalog, database).await?;
        if published != last {
            return Err(PublicationError::Release(format!(
                "{} has the editions through {last}, and those through {published} are published: publish it first",
                database.name()
            )));
        }
        if last > 0 {
            turn.empty(last).await?;
        }
        // As everything is that is published now.
        self.scratch.copy_kept(self.request.cut, report).await?;
        checks::together(self.scratch, self.request.cut, report).await?;
        prepare::store(self.scratch, turn).await?;
        turn.give_back().await;
        let names = EditionTable::ALL.map(EditionTable::name);
        let names = [&names[..], &[RELEASES][..]].concat();
        let progress = Arc::new(Progress::default());
        let mut new =
            Replacement::begin(catalog.data_dir(), database.name(), &names, progress).await?;
        let shown = Box::pin(self.show(&mut new, turn, report)).await;
        let is_shown = shown.is_ok()
            || matches!(releases(catalog, database.name()).await, Ok(number) if number == report.release);
        if !is_shown {
            new.roll_back().await;
            return shown;
        }
        // The store follows before files are removed, which may take a while.
        settle(catalog, database, Some(turn)).await?;
        turn.give_back().await;
        new.finish().await;
        Ok(())
    }

    /// Writes all published tables anew, and shows them.
    async fn show(
        &self,
        new: &mut Replacement,
        turn: &mut Turn<'_>,
        report: &mut ReseedReport,
    ) -> Result<(), PublicationError> {
        let (catalog, database) = (self.archive.catalog(), self.database);
        let state = database.reseed_state().await?.ok_or_else(|| {
            AlertsError::Conflict("it is not being reseeded any more: begin anew".to_owned())
        })?;
        (report.edition, report.release) = (state.edition, state.release);
        for table in EditionTable::ALL {
            if table != EditionTable::Edition {
                let rows = prepare::rows_of(self.scratch, table, state.closed_us).await?;
                new.fill(self.load_of(table, rows)).await?;
            }
        }
        // From here on pipelines wait: it takes a second or two.
        turn.keep().await?;
        let shown_us = now_us().max(state.closed_us);
        let editions = prepare::editions(self.scratch, &state, shown_us).await?;
        new.fill(self.load_of(EditionTable::Edition, editions))
            .await?;
        let of_releases =
            prepare::releases(self.scratch, self.request, &state, report, shown_us).await?;
        new.fill(releases_request(catalog, database.name(), of_releases))
            .await?;
        turn.step(ReseedStep::Ready { shown_us }).await?;
        let views = views::of_release(catalog, database, self.schema, shown_us).await?;
        let source = format!("release {}, edition {}", state.release, state.edition);
        new.publish(&source, &views).await?;
        Ok(())
    }

    fn load_of(&self, table: EditionTable, rows: Arc<dyn ingest::RowSource>) -> LoadRequest {
        let mut request =
            tables::request(self.archive.catalog(), self.database.name(), table, rows);
        request.memory = Some(self.request.memory as u64);
        request.source = Some("a release".to_owned());
        request
    }
}

fn releases_request(
    catalog: &Catalog,
    database: &str,
    rows: Arc<dyn ingest::RowSource>,
) -> LoadRequest {
    let mut request = LoadRequest::new(catalog.data_dir(), database, RELEASES);
    request.made = Some(rows);
    request.allow_empty = true;
    request.kind = Some(TableKind::Replicated);
    request
}

/// Makes the table of releases, unless it is there.
async fn make_releases(
    catalog: &Catalog,
    database: &AlertDatabase,
) -> Result<(), PublicationError> {
    if let Some(found) = catalog.table(database.name(), RELEASES).await? {
        return match found.spec.column(alerts::PUBLISHED) {
            Some(_) => Ok(()),
            None => Err(PublicationError::InTheWay {
                database: database.name().to_owned(),
                reason: format!(
                    "the archive has a table {RELEASES} that is not of it: rename that one or drop it"
                ),
            }),
        };
    }
    let no_rows = Arc::new(NoRows(prepare::release_columns()));
    let request = releases_request(catalog, database.name(), no_rows);
    load(request, Arc::new(Progress::default())).await?;
    Ok(())
}

/// The names of the columns of a table, quoted.
fn quoted(schema: &AlertSchema, table: AlertTable) -> String {
    let columns = schema.table(table).columns.iter();
    let columns: Vec<String> = columns.map(|column| format!("`{}`", column.name)).collect();
    columns.join(", ")
}
