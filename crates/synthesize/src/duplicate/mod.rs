//! A catalogue of copies: a real patch of sky, director and children, repeated over the sky or a region.
//!
//! Every copy is the patch moved to a tile by a rotation of the sphere ([`tiling`]); children move with their director's
//! row. New keys are `tile × rows of the patch + row in the patch`, so they are unique and can be derived for
//! any chunk alone.

mod patch;
mod tiling;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use sky::{ChunkId, Chunker, LonLatBox, Region};

use self::patch::{Child, Director};
use self::tiling::{Rotation, Tiling, dot, position, vector};
use crate::catalogue::{Batches, Catalogue, Role, Table};
use crate::error::SynthesizeError;
use crate::footprint::{AREA_STRIPES, Footprint};

/// Rows of a batch, and rows of the patch that are looked at in one step.
const BATCH_ROWS: usize = 65_536;

/// The files with the director of the patch.
#[derive(Debug, Clone)]
pub struct DirectorFiles {
    /// The table's name.
    pub name: String,
    /// Parquet files, or directories of them.
    pub files: Vec<PathBuf>,
    /// The unique key.
    pub key: String,
    /// Right ascension and declination, degrees.
    pub position: [String; 2],
}

/// The files with a child of the patch.
#[derive(Debug, Clone)]
pub struct ChildFiles {
    /// The table's name.
    pub name: String,
    /// Parquet files, or directories of them.
    pub files: Vec<PathBuf>,
    /// The column with the director's key.
    pub key: String,
    /// The rows' own positions, degrees.
    pub position: Option<[String; 2]>,
    /// The rows' own key, which gets new values.
    pub own_key: Option<String>,
}

/// What is to be duplicated, and where to.
#[derive(Debug, Clone)]
pub struct DuplicateOptions {
    /// The director.
    pub director: DirectorFiles,
    /// Its children.
    pub children: Vec<ChildFiles>,
    /// The box that is copied; the one around the director's rows if absent.
    pub patch: Option<LonLatBox>,
    /// The region to fill.
    pub region: Region,
    /// The same seed gives the same rows.
    pub seed: u64,
}

/// A patch that has been read, and where it is to be copied to.
#[derive(Debug)]
pub struct Patch {
    options: DuplicateOptions,
    director: Director,
    children: Vec<Child>,
    /// The box that is copied.
    boxed: LonLatBox,
    /// Director rows in a square degree.
    density: f64,
    /// The region to fill in square degrees.
    area: f64,
}

impl Patch {
    /// Reads the files.
    ///
    /// # Errors
    /// Files or columns that are not there, keys that are not unique, a patch without an area.
    pub fn read(options: DuplicateOptions) -> Result<Self, SynthesizeError> {
        let (director, boxed) = Director::read(&options.director, options.patch)?;
        let children = (options.children.iter())
            .map(|files| Child::read(files, &director))
            .collect::<Result<_, _>>()?;
        let area = |region: Region| -> Result<f64, SynthesizeError> {
            Ok(Footprint::new(Chunker::new(AREA_STRIPES, 1)?, region).area())
        };
        Ok(Self {
            density: director.rows.num_rows() as f64 / area(Region::Box(boxed))?,
            area: area(options.region.clone())?,
            options,
            director,
            children,
            boxed,
        })
    }

    /// About how many rows the director will have, and the area in square degrees that they fill.
    pub fn expected(&self) -> (u64, f64) {
        ((self.density * self.area) as u64, self.area)
    }
}

/// Copies of a patch.
#[derive(Debug)]
pub struct PatchCopies {
    director: Director,
    children: Vec<Child>,
    tables: Vec<Table>,
    tiling: Tiling,
    footprint: Footprint,
    chunks: Vec<ChunkId>,
    /// Director rows of the patch in a square degree.
    density: f64,
}

