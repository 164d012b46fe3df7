//! A table with one of its lists of parts: what the catalog says of it, its files, and where its keys are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use catalog::{Chunk, ColumnType, DirectorRef, LoadId, Table, TableKind, TableSpec, fold_name};
use sky::{ChunkId, Chunker, Location, LonLatBox, Region};
use store::ChunkFile;
use tokio::sync::OnceCell;

use crate::coverage::{Coverage, SubChunkSet};
use crate::key_places::{IndexRun, KeyPlaces, locations, lookup};
use crate::piece::ChunkSlice;
use crate::restriction::{Restriction, Roles};
use crate::search_cover::SearchCover;
use crate::stored_part::StoredPart;
use crate::{Archive, EngineError};

/// Hidden column of a match table's files: the sub-chunk of the pair's left home where that is in this chunk, else -1.
pub(crate) const LEFT_SUB_CHUNK: &str = "__left_sub_chunk";
/// The same for the right home.
pub(crate) const RIGHT_SUB_CHUNK: &str = "__right_sub_chunk";

/// Column of every partitioned table that queries may name and `*` leaves out: the number of the chunk that a row is in.
pub(crate) const CHUNK_NUMBER: &str = "chunkid";
/// Its name as users write it.
pub(crate) const CHUNK_NUMBER_DECLARED: &str = "chunkId";

/// The column of [`CHUNK_NUMBER`].
pub(crate) fn chunk_number_field() -> Field {
    Field::new(CHUNK_NUMBER, DataType::Int32, false)
}

/// The columns of a table that queries may name beside those of `*`: a column of its own of that name stands before ours.
pub(crate) fn hidden_columns(spec: &TableSpec) -> Vec<&'static str> {
    let mut own = spec.columns.iter().map(|column| fold_name(&column.name));
    let hidden = spec.kind != TableKind::Replicated && !own.any(|name| name == CHUNK_NUMBER);
    if hidden { vec![CHUNK_NUMBER] } else { vec![] }
}

/// The files of a table: all that is needed to read rows.
#[derive(Debug)]
pub struct StoredTable {
    /// The database's declared name.
    pub database: String,
    /// The table's declared name.
    pub name: String,
    /// Its kind.
    pub kind: TableKind,
    /// Its parts, in the order in which they are read.
    pub parts: Vec<Arc<StoredPart>>,
    pub(crate) chunker: Chunker,
    /// Its columns under their folded names: what queries see.
    pub schema: SchemaRef,
    /// The same columns under their declared names, then hidden ones: what the files hold.
    pub files_schema: SchemaRef,
    /// The column of `files_schema` by which rows are sorted within each sub-chunk, if it is one of 64-bit integers.
    pub sorted_by: Option<usize>,
    /// The column of texts whose numbers that column has, if it has such.
    pub sorted_by_texts: Option<usize>,
    /// How many rows a query sees.
    pub rows: u64,
}

impl StoredTable {
    /// The file of a chunk in one part, by the part's place in the list; none if it has no rows there.
    pub(crate) async fn open_part(
        &self,
        archive: &Archive,
        part: usize,
        chunk: ChunkId,
    ) -> Result<Vec<Arc<ChunkFile>>, EngineError> {
        let Some(part) = self.parts.get(part) else {
            return Ok(Vec::new());
        };
        Ok(part.open(archive, chunk).await?.into_iter().collect())
    }

    /// The files of a chunk, in the order of the parts; none if the table has no rows there.
    pub(crate) async fn open(
        &self,
        archive: &Archive,
        chunk: ChunkId,
    ) -> Result<Vec<Arc<ChunkFile>>, EngineError> {
        let mut files = Vec::with_capacity(1);
        for part in &self.parts {
            files.extend(part.open(archive, chunk).await?);
        }
        Ok(files)
    }

