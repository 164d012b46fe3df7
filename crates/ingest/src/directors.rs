//! The directors that a child or match table hangs on, and the director's other children.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, CatalogError, Column, DirectorRef, LoadLock, Table, TableKind};
use sky::ChunkId;
use store::LoadDir;

use crate::error::{IngestError, nearest};
use crate::key_map::KeyMap;
use crate::place::child::Parent;
use crate::place::matches::MatchEnd;
use crate::plan::Roles;
use crate::request::LoadRequest;

/// How often a load looks whether another child of its director has finished.
const FAMILY_WAIT: Duration = Duration::from_millis(100);

/// One director, kept from being removed while it is used.
#[derive(Debug)]
struct Director {
    table: Table,
    dir: LoadDir,
    smallest_chunk: Option<ChunkId>,
}

/// The directors of a table: none, one (child) or two (match).
#[derive(Debug)]
pub(crate) struct Directors {
    directors: Vec<Director>,
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
                directors.push(Director::find(catalog, request, name).await?);
            }
        }
        Ok(Self { directors })
    }

    /// Directors that are not published yet: each as it will be, with its directory and its smallest chunk.
    pub(crate) fn of(directors: Vec<(Table, LoadDir, Option<ChunkId>)>) -> Self {
        let director = |(table, dir, smallest_chunk)| Director {
            table,
            dir,
            smallest_chunk,
        };
        Self {
            directors: directors.into_iter().map(director).collect(),
        }
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
            key: columns[key].name.clone(),
            load: director.table.load,
        };
        self.directors.iter().zip(keys).map(reference).collect()
    }

    /// What a child needs to know of its director.
    pub(crate) fn parent(&mut self, memory: u64) -> Result<Parent, IngestError> {
        let Some(director) = self.directors.first() else {
            return Err(IngestError::Options(
                "a child needs --director TABLE".to_owned(),
            ));
        };
        Ok(Parent {
            director: KeyMap::open(&director.dir.index_dir(), memory)?,
            smallest_chunk: director.smallest_chunk,
        })
    }

    /// What a match table needs to know of its two directors, whose keys are in these columns.
    pub(crate) fn ends(
        &mut self,
        keys: [usize; 2],
        memory: u64,
    ) -> Result<[MatchEnd; 2], IngestError> {
        let [left, right] = self.directors.as_slice() else {
            return Err(IngestError::Options(
                "a match table needs --director LEFT,RIGHT".to_owned(),
            ));
        };
        let left_keys = Arc::new(KeyMap::open(&left.dir.index_dir(), memory / 2)?);
        let right_keys = if left.table.load == right.table.load {
            left_keys.clone()
        } else {
            Arc::new(KeyMap::open(&right.dir.index_dir(), memory / 2)?)
        };
        let end = |key, keys, director: &Director| MatchEnd {
            key,
            director: keys,
            smallest_chunk: director.smallest_chunk,
        };
        Ok([
            end(keys[0], left_keys, left),
            end(keys[1], right_keys, right),
        ])
    }

    /// Says so if a director was replaced while it was used.
    pub(crate) async fn notes(&self, catalog: &Catalog) -> Result<Vec<String>, IngestError> {
        let mut notes = Vec::new();
        for Director { table, .. } in &self.directors {
            let now = catalog
                .table(&table.database.name, &table.spec.name)
                .await?;
            if now.is_none_or(|now| now.load != table.load) {
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
    async fn find(
        catalog: &Catalog,
        request: &LoadRequest,
        name: &str,
    ) -> Result<Self, IngestError> {
        let database = &request.database;
        // The load may be replaced and removed between the look into the catalog and the opening of its directory.
        for _ in 0..5 {
            let Some(table) = catalog.table(database, name).await? else {
                return Err(no_such_director(catalog, database, name).await?);
            };
            if table.spec.kind != TableKind::Director {
                let kind = table.spec.kind;
                return Err(IngestError::Options(format!(
                    "{database}.{} is a {kind} table: --director must name a director",
                    table.spec.name
                )));
            }
            match LoadDir::open(&request.data_dir, database, name, table.load) {
                Ok(dir) => {
                    let smallest_chunk = catalog
                        .chunks(table.load)
                        .await?
                        .first()
                        .map(|chunk| chunk.chunk);
                    return Ok(Self {
                        table,
                        dir,
                        smallest_chunk,
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

/// The other children of a child's director, kept from being removed, and the lock that keeps two children of one
/// director from placing the same orphan key in two places.
#[derive(Debug, Default)]
pub(crate) struct Family {
    _lock: Option<LoadLock>,
    siblings: Vec<LoadDir>,
}

impl Family {
    /// Waits until no other child of the director is between placing its orphans and its publication.
    pub(crate) async fn gather(
        catalog: &Catalog,
        request: &LoadRequest,
        directors: &Directors,
    ) -> Result<Self, IngestError> {
        let [director] = directors.directors.as_slice() else {
            return Ok(Self::default());
        };
        let database = &request.database;
        let lock = loop {
            let name = format!("{} orphans", director.table.spec.name);
            match LoadLock::acquire(
                &request.data_dir,
                database,
                &name,
                &format!("loading {}", request.table),
            ) {
                Ok(lock) => break lock,
                Err(CatalogError::Locked { .. }) => tokio::time::sleep(FAMILY_WAIT).await,
                Err(error) => return Err(error.into()),
            }
        };
        let mut siblings = Vec::new();
        for table in catalog.tables(database).await? {
            let reference = table.spec.directors.first();
            let same_director = reference.is_some_and(|r| r.load == director.table.load);
            let ourselves = table.spec.name.eq_ignore_ascii_case(&request.table);
            if table.spec.kind == TableKind::Child && same_director && !ourselves {
                siblings.push(LoadDir::open(
                    &request.data_dir,
                    database,
                    &table.spec.name,
                    table.load,
                )?);
            }
        }
        Ok(Self {
            _lock: Some(lock),
            siblings,
        })
    }

    /// Siblings of which the caller knows that no other is being loaded.
    pub(crate) fn of(siblings: Vec<LoadDir>) -> Self {
        Self {
            _lock: None,
            siblings,
        }
    }

    /// The indexes of the siblings' orphans.
    pub(crate) fn orphan_indexes(&self) -> Vec<PathBuf> {
        self.siblings.iter().map(LoadDir::index_dir).collect()
    }
}
