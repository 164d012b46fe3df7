//! Cone searches without SQL: the rows of a table whose positions lie in a circle.
//!
//! ```text
//!   circle ──► chunks and sub-chunks ──► row ranges ──► the position columns ──► inside? ──► the other columns ──► batches
//! ```
//!
//! What lies inside is what `scisql_s2PtInCircle` says, to the last bit; a row without a position lies nowhere. Chunks and
//! sub-chunks come from [`LoadedTable`]'s coverage, by which SQL is pruned too, so that both read the same rows.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Float64Type, SchemaRef};
use catalog::TableSpec;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sky::{Angle, Circle, LonLat, LonLatBox, Region};
use sql::interrupt::check;
use store::{ChunkFile, RowCondition, ScanRequest, SubChunkRange, scan_files};

use crate::coverage::{Coverage, SubChunkSet};
use crate::loaded_table::bounds_box;
use crate::piece::ChunkSlice;
use crate::session::column_metadata;
use crate::{Archive, EngineError, LoadedTable};

/// A table that cones can be searched in.
#[derive(Debug, Clone)]
pub struct ConeTable {
    archive: Arc<Archive>,
    table: Arc<LoadedTable>,
    /// The numbers of the columns of right ascension and declination.
    position: [usize; 2],
}

impl ConeTable {
    /// `None` for a table of which no columns are declared to be the position of its rows, as whoever asks may see it.
    pub fn new(archive: &Arc<Archive>, table: Arc<LoadedTable>) -> Option<Self> {
        let spec = table.spec();
        let declared = spec.position.as_ref()?;
        let seen = archive.columns_of(&table);
        if !seen.has(&declared.ra) || !seen.has(&declared.dec) {
            return None;
        }
        let position = [
            column_number(spec, &declared.ra)?,
            column_number(spec, &declared.dec)?,
        ];
        Some(Self {
            archive: Arc::clone(archive),
            table,
            position,
        })
    }

