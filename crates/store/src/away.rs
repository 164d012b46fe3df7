//! Chunk files that a data directory has given up because the workers of its cluster hold them.
//!
//! ```text
//!   DIR/tables/db.table/PART/chunk_N.mrd     the file
//!   DIR/tables/db.table/PART/chunk_N.away    it is at workers; where both are, the file counts: it is being given up or brought back
//!   DIR/cluster.files                        where the cluster's front end reads such files for other processes of this machine
//! ```
//!
//! The mark is on the disk before the file goes, and goes when the file is on the disk: at any moment one of them is there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use sky::ChunkId;

use crate::durable::{TemporaryFile, parent, sync_dir};
use crate::home::{NotedFile, has_home, open_at_home};
use crate::{ByteSource, HttpFile, HttpPeer, HttpTimeouts, LocalFile, StoreError};

/// How the name of a mark ends.
const MARK: &str = "away";
/// The file that says where the front end of a cluster gives files.
const SERVICE_FILE: &str = "cluster.files";
/// Places from which a file is read at most before it counts as damaged.
const MOST_PLACES: usize = 8;
/// How long the front end may take: it waits itself for workers that have just gone or not come yet.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(5),
    read: Duration::from_secs(60),
};

/// The mark of a file that is at workers.
fn mark(path: &Path) -> PathBuf {
    path.with_extension(MARK)
}

/// Whether a chunk file is at workers, and not here.
pub fn is_away(path: &Path) -> bool {
    !path.exists() && mark(path).exists()
}

/// The chunk files of a part that are at workers, and not here.
///
/// # Errors
/// The directory cannot be read.
pub fn files_away(part: &Path) -> Result<Vec<ChunkId>, StoreError> {
    let entries = fs::read_dir(part).map_err(StoreError::io("read", part))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let marks = paths.filter(|path| path.extension().is_some_and(|it| it == MARK));
    let away = marks.filter(|path| !path.with_extension("mrd").exists());
    let mut files: Vec<ChunkId> = away.filter_map(|path| chunk_of(&path)).collect();
    files.sort_unstable();
    Ok(files)
}

/// Removes chunk files of a part, which workers hold.
///
/// # Errors
/// It cannot be noted that they are there, and nothing is removed; or one cannot be removed, and stays.
pub fn give_up(part: &Path, files: &[PathBuf]) -> Result<(), StoreError> {
    for path in files {
        let mark = mark(path);
        let made = catalog::writable_file()
            .create(true)
            .truncate(true)
            .open(&mark);
        made.map_err(StoreError::io("create", &mark))?;
    }
    sync_dir(part)?;
    for path in files {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Gives a file its name, which was at workers and is whole, verified and on the disk under another one.
///
/// # Errors
/// It cannot be renamed.
pub fn bring_back(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    fs::rename(temporary, path).map_err(StoreError::io("rename", path))?;
    sync_dir(parent(path))?;
    let mark = mark(path);
    match fs::remove_file(&mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", &mark)(error))
        }
        _ => Ok(()),
    }
}

/// What a chunk file is read from that is here; `None` if it is at workers, or in the object store that is its home.
///
/// # Errors
/// [`StoreError::Missing`] if it is neither here nor there; [`StoreError::Io`].
pub fn open_here(path: &Path) -> Result<Option<Arc<dyn ByteSource>>, StoreError> {
    match open_local(path) {
        Err(StoreError::Missing { .. }) if mark(path).exists() || has_home(path) => Ok(None),
        // It may have been brought back between the two looks.
        Err(StoreError::Missing { .. }) => open_local(path).map(Some),
        opened => opened.map(Some),
    }
}

fn open_local(path: &Path) -> Result<Arc<dyn ByteSource>, StoreError> {
    match chunk_of(path) {
        Some(_) => Ok(Arc::new(NotedFile::open(path)?)),
        None => Ok(Arc::new(LocalFile::open(path)?)),
    }
}

/// What a chunk file is read from, wherever it is: if it is at workers, through the front end of the cluster; if it is at home, from there.
///
/// # Errors
/// [`StoreError::Missing`], [`StoreError::AtWorkers`], [`StoreError::AtHome`], [`StoreError::Io`].
pub async fn open_anywhere(path: &Path) -> Result<Arc<dyn ByteSource>, StoreError> {
    if let Some(file) = open_here(path)? {
        return Ok(file);
    }
    if let Some(object) = open_at_home(path)? {
        return Ok(object);
    }
    match mark(path).exists() {
        true => Ok(Arc::new(AwayFile::open(path).await?)),
        // Its mark has gone since because it is here again.
        false => open_local(path),
    }
}

/// The chunk after which a file is named.
pub(crate) fn chunk_of(path: &Path) -> Option<ChunkId> {
    let name = path.file_stem()?.to_str()?;
    name.strip_prefix("chunk_")?.parse().ok().map(ChunkId)
}

/// The data directory of a chunk file: `DIR/tables/db.table/PART/FILE`.
pub(crate) fn data_dir_of(path: &Path) -> Option<&Path> {
    let data_dir = path.ancestors().nth(4)?;
    match data_dir.as_os_str().is_empty() {
        true => Some(Path::new(".")),
        false => Some(data_dir),
    }
}

/// Where the front end of a cluster reads files for other processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileService {
    /// Where it listens.
    pub address: String,
    /// What a request has to say.
    pub token: String,
}

