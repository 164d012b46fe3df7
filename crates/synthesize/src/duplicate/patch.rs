//! The patch that is duplicated: a director's rows and its children's, read from Parquet files and held in memory.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sky::{LonLat, LonLatBox};

use super::tiling::{Vector, vector};
use super::{ChildFiles, DirectorFiles};
use crate::error::SynthesizeError;

/// The director's rows that can be copied.
#[derive(Debug)]
pub(super) struct Director {
    pub rows: RecordBatch,
    pub key: usize,
    pub position: [usize; 2],
    /// For each row its place on the sphere.
    pub vectors: Vec<Vector>,
    /// Rows that have no position, or lie outside of the patch.
    pub left_out: u64,
    /// The row of each key.
    by_key: HashMap<i64, u32>,
}

/// A child's rows, found by the director's.
#[derive(Debug)]
pub(super) struct Child {
    pub name: String,
    pub rows: RecordBatch,
    pub key: usize,
    pub own_key: Option<usize>,
    pub position: Option<[usize; 2]>,
    /// The rows' own places; none for rows without a position.
    pub vectors: Option<Vec<Option<Vector>>>,
    /// Those of director row `i` are `of_director[begins[i]..begins[i + 1]]`.
    pub begins: Vec<u32>,
    pub of_director: Vec<u32>,
    /// Rows whose key the director does not have.
    pub orphans: u64,
}