    /// Right ascension and declination of a row of a table, to be shown as an example; `None` where no row has a position.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn example(
        archive: &Arc<Archive>,
        database: &str,
        table: &str,
    ) -> Result<Option<[f64; 2]>, EngineError> {
        let table = archive.table(database, table).await?;
        let Some(cones) = table.and_then(|table| Self::new(archive, table)) else {
            return Ok(None);
        };
        // A position would tell of a row that they may not see.
        if cones.is_partly_released() {
            return Ok(None);
        }
        let centre = LonLat::from_degrees(0.0, 0.0);
        let everywhere = centre.and_then(|centre| Circle::new(centre, Angle::from_degrees(180.0)));
        let everywhere = everywhere.map_err(|error| EngineError::internal(error.to_string()))?;
        let mut batches = cones.search(everywhere, &cones.position)?.batches();
        let Some(batch) = batches.try_next().await? else {
            return Ok(None);
        };
        // The middle one, since at the edges a cone around it would be half empty.
        let row = batch.slice(batch.num_rows() / 2, 1);
        let value = |at: usize| -> Option<f64> {
            let value = cast(row.column(at), &DataType::Float64).ok()?;
            Some(value.as_primitive::<Float64Type>().value(0))
        };
        Ok(value(0).zip(value(1)).map(|(ra, dec)| [ra, dec]))
    }

    /// The table.
    pub fn table(&self) -> &Arc<LoadedTable> {
        &self.table
    }

    /// The numbers of the columns of right ascension and declination.
    pub fn position(&self) -> [usize; 2] {
        self.position
    }

    /// The columns of the table, under their declared names.
    pub fn columns(&self) -> &SchemaRef {
        &self.table.stored.files_schema
    }

    /// Whether whoever asks sees some of its rows alone. [`search`](Self::search) reads all rows: for them a query has to be executed.
    pub fn is_partly_released(&self) -> bool {
        self.archive.release_of(&self.table).is_some()
    }

    /// Whether whoever asks may read the column of a name.
    pub fn may_read(&self, column: &str) -> bool {
        self.archive.columns_of(&self.table).has(column)
    }

    /// One of them with what is said of it; `None` for a number that is no column's.
    pub fn field(&self, column: usize) -> Option<Field> {
        let field = self.columns().fields().get(column)?;
        let metadata = column_metadata(&self.table.table, field.name());
        Some(field.as_ref().clone().with_metadata(metadata))
    }

    /// The search of a circle, of which the columns with these numbers are wanted.
    ///
    /// # Errors
    /// A number that is no column's, or that of one which whoever asks may not read; a table of whose rows they see some alone.
    pub fn search(&self, circle: Circle, columns: &[usize]) -> Result<ConeSearch, EngineError> {
        let mut fields = columns
            .iter()
            .filter_map(|at| self.columns().fields().get(*at));
        if self.is_partly_released() || !fields.all(|field| self.may_read(field.name())) {
            return Err(EngineError::internal("a cone reads what may not be read"));
        }
        let schema = self.columns().project(columns);
        let schema = schema.map_err(|error| EngineError::internal(error.to_string()))?;
        let region = Region::Circle(circle);
        let slices = match self.table.region_coverage(&region) {
            Coverage::Only(only) => only
                .into_iter()
                .map(|(chunk, sub_chunks)| ChunkSlice { chunk, sub_chunks })
                .collect(),
            Coverage::Everything => self
                .table
                .chunks
                .keys()
                .copied()
                .map(ChunkSlice::whole)
                .collect(),
        };
        let condition = InCircle {
            columns: self.position,
            fields: self.position_fields(),
            region: region.clone(),
        };
        Ok(ConeSearch {
            archive: Arc::clone(&self.archive),
            table: Arc::clone(&self.table),
            slices,
            rows: Rows {
                projection: columns.to_vec(),
                schema: Arc::new(schema),
                condition: Arc::new(condition),
                region,
            },
        })
    }

    /// The position columns as the search compares them.
    fn position_fields(&self) -> Fields {
        let double = |at: usize| {
            let name = self.columns().field(at).name().clone();
            Field::new(name, DataType::Float64, true)
        };
        self.position.map(double).to_vec().into()
    }
}

/// The number of the column of this name.
fn column_number(spec: &TableSpec, name: &str) -> Option<usize> {
    let column = spec.column(name)?;
    spec.columns.iter().position(|other| other == column)
}

/// A circle that is searched.
#[derive(Debug, Clone)]
pub struct ConeSearch {
    archive: Arc<Archive>,
    table: Arc<LoadedTable>,
    /// Where its rows may be, in the order of the chunks.
    slices: Vec<ChunkSlice>,
    rows: Rows,
}

/// Which rows are wanted of each chunk, and what of them.
#[derive(Debug, Clone)]
struct Rows {
    projection: Vec<usize>,
    schema: SchemaRef,
    condition: Arc<InCircle>,
    region: Region,
}

impl ConeSearch {
    /// What the batches consist of.
    pub fn schema(&self) -> &SchemaRef {
        &self.rows.schema
    }

    /// Whether no more than so many rows have to be looked at, in no more than so many chunks.
    ///
    /// # Errors
    /// A chunk's file cannot be opened.
    pub async fn looks_at_most(&self, rows: u64, chunks: usize) -> Result<bool, EngineError> {
        if self.slices.len() > chunks {
            return Ok(false);
        }
        let mut looked_at = 0;
        for slice in &self.slices {
            let files = self.open(slice).await?;
            let ranges = files.iter().flat_map(|(_, ranges)| ranges);
            looked_at += ranges.map(|range| range.end - range.start).sum::<u64>();
        }
        Ok(looked_at <= rows)
    }