impl PatchCopies {
    /// Settles the tiles. `stripes` are those of the partitioning whose chunks are made one by one; which rows there are
    /// does not depend on it.
    ///
    /// # Errors
    /// A patch without an area, more rows than there are keys.
    pub fn new(patch: Patch, stripes: u32) -> Result<Self, SynthesizeError> {
        let Patch {
            options,
            director,
            children,
            boxed,
            density,
            ..
        } = patch;
        let tiling = Tiling::new(&boxed, options.seed)?;
        check_keys(&tiling, &director, &children)?;
        let footprint = Footprint::new(Chunker::new(stripes, 1)?, options.region);
        let mut tables = vec![director_table(&options.director, &director)];
        let child_tables = options.children.iter().zip(&children);
        tables.extend(
            child_tables.map(|(files, child)| child_table(files, child, &options.director.name)),
        );
        Ok(Self {
            chunks: footprint.pieces.iter().map(|piece| piece.chunk).collect(),
            director,
            children,
            tables,
            tiling,
            footprint,
            density,
        })
    }

    /// What was left out of the patch, and how many copies there are, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "the whole sky takes {} copies of the patch's {} rows",
            self.tiling.tiles(),
            self.director.rows.num_rows()
        )];
        if self.director.left_out > 0 {
            notes.push(format!(
                "{} rows of {} have no position or lie outside of the patch",
                self.director.left_out, self.tables[0].name
            ));
        }
        let orphans = self.children.iter().filter(|child| child.orphans > 0);
        notes.extend(orphans.map(|child| {
            format!(
                "{} rows of {} are left out: the patch has no row with their key",
                child.orphans, child.name
            )
        }));
        notes
    }
}

/// New keys must fit 64 bits.
fn check_keys(
    tiling: &Tiling,
    director: &Director,
    children: &[Child],
) -> Result<(), SynthesizeError> {
    let most = children.iter().map(|child| child.rows.num_rows()).max();
    let most = most.unwrap_or(0).max(director.rows.num_rows()) as u64;
    match tiling.tiles().checked_mul(most) {
        Some(keys) if i64::try_from(keys).is_ok() => Ok(()),
        _ => Err(SynthesizeError::Options(format!(
            "{} copies of {most} rows are more than there are keys: give a larger patch",
            tiling.tiles()
        ))),
    }
}

/// The schema with some columns' types changed.
fn with_types(schema: &Schema, types: &[(usize, DataType, bool)]) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    for (column, ty, nullable) in types {
        let name = fields[*column].name().clone();
        fields[*column] = Arc::new(Field::new(name, ty.clone(), *nullable));
    }
    Arc::new(Schema::new(fields))
}

fn director_table(files: &DirectorFiles, director: &Director) -> Table {
    let [ra, dec] = director.position;
    let types = [
        (director.key, DataType::Int64, false),
        (ra, DataType::Float64, false),
        (dec, DataType::Float64, false),
    ];
    Table {
        name: files.name.clone(),
        schema: with_types(&director.rows.schema(), &types),
        role: Role::Director {
            key: files.key.clone(),
            position: files.position.clone(),
        },
        few_values: Vec::new(),
    }
}

fn child_table(files: &ChildFiles, child: &Child, director: &str) -> Table {
    let mut types = vec![(child.key, DataType::Int64, false)];
    types.extend(child.own_key.map(|column| (column, DataType::Int64, false)));
    let columns = child.position.into_iter().flatten();
    types.extend(columns.map(|column| (column, DataType::Float64, true)));
    Table {
        name: files.name.clone(),
        schema: with_types(&child.rows.schema(), &types),
        role: Role::Child {
            director: director.to_owned(),
            key: files.key.clone(),
            own_key: files.own_key.clone(),
            order: None,
            position: files.position.clone(),
        },
        few_values: Vec::new(),
    }
}

impl Catalogue for PatchCopies {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn chunks(&self) -> &[ChunkId] {
        &self.chunks
    }

    fn rows(&self, table: usize, chunk: usize) -> u64 {
        let objects = self.density * self.footprint.pieces[chunk].area;
        let each = match table.checked_sub(1) {
            None => 1.0,
            Some(child) => {
                let children = self.children[child].of_director.len();
                children as f64 / self.director.rows.num_rows() as f64
            }
        };
        (objects * each) as u64
    }

    fn counts_are_exact(&self) -> bool {
        false
    }

    fn batches(self: Arc<Self>, table: usize, chunk: usize) -> Batches {
        let copies = Copies::new(self, chunk);
        match table.checked_sub(1) {
            None => Box::new(DirectorRows { copies }),
            Some(child) => Box::new(ChildRows {
                copies,
                child,
                waiting: Vec::new(),
                next: 0,
            }),
        }
    }
}

