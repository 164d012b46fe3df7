//! The directors that a child or match table hangs on, and the director's other children.

mod family;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{
    Catalog, Chunk, Column, Database, DirectorRef, OtherDatabase, Table, TableKind, fold_name,
};
use sky::ChunkId;
use store::{DirectorIndex, LoadDir};
use tokio::runtime::Handle;

pub(crate) use self::family::{Family, unknown_ends_of};
use crate::error::{IngestError, nearest};
use crate::key_map::KeyMap;
use crate::memory::MemoryBudget;
use crate::place::PlaceContext;
use crate::place::child::Parent;
use crate::place::director::EarlierKeys;
use crate::place::end_rows::{ChunkFiles, EndRows, PartFiles};
use crate::place::matches::{EndExtent, MatchEnd};
use crate::plan::Roles;
use crate::report::Partitioning;
use crate::request::LoadRequest;

/// One director, or the child of one whose rows pairs are of, kept from being removed while it is used.
#[derive(Debug)]
struct Director {
    table: Table,
    /// Its parts. Where `files` has its chunk files, a directory for each run of the keys by which rows are placed.
    dirs: Vec<LoadDir>,
    /// The chunks of all parts, each with the number of its part.
    chunks: Vec<(usize, Chunk)>,
    /// Its database, if that is another than that of the table which is loaded.
    elsewhere: Option<OtherDatabase>,
    /// Of a child: whether rows with one own key were found in several places.
    scattered_keys: bool,
    /// Who has its chunk files, if they are in another data directory.
    files: Option<Arc<dyn PartFiles>>,
}

/// A table of whose rows pairs are, where its files are in another data directory.
pub(crate) struct RemoteEnd {
    pub table: Table,
    /// The runs of its keys; of a child, of its own keys. None where the other end is the same table, which has them.
    pub runs: Vec<LoadDir>,
    /// Of a child: whether rows with one own key are in several places.
    pub scattered_keys: bool,
}

/// The directors of a table: none, one (child) or two (match, whose ends may be children, too). Of a director that gets one more part: what it has already.
#[derive(Debug)]
pub(crate) struct Directors {
    directors: Vec<Director>,
    earlier: Option<Earlier>,
}

/// The indexes of what a director and its children have when a part is appended to it.
#[derive(Debug)]
struct Earlier {
    /// Keeps the director's parts in being.
    dirs: Vec<LoadDir>,
    /// What earlier shares of the same load have.
    of_load: Vec<LoadDir>,
    orphans: Vec<PathBuf>,
}

impl Directors {
    /// Finds the directors that the request names.
    pub(crate) async fn find(
        catalog: &Catalog,
        request: &LoadRequest,
        kind: TableKind,
    ) -> Result<Self, IngestError> {
        let mut directors = Vec::new();
        if matches!(kind, TableKind::Child | TableKind::Match) {
            for name in &request.directors {
                directors.push(Director::find(catalog, request, kind, name).await?);
            }
        }
        Ok(Self {
            directors,
            earlier: None,
        })
    }

    /// Of a table that hangs on nothing.
    pub(crate) fn none() -> Self {
        Self {
            directors: Vec::new(),
            earlier: None,
        }
    }

    /// A director with a part that is not published yet: all its directories, and the chunks of each.
    pub(crate) fn of_parts(table: Table, dirs: Vec<LoadDir>, chunks: Vec<(usize, Chunk)>) -> Self {
        let director = Director {
            table,
            dirs,
            chunks,
            elsewhere: None,
            scattered_keys: false,
            files: None,
        };
        Self {
            directors: vec![director],
            earlier: None,
        }
    }

    /// The ends of a match table whose files are in another data directory.
    pub(crate) fn of_remote_ends(
        ends: Vec<RemoteEnd>,
        files: &Arc<dyn PartFiles>,
    ) -> Result<Self, IngestError> {
        let mut directors = Vec::with_capacity(ends.len());
        for end in ends {
            let mut chunks = Vec::new();
            for (number, part) in end.table.parts.iter().enumerate() {
                let of_part = files.chunks(part.load)?.into_iter();
                chunks.extend(of_part.map(|chunk| (number, chunk)));
            }
            directors.push(Director {
                table: end.table,
                dirs: end.runs,
                chunks,
                elsewhere: None,
                scattered_keys: end.scattered_keys,
                files: Some(Arc::clone(files)),
            });
        }
        Ok(Self {
            directors,
            earlier: None,
        })
    }

