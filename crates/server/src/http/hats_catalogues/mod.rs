//! `/hats/<database>/<table>/...`: tables as HATS catalogues, whose files are made when they are asked for.
//!
//! ```text
//!   hats.properties, partition_info.csv ──► the tiling of the table, counted once for each of its states
//!   dataset/Norder=K/Dir=D/Npix=N.parquet ──► a query ──► a file in a temporary directory ──► ranges of bytes
//! ```
//!
//! Files stay for the next request as long as there is room; who is being sent one keeps it.

mod files;
mod ranges;

use std::io::Write;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, Response};
use engine::{Session, too_many_rows};
use hats::{Catalogue, HatsError, Tile, TileWriter, Tiling};
use sql::ErrorCode;
use tower::ServiceExt;
use tower_http::services::ServeFile;
use users::Limit;

pub(crate) use self::files::HatsFiles;
use self::files::{FileKey, MadeFile};
use super::problem::Problem;
use super::query_api::Requester;
use super::tracked_query::TrackedQuery;
use super::{ClientAddress, HttpState};
use crate::ClientError;

/// Rows of a file at most, where they can be parted: so many are made in a moment.
const ROWS_PER_TILE: u64 = 250_000;

/// A file of a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FileName {
    Properties,
    PartitionInfo,
    SkyMap,
    CommonMetadata,
    /// The rows of a cell: its order and its number.
    Tile(u8, u64),
}

impl FileName {
    /// The file at a path below the catalogue.
    fn at(path: &str) -> Option<Self> {
        match path {
            "hats.properties" | "properties" => return Some(Self::Properties),
            "partition_info.csv" => return Some(Self::PartitionInfo),
            "skymap.fits" => return Some(Self::SkyMap),
            "dataset/_common_metadata" => return Some(Self::CommonMetadata),
            _ => {}
        }
        let mut parts = path.strip_prefix("dataset/Norder=")?.split('/');
        let order = parts.next()?.parse().ok()?;
        parts.next()?.strip_prefix("Dir=")?;
        let cell = parts.next()?.strip_prefix("Npix=")?;
        let cell = cell.strip_suffix(".parquet")?.parse().ok()?;
        // The directory has to be the cell's.
        let tile = Tile {
            order,
            cell,
            rows: 0,
        };
        (format!("dataset/{}", tile.path()) == path).then_some(Self::Tile(order, cell))
    }
}

/// `GET /hats/{database}/{table}/{path}`.
pub(super) async fn file(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path((database, table, path)): Path<(String, String, String)>,
    headers: HeaderMap,
    mut request: Request,
) -> Result<Response<Body>, Problem> {
    let not_there = || {
        Problem::not_found(format!(
            "the HATS catalogue of {database}.{table} has no file {path}; begin with hats.properties and partition_info.csv"
        ))
    };
    let name = FileName::at(&path).ok_or_else(not_there)?;
    let requester = Requester::of(address, &headers, None)?;
    let asked = FileRequest {
        catalogue: Arc::new(open(&state, &database, &table).await?),
        state,
        requester,
    };
    let made = asked.file(name).await?.ok_or_else(not_there)?;
    ranges::settle(&mut request, made.path()).await;
    let served = ServeFile::new(made.path()).oneshot(request).await;
    // The file is open now, and its place on the disk is kept until it has been sent.
    served
        .map(|response| response.map(Body::new))
        .map_err(|_| Problem::from(failed("the file of a HATS catalogue cannot be read")))
}

/// `GET /hats/{database}/{table}`.
pub(super) async fn overview(
    State(state): State<Arc<HttpState>>,
    Path((database, table)): Path<(String, String)>,
) -> Result<String, Problem> {
    let catalogue = open(&state, &database, &table).await?;
    Ok(format!(
        "{} as a HATS catalogue: lsdb.open_catalog of this address; hats.properties and partition_info.csv are below it\n",
        catalogue.name()
    ))
}

async fn open(state: &HttpState, database: &str, table: &str) -> Result<Catalogue, Problem> {
    if state.archive.table(database, table).await?.is_none()
        && state.archive.view(database, table).await?.is_none()
    {
        return Err(state.no_such(database, table).await?);
    }
    let sessions = &state.shared.sessions;
    let session: Arc<Session> = sessions.of_dialect(Some(database), hats::DIALECT).await?;
    let opened = Catalogue::open(&state.archive, session, database, table).await;
    opened.map_err(problem)
}

fn problem(error: HatsError) -> Problem {
    match error {
        HatsError::NoTable(_) | HatsError::IsView(_) => Problem::not_found(error.to_string()),
        HatsError::NoPosition { .. } => Problem::bad(error.to_string()),
        other => client_error(other).into(),
    }
}

fn client_error(error: HatsError) -> ClientError {
    match error {
        HatsError::Engine(error) => error.into(),
        other => failed(&other.to_string()),
    }
}

