//! The copies of files that are kept here: which go, and which come.
//!
//! 1. A copy goes only while [`HomeLock`] is held, with its mark there, and after the store has said that the object is the verified one.
//! 2. A file comes back once half of it was read from the store, if there is room: below the cache's size, or by giving up copies that
//!    nobody has read for [`REST`], the least recently read first. So a scan of more than there is room for does not push out what it
//!    will read next time.
//! 3. It is verified, block by block, before it has its name.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use remote_files::{Client, RemoteError};
use store::{
    FileWithHome, HomeObject, IncomingCopy, OpenFile, StoreError, files_with_home, forget_home,
    name_in_data_dir, note_reading, remove_copy,
};
use tokio::sync::Mutex;

use super::config::{Home, HomeLock};
use super::source::{MOST_TRIES, object_file};
use super::{HomeError, Result, address_of, parts};
use crate::bucket::NOTE;

/// How long a copy stays that was read.
const REST: Duration = Duration::from_secs(600);
/// How long a look at the disk counts: other processes bring files back, too.
const LOOK: Duration = Duration::from_secs(5);

/// The last look at the copies of a data directory; whoever brings a file back holds it.
static LAST_LOOK: Mutex<Option<Look>> = Mutex::const_new(None);

/// What there was when somebody looked.
#[derive(Debug)]
struct Look {
    data_dir: PathBuf,
    at: Instant,
    /// Bytes of all copies, with those that have come since.
    bytes: u64,
}

/// A copy of a file that an object has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub path: PathBuf,
    pub bytes: u64,
    pub read_at: SystemTime,
}

/// All copies that are here, those first that were read least recently.
pub(super) fn copies(data_dir: &Path) -> Result<Vec<Kept>> {
    let mut copies = Vec::new();
    for part in parts::directories(data_dir)? {
        copies.extend(files_with_home(&part)?.into_iter().filter_map(kept));
    }
    copies.sort_by(|one, other| (one.read_at, &one.path).cmp(&(other.read_at, &other.path)));
    Ok(copies)
}

fn kept(file: FileWithHome) -> Option<Kept> {
    Some(Kept {
        bytes: file.bytes_here?,
        path: file.path,
        read_at: file.read_at,
    })
}

/// The first of the copies that make up so many bytes; `None` if all together do not.
fn first_of(copies: Vec<Kept>, bytes: u64) -> Option<Vec<Kept>> {
    let mut found = 0;
    let mut first = Vec::new();
    for copy in copies {
        if found >= bytes {
            break;
        }
        found += copy.bytes;
        first.push(copy);
    }
    (found >= bytes).then_some(first)
}

