//! INSERT: the rows of VALUES or of a query as the table's columns store them.

use std::io::BufReader;
use std::iter;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use arrow::array::{ArrayRef, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use catalog::{Column, fold_name};
use futures::StreamExt;
use sql::mysql::{InsertedValue, LoadedField};
use sql::{
    ErrorCode, GivenValue, Interrupt, RowFault, RowWarnings, StoredColumn, StoredType, Warning,
};

use super::rows::{RowFile, all_stored};
use super::text_rows::{TextField, TextRows};
use super::{Change, RowSource, TextFile, default_of, of_file, stored_column};
use crate::ClientError;

/// Expressions of VALUES that one query computes.
const EXPRESSIONS: usize = 200;
/// Rows of a file, and bytes of them, that are stored together.
const ROWS_TOGETHER: usize = 8192;
const BYTES_TOGETHER: usize = 16 << 20;

/// How a table's columns get values.
#[derive(Debug)]
pub(super) struct Insertion {
    columns: Vec<StoredColumn>,
    /// Of each column, which of the given values it gets.
    given: Vec<Option<usize>>,
    /// The values that are given, in each row.
    width: usize,
    /// Of each column its default, where one is needed.
    defaults: Vec<Option<ArrayRef>>,
    /// Of each column whether NULL is its default.
    null_by_default: Vec<bool>,
}

impl Change {
    /// How the columns of a table get values, of which those of these names are given. The defaults of the others are computed.
    pub(super) async fn insertion(
        &self,
        columns: &[Column],
        names: &[String],
    ) -> Result<Insertion, ClientError> {
        let given = columns.iter().map(|column| match &self.rows {
            RowSource::File(file) => file.place_of(&column.name),
            _ => names.iter().position(|name| *name == column.name),
        });
        let given: Vec<Option<usize>> = given.collect();
        let may_be_default = self.values_with_default();
        let assigned = match &self.rows {
            RowSource::File(file) => Some(&file.assigned),
            _ => None,
        };
        let mut defaults = Vec::with_capacity(columns.len());
        for (column, given) in columns.iter().zip(&given) {
            let is_needed = given.is_none_or(|at| may_be_default.contains(&at));
            defaults.push(match is_needed {
                // It gets a value afterwards, whatever it has till then.
                true if assigned.is_some_and(|it| it.gives(&column.name)) => {
                    self.default_value(column).await.ok()
                }
                true => Some(self.default_value(column).await?),
                false => None,
            });
        }
        Ok(Insertion {
            columns: columns.iter().map(stored_column).collect(),
            given,
            width: names.len(),
            defaults,
            null_by_default: { columns.iter() }
                .map(|column| column.nullable && column.default_expression().is_none())
                .collect(),
        })
    }

    /// The places at which rows of VALUES have DEFAULT.
    fn values_with_default(&self) -> Vec<usize> {
        let RowSource::Values(rows) = &self.rows else {
            return vec![];
        };
        let places = rows.iter().flat_map(|row| row.iter().enumerate());
        let mut places: Vec<usize> = places
            .filter(|(_, value)| **value == InsertedValue::Default)
            .map(|(at, _)| at)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// What a column stores of its default: one value.
    pub(super) async fn default_value(&self, column: &Column) -> Result<ArrayRef, ClientError> {
        let default = default_of(column)?;
        let computed = match &default {
            InsertedValue::Expression(text) => self.computed(&[text]).await?,
            _ => vec![],
        };
        let mut computed = computed.iter();
        let stored = stored_column(column);
        let values = iter::once(given(&default, &mut computed));
        all_stored(iter::once(stored.of_values(values)), 0).map(|mut columns| columns.remove(0))
    }

    /// Rejects defaults that their columns cannot hold.
    pub(crate) async fn check_defaults(&self, columns: &[Column]) -> Result<(), ClientError> {
        for column in columns
            .iter()
            .filter(|column| column.default_expression().is_some())
        {
            self.default_value(column).await.map_err(|error| {
                let sentence = format!(
                    "the default of the column {} cannot be used: {}",
                    column.name, error.sentence
                );
                ClientError::new(ErrorCode::INVALID_DEFAULT, sentence)
            })?;
        }
        Ok(())
    }

    /// The values of some expressions, each of a type of its own: a column of one row for each.
    async fn computed(&self, expressions: &[&str]) -> Result<Vec<ArrayRef>, ClientError> {
        let mut computed = Vec::with_capacity(expressions.len());
        for some in expressions.chunks(EXPRESSIONS) {
            computed.extend(self.computed_of(some, "").await?);
        }
        Ok(computed)
    }

    /// The same of a few expressions, which may name columns of the row that a FROM has.
    pub(super) async fn computed_of(
        &self,
        expressions: &[&str],
        from: &str,
    ) -> Result<Vec<ArrayRef>, ClientError> {
        // The end of a query ends what it belongs to: the statement goes on.
        Interrupt::new()
            .scope(self.one_row(expressions, from))
            .await
    }

    async fn one_row(
        &self,
        expressions: &[&str],
        from: &str,
    ) -> Result<Vec<ArrayRef>, ClientError> {
        let selected = expressions.iter().enumerate();
        let selected: Vec<String> = selected
            .map(|(at, text)| format!("({text}) AS `#{at}`"))
            .collect();
        let query = format!("SELECT {}{from}", selected.join(", "));
        let mut result = self.start(&query).await?;
        let mut row = Vec::new();
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 && row.is_empty() {
                let columns = batch.columns().iter();
                row.extend(columns.map(|column| column.slice(0, 1)));
            }
        }
        // Either way there is one row.
        row.resize_with(expressions.len(), || new_null_array(&DataType::Null, 1));
        Ok(row)
    }

    /// Writes rows of VALUES to a file: what each column stores of each value.
    pub(super) async fn write_values(
        &self,
        rows: &[Vec<InsertedValue>],
        path: &Path,
        insertion: &Insertion,
    ) -> Result<(), ClientError> {
        let stored = self.stored_values(rows, insertion).await?;
        let mut file = insertion.file(path)?;
        file.write(stored)?;
        file.finish()
    }

    /// What each column stores of each value of VALUES.
    pub(super) async fn stored_values(
        &self,
        rows: &[Vec<InsertedValue>],
        insertion: &Insertion,
    ) -> Result<Vec<ArrayRef>, ClientError> {
        if let Some(at) = rows.iter().position(|row| row.len() != insertion.width) {
            return Err(self.wrong_width(rows[at].len(), insertion.width, Some(at + 1)));
        }
        let of_columns = self.values_of_columns(rows, insertion).await?;
        let plain = { rows.iter().enumerate() }.filter(|(at, _)| !of_columns.contains_key(at));
        let expressions: Vec<&str> = { plain.flat_map(|(_, row)| row) }
            .filter_map(expression)
            .collect();
        let computed = self.computed(&expressions).await?;
        // Of each row and value, in their order.
        let mut computed = computed.iter();
        let given: Vec<Vec<GivenValue<'_>>> = { rows.iter().enumerate() }
            .map(|(at, row)| match of_columns.get(&at) {
                Some(values) => {
                    let mut values = values.iter();
                    row.iter().map(|it| given(it, &mut values)).collect()
                }
                None => row.iter().map(|it| given(it, &mut computed)).collect(),
            })
            .collect();
        let stored = insertion.columns.iter().enumerate().map(|(at, column)| {
            let (place, default) = (insertion.given[at], insertion.defaults[at].as_ref());
            let default = default.map_or(GivenValue::Null, GivenValue::Computed);
            let value = |row: usize| match place {
                Some(place) if rows[row][place] == InsertedValue::Default => default,
                Some(place) => given[row][place],
                None => default,
            };
            column.of_values((0..rows.len()).map(value))
        });
        all_stored(stored, 0)
    }

    /// Writes the rows of a query to a file: what each column stores of each value.
    pub(super) async fn write_inserted(
        &self,
        query: &str,
        path: &Path,
        insertion: &Insertion,
    ) -> Result<(), ClientError> {
        let mut result = self.start(query).await?;
        let width = result.schema.fields().len();
        if width != insertion.width {
            return Err(self.wrong_width(width, insertion.width, None));
        }
        let mut file = insertion.file(path)?;
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            let stored = insertion.columns.iter().enumerate().map(|(at, column)| {
                match insertion.given[at] {
                    Some(place) => column.of_column(batch.column(place)),
                    None => insertion.not_given(at, batch.num_rows()),
                }
            });
            let stored = all_stored(stored, file.rows)?;
            file.write(stored)?;
        }
        file.finish()
    }

    /// Writes the rows of a client's file to another: what each column stores of each field, or what is nearest to it, with a warning.
    /// `beside` gets the columns of a batch of rows, and their fields.
    pub(super) async fn write_fields(
        &self,
        text: &TextFile,
        insertion: &Insertion,
        file: &mut RowFile,
        beside: impl Fn(&mut Vec<ArrayRef>, &FieldRows<'_>),
    ) -> Result<(), ClientError> {
        let bytes = BufReader::new(text.file.reopen().map_err(of_file)?);
        let mut rows = TextRows::new(bytes, text.form.clone());
        rows.skip_lines().map_err(of_file)?;
        let statement = Interrupt::current_or_new();
        let warnings = Arc::clone(statement.warnings());
        loop {
            let (mut together, mut bytes) = (Vec::new(), 0);
            while together.len() < ROWS_TOGETHER && bytes < BYTES_TOGETHER {
                let Some(fields) = rows.next_row().map_err(of_file)? else {
                    break;
                };
                bytes += { fields.iter().flatten() }.map(Vec::len).sum::<usize>();
                let row = file.rows + together.len() as u64 + 1;
                together.push(text.row(fields, row, &warnings)?);
            }
            let Some(last) = together.last() else {
                return Ok(());
            };
            text.keep(last);
            let stored = insertion.columns.iter().enumerate().map(|(at, column)| {
                let Some(place) = insertion.given[at] else {
                    return insertion.not_given(at, together.len());
                };
                let value = |row: usize| match &together[row][place] {
                    Field::Text(text) => GivenValue::Text(text),
                    Field::Null => GivenValue::Null,
                    Field::Missing => insertion.missing(at),
                };
                let before = file.rows as usize;
                column.of_texts((0..together.len()).map(value), before, |warning| {
                    warnings.add(warning);
                })
            });
            let mut stored = all_stored(stored, file.rows)?;
            beside(
                &mut stored,
                &FieldRows {
                    fields: &together,
                    before: file.rows,
                },
            );
            file.write(stored)?;
            // Whoever ends the statement is noticed here.
            tokio::task::yield_now().await;
        }
    }

    fn wrong_width(&self, given: usize, wanted: usize, row: Option<usize>) -> ClientError {
        let row = row.map(|row| format!(" in row {row}")).unwrap_or_default();
        let table = self.table.shown();
        let sentence = format!("{given} values are given{row} for {wanted} columns of {table}");
        ClientError::new(ErrorCode::WRONG_VALUE_COUNT, sentence)
    }
}

impl Insertion {
    /// What a column gets where a line ends before its field, as MySQL has it: NULL if that is its default, else the empty text or 0.
    fn missing(&self, at: usize) -> GivenValue<'static> {
        match self.columns[at].ty {
            _ if self.null_by_default[at] => GivenValue::Null,
            StoredType::Text(_) | StoredType::Binary { .. } => GivenValue::Text(""),
            // There is no zero date.
            StoredType::Date | StoredType::Time { .. } => GivenValue::Null,
            _ => GivenValue::Number("0"),
        }
    }

    /// What a column stores in each of so many rows for which no value is given: its default.
    fn not_given(&self, at: usize, rows: usize) -> Result<ArrayRef, RowFault> {
        match &self.defaults[at] {
            Some(default) => take(default, &UInt32Array::from(vec![0; rows]), None)
                .map_err(|error| (0, sql::SqlError::new(error.to_string()))),
            None => Ok(new_null_array(&self.columns[at].ty.data_type(), rows)),
        }
    }

    /// A new file for the rows.
    pub(super) fn file(&self, path: &Path) -> Result<RowFile, ClientError> {
        self.file_with(path, &[])
    }

    /// A new file for the rows, with columns behind the table's.
    pub(super) fn file_with(
        &self,
        path: &Path,
        beside: &[(String, DataType)],
    ) -> Result<RowFile, ClientError> {
        let columns = self.columns.iter();
        let columns = columns.map(|it| (it.name.clone(), it.ty.data_type()));
        RowFile::create(path, columns.chain(beside.iter().cloned()))
    }

    /// The column that gets the value at a place.
    pub(super) fn column_at(&self, place: usize) -> Option<&StoredColumn> {
        let at = self.given.iter().position(|given| *given == Some(place))?;
        self.columns.get(at)
    }

    /// What the columns store.
    pub(super) fn columns(&self) -> &[StoredColumn] {
        &self.columns
    }
}

