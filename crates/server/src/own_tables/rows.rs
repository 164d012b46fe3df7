//! The file in which the rows of a statement are before they are loaded.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use catalog::Column;
use engine::{EngineError, NO_DATABASE, QueryResult, Session, StoredRows};
use futures::StreamExt;
use result_formats::{ResultFormat, ResultWriter};
use sql::{Connection, ErrorCode, RowFault};

use super::change_check::of_own_query;
use super::{Change, Filling, RowSource, WrittenRows, of_file, stored_column};
use crate::ClientError;

/// A file that rows are written to.
pub(super) struct RowFile {
    schema: SchemaRef,
    writer: ResultWriter<BufWriter<File>>,
    /// How many there are.
    pub(super) rows: u64,
}

impl RowFile {
    /// A new file, with columns any of which may be NULL.
    pub(super) fn create(
        path: &Path,
        columns: impl Iterator<Item = (String, DataType)>,
    ) -> Result<Self, ClientError> {
        let fields = columns.map(|(name, ty)| Field::new(name, ty, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let out = BufWriter::new(File::create(path).map_err(of_file)?);
        let writer = ResultWriter::new(ResultFormat::Parquet, &schema, out).map_err(of_file)?;
        Ok(Self {
            schema,
            writer,
            rows: 0,
        })
    }

    pub(super) fn write(&mut self, columns: Vec<ArrayRef>) -> Result<(), ClientError> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(of_file)?;
        self.rows += batch.num_rows() as u64;
        self.writer.write(&batch).map_err(of_file)
    }

    pub(super) fn finish(self) -> Result<(), ClientError> {
        let mut out = self.writer.finish().map_err(of_file)?;
        out.flush().map_err(of_file)
    }
}

/// Writes a file of these columns that has no rows.
pub(super) fn write_no_rows(path: &Path, columns: &[Column]) -> Result<(), ClientError> {
    let columns = columns.iter().map(|column| {
        let stored = stored_column(column);
        (stored.name, stored.ty.data_type())
    });
    RowFile::create(path, columns)?.finish()
}

/// Writes the rows of a stored result to a file. Returns its columns, with what is said of them.
pub(super) async fn write_stored(
    rows: &StoredRows,
    path: &Path,
) -> Result<Vec<Field>, ClientError> {
    let fields = { rows.schema.fields().iter() }.map(|field| field.as_ref().clone());
    let fields: Vec<Field> = fields.collect();
    let named = { fields.iter() }.map(|it| (it.name().clone(), it.data_type().clone()));
    let mut file = RowFile::create(path, named)?;
    let mut batches = (rows.open)();
    while let Some(batch) = batches.next().await {
        file.write(batch?.columns().to_vec())?;
    }
    file.finish()?;
    Ok(fields)
}

/// The columns of a batch, or the error of the first row that cannot be stored; `before` rows came before it.
pub(super) fn all_stored(
    columns: impl Iterator<Item = Result<ArrayRef, RowFault>>,
    before: u64,
) -> Result<Vec<ArrayRef>, ClientError> {
    let (mut stored, mut first): (_, Option<RowFault>) = (Vec::new(), None);
    for column in columns {
        match column {
            Ok(column) => stored.push(column),
            Err(fault) if first.as_ref().is_none_or(|(row, _)| fault.0 < *row) => {
                first = Some(fault);
            }
            Err(_) => {}
        }
    }
    match first {
        None => Ok(stored),
        Some((row, error)) => Err(no_row(
            before + row as u64 + 1,
            error.code(),
            error.sentence(),
        )),
    }
}

/// The error for a row that cannot be stored.
fn no_row(row: u64, code: ErrorCode, why: &str) -> ClientError {
    let sentence = format!("a row cannot be stored, and nothing has changed. Row {row}: {why}");
    ClientError::new(code, sentence)
}

impl Change {
    /// Starts a query of the statement, all of whose rows are wanted.
    pub(super) async fn start(&self, query: &str) -> Result<QueryResult, ClientError> {
        Ok(self.try_start(query).await?)
    }

