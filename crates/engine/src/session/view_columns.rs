//! Which columns of its definition's result a view has, and what they are called.

use std::collections::HashMap;

use catalog::{View, fold_name};
use sql::{ErrorCode, SqlError};

use crate::EngineError;

/// The names of a view's columns: those of a list, or what heads the result of its query.
pub(super) fn named_columns(
    list: Vec<String>,
    headings: &[String],
) -> Result<Vec<String>, EngineError> {
    if list.is_empty() {
        return Ok(headings.to_vec());
    }
    if list.len() == headings.len() {
        return Ok(list);
    }
    let sentence = format!(
        "the list behind the view's name has {} columns, and its query {}: write as many",
        list.len(),
        headings.len()
    );
    let error = SqlError::new(sentence).with_code(ErrorCode::VIEW_WRONG_LIST);
    Err(error.into())
}

/// The places of a view's columns in the result of its definition, by what heads them there. Of headings that are the same each has the
/// next place.
pub(super) fn places(view: &View, headings: &[String]) -> Result<Vec<usize>, EngineError> {
    let headings: Vec<String> = headings.iter().map(|it| fold_name(it)).collect();
    let mut taken: HashMap<String, usize> = HashMap::new();
    let wanted = view.query.headings.iter();
    let place = |heading: &String| {
        let folded = fold_name(heading);
        let before = taken.entry(folded.clone()).or_default();
        let mut all = (0..headings.len()).filter(|at| headings[*at] == folded);
        let found = all.nth(*before);
        *before += 1;
        found.ok_or_else(|| {
            let sentence = format!("its query has no column {heading} any more");
            EngineError::from(SqlError::new(sentence).with_code(ErrorCode::NO_COLUMN))
        })
    };
    wanted.map(place).collect()
}