fn failed(sentence: &str) -> ClientError {
    ClientError::new(ErrorCode::STORAGE, sentence.to_owned())
}

/// A request for a file of a catalogue.
struct FileRequest {
    state: Arc<HttpState>,
    catalogue: Arc<Catalogue>,
    requester: Requester,
}

impl FileRequest {
    /// The file, made if it is not there; `None` if the catalogue has none of this name.
    async fn file(&self, name: FileName) -> Result<Option<Arc<MadeFile>>, Problem> {
        let table: Arc<str> = self.catalogue.state().into();
        let files = &self.state.hats;
        let tiling = files.tiling(&table, || self.tiling()).await?;
        let tile = match name {
            FileName::Tile(order, cell) => {
                let is_meant = |tile: &&Tile| (tile.order, tile.cell) == (order, cell);
                let Some(tile) = tiling.tiles.iter().find(is_meant) else {
                    return Ok(None);
                };
                self.check_limit(tile)?;
                Some(*tile)
            }
            _ => None,
        };
        let key = FileKey { table, name };
        let make = |path: Arc<FilePath>| self.make(name, tile, Arc::clone(&tiling), path);
        files.file(key, make).await.map(Some)
    }

    /// A file with more rows than its requester may have of one query is for others.
    fn check_limit(&self, tile: &Tile) -> Result<(), Problem> {
        match self.state.shared.usage.limit(Limit::Rows) {
            Some(most) if tile.rows > most => Err(too_many_rows(most).into()),
            _ => Ok(()),
        }
    }

    /// Runs work as a query of the requester.
    async fn run<T: Send + 'static>(
        &self,
        statement: String,
        work: impl Future<Output = Result<T, HatsError>> + Send + 'static,
    ) -> Result<T, Problem> {
        let shared = &self.state.shared;
        let database = Some(self.catalogue.table.spec.database.clone());
        let query = TrackedQuery::begin(shared, self.requester.clone(), database, statement)?;
        let running = async move {
            let work = async { work.await.map_err(client_error) };
            let outcome = Box::pin(query.run(work)).await;
            query.end(&outcome, 0);
            outcome
        };
        Ok(shared.query_runtime.compute(running).recv_one().await?)
    }

    async fn tiling(&self) -> Result<Tiling, Problem> {
        let catalogue = Arc::clone(&self.catalogue);
        let work = async move { catalogue.tiling(ROWS_PER_TILE, hats::MAX_ORDER).await };
        self.run(self.catalogue.numbers_query(), work).await
    }

    /// Writes a file to a path. Returns how many bytes it has.
    async fn make(
        &self,
        name: FileName,
        tile: Option<Tile>,
        tiling: Arc<Tiling>,
        path: Arc<FilePath>,
    ) -> Result<u64, Problem> {
        let catalogue = Arc::clone(&self.catalogue);
        let statement = self.catalogue.rows_query(tile.as_ref());
        let work = async move {
            let cannot_write = |source| HatsError::Io {
                action: "write",
                path: path.to_path_buf(),
                source,
            };
            let mut file = std::fs::File::create(&path).map_err(cannot_write)?;
            let text = match name {
                FileName::Tile(..) => {
                    let result = catalogue.rows(tile.as_ref()).await?;
                    let out = std::io::BufWriter::new(file.try_clone().map_err(cannot_write)?);
                    TileWriter::new(&catalogue.table, &result, out)?
                        .write_all(result)
                        .await?;
                    Vec::new()
                }
                FileName::CommonMetadata => {
                    hats::common_metadata(&catalogue.table, &catalogue.rows(None).await?)?
                }
                FileName::Properties => hats::properties(&catalogue, &tiling, None).into_bytes(),
                FileName::PartitionInfo => hats::partition_info(&tiling).into_bytes(),
                FileName::SkyMap => {
                    let mut map = Vec::new();
                    sky::healpix::write_map(&tiling.map, &mut map).map_err(cannot_write)?;
                    map
                }
            };
            file.write_all(&text).map_err(cannot_write)?;
            Ok(file.metadata().map_err(cannot_write)?.len())
        };
        self.run(statement, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_paths() {
        assert_eq!(FileName::at("hats.properties"), Some(FileName::Properties));
        let tile = "dataset/Norder=6/Dir=10000/Npix=12345.parquet";
        assert_eq!(FileName::at(tile), Some(FileName::Tile(6, 12_345)));
        for none in [
            "",
            "dataset/_metadata",
            "dataset/Norder=6/Dir=0/Npix=12345.parquet",
            "dataset/Norder=+6/Dir=10000/Npix=12345.parquet",
            "dataset/Norder=6/Dir=10000/Npix=12345.parquet/x",
            "dataset/Norder=999/Dir=0/Npix=1.parquet",
            "dataset/Norder=6/Dir=0/Npix=../../etc/passwd",
        ] {
            assert_eq!(FileName::at(none), None, "{none}");
        }
    }
}
