//! The columns of keys: that they are integers, and the numbers of texts where rows are told apart by these.

use std::path::{Path, PathBuf};

use catalog::{Column, ColumnType, TableKind};

use super::wrong;
use crate::error::IngestError;
use crate::format::{NearlyIntegers, TableFile};
use crate::mysql_type;
use crate::position::find_column;
use crate::report::grouped;
use crate::request::LoadRequest;
use crate::text_keys::texts_of;

pub(super) const ONLY_DIRECTORS_HAVE_GENERATED_KEYS: &str =
    "--generate-key is for directors, which have a position: give --ra and --dec";

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
            ty = mysql_type::shown(column.ty),
            file = file.display(),
            line = nearly.line,
            value = nearly.value,
            values = grouped(nearly.values),
        )));
    }
    Ok(())
}

/// The request with numbers of texts as keys, where its keys are texts, as names of 2MASS are. Adds their columns behind the others, and says so.
/// `None` for other requests.
pub(super) fn with_text_keys(
    request: &LoadRequest,
    kind: TableKind,
    columns: &mut Vec<Column>,
    notes: &mut Vec<String>,
) -> Option<LoadRequest> {
    if kind == TableKind::Replicated || request.generate_key {
        return None;
    }
    let mut found = None;
    for at in 0..request.key.len() {
        let is = |column: &&Column| column.name.eq_ignore_ascii_case(&request.key[at]);
        let Some(texts) = columns.iter().find(is) else {
            continue;
        };
        if texts.ty != ColumnType::Text {
            continue;
        }
        let texts = texts.name.clone();
        let key = column_of_numbers(columns, &texts);
        if !request.append {
            notes.push(format!(
                "rows are told apart by the text {texts}: the column {key}, which is computed of it, has a number of each text, and is what rows are found and \
                 placed by; conditions and joins on {texts} go by it"
            ));
        }
        found.get_or_insert_with(|| request.clone()).key[at] = key;
    }
    found
}

/// The name of the column with the numbers of these texts, which is added if there is none.
fn column_of_numbers(columns: &mut Vec<Column>, texts: &str) -> String {
    let has_them = |column: &&Column| {
        let of = column.text_key_of();
        of.is_some_and(|of| of.eq_ignore_ascii_case(texts))
    };
    if let Some(column) = columns.iter().find(has_them) {
        return column.name.clone();
    }
    let mut name = format!("{texts}_key");
    let mut number = 1;
    while columns.iter().any(|it| it.name.eq_ignore_ascii_case(&name)) {
        number += 1;
        name = format!("{texts}_key{number}");
    }
    columns.push(Column::of_text_keys(name.clone(), texts));
    name
}

/// Sees that each column of numbers has its texts beside it, and lets no director's row be without.
pub(super) fn check_texts(
    columns: &mut [Column],
    director_key: Option<usize>,
) -> Result<(), IngestError> {
    for at in 0..columns.len() {
        let Some(texts) = columns[at].text_key_of() else {
            continue;
        };
        let beside = texts_of(columns, at);
        let Some(beside) = beside.filter(|beside| columns[*beside].ty == ColumnType::Text) else {
            return Err(wrong(format!(
                "the column {} has the numbers of the texts in {texts}, which is no column of texts of this table",
                columns[at].name
            )));
        };
        if director_key == Some(at) {
            columns[beside].nullable = false;
        }
    }
    Ok(())
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
    let ty = mysql_type::shown(columns[at].ty);
    Err(wrong(format!(
        "{role} {name:?} is of type {ty}: a key must be of an integer type of at most 64 bits"
    )))
}

/// Whether a column is a key of the request.
pub(super) fn is_key(request: &LoadRequest, name: &str) -> bool {
    let mut keys = request.key.iter();
    keys.any(|key| key.eq_ignore_ascii_case(name))
}

/// Adds the column of the generated key before the others, unless the table has it already.
pub(super) fn add_key(
    request: &LoadRequest,
    kind: TableKind,
    files: &[Box<dyn TableFile>],
    columns: &mut Vec<Column>,
) -> Result<(), IngestError> {
    let (TableKind::Director, [key]) = (kind, request.key.as_slice()) else {
        return Err(wrong(ONLY_DIRECTORS_HAVE_GENERATED_KEYS));
    };
    let is_key = |name: &str| is_key(request, name);
    let mut headers = files.iter().filter_map(|file| file.header_names());
    let is_in_file = headers.any(|names| names.iter().any(|name| is_key(name)));
    let has_key = columns.iter().any(|column| is_key(&column.name));
    if is_in_file || (has_key && !request.append && !request.is_share) {
        return Err(wrong(format!(
            "the files have a column {key} already: name the column of the generated keys otherwise by --key, or leave out --generate-key"
        )));
    }
    if !has_key {
        let column = Column {
            name: key.clone(),
            ty: ColumnType::Int64,
            nullable: false,
            declared: None,
        };
        columns.insert(0, column);
    }
    Ok(())
}
