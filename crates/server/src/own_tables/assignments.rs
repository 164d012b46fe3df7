//! SET of LOAD DATA: columns get values that are computed from the fields of a row.
//!
//! The fields are written to a file first, columns and variables alike, and a query of this file computes the values. MySQL assigns from
//! left to right, and a later expression sees what the earlier ones have stored: so there is a file and a query for each step of
//! assignments that mention nothing of each other.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use catalog::{Column, TableSpec, fold_name};
use engine::ReceivedFile;
use futures::StreamExt;
use ingest::{DecodeBudget, FileFormat};
use sql::mysql::{
    ColumnAssignment, FileForm, LoadedField, may_mention, with_columns_of_variables,
    without_database,
};
use sql::{ErrorCode, Interrupt, StoredColumn};
use tempfile::NamedTempFile;

use super::insertion::Insertion;
use super::rows::{RowFile, all_stored};
use super::{Change, ROWS, RowSource, TextFile, default_of, of_file, quoted};
use crate::ClientError;

/// The name of the column that has the numbers of rows, unless a table has one of this name.
const ROW: &str = "#row";

/// What columns get, in steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assignments {
    /// Columns with the expressions of their values, which see what the steps before have stored.
    steps: Vec<Vec<(String, String)>>,
    /// The columns of the variables that are mentioned: their places among the fields, and their names.
    variables: Vec<(usize, String)>,
    /// The column of the rows' numbers.
    row: String,
}

impl Assignments {
    /// What a statement assigns to columns of a table.
    ///
    /// # Errors
    /// The table has no such column, or an expression cannot be read.
    pub(crate) fn of(
        spec: &TableSpec,
        assigned: &[ColumnAssignment],
        fields: &[LoadedField],
    ) -> Result<Self, ClientError> {
        let named = |field: &LoadedField| match field {
            LoadedField::Variable(name) => Some(name.to_ascii_lowercase()),
            LoadedField::Column(_) => None,
        };
        // Of a variable that is named twice, the last field counts.
        let mut variables: Vec<(usize, String, String)> = Vec::new();
        for (place, name) in fields.iter().enumerate() {
            let Some(name) = named(name) else {
                continue;
            };
            variables.retain(|(_, known, _)| *known != name);
            let column = unused(&format!("@{name}"), spec);
            variables.push((place, name, column));
        }
        let columns: Vec<(String, String)> = { variables.iter() }
            .map(|(_, name, column)| (name.clone(), column.clone()))
            .collect();
        let mut steps: Vec<Vec<(String, String)>> = Vec::new();
        for (name, expression) in assigned {
            let column = { spec.columns.iter() }.find(|it| fold_name(&it.name) == fold_name(name));
            let column = column.ok_or_else(|| no_column(spec, name))?;
            let expression = expression_for(column, expression, spec)?;
            let expression = with_columns_of_variables(&expression, &columns)?;
            let fits = match steps.last() {
                Some(step) => {
                    let before: Vec<&str> = step.iter().map(|(it, _)| it.as_str()).collect();
                    !before.contains(&column.name.as_str()) && !may_mention(&expression, &before)?
                }
                None => false,
            };
            match steps.last_mut() {
                Some(step) if fits => step.push((column.name.clone(), expression)),
                _ => steps.push(vec![(column.name.clone(), expression)]),
            }
        }
        let mut mentioned = Vec::new();
        for (place, _, column) in variables {
            let mut is_mentioned = false;
            for (_, expression) in steps.iter().flatten() {
                is_mentioned |= may_mention(expression, &[&column])?;
            }
            if is_mentioned {
                mentioned.push((place, column));
            }
        }
        Ok(Self {
            steps,
            variables: mentioned,
            row: unused(ROW, spec),
        })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a column gets a value.
    pub(super) fn gives(&self, column: &str) -> bool {
        self.steps.iter().flatten().any(|(name, _)| name == column)
    }

    /// Whether the field at a place is that of a variable which is mentioned.
    pub(super) fn mentions(&self, place: usize) -> bool {
        self.variables.iter().any(|(it, _)| *it == place)
    }

    /// The columns behind the table's in the files of the steps.
    fn beside(&self) -> Vec<(String, DataType)> {
        let variables = self.variables.iter();
        let variables = variables.map(|(_, name)| (name.clone(), DataType::Utf8));
        let row = (self.row.clone(), DataType::Int64);
        variables.chain([row]).collect()
    }
}

/// The expression that a column gets, without the names of databases.
fn expression_for(
    column: &Column,
    expression: &str,
    spec: &TableSpec,
) -> Result<String, ClientError> {
    if expression.eq_ignore_ascii_case("default") {
        default_of(column)?;
        return Ok(column.default_expression().unwrap_or("NULL").to_owned());
    }
    Ok(without_database(expression, &spec.database, &spec.name)?)
}

fn no_column(spec: &TableSpec, name: &str) -> ClientError {
    let sentence = format!("{} has no column {name}", spec.name);
    ClientError::new(ErrorCode::NO_COLUMN, sentence)
}

/// A name that no column of the table has.
fn unused(name: &str, spec: &TableSpec) -> String {
    let mut name = name.to_owned();
    while spec.columns.iter().any(|it| fold_name(&it.name) == name) {
        name.push('_');
    }
    name
}

impl TextFile {
    /// The same with a file that has no rows.
    ///
    /// # Errors
    /// There is no room for the file.
    pub(crate) fn of_no_rows(&self) -> Result<Self, ClientError> {
        Ok(Self {
            file: NamedTempFile::new().map_err(of_file)?,
            form: FileForm {
                skipped: 0,
                ..self.form.clone()
            },
            character_set: self.character_set,
            fields: self.fields.clone(),
            assigned: self.assigned.clone(),
            last: Arc::default(),
        })
    }
}

impl Change {
    /// Computes what a file's rows would be, without storing anything.
    ///
    /// # Errors
    /// An expression cannot be evaluated.
    pub(crate) async fn check_fields(self) -> Result<(), ClientError> {
        let RowSource::File(file) = &self.rows else {
            return Ok(());
        };
        let table = self.table.find().await?;
        let insertion = self.insertion(&table.spec().columns, &[]).await?;
        let directory = tempfile::tempdir().map_err(of_file)?;
        Box::pin(self.write_file(file, directory.path(), &insertion)).await
    }

