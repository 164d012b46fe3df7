//! Rows of a table by keys or by positions without SQL: for a program that knows the table and reads it over and over.
//!
//! ```text
//!   keys, a region ──► chunks and sub-chunks ──► row ranges ──► the tested columns ──► kept? ──► the other columns ──► batches
//! ```
//!
//! Chunks and sub-chunks come from [`LoadedTable`]'s coverage, by which SQL is pruned too, so that both read the same rows.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type, Int64Type, SchemaRef};
use catalog::fold_name;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sky::{LonLatBox, Region};
use sql::interrupt::check;
use store::{ChunkFile, OpenFile, RowCondition, ScanRequest, SubChunkRange, scan_files};

use crate::coverage::{Coverage, SubChunkSet};
use crate::loaded_table::bounds_box;
use crate::piece::ChunkSlice;
use crate::restriction::Restriction;
use crate::{Archive, EngineError, LoadedTable};

/// Where wanted rows are.
#[derive(Debug, Clone, Copy)]
pub enum RowPlaces<'a> {
    /// Where rows are that have one of these keys of the table's director: other rows are there as well.
    Keys(&'a [i64]),
    /// Their own positions are in the region.
    Region(&'a Region),
    /// Where rows are whose own positions are in one of these regions: others are there as well.
    Around(&'a [Region]),
    /// Anywhere.
    Anywhere,
}

/// What the value of a column has to be. NULL is nothing of it.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTest {
    /// A 64-bit integer among these, which are sorted.
    Among(Arc<[i64]>),
    /// A 64-bit integer up to this one.
    AtMost(i64),
    /// A double from this one on.
    AtLeast(f64),
}

/// A table that is read as a whole: who reads it may see all of it.
#[derive(Debug, Clone)]
pub struct RowReader {
    archive: Arc<Archive>,
    table: Arc<LoadedTable>,
}

impl RowReader {
    /// The table of this name; `None` if there is none, or some of its rows are not released to whoever asks.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn open(
        archive: &Arc<Archive>,
        database: &str,
        table: &str,
    ) -> Result<Option<Self>, EngineError> {
        let table = archive.table(database, table).await?;
        let reader = table.map(|table| Self {
            archive: Arc::clone(archive),
            table,
        });
        Ok(reader.filter(|it| it.archive.release_of(&it.table).is_none()))
    }

    /// How many rows it has.
    pub fn num_rows(&self) -> u64 {
        self.table.table.rows()
    }

    /// The number of the column of a name, without regard to case.
    pub fn column(&self, name: &str) -> Option<usize> {
        let folded = fold_name(name);
        let mut columns = self.table.spec().columns.iter();
        columns.position(|column| fold_name(&column.name) == folded)
    }

    /// The rows in some places that pass all tests, in columns with these numbers.
    ///
    /// # Errors
    /// The indexes of its director cannot be read, or a number is no column's.
    pub async fn rows(
        &self,
        places: RowPlaces<'_>,
        tests: Vec<(usize, ValueTest)>,
        columns: &[usize],
    ) -> Result<BoxStream<'static, Result<RecordBatch, EngineError>>, EngineError> {
        let coverage = match places {
            RowPlaces::Keys(keys) => {
                let restriction = Restriction::Keys(0, keys.to_vec());
                self.table.coverage(&self.archive, &restriction, 0).await?
            }
            RowPlaces::Region(region) => self.table.region_coverage(region),
            RowPlaces::Around(regions) => {
                let covers = regions.iter().map(|it| self.table.region_coverage(it));
                covers.fold(Coverage::nothing(), |all, it| all.union(&it))
            }
            RowPlaces::Anywhere => Coverage::Everything,
        };
        let slices: Vec<ChunkSlice> = match coverage {
            Coverage::Only(only) => only
                .into_iter()
                .map(|(chunk, sub_chunks)| ChunkSlice { chunk, sub_chunks })
                .collect(),
            Coverage::Everything => {
                let chunks = self.table.chunks.keys().copied();
                chunks.map(ChunkSlice::whole).collect()
            }
        };
        let (regions, within) = match places {
            RowPlaces::Region(region) => (vec![region.clone()], Some(region)),
            RowPlaces::Around(regions) => (regions.to_vec(), None),
            RowPlaces::Keys(_) | RowPlaces::Anywhere => (Vec::new(), None),
        };
        let schema = self.table.stored.files_schema.project(columns);
        let schema = schema.map_err(|error| EngineError::internal(error.to_string()))?;
        let reading = Arc::new(Reading {
            archive: Arc::clone(&self.archive),
            table: Arc::clone(&self.table),
            condition: Arc::new(self.condition(within, tests)?),
            regions,
            projection: columns.to_vec(),
            schema: Arc::new(schema),
        });
        Ok(reading.batches(slices))
    }

    fn condition(
        &self,
        region: Option<&Region>,
        tests: Vec<(usize, ValueTest)>,
    ) -> Result<Tests, EngineError> {
        let mut made = Tests::default();
        for (column, test) in tests {
            let at = made.column(column, test.data_type(), &self.table.stored.files_schema)?;
            made.values.push((at, test));
        }
        if let Some(region) = region {
            let position = self.table.spec().position.as_ref();
            let none = || EngineError::internal("a region is read of a table without positions");
            let position = position.ok_or_else(none)?;
            let mut place = |name: &str| {
                let column = self.column(name).ok_or_else(none)?;
                made.column(column, DataType::Float64, &self.table.stored.files_schema)
            };
            let places = [place(&position.ra)?, place(&position.dec)?];
            made.region = Some((places, region.clone()));
        }
        Ok(made)
    }
}