    /// Directors that are not published yet: each as it will be, with its directory and its chunks.
    pub(crate) fn of(directors: Vec<(Table, LoadDir, Vec<Chunk>)>) -> Self {
        let director = |(table, dir, chunks): (Table, LoadDir, Vec<Chunk>)| Director {
            table,
            dirs: vec![dir],
            chunks: chunks.into_iter().map(|chunk| (0, chunk)).collect(),
            elsewhere: None,
            scattered_keys: false,
            files: None,
        };
        Self {
            directors: directors.into_iter().map(director).collect(),
            earlier: None,
        }
    }

    /// What a director and its children have, to which a part is appended.
    pub(crate) fn of_appended(dirs: Vec<LoadDir>, family: &Family) -> Self {
        Self::of_share(dirs, Vec::new(), family)
    }

    /// The same for a share of a load, with the keys that earlier shares have.
    pub(crate) fn of_share(dirs: Vec<LoadDir>, of_load: Vec<LoadDir>, family: &Family) -> Self {
        Self {
            directors: Vec::new(),
            earlier: Some(Earlier {
                dirs,
                of_load,
                orphans: family.indexes(),
            }),
        }
    }

    /// The keys that a director and its children have already; `None` for a director that is loaded whole.
    pub(crate) fn earlier_keys(&self, memory: u64) -> Result<Option<EarlierKeys>, IngestError> {
        let Some(earlier) = &self.earlier else {
            return Ok(None);
        };
        let indexes = |dirs: &[LoadDir]| dirs.iter().map(LoadDir::index_dir).collect::<Vec<_>>();
        let of_load = indexes(&earlier.of_load);
        Ok(Some(EarlierKeys {
            own: KeyMap::open(&indexes(&earlier.dirs), memory)?,
            of_load: KeyMap::open(&of_load, memory / 4)?,
            before: HashSet::new(),
            orphans: KeyMap::open(&earlier.orphans, memory / 4)?,
        }))
    }

    /// The table and placement of each.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.directors.iter().map(|director| &director.table)
    }

    /// The directories of the runs of the keys of each.
    pub(crate) fn runs(&self) -> Vec<Vec<PathBuf>> {
        self.directors.iter().map(Director::indexes).collect()
    }

    /// The same for the ends of a match table: of a child they are of its own keys, and written below `dir` by what its files hold. Blocks its
    /// thread. The second end has none where it is the same table as the first.
    pub(crate) fn end_runs(
        &mut self,
        budget: &Arc<MemoryBudget>,
        dir: &Path,
    ) -> Result<Vec<Vec<PathBuf>>, IngestError> {
        let mut runs = Vec::with_capacity(self.directors.len());
        for number in 0..self.directors.len() {
            let (before, rest) = self.directors.split_at_mut(number);
            let Some(director) = rest.first_mut() else {
                break;
            };
            if let Some(same) = before.iter().find(|it| it.is_same_as(director)) {
                director.scattered_keys = same.scattered_keys;
                runs.push(Vec::new());
                continue;
            }
            runs.push(match director.table.spec.kind {
                TableKind::Child => vec![director.write_own_keys(budget, dir)?],
                _ => director.indexes(),
            });
        }
        Ok(runs)
    }

    /// The smallest chunk of each.
    pub(crate) fn smallest_chunks(&self) -> Vec<Option<ChunkId>> {
        let directors = self.directors.iter();
        directors.map(Director::smallest_chunk).collect()
    }

    /// How the catalog remembers them.
    pub(crate) fn references(&self, columns: &[Column], roles: &Roles) -> Vec<DirectorRef> {
        let keys = match roles {
            Roles::Child(child) => vec![child.key],
            Roles::Match { keys } => keys.to_vec(),
            Roles::Director { .. } | Roles::Replicated => Vec::new(),
        };
        let reference = |(director, key): (&Director, usize)| DirectorRef {
            table: director.table.spec.name.clone(),
            elsewhere: director.elsewhere.clone(),
            key: columns[key].name.clone(),
            placement: Some(director.table.placement),
        };
        self.directors.iter().zip(keys).map(reference).collect()
    }

    /// How the sky is cut by the director in another database.
    pub(crate) fn cut_elsewhere(&self) -> Option<Partitioning> {
        let director = self.directors.first()?;
        let database = &director.table.database;
        { director.elsewhere.is_some() }.then(|| Partitioning::of(database))
    }

    /// What a child needs to know of its director.
    pub(crate) fn parent(&mut self, memory: u64) -> Result<Parent, IngestError> {
        let Some(director) = self.directors.first() else {
            return Err(IngestError::Options(
                "a child needs --director TABLE".to_owned(),
            ));
        };
        Ok(Parent {
            director: KeyMap::open(&director.indexes(), memory)?,
            smallest_chunk: director.smallest_chunk(),
        })
    }

    /// What a match table needs to know of its two ends, whose keys are in these columns. Reads the files of a child for its own keys.
    pub(crate) fn ends(
        &mut self,
        keys: [usize; 2],
        context: &PlaceContext,
        memory: u64,
    ) -> Result<[MatchEnd; 2], IngestError> {
        let [left, right] = self.directors.as_mut_slice() else {
            return Err(IngestError::Options(
                "a match table needs --director LEFT,RIGHT".to_owned(),
            ));
        };
        let left_end = left.end(keys[0], context, memory / 2)?;
        let right_end = if left.is_same_as(right) {
            right.scattered_keys = left.scattered_keys;
            MatchEnd {
                key: keys[1],
                keys: Arc::clone(&left_end.keys),
                smallest_chunk: left_end.smallest_chunk,
                extent: left_end.extent.clone(),
                rows: left_end.rows.clone(),
            }
        } else {
            right.end(keys[1], context, memory / 2)?
        };
        Ok([left_end, right_end])
    }

    /// For each director whether the places of its keys may be others than those by which it is joined: of a child that has
    /// one key in several places.
    pub(crate) fn scattered_keys(&self) -> Vec<bool> {
        let directors = self.directors.iter();
        directors.map(|director| director.scattered_keys).collect()
    }

    /// For each director whether it is a child, of whose own keys pairs are.
    pub(crate) fn are_children(&self) -> Vec<bool> {
        let directors = self.directors.iter();
        let is_child = |director: &Director| director.table.spec.kind == TableKind::Child;
        directors.map(is_child).collect()
    }

    /// Says so if a director was replaced while it was used.
    pub(crate) async fn notes(&self, catalog: &Catalog) -> Result<Vec<String>, IngestError> {
        let mut notes = Vec::new();
        for Director { table, .. } in &self.directors {
            let now = catalog
                .table(&table.database.name, &table.spec.name)
                .await?;
            if now.is_none_or(|now| now.placement != table.placement) {
                notes.push(format!(
                    "{} was replaced meanwhile: answers stay right, but joins with it are slower until this table is loaded again",
                    table.spec.name
                ));
            }
        }
        Ok(notes)
    }
}

