//! Reads of what only the archive has, and how they join those of the store.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use sky::{LonLat, Region};

use crate::editions::PUBLISHED;
use crate::error::{AlertsError, Result};
use crate::published::{
    EmptyStep, NeededRows, PublishedRequest, PublishedRows, PublishedSelection, RecalledRows,
    Through,
};
use crate::reads::{Reader, SourceSelection};
use crate::rows::{ints, reals};
use crate::schema::{AlertTable, TableSchema, names};
use crate::statements as sql;
use crate::store::{Kind, Values, first};
use crate::transaction::{emptied, forced_keys, keys_of, releases};

/// As many rows through an edition are asked for at once; where there are as many there may be more.
const MOST_THROUGH: usize = 5000;

/// A row of a table, by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RowKey {
    Source(i64),
    /// By object, visit and detector.
    Forced(i64, i64, i64),
}

impl RowKey {
    const fn numbers(self) -> [i64; 3] {
        match self {
            Self::Source(id) => [id, 0, 0],
            Self::Forced(object, visit, detector) => [object, visit, detector],
        }
    }
}

/// The archive of a database, if it is known here.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseArchive {
    database: Arc<str>,
    rows: Option<Arc<dyn PublishedRows>>,
}

impl DatabaseArchive {
    pub(crate) fn new(database: &str) -> Self {
        Self {
            database: database.into(),
            rows: None,
        }
    }

    pub(crate) fn with(self, rows: Arc<dyn PublishedRows>) -> Self {
        Self {
            rows: Some(rows),
            ..self
        }
    }

    /// Rows of a table, with the times of their editions.
    async fn rows(
        &self,
        columns: (AlertTable, &TableSchema),
        through: Through,
        selection: PublishedSelection<'_>,
        since: Option<f64>,
    ) -> Result<Vec<RecordBatch>> {
        let Some(rows) = &self.rows else {
            return Err(AlertsError::OnlyPublished(Box::default()));
        };
        let (table, columns) = columns;
        let request = PublishedRequest {
            database: &self.database,
            table,
            columns,
            through,
            selection,
            since,
        };
        rows.rows(request).await
    }
}

impl Reader {
    /// Rows that were found in the store, and those that only the archive has. All reads of this connection are of one moment.
    pub(crate) async fn with_archived(
        &mut self,
        mut stored: Vec<RecordBatch>,
        table: AlertTable,
        selection: &SourceSelection,
        since: f64,
    ) -> Result<Vec<RecordBatch>> {
        let Some(through) = emptied(self.connection.as_mut()).await? else {
            return Ok(stored);
        };
        let definition = Arc::clone(&self.definition);
        let columns = definition.schema.table(table);
        let archive = self.archive.clone();
        let (wanted, region) = match selection {
            SourceSelection::In(region) => (PublishedSelection::In(region), Some(region.as_ref())),
            SourceSelection::Of(objects) => (PublishedSelection::Of(objects), None),
        };
        let found = archive
            .rows((table, columns), through, wanted, Some(since))
            .await?;
        if found.is_empty() {
            return Ok(stored);
        }
        let known = self.keys_through(table, through.edition).await?;
        for batch in found {
            let mut keeps = wanted_rows(&batch, table, region, since);
            self.leave_out_stored(&mut keeps, &batch, table, known.as_ref())
                .await?;
            let batch = filter_record_batch(&batch, &keeps.into()).map_err(damaged)?;
            if batch.num_rows() > 0 {
                stored.push(in_columns(&batch, columns.arrow())?);
            }
        }
        Ok(stored)
    }

    /// The rows that the store has of an edition up to which it was emptied and those before: all of its rows that the archive may have,
    /// too. There are some if rows have changed or are still to be removed; `None` if there are many.
    async fn keys_through(
        &mut self,
        table: AlertTable,
        edition: i64,
    ) -> Result<Option<HashSet<RowKey>>> {
        let edition = [Values::ints([edition])];
        let (statement, kinds): (_, &[Kind]) = match table {
            AlertTable::DiaForcedSource => (sql::FORCED_THROUGH, &FORCED_KINDS),
            _ => (sql::SOURCES_THROUGH, &[Kind::Int]),
        };
        let statement = format!("{statement} LIMIT {MOST_THROUGH}");
        let found = self.connection.fetch(&statement, &edition, kinds).await?;
        let keys = found_keys(found, table);
        Ok((keys.len() < MOST_THROUGH).then_some(keys))
    }