/// What is read of each file.
struct Reading {
    archive: Arc<Archive>,
    table: Arc<LoadedTable>,
    condition: Arc<Tests>,
    /// Rows elsewhere are not wanted; none if they are wherever they are.
    regions: Vec<Region>,
    projection: Vec<usize>,
    schema: SchemaRef,
}

impl Reading {
    fn batches(
        self: Arc<Self>,
        slices: Vec<ChunkSlice>,
    ) -> BoxStream<'static, Result<RecordBatch, EngineError>> {
        let of_slice = move |slice: ChunkSlice| {
            let reading = Arc::clone(&self);
            async move {
                let opened = reading.table.stored.open(&reading.archive, slice.chunk);
                let files = opened.await?.into_iter();
                let requests = files.filter_map(move |file| {
                    if !reading.condition.may_pass_in(file.file()) {
                        return None;
                    }
                    let ranges = reading.ranges(&file, &slice.sub_chunks);
                    let in_file: Vec<_> = ranges.iter().map(|rows| file.in_file(rows)).collect();
                    let request = (!in_file.is_empty()).then(|| reading.request(in_file));
                    request.map(|request| Ok((Arc::clone(file.file()), request)))
                });
                Ok::<_, EngineError>(stream::iter(requests.collect::<Vec<_>>()))
            }
        };
        let requests = stream::iter(slices).then(of_slice).try_flatten().boxed();
        scan_files(requests, EngineError::from)
    }

    /// The rows of a chunk that are looked at.
    fn ranges(&self, file: &ChunkFile, sub_chunks: &SubChunkSet) -> Vec<Range<u64>> {
        let directory = file.directory();
        let near = |entry: &SubChunkRange| {
            let own = entry.bounds.and_then(bounds_box);
            let may_hold = |bounds: &LonLatBox| {
                let mut regions = self.regions.iter();
                regions.any(|region| region.may_intersect(bounds))
            };
            own.as_ref().is_none_or(may_hold)
        };
        match (sub_chunks, self.regions.is_empty()) {
            (SubChunkSet::All, true) => std::iter::once(0..file.num_rows())
                .filter(|rows| !rows.is_empty())
                .collect(),
            (SubChunkSet::All, false) => directory.rows_where(near),
            (SubChunkSet::Intervals(intervals), true) => directory.rows_in(intervals),
            (SubChunkSet::Intervals(intervals), false) => directory.rows_within(intervals, near),
        }
    }

    fn request(&self, ranges: Vec<Range<u64>>) -> ScanRequest {
        ScanRequest {
            projection: self.projection.clone(),
            filter: None,
            hints: Vec::new(),
            condition: Some(Arc::clone(&self.condition) as Arc<dyn RowCondition>),
            ranges: Some(ranges),
            sorted: None,
            sharers: 0,
            counters: None,
            schema: Arc::clone(&self.schema),
        }
    }
}

