//! `read_parquet('...')` and its kin in FROM: files that a query names.
//!
//! A file is a table that is nowhere loaded: its rows are read for each query anew. Only sessions of somebody who may read
//! the files of this machine, or has sent one, have these functions ([`SessionOptions::files`](crate::SessionOptions)).

mod access;
mod scan;
mod shapes;

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use catalog::fold_name;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ingest::{FieldDescription, FileFormat, RowFile};
use sql::Dialect;
use sql::functions::GeometryKind;

use crate::error::external;

pub use access::{FileAccess, ReceivedFile, ReceivedFiles};
pub use scan::FileScanExec;

/// The functions by their names. In ADQL columns that are said to be geometry are.
pub(crate) fn functions(
    access: &FileAccess,
    dialect: Dialect,
) -> Vec<(&'static str, Arc<dyn TableFunctionImpl>)> {
    let function = |format| {
        let function: Arc<dyn TableFunctionImpl> = Arc::new(ReadFile {
            format,
            access: access.clone(),
            has_geometry: dialect == Dialect::Adql,
        });
        (format.function(), function)
    };
    FileFormat::ALL.into_iter().map(function).collect()
}

/// `read_x('path')`.
#[derive(Debug)]
struct ReadFile {
    format: FileFormat,
    access: FileAccess,
    has_geometry: bool,
}

impl TableFunctionImpl for ReadFile {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let name = self.format.function();
        if matches!(self.access, FileAccess::Nothing) {
            return not_here(name);
        }
        let [Expr::Literal(path, _)] = args.exprs() else {
            return plan_err!("{name} takes the path of one file, as in {name}('stars.csv')");
        };
        let (ScalarValue::Utf8(Some(path)) | ScalarValue::Utf8View(Some(path))) = path else {
            return plan_err!("{name} takes the path of one file, as in {name}('stars.csv')");
        };
        let path = Path::new(path);
        let Some(file) = self.access.open(path, self.format).map_err(external)? else {
            return not_here(name);
        };
        Ok(Arc::new(FileTable::of(file, self.has_geometry)))
    }
}

fn not_here<T>(name: &str) -> Result<T> {
    plan_err!("{name} is not available here: this session does not read files")
}

/// A file as a table.
#[derive(Debug)]
pub(crate) struct FileTable {
    file: Arc<RowFile>,
    /// Its columns under their folded names.
    schema: SchemaRef,
    has_geometry: bool,
}

impl FileTable {
    fn of(file: Arc<RowFile>, has_geometry: bool) -> Self {
        let all: Vec<usize> = (0..file.schema().fields().len()).collect();
        let kinds = shapes::kinds(&file, &all, has_geometry);
        Self {
            schema: read_schema(&file, file.schema(), &kinds),
            file,
            has_geometry,
        }
    }

    /// The columns under the names that they have in the file.
    pub fn declared(&self) -> &SchemaRef {
        self.file.schema()
    }

    /// What the file says of a column, by its folded name.
    pub fn described(&self, name: &str) -> Option<FieldDescription> {
        let columns = self.schema.fields().iter();
        let at = columns.zip(0..).find(|(field, _)| field.name() == name)?.1;
        self.file.described(at)
    }

    /// The (folded) names of the columns that the file says are the position.
    pub fn position(&self) -> Option<[String; 2]> {
        let position = self.file.position()?;
        Some(position.map(|name| fold_name(&name)))
    }
}

/// Columns of a file as they are read: those of a file without rows are NULL, which compares with values of all types.
fn read_schema(file: &RowFile, columns: &Schema, kinds: &[Option<GeometryKind>]) -> SchemaRef {
    let columns = folded(&shapes::shaped(columns, kinds));
    if !file.is_untyped() {
        return columns;
    }
    let fields = columns.fields().iter();
    let untyped = fields.map(|field| field.as_ref().clone().with_data_type(DataType::Null));
    Arc::new(Schema::new(untyped.collect::<Vec<Field>>()))
}

/// The same columns under their folded names.
fn folded(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let folded = fields.map(|field| field.as_ref().clone().with_name(fold_name(field.name())));
    Arc::new(Schema::new(folded.collect::<Vec<Field>>()))
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let scan = FileScanExec::try_new(Arc::clone(&self.file), columns, self.has_geometry)?;
        Ok(Arc::new(scan))
    }
}
