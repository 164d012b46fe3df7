//! How a worker gets the files that it shall hold.
//!
//! ```text
//!   front end: here is the file, or ask that worker ──► FILE.unfinished ──► every block verified ──► FILE
//! ```

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use catalog::LoadId;
use sky::ChunkId;
use store::MANIFEST_FILE;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::holdings::{DAMAGED, HeldFiles, UNFINISHED, failed, name_durably, write_whole};
use crate::ClusterError;
use crate::client::MemberResponse;
use crate::file_service::{chunk_file, chunk_path, verify};
use crate::front_end::PartKey;
use crate::operator::encoded;
use crate::tls::Role;

/// How many workers a front end is asked to give a file of, one after another, if what they give is damaged.
const MOST_PLACES: usize = 3;
/// How long a member may say nothing in the middle of a file.
const PATIENCE: Duration = Duration::from_secs(30);

impl HeldFiles {
    /// Gets a file, verifies it, and holds it, on a disk for such ones: it may have been on another so far.
    ///
    /// # Errors
    /// Nobody gives it, it is damaged, or it cannot be written.
    pub async fn fetch(
        &self,
        key: PartKey,
        file: ChunkId,
        of_user: bool,
    ) -> Result<(), ClusterError> {
        self.ensure_part(key).await?;
        let part = key.part;
        let (at_home, checksum) = {
            let parts = self.lock();
            let held = parts.get(&part);
            let chunk =
                held.and_then(|held| held.manifest.chunks.iter().find(|it| it.file == file));
            match (held, chunk) {
                (Some(held), Some(chunk)) => (held.dir.chunk_path(file), chunk.checksum),
                _ => {
                    let why = format!("part {part} has no file {}", chunk_file(file.0));
                    return Err(failed(&self.data_dir, why));
                }
            }
        };
        let disk = self.disks.of(&at_home, of_user).ok_or_else(|| {
            let why = "no disk for users' own tables can be used";
            failed(&self.data_dir, why.to_owned())
        })?;
        let path = self.disks.path(&at_home, disk);
        self.prepare(&at_home, &path)?;
        // It may be there, and its part was not known: the last copy, if nobody else has it.
        let is_there = path.exists() && verify(&path, checksum).await.is_ok()
            || restore(&path, checksum).await
            || self.bring_over((part, file), &path, checksum).await;
        if !is_there {
            let unfinished = path.with_extension(UNFINISHED);
            let outcome = self.fetch_into(part, file, checksum, &unfinished).await;
            if let Err(error) = outcome {
                let _ = fs::remove_file(&unfinished);
                return Err(error);
            }
            // The front end may give its own file up once it is told of this one.
            let named = name_durably(&unfinished, &path);
            named.map_err(|error| failed(&path, error.to_string()))?;
        }
        let _ = fs::remove_file(path.with_extension(DAMAGED));
        if let Some(held) = self
            .lock()
            .get_mut(&part)
            .filter(|it| it.digest == key.digest)
        {
            held.files.insert(file, disk);
            let others = self.disks.usable().into_iter();
            for (other, _) in others.filter(|(other, _)| *other != disk) {
                // Hardly ever there: it was on a disk for others.
                let _ = fs::remove_file(self.disks.path(&at_home, other));
            }
        }
        self.close(&at_home);
        self.version.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Copies a file that is held on another disk. Returns whether it has come over.
    async fn bring_over(&self, file: (LoadId, ChunkId), path: &Path, checksum: u64) -> bool {
        let Some(from) = self.path(file.0, file.1).filter(|from| from != path) else {
            return false;
        };
        let unfinished = path.with_extension(UNFINISHED);
        let copied = async {
            tokio::fs::copy(&from, &unfinished).await?;
            tokio::fs::File::open(&unfinished).await?.sync_all().await
        };
        let is_right = copied.await.is_ok() && verify(&unfinished, checksum).await.is_ok();
        let has_come = is_right && name_durably(&unfinished, path).is_ok();
        if !has_come {
            let _ = fs::remove_file(&unfinished);
        }
        has_come
    }

    /// Makes the directory of a file's part on another disk than the home, with the manifest by which it is known there.
    fn prepare(&self, at_home: &Path, path: &Path) -> Result<(), ClusterError> {
        let (Some(from), Some(to)) = (at_home.parent(), path.parent()) else {
            return Ok(());
        };
        let (manifest, copy) = (from.join(MANIFEST_FILE), to.join(MANIFEST_FILE));
        if copy.exists() {
            return Ok(());
        }
        let io = |error: std::io::Error| failed(to, error.to_string());
        fs::create_dir_all(to).map_err(io)?;
        let bytes = fs::read(manifest).map_err(io)?;
        Ok(write_whole(&copy, &bytes)?)
    }

    async fn fetch_into(
        &self,
        part: LoadId,
        file: ChunkId,
        checksum: u64,
        path: &Path,
    ) -> Result<(), ClusterError> {
        let mut outcome = Err(failed(&self.data_dir, "there is no front end".to_owned()));
        // What another worker gives may be damaged, or it may be gone: then the front end is asked for its own file, or for that of each
        // worker by turns.
        let places = (0..MOST_PLACES).map(|place| format!("?place={place}"));
        let by_turns = format!("?holder={}", encoded(&self.name));
        let sources: Vec<String> = std::iter::once(by_turns).chain(places).collect();
        let front_ends = self.front_ends.in_order().into_iter();
        for (front_end, whose) in
            front_ends.flat_map(|it| sources.iter().map(move |from| (it.clone(), from)))
        {
            let source = format!("{}{whose}", chunk_path(part.0, file.0));
            outcome = match self.download(&front_end, &source, path).await {
                Ok(()) => verify(path, checksum).await,
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Asks for a file, and waits for the head of the response.
    async fn request(
        &self,
        role: Role,
        address: &str,
        source: &str,
    ) -> Result<MemberResponse, ClusterError> {
        let sent = self
            .client
            .send(Method::GET, role, address, source, Bytes::new());
        match timeout(PATIENCE, sent).await {
            Ok(response) => response,
            Err(_) => Err(ClusterError::member(address, "does not answer")),
        }
    }

    async fn download(&self, address: &str, source: &str, path: &Path) -> Result<(), ClusterError> {
        let to = |error: std::io::Error| failed(path, error.to_string());
        let mut address = address.to_owned();
        let mut response = self.request(Role::FrontEnd, &address, source).await?;
        let elsewhere = response.location.take();
        if let Some((other, source)) = elsewhere.as_deref().and_then(address_and_path) {
            // The connection is kept for the next request.
            let _ = response.next().await;
            address = other.to_owned();
            response = self.request(Role::Worker, &address, source).await?;
        }
        let from = |why: String| ClusterError::member(&address, why);
        if response.status != StatusCode::OK {
            let status = response.status;
            return Err(from(format!("answers {status}: {}", response.text().await)));
        }
        let mut written = tokio::fs::File::create(path).await.map_err(to)?;
        loop {
            let next = match timeout(PATIENCE, response.next()).await {
                Ok(next) => next,
                Err(_) => return Err(from("says nothing in the middle of a file".to_owned())),
            };
            let next =
                next.map_err(|error| from(format!("stopped in the middle of a file: {error}")));
            match next? {
                Some(bytes) => {
                    written.write_all(&bytes).await.map_err(to)?;
                    self.bandwidth.take(bytes.len()).await;
                }
                None => break,
            }
        }
        written.sync_all().await.map_err(to)
    }
}

/// Takes a file back that was set aside, if it is right: a disk may give what it did not give a moment ago. Returns whether it is.
async fn restore(path: &Path, checksum: u64) -> bool {
    let set_aside = path.with_extension(DAMAGED);
    let is_right = set_aside.exists() && verify(&set_aside, checksum).await.is_ok();
    is_right && name_durably(&set_aside, path).is_ok()
}

/// `http://HOST:PORT/PATH` as the address and the path.
fn address_and_path(location: &str) -> Option<(&str, &str)> {
    let rest = location.strip_prefix("http://")?;
    Some(rest.split_at(rest.find('/')?))
}
