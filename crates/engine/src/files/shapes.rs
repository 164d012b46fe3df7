//! Columns of files that are geometry: readers give texts of degrees, and ADQL has geometries of them.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use ingest::RowFile;
use sql::functions::GeometryKind;

/// The kinds of geometry of some columns of a file, by their places; none where the session has no geometry.
pub(super) fn kinds(
    file: &RowFile,
    columns: &[usize],
    has_geometry: bool,
) -> Vec<Option<GeometryKind>> {
    let kind = |at: &usize| file.shape(*at).and_then(GeometryKind::of_xtype);
    let kinds = columns.iter().map(kind);
    kinds.map(|kind| kind.filter(|_| has_geometry)).collect()
}

/// The schema of columns of these kinds.
pub(super) fn shaped(schema: &Schema, kinds: &[Option<GeometryKind>]) -> Schema {
    let fields = schema.fields().iter().zip(kinds);
    let shaped = fields.map(|(field, kind)| {
        let field = field.as_ref().clone();
        match kind {
            Some(kind) => field.with_data_type(kind.data_type()),
            None => field,
        }
    });
    Schema::new(shaped.collect::<Vec<Field>>())
}

/// Columns of these kinds of those that were read.
pub(super) fn shapes(
    columns: &[ArrayRef],
    kinds: &[Option<GeometryKind>],
) -> Result<Vec<ArrayRef>> {
    let columns = columns.iter().zip(kinds);
    let shapes = columns.map(|(column, kind)| match kind {
        Some(kind) => kind.read(column.as_string::<i32>()),
        None => Ok(column.clone()),
    });
    shapes.collect()
}