    /// What together has all rows whose own positions are in a search cover, in the order of the chunks.
    pub(crate) async fn near(
        &self,
        archive: &Archive,
        search_cover: &SearchCover,
    ) -> Result<Vec<ChunkSlice>, EngineError> {
        let mut slices: BTreeMap<ChunkId, SubChunkSet> = BTreeMap::new();
        let by_place = match self.kind {
            TableKind::Director => search_cover.sub_chunks(&self.chunker),
            // The rows of others may be anywhere: the bounds of their own positions tell.
            _ => None,
        };
        for part in &self.parts {
            let chunks = part.chunks(archive).await?;
            let anywhere = |chunk: &&Chunk| by_place.is_none() || chunk.strays > 0;
            for chunk in chunks.values().filter(anywhere) {
                let bounds = chunk.bounds.and_then(bounds_box);
                if bounds.is_none_or(|bounds| search_cover.may_hold(&bounds)) {
                    slices.insert(chunk.chunk, SubChunkSet::All);
                }
            }
            for (chunk, sub_chunks) in by_place.iter().flatten() {
                if chunks.contains_key(chunk) {
                    let slice = slices.entry(*chunk);
                    slice.or_insert_with(|| sub_chunks.clone());
                }
            }
        }
        let slice = |(chunk, sub_chunks)| ChunkSlice { chunk, sub_chunks };
        Ok(slices.into_iter().map(slice).collect())
    }
}

/// The columns of a table as queries see them: those of its files but for the hidden ones, names folded.
pub(crate) fn queried_schema(files: &Schema, kind: TableKind) -> SchemaRef {
    let hidden =
        |name: &str| kind == TableKind::Match && [LEFT_SUB_CHUNK, RIGHT_SUB_CHUNK].contains(&name);
    let fields: Vec<Field> = files
        .fields()
        .iter()
        .filter(|field| !hidden(field.name()))
        .map(|field| field.as_ref().clone().with_name(fold_name(field.name())))
        .collect();
    Arc::new(Schema::new(fields))
}

/// The columns of a table's files.
pub(crate) fn files_schema(spec: &TableSpec) -> SchemaRef {
    let declared = store::arrow_schema(&spec.columns);
    let mut fields: Vec<Field> = declared
        .fields()
        .iter()
        .map(|f| f.as_ref().clone())
        .collect();
    if spec.kind == TableKind::Match {
        fields.extend(
            [LEFT_SUB_CHUNK, RIGHT_SUB_CHUNK].map(|name| Field::new(name, DataType::Int32, false)),
        );
    }
    Arc::new(Schema::new(fields))
}

/// The column by which a table's rows are sorted within each sub-chunk, if it is one of 64-bit integers: a director's key, or that
/// of its director in a child.
pub(crate) fn sorted_by(spec: &TableSpec) -> Option<usize> {
    let key = match spec.kind {
        TableKind::Director => spec.key.as_ref()?,
        TableKind::Child => &spec.directors.first()?.key,
        TableKind::Match | TableKind::Replicated => return None,
    };
    let key = fold_name(key);
    let mut columns = spec.columns.iter();
    let at = columns.position(|column| fold_name(&column.name) == key)?;
    (spec.columns[at].ty == ColumnType::Int64).then_some(at)
}

/// The column of texts whose numbers are in another one, folded.
pub(crate) fn texts_of(spec: &TableSpec, key: &str) -> Option<String> {
    Some(fold_name(&spec.column(key)?.text_key_of()?))
}

/// The column of texts in whose numbers' order a table's rows are within each sub-chunk.
pub(crate) fn sorted_by_texts(spec: &TableSpec) -> Option<usize> {
    let key = &spec.columns[sorted_by(spec)?].name;
    let texts = texts_of(spec, key)?;
    let mut columns = spec.columns.iter();
    columns.position(|column| fold_name(&column.name) == texts && column.ty == ColumnType::Text)
}

/// What a table has in one chunk, in all its parts.
#[derive(Debug, Clone, Default)]
pub struct ChunkSummary {
    /// Its rows.
    pub rows: u64,
    /// Boxes that together hold all of the rows' own positions, one for each part; `None` for one of which nothing is known.
    bounds: Vec<Option<[f64; 4]>>,
    /// Of a director: the boxes of the parts that keep rows here whose positions lie elsewhere.
    strays: Vec<Option<[f64; 4]>>,
}