impl Director {
    /// The runs of its index.
    fn indexes(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(LoadDir::index_dir).collect()
    }

    fn smallest_chunk(&self) -> Option<ChunkId> {
        self.chunks.iter().map(|(_, chunk)| chunk.chunk).min()
    }

    /// Whether both are the same parts of one table.
    fn is_same_as(&self, other: &Self) -> bool {
        self.table.part_numbers() == other.table.part_numbers()
    }

    /// Its rows; `None` if it has no key.
    fn rows(&self, runtime: Handle) -> Option<EndRows> {
        let files = match &self.files {
            Some(files) => ChunkFiles::Elsewhere(files),
            None => ChunkFiles::Here(&self.dirs),
        };
        EndRows::new(&self.table, &self.chunks, &files, runtime)
    }

    /// Writes the run of a child's own keys. Gives its directory.
    fn write_own_keys(
        &mut self,
        budget: &Arc<MemoryBudget>,
        dir: &Path,
    ) -> Result<PathBuf, IngestError> {
        let runtime = Handle::try_current().map_err(|_| IngestError::Internal)?;
        let rows = self.rows(runtime).ok_or(IngestError::Internal)?;
        let (run, in_one_place) = rows.write_places(budget, dir)?;
        self.scattered_keys = !in_one_place;
        Ok(run)
    }

    /// What a match table needs to know of it.
    fn end(
        &mut self,
        key: usize,
        context: &PlaceContext,
        memory: u64,
    ) -> Result<MatchEnd, IngestError> {
        let runtime = Handle::try_current().map_err(|_| IngestError::Internal)?;
        let rows = self.rows(runtime).map(Arc::new);
        let (keys, extent) = match (self.table.spec.kind, &rows) {
            (TableKind::Child, Some(rows)) if self.files.is_none() => {
                let (keys, in_one_place) = rows.places(context, memory)?;
                self.scattered_keys = !in_one_place;
                (keys, EndExtent::Unknown)
            }
            (TableKind::Child, Some(_)) => {
                (KeyMap::open(&self.indexes(), memory)?, EndExtent::Unknown)
            }
            _ => {
                let strays = self.chunks.iter().filter(|(_, chunk)| chunk.strays > 0);
                let strays = strays.map(|(_, chunk)| chunk.chunk).collect();
                let keys = KeyMap::open(&self.indexes(), memory)?;
                (keys, EndExtent::SubChunk(Arc::new(strays)))
            }
        };
        Ok(MatchEnd {
            key,
            keys: Arc::new(keys),
            smallest_chunk: self.smallest_chunk(),
            extent,
            rows,
        })
    }