    async fn try_start(&self, query: &str) -> Result<QueryResult, EngineError> {
        let database = self.connection.database.as_deref();
        let session: Arc<Session> = match (&self.rows, self.names_files) {
            (_, true) => self.sessions.reading_files(NO_DATABASE).await?,
            // The query reads the fields from a file.
            (RowSource::File(_), _) => {
                let database = database.unwrap_or(NO_DATABASE);
                self.sessions.reading_files(database).await?
            }
            (_, false) => self.sessions.of(database).await?,
        };
        // A limit of what a client shows would cut the table short without a word.
        let mut connection = Connection::clone(&self.connection);
        connection.variables.set("sql_select_limit", None)?;
        (connection.most_rows, connection.most_bytes) = (None, None);
        connection.inserts = matches!(self.filling, Filling::More(_));
        let mut parsed = session.parse_one_for(query, &connection).await?;
        // Plans that are kept have parameters in the places of numbers, and these the digits of doubles.
        parsed.of_connection = true;
        session.run(query, parsed).await
    }

    /// Writes the rows of a query to a file as they are, under its own names or those of these columns, for which the server has written
    /// the query itself. Returns the columns, with what is said of them. With marks, the last two columns say of each row whether it matches
    /// and whether it changes.
    pub(super) async fn write(
        &self,
        query: &str,
        path: &Path,
        columns: Option<&[Column]>,
        has_marks: bool,
    ) -> Result<(Vec<Field>, WrittenRows), ClientError> {
        let told = |error| match columns {
            Some(_) => of_own_query(error),
            None => ClientError::from(error),
        };
        let mut result = self.try_start(query).await.map_err(told)?;
        let marks = if has_marks { 2 } else { 0 };
        let width = result.schema.fields().len().saturating_sub(marks);
        let fields = &result.schema.fields()[..width];
        let fields: Vec<Field> = match columns {
            Some(columns) => { columns.iter().zip(fields) }
                .map(|(column, field)| field.as_ref().clone().with_name(&column.name))
                .collect(),
            None => fields.iter().map(|field| field.as_ref().clone()).collect(),
        };
        let named = { fields.iter() }.map(|it| (it.name().clone(), it.data_type().clone()));
        let mut file = RowFile::create(path, named)?;
        let mut written = WrittenRows::default();
        while let Some(batch) = result.batches.next().await {
            let batch = batch.map_err(told)?;
            if has_marks {
                written.matched += ones(&batch, width)?;
                written.changed += ones(&batch, width + 1)?;
            }
            let stored = batch.columns()[..width].to_vec();
            if let Some(columns) = columns {
                reject_nulls(&stored, columns, file.rows)?;
            }
            file.write(stored)?;
        }
        written.rows = file.rows;
        file.finish()?;
        Ok((fields, written))
    }
}

fn reject_nulls(stored: &[ArrayRef], columns: &[Column], before: u64) -> Result<(), ClientError> {
    for (values, column) in stored.iter().zip(columns) {
        if column.nullable || values.null_count() == 0 {
            continue;
        }
        let row = (0..values.len()).find(|row| values.is_null(*row));
        let row = before + row.unwrap_or(0) as u64 + 1;
        let why = format!("the column {} cannot be NULL", column.name);
        return Err(no_row(row, ErrorCode::NULL_VALUE, &why));
    }
    Ok(())
}

/// How many rows have a 1 in a column.
fn ones(batch: &RecordBatch, column: usize) -> Result<u64, ClientError> {
    let numbers = cast(batch.column(column), &DataType::Int64).map_err(of_file)?;
    let sum = arrow::compute::sum(numbers.as_primitive::<Int64Type>());
    Ok(sum.unwrap_or(0).unsigned_abs())
}