    /// Leaves out the rows that the store has, by the keys of those that it may have, if these are known.
    async fn leave_out_stored(
        &mut self,
        keeps: &mut [bool],
        batch: &RecordBatch,
        table: AlertTable,
        known: Option<&HashSet<RowKey>>,
    ) -> Result<()> {
        if known.is_some_and(HashSet::is_empty) {
            return Ok(());
        }
        let keys = row_keys(batch, table);
        let asked;
        let known = match known {
            Some(known) => known,
            None => {
                asked = self.known(&keys, table).await?;
                &asked
            }
        };
        for (keep, key) in keeps.iter_mut().zip(&keys) {
            *keep &= !known.contains(key);
        }
        Ok(())
    }

    /// Which of these rows of a table the store has.
    async fn known(&mut self, keys: &[RowKey], table: AlertTable) -> Result<HashSet<RowKey>> {
        let column = |at: usize| Values::ints(keys.iter().map(|key| key.numbers()[at]));
        let columns = [column(0), column(1), column(2)];
        let (statement, columns, kinds): (_, _, &[Kind]) = match table {
            AlertTable::DiaForcedSource => (sql::KNOWN_FORCED, &columns[..], &FORCED_KINDS),
            _ => (sql::KNOWN_SOURCES, &columns[..1], &[Kind::Int]),
        };
        let found = self.connection.fetch(statement, columns, kinds).await?;
        Ok(found_keys(found, table))
    }

    /// Where sources are that were removed; `None` if that is not known of all.
    async fn circles_of(&mut self, sources: &[i64]) -> Result<Option<Vec<Region>>> {
        let rows = [Values::ints(sources.iter().copied())];
        let kinds = [Kind::Real, Kind::Real, Kind::Real];
        let found = self
            .connection
            .fetch(sql::CIRCLES_OF_EMPTIED, &rows, &kinds)
            .await?;
        let mut found = found.into_iter().map(Values::into_reals);
        let [ra, dec, radius] = [(); 3].map(|()| found.next().unwrap_or_default());
        let circles = ra.into_iter().zip(dec).zip(radius);
        let circles = circles.map(|((ra, dec), radius)| {
            let circle = Region::circle_degrees(ra?, dec?, radius?);
            circle.ok()
        });
        Ok(circles.collect())
    }

    /// What the archive has of rows that an operation needs.
    pub(crate) async fn recalled(&mut self, needed: &NeededRows) -> Result<RecalledRows> {
        let Some(through) = emptied(self.connection.as_mut()).await? else {
            return Err(AlertsError::Damaged(
                "rows are missing of which none was removed".to_owned(),
            ));
        };
        let definition = Arc::clone(&self.definition);
        let sources = (
            AlertTable::DiaSource,
            definition.schema.table(AlertTable::DiaSource),
        );
        let mut recalled = RecalledRows {
            through,
            needed: needed.clone(),
            sources: Vec::new(),
            forced: Vec::new(),
        };
        let numbers: Vec<i64> = needed.sources.iter().copied().collect();
        let circles = self.circles_of(&numbers).await?;
        let archive = &self.archive;
        let objects: Vec<i64> = needed.objects.iter().copied().collect();
        for (selection, is_asked) in [
            (
                PublishedSelection::Sources(&numbers, circles.as_deref()),
                !numbers.is_empty(),
            ),
            (PublishedSelection::Of(&objects), !objects.is_empty()),
        ] {
            if is_asked {
                for batch in archive.rows(sources, through, selection, None).await? {
                    recalled
                        .sources
                        .push(in_columns(&batch, with_times(sources.1))?);
                }
            }
        }
        if !needed.forced.is_empty() {
            let forced = (
                AlertTable::DiaForcedSource,
                definition.schema.table(AlertTable::DiaForcedSource),
            );
            let objects: BTreeSet<i64> = needed.forced.iter().map(|key| key.0).collect();
            let objects: Vec<i64> = objects.into_iter().collect();
            let selection = PublishedSelection::Of(&objects);
            for batch in archive.rows(forced, through, selection, None).await? {
                let keys = forced_keys(&batch).into_iter();
                let keeps: Vec<bool> = keys.map(|key| needed.forced.contains(&key)).collect();
                let batch = filter_record_batch(&batch, &keeps.into()).map_err(damaged)?;
                recalled
                    .forced
                    .push(in_columns(&batch, with_times(forced.1))?);
            }
        }
        Ok(recalled)
    }