/// Tests of rows.
#[derive(Debug, Default)]
struct Tests {
    columns: Vec<usize>,
    fields: Vec<FieldRef>,
    all_fields: Fields,
    /// Each with the place of its column among these.
    values: Vec<(usize, ValueTest)>,
    /// Right ascension and declination, and where they have to be.
    region: Option<([usize; 2], Region)>,
}

impl Tests {
    /// The place of a column, which is read in a type.
    fn column(
        &mut self,
        number: usize,
        data_type: DataType,
        schema: &SchemaRef,
    ) -> Result<usize, EngineError> {
        if let Some(known) = self.columns.iter().position(|column| *column == number) {
            return match *self.fields[known].data_type() == data_type {
                true => Ok(known),
                false => Err(EngineError::internal("a column is tested in two types")),
            };
        }
        let Some(field) = schema.fields().get(number) else {
            return Err(EngineError::internal(
                "a column is tested that is not there",
            ));
        };
        self.columns.push(number);
        self.fields
            .push(Arc::new(Field::new(field.name(), data_type, true)));
        self.all_fields = self.fields.clone().into();
        Ok(self.columns.len() - 1)
    }

    /// Whether a file may have rows that pass, by what it tells of its columns. Parts that came later than what is wanted have none.
    fn may_pass_in(&self, file: &OpenFile) -> bool {
        let mut tests = self.values.iter();
        tests.all(|(at, test)| {
            let column = self.columns.get(*at);
            let bounds = column.and_then(|column| file.integer_bounds(*column));
            bounds.is_none_or(|bounds| test.may_pass_within(bounds))
        })
    }

    fn kept(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray, EngineError> {
        let wrong = || EngineError::internal("a tested column has another type");
        let mut kept = vec![true; rows];
        for (at, test) in &self.values {
            let column = columns.get(*at).ok_or_else(wrong)?;
            test.narrow(column, &mut kept).ok_or_else(wrong)?;
        }
        if let Some(([ra, dec], region)) = &self.region {
            let of = |at: &usize| columns.get(*at)?.as_primitive_opt::<Float64Type>();
            let (Some(ra), Some(dec)) = (of(ra), of(dec)) else {
                return Err(wrong());
            };
            let mut inside = Vec::with_capacity(rows);
            region.contains_degrees(ra.values(), dec.values(), &mut inside);
            for (row, (kept, inside)) in kept.iter_mut().zip(inside).enumerate() {
                *kept &= inside && ra.is_valid(row) && dec.is_valid(row);
            }
        }
        Ok(BooleanArray::new(BooleanBuffer::from(kept), None))
    }
}

impl ValueTest {
    fn data_type(&self) -> DataType {
        match self {
            Self::Among(_) | Self::AtMost(_) => DataType::Int64,
            Self::AtLeast(_) => DataType::Float64,
        }
    }

    /// Whether an integer from the first to the last of these may pass.
    fn may_pass_within(&self, [first, last]: [i64; 2]) -> bool {
        match self {
            Self::Among(wanted) => {
                let at = wanted.partition_point(|value| *value < first);
                wanted.get(at).is_some_and(|value| *value <= last)
            }
            Self::AtMost(most) => first <= *most,
            Self::AtLeast(_) => true,
        }
    }