    /// The rows, in the order of chunks and, within these, of sub-chunks. Dropping the stream ends the search.
    pub fn batches(self) -> BoxStream<'static, Result<RecordBatch, EngineError>> {
        let slices = stream::iter(self.slices.clone());
        let search = Arc::new(self);
        let of_slice = move |slice: ChunkSlice| {
            let search = Arc::clone(&search);
            async move {
                let files = search.open(&slice).await?.into_iter();
                let request = move |(file, ranges): (Arc<ChunkFile>, Vec<Range<u64>>)| {
                    let in_file = ranges.iter().map(|rows| file.in_file(rows)).collect();
                    Ok((Arc::clone(file.file()), search.request(in_file)))
                };
                Ok::<_, EngineError>(stream::iter(files.map(request)))
            }
        };
        scan_files(
            slices.then(of_slice).try_flatten().boxed(),
            EngineError::from,
        )
    }

    /// The files of a chunk with the rows in each that may be in the circle; those without any are left out.
    async fn open(
        &self,
        slice: &ChunkSlice,
    ) -> Result<Vec<(Arc<ChunkFile>, Vec<Range<u64>>)>, EngineError> {
        let may_hold = |bounds: &LonLatBox| self.rows.region.may_intersect(bounds);
        let keep = |entry: &SubChunkRange| {
            let own = entry.bounds.and_then(bounds_box);
            own.as_ref().is_none_or(may_hold)
        };
        let ranges = |file: &Arc<ChunkFile>| match &slice.sub_chunks {
            SubChunkSet::All => file.directory().rows_where(keep),
            SubChunkSet::Intervals(intervals) => file.directory().rows_within(intervals, keep),
        };
        let files = self.table.stored.open(&self.archive, slice.chunk).await?;
        let with_ranges = files.into_iter().map(|file| (ranges(&file), file));
        let with_rows = with_ranges.filter(|(ranges, _)| !ranges.is_empty());
        Ok(with_rows.map(|(ranges, file)| (file, ranges)).collect())
    }

    fn request(&self, ranges: Vec<Range<u64>>) -> ScanRequest {
        ScanRequest {
            projection: self.rows.projection.clone(),
            filter: None,
            hints: Vec::new(),
            condition: Some(Arc::clone(&self.rows.condition) as Arc<dyn RowCondition>),
            ranges: Some(ranges),
            sorted: None,
            sharers: 0,
            counters: None,
            schema: Arc::clone(&self.rows.schema),
        }
    }
}

/// The condition that a row's position is in a region.
#[derive(Debug)]
struct InCircle {
    columns: [usize; 2],
    fields: Fields,
    region: Region,
}

impl RowCondition for InCircle {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        check().map_err(|error| Arc::new(error) as Arc<dyn Error + Send + Sync>)?;
        let position = |at: usize| -> Option<&Float64Array> { columns.get(at)?.as_primitive_opt() };
        let (Some(ra), Some(dec)) = (position(0), position(1)) else {
            let error = EngineError::internal("a position is no pair of doubles");
            return Err(Arc::new(error));
        };
        let mut inside = Vec::with_capacity(rows);
        self.region
            .contains_degrees(ra.values(), dec.values(), &mut inside);
        let known = NullBuffer::union(ra.nulls(), dec.nulls());
        Ok(BooleanArray::new(BooleanBuffer::from(inside), known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies in the slot of a NULL counts for nothing.
    #[test]
    fn what_has_no_position_is_nowhere() {
        let condition = InCircle {
            columns: [3, 7],
            fields: Fields::empty(),
            region: Region::circle_degrees(0.0, 0.0, 1.0).unwrap(),
        };
        let ra: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(0.0),
            None,
            Some(359.5),
            Some(0.5),
            Some(1.5),
        ]));
        let dec: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(1.0),
            Some(0.0),
            Some(0.0),
            None,
            Some(0.0),
        ]));
        let kept = condition.keep(&[ra, dec], 5).unwrap();
        let kept: Vec<bool> = (0..5)
            .map(|at| kept.is_valid(at) && kept.value(at))
            .collect();
        assert_eq!(kept, [true, false, true, false, false]);
    }
}