/// Gives a copy up, if its object is what it was; else the file is to be copied home once more. Whether it is gone.
///
/// # Errors
/// The store cannot be asked, and the copy stays.
pub(super) async fn give_up(client: &Client, _lock: &HomeLock, path: &Path) -> Result<bool> {
    let Some(object) = HomeObject::of(path)? else {
        return Ok(false);
    };
    let address = address_of(&object.url)?;
    // An object that is not there, or that somebody else has written, has no note.
    let is_whole = client.note(&address, NOTE).await?.is_some()
        && match client.stat(&address).await {
            Ok(there) => (there.bytes, &there.etag) == (object.bytes, &object.etag),
            Err(RemoteError::Missing { .. }) => false,
            Err(error) => return Err(error.into()),
        };
    if !is_whole {
        tracing::warn!(
            object = object.url,
            "it is not the object any more that was copied: the file is copied again"
        );
        // A part that is removed meanwhile has neither.
        return match forget_home(path) {
            Ok(()) | Err(StoreError::Missing { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
    match remove_copy(path) {
        Ok(()) => Ok(true),
        Err(StoreError::Missing { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What became of a file that was to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incoming {
    /// It is here.
    Came,
    /// The cache is full of what was read a short while ago.
    NoRoom,
    /// Somebody else brings it back, or changes the cache.
    Busy,
}

/// Brings a file back into the cache, if there is room. One at a time comes: the others wait.
pub(super) async fn bring_back(
    client: &Client,
    path: &Path,
    object: &HomeObject,
) -> Result<Incoming> {
    let Some((data_dir, _)) = name_in_data_dir(path) else {
        return Ok(Incoming::NoRoom);
    };
    let mut look = LAST_LOOK.lock().await;
    let Some(home) = Home::read(data_dir)?.filter(|home| !home.is_ending) else {
        return Ok(Incoming::NoRoom);
    };
    if let Some(size) = home.cache {
        match make_room(client, data_dir, &mut look, size, object.bytes).await? {
            Incoming::Came => {}
            other => return Ok(other),
        }
    }
    let came = fetch(client, path, object).await?;
    if came == Incoming::Came
        && let Some(look) = look.as_mut()
    {
        look.bytes += object.bytes;
    }
    Ok(came)
}

/// Sees that there is room for so many bytes: [`Incoming::Came`] if there is.
async fn make_room(
    client: &Client,
    data_dir: &Path,
    look: &mut Option<Look>,
    size: u64,
    needed: u64,
) -> Result<Incoming> {
    if needed > size {
        return Ok(Incoming::NoRoom);
    }
    let known = look.as_ref();
    let known = known.filter(|look| look.data_dir == data_dir && look.at.elapsed() < LOOK);
    if known.is_some_and(|look| look.bytes + needed <= size) {
        return Ok(Incoming::Came);
    }
    let copies = copies(data_dir)?;
    let bytes: u64 = copies.iter().map(|copy| copy.bytes).sum();
    let seen = look.insert(Look {
        data_dir: data_dir.to_owned(),
        at: Instant::now(),
        bytes,
    });
    let too_much = (bytes + needed).saturating_sub(size);
    let now = SystemTime::now();
    let is_at_rest = |copy: &Kept| {
        let age = now.duration_since(copy.read_at);
        age.is_ok_and(|age| age >= REST)
    };
    let at_rest = copies.into_iter().filter(is_at_rest).collect();
    let Some(going) = first_of(at_rest, too_much) else {
        return Ok(Incoming::NoRoom);
    };
    if going.is_empty() {
        return Ok(Incoming::Came);
    }
    let Some(lock) = HomeLock::try_take(data_dir)? else {
        return Ok(Incoming::Busy);
    };
    // The home may have been changed until the lock was had.
    if Home::read(data_dir)?.is_none_or(|home| home.is_ending) {
        return Ok(Incoming::NoRoom);
    }
    for copy in going {
        if give_up(client, &lock, &copy.path).await? {
            seen.bytes = seen.bytes.saturating_sub(copy.bytes);
        }
    }
    match seen.bytes + needed <= size {
        true => Ok(Incoming::Came),
        false => Ok(Incoming::NoRoom),
    }
}

/// Fetches a file whole, verifies it, and gives it its name. What is damaged, as it may be on the way, is fetched again.
pub(super) async fn fetch(client: &Client, path: &Path, object: &HomeObject) -> Result<Incoming> {
    for _ in 1..MOST_TRIES {
        match Box::pin(fetch_once(client, path, object)).await {
            Err(HomeError::Damaged { .. }) => {}
            other => return other,
        }
    }
    Box::pin(fetch_once(client, path, object)).await
}

async fn fetch_once(client: &Client, path: &Path, object: &HomeObject) -> Result<Incoming> {
    if path.exists() {
        return Ok(Incoming::Came);
    }
    let Some(mut copy) = IncomingCopy::begin(path)? else {
        return Ok(match path.exists() {
            true => Incoming::Came,
            false => Incoming::Busy,
        });
    };
    let file = object_file(object)?;
    let mut failed = None;
    let mut take = |bytes: &[u8]| {
        copy.write(bytes).map_err(|error| {
            failed = Some(error);
            std::io::Error::other("it cannot be written")
        })
    };
    let read = client.read_range(&file, 0..object.bytes, &mut take).await;
    if let Some(error) = failed {
        return Err(error.into());
    }
    read?;
    let opened = OpenFile::open(copy.temporary()).await;
    let verified = async {
        let opened = opened?;
        opened.verify().await?;
        Ok::<_, StoreError>(opened.checksum())
    };
    match verified.await {
        Ok(checksum) if checksum == object.checksum => {}
        Ok(_) | Err(StoreError::Damaged { .. }) => {
            return Err(HomeError::Damaged {
                url: object.url.clone(),
            });
        }
        Err(error) => return Err(error.into()),
    }
    copy.publish()?;
    note_reading(path);
    Ok(Incoming::Came)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(name: &str, bytes: u64) -> Kept {
        Kept {
            path: name.into(),
            bytes,
            read_at: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn as_many_go_as_have_to() {
        let copies = || vec![copy("a", 5), copy("b", 5), copy("c", 1)];
        let names = |bytes| {
            let first = first_of(copies(), bytes)?;
            let names = first
                .iter()
                .map(|it| it.path.to_string_lossy().into_owned());
            Some(names.collect::<String>())
        };
        assert_eq!(names(0).as_deref(), Some(""));
        assert_eq!(names(5).as_deref(), Some("a"));
        assert_eq!(names(6).as_deref(), Some("ab"));
        assert_eq!(names(11).as_deref(), Some("abc"));
        assert_eq!(names(12), None);
    }
}