/// The Parquet files that a path names: itself, or those in the directory.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SynthesizeError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let list = |e| SynthesizeError::io("list", path, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(list)? {
            let entry = entry.map_err(list)?.path();
            if entry
                .extension()
                .is_some_and(|e| e == "parquet" || e == "pq")
            {
                found.push(entry);
            }
        }
        if found.is_empty() {
            return Err(wrong(path, "there is no .parquet file in this directory"));
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

fn wrong(path: &Path, reason: impl Into<String>) -> SynthesizeError {
    SynthesizeError::Patch {
        path: path.to_path_buf(),
        reason: reason.into(),
    }
}

/// All rows of all files, in this order.
fn read(paths: &[PathBuf]) -> Result<(PathBuf, RecordBatch), SynthesizeError> {
    let files = files_of(paths)?;
    let Some(first) = files.first().cloned() else {
        return Err(SynthesizeError::Options(
            "no file of the patch was named".to_owned(),
        ));
    };
    let mut batches = Vec::new();
    let mut schema: Option<SchemaRef> = None;
    for path in &files {
        let file = File::open(path).map_err(|e| SynthesizeError::io("open", path, e))?;
        let failed = |e| SynthesizeError::parquet("read", path, e);
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
        let own = builder.schema().clone();
        let known = schema.get_or_insert_with(|| own.clone());
        if known.fields() != own.fields() {
            let reason = format!("its columns are not those of {}", first.display());
            return Err(wrong(path, reason));
        }
        for batch in builder.build().map_err(failed)? {
            batches.push(batch?);
        }
    }
    let schema = schema.ok_or(SynthesizeError::Internal)?;
    let rows = concat_batches(&schema, &batches)?;
    if rows.num_rows() >= u32::MAX as usize {
        return Err(wrong(
            &first,
            "the patch has more than 4 billion rows: give a smaller one",
        ));
    }
    Ok((first, rows))
}

fn find_column(path: &Path, rows: &RecordBatch, name: &str) -> Result<usize, SynthesizeError> {
    let schema = rows.schema();
    let names = || schema.fields().iter().map(|f| f.name());
    names()
        .position(|known| known.eq_ignore_ascii_case(name))
        .ok_or_else(|| {
            let there: Vec<&str> = names().map(String::as_str).collect();
            wrong(
                path,
                format!("it has no column {name:?}: it has {}", there.join(", ")),
            )
        })
}

fn integers(path: &Path, rows: &RecordBatch, column: usize) -> Result<Int64Array, SynthesizeError> {
    let array = rows.column(column);
    let exact = array
        .data_type()
        .is_integer()
        .then(|| cast(array, &DataType::Int64));
    let cast = match exact {
        Some(Ok(cast)) if cast.null_count() == array.null_count() => cast,
        _ => {
            let schema = rows.schema();
            let name = schema.field(column).name();
            let reason = format!("the key {name:?} must be an integer that fits 64 bits");
            return Err(wrong(path, reason));
        }
    };
    Ok(cast.as_primitive::<Int64Type>().clone())
}

/// The positions of rows in degrees; `None` where they are NULL, NaN or out of range.
fn positions(
    path: &Path,
    rows: &RecordBatch,
    columns: [usize; 2],
) -> Result<Vec<Option<LonLat>>, SynthesizeError> {
    let degrees = |column: usize| -> Result<Float64Array, SynthesizeError> {
        let array: &ArrayRef = rows.column(column);
        let cast = cast(array, &DataType::Float64).map_err(|_| {
            let reason = format!("a position must be a number, not {}", array.data_type());
            wrong(path, reason)
        })?;
        Ok(cast.as_primitive::<Float64Type>().clone())
    };
    let (ra, dec) = (degrees(columns[0])?, degrees(columns[1])?);
    let pair = ra.iter().zip(dec.iter());
    Ok(pair
        .map(|(ra, dec)| LonLat::from_degrees(ra?, dec?).ok())
        .collect())
}

impl Director {
    /// Reads the rows, and the patch's box: `patch` if it is given, else around the rows.
    pub(super) fn read(
        files: &DirectorFiles,
        patch: Option<LonLatBox>,
    ) -> Result<(Self, LonLatBox), SynthesizeError> {
        let (path, rows) = read(&files.files)?;
        let key = find_column(&path, &rows, &files.key)?;
        let columns = [
            find_column(&path, &rows, &files.position[0])?,
            find_column(&path, &rows, &files.position[1])?,
        ];
        let all = positions(&path, &rows, columns)?;
        let patch = match patch {
            Some(patch) => patch,
            None => box_around(all.iter().flatten().copied())
                .ok_or_else(|| wrong(&path, "no row has a position: nothing can be copied"))?,
        };
        let kept = |p: &Option<LonLat>| p.filter(|p| patch.contains(*p));
        let keep: Vec<bool> = all.iter().map(|p| kept(p).is_some()).collect();
        let kept_rows = arrow::compute::filter_record_batch(&rows, &keep.into())?;
        if kept_rows.num_rows() == 0 {
            return Err(wrong(&path, "no row lies in the patch: check --patch"));
        }
        let vectors = all.iter().filter_map(kept);
        let director = Self {
            vectors: vectors
                .map(|p| vector(p.ra().degrees(), p.dec().degrees()))
                .collect(),
            by_key: rows_by_key(&path, &kept_rows, key)?,
            key,
            position: columns,
            left_out: (rows.num_rows() - kept_rows.num_rows()) as u64,
            rows: kept_rows,
        };
        Ok((director, patch))
    }
}

fn rows_by_key(
    path: &Path,
    rows: &RecordBatch,
    key: usize,
) -> Result<HashMap<i64, u32>, SynthesizeError> {
    let keys = integers(path, rows, key)?;
    let mut by_key = HashMap::with_capacity(keys.len());
    for (row, key) in keys.iter().enumerate() {
        let Some(key) = key else {
            return Err(wrong(
                path,
                "a row has no key: a director's key must be there in every row",
            ));
        };
        if by_key.insert(key, row as u32).is_some() {
            let reason = format!("the key {key} occurs twice: a director's key must be unique");
            return Err(wrong(path, reason));
        }
    }
    Ok(by_key)
}

/// The smallest box that holds all positions: between the two that are farthest apart in right ascension it is empty.
fn box_around(positions: impl Iterator<Item = LonLat> + Clone) -> Option<LonLatBox> {
    let mut ras: Vec<f64> = positions.clone().map(|p| p.ra().degrees()).collect();
    ras.sort_by(f64::total_cmp);
    let (first, last) = (*ras.first()?, *ras.last()?);
    let (mut west, mut east, mut gap) = (first, last, first + 360.0 - last);
    for pair in ras.windows(2) {
        if pair[1] - pair[0] > gap {
            (west, east, gap) = (pair[1], pair[0] + 360.0, pair[1] - pair[0]);
        }
    }
    let decs = || positions.clone().map(|p| p.dec().degrees());
    let (south, north) = (decs().fold(90.0, f64::min), decs().fold(-90.0, f64::max));
    LonLatBox::from_degrees(west, south, east, north).ok()
}

impl Child {
    pub(super) fn read(files: &ChildFiles, director: &Director) -> Result<Self, SynthesizeError> {
        let (path, rows) = read(&files.files)?;
        let column = |name: &String| find_column(&path, &rows, name);
        let key = column(&files.key)?;
        let own_key = files.own_key.as_ref().map(column).transpose()?;
        if let Some(own_key) = own_key {
            integers(&path, &rows, own_key)?;
        }
        let position = match &files.position {
            Some([ra, dec]) => Some([column(ra)?, column(dec)?]),
            None => None,
        };
        let vectors = position.map(|columns| -> Result<Vec<Option<Vector>>, SynthesizeError> {
            let all = positions(&path, &rows, columns)?;
            let at = |p: LonLat| vector(p.ra().degrees(), p.dec().degrees());
            Ok(all.into_iter().map(|p| p.map(at)).collect())
        });
        let parents: Vec<Option<u32>> = (integers(&path, &rows, key)?.iter())
            .map(|key| director.by_key.get(&key?).copied())
            .collect();
        let (begins, of_director) = group(&parents, director.rows.num_rows());
        Ok(Self {
            name: files.name.clone(),
            key,
            own_key,
            position,
            vectors: vectors.transpose()?,
            orphans: (rows.num_rows() - of_director.len()) as u64,
            begins,
            of_director,
            rows,
        })
    }
}

/// The rows of each parent, in their order: a counting sort.
fn group(parents: &[Option<u32>], count: usize) -> (Vec<u32>, Vec<u32>) {
    let mut begins = vec![0_u32; count + 1];
    for parent in parents.iter().flatten() {
        begins[*parent as usize + 1] += 1;
    }
    for i in 0..count {
        begins[i + 1] += begins[i];
    }
    let mut next = begins.clone();
    let mut grouped = vec![0; begins[count] as usize];
    for (row, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            let slot = &mut next[*parent as usize];
            grouped[*slot as usize] = row as u32;
            *slot += 1;
        }
    }
    (begins, grouped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_through_right_ascension_0_is_narrow() {
        let at = |ra, dec| LonLat::from_degrees(ra, dec).unwrap();
        let patch = box_around([at(359.0, 1.0), at(2.0, -1.0), at(0.5, 0.0)].into_iter()).unwrap();
        assert_eq!((patch.ra_min(), patch.ra_max()), (359.0, 2.0));
        assert_eq!((patch.dec_min(), patch.dec_max()), (-1.0, 1.0));
        assert!(box_around(std::iter::empty()).is_none());
    }

    #[test]
    fn rows_are_grouped_in_their_order() {
        let (begins, grouped) = group(&[Some(2), None, Some(0), Some(2)], 3);
        assert_eq!((begins, grouped), (vec![0, 1, 1, 3], vec![2, 0, 3]));
    }
}
