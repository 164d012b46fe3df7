//! What every row of a file must fulfil.

use std::ops::ControlFlow;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Schema};
use catalog::{TableKind, TableSpec};
use sky::{Angle, ChunkId, Chunker, Location, LonLat};
use store::{DirectorIndex, Directory};

use crate::key_map::keys_of;
use crate::place::matches::HOME_COLUMNS;
use crate::position::{PositionColumns, Positions};

/// What is known of a table whose rows are checked.
pub(super) struct RowRules {
    pub chunker: Chunker,
    pub overlap: Angle,
    pub spec: TableSpec,
    /// Runs of indexes. Director: that of the part, then those of its other parts. Child: those of its orphans, then the
    /// director's. Match: the left and the right director's. Those of directors only if `placed_by_current_directors`.
    pub indexes: Vec<Vec<DirectorIndex>>,
    /// Whether the directors are still those by which the table was placed.
    pub placed_by_current_directors: bool,
}

/// What a sentence about a wrong row begins with: nothing if the row is right.
type RowCheckResult = ControlFlow<String>;

/// The rows of one file, batch by batch.
pub(super) struct RowCheck<'a> {
    rules: &'a RowRules,
    chunk: ChunkId,
    own: bool,
    /// The file's columns that are read.
    columns: Vec<usize>,
    /// The numbers of keys, position and homes among those that are read.
    keys: Vec<usize>,
    positions: Option<PositionColumns>,
    homes: Option<[usize; 2]>,
    home_rows: [u64; 2],
    /// Rows of a director that may be here although their positions lie elsewhere.
    strays: u64,
    /// The last row's sub-chunk and key.
    last: Option<(i32, Option<i64>)>,
    locations: Vec<Location>,
}

impl<'a> RowCheck<'a> {
    /// A check of a file with this schema, or what the schema lacks.
    pub(super) fn new(
        rules: &'a RowRules,
        schema: &Schema,
        chunk: ChunkId,
        own: bool,
        strays: u64,
    ) -> Result<Self, String> {
        let mut columns = Vec::new();
        let mut find = |name: &str| -> Result<usize, String> {
            let at = schema
                .index_of(name)
                .map_err(|_| format!("it lacks the column {name:?}"))?;
            let seen = columns.iter().position(|c| *c == at);
            Ok(seen.unwrap_or_else(|| {
                columns.push(at);
                columns.len() - 1
            }))
        };
        let spec = &rules.spec;
        let key_names: Vec<&str> = match spec.kind {
            TableKind::Director => spec.key.iter().map(String::as_str).collect(),
            TableKind::Child | TableKind::Match => {
                spec.directors.iter().map(|d| d.key.as_str()).collect()
            }
            TableKind::Replicated => Vec::new(),
        };
        let keys = key_names
            .into_iter()
            .map(&mut find)
            .collect::<Result<_, _>>()?;
        let positions = match &spec.position {
            Some(position) => Some(PositionColumns {
                ra: find(&position.ra)?,
                dec: find(&position.dec)?,
            }),
            None => None,
        };
        let homes = match spec.kind {
            TableKind::Match => Some([find(HOME_COLUMNS[0])?, find(HOME_COLUMNS[1])?]),
            _ => None,
        };
        Ok(Self {
            rules,
            chunk,
            own,
            columns,
            keys,
            positions,
            homes,
            home_rows: [0; 2],
            strays,
            last: None,
            locations: Vec::new(),
        })
    }

    /// The file's columns to read.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Rows that stood for a left and for a right home.
    pub(super) fn homes(&self) -> [u64; 2] {
        self.home_rows
    }