impl FileService {
    /// Tells of it in a data directory, to whoever may read the files there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn announce(&self, data_dir: &Path) -> Result<(), StoreError> {
        let path = data_dir.join(SERVICE_FILE);
        let json = serde_json::to_vec(self).map_err(io::Error::from);
        let json = json.map_err(StoreError::io("write", &path))?;
        let (temporary, mut file) = TemporaryFile::create(&path)?;
        file.write_all(&json)
            .map_err(StoreError::io("write", &path))?;
        temporary.publish(&file)
    }

    /// Whether a front end has told of it in a data directory, which may have ended since.
    pub fn is_announced(data_dir: &Path) -> bool {
        data_dir.join(SERVICE_FILE).exists()
    }

    fn read(data_dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(
            data_dir.join(SERVICE_FILE),
        )?)?)
    }

    /// The front end of a data directory, whose connections are kept for the next file.
    fn peer(data_dir: &Path) -> io::Result<Arc<HttpPeer>> {
        static PEERS: Mutex<BTreeMap<PathBuf, (FileService, Arc<HttpPeer>)>> =
            Mutex::new(BTreeMap::new());
        let service = Self::read(data_dir)?;
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, peer)) = peers.get(data_dir)
            && *known == service
        {
            return Ok(Arc::clone(peer));
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", service.token))
            .map_err(io::Error::other)?;
        authorization.set_sensitive(true);
        let peer = HttpPeer::new(&service.address, TIMEOUTS).map_err(io::Error::other)?;
        let peer = peer.authorized_by(authorization);
        peers.insert(data_dir.to_owned(), (service, Arc::clone(&peer)));
        Ok(peer)
    }
}

/// Which of the places that have a file it is read from: the next one, once what came from one was wrong.
#[derive(Debug, Default)]
pub struct ReadPlace(AtomicUsize);

