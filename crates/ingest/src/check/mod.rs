//! `meridian check`: whether what is on disk is what the catalog says, down to every row's place.
//!
//! Of every chunk and overlap file: its blocks' checksums, its directory, its counts against the catalog's, and its
//! rows: sorted, and in the right chunk and sub-chunk by their own position (director), by the index (child, match).
//! Of every index: its pages, and that it agrees with the files. Of every manifest: that it says the same. Problems are collected, not stopped at.

mod file;
mod rows;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Catalog, Chunk, LoadId, Part, Table, TableKind};
use futures::StreamExt;
use sky::{Angle, ChunkId, Chunker};
use store::{DirectorIndex, LoadDir, MANIFEST_FILE, PartChunk, PartManifest, StoreError};

use self::file::FileCheck;
use self::rows::RowRules;
use crate::error::IngestError;
use crate::place::matches::HOME_COLUMNS;

/// What is wrong with a table, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file that is wrong, if it is one.
    pub file: Option<PathBuf>,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            // Errors of the store name the file themselves.
            Some(file) if !self.what.contains(&*file.to_string_lossy()) => {
                write!(f, "{}: {}", file.display(), self.what)
            }
            _ => f.write_str(&self.what),
        }
    }
}

/// What was found of one table.
#[derive(Debug, Clone)]
pub struct TableCheck {
    /// The database's name.
    pub database: String,
    /// The table's name.
    pub table: String,
    /// Files that were read.
    pub files: u64,
    /// Files that are at workers of a cluster alone, which were not read.
    pub at_workers: u64,
    /// Files that are in the object store that is their home, and not here: those that were not read.
    pub left_at_home: u64,
    /// Rows of the table that were read.
    pub rows: u64,
    /// Rows that were read and are copies of these: those of overlaps, and of a match table the pairs that are in a second chunk.
    pub copies: u64,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<Problem>,
}

/// What was found of the catalog.
#[derive(Debug, Clone, Default)]
pub struct CatalogCheck {
    /// The older version from which it was brought up to date just now: its checksums say nothing about what happened to it
    /// before.
    pub upgraded_from: Option<i64>,
    /// What is wrong, as sentences; empty if nothing is.
    pub problems: Vec<String>,
}

/// Checks the catalog of a data directory: its file, and that all it says fits its checksums. While it does not, nothing can
/// be said about the tables.
///
/// # Errors
/// Only if the catalog cannot be read at all.
pub async fn check_catalog(data_dir: &Path) -> Result<CatalogCheck, IngestError> {
    let catalog = Catalog::open(data_dir).await?;
    let problems = catalog.verify().await;
    let upgraded_from = catalog.upgraded_from();
    catalog.close().await;
    Ok(CatalogCheck {
        upgraded_from,
        problems: problems?,
    })
}

/// Which tables are checked, and which of their files.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckScope<'a> {
    /// Only tables of this database.
    pub database: Option<&'a str>,
    /// Only tables of this name.
    pub table: Option<&'a str>,
    /// Not the files that are at home in an object store, and not here.
    pub skips_home: bool,
}

/// Checks the tables of a data directory, or those of one database, or one of these; hands each to `checked` when
/// it is done. Files that are at home are read from there.
///
/// # Errors
/// Only if the catalog cannot be read or holds no such database or table. What is wrong with tables is in their
/// [`TableCheck`].
pub async fn check(
    data_dir: &Path,
    scope: CheckScope<'_>,
    checked: impl FnMut(TableCheck),
) -> Result<(), IngestError> {
    let catalog = Catalog::open(data_dir).await?;
    let outcome = check_tables(&catalog, data_dir, scope, checked).await;
    catalog.close().await;
    outcome
}

async fn check_tables(
    catalog: &Catalog,
    data_dir: &Path,
    scope: CheckScope<'_>,
    mut checked: impl FnMut(TableCheck),
) -> Result<(), IngestError> {
    let CheckScope {
        database, table, ..
    } = scope;
    let mut found = false;
    for db in catalog.databases().await? {
        if database.is_some_and(|name| !name.eq_ignore_ascii_case(&db.name)) {
            continue;
        }
        for candidate in catalog.tables(&db.name).await? {
            if table.is_some_and(|name| !name.eq_ignore_ascii_case(&candidate.spec.name)) {
                continue;
            }
            found = true;
            checked(check_table(catalog, data_dir, candidate, scope).await?);
        }
    }
    let asked = database.or(table);
    match asked {
        Some(name) if !found => Err(IngestError::Options(format!(
            "there is nothing to check: no table fits {name:?}; `meridian tables` lists what there is"
        ))),
        _ => Ok(()),
    }
}

async fn check_table(
    catalog: &Catalog,
    data_dir: &Path,
    table: Table,
    scope: CheckScope<'_>,
) -> Result<TableCheck, IngestError> {
    let mut outcome = TableCheck {
        database: table.database.name.clone(),
        table: table.spec.name.clone(),
        files: 0,
        at_workers: 0,
        left_at_home: 0,
        rows: 0,
        copies: 0,
        problems: Vec::new(),
    };
    for part in &table.parts {
        check_part(catalog, data_dir, &table, part, scope, &mut outcome).await?;
    }
    Ok(outcome)
}