    /// Checks rows; `first` is the number of the first of them in the file.
    pub(super) fn look_at(
        &mut self,
        batch: &RecordBatch,
        first: u64,
        directory: &Directory,
    ) -> RowCheckResult {
        let failed = |error: crate::IngestError| ControlFlow::Break(error.to_string());
        let keys: Vec<(Vec<i64>, Vec<bool>)> = match self
            .keys
            .iter()
            .map(|c| keys_of(batch.column(*c)))
            .collect()
        {
            Ok(keys) => keys,
            Err(error) => return failed(error),
        };
        let positions = match self
            .positions
            .map(|p| Positions::read(batch.columns(), p))
            .transpose()
        {
            Ok(positions) => positions,
            Err(error) => return failed(error),
        };
        if self.own && self.rules.spec.kind != TableKind::Replicated {
            let sub_chunks = sub_chunks_of(batch.num_rows(), first, directory);
            self.check_order(&keys, &sub_chunks, first)?;
            return match self.rules.spec.kind {
                TableKind::Director => {
                    self.check_director(&keys, positions.as_ref(), &sub_chunks, first)
                }
                TableKind::Child => self.check_child(&keys, &sub_chunks, first),
                _ => self.check_pairs(batch, &keys, &sub_chunks, first),
            };
        }
        match positions {
            Some(positions) if !self.own => self.check_overlap(&positions, first),
            _ => ControlFlow::Continue(()),
        }
    }

    fn check_order(
        &mut self,
        keys: &[(Vec<i64>, Vec<bool>)],
        sub_chunks: &[i32],
        first: u64,
    ) -> RowCheckResult {
        let Some((values, has_key)) = keys.first() else {
            return ControlFlow::Continue(());
        };
        let unique = self.rules.spec.kind == TableKind::Director;
        for (row, sub_chunk) in sub_chunks.iter().enumerate() {
            let now = (*sub_chunk, has_key[row].then_some(values[row]));
            let sorted = (self.last).is_none_or(|last| last < now || (last == now && !unique));
            if !sorted {
                return wrong(first, row, "it is not sorted by sub-chunk and key");
            }
            self.last = Some(now);
        }
        ControlFlow::Continue(())
    }

    fn check_director(
        &mut self,
        keys: &[(Vec<i64>, Vec<bool>)],
        positions: Option<&Positions>,
        sub_chunks: &[i32],
        first: u64,
    ) -> RowCheckResult {
        let (Some(positions), Some((values, _))) = (positions, keys.first()) else {
            return ControlFlow::Continue(());
        };
        self.rules
            .chunker
            .locate_degrees(&positions.ra, &positions.dec, &mut self.locations);
        for (row, location) in self.locations.iter().enumerate() {
            if (location.chunk, location.sub_chunk.0) != (self.chunk, sub_chunks[row]) {
                if self.strays > 0 {
                    self.strays -= 1;
                    continue;
                }
                return wrong(
                    first,
                    row,
                    "by its position it belongs into another chunk or sub-chunk",
                );
            }
        }
        let (found, elsewhere) = (self.lookup(0, values)?, self.lookup(1, values)?);
        for (row, entry) in found.iter().enumerate() {
            if elsewhere[row].is_some() {
                let key = values[row];
                return wrong(first, row, &format!("another part has its key {key} too"));
            }
            let here = Some((self.chunk, sub_chunks[row]));
            if *entry != here {
                return wrong(
                    first,
                    row,
                    &format!(
                        "the director index has its key {} elsewhere or not at all",
                        values[row]
                    ),
                );
            }
        }
        ControlFlow::Continue(())
    }

    /// A row with a key must be where the director's index says, or the child's own of orphans.
    fn check_child(
        &self,
        keys: &[(Vec<i64>, Vec<bool>)],
        sub_chunks: &[i32],
        first: u64,
    ) -> RowCheckResult {
        let Some((values, has_key)) = keys
            .first()
            .filter(|_| self.rules.placed_by_current_directors)
        else {
            return ControlFlow::Continue(());
        };
        let (orphans, directors) = (self.lookup(0, values)?, self.lookup(1, values)?);
        for row in (0..values.len()).filter(|row| has_key[*row]) {
            let place = directors[row].or(orphans[row]);
            if place != Some((self.chunk, sub_chunks[row])) {
                let key = values[row];
                return wrong(
                    first,
                    row,
                    &format!("it is not where the index has its director's key {key}"),
                );
            }
        }
        ControlFlow::Continue(())
    }

