//! What is worth telling of how the columns of a file were found.

use std::path::{Path, PathBuf};

use catalog::{Column, ColumnType};

use super::wrong;
use crate::error::{FoundColumns, IngestError};
use crate::format::{DecidingValue, FileColumns, OddValues};
use crate::mysql_type;
use crate::request::LoadRequest;

/// What is worth knowing about how columns were found.
#[derive(Default)]
pub(super) struct Notes {
    pub always: Vec<String>,
    /// The values by which columns have their types, with the file's name in messages: too much to tell of each load.
    decided: Vec<(PathBuf, DecidingValue)>,
    /// The columns as they were found, if they are those of a file.
    pub found: Option<FoundColumns>,
}

impl Notes {
    /// Of the columns of a file that messages call `file`.
    pub(super) fn of_file(file: &Path, odd: &[OddValues], decided: Vec<DecidingValue>) -> Self {
        let with_file = |decided| (file.to_path_buf(), decided);
        Self {
            always: odd.iter().map(|odd| odd.sentence(file)).collect(),
            decided: decided.into_iter().map(with_file).collect(),
            found: None,
        }
    }

    /// Adds what is told of a dry run alone.
    pub(super) fn tell_all(&mut self) {
        let decided = self.decided.iter();
        self.always
            .extend(decided.map(|(file, decided)| decided.sentence(file)));
    }

    /// Sees that no column of a position was found to be a text.
    ///
    /// # Errors
    /// One was; the error names the first of its values that is no number.
    pub(super) fn check_positions(
        &self,
        request: &LoadRequest,
        columns: &[Column],
    ) -> Result<(), IngestError> {
        let positions = [(&request.ra, "--ra"), (&request.dec, "--dec")];
        for (name, option) in positions {
            let is_it = |column: &str| {
                let name = name.as_deref();
                name.is_some_and(|name| name.eq_ignore_ascii_case(column))
            };
            let is_text = |it: &&Column| is_it(&it.name) && it.ty == ColumnType::Text;
            let found = self.decided.iter().find(|(_, it)| is_it(&it.column));
            if let (Some(column), Some((file, decided))) = (columns.iter().find(is_text), found) {
                let instead = match is_sexagesimal(&decided.value) {
                    true => {
                        "convert hours, minutes and seconds first, as with Astropy: SkyCoord(ra, dec, unit=('hourangle', 'deg')) has ra.deg and dec.deg"
                    }
                    false => {
                        "if it stands for NULL, say so by --null; or correct the line; or declare the column as DOUBLE in a --schema, and rows without a number are \
                         rejected one by one (--max-errors)"
                    }
                };
                return Err(wrong(format!(
                    "{option} {:?} is text by {}:{}: {}, and a position is two numbers of degrees: {instead}",
                    column.name,
                    file.display(),
                    decided.line,
                    decided.value,
                )));
            }
        }
        Ok(())
    }
}

/// Gives the columns of a file without rows, of whose values no types can be inferred, those that their parts in the table need. The note
/// says so.
pub(super) fn give_types(found: &mut FileColumns, request: &LoadRequest) -> Option<String> {
    if !found.has_no_values {
        return None;
    }
    let keys = request.key.iter().chain(&request.own_key);
    let keys = keys.map(|name| (name, ColumnType::Int64));
    let numbers = [&request.ra, &request.dec, &request.order].into_iter();
    let numbers = { numbers.flatten() }.map(|name| (name, ColumnType::Float64));
    for (name, ty) in keys.chain(numbers) {
        let mut columns = found.columns.iter_mut();
        if let Some(column) = columns.find(|it| it.name.eq_ignore_ascii_case(name)) {
            column.ty = ty;
        }
    }
    let types = found.columns.iter().map(|it| (&it.name, it.ty));
    let types = types.map(|(name, ty)| format!("{name} {}", mysql_type::shown(ty)));
    Some(format!(
        "there are no rows of which the types of columns could be inferred: these are {}; --schema declares others",
        types.collect::<Vec<_>>().join(", ")
    ))
}

/// Whether a value, in quotes, is an angle of two or three numbers, as `"10:42:44.3"`, `"-41 16 09"` and `"10h42m"` are.
fn is_sexagesimal(value: &str) -> bool {
    let is_between = |c: char| ": hdms°'\"".contains(c);
    let parts = value.trim_matches('"').split(is_between);
    let numbers: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    matches!(numbers.len(), 2 | 3) && numbers.iter().all(|part| part.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_sexagesimal;

    #[test]
    fn angles_of_several_numbers_are_told_from_other_texts() {
        for value in ["10:42:44.3", "-41 16 09", "10h42m", "+41d16m09s", "00 42"] {
            assert!(is_sexagesimal(&format!("{value:?}")), "{value}");
        }
        for value in ["--", "N/A", "10.5", "", "north of 10", "1 2 3 4"] {
            assert!(!is_sexagesimal(&format!("{value:?}")), "{value}");
        }
    }
}