/// One row of the director in one tile.
#[derive(Debug, Clone, Copy)]
struct Copy {
    tile: u64,
    row: u32,
    /// Degrees.
    ra: f64,
    dec: f64,
}

/// Finds the copies of director rows that lie in a chunk, tile after tile.
struct Copies {
    catalogue: Arc<PatchCopies>,
    chunk: usize,
    /// Tiles still to be looked at, the next one last.
    tiles: Vec<Range<u64>>,
    /// The row of the patch to go on with in the next tile.
    row: usize,
}

impl Copies {
    fn new(catalogue: Arc<PatchCopies>, chunk: usize) -> Self {
        let boxed = catalogue
            .footprint
            .chunker
            .chunk_box(catalogue.chunks[chunk]);
        let mut tiles = boxed.map_or(Vec::new(), |b| catalogue.tiling.tiles_near(&b));
        tiles.reverse();
        Self {
            catalogue,
            chunk,
            tiles,
            row: 0,
        }
    }

    /// Some copies, about as many as a batch has rows; none at the end.
    fn next_copies(&mut self) -> Vec<Copy> {
        let mut found = Vec::new();
        while found.len() < BATCH_ROWS {
            let Some(tiles) = self.tiles.last_mut() else {
                break;
            };
            let tile = tiles.start;
            let rows = self.catalogue.director.vectors.len();
            let end = (self.row + BATCH_ROWS).min(rows);
            let looked_at = self.row..end;
            self.row = end;
            if end == rows {
                self.row = 0;
                tiles.start += 1;
                if tiles.is_empty() {
                    self.tiles.pop();
                }
            }
            self.find(tile, looked_at, &mut found);
        }
        found
    }

    /// The copies that the rows of the patch have in the chunk's part of a tile.
    fn find(&self, tile: u64, rows: Range<usize>, found: &mut Vec<Copy>) {
        let PatchCopies {
            director,
            tiling,
            footprint,
            ..
        } = self.catalogue.as_ref();
        let piece = &footprint.pieces[self.chunk];
        let rotation = tiling.rotation(tile);
        let (middle, cosine) = self.circle_in_patch(&rotation);
        for row in rows {
            let from = director.vectors[row];
            if dot(middle, from) < cosine {
                continue;
            }
            let to = position(rotation.apply(from));
            if tiling.tile_at(to) == tile && footprint.holds(piece, to) {
                found.push(Copy {
                    tile,
                    row: row as u32,
                    ra: to.0,
                    dec: to.1,
                });
            }
        }
    }

    /// A circle around the chunk, rotated back to the patch: its centre and the cosine of its radius. What is outside of it
    /// needs no closer look.
    fn circle_in_patch(&self, rotation: &Rotation) -> ([f64; 3], f64) {
        // More than rounding can take from a scalar product.
        const MARGIN: f64 = 1e-9;
        let footprint = &self.catalogue.footprint;
        match footprint
            .chunker
            .chunk_box(self.catalogue.chunks[self.chunk])
        {
            Some(b) => {
                let middle = b.middle();
                let radius = b.largest_separation(middle);
                let centre = vector(middle.ra().degrees(), middle.dec().degrees());
                (rotation.apply_back(centre), radius.sin_cos().1 - MARGIN)
            }
            None => ([0.0, 0.0, 1.0], -2.0),
        }
    }
}