    fn check_pairs(
        &mut self,
        batch: &RecordBatch,
        keys: &[(Vec<i64>, Vec<bool>)],
        sub_chunks: &[i32],
        first: u64,
    ) -> RowCheckResult {
        let Some(columns) = self.homes else {
            return ControlFlow::Continue(());
        };
        let homes = columns.map(|c| batch.column(c).as_primitive::<Int32Type>().values().clone());
        let known = self.rules.placed_by_current_directors && self.rules.indexes.len() == 2;
        let ends = match (known, keys) {
            (true, [left, right]) => Some([self.ends(0, left)?, self.ends(1, right)?]),
            _ => None,
        };
        for (row, sub_chunk) in sub_chunks.iter().enumerate() {
            let pair = [homes[0][row], homes[1][row]];
            for (count, home) in self.home_rows.iter_mut().zip(pair) {
                *count += u64::from(home >= 0);
            }
            if pair.iter().copied().find(|home| *home >= 0) != Some(*sub_chunk) {
                return wrong(
                    first,
                    row,
                    "its home columns do not fit its place in the directory",
                );
            }
            let Some([left, right]) = &ends else {
                continue;
            };
            let (left, right) = (left[row].or(right[row]), right[row].or(left[row]));
            for (home, place) in pair.iter().zip([left, right]) {
                let here = place
                    .filter(|(chunk, _)| *chunk == self.chunk)
                    .map_or(-1, |(_, sub)| sub);
                if place.is_some() && *home != here {
                    return wrong(
                        first,
                        row,
                        "its home is not where the director index has its key",
                    );
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn ends(
        &self,
        index: usize,
        (values, has_key): &(Vec<i64>, Vec<bool>),
    ) -> ControlFlow<String, Vec<Entry>> {
        let mut found = self.lookup(index, values)?;
        for (entry, has_key) in found.iter_mut().zip(has_key) {
            *entry = entry.filter(|_| *has_key);
        }
        ControlFlow::Continue(found)
    }

    fn check_overlap(&self, positions: &Positions, first: u64) -> RowCheckResult {
        let mut near = Vec::new();
        for row in 0..positions.ra.len() {
            let Ok(position) = LonLat::from_degrees(positions.ra[row], positions.dec[row]) else {
                return wrong(first, row, "it has no position");
            };
            near.clear();
            self.rules
                .chunker
                .chunks_within(position, self.rules.overlap, &mut near);
            let inside =
                self.rules.chunker.locate(position).chunk == self.chunk && self.strays == 0;
            if inside || !near.contains(&self.chunk) {
                return wrong(
                    first,
                    row,
                    "it is not a row of another chunk within the overlap",
                );
            }
        }
        ControlFlow::Continue(())
    }

    fn lookup(&self, index: usize, keys: &[i64]) -> ControlFlow<String, Vec<Entry>> {
        let mut found = vec![None; keys.len()];
        for run in self.rules.indexes.get(index).into_iter().flatten() {
            let entries = match run.lookup(keys) {
                Ok(entries) => entries,
                Err(error) => return ControlFlow::Break(error.to_string()),
            };
            for (place, entry) in found.iter_mut().zip(entries) {
                let entry = entry.map(|e| (e.location.chunk, e.location.sub_chunk.0));
                *place = place.or(entry);
            }
        }
        ControlFlow::Continue(found)
    }
}

/// A chunk and a sub-chunk's number.
type Entry = Option<(ChunkId, i32)>;

fn wrong(first: u64, row: usize, what: &str) -> RowCheckResult {
    ControlFlow::Break(format!("row {}: {what}", first + row as u64))
}

/// The sub-chunk of each of `rows` rows from number `first` on.
fn sub_chunks_of(rows: usize, first: u64, directory: &Directory) -> Vec<i32> {
    let mut sub_chunks = Vec::with_capacity(rows);
    while sub_chunks.len() < rows {
        let row = first + sub_chunks.len() as u64;
        match directory.entry_of_row(row) {
            Some(entry) => {
                let left = (entry.rows.end - row).min((rows - sub_chunks.len()) as u64) as usize;
                sub_chunks.resize(sub_chunks.len() + left, entry.sub_chunk.0);
            }
            // A directory that does not cover the row was told of before.
            None => sub_chunks.push(-1),
        }
    }
    sub_chunks
}
