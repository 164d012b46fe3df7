//! The lock of a place in a bucket: an object that is written only if there is none, and again every minute for as long as it is held. One
//! that nobody has written for some time is of a backup that was killed, and is taken over, if nobody else does.
//!
//! It needs a store that keeps conditions of writing (`If-None-Match`, `If-Match`), and one clock alone, the store's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use remote_files::{Address, Client, Condition, RemoteError};
use tokio::task::JoinHandle;

use crate::{BackupError, Result};

/// How often it is written again.
const EVERY: Duration = Duration::from_secs(60);
/// After how long one that was not written again is nobody's.
const STALE: Duration = Duration::from_secs(600);
/// Bytes of its content.
const LONGEST: usize = 4096;

/// A lock that is held.
pub(crate) struct BucketLock {
    client: Client,
    address: Address,
    place: PathBuf,
    is_lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Drop for BucketLock {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl BucketLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`BackupError::InUseInBucket`]; the store does not answer.
    pub async fn take(client: &Client, address: Address, place: PathBuf) -> Result<Self> {
        let content = content();
        let in_use = || BackupError::InUseInBucket {
            place: place.clone(),
            lock: address.to_string(),
            minutes: STALE.as_secs() / 60,
        };
        let written = client.put(&address, content.clone(), &Condition::New, None);
        let etag = match written.await {
            Ok(etag) => etag,
            Err(RemoteError::NotAsExpected { .. }) => {
                let there = match client.read_small(&address, LONGEST).await {
                    Ok(there) => there,
                    // It ended just now.
                    Err(error) if error.is_missing() => return Err(in_use()),
                    Err(error) => return Err(error.into()),
                };
                if there.age.is_none_or(|age| age < STALE) {
                    return Err(in_use());
                }
                let over = Condition::Is(there.etag);
                match client.put(&address, content.clone(), &over, None).await {
                    Ok(etag) => etag,
                    Err(RemoteError::NotAsExpected { .. } | RemoteError::Missing { .. }) => {
                        return Err(in_use());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        };
        let is_lost = Arc::new(AtomicBool::new(false));
        let renewing = tokio::spawn(renew(
            client.clone(),
            address.clone(),
            content,
            etag,
            is_lost.clone(),
        ));
        Ok(Self {
            client: client.clone(),
            address,
            place,
            is_lost,
            renewing,
        })
    }

    /// Sees that it is still held, before something is done that another backup must not do meanwhile.
    pub fn check(&self) -> Result<()> {
        match self.is_lost.load(Relaxed) {
            true => Err(BackupError::LostLock {
                place: self.place.clone(),
            }),
            false => Ok(()),
        }
    }

    /// Lets others take it. One that cannot be removed now is nobody's after some minutes.
    pub async fn release(self) {
        if self.check().is_ok() {
            self.renewing.abort();
            let _ = self.client.delete(&self.address).await;
        }
    }
}

async fn renew(
    client: Client,
    address: Address,
    content: Bytes,
    mut etag: String,
    is_lost: Arc<AtomicBool>,
) {
    let mut written = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(EVERY).await;
        let condition = Condition::Is(etag.clone());
        let renewed = client
            .put(&address, content.clone(), &condition, None)
            .await;
        match renewed {
            Ok(new) => (etag, written) = (new, tokio::time::Instant::now()),
            // The store may answer again before others take it.
            Err(RemoteError::Interrupted { .. } | RemoteError::Unreachable { .. })
                if written.elapsed() + 2 * EVERY < STALE => {}
            Err(_) => {
                is_lost.store(true, Relaxed);
                return;
            }
        }
    }
}

/// What tells this holder from all others.
fn content() -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!(
        "a backup by process {} on {} since {} ns\n",
        std::process::id(),
        host.trim(),
        now.unwrap_or_default().as_nanos()
    );
    text.into()
}
