//! The warnings of a query beside its stored result: a block file whose only block has a line for each.
//!
//! It gets its name before the result gets its own, so the warnings of a result that is there are complete. Where there are none there is no
//! file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use engine::EngineError;
use sql::Warning;

use crate::block_file::{BlockFile, Tag};

const WARNINGS: u32 = 1;

/// Where the warnings of the result at a path are: `warnings-2` for `result-2`.
pub(crate) fn path_beside(result: &Path) -> PathBuf {
    let name = result.file_name().unwrap_or_default().to_string_lossy();
    result.with_file_name(name.replacen("result", "warnings", 1))
}

/// Writes the warnings of the result that will be at a path.
pub(crate) fn write(result: &Path, warnings: &[Warning]) -> Result<(), EngineError> {
    let path = path_beside(result);
    let unusable =
        |error| EngineError::storage(format!("cannot write {}: {error}", path.display()));
    // Of a process that was killed.
    remove(&path).map_err(unusable)?;
    if warnings.is_empty() {
        return Ok(());
    }
    let unfinished = path.with_extension("unfinished");
    remove(&unfinished).map_err(unusable)?;
    let (file, _) = BlockFile::append_to(&unfinished)?;
    let tag = Tag {
        kind: WARNINGS,
        phase: 0,
        piece: 0,
        run: 0,
        rows: warnings.len() as u64,
    };
    file.append(tag, &lines(warnings))?;
    file.sync()?;
    fs::rename(&unfinished, &path).map_err(unusable)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The warnings beside the result at a path.
pub(crate) fn read(result: &Path) -> Result<Vec<Warning>, EngineError> {
    let path = path_beside(result);
    if !path.exists() {
        return Ok(vec![]);
    }
    let (file, blocks) = BlockFile::open(&path)?;
    let mut warnings = Vec::new();
    for block in blocks.iter().filter(|block| block.tag.kind == WARNINGS) {
        warnings.extend(of_lines(&file.read(block)?));
    }
    Ok(warnings)
}

/// Warnings as bytes: a line for each.
pub(crate) fn lines(warnings: &[Warning]) -> Vec<u8> {
    let lines: Vec<String> = warnings.iter().map(Warning::line).collect();
    lines.join("\n").into_bytes()
}

/// The warnings of such bytes.
pub(crate) fn of_lines(bytes: &[u8]) -> Vec<Warning> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().filter_map(Warning::of_line).collect()
}

#[cfg(test)]
mod tests {
    use sql::ErrorCode;

    use super::*;

    #[test]
    fn warnings_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let result = directory.path().join("result");
        let warning = |sentence: &str| Warning {
            code: ErrorCode::TRUNCATED_VALUE,
            sentence: sentence.to_owned(),
        };
        // It is being written, too.
        let unfinished = result.with_extension("unfinished");
        fs::write(&unfinished, "rows").unwrap();
        let two = vec![
            warning("Truncated incorrect DOUBLE value: '7 x'"),
            warning("é"),
        ];
        for warnings in [vec![], two.clone(), vec![], two] {
            write(&result, &warnings).unwrap();
            assert_eq!(read(&result).unwrap(), warnings);
        }
        let of_two_lines = warning("a\nb");
        write(&result, std::slice::from_ref(&of_two_lines)).unwrap();
        assert_eq!(read(&result).unwrap(), [warning("a b")]);
        assert_eq!(fs::read(&unfinished).unwrap(), b"rows");
        fs::write(path_beside(&result), "damaged").unwrap();
        assert!(read(&result).is_err());
    }
}
