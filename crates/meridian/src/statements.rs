//! The execution of statements' texts, and the writing of their results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use engine::{EngineError, QueryResult, Session};
use futures::StreamExt;
use sql::Dialect;

use crate::console::remark;
use crate::failure::Failure;
use crate::output::{Destination, Layout, Output, open_output};
use crate::sql::Format;

/// How results are written.
#[derive(Debug, Clone)]
pub struct ResultWriter {
    /// The form.
    pub format: Format,
    /// How the rows of a table are laid out.
    pub layout: Layout,
    /// Where they go.
    pub destination: Destination,
    /// What is told of each result besides.
    pub remarks: Remarks,
    /// The dialect of the statements, which decides how errors are told.
    pub dialect: Dialect,
}

/// What has been executed of the texts of a command.
#[derive(Debug, Default)]
pub struct Executed {
    /// All statements.
    pub statements: usize,
    /// Those whose results were written.
    results: usize,
}

impl Executed {
    /// Begins to write so many more results.
    ///
    /// # Errors
    /// They would be several in a file that has room for one.
    pub fn begin_results(&mut self, count: usize, format: Format) -> Result<(), Failure> {
        self.results += count;
        if self.results > 1 && format.is_one_file() {
            return Err(Failure::new(
                "a file in Parquet or FITS holds one result: give one statement at a time",
            ));
        }
        Ok(())
    }
}

/// What is told of a result on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remarks {
    /// Nothing.
    None,
    /// The number of rows.
    Rows,
    /// The number of rows, and the time.
    RowsAndTime,
}

impl ResultWriter {
    /// Executes the statements of a text and writes their results.
    pub async fn execute(
        &self,
        session: &Session,
        text: &str,
        executed: &mut Executed,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        if !self.format.is_one_file()
            && let Some(result) = session
                .execute_cached(text)
                .await
                .map_err(rejected(self.dialect))?
        {
            executed.statements += 1;
            executed.begin_results(1, self.format)?;
            return self.write_and_report(result, start).await;
        }
        let statements = session.parse(text).await.map_err(rejected(self.dialect))?;
        executed.statements += statements.len();
        executed.begin_results(statements.len(), self.format)?;
        for statement in statements {
            let start = Instant::now();
            let result = session
                .run(text, statement)
                .await
                .map_err(rejected(self.dialect))?;
            self.write_and_report(result, start).await?;
        }
        Ok(())
    }

    async fn write_and_report(
        &self,
        mut result: QueryResult,
        start: Instant,
    ) -> Result<(), Failure> {
        let warnings = std::mem::take(&mut result.warnings);
        let row_warnings = Arc::clone(&result.row_warnings);
        let rows = self.write(result).await?;
        for warning in warnings.into_iter().chain(row_warnings.take()) {
            remark(&format!("meridian: warning {warning}"));
        }
        self.report(rows, start.elapsed());
        Ok(())
    }

    /// Opens the output of a result.
    ///
    /// # Errors
    /// It cannot be written, or its format cannot hold these columns.
    pub fn open(&self, schema: &SchemaRef) -> Result<Box<dyn Output>, Failure> {
        open_output(self.format, self.layout, &self.destination, schema)
    }

    /// The number of rows and the time are printed besides the result, not in it.
    pub fn report(&self, rows: u64, time: Duration) {
        let plural = if rows == 1 { "" } else { "s" };
        self.report_done(&format!("{rows} row{plural}"), time);
    }

    /// The same of a statement that changes rows.
    pub fn report_change(&self, rows: u64, time: Duration) {
        let plural = if rows == 1 { "" } else { "s" };
        self.report_done(&format!("{rows} row{plural} changed"), time);
    }

    fn report_done(&self, what: &str, time: Duration) {
        match self.remarks {
            Remarks::None => {}
            Remarks::Rows => remark(what),
            Remarks::RowsAndTime => remark(&format!("{what} in {}", readable(time))),
        }
    }

    async fn write(&self, mut result: QueryResult) -> Result<u64, Failure> {
        let mut output = self.open(&result.schema)?;
        let mut rows = 0;
        while let Some(batch) = result.batches.next().await {
            let batch = batch.map_err(rejected(self.dialect))?;
            rows += batch.num_rows() as u64;
            if !output.write(&batch)? {
                break;
            }
        }
        output.finish()?;
        Ok(rows)
    }
}

/// An error as it is reported: with its number where MySQL's is the dialect.
pub fn rejected(dialect: Dialect) -> impl Fn(EngineError) -> Failure {
    move |error| match dialect {
        Dialect::MySql => Failure::new(format!("error {}: {error}", error.code())),
        Dialect::Adql => Failure::new(error),
    }
}

fn readable(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.2} s"),
        seconds => format!("{} min {:.0} s", seconds as u64 / 60, seconds % 60.0),
    }
}