/// The rows of a batch with these numbers, some columns put into the place of others.
fn taken(
    rows: &RecordBatch,
    schema: &SchemaRef,
    numbers: Vec<u32>,
    replaced: Vec<(usize, ArrayRef)>,
) -> Result<RecordBatch, SynthesizeError> {
    let numbers = UInt32Array::from(numbers);
    let mut columns = Vec::with_capacity(rows.num_columns());
    for (at, column) in rows.columns().iter().enumerate() {
        let new = replaced.iter().find(|(column, _)| *column == at);
        columns.push(match new {
            Some((_, new)) => new.clone(),
            None => take(column, &numbers, None)?,
        });
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn new_keys(copies: impl Iterator<Item = (u64, u32)>, patch_rows: usize) -> ArrayRef {
    let key = |(tile, row): (u64, u32)| (tile * patch_rows as u64 + u64::from(row)) as i64;
    Arc::new(Int64Array::from_iter_values(copies.map(key)))
}

struct DirectorRows {
    copies: Copies,
}

impl Iterator for DirectorRows {
    type Item = Result<RecordBatch, SynthesizeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let copies = self.copies.next_copies();
        if copies.is_empty() {
            return None;
        }
        let catalogue = &self.copies.catalogue;
        let director = &catalogue.director;
        let degrees = |of: fn(&Copy) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(copies.iter().map(of)))
        };
        let keys = copies.iter().map(|copy| (copy.tile, copy.row));
        let replaced = vec![
            (director.key, new_keys(keys, director.rows.num_rows())),
            (director.position[0], degrees(|copy| copy.ra)),
            (director.position[1], degrees(|copy| copy.dec)),
        ];
        let rows = copies.iter().map(|copy| copy.row).collect();
        Some(taken(
            &director.rows,
            &catalogue.tables[0].schema,
            rows,
            replaced,
        ))
    }
}

struct ChildRows {
    copies: Copies,
    child: usize,
    /// Copies of director rows whose children are still to be made, from `next` on.
    waiting: Vec<Copy>,
    next: usize,
}

impl ChildRows {
    /// The next rows of the child with the director's copies that they belong to; empty at the end.
    fn next_rows(&mut self) -> Vec<(Copy, u32)> {
        let mut rows = Vec::new();
        while rows.len() < BATCH_ROWS {
            if self.next == self.waiting.len() {
                self.waiting = self.copies.next_copies();
                self.next = 0;
                if self.waiting.is_empty() {
                    break;
                }
            }
            let child = &self.copies.catalogue.children[self.child];
            let copy = self.waiting[self.next];
            self.next += 1;
            let at = copy.row as usize;
            let of_copy = child.begins[at] as usize..child.begins[at + 1] as usize;
            rows.extend(child.of_director[of_copy].iter().map(|row| (copy, *row)));
        }
        rows
    }
}

impl Iterator for ChildRows {
    type Item = Result<RecordBatch, SynthesizeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.next_rows();
        if rows.is_empty() {
            return None;
        }
        let catalogue = &self.copies.catalogue;
        let child = &catalogue.children[self.child];
        let director_keys = rows.iter().map(|(copy, _)| (copy.tile, copy.row));
        let patch_rows = catalogue.director.rows.num_rows();
        let mut replaced = vec![(child.key, new_keys(director_keys, patch_rows))];
        if let Some(own_key) = child.own_key {
            let keys = rows.iter().map(|(copy, row)| (copy.tile, *row));
            replaced.push((own_key, new_keys(keys, child.rows.num_rows())));
        }
        if let (Some([ra, dec]), Some(vectors)) = (child.position, &child.vectors) {
            let [ras, decs] = moved_positions(&catalogue.tiling, &rows, vectors);
            replaced.extend([(ra, ras), (dec, decs)]);
        }
        let numbers = rows.iter().map(|(_, row)| *row).collect();
        let schema = &catalogue.tables[self.child + 1].schema;
        Some(taken(&child.rows, schema, numbers, replaced))
    }
}

/// The children's own positions, moved as their director's rows are.
fn moved_positions(
    tiling: &Tiling,
    rows: &[(Copy, u32)],
    vectors: &[Option<tiling::Vector>],
) -> [ArrayRef; 2] {
    let mut last: Option<(u64, Rotation)> = None;
    let mut moved: Vec<Option<(f64, f64)>> = Vec::with_capacity(rows.len());
    for (copy, row) in rows {
        let rotation = match last {
            Some((tile, rotation)) if tile == copy.tile => rotation,
            _ => tiling.rotation(copy.tile),
        };
        last = Some((copy.tile, rotation));
        moved.push(vectors[*row as usize].map(|v| position(rotation.apply(v))));
    }
    let column = |of: fn((f64, f64)) -> f64| -> ArrayRef {
        Arc::new(moved.iter().map(|p| p.map(of)).collect::<Float64Array>())
    };
    [column(|p| p.0), column(|p| p.1)]
}
