//! A file of this machine.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::ByteSource;
use crate::StoreError;
use crate::read_ahead::read_ahead;

/// A file of this machine, read through the page cache.
///
/// Reads happen on the thread that polls: a hand-over to another thread costs more than a read of what is in the page cache.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    path: Arc<Path>,
    bytes: u64,
}

impl LocalFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Io`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::io("open", path))?;
        let metadata = file.metadata().map_err(StoreError::io("open", path))?;
        Ok(Self {
            file,
            path: Arc::from(path),
            bytes: metadata.len(),
        })
    }

    /// Fills the buffer with the bytes from `offset` on.
    pub(crate) fn fill(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

#[async_trait]
impl ByteSource for LocalFile {
    fn name(&self) -> &Arc<Path> {
        &self.path
    }

    fn num_bytes(&self) -> u64 {
        self.bytes
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.fill(offset, buffer)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn read_ahead(&self, range: &Range<u64>) {
        read_ahead(&self.file, range);
    }
}
