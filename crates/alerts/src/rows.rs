//! Rows on their way in and out: from a client's table to what is kept, and back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options, concat_batches, nullif};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema};
use arrow::error::ArrowError;

use crate::error::{AlertsError, Result};
use crate::layout::{Layout, LayoutColumn};
use crate::schema::{AlertSchema, AlertTable, Column, ColumnType, TableSchema, names};
use crate::store::Values;

/// What is kept of a table: the columns that statements look at, and a payload of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kept {
    /// The latest versions of live objects.
    Latest,
    /// Rows of a table.
    Table(AlertTable),
}

impl Kept {
    pub(crate) const ALL: [Self; 4] = [
        Self::Latest,
        Self::Table(AlertTable::DiaObject),
        Self::Table(AlertTable::DiaSource),
        Self::Table(AlertTable::DiaForcedSource),
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Table(table) => table.name(),
        }
    }

    /// The columns that statements look at.
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Latest | Self::Table(AlertTable::DiaObject) => &[
                names::DIA_OBJECT,
                names::VALIDITY_START,
                names::VALIDITY_END,
                names::N_SOURCES,
            ],
            Self::Table(AlertTable::DiaSource) => &[
                names::DIA_SOURCE,
                names::DIA_OBJECT,
                names::SS_OBJECT,
                names::SS_REASSIGNED,
                names::MIDPOINT,
                names::WITHDRAWN,
            ],
            Self::Table(AlertTable::DiaForcedSource) => &[
                names::DIA_OBJECT,
                names::VISIT,
                names::DETECTOR,
                names::MIDPOINT,
                names::WITHDRAWN,
            ],
        }
    }

    pub(crate) fn schema(self, schema: &AlertSchema) -> &TableSchema {
        match self {
            Self::Latest => schema.latest(),
            Self::Table(table) => schema.table(table),
        }
    }

    /// The columns of the payload.
    pub(crate) fn payload(self, schema: &AlertSchema) -> Vec<LayoutColumn> {
        let columns = self.schema(schema).columns.iter();
        let columns = columns.filter(|column| !self.columns().contains(&column.name.as_str()));
        columns
            .map(|column| LayoutColumn {
                name: column.name.clone(),
                column_type: column.column_type,
            })
            .collect()
    }
}

/// A client's rows in the columns of the schema, in its order. `filled` are the columns that the client need not give, and whose values
/// do not matter.
///
/// # Errors
/// A column that the schema does not have, one that is missing, a value that does not fit or is NULL where it may not be.
pub(crate) fn conformed(
    table: &TableSchema,
    batches: &[RecordBatch],
    filled: &[&str],
) -> Result<RecordBatch> {
    let Some(first) = batches.first() else {
        return Ok(RecordBatch::new_empty(table.arrow()));
    };
    let given = concat_batches(&first.schema(), batches).map_err(invalid(table))?;
    let given_schema = given.schema();
    for (at, field) in given_schema.fields().iter().enumerate() {
        if table.column(field.name()).is_none() {
            return Err(AlertsError::Invalid(format!(
                "{} has no column {} in the schema of this database: leave it out, or add it to the schema",
                table.name,
                field.name()
            )));
        }
        if given_schema.fields()[..at]
            .iter()
            .any(|other| other.name() == field.name())
        {
            let sentence = format!("{} comes with two columns {}", table.name, field.name());
            return Err(AlertsError::Invalid(sentence));
        }
    }
    let rows = given.num_rows();
    let mut columns = Vec::with_capacity(table.columns.len());
    let mut fields = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let is_filled = filled.contains(&column.name.as_str());
        let values = match given.column_by_name(&column.name).filter(|_| !is_filled) {
            Some(values) => converted(table, column, values)?,
            None => missing(table, column, rows, is_filled)?,
        };
        if !column.nullable && !is_filled && values.null_count() > 0 {
            let row = (0..rows)
                .find(|&row| values.is_null(row))
                .unwrap_or_default();
            return Err(AlertsError::Invalid(format!(
                "{}.{} may not be NULL, and is in row {}",
                table.name,
                column.name,
                row + 1
            )));
        }
        fields.push(Field::new(&column.name, column.column_type.arrow(), true));
        columns.push(values);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(invalid(table))
}

