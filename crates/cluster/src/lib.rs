//! Several machines: workers that hold replicas of chunk files and run pieces of queries, and the front end that sends these to them.
//!
//! ```text
//!   front end: catalog, all files ──┬── shares of pieces ──► worker ──► rows, piece by piece, and a footer
//!     ▲        index, plans         ├── assignments ───────► worker: fetches what it lacks, removes what it shall not hold
//!     └── reports, once a second ───┴─────────────────────── worker
//! ```
//!
//! May depend on `engine` and `queries`. Invariants: rows count only if their piece's frame says that they are all, and each piece
//! counts once; a replica, and the front end's own copy, is given up only when the
//! workers that shall hold the file do, whichever of several front ends leads; a worker opens no file that a plan names, and for a load
//! only files below the directories that it was started with;
//! nobody is let in at any port who neither knows the secret nor, in TLS, shows a certificate of the cluster's authority that is not revoked, and
//! with a certificate nobody does more than its role may. Knows nothing of SQL text or of clients' protocols.

mod client;
#[cfg(test)]
mod conformance;
mod connect;
mod credentials;
mod dispatch;
mod error;
mod file_service;
mod frames;
mod front_end;
mod listen;
pub mod messages;
mod operator;
mod placement;
mod scrubs;
mod secret;
mod shuffle;
mod tls;
mod worker;

pub use credentials::CredentialFiles;
pub use error::ClusterError;
pub use front_end::{ClusterOptions, FrontEnd, KeptFiles};
pub use messages::DISK_LIMIT;
pub use operator::Operator;
pub use secret::Secret;
pub use tls::{Authority, RevokedCertificate, Role, certified_name};
pub use worker::{Worker, WorkerOptions};

/// A random number.
///
/// # Errors
/// The system gives none.
pub fn random() -> Result<u64, ClusterError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| ClusterError::Directory {
        path: "/dev/urandom".into(),
        why: error.to_string(),
    })?;
    Ok(u64::from_le_bytes(bytes))
}
