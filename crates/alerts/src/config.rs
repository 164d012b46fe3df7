//! What is known of an alert database beside its store: where that is, and which other database it follows.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{AlertsError, Result};
use crate::follow::Follows;

/// Where rows are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "store", rename_all = "lowercase")]
pub enum StoreKind {
    /// In a file beside the configuration.
    Sqlite,
    /// In a PostgreSQL database.
    Postgres {
        /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
        url: String,
    },
}

impl StoreKind {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }
}

/// What is known of a database beside its store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    #[serde(flatten)]
    pub(crate) kind: StoreKind,
    /// The database that is followed, until this one is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<Follows>,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                let path = path.to_owned();
                return Err(AlertsError::File { path, source });
            }
        };
        let config = serde_json::from_slice(&text);
        config
            .map(Some)
            .map_err(|error| AlertsError::Damaged(format!("{}: {error}", path.display())))
    }

    /// It may hold a password, and appears whole.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let text = serde_json::to_string_pretty(self)?;
        let temporary = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::File::open(directory)?.sync_all()
    }
}