/// Rows of a file of fields, and how many came before them.
pub(super) struct FieldRows<'a> {
    fields: &'a [Vec<Field>],
    pub(super) before: u64,
}

impl FieldRows<'_> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The fields at a place.
    pub(super) fn texts(&self, place: usize) -> impl Iterator<Item = Option<&str>> {
        self.fields.iter().map(move |row| row[place].text())
    }
}

/// A field of a row of a file.
#[derive(Debug)]
enum Field {
    Text(String),
    Null,
    /// The line had ended.
    Missing,
}

impl Field {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Missing => None,
        }
    }
}

impl TextFile {
    /// The place of the field that a column gets.
    fn place_of(&self, column: &str) -> Option<usize> {
        let is_it = |field: &LoadedField| {
            { field.column() }.is_some_and(|name| fold_name(name) == fold_name(column))
        };
        self.fields.iter().position(is_it)
    }

    /// The fields of a row of the file that columns get. Of too many the rest is left out, and for those that are missing columns get
    /// NULL or nothing: both with a warning.
    fn row(
        &self,
        fields: Vec<TextField>,
        row: u64,
        warnings: &RowWarnings,
    ) -> Result<Vec<Field>, ClientError> {
        let (given, wanted) = (fields.len(), self.fields.len());
        if given > wanted {
            warnings.add(Warning {
                code: ErrorCode::TOO_MANY_FIELDS,
                sentence: format!(
                    "Row {row} was truncated; it contained more data than there were input columns"
                ),
            });
        }
        let missing = self.fields.iter().skip(given);
        // A variable is NULL then, which is told of nobody.
        for _ in missing.filter(|it| it.column().is_some()) {
            warnings.add(Warning {
                code: ErrorCode::TOO_FEW_FIELDS,
                sentence: format!("Row {row} doesn't contain data for all columns"),
            });
        }
        let fields = fields.into_iter().map(Some).chain(iter::repeat(None));
        let fields = fields.zip(&self.fields).enumerate();
        let fields = fields.map(|(place, (field, getting))| match field {
            Some(Some(bytes)) => {
                let is_stored = getting.column().is_some() || self.assigned.mentions(place);
                self.text(bytes, row, is_stored).map(Field::Text)
            }
            Some(None) => Ok(Field::Null),
            None => Ok(Field::Missing),
        });
        fields.collect()
    }

