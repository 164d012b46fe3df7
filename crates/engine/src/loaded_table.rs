//! A table at one of its loads: what the catalog says of it, its files, and where its keys are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use catalog::{Chunk, ColumnType, DirectorRef, LoadId, Table, TableKind, TableSpec, fold_name};
use sky::{ChunkId, Chunker, Location, LonLatBox, Region};
use store::{ChunkFile, DirectorIndex, LoadDir, StoreError};
use tokio::sync::OnceCell;

use crate::coverage::{Coverage, SubChunkSet};
use crate::piece::Piece;
use crate::restriction::{Restriction, Roles};
use crate::vicinity::Vicinity;
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

/// The files of one load of a table: all that is needed to read rows. Keeps them in being while somebody holds it.
#[derive(Debug)]
pub struct StoredTable {
    /// The database's declared name.
    pub database: String,
    /// The table's declared name.
    pub name: String,
    /// Its kind.
    pub kind: TableKind,
    /// The load.
    pub load: LoadId,
    pub(crate) chunker: Chunker,
    /// Its columns under their folded names: what queries see.
    pub schema: SchemaRef,
    /// The same columns under their declared names, then hidden ones: what the files hold.
    pub files_schema: SchemaRef,
    /// The column of `files_schema` by which rows are sorted within each sub-chunk, if it is one of 64-bit integers.
    pub sorted_by: Option<usize>,
    /// How many rows a query sees.
    pub rows: u64,
    pub(crate) dir: LoadDir,
    pub(crate) chunks: OnceCell<HashMap<ChunkId, Chunk>>,
}

impl StoredTable {
    /// What the catalog says of a chunk; `None` if the table has no rows there.
    pub(crate) async fn chunk(
        &self,
        archive: &Archive,
        chunk: ChunkId,
    ) -> Result<Option<&Chunk>, EngineError> {
        Ok(self.chunks(archive).await?.get(&chunk))
    }

    /// The file of a chunk, which is the one that was published; `None` if the table has no rows there.
    pub(crate) async fn open(
        &self,
        archive: &Archive,
        chunk: ChunkId,
    ) -> Result<Option<Arc<ChunkFile>>, EngineError> {
        let Some(known) = self.chunk(archive, chunk).await? else {
            return Ok(None);
        };
        let path = self.dir.chunk_path(known.file);
        let file = archive.files().get(&path, chunk).await?;
        if file.checksum() != known.checksum {
            return Err(StoreError::Damaged {
                path,
                what: "it is not the file that was published".to_owned(),
            }
            .into());
        }
        Ok(Some(file))
    }

    async fn chunks(&self, archive: &Archive) -> Result<&HashMap<ChunkId, Chunk>, EngineError> {
        self.chunks
            .get_or_try_init(|| async {
                let chunks = archive.catalog().chunks(self.load).await?;
                Ok(chunks.into_iter().map(|c| (c.chunk, c)).collect())
            })
            .await
    }