    /// Leaves out the rows whose values do not pass; `None` if they are of another type.
    fn narrow(&self, column: &ArrayRef, kept: &mut [bool]) -> Option<()> {
        match self {
            Self::Among(wanted) => {
                let values = column.as_primitive_opt::<Int64Type>()?;
                // Rows of one key follow each other.
                let mut last: Option<(i64, bool)> = None;
                narrow(kept, values.iter(), |value| match last {
                    Some((known, is_wanted)) if known == value => is_wanted,
                    _ => {
                        let is_wanted = wanted.binary_search(&value).is_ok();
                        last = Some((value, is_wanted));
                        is_wanted
                    }
                });
            }
            Self::AtMost(most) => {
                let values = column.as_primitive_opt::<Int64Type>()?;
                narrow(kept, values.iter(), |value| value <= *most);
            }
            Self::AtLeast(least) => {
                let values = column.as_primitive_opt::<Float64Type>()?;
                narrow(kept, values.iter(), |value| value >= *least);
            }
        }
        Some(())
    }
}

fn narrow<T>(
    kept: &mut [bool],
    values: impl Iterator<Item = Option<T>>,
    mut passes: impl FnMut(T) -> bool,
) {
    for (kept, value) in kept.iter_mut().zip(values) {
        *kept = *kept && value.is_some_and(&mut passes);
    }
}

impl RowCondition for Tests {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn fields(&self) -> &Fields {
        &self.all_fields
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        check().map_err(|error| Arc::new(error) as Arc<dyn Error + Send + Sync>)?;
        let kept = self.kept(columns, rows);
        kept.map_err(|error| Arc::new(error) as Arc<dyn Error + Send + Sync>)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    #[test]
    fn bounds_tell_what_cannot_pass() {
        let among = ValueTest::Among([2, 5, 9].into());
        let most = ValueTest::AtMost(5);
        for (first, last, in_list, below) in [
            (0, 1, false, true),
            (0, 2, true, true),
            (3, 4, false, true),
            (5, 5, true, true),
            (6, 8, false, false),
            (9, 99, true, false),
            (10, 99, false, false),
        ] {
            assert_eq!(among.may_pass_within([first, last]), in_list);
            assert_eq!(most.may_pass_within([first, last]), below);
            assert!(ValueTest::AtLeast(1e9).may_pass_within([first, last]));
        }
    }

    /// What lies in the slot of a NULL counts for nothing.
    #[test]
    fn nulls_pass_no_test() {
        let tests = Tests {
            columns: vec![4, 2, 7, 8],
            values: vec![
                (0, ValueTest::Among([2, 5, 9].into())),
                (0, ValueTest::AtMost(8)),
                (1, ValueTest::AtLeast(1.5)),
            ],
            region: Some(([2, 3], Region::circle_degrees(0.0, 0.0, 1.0).unwrap())),
            ..Tests::default()
        };
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(2),
            None,
            Some(5),
            Some(5),
            Some(9),
            Some(3),
            Some(2),
            Some(2),
        ]));
        let column = |values: [Option<f64>; 8]| -> ArrayRef {
            Arc::new(Float64Array::from(values.to_vec()))
        };
        let some = Some(2.0);
        let times = column([some, some, Some(1.5), None, some, some, Some(1.0), some]);
        let zero = Some(0.0);
        let ra = column([zero, zero, Some(359.5), zero, zero, zero, zero, Some(2.0)]);
        let dec = column([zero; 8]);
        let kept = tests.kept(&[keys, times, ra, dec], 8).unwrap();
        let kept: Vec<bool> = kept.values().iter().collect();
        let wanted = [true, false, true, false, false, false, false, false];
        assert_eq!(kept, wanted);
        let dec = column([None; 8]);
        let all: ArrayRef = Arc::new(Int64Array::from(vec![2; 8]));
        let kept = tests.kept(&[all, column([some; 8]), column([zero; 8]), dec], 8);
        assert_eq!(kept.unwrap().true_count(), 0);
    }
}