impl ChunkSummary {
    fn add(&mut self, chunk: &Chunk) {
        self.rows += chunk.rows;
        self.bounds.push(chunk.bounds);
        if chunk.strays > 0 {
            self.strays.push(chunk.bounds);
        }
    }
}

/// Whether positions in some of these boxes may lie in a region.
fn any_may_hold(boxes: &[Option<[f64; 4]>], region: &Region) -> bool {
    let may_hold = |bounds: &Option<[f64; 4]>| match bounds.and_then(bounds_box) {
        Some(bounds) => region.may_intersect(&bounds),
        None => true,
    };
    boxes.iter().any(may_hold)
}

/// A table as it is for the queries that are planned now.
#[derive(Debug)]
pub struct LoadedTable {
    /// What the catalog says.
    pub table: Table,
    /// Its files.
    pub stored: Arc<StoredTable>,
    /// Its chunks that have rows.
    pub chunks: BTreeMap<ChunkId, ChunkSummary>,
    has_strays: bool,
    indexes: OnceCell<Vec<IndexRun>>,
}

impl LoadedTable {
    pub(crate) async fn new(
        archive: &Archive,
        table: Table,
        stored: Arc<StoredTable>,
    ) -> Result<Self, EngineError> {
        let mut chunks: BTreeMap<ChunkId, ChunkSummary> = BTreeMap::new();
        for part in &stored.parts {
            for chunk in part.chunks(archive).await?.values() {
                chunks.entry(chunk.chunk).or_default().add(chunk);
            }
        }
        Ok(Self {
            has_strays: chunks.values().any(|chunk| !chunk.strays.is_empty()),
            table,
            stored,
            chunks,
            indexes: OnceCell::new(),
        })
    }

    /// What was declared of the table.
    pub fn spec(&self) -> &TableSpec {
        &self.table.spec
    }

    /// Its columns, and after them those that queries may name beside `*`.
    pub(crate) fn schema_with_hidden(&self) -> SchemaRef {
        if hidden_columns(self.spec()).is_empty() {
            return Arc::clone(&self.stored.schema);
        }
        let mut fields = self.stored.schema.fields().to_vec();
        fields.push(Arc::new(chunk_number_field()));
        Arc::new(Schema::new(fields))
    }

    /// How the database cuts the sky.
    pub fn chunker(&self) -> &Chunker {
        &self.stored.chunker
    }

