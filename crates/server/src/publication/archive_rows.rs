//! What pipelines read of an alert database that is only in the archive.
//!
//! Statements over the published tables give it, as of the edition up to which the store was emptied. They run on threads of their own, so
//! that users' queries do not hold pipelines up.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use alerts::{
    AlertTable, AlertsError, EditionTable, PUBLISHED, PublishedRequest, PublishedRows,
    PublishedSelection, names,
};
use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use catalog::fold_name;
use futures::StreamExt;
use sky::Region;
use sql::AS_OF_FUNCTION;

use super::views::{column, forced, sources};
use crate::ClientError;
use crate::query_runtime::QueryRuntime;
use crate::sessions::Sessions;

/// Keys in one statement.
const MOST_KEYS: usize = 2_000;
/// Rows that are read at a time, as of the store.
const MOST_ROWS: usize = 2_000_000;
/// Degrees by which the box of a region is made larger, so that no rounding leaves out what is on its edge.
const MARGIN: f64 = 1e-6;

/// The published tables of an archive.
#[derive(Debug)]
pub(crate) struct ArchiveRows {
    sessions: Arc<Sessions>,
    threads: NonZeroUsize,
    runtime: OnceLock<QueryRuntime>,
}

impl ArchiveRows {
    pub(crate) fn new(sessions: Arc<Sessions>, threads: NonZeroUsize) -> Self {
        Self {
            sessions,
            threads,
            runtime: OnceLock::new(),
        }
    }

    fn runtime(&self) -> Result<&QueryRuntime, AlertsError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let started = QueryRuntime::new(self.threads);
        let started = started.map_err(|error| AlertsError::Archive(error.to_string()))?;
        Ok(self.runtime.get_or_init(|| started))
    }

    /// The columns that are published of a table, if the edition is.
    async fn published(&self, request: &PublishedRequest<'_>) -> Result<Vec<String>, AlertsError> {
        let catalog = self.sessions.archive().catalog();
        let find = async |table: EditionTable| {
            let found = catalog.table(request.database, table.name()).await;
            found.map_err(|error| AlertsError::Archive(error.to_string()))
        };
        let editions = find(EditionTable::Edition).await?;
        let last = editions.map_or(0, |table| table.rows().cast_signed());
        let table = match request.table {
            AlertTable::DiaObject => EditionTable::Versions,
            AlertTable::DiaSource => EditionTable::Sources,
            AlertTable::DiaForcedSource => EditionTable::Forced,
        };
        match find(table).await? {
            Some(table) if last >= request.through.edition => {
                let columns = table.spec.columns.into_iter();
                Ok(columns.map(|column| column.name).collect())
            }
            _ => Err(AlertsError::Archive(format!(
                "the archive has the editions through {last}, and those through {} are nowhere else: restore it from a backup",
                request.through.edition
            ))),
        }
    }

    /// The rows of one statement.
    async fn run(&self, database: &str, text: String) -> Result<Vec<RecordBatch>, AlertsError> {
        let sessions = Arc::clone(&self.sessions);
        let database = database.to_owned();
        let work = async move {
            let session = sessions.of(Some(&database)).await?;
            let parsed = session.parse_one(&text).await?;
            let prepared = session.prepare(&text, parsed).await?;
            let mut result = session.start(prepared)?;
            let (mut batches, mut rows) = (Vec::new(), 0);
            while let Some(batch) = result.batches.next().await {
                let batch = batch?;
                rows += batch.num_rows();
                if rows > MOST_ROWS {
                    return Ok(None);
                }
                batches.push(batch);
            }
            Ok::<_, ClientError>(Some(batches))
        };
        let found = self.runtime()?.compute(Box::pin(work)).recv_one().await;
        match found {
            Ok(Some(batches)) => Ok(batches),
            Ok(None) => Err(AlertsError::TooMany { most: MOST_ROWS }),
            Err(error) => Err(AlertsError::Archive(error.sentence)),
        }
    }
}