    /// Pieces that together have all rows whose own positions are in a vicinity, in the order of their chunks.
    pub(crate) async fn near(
        &self,
        archive: &Archive,
        vicinity: &Vicinity,
    ) -> Result<Vec<Piece>, EngineError> {
        let chunks = self.chunks(archive).await?;
        let near = match self.kind {
            TableKind::Director => vicinity.sub_chunks(&self.chunker),
            // The rows of others may be anywhere: the bounds of their own positions tell.
            _ => None,
        };
        let mut pieces: Vec<Piece> = match near {
            Some(near) => near
                .into_iter()
                .filter(|(chunk, _)| chunks.contains_key(chunk))
                .map(|(chunk, sub_chunks)| Piece { chunk, sub_chunks })
                .collect(),
            None => chunks
                .values()
                .filter(|chunk| {
                    let bounds = chunk.bounds.and_then(bounds_box);
                    bounds.is_none_or(|bounds| vicinity.may_hold(&bounds))
                })
                .map(|chunk| Piece::whole(chunk.chunk))
                .collect(),
        };
        pieces.sort_unstable_by_key(|piece| piece.chunk);
        Ok(pieces)
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

/// A table as it is for the queries that are planned now.
#[derive(Debug)]
pub struct LoadedTable {
    /// What the catalog says.
    pub table: Table,
    /// Its files.
    pub stored: Arc<StoredTable>,
    /// Its chunks that have rows.
    pub chunks: BTreeMap<ChunkId, Chunk>,
    index: OnceCell<Option<DirectorIndex>>,
}

impl LoadedTable {
    pub(crate) fn new(
        table: Table,
        stored: Arc<StoredTable>,
        chunks: Vec<Chunk>,
    ) -> Result<Self, EngineError> {
        let chunks: BTreeMap<ChunkId, Chunk> = chunks.into_iter().map(|c| (c.chunk, c)).collect();
        // A fresh cell: nobody else has initialised it.
        let _ = stored
            .chunks
            .set(chunks.iter().map(|(id, c)| (*id, c.clone())).collect());
        Ok(Self {
            table,
            stored,
            chunks,
            index: OnceCell::new(),
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

    /// The columns that hold keys of directors, folded, each with the director and the load by which this table was placed.
    pub(crate) fn director_keys(&self) -> Vec<(String, DirectorId)> {
        let spec = self.spec();
        match (spec.kind, &spec.key) {
            (TableKind::Director, Some(key)) => vec![(
                fold_name(key),
                self.director_id(&spec.name, self.table.load),
            )],
            (TableKind::Child | TableKind::Match, _) => spec
                .directors
                .iter()
                .map(|d| (fold_name(&d.key), self.director_id(&d.table, d.load)))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn director_id(&self, table: &str, load: LoadId) -> DirectorId {
        DirectorId {
            database: self.table.database.id,
            table: fold_name(table),
            load,
        }
    }

    /// The columns that say where a row is.
    pub(crate) fn roles(&self) -> Roles {
        Roles {
            position: self
                .spec()
                .position
                .as_ref()
                .map(|p| (fold_name(&p.ra), fold_name(&p.dec))),
            keys: self
                .director_keys()
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
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
                let parts = self.chunker().sub_chunks_intersecting(region);
                Coverage::of(
                    parts
                        .into_iter()
                        .filter(|(chunk, _)| self.chunks.contains_key(chunk))
                        .map(|(chunk, set)| (chunk, set.into())),
                )
            }
            // A child may lie outside of its director's chunk: only the bounds of its chunks' own positions tell.
            TableKind::Child => {
                let may_hold = |chunk: &&Chunk| match chunk.bounds.and_then(bounds_box) {
                    Some(bounds) => region.may_intersect(&bounds),
                    None => true,
                };
                Coverage::of(
                    self.chunks
                        .values()
                        .filter(may_hold)
                        .map(|chunk| (chunk.chunk, SubChunkSet::All)),
                )
            }
            _ => Coverage::Everything,
        }
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
            let found = lookup(self.index(archive).await?, keys)?;
            return Ok(Some(found.into_iter().flatten().collect()));
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
            found.extend(lookup(self.index(archive).await?, &missing)?);
        }
        Ok(Some(found.into_iter().flatten().collect()))
    }

    /// Looks the keys up in the director by which this table was placed; `None` if that load of it is gone.
    async fn locate_by_director(
        &self,
        archive: &Archive,
        director: &DirectorRef,
        keys: &[i64],
    ) -> Result<Option<Vec<Option<Location>>>, EngineError> {
        let table = archive
            .table(&self.table.database.name, &director.table)
            .await?;
        match table {
            Some(table) if table.table.load == director.load => {
                Ok(Some(lookup(table.index(archive).await?, keys)?))
            }
            _ => Ok(None),
        }
    }

    /// A director's index, or a child's run of orphans; `None` where there is none.
    async fn index(&self, archive: &Archive) -> Result<Option<&DirectorIndex>, EngineError> {
        let index = self
            .index
            .get_or_try_init(|| async {
                let dir = self.stored.dir.index_dir();
                if self.spec().kind == TableKind::Child && !dir.exists() {
                    return Ok(None);
                }
                let opened = match archive.files().decoded() {
                    Some(decoded) => DirectorIndex::open_keeping(&dir, Arc::clone(decoded)),
                    None => DirectorIndex::open(&dir),
                };
                opened.map(Some)
            })
            .await
            .map_err(|error: StoreError| error)?;
        Ok(index.as_ref())
    }
}

/// A director at one of its loads: tables placed by the same one have equal keys in the same piece.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DirectorId {
    /// The database's number.
    pub database: i64,
    /// The director's folded name.
    pub table: String,
    /// Its load.
    pub load: LoadId,
}

fn lookup(
    index: Option<&DirectorIndex>,
    keys: &[i64],
) -> Result<Vec<Option<Location>>, EngineError> {
    match index {
        Some(index) => Ok(index
            .lookup(keys)?
            .into_iter()
            .map(|entry| entry.map(|e| e.location))
            .collect()),
        None => Ok(vec![None; keys.len()]),
    }
}

/// The box of `[ra_min, dec_min, ra_max, dec_max]`; `None` if it is none, which restricts nothing.
pub(crate) fn bounds_box([ra_min, dec_min, ra_max, dec_max]: [f64; 4]) -> Option<LonLatBox> {
    LonLatBox::from_degrees(ra_min, dec_min, ra_max, dec_max).ok()
}
