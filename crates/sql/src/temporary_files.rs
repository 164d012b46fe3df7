//! What is said of an operator that has no room for its temporary files.

use datafusion::common::DataFusionError;

use crate::{ErrorCode, SqlError};

/// An error of an operator that could not spill: its temporary files are as large as they may be, or their disk is full.
pub(crate) fn full(error: &DataFusionError) -> Option<SqlError> {
    const LIMIT: &str = "exceeded the allowable limit of ";
    const FULL: &str = "(os error 28)";
    if !matches!(
        error.find_root(),
        DataFusionError::ArrowError(..) | DataFusionError::IoError(_)
    ) {
        return None;
    }
    let message = error.to_string();
    let what = match message.split_once(LIMIT) {
        Some((_, rest)) => {
            let limit = rest.split(". ").next().unwrap_or(rest);
            format!(
                "the temporary files of all statements would take more than their limit of {limit}"
            )
        }
        None if message.contains(FULL) => "the disk of the temporary files is full".to_owned(),
        None => return None,
    };
    let sentence = format!(
        "what this statement sorts, groups or joins exceeds the memory, and {what}: ask for fewer rows or columns at a time, or try again when fewer statements run"
    );
    Some(SqlError::new(sentence).with_code(ErrorCode::TEMPORARY_FULL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_cannot_spill_is_told_what_to_do() {
        let spilled = |why: std::io::Error| {
            let error = DataFusionError::from(arrow::error::ArrowError::from(why));
            let told = SqlError::from_datafusion("SELECT 1", &error, &[], &str::to_owned);
            (told.to_string(), told.code())
        };
        let limit = "The used disk space during the spilling process has exceeded the allowable limit of 1024.0 KB. Please try ...";
        let (sentence, code) = spilled(std::io::Error::other(limit));
        assert_eq!(code, ErrorCode::TEMPORARY_FULL);
        assert!(
            sentence.contains("more than their limit of 1024.0 KB: ask"),
            "{sentence}"
        );
        let (sentence, code) = spilled(std::io::Error::from_raw_os_error(28));
        assert_eq!(code, ErrorCode::TEMPORARY_FULL);
        assert!(
            sentence.contains("the disk of the temporary files is full"),
            "{sentence}"
        );
        let (_, code) = spilled(std::io::Error::other("something else"));
        assert_ne!(code, ErrorCode::TEMPORARY_FULL);
    }
}
