//! What pipelines read.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use sky::htm::{Level, ranges};
use sky::{LonLat, Region};

use crate::archived::DatabaseArchive;
use crate::definition::Definition;
use crate::error::{AlertsError, Result};
use crate::rows::FoundRows;
use crate::schema::{AlertTable, names};
use crate::statements as sql;
use crate::store::{Connection, Kind, Values, first};
use crate::transaction::{DEDUPLICATED, HTM_LEVEL, NO_OBJECT};
use crate::updates::UpdateRecord;

/// The key of the metadata that tells how many nights rows stay in the store after they are published.
pub(crate) const KEEP_NIGHTS: &str = "config:keep_nights";

/// How many nights a value of it means; `None` for ever.
///
/// # Errors
/// It means nothing: what may be said instead.
pub(crate) fn nights_of(text: &str) -> std::result::Result<Option<u32>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "{KEEP_NIGHTS} cannot be {text:?}: set it to a number of nights, or to all to keep all rows in the store"
        )
    })
}
/// The name of the column that tells the replica chunk of a row.
const CHUNK_COLUMN: &str = "apdb_replica_chunk";
/// Ranges of HTM numbers of one region: more of them would find fewer rows outside it, and cost more to look up.
const MOST_RANGES: usize = 128;
/// Degrees of a side of the largest trixels.
const SIDE_OF_LEVEL_0: f64 = 90.0;
const TRIXELS_OF_A_RADIUS: f64 = 8.0;

/// Which sources are wanted.
#[derive(Debug, Clone)]
pub enum SourceSelection {
    /// Those in a region.
    In(Box<Region>),
    /// Those of these objects.
    Of(Vec<i64>),
}

/// A chunk of rows, by the time when they were stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaChunk {
    /// The beginning of its time, in seconds since 1970 (TAI).
    pub id: i64,
    /// The latest time of what was stored in it, in nanoseconds since 1970 (TAI).
    pub last_update_ns: i64,
    /// A UUID that changes with each store.
    pub unique_id: String,
}

/// Reads with a connection.
pub(crate) struct Reader {
    pub(crate) connection: Box<dyn Connection>,
    pub(crate) definition: Arc<Definition>,
    pub(crate) archive: DatabaseArchive,
}

impl Reader {
    /// The latest versions of live objects in a region.
    pub(crate) async fn latest_objects(&mut self, region: &Region) -> Result<Vec<RecordBatch>> {
        let (low, high) = htm_ranges(region)?;
        let rows = self.objects(sql::LATEST_IN, &[low, high]).await?;
        let keeps = self.inside(&rows, region)?;
        let latest = self.definition.schema.latest();
        rows.assembled(latest, &self.definition.layouts, Some(&keeps), None)
    }

    /// The objects whose latest version began at a time or later; else since duplicates were merged last.
    pub(crate) async fn objects_since(&mut self, since: Option<f64>) -> Result<Vec<RecordBatch>> {
        let since = match since {
            Some(since) => since,
            None => {
                let metadata = self.metadata().await?;
                let last = metadata.into_iter().find(|(key, _)| key == DEDUPLICATED);
                last.and_then(|(_, value)| value.parse().ok())
                    .unwrap_or(f64::NEG_INFINITY)
            }
        };
        let rows = self
            .objects(sql::OBJECTS_SINCE, &[Values::reals([since])])
            .await?;
        let latest = self.definition.schema.latest();
        rows.assembled(latest, &self.definition.layouts, None, None)
    }

    async fn objects(&mut self, statement: &str, rows: &[Values]) -> Result<FoundRows> {
        let kinds = [Kind::Int, Kind::Real, Kind::Int];
        let found = [names::DIA_OBJECT, names::VALIDITY_START, names::N_SOURCES];
        self.found(statement, rows, &found, &kinds).await
    }