impl ReadPlace {
    /// The number of the place.
    pub fn number(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Leaves a place, unless another reader has done so already. Whether there may be another one.
    pub fn leave(&self, place: usize) -> bool {
        if place + 1 >= MOST_PLACES {
            return false;
        }
        // Where it fails another reader has left it.
        let _ = self.0.compare_exchange(place, place + 1, Relaxed, Relaxed);
        true
    }
}

/// A chunk file that is at workers, read through the front end of their cluster.
#[derive(Debug)]
struct AwayFile {
    peer: Arc<HttpPeer>,
    /// Its path in requests.
    request: String,
    name: Arc<Path>,
    bytes: u64,
    place: ReadPlace,
}

impl AwayFile {
    async fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |why: String| StoreError::AtWorkers {
            path: path.to_owned(),
            why,
        };
        let no_server = || {
            failed("no server of its cluster runs on the data directory: start `meridian serve --cluster ADDR`, and try again".to_owned())
        };
        let strange = || failed("its name is none of a chunk file in a data directory".to_owned());
        let part = parent(path).file_name().and_then(|it| it.to_str());
        let part: i64 = part.and_then(|it| it.parse().ok()).ok_or_else(strange)?;
        let file = chunk_of(path).ok_or_else(strange)?;
        let data_dir = data_dir_of(path).ok_or_else(strange)?;
        let peer = FileService::peer(data_dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => no_server(),
            _ => failed(format!(
                "{} cannot be used: {error}",
                data_dir.join(SERVICE_FILE).display()
            )),
        })?;
        let request = format!("/parts/{part}/files/{}", file.0);
        let opened = HttpFile::open(Arc::clone(&peer), &request).await;
        let bytes = match opened {
            Ok(opened) => opened.num_bytes(),
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                return Err(no_server());
            }
            Err(StoreError::Io { source, .. }) => return Err(failed(source.to_string())),
            Err(error) => return Err(failed(error.to_string())),
        };
        Ok(Self {
            peer,
            request,
            name: Arc::from(path),
            bytes,
            place: ReadPlace::default(),
        })
    }
}

#[async_trait]
impl ByteSource for AwayFile {
    fn name(&self) -> &Arc<Path> {
        &self.name
    }

    fn num_bytes(&self) -> u64 {
        self.bytes
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let request = format!("{}?place={}", self.request, self.place.number());
        let file = HttpFile::new(Arc::clone(&self.peer), &request, self.bytes);
        file.map_err(io::Error::other)?
            .read_at(offset, buffer)
            .await
    }

    fn place(&self) -> usize {
        self.place.number()
    }

    fn distrust(&self, place: usize) -> bool {
        self.place.leave(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_file_and_mark_is_there_at_any_moment() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = [3, -5, 7]
            .map(|chunk| dir.path().join(format!("chunk_{chunk}.mrd")))
            .to_vec();
        for path in &paths {
            fs::write(path, b"rows").unwrap();
        }
        give_up(dir.path(), &paths[..2]).unwrap();
        assert_eq!(files_away(dir.path()).unwrap(), [ChunkId(-5), ChunkId(3)]);
        assert!(is_away(&paths[0]) && !is_away(&paths[2]));
        assert!(open_here(&paths[0]).unwrap().is_none());
        assert!(open_here(&paths[2]).unwrap().is_some());
        let temporary = dir.path().join("coming");
        fs::write(&temporary, b"rows").unwrap();
        bring_back(&temporary, &paths[0]).unwrap();
        assert_eq!(files_away(dir.path()).unwrap(), [ChunkId(-5)]);
        assert!(!mark(&paths[0]).exists());
        // What a crash between the two steps leaves.
        fs::write(mark(&paths[2]), b"").unwrap();
        assert!(open_here(&paths[2]).unwrap().is_some() && !is_away(&paths[2]));
        let missing = open_here(&dir.path().join("chunk_9.mrd")).unwrap_err();
        assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    }

    #[test]
    fn a_place_is_left_once_however_many_find_it_wrong() {
        let place = ReadPlace::default();
        assert!(place.leave(0) && place.leave(0) && place.leave(0));
        assert_eq!(place.number(), 1);
        for number in 1..MOST_PLACES - 1 {
            assert!(place.leave(number));
        }
        assert!(!place.leave(MOST_PLACES - 1));
    }

    #[tokio::test]
    async fn without_a_server_it_is_told_where_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("tables/db.t/7");
        fs::create_dir_all(&part).unwrap();
        let path = part.join("chunk_3.mrd");
        fs::write(&path, b"rows").unwrap();
        give_up(&part, std::slice::from_ref(&path)).unwrap();
        let error = open_anywhere(&path).await.unwrap_err().to_string();
        assert!(error.contains("start `meridian serve --cluster"), "{error}");
        let service = FileService {
            address: "127.0.0.1:1".to_owned(),
            token: "secret".to_owned(),
        };
        service.announce(dir.path()).unwrap();
        let error = open_anywhere(&path).await.unwrap_err().to_string();
        assert!(error.contains("start `meridian serve --cluster"), "{error}");
    }
}