    /// The director whose lock guards the places of its keys.
    fn family_name(&self) -> &String {
        let spec = &self.table.spec;
        let own_director = spec.directors.first().map(|director| &director.table);
        own_director.unwrap_or(&spec.name)
    }

    async fn find(
        catalog: &Catalog,
        request: &LoadRequest,
        kind: TableKind,
        name: &str,
    ) -> Result<Self, IngestError> {
        let database = request.director_database();
        // The load may be replaced and removed between the look into the catalog and the opening of its directory.
        for _ in 0..5 {
            let Some(table) = catalog.table(database, name).await? else {
                return Err(no_such_director(catalog, database, name).await?);
            };
            check_kind(&table, kind)?;
            match open_parts(request, &table) {
                Ok(dirs) => {
                    let mut chunks = Vec::new();
                    for (number, part) in table.parts.iter().enumerate() {
                        let of_part = catalog.chunks(part.load).await?.into_iter();
                        chunks.extend(of_part.map(|chunk| (number, chunk)));
                    }
                    return Ok(Self {
                        elsewhere: elsewhere(request, &table),
                        table,
                        dirs,
                        chunks,
                        scattered_keys: false,
                        files: None,
                    });
                }
                Err(store::StoreError::Missing { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        Err(IngestError::Options(format!(
            "the director {database}.{name} is being replaced again and again: load this table afterwards"
        )))
    }
}

/// The database of a director, if it is not that of the table which is loaded.
fn elsewhere(request: &LoadRequest, director: &Table) -> Option<OtherDatabase> {
    let Database {
        name,
        stripes,
        sub_stripes,
        ..
    } = &director.database;
    (fold_name(name) != fold_name(&request.database)).then(|| OtherDatabase {
        name: name.clone(),
        stripes: *stripes,
        sub_stripes: *sub_stripes,
    })
}

/// Sees that a table can place the rows of a child, or the pairs of a match table.
fn check_kind(table: &Table, placed: TableKind) -> Result<(), IngestError> {
    let spec = &table.spec;
    let name = format!("{}.{}", spec.database, spec.name);
    let sentence = match (spec.kind, placed, &spec.key) {
        (TableKind::Director, ..) | (TableKind::Child, TableKind::Match, Some(_)) => return Ok(()),
        (TableKind::Child, TableKind::Match, None) => format!(
            "{name} has no key of its own, by which pairs could name its rows: load it again with --own-key"
        ),
        (kind, TableKind::Match, _) => format!(
            "{name} is a {kind} table: --director of a match table must name directors, or children of them"
        ),
        (kind, ..) => format!("{name} is a {kind} table: --director must name a director"),
    };
    Err(IngestError::Options(sentence))
}

/// The directories of all parts of a table, which keeps them from being removed.
pub(crate) fn open_parts(
    request: &LoadRequest,
    table: &Table,
) -> Result<Vec<LoadDir>, store::StoreError> {
    let spec = &table.spec;
    let open = |part: &catalog::Part| {
        LoadDir::open(&request.data_dir, &spec.database, &spec.name, part.load)
    };
    table.parts.iter().map(open).collect()
}

/// The largest key in the indexes of parts of a director.
pub(crate) fn largest_key(dirs: &[LoadDir]) -> Result<Option<i64>, IngestError> {
    let mut largest = None;
    for dir in dirs {
        largest = largest.max(DirectorIndex::open(&dir.index_dir())?.largest_key()?);
    }
    Ok(largest)
}

async fn no_such_director(
    catalog: &Catalog,
    database: &str,
    name: &str,
) -> Result<IngestError, IngestError> {
    let tables = catalog.tables(database).await?;
    let directors = tables.iter().filter(|t| t.spec.kind == TableKind::Director);
    let near = nearest(name, directors.map(|t| t.spec.name.as_str()));
    let hint = near.map_or(String::new(), |near| format!(" (did you mean {near:?}?)"));
    Ok(IngestError::Options(format!(
        "there is no director {name:?} in the database {database:?}{hint}: load the director before its children"
    )))
}