    /// Keeps the fields of a row that variables get.
    fn keep(&self, row: &[Field]) {
        let named = self.fields.iter().zip(row);
        let of_variables = named.filter_map(|(field, value)| match field {
            LoadedField::Variable(name) => Some((name.clone(), value.text().map(str::to_owned))),
            LoadedField::Column(_) => None,
        });
        // A panic in another thread leaves the list as it was before.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = of_variables.collect();
    }

    fn text(&self, bytes: Vec<u8>, row: u64, is_stored: bool) -> Result<String, ClientError> {
        if let Some(set) = self.character_set {
            return Ok(set.decode(&bytes).into_owned());
        }
        if !is_stored {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        String::from_utf8(bytes).map_err(|_| {
            let sentence = format!(
                "nothing has changed: row {row} of the file is no text in UTF-8; name its character set, as in CHARACTER SET latin1"
            );
            ClientError::new(ErrorCode::NO_TEXT, sentence)
        })
    }
}

/// The text of a value that is an expression.
pub(super) fn expression(value: &InsertedValue) -> Option<&str> {
    match value {
        InsertedValue::Expression(text) => Some(text),
        _ => None,
    }
}

/// A value as it is stored; the values of expressions are taken one after another.
pub(super) fn given<'a>(
    value: &'a InsertedValue,
    computed: &mut impl Iterator<Item = &'a ArrayRef>,
) -> GivenValue<'a> {
    match value {
        InsertedValue::Null | InsertedValue::Default => GivenValue::Null,
        InsertedValue::Text(text) => GivenValue::Text(text),
        InsertedValue::Number(digits) => GivenValue::Number(digits),
        InsertedValue::Bits(bytes) => GivenValue::Bits(bytes),
        InsertedValue::Expression(_) => computed
            .next()
            .map_or(GivenValue::Null, GivenValue::Computed),
    }
}
