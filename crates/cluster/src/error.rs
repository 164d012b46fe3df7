//! What can go wrong with a cluster, in sentences that say what to do.

use std::path::PathBuf;

use engine::EngineError;
use store::StoreError;

/// Why something cannot be done with a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The file with the secret cannot be used.
    #[error("the secret of the cluster in {} cannot be used: {why}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The certificates of a member cannot be used.
    #[error("the certificates in {} cannot be used: {why}", dir.display())]
    Certificates {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with them.
        why: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        why: String,
    },
    /// Another member does not answer as it should.
    #[error("{member} {why}")]
    Member {
        /// Its address.
        member: String,
        /// What it did.
        why: String,
    },
    /// A directory of the cluster cannot be used.
    #[error("{}: {why}", path.display())]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The front end cannot be one of those that are there.
    #[error("{0}")]
    Shared(String),
    /// A load cannot be done.
    #[error("{0}")]
    Loading(String),
    /// The archive cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Files cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ClusterError {
    /// What the member at an address did.
    pub(crate) fn member(address: &str, why: impl Into<String>) -> Self {
        Self::Member {
            member: address.to_owned(),
            why: why.into(),
        }
    }
}