    /// The editions, without what they have.
    pub(crate) async fn closings(&mut self) -> Result<Vec<Through>> {
        let kinds = [Kind::Int, Kind::Int];
        let found = self.connection.fetch(sql::EDITIONS, &[], &kinds).await?;
        let mut found = found.into_iter().map(Values::into_ints);
        let release = releases(self.connection.as_mut()).await?;
        let numbers = found.next().unwrap_or_default().into_iter();
        let closings = numbers.zip(found.next().unwrap_or_default());
        let closing = |(edition, closed): (Option<i64>, Option<i64>)| {
            Some(Through {
                edition: edition?,
                closed_us: closed?,
                release,
            })
        };
        Ok(closings.filter_map(closing).collect())
    }

    /// What can be removed of what is published in an edition or before.
    pub(crate) async fn empty_steps(&mut self, through: i64) -> Result<Vec<EmptyStep>> {
        type Step = fn(i64) -> EmptyStep;
        let kinds = [
            (sql::CHUNKS_OF_SOURCES, EmptyStep::Sources as Step),
            (sql::CHUNKS_OF_FORCED, EmptyStep::Forced),
            (sql::CHUNKS_OF_VERSIONS, EmptyStep::Versions),
        ];
        let mut steps = Vec::new();
        for (statement, step) in kinds {
            let rows = [Values::ints([through])];
            let found = self
                .connection
                .fetch(statement, &rows, &[Kind::Int])
                .await?;
            steps.extend(first(found).into_ints().into_iter().flatten().map(step));
        }
        Ok(steps)
    }
}

const FORCED_KINDS: [Kind; 3] = [Kind::Int, Kind::Int, Kind::Int];

fn found_keys(found: Vec<Values>, table: AlertTable) -> HashSet<RowKey> {
    if table == AlertTable::DiaForcedSource {
        let keys = keys_of(&found).into_iter();
        return keys
            .map(|(object, visit, detector)| RowKey::Forced(object, visit, detector))
            .collect();
    }
    let ids = first(found).into_ints().into_iter();
    ids.flatten().map(RowKey::Source).collect()
}

/// The keys of the rows of a batch.
fn row_keys(batch: &RecordBatch, table: AlertTable) -> Vec<RowKey> {
    if table == AlertTable::DiaForcedSource {
        let keys = forced_keys(batch).into_iter();
        return keys
            .map(|(object, visit, detector)| RowKey::Forced(object, visit, detector))
            .collect();
    }
    let ids = ints(batch, names::DIA_SOURCE).into_iter();
    ids.map(|id| RowKey::Source(id.unwrap_or_default()))
        .collect()
}

/// Which rows of the archive are wanted, whatever the store has.
fn wanted_rows(
    batch: &RecordBatch,
    table: AlertTable,
    region: Option<&Region>,
    since: f64,
) -> Vec<bool> {
    let midpoints = reals(batch, names::MIDPOINT).into_iter();
    let mut keeps: Vec<bool> = midpoints
        .map(|time| time.is_some_and(|time| time >= since))
        .collect();
    if let Some(region) = region {
        let places = reals(batch, names::RA)
            .into_iter()
            .zip(reals(batch, names::DEC));
        for (keep, (ra, dec)) in keeps.iter_mut().zip(places) {
            let place = ra.zip(dec).map(|(ra, dec)| LonLat::from_degrees(ra, dec));
            *keep &= matches!(place, Some(Ok(place)) if region.contains(place));
        }
    }
    if table != AlertTable::DiaForcedSource {
        // Those of the solar system are left out.
        let owned = ints(batch, names::SS_OBJECT);
        for (keep, owner) in keeps.iter_mut().zip(owned) {
            *keep &= owner.is_none();
        }
    }
    keeps
}

/// The columns of a table, with the times of editions behind them.
fn with_times(table: &TableSchema) -> SchemaRef {
    let schema = table.arrow();
    let times = Field::new(PUBLISHED, DataType::Int64, false);
    let fields = schema.fields().iter().cloned();
    Arc::new(Schema::new(
        fields.chain([Arc::new(times)]).collect::<Vec<_>>(),
    ))
}

/// Rows in these columns and types.
fn in_columns(batch: &RecordBatch, schema: SchemaRef) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column = batch.column_by_name(field.name()).ok_or_else(|| {
            AlertsError::Damaged(format!("the archive gave no column {}", field.name()))
        })?;
        columns.push(cast(column, field.data_type()).map_err(damaged)?);
    }
    RecordBatch::try_new(schema, columns).map_err(damaged)
}

fn damaged(error: ArrowError) -> AlertsError {
    AlertsError::Damaged(error.to_string())
}
