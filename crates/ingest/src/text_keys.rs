//! Numbers of texts by which rows are told apart: they are computed wherever rows come in, whatever the files have in their column.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use catalog::{Column, Table, TableKind, TableSpec, fold_name, text_key};

use crate::error::IngestError;
use crate::mysql_type;
use crate::plan::Roles;
use crate::row_batch::RowBatch;

/// The column of texts whose numbers a column has.
pub(crate) fn texts_of(columns: &[Column], at: usize) -> Option<usize> {
    let texts = fold_name(&columns.get(at)?.text_key_of()?);
    columns.iter().position(|it| fold_name(&it.name) == texts)
}

/// The columns of a table's numbers of texts, each with that of its texts.
#[derive(Debug)]
pub(crate) struct TextKeys(Vec<(usize, usize)>);

impl TextKeys {
    /// Of a table with these columns.
    pub(crate) fn of(columns: &[Column]) -> Self {
        let pairs = (0..columns.len()).filter_map(|at| Some((at, texts_of(columns, at)?)));
        Self(pairs.collect())
    }

    /// The same rows with the numbers of their texts.
    pub(crate) fn compute(&self, batch: RowBatch) -> Result<RowBatch, IngestError> {
        if self.0.is_empty() {
            return Ok(batch);
        }
        let RowBatch { columns, rows } = batch;
        let mut arrays = columns.columns().to_vec();
        for (key, texts) in &self.0 {
            arrays[*key] = numbers_of(&arrays[*texts])?;
        }
        let columns = RecordBatch::try_new(columns.schema(), arrays)?;
        Ok(RowBatch { columns, rows })
    }
}

fn numbers_of(texts: &ArrayRef) -> Result<ArrayRef, IngestError> {
    let texts = match texts.data_type() {
        DataType::Utf8View => Arc::clone(texts),
        _ => cast(texts, &DataType::Utf8View)?,
    };
    let texts = texts.as_string_view().iter();
    let numbers: Int64Array = texts.map(|text| text.map(text_key)).collect();
    Ok(Arc::new(numbers))
}

/// How messages name a director's key in a row: the text, where it is one.
pub(crate) struct KeyNames<'a> {
    /// The texts' column and its number.
    texts: Option<(usize, &'a Column)>,
}

impl<'a> KeyNames<'a> {
    pub(crate) fn of(columns: &'a [Column], key: usize) -> Self {
        Self {
            texts: texts_of(columns, key).map(|at| (at, &columns[at])),
        }
    }

    /// The same where the key is known by the name that a request gives it, which may be that of the texts.
    pub(crate) fn of_key(columns: &'a [Column], key: &str) -> Self {
        let key = fold_name(key);
        let has_texts = |it: &Column| it.text_key_of().is_some_and(|of| fold_name(&of) == key);
        let numbers = columns.iter().position(has_texts);
        let at = numbers.or_else(|| columns.iter().position(|it| fold_name(&it.name) == key));
        at.map_or(Self { texts: None }, |at| Self::of(columns, at))
    }

    /// Why a row has no key.
    pub(crate) fn missing(&self) -> String {
        match self.texts {
            Some((_, texts)) => format!("the key {} is NULL", texts.name),
            None => "the key is NULL or does not fit into a 64-bit integer".to_owned(),
        }
    }

    /// Why a row is refused whose key the table has, given its key and its columns.
    pub(crate) fn known(&self, key: i64, arrays: &[ArrayRef], row: usize) -> String {
        let Some((at, texts)) = self.texts else {
            return format!("the table has the key {key} already: a director's key must be unique");
        };
        let text = cast(&arrays[at].slice(row, 1), &DataType::Utf8);
        let text = text.map_or(String::new(), |text| {
            format!(" {:?}", text.as_string::<i32>().value(0))
        });
        format!(
            "the table has the {}{text} already, or one with the same 64-bit number: a director's key must be unique",
            texts.name
        )
    }

    /// Why a row is refused whose key a row of the table, or of a file before its own, has.
    pub(crate) fn earlier(&self, key: i64, at: &str) -> String {
        match self.texts {
            Some((_, texts)) => format!(
                "its {} occurs before, {at}, or has the same 64-bit number as one there: a director's key must be unique",
                texts.name
            ),
            None => format!("the key {key} occurs before, {at}: a director's key must be unique"),
        }
    }

    /// Why a row is refused whose key an earlier row has, which is there.
    pub(crate) fn repeated(&self, key: i64, first: &str) -> String {
        self.earlier(key, &format!("at {first}"))
    }
}

/// Sees that texts are the keys of directors of which texts are the keys, and integers of others.
pub(crate) fn check_directors<'a>(
    directors: impl Iterator<Item = &'a Table>,
    columns: &[Column],
    roles: &Roles,
) -> Result<(), IngestError> {
    let keys = match roles {
        Roles::Child(child) => vec![child.key],
        Roles::Match { keys } => keys.to_vec(),
        Roles::Director { .. } | Roles::Replicated => return Ok(()),
    };
    for (director, key) in directors.zip(keys) {
        let spec = &director.spec;
        let (own, named) = (columns[key].text_key_of(), &columns[key].name);
        let sentence = match (texts_of_key(spec), own) {
            (None, Some(texts)) => format!(
                "--key {texts} is a text, and the key of {} is {}, an integer: give the column that holds it",
                spec.name,
                spec.key.as_deref().unwrap_or("none")
            ),
            (Some(texts), None) if fold_name(&texts) == fold_name(named) => format!(
                "the key of {} is the text {texts}, and {named} is of type {}: give --text {named}, or declare it as a text in a --schema",
                spec.name,
                mysql_type::shown(columns[key].ty)
            ),
            _ => continue,
        };
        return Err(IngestError::Options(sentence));
    }
    Ok(())
}

/// The column of texts that are the key of a director.
pub(crate) fn texts_of_key(spec: &TableSpec) -> Option<String> {
    let key = spec.key.as_deref();
    let key = key.filter(|_| spec.kind == TableKind::Director)?;
    spec.column(key)?.text_key_of()
}