    /// Writes the rows of a client's file to another: fields, and what is computed from them.
    pub(super) async fn write_file(
        &self,
        text: &TextFile,
        directory: &Path,
        insertion: &Insertion,
    ) -> Result<(), ClientError> {
        let assigned = &text.assigned;
        if assigned.is_empty() {
            let mut file = insertion.file(&directory.join(ROWS))?;
            self.write_fields(text, insertion, &mut file, |_, _| {})
                .await?;
            return file.finish();
        }
        let mut from = directory.join("fields.parquet");
        let mut file = insertion.file_with(&from, &assigned.beside())?;
        let beside = |columns: &mut Vec<ArrayRef>, rows: &super::insertion::FieldRows<'_>| {
            for (place, _) in &assigned.variables {
                let texts: StringArray = rows.texts(*place).collect();
                columns.push(Arc::new(texts));
            }
            let first = rows.before as i64 + 1;
            let numbers = first..first + rows.len() as i64;
            columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
        };
        self.write_fields(text, insertion, &mut file, beside)
            .await?;
        file.finish()?;
        let last = assigned.steps.len() - 1;
        for (at, step) in assigned.steps.iter().enumerate() {
            let (to, beside) = match at == last {
                true => (directory.join(ROWS), Vec::new()),
                false => (
                    directory.join(format!("step{at}.parquet")),
                    assigned.beside(),
                ),
            };
            let mut file = insertion.file_with(&to, &beside)?;
            // The end of a query ends what it belongs to: the statement goes on.
            let query = Interrupt::new();
            let written = self.write_step(assigned, step, &from, &mut file, insertion, &beside);
            query.scope(Box::pin(written)).await?;
            for warning in query.warnings().take() {
                Interrupt::current_or_new().warnings().add(warning);
            }
            file.finish()?;
            std::fs::remove_file(&from).map_err(of_file)?;
            from = to;
        }
        Ok(())
    }

    /// Computes the values of a step, for the rows of a file.
    async fn write_step(
        &self,
        assigned: &Assignments,
        step: &[(String, String)],
        from: &Path,
        file: &mut RowFile,
        insertion: &Insertion,
        beside: &[(String, DataType)],
    ) -> Result<(), ClientError> {
        let _received = self.open_for_queries(from)?;
        let query = self.query_of_step(assigned, step, from, insertion.columns());
        let mut result = self.start(&query).await?;
        let columns = insertion.columns();
        let row_at = columns.len() + assigned.variables.len();
        let statement = Interrupt::current_or_new();
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            let numbers = cast(batch.column(row_at), &DataType::Int64).map_err(of_file)?;
            let numbers = numbers.as_primitive::<Int64Type>();
            let row_of = |row: usize| match row < numbers.len() {
                true => usize::try_from(numbers.value(row)).unwrap_or_default(),
                false => 0,
            };
            let stored = columns.iter().enumerate().map(|(at, column)| {
                let values = batch.column(at);
                if !step.iter().any(|(name, _)| *name == column.name) {
                    // It has its value, or gets one later.
                    let given = StoredColumn {
                        nullable: true,
                        ..column.clone()
                    };
                    return given.of_column(values);
                }
                let warn = |warning| statement.warnings().add(warning);
                let adjusted = column.of_column_adjusted(values, row_of, warn);
                // Rows are counted from 0 where others are told of them.
                adjusted.map_err(|(row, error)| (row.saturating_sub(1), error))
            });
            let mut stored = all_stored(stored, 0)?;
            for (at, (_, ty)) in beside.iter().enumerate() {
                let values = batch.column(columns.len() + at);
                stored.push(cast(values, ty).map_err(of_file)?);
            }
            file.write(stored)?;
        }
        Ok(())
    }

    /// The query of a step: the table's columns, those of variables, and the numbers of rows.
    fn query_of_step(
        &self,
        assigned: &Assignments,
        step: &[(String, String)],
        from: &Path,
        columns: &[StoredColumn],
    ) -> String {
        let mut selected = Vec::with_capacity(columns.len() + 1);
        for (at, column) in columns.iter().enumerate() {
            let value = step.iter().find(|(name, _)| *name == column.name);
            selected.push(match value {
                Some((_, expression)) => format!("({expression}) AS `#{at}`"),
                None => format!("{} AS `#{at}`", quoted(&column.name)),
            });
        }
        for (at, (name, _)) in assigned.beside().iter().enumerate() {
            selected.push(format!("{} AS `#{}`", quoted(name), columns.len() + at));
        }
        let path = from.display().to_string();
        let path = path.replace('\\', "\\\\").replace('\'', "''");
        let function = FileFormat::Parquet.function();
        let alias = quoted(&self.table.table);
        let selected = selected.join(", ");
        format!("SELECT {selected} FROM {function}('{path}') AS {alias}")
    }

    /// Opens a file of the server's own, so that queries may name it while the result is held.
    fn open_for_queries(&self, path: &Path) -> Result<ReceivedFile, ClientError> {
        let files = self.sessions.received();
        let budget = DecodeBudget::unlimited();
        Ok(files.open(path, FileFormat::Parquet, None, budget)?)
    }
}
