//! The engine's errors, by who has to do something about them.

use catalog::CatalogError;
use datafusion::common::DataFusionError;
use ingest::IngestError;
use sql::{ErrorCode, SqlError};
use store::StoreError;

use crate::shuffle::lost_rows_sentence;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The query has a mistake in it.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A table's files cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No database has this name.
    #[error("there is no database {name}; {hint}")]
    NoDatabase {
        /// The name that was given.
        name: String,
        /// What there is instead.
        hint: String,
    },
    /// The query failed while it ran, for what it says.
    #[error("{0}")]
    Query(String),
    /// The query failed while it ran, and is not to blame.
    #[error("{1}")]
    Server(ErrorCode, String),
    /// Rows that were kept for a shuffle cannot be had.
    #[error("{0}")]
    LostRows(String),
}

impl EngineError {
    /// The number and the state by which MySQL's clients know the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Sql(error) => error.code(),
            Self::Catalog(_) | Self::Store(_) | Self::LostRows(_) => ErrorCode::STORAGE,
            Self::NoDatabase { .. } => ErrorCode::NO_DATABASE,
            Self::Query(sentence) => ErrorCode::of_message(sentence),
            Self::Server(code, _) => *code,
        }
    }

    /// A mistake of the server's own.
    pub fn internal(sentence: impl Into<String>) -> Self {
        Self::Server(ErrorCode::INTERNAL, sentence.into())
    }

    /// Files of the server's own that cannot be read or written.
    pub fn storage(sentence: impl Into<String>) -> Self {
        Self::Server(ErrorCode::STORAGE, sentence.into())
    }

    /// Whoever asks may read no table of this full name, if there is one.
    pub(crate) fn denied_table(name: &str) -> Self {
        let error = SqlError::new(sql::denied_table(name));
        error.with_code(ErrorCode::TABLE_DENIED).into()
    }

    /// Whoever asks may use no database of this name, if there is one.
    pub(crate) fn denied_database(name: &str) -> Self {
        let error = SqlError::new(sql::denied_database(name));
        error.with_code(ErrorCode::DATABASE_DENIED).into()
    }

    /// What a file that a query names is read wrong by.
    pub(crate) fn from_file(cause: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        let code = match cause.downcast_ref() {
            Some(IngestError::TooLarge { .. }) => ErrorCode::PACKET_TOO_LARGE,
            Some(IngestError::Busy { .. }) => ErrorCode::OUT_OF_RESOURCES,
            Some(IngestError::Abandoned) => ErrorCode::INTERRUPTED,
            Some(
                IngestError::DiskFull { .. } | IngestError::Catalog(_) | IngestError::Store(_),
            ) => ErrorCode::STORAGE,
            Some(IngestError::Fault(_)) => ErrorCode::INTERNAL,
            _ => return Self::Query(cause.to_string()),
        };
        SqlError::new(cause.to_string()).with_code(code).into()
    }

    /// An error of the planner or of a running query, in words. Storage errors keep their own.
    pub(crate) fn from_run(error: &DataFusionError) -> Self {
        if let Some(sentence) = lost_rows_sentence(error) {
            return Self::LostRows(sentence);
        }
        match error.find_root() {
            DataFusionError::External(cause) => match cause.downcast_ref::<StoreError>() {
                // What a condition says of a row is no fault of the files.
                Some(StoreError::Condition(cause)) => match cause.downcast_ref() {
                    Some(error) => Self::from_run(error),
                    None => Self::Query(cause.to_string()),
                },
                Some(store) => Self::Store(store.clone()),
                // What a scan tells when it cannot begin.
                None => match cause.downcast_ref() {
                    Some(Self::Store(store)) => Self::Store(store.clone()),
                    Some(Self::Sql(told)) => Self::Sql(told.clone()),
                    // What a function says of a row.
                    _ if cause.is::<SqlError>() => match cause.downcast_ref::<SqlError>() {
                        Some(told) => Self::Sql(told.clone()),
                        None => Self::Query(cause.to_string()),
                    },
                    _ if cause.is::<IngestError>() => Self::from_file(cause.as_ref()),
                    _ => {
                        let error = DataFusionError::Execution(cause.to_string());
                        let told = SqlError::from_datafusion("", &error, &[], &str::to_owned);
                        log_own_mistake(&error, &told);
                        told.into()
                    }
                },
            },
            other => {
                let told = SqlError::from_datafusion("", other, &[], &str::to_owned);
                log_own_mistake(error, &told);
                told.into()
            }
        }
    }
}

/// Writes into the log what users are not told: the engine's own words for a mistake of its own. What is told as a mistake of the
/// statement's is none, whatever the engine takes it for.
pub(crate) fn log_own_mistake(error: &DataFusionError, told: &SqlError) {
    let words = error.to_string();
    if told.code() != ErrorCode::INTERNAL {
        tracing::debug!(words, "a statement failed");
    } else if sql::is_own_mistake(&words) {
        tracing::error!(mistake = words, "the engine made a mistake of its own");
    }
}

/// Carries an error of ours through DataFusion.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Internal error: ... This issue was likely caused by a bug in DataFusion's code` was told to users.
    #[test]
    fn mistakes_of_the_engine_are_told_in_our_words_however_they_come() {
        let internal = || DataFusionError::Internal("offsets are no offsets".to_owned());
        let carried = external(std::io::Error::other(internal()));
        for error in [internal(), internal().context("a scan"), carried] {
            let told = EngineError::from_run(&error);
            assert_eq!(told.code(), ErrorCode::INTERNAL, "{told}");
            assert!(!told.to_string().contains("DataFusion"), "{told}");
        }
    }

    /// A chunk file that could not be opened was once told as an error of the query (1105), one that was read in part as
    /// an error of the files (1030): the first comes as an error of a scan, the second as one of the store.
    #[test]
    fn damage_is_told_as_such_however_it_comes() {
        let damaged = || StoreError::Damaged {
            path: "chunk_1.mrd".into(),
            what: "a test".into(),
        };
        for error in [external(damaged()), external(EngineError::from(damaged()))] {
            let told = EngineError::from_run(&error);
            assert_eq!(told.code(), ErrorCode::STORAGE, "{told}");
            assert_eq!(told.to_string(), damaged().to_string());
        }
    }
}
