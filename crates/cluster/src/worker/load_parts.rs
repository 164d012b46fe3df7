//! The parts of tables whose rows pairs are of, as a load reads them at a worker: files that it holds, and others through a front end.

use std::sync::Arc;

use catalog::{Chunk, LoadId};
use engine::Replicas;
use futures::future::BoxFuture;
use ingest::{IngestError, PartFiles};
use sky::ChunkId;
use store::{ByteSource, LoadDir, StoreError};

use super::holdings::HeldFiles;
use crate::ClusterError;
use crate::messages::{LoadTaskError, PartName};
use crate::scrubs::unreadable_file;

impl PartFiles for HeldFiles {
    fn chunks(&self, part: LoadId) -> Result<Vec<Chunk>, StoreError> {
        let parts = self.lock();
        let held = parts.get(&part).ok_or_else(|| StoreError::Missing {
            path: self.data_dir.join(part.to_string()),
        })?;
        Ok(held.manifest.chunks.iter().map(Chunk::from).collect())
    }

    fn source(
        &self,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'_, Result<Arc<dyn ByteSource>, StoreError>> {
        Replicas::source(self, part, file)
    }
}

impl HeldFiles {
    /// Makes parts known, and keeps them from being given up until the directories are dropped.
    pub(super) async fn hold_parts(
        &self,
        parts: &[PartName],
    ) -> Result<Vec<LoadDir>, LoadTaskError> {
        let of_machine = |error: ClusterError| LoadTaskError {
            why: error.to_string(),
            is_of_machine: true,
        };
        self.ensure_parts(parts).await.map_err(of_machine)?;
        let open =
            |it: &PartName| LoadDir::open(&self.data_dir, &it.database, &it.table, LoadId(it.part));
        let opened: Result<Vec<LoadDir>, StoreError> = parts.iter().map(open).collect();
        opened.map_err(|error| of_machine(error.into()))
    }

    /// Why a share is not written. A replica that was found damaged meanwhile is given up, and another worker may have a better one.
    pub(super) fn load_failure(&self, error: IngestError) -> LoadTaskError {
        let may_succeed_elsewhere = match &error {
            IngestError::Store(StoreError::Damaged { .. } | StoreError::Missing { .. }) => true,
            _ => error.is_of_machine(),
        };
        if let IngestError::Store(error) = &error
            && let Some(path) = unreadable_file(error)
        {
            self.quarantine(path);
        }
        LoadTaskError {
            why: error.to_string(),
            is_of_machine: may_succeed_elsewhere,
        }
    }
}