/// Checks the files of one part.
async fn check_part(
    catalog: &Catalog,
    data_dir: &Path,
    table: &Table,
    part: &Part,
    scope: CheckScope<'_>,
    outcome: &mut TableCheck,
) -> Result<(), IngestError> {
    let chunks = catalog.chunks(part.load).await?;
    let load_dir = match open_part(data_dir, table, part) {
        Ok(dir) => dir,
        Err(problem) => {
            outcome.problems.push(problem);
            return Ok(());
        }
    };
    outcome.problems.extend(unknown_files(&load_dir, &chunks));
    outcome
        .problems
        .extend(wrong_manifest(&load_dir, part.load, &chunks));
    let rules = match rules_of(catalog, data_dir, table, part, &load_dir).await? {
        Ok(rules) => Arc::new(rules),
        Err(problem) => {
            outcome.problems.push(problem);
            return Ok(());
        }
    };
    let unread = |it: &TableCheck| (it.problems.len(), it.at_workers, it.left_at_home);
    let before = unread(outcome);
    let tally = check_files(outcome, &rules, &load_dir, &chunks, scope).await;
    if before == unread(outcome) {
        let totals = wrong_totals(table, part, &chunks, &rules, &tally);
        outcome.problems.extend(totals);
    }
    Ok(())
}

fn open_part(data_dir: &Path, table: &Table, part: &Part) -> Result<LoadDir, Problem> {
    let (database, name) = (&table.database.name, &table.spec.name);
    LoadDir::open(data_dir, database, name, part.load).map_err(|e| store_problem(&e, None))
}

/// Sums over the files of a table.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    own_rows: u64,
    /// Rows that stand for a left and for a right home.
    homes: [u64; 2],
}

async fn check_files(
    outcome: &mut TableCheck,
    rules: &Arc<RowRules>,
    load_dir: &LoadDir,
    chunks: &[Chunk],
    scope: CheckScope<'_>,
) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // A row that is kept elsewhere than its position says may lie in the very chunk to whose overlap it belongs.
    let strays = chunks.iter().map(|chunk| chunk.strays).sum();
    let mut files: BTreeMap<ChunkId, Vec<&Chunk>> = BTreeMap::new();
    for chunk in chunks {
        files.entry(chunk.file).or_default().push(chunk);
    }
    let files = files.into_iter().flat_map(|(file, chunks)| {
        let (own, overlaps) = (load_dir.chunk_path(file), load_dir.overlap_path(file));
        [
            FileCheck::of_chunks(own, chunks.iter().copied(), rules.clone()),
            FileCheck::of_overlaps(overlaps, chunks, strays, rules.clone()),
        ]
    });
    let files = files.filter(|file| !file.is_empty());
    let (away, files): (Vec<FileCheck>, Vec<FileCheck>) = files.partition(FileCheck::is_away);
    // Workers read what they hold through, by and by.
    outcome.at_workers += away.len() as u64;
    let (left, files): (Vec<FileCheck>, Vec<FileCheck>) =
        { files.into_iter() }.partition(|file| scope.skips_home && file.is_at_home());
    outcome.left_at_home += left.len() as u64;
    // Each file on a task of its own, for all cores to have one.
    let checks = files.into_iter().map(|file| tokio::spawn(file.run()));
    let mut checks = futures::stream::iter(checks).buffer_unordered(cores);
    let mut tally = Tally::default();
    while let Some(checked) = checks.next().await {
        outcome.files += 1;
        match checked {
            Ok(Ok(seen)) => {
                let rows = match (seen.own, rules.spec.kind) {
                    (false, _) => 0,
                    (true, TableKind::Match) => seen.homes[0],
                    (true, _) => seen.rows,
                };
                outcome.rows += rows;
                outcome.copies += seen.rows - rows;
                if seen.own {
                    tally.own_rows += seen.rows;
                    tally.homes[0] += seen.homes[0];
                    tally.homes[1] += seen.homes[1];
                }
            }
            Ok(Err(problem)) => outcome.problems.push(problem),
            Err(_) => outcome.problems.push(Problem {
                file: None,
                what: "a check failed unexpectedly: please report this".to_owned(),
            }),
        }
    }
    outcome.problems.sort_by(|a, b| a.file.cmp(&b.file));
    tally
}

fn store_problem(error: &StoreError, file: Option<&Path>) -> Problem {
    Problem {
        file: file.map(Path::to_path_buf),
        what: error.to_string(),
    }
}