fn invalid(table: &TableSchema) -> impl Fn(ArrowError) -> AlertsError {
    let name = table.name.clone();
    move |error| AlertsError::Invalid(format!("{name}: {error}"))
}

/// A client's column in the type of the schema. NaN is NULL.
fn converted(table: &TableSchema, column: &Column, values: &ArrayRef) -> Result<ArrayRef> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let wanted = column.column_type.arrow();
    let values = cast_with_options(values, &wanted, &options).map_err(|error| {
        AlertsError::Invalid(format!(
            "{}.{} does not fit its type, {wanted}: {error}",
            table.name, column.name
        ))
    })?;
    let is_nan = match wanted {
        DataType::Float64 => values
            .as_primitive::<Float64Type>()
            .iter()
            .map(|value| value.map(f64::is_nan))
            .collect(),
        DataType::Float32 => values
            .as_primitive::<Float32Type>()
            .iter()
            .map(|value| value.map(f32::is_nan))
            .collect(),
        _ => return Ok(values),
    };
    nullif(&values, &is_nan).map_err(invalid(table))
}

/// The values of a column that a client does not give.
fn missing(table: &TableSchema, column: &Column, rows: usize, is_filled: bool) -> Result<ArrayRef> {
    let wanted = column.column_type.arrow();
    if let Some(default) = column.default.as_ref().filter(|_| !is_filled) {
        let text = match default {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let texts = arrow::array::StringArray::from_iter_values(std::iter::repeat_n(text, rows));
        return converted(table, column, &(Arc::new(texts) as ArrayRef));
    }
    if column.nullable || is_filled || rows == 0 {
        return Ok(new_null_array(&wanted, rows));
    }
    Err(AlertsError::Invalid(format!(
        "{} comes without its column {}, which may not be NULL",
        table.name, column.name
    )))
}

/// The rows with NULL in the place of infinite values of a column of doubles.
pub(crate) fn without_infinite(rows: &RecordBatch, name: &str) -> Result<RecordBatch> {
    let Ok(at) = rows.schema().index_of(name) else {
        return Ok(rows.clone());
    };
    let values = reals(rows, name).into_iter();
    let finite: Float64Array = values.map(|it| it.filter(|it| it.is_finite())).collect();
    let mut columns = rows.columns().to_vec();
    columns[at] = Arc::new(finite);
    RecordBatch::try_new(rows.schema(), columns).map_err(damaged)
}

/// A column of whole numbers, whatever their width.
pub(crate) fn ints(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let Some(column) = batch.column_by_name(name) else {
        return vec![None; batch.num_rows()];
    };
    let cast = cast_with_options(column, &DataType::Int64, &CastOptions::default());
    cast.map_or_else(
        |_| vec![None; batch.num_rows()],
        |values| values.as_primitive::<Int64Type>().iter().collect(),
    )
}

/// A column of doubles.
pub(crate) fn reals(batch: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    match batch
        .column_by_name(name)
        .and_then(|column| column.as_primitive_opt::<Float64Type>())
    {
        Some(values) => values.iter().collect(),
        None => vec![None; batch.num_rows()],
    }
}

/// The payloads of rows.
pub(crate) fn payloads(batch: &RecordBatch, layout: &Layout) -> Vec<Vec<u8>> {
    let column = |column: &LayoutColumn| {
        let found = batch.column_by_name(&column.name).cloned();
        found.unwrap_or_else(|| new_null_array(&column.column_type.arrow(), batch.num_rows()))
    };
    let columns: Vec<ArrayRef> = layout.columns().iter().map(column).collect();
    layout.encode(&columns, batch.num_rows())
}

/// The layouts that rows may have, by their numbers.
pub(crate) type Layouts = HashMap<i64, Arc<Layout>>;

/// Rows that were found: columns by the names of the schema, layouts, and payloads.
#[derive(Debug)]
pub(crate) struct FoundRows {
    pub(crate) columns: Vec<(&'static str, Values)>,
    pub(crate) layouts: Vec<Option<i64>>,
    pub(crate) payloads: Vec<Option<Vec<u8>>>,
}

impl FoundRows {
    /// The rows of each layout, as numbers of rows, with the payloads checked.
    fn by_layout<'a>(&self, layouts: &'a Layouts) -> Result<Vec<(&'a Layout, Vec<usize>)>> {
        let mut groups: Vec<(i64, Vec<usize>)> = Vec::new();
        for (row, number) in self.layouts.iter().enumerate() {
            let number = number.unwrap_or_default();
            match groups.iter_mut().find(|(other, _)| *other == number) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((number, vec![row])),
            }
        }
        let group = |(number, rows): (i64, Vec<usize>)| match layouts.get(&number) {
            Some(layout) => {
                layout.check(&self.payloads_of(&rows))?;
                Ok((layout.as_ref(), rows))
            }
            None => Err(AlertsError::UnknownLayout { number }),
        };
        groups.into_iter().map(group).collect()
    }

    fn payloads_of(&self, rows: &[usize]) -> Vec<&[u8]> {
        let payload = |&row: &usize| self.payloads[row].as_deref().unwrap_or_default();
        rows.iter().map(payload).collect()
    }

    /// A column of doubles of the payloads, in the order of the rows.
    pub(crate) fn payload_reals(&self, layouts: &Layouts, name: &str) -> Result<Vec<Option<f64>>> {
        let mut found = vec![None; self.payloads.len()];
        for (layout, rows) in self.by_layout(layouts)? {
            let decoded = layout.decode(name, ColumnType::Double, &self.payloads_of(&rows))?;
            for (row, value) in rows.into_iter().zip(decoded.as_primitive::<Float64Type>()) {
                found[row] = value;
            }
        }
        Ok(found)
    }

    /// Tables of the rows for which `keeps` has true, or all; in the columns of `table`, and with `extra` behind them. At least one, which
    /// may have no rows.
    pub(crate) fn assembled(
        &self,
        table: &TableSchema,
        layouts: &Layouts,
        keeps: Option<&[bool]>,
        extra: Option<&'static str>,
    ) -> Result<Vec<RecordBatch>> {
        let schema = match extra {
            None => table.arrow(),
            Some(name) => {
                let fields = table.arrow().fields().iter().cloned().collect::<Vec<_>>();
                let extra = Arc::new(Field::new(name, DataType::Int64, false));
                Arc::new(Schema::new([fields, vec![extra]].concat()))
            }
        };
        let mut batches = Vec::new();
        for (layout, mut rows) in self.by_layout(layouts)? {
            if let Some(keeps) = keeps {
                rows.retain(|&row| keeps[row]);
            }
            let payloads = self.payloads_of(&rows);
            let mut columns = Vec::with_capacity(schema.fields().len());
            for field in schema.fields() {
                let kept = self.columns.iter().find(|(name, _)| name == field.name());
                columns.push(match (kept, table.column(field.name())) {
                    (Some((_, values)), _) => taken(values, &rows, field.data_type())?,
                    (None, Some(column)) => {
                        layout.decode(&column.name, column.column_type, &payloads)?
                    }
                    (None, None) => new_null_array(field.data_type(), rows.len()),
                });
            }
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(damaged)?);
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        Ok(batches)
    }
}

/// Chosen rows of a column, in the type of the schema.
fn taken(values: &Values, rows: &[usize], wanted: &DataType) -> Result<ArrayRef> {
    let array: ArrayRef = match values {
        Values::Int(values) => {
            Arc::new(rows.iter().map(|&row| values[row]).collect::<Int64Array>())
        }
        Values::Real(values) => Arc::new(
            rows.iter()
                .map(|&row| values[row])
                .collect::<Float64Array>(),
        ),
        Values::Bytes(_) | Values::Text(_) => new_null_array(wanted, rows.len()),
    };
    cast_with_options(&array, wanted, &CastOptions::default()).map_err(damaged)
}

fn damaged(error: ArrowError) -> AlertsError {
    AlertsError::Damaged(error.to_string())
}