    /// Sources since a time. Those of the solar system are left out.
    pub(crate) async fn sources(
        &mut self,
        selection: &SourceSelection,
        since: f64,
    ) -> Result<Vec<RecordBatch>> {
        let kinds = [
            Kind::Int,
            Kind::Int,
            Kind::Int,
            Kind::Real,
            Kind::Real,
            Kind::Real,
        ];
        let statements = (sql::SOURCES_OF, sql::SOURCES_IN);
        let rows = self
            .selected(selection, since, statements, &SOURCE_COLUMNS, &kinds)
            .await?;
        let stored = self.assembled_selection(rows, selection, AlertTable::DiaSource)?;
        self.with_archived(stored, AlertTable::DiaSource, selection, since)
            .await
    }

    /// Forced sources since a time.
    pub(crate) async fn forced(
        &mut self,
        selection: &SourceSelection,
        since: f64,
    ) -> Result<Vec<RecordBatch>> {
        let kinds = [Kind::Int, Kind::Int, Kind::Int, Kind::Real, Kind::Real];
        let statements = (sql::FORCED_OF, sql::FORCED_IN);
        let rows = self
            .selected(selection, since, statements, &FORCED_COLUMNS, &kinds)
            .await?;
        let stored = self.assembled_selection(rows, selection, AlertTable::DiaForcedSource)?;
        self.with_archived(stored, AlertTable::DiaForcedSource, selection, since)
            .await
    }

