//! The columns of keys: that they are integers, and a key that is made where rows are told apart by a text.

use std::path::{Path, PathBuf};

use catalog::{Column, ColumnType, TableKind};

use super::wrong;
use crate::error::IngestError;
use crate::format::NearlyIntegers;
use crate::position::find_column;
use crate::report::grouped;
use crate::request::{GENERATED_KEY, LoadRequest};

/// A column of which most values are integers, with the file's name in messages.
pub(super) type NearlyIntegersOf = (PathBuf, NearlyIntegers);

pub(super) fn of_file(name: &Path, nearly_integers: Vec<NearlyIntegers>) -> Vec<NearlyIntegersOf> {
    let with_name = |nearly| (name.to_path_buf(), nearly);
    nearly_integers.into_iter().map(with_name).collect()
}

/// Sees that no key is of another type for a few values of a file.
pub(super) fn check_keys(
    request: &LoadRequest,
    columns: &[Column],
    nearly_integers: &[NearlyIntegersOf],
) -> Result<(), IngestError> {
    let is_key = |name: &str| {
        let mut keys = request.key.iter().chain(&request.own_key);
        keys.any(|key| key.eq_ignore_ascii_case(name))
    };
    let spoilt = columns
        .iter()
        .filter(|it| !it.ty.is_integer() && is_key(&it.name));
    for column in spoilt {
        let mut nearly = nearly_integers.iter();
        let Some((file, nearly)) = nearly.find(|(_, nearly)| nearly.column == column.name) else {
            continue;
        };
        let others = match nearly.odd {
            1 => "the only one that is no integer".to_owned(),
            odd => format!("the first of {} that are no integers", grouped(odd)),
        };
        return Err(wrong(format!(
            "the key {name:?} is of type {ty} by {file}:{line}: {value}, {others} of {values} values: correct or remove these lines; or declare the \
             column as BIGINT in a --schema, and they are rejected row by row (--max-errors); or, if they are right, give --text {name}",
            name = column.name,
            ty = column.ty,
            file = file.display(),
            line = nearly.line,
            value = nearly.value,
            values = grouped(nearly.values),
        )));
    }
    Ok(())
}

/// The request with a generated key, for a director whose rows are told apart by a text, as names of 2MASS are; and what is to be said of
/// it. `None` for other requests.
pub(super) fn with_key_for_text(
    request: &LoadRequest,
    kind: TableKind,
    columns: &[Column],
) -> Option<(LoadRequest, String)> {
    let (TableKind::Director, [text], false, false) = (
        kind,
        request.key.as_slice(),
        request.generate_key,
        request.append,
    ) else {
        return None;
    };
    let column = { columns.iter() }.find(|it| it.name.eq_ignore_ascii_case(text))?;
    if column.ty != ColumnType::Text {
        return None;
    }
    let is_free = |name: &String| !columns.iter().any(|it| it.name.eq_ignore_ascii_case(name));
    let names = [GENERATED_KEY.to_owned(), format!("{}_id", request.table)];
    let key = names.into_iter().find(is_free)?;
    let note = format!(
        "{} is a text, and keys are integers: the key is the column {key}, which is made. Children need it; {0} is a column like others, whose values may be there twice",
        column.name
    );
    let request = LoadRequest {
        key: vec![key],
        generate_key: true,
        ..request.clone()
    };
    Some((request, note))
}

/// A text may tell the rows of a director apart, and is no key.
pub(super) fn suggest_generated(error: IngestError, columns: &[Column], key: &str) -> IngestError {
    let is_there = columns
        .iter()
        .any(|column| column.name.eq_ignore_ascii_case(key));
    match error {
        IngestError::Options(sentence) if is_there => wrong(format!(
            "{sentence}; --generate-key without this --key makes one, and keeps {key} as a column"
        )),
        other => other,
    }
}

pub(super) fn integer_column(
    columns: &[Column],
    role: &str,
    name: &str,
) -> Result<usize, IngestError> {
    let at = find_column(columns, role, name)?;
    if columns[at].ty.is_integer() {
        return Ok(at);
    }
    let ty = columns[at].ty;
    Err(wrong(format!(
        "{role} {name:?} is of type {ty}: a key must be of an integer type of at most 64 bits"
    )))
}