    /// The columns that hold keys of directors, folded, each with the director and the placement of it by which this table was
    /// placed, if its rows still are where that says.
    pub(crate) fn director_keys(&self) -> Vec<(String, Option<DirectorId>)> {
        let spec = self.spec();
        match (spec.kind, &spec.key) {
            (TableKind::Director, Some(key)) => vec![(
                fold_name(key),
                Some(DirectorId::of(&spec.name, self.table.placement)),
            )],
            (TableKind::Child | TableKind::Match, _) => {
                let placed_by = |d: &DirectorRef| {
                    let placement = d.placement?;
                    Some(DirectorId::of(&d.table, placement))
                };
                (spec.directors.iter())
                    .map(|d| (fold_name(&d.key), placed_by(d)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// The column with a child's own keys, folded, and what stands for their places.
    pub(crate) fn own_key(&self) -> Option<(String, DirectorId)> {
        let spec = self.spec();
        let key = spec
            .key
            .as_ref()
            .filter(|_| spec.kind == TableKind::Child)?;
        let id = DirectorId::of(&spec.name, self.table.placement);
        Some((fold_name(key), id))
    }

    /// How the sky is cut into the chunks that the table has.
    pub(crate) fn cut(&self) -> Cut {
        let database = &self.table.database;
        Cut {
            stripes: database.stripes,
            sub_stripes: database.sub_stripes,
        }
    }

    /// The columns that say where a row is.
    pub(crate) fn roles(&self) -> Roles {
        let keys: Vec<String> = (self.director_keys().into_iter())
            .map(|(name, _)| name)
            .collect();
        Roles {
            position: self
                .spec()
                .position
                .as_ref()
                .map(|p| (fold_name(&p.ra), fold_name(&p.dec))),
            texts: (keys.iter())
                .map(|key| texts_of(self.spec(), key))
                .collect(),
            keys,
        }
    }

    /// Where the rows are that a restriction keeps, if the pieces of this table are cut by key number `home` (for a match
    /// table 0 is the left and 1 the right end; for others there is one).
    pub(crate) async fn coverage(
        &self,
        archive: &Archive,
        restriction: &Restriction,
        home: usize,
    ) -> Result<Coverage, EngineError> {
        if self.spec().kind == TableKind::Replicated {
            return Ok(Coverage::Everything);
        }
        match restriction {
            Restriction::None => Ok(Coverage::Everything),
            Restriction::Nothing => Ok(Coverage::nothing()),
            Restriction::Region(region) => Ok(self.region_coverage(region)),
            Restriction::Keys(key, keys) if *key == home => {
                self.key_coverage(archive, home, keys).await
            }
            Restriction::Keys(..) => Ok(Coverage::Everything),
            Restriction::All(parts) => {
                let mut coverage = Coverage::Everything;
                for part in parts {
                    coverage =
                        coverage.intersection(&Box::pin(self.coverage(archive, part, home)).await?);
                }
                Ok(coverage)
            }
            Restriction::Any(parts) => {
                let mut coverage = Coverage::nothing();
                for part in parts {
                    coverage = coverage.union(&Box::pin(self.coverage(archive, part, home)).await?);
                }
                Ok(coverage)
            }
        }
    }

    /// Where rows can be whose own positions are in a region.
    pub(crate) fn region_coverage(&self, region: &Region) -> Coverage {
        match self.spec().kind {
            TableKind::Director => {
                let within = self.chunker().sub_chunks_intersecting(region);
                let within = Coverage::of(
                    within
                        .into_iter()
                        .filter(|(chunk, _)| self.chunks.contains_key(chunk))
                        .map(|(chunk, set)| (chunk, set.into())),
                );
                if !self.has_strays {
                    return within;
                }
                within.union(&self.coverage_where(|chunk| any_may_hold(&chunk.strays, region)))
            }
            // A child may lie outside of its director's chunk: only the bounds of its chunks' own positions tell.
            TableKind::Child => self.coverage_where(|chunk| any_may_hold(&chunk.bounds, region)),
            _ => Coverage::Everything,
        }
    }

    /// The whole chunks that `keep` accepts.
    fn coverage_where(&self, keep: impl Fn(&ChunkSummary) -> bool) -> Coverage {
        let kept = self.chunks.iter().filter(|(_, chunk)| keep(chunk));
        Coverage::of(kept.map(|(chunk, _)| (*chunk, SubChunkSet::All)))
    }

    async fn key_coverage(
        &self,
        archive: &Archive,
        home: usize,
        keys: &[i64],
    ) -> Result<Coverage, EngineError> {
        match self.locate_keys(archive, home, keys).await? {
            Some(places) => {
                Ok(Coverage::of(places.into_iter().map(|place| {
                    (place.chunk, SubChunkSet::of([place.sub_chunk]))
                })))
            }
            None => Ok(Coverage::Everything),
        }
    }

    /// Where rows with these keys are; `None` if that cannot be told for all of them.
    pub(crate) async fn locate_keys(
        &self,
        archive: &Archive,
        home: usize,
        keys: &[i64],
    ) -> Result<Option<Vec<Location>>, EngineError> {
        let spec = self.spec();
        if spec.kind == TableKind::Director {
            let found = lookup(self.indexes(archive).await?, keys)?;
            return Ok(Some(locations(&found).flatten().collect()));
        }
        let Some(director) = spec.directors.get(home) else {
            return Ok(None);
        };
        let Some(mut found) = self.locate_by_director(archive, director, keys).await? else {
            return Ok(None);
        };
        if spec.kind == TableKind::Match {
            // A pair whose end is unknown to the director lives elsewhere.
            return Ok(found
                .iter()
                .all(Option::is_some)
                .then(|| found.into_iter().flatten().collect()));
        }
        let missing: Vec<i64> = keys
            .iter()
            .zip(&found)
            .filter(|(_, at)| at.is_none())
            .map(|(key, _)| *key)
            .collect();
        if !missing.is_empty() {
            found.extend(locations(&lookup(self.indexes(archive).await?, &missing)?));
        }
        Ok(Some(found.into_iter().flatten().collect()))
    }

    /// Where the rows of one key are and in which part, if all are in one.
    pub(crate) async fn locate_key(
        &self,
        archive: &Archive,
        key: i64,
    ) -> Result<Option<KeyPlaces>, EngineError> {
        if self.spec().kind != TableKind::Director {
            let places = self.locate_keys(archive, 0, &[key]).await?;
            return Ok(places.map(|places| KeyPlaces { places, part: None }));
        }
        let found = lookup(self.indexes(archive).await?, &[key])?;
        let found = found.into_iter().flatten().next();
        Ok(Some(KeyPlaces {
            places: found.map(|it| it.location).into_iter().collect(),
            part: found.map(|it| it.part),
        }))
    }

    /// Looks the keys up in the director by which this table was placed; `None` if that placement of it is gone.
    async fn locate_by_director(
        &self,
        archive: &Archive,
        director: &DirectorRef,
        keys: &[i64],
    ) -> Result<Option<Vec<Option<Location>>>, EngineError> {
        // Who may read a child may read it quickly, whether or not they may read the director.
        let table = archive
            .any_table(director.database(&self.spec().database), &director.table)
            .await?;
        match table {
            // A child has no index of its own keys, which pairs name.
            Some(table)
                if table.spec().kind == TableKind::Director
                    && Some(table.table.placement) == director.placement =>
            {
                let found = lookup(table.indexes(archive).await?, keys)?;
                Ok(Some(locations(&found).collect()))
            }
            _ => Ok(None),
        }
    }

    /// How many of its parts have rows in the pieces of a coverage.
    pub(crate) fn parts_in(&self, coverage: &Coverage) -> usize {
        let Coverage::Only(only) = coverage else {
            return self.stored.parts.len();
        };
        let has_rows = |part: &&Arc<StoredPart>| {
            let chunks = part.chunks.get();
            // Those that were not requested yet count as read.
            chunks.is_none_or(|chunks| only.keys().any(|chunk| chunks.contains_key(chunk)))
        };
        self.stored.parts.iter().filter(has_rows).count()
    }

    /// The runs of a director's index, one for each part, or of a child's orphans.
    async fn indexes(&self, archive: &Archive) -> Result<&[IndexRun], EngineError> {
        let open = || async {
            let mut runs = Vec::with_capacity(self.stored.parts.len());
            for (part, stored) in self.stored.parts.iter().enumerate() {
                let index = stored.index(archive, self.spec().kind).await?.cloned();
                runs.extend(index.map(|index| IndexRun { part, index }));
            }
            Ok::<_, EngineError>(runs)
        };
        Ok(self.indexes.get_or_try_init(open).await?)
    }
}

/// A director with one of its placements: tables placed by the same one have equal keys in the same piece. A child stands for a
/// director where pairs are of its rows, by its own keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DirectorId {
    /// The director's folded name.
    pub table: String,
    /// Its placement, which no other table has.
    pub placement: LoadId,
}

impl DirectorId {
    fn of(table: &str, placement: LoadId) -> Self {
        Self {
            table: fold_name(table),
            placement,
        }
    }
}

/// How the sky is cut. Chunks and sub-chunks of two tables are the same where their cuts are, whatever databases they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Stripes of chunks.
    pub stripes: u32,
    /// Sub-stripes of each.
    pub sub_stripes: u32,
}

/// The box of `[ra_min, dec_min, ra_max, dec_max]`; `None` if it is none, which restricts nothing.
pub(crate) fn bounds_box([ra_min, dec_min, ra_max, dec_max]: [f64; 4]) -> Option<LonLatBox> {
    LonLatBox::from_degrees(ra_min, dec_min, ra_max, dec_max).ok()
}