    async fn selected(
        &mut self,
        selection: &SourceSelection,
        since: f64,
        (of, inside): (&str, &str),
        columns: &[&'static str],
        kinds: &[Kind],
    ) -> Result<FoundRows> {
        match selection {
            SourceSelection::Of(objects) => {
                let objects = objects.iter().copied().filter(|id| *id != NO_OBJECT);
                let objects: BTreeSet<i64> = objects.collect();
                let times = Values::reals(std::iter::repeat_n(since, objects.len()));
                self.found(of, &[Values::ints(objects), times], columns, kinds)
                    .await
            }
            SourceSelection::In(region) => {
                let (low, high) = htm_ranges(region)?;
                let times = Values::reals(std::iter::repeat_n(since, low.len()));
                self.found(inside, &[low, high, times], columns, kinds)
                    .await
            }
        }
    }

    fn assembled_selection(
        &self,
        rows: FoundRows,
        selection: &SourceSelection,
        table: AlertTable,
    ) -> Result<Vec<RecordBatch>> {
        let keeps = match selection {
            SourceSelection::In(region) => Some(self.inside(&rows, region)?),
            SourceSelection::Of(_) => None,
        };
        let table = self.definition.schema.table(table);
        rows.assembled(table, &self.definition.layouts, keeps.as_deref(), None)
    }

    /// Which rows are inside a region.
    fn inside(&self, rows: &FoundRows, region: &Region) -> Result<Vec<bool>> {
        let layouts = &self.definition.layouts;
        let (ra, dec) = (
            rows.payload_reals(layouts, names::RA)?,
            rows.payload_reals(layouts, names::DEC)?,
        );
        let is_inside = |(ra, dec): (Option<f64>, Option<f64>)| {
            let position = LonLat::from_degrees(ra.unwrap_or(f64::NAN), dec.unwrap_or(f64::NAN));
            position.is_ok_and(|position| region.contains(position))
        };
        Ok(ra.into_iter().zip(dec).map(is_inside).collect())
    }

    /// Runs a statement whose result ends with layouts and payloads, behind columns of these names.
    pub(crate) async fn found(
        &mut self,
        statement: &str,
        rows: &[Values],
        columns: &[&'static str],
        kinds: &[Kind],
    ) -> Result<FoundRows> {
        let kinds = [kinds, &[Kind::Int, Kind::Bytes]].concat();
        let mut found = self
            .connection
            .fetch(statement, rows, &kinds)
            .await?
            .into_iter();
        let mut named = Vec::with_capacity(columns.len());
        for &name in columns {
            named.extend(found.next().map(|values| (name, values)));
        }
        if let Some((_, Values::Int(objects))) = named
            .iter_mut()
            .find(|(name, _)| *name == names::DIA_OBJECT)
        {
            for object in objects {
                *object = object.filter(|object| *object != NO_OBJECT);
            }
        }
        Ok(FoundRows {
            columns: named,
            layouts: found.next().map(Values::into_ints).unwrap_or_default(),
            payloads: found.next().map(Values::into_bytes).unwrap_or_default(),
        })
    }

    /// Whether something of an exposure of a detector was stored.
    pub(crate) async fn contains(&mut self, visit: i64, detector: i64) -> Result<bool> {
        let rows = [Values::ints([visit]), Values::ints([detector])];
        let found = self
            .connection
            .fetch(sql::VISIT, &rows, &[Kind::Int])
            .await?;
        Ok(first(found).len() > 0)
    }

    /// Live objects of exactly one source.
    pub(crate) async fn objects_of_one_source(&mut self) -> Result<u64> {
        let found = self
            .connection
            .fetch(sql::OBJECTS_OF_ONE_SOURCE, &[], &[Kind::Int])
            .await?;
        let count = first(found)
            .into_ints()
            .first()
            .copied()
            .flatten()
            .unwrap_or(0);
        Ok(count.max(0) as u64)
    }

    /// All metadata, in the order of the keys.
    pub(crate) async fn metadata(&mut self) -> Result<Vec<(String, String)>> {
        let mut found = self
            .connection
            .fetch(sql::METADATA, &[], &[Kind::Text, Kind::Text])
            .await?
            .into_iter();
        let keys = found.next().map(Values::into_texts).unwrap_or_default();
        let values = found.next().map(Values::into_texts).unwrap_or_default();
        Ok(keys
            .into_iter()
            .zip(values)
            .filter_map(|(key, value)| Some((key?, value?)))
            .collect())
    }

    /// How many nights rows stay here after they are published; `None` for ever.
    pub(crate) async fn keep_nights(&mut self) -> Result<Option<u32>> {
        let metadata = self.metadata().await?;
        let Some((_, text)) = metadata.into_iter().find(|(key, _)| key == KEEP_NIGHTS) else {
            return Ok(self.definition.keep_nights);
        };
        nights_of(&text).map_err(AlertsError::Conflict)
    }

    /// The replica chunks, in the order of their times.
    pub(crate) async fn replica_chunks(&mut self) -> Result<Vec<ReplicaChunk>> {
        let kinds = [Kind::Int, Kind::Int, Kind::Text];
        let mut found = self
            .connection
            .fetch(sql::CHUNKS, &[], &kinds)
            .await?
            .into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let updated = found.next().map(Values::into_ints).unwrap_or_default();
        let unique = found.next().map(Values::into_texts).unwrap_or_default();
        let mut chunks: Vec<ReplicaChunk> = Vec::new();
        for ((id, updated), unique_id) in ids.into_iter().zip(updated).zip(unique) {
            let (Some(id), Some(updated), Some(unique_id)) = (id, updated, unique_id) else {
                continue;
            };
            match chunks.last_mut() {
                // What was stored in it after an edition was closed.
                Some(chunk) if chunk.id == id => {
                    chunk.last_update_ns = chunk.last_update_ns.max(updated);
                    chunk.unique_id = unique_id;
                }
                _ => chunks.push(ReplicaChunk {
                    id,
                    last_update_ns: updated,
                    unique_id,
                }),
            }
        }
        Ok(chunks)
    }

    /// The rows of a table that were stored in these chunks.
    pub(crate) async fn rows_of_chunks(
        &mut self,
        table: AlertTable,
        chunks: &[i64],
    ) -> Result<Vec<RecordBatch>> {
        let ids: BTreeSet<i64> = chunks.iter().copied().collect();
        let ids = [Values::ints(ids)];
        let (statement, columns, kinds): (_, &[&'static str], &[Kind]) = match table {
            AlertTable::DiaObject => (
                sql::OBJECTS_OF_CHUNKS,
                &[
                    names::DIA_OBJECT,
                    names::VALIDITY_START,
                    names::VALIDITY_END,
                    names::N_SOURCES,
                ],
                &[Kind::Int, Kind::Real, Kind::Real, Kind::Int],
            ),
            AlertTable::DiaSource => (
                sql::SOURCES_OF_CHUNKS,
                &SOURCE_COLUMNS,
                &[
                    Kind::Int,
                    Kind::Int,
                    Kind::Int,
                    Kind::Real,
                    Kind::Real,
                    Kind::Real,
                ],
            ),
            AlertTable::DiaForcedSource => (
                sql::FORCED_OF_CHUNKS,
                &FORCED_COLUMNS,
                &[Kind::Int, Kind::Int, Kind::Int, Kind::Real, Kind::Real],
            ),
        };
        let columns = [columns, &[CHUNK_COLUMN]].concat();
        let kinds = [kinds, &[Kind::Int]].concat();
        let rows = self.found(statement, &ids, &columns, &kinds).await?;
        let table = self.definition.schema.table(table);
        rows.assembled(table, &self.definition.layouts, None, Some(CHUNK_COLUMN))
    }

    /// The updates that were logged in these chunks, in their order.
    pub(crate) async fn updates_of_chunks(&mut self, chunks: &[i64]) -> Result<Vec<UpdateRecord>> {
        let ids: BTreeSet<i64> = chunks.iter().copied().collect();
        let found = self
            .connection
            .fetch(sql::UPDATES_OF_CHUNKS, &[Values::ints(ids)], &[Kind::Text])
            .await?;
        let mut records = Vec::new();
        for text in first(found).into_texts().into_iter().flatten() {
            let record: UpdateRecord = serde_json::from_str(&text)
                .map_err(|error| AlertsError::Damaged(error.to_string()))?;
            records.push(record);
        }
        records.sort_by_key(|record| (record.update_time_ns, record.update_order));
        Ok(records)
    }
}

pub(crate) const SOURCE_COLUMNS: [&str; 6] = [
    names::DIA_SOURCE,
    names::DIA_OBJECT,
    names::SS_OBJECT,
    names::SS_REASSIGNED,
    names::MIDPOINT,
    names::WITHDRAWN,
];
pub(crate) const FORCED_COLUMNS: [&str; 5] = [
    names::DIA_OBJECT,
    names::VISIT,
    names::DETECTOR,
    names::MIDPOINT,
    names::WITHDRAWN,
];

/// The first and the last of HTM numbers of ranges that hold all points of a region: trixels of an eighth of its radius, and larger ones if
/// these were many.
fn htm_ranges(region: &Region) -> Result<(Values, Values)> {
    let (_, radius) = region.bounding_circle();
    let radius = radius.degrees();
    let wanted = (SIDE_OF_LEVEL_0 * TRIXELS_OF_A_RADIUS / radius)
        .log2()
        .ceil();
    // Of a point it is infinite.
    let mut level = wanted.clamp(0.0, f64::from(HTM_LEVEL)) as u32;
    loop {
        let at = Level::new(level).map_err(|error| AlertsError::Invalid(error.to_string()))?;
        let found = ranges(at, region);
        if found.len() > MOST_RANGES && level > 0 {
            level -= 1;
            continue;
        }
        let shift = 2 * (HTM_LEVEL - level);
        return Ok((
            Values::ints(found.iter().map(|range| (range.start << shift) as i64)),
            Values::ints(found.iter().map(|range| ((range.end << shift) - 1) as i64)),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever a detector's field lies, few trixels beside it are looked at.
    #[test]
    fn ranges_hold_little_more_than_their_region() {
        let side = 0.25;
        let of_trixel = 41_253.0 / (8.0 * 4_f64.powi(HTM_LEVEL as i32));
        for number in 0..2000 {
            let (ra, dec) = (
                f64::from(number) * 137.508 % 360.0,
                f64::from(number % 179) - 89.0,
            );
            let east = side / dec.to_radians().cos();
            let (ra, east) = (ra.min(359.0 - east), east.min(90.0));
            let region = Region::polygon_degrees(&[
                (ra, dec),
                (ra + east, dec),
                (ra + east, dec + side),
                (ra, dec + side),
            ])
            .unwrap();
            let (low, high) = htm_ranges(&region).unwrap();
            let (low, high) = (low.into_ints(), high.into_ints());
            let trixels: i64 = low
                .iter()
                .zip(&high)
                .map(|(low, high)| high.unwrap() - low.unwrap() + 1)
                .sum();
            let area = trixels as f64 * of_trixel;
            assert!(
                area < 4.0 * side * side,
                "{ra} {dec}: {area} in {} ranges",
                low.len()
            );
        }
    }
}