#[async_trait]
impl PublishedRows for ArchiveRows {
    async fn rows(&self, request: PublishedRequest<'_>) -> Result<Vec<RecordBatch>, AlertsError> {
        let published = self.published(&request).await?;
        let mut fields = Vec::with_capacity(request.columns.columns.len() + 1);
        let (mut selected, mut places) = (Vec::new(), Vec::new());
        let declared = request.columns.columns.iter();
        let declared = declared.map(|it| (it.name.as_str(), it.column_type.arrow()));
        for (name, ty) in declared.chain([(PUBLISHED, DataType::Int64)]) {
            let folded = fold_name(name);
            // A column that came later is NULL in all rows from before.
            let is_published = published.iter().any(|it| fold_name(it) == folded);
            places.push(is_published.then_some(selected.len()));
            if is_published {
                selected.push(name.to_owned());
            }
            fields.push(Field::new(name, ty, true));
        }
        let schema = Arc::new(Schema::new(fields));
        let mut found: Vec<RecordBatch> = Vec::new();
        for text in statements(&request, &selected) {
            for batch in self.run(request.database, text).await? {
                let column = |(place, field): (&Option<usize>, &Arc<Field>)| match place {
                    Some(place) => arrow::compute::cast(batch.column(*place), field.data_type()),
                    None => Ok(new_null_array(field.data_type(), batch.num_rows())),
                };
                let columns: Result<Vec<_>, _> =
                    places.iter().zip(schema.fields()).map(column).collect();
                let made =
                    columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&schema), columns));
                found.push(made.map_err(|error| AlertsError::Archive(error.to_string()))?);
            }
            if found.iter().map(RecordBatch::num_rows).sum::<usize>() > MOST_ROWS {
                return Err(AlertsError::TooMany { most: MOST_ROWS });
            }
        }
        Ok(found)
    }
}

/// The statements that give the rows of a request.
fn statements(request: &PublishedRequest<'_>, columns: &[String]) -> Vec<String> {
    let state = match request.table {
        AlertTable::DiaSource => sources(columns),
        AlertTable::DiaForcedSource => forced(columns),
        // The last version of each stays in the store.
        AlertTable::DiaObject => return Vec::new(),
    };
    let state = state.replace(
        &format!("{AS_OF_FUNCTION}()"),
        &request.through.closed_us.to_string(),
    );
    let since = request.since.map_or_else(String::new, |since| {
        format!(" AND {} >= {since:?}", column("s", names::MIDPOINT))
    });
    match request.selection {
        PublishedSelection::In(region) => vec![format!("{state}{since} AND {}", in_box(region))],
        PublishedSelection::Of(objects) => lists(objects)
            .map(|list| {
                format!(
                    "{state}{since} AND {} IN ({list})",
                    column("s", names::DIA_OBJECT)
                )
            })
            .collect(),
        PublishedSelection::Sources(sources) => lists(sources)
            .map(|list| {
                format!(
                    "{state}{since} AND {} IN ({list})",
                    column("s", names::DIA_SOURCE)
                )
            })
            .collect(),
    }
}

/// Numbers, each once, in lists of so many.
fn lists(numbers: &[i64]) -> impl Iterator<Item = String> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    let list = |numbers: &[i64]| {
        let mut list = String::new();
        for (at, number) in numbers.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            // A text can always be written to.
            let _ = write!(list, "{comma}{number}");
        }
        list
    };
    let lists: Vec<String> = numbers.chunks(MOST_KEYS).map(list).collect();
    lists.into_iter()
}

/// The condition that a row is in the box around a region.
fn in_box(region: &Region) -> String {
    let bounds = region.envelope_box();
    let (low, high) = (bounds.dec_min() - MARGIN, bounds.dec_max() + MARGIN);
    let width = bounds.width().degrees() + 2.0 * MARGIN;
    let (low, high) = (low.max(-90.0), high.min(90.0));
    let (ra, dec) = (column("s", names::RA), column("s", names::DEC));
    if bounds.is_all_around() || width >= 360.0 {
        return format!("{dec} BETWEEN {low:?} AND {high:?}");
    }
    let (first, last) = (
        (bounds.ra_min() - MARGIN).rem_euclid(360.0),
        (bounds.ra_max() + MARGIN).rem_euclid(360.0),
    );
    format!("scisql_s2PtInBox({ra}, {dec}, {first:?}, {low:?}, {last:?}, {high:?}) = 1")
}