/// What the rows of a part must fulfil; a problem if an index that says so cannot be used.
async fn rules_of(
    catalog: &Catalog,
    data_dir: &Path,
    table: &Table,
    part: &Part,
    load_dir: &LoadDir,
) -> Result<Result<RowRules, Problem>, IngestError> {
    let mut indexes = Vec::new();
    let mut current = true;
    let own = match table.spec.kind {
        TableKind::Director => open_index(&load_dir.index_dir()).and_then(|own| {
            let others = open_indexes(data_dir, table, |other| other.load != part.load)?;
            Ok(vec![vec![own], others])
        }),
        TableKind::Child => open_indexes(data_dir, table, |_| true).map(|all| vec![all]),
        TableKind::Match | TableKind::Replicated => Ok(Vec::new()),
    };
    match own {
        Ok(own) => indexes.extend(own),
        Err(problem) => return Ok(Err(problem)),
    }
    for reference in &table.spec.directors {
        let director = catalog
            .table(reference.database(&table.database.name), &reference.table)
            .await?;
        let same = |it: &Table| Some(it.placement) == reference.placement;
        let Some(director) = director.filter(same) else {
            current = false;
            continue;
        };
        if director.spec.kind != TableKind::Director {
            // A child has no index of its own keys, which pairs name.
            current = false;
            continue;
        }
        match open_indexes(data_dir, &director, |_| true) {
            Ok(runs) => indexes.push(runs),
            Err(problem) => return Ok(Err(problem)),
        }
    }
    let database = &table.database;
    Ok(Ok(RowRules {
        chunker: Chunker::new(database.stripes, database.sub_stripes)?,
        overlap: Angle::from_degrees(database.overlap_deg),
        spec: table.spec.clone(),
        indexes,
        placed_by_current_directors: current,
    }))
}

/// The runs of the index of some parts of a table.
fn open_indexes(
    data_dir: &Path,
    table: &Table,
    wanted: impl Fn(&Part) -> bool,
) -> Result<Vec<DirectorIndex>, Problem> {
    let parts = table.parts.iter().filter(|part| wanted(part));
    let open = |part: &Part| open_index(&open_part(data_dir, table, part)?.index_dir());
    parts.map(open).collect()
}

fn open_index(dir: &Path) -> Result<DirectorIndex, Problem> {
    let index = DirectorIndex::open(dir).map_err(|e| store_problem(&e, None))?;
    index
        .verify()
        .map_err(|e| store_problem(&e, Some(index.path())))?;
    Ok(index)
}

/// What is wrong with the manifest of a load. A load from before there were manifests has none.
fn wrong_manifest(load_dir: &LoadDir, load: LoadId, chunks: &[Chunk]) -> Option<Problem> {
    let manifest = match PartManifest::read(load_dir.path()) {
        Ok(manifest) => manifest,
        Err(StoreError::Missing { .. }) => return None,
        Err(error) => return Some(store_problem(&error, None)),
    };
    let same = manifest.part == load
        && (manifest.chunks.iter().copied()).eq(chunks.iter().map(PartChunk::from));
    (!same).then(|| Problem {
        file: Some(load_dir.path().join(MANIFEST_FILE)),
        what: "it does not say what the catalog says of the chunks".to_owned(),
    })
}

/// Files in the load's directory that the catalog does not speak of.
fn unknown_files(load_dir: &LoadDir, chunks: &[Chunk]) -> Vec<Problem> {
    let Ok(entries) = std::fs::read_dir(load_dir.path()) else {
        return Vec::new();
    };
    let id = |name: &str, prefix: &str| {
        name.strip_prefix(prefix)?
            .strip_suffix(".mrd")?
            .parse::<i32>()
            .ok()
            .map(ChunkId)
    };
    let files: HashSet<ChunkId> = chunks.iter().map(|chunk| chunk.file).collect();
    let with_overlap = chunks.iter().filter(|chunk| chunk.overlap.is_some());
    let overlaps: HashSet<ChunkId> = with_overlap.map(|chunk| chunk.file).collect();
    let is_known = |name: &str| match (id(name, "chunk_"), id(name, "overlap_")) {
        (Some(file), _) => files.contains(&file),
        (_, Some(file)) => overlaps.contains(&file),
        _ => !name.ends_with(".mrd"),
    };
    let names = entries.flatten().map(|entry| entry.path());
    let unknown = names.filter(|path| {
        path.file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| !is_known(n))
    });
    let problem = |path| Problem {
        file: Some(path),
        what: "the catalog does not speak of this file".to_owned(),
    };
    unknown.map(problem).collect()
}

/// What does not add up although every file is right.
fn wrong_totals(
    table: &Table,
    part: &Part,
    chunks: &[Chunk],
    rules: &RowRules,
    tally: &Tally,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut expect = |what: &str, found: u64, said: u64| {
        if found != said {
            let what = format!("{what}: {found} found, {said} according to the catalog");
            problems.push(Problem { file: None, what });
        }
    };
    match table.spec.kind {
        TableKind::Match => {
            for (name, homes) in HOME_COLUMNS.iter().zip(tally.homes) {
                expect(&format!("pairs with a home in {name}"), homes, part.rows);
            }
        }
        TableKind::Director => {
            expect("rows", tally.own_rows, part.rows);
            expect(
                "keys in the director index",
                (rules.indexes.iter().take(1).flatten())
                    .map(DirectorIndex::len)
                    .sum(),
                part.rows,
            );
        }
        TableKind::Child | TableKind::Replicated => expect("rows", tally.own_rows, part.rows),
    }
    expect(
        "rows in chunks",
        tally.own_rows,
        chunks.iter().map(|c| c.rows).sum(),
    );
    problems
}
