//! Tables that are made with columns and of a query: `CREATE TABLE t (a INT, b DOUBLE) AS SELECT id, flux AS b FROM ...`.
//!
//! Columns are matched by their names. As in MySQL, those that the query lacks come first and have their defaults; then come the query's in
//! their order, of which those that are declared store what their types say, and the others what the query gives. (MySQL 8.4 Reference
//! Manual, 15.1.20.4.)

use std::path::Path;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use catalog::{Column, fold_name};
use futures::StreamExt;
use sql::mysql::TablePartition;
use sql::{ErrorCode, RowFault, SqlError, StoredColumn};

use super::layout::{Layout, TypedColumn, names_of};
use super::rows::{RowFile, all_stored};
use super::{Change, stored_column};
use crate::ClientError;

/// Where a column of the table has its values.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// The declared column at this place, which the query lacks: its default.
    Default(usize),
    /// The query's column at this place, as a declared one stores it.
    Stored(usize, StoredColumn),
    /// The query's column at this place.
    AsGiven(usize),
}

impl Change {
    /// Writes the rows of a query to a file, with the columns of a table that is declared with some. Returns all of its columns, and the
    /// layouts that it may have.
    pub(super) async fn write_with_columns(
        &self,
        query: &str,
        path: &Path,
        declared: &[Column],
        partition: Option<&TablePartition>,
    ) -> Result<(Vec<Column>, Vec<Layout>), ClientError> {
        self.check_defaults(declared).await?;
        // Of those for which the query has values none is needed.
        let mut defaults = Vec::with_capacity(declared.len());
        for column in declared {
            defaults.push(self.default_value(column).await);
        }
        let mut result = self.start(query).await?;
        let fields = { result.schema.fields().iter() }.map(|field| field.as_ref().clone());
        let fields: Vec<Field> = fields.collect();
        let (columns, sources) = columns_of_both(declared, &fields)?;
        for source in &sources {
            if let Source::Default(at) = source
                && let Err(error) = &defaults[*at]
            {
                return Err(error.clone());
            }
        }
        let named = columns.iter().zip(&sources);
        let named = named.map(|(column, source)| (column.name.clone(), source.ty(column, &fields)));
        let mut file = RowFile::create(path, named)?;
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            let stored = sources.iter().map(|source| match source {
                Source::Default(at) => repeated(&defaults[*at], batch.num_rows()),
                Source::Stored(at, column) => column.of_column(batch.column(*at)),
                Source::AsGiven(at) => Ok(ArrayRef::clone(batch.column(*at))),
            });
            let stored = all_stored(stored, file.rows)?;
            file.write(stored)?;
        }
        file.finish()?;
        let layouts = match partition {
            Some(partition) => {
                let typed = columns.iter().zip(&sources);
                let typed: Vec<TypedColumn> = typed
                    .map(|(column, source)| source.typed(column, &fields))
                    .collect();
                vec![self.layout_said(partition, &typed).await?]
            }
            None => self.layouts_of_both(&columns, &sources, &fields).await?,
        };
        Ok((columns, layouts))
    }

    /// The layouts that the rows may have, the best first: as those of the query alone, but that no declared column becomes a position
    /// which is no floating-point number.
    async fn layouts_of_both(
        &self,
        columns: &[Column],
        sources: &[Source],
        fields: &[Field],
    ) -> Result<Vec<Layout>, ClientError> {
        let both = columns.iter().zip(sources);
        let both = both.map(|(column, source)| source.field(column, fields));
        let mut layouts = self.layouts_of_rows(&both.collect::<Vec<_>>()).await?;
        let is_unfit = |name: &str| {
            let column = columns.iter().find(|column| column.name == name);
            column.is_some_and(|it| it.declared.is_some() && !it.ty.is_float())
        };
        layouts.retain(|layout| {
            let position = layout.placing_position();
            position.is_none_or(|(ra, dec)| !is_unfit(ra) && !is_unfit(dec))
        });
        if layouts.is_empty() {
            layouts.push(Layout::whole(&names_of(columns)));
        }
        Ok(layouts)
    }
}

impl Source {
    /// The type in which the values are written.
    fn ty(&self, column: &Column, fields: &[Field]) -> DataType {
        match self {
            Self::AsGiven(at) => fields[*at].data_type().clone(),
            Self::Stored(_, stored) => stored.ty.data_type(),
            Self::Default(_) => stored_column(column).ty.data_type(),
        }
    }

    /// What the column can be.
    fn typed(&self, column: &Column, fields: &[Field]) -> TypedColumn {
        match self {
            Self::AsGiven(at) => TypedColumn::of_field(&fields[*at]),
            Self::Stored(..) | Self::Default(_) => TypedColumn::of_column(column),
        }
    }

    /// The column with what is said of it where it comes from.
    fn field(&self, column: &Column, fields: &[Field]) -> Field {
        match self {
            Self::AsGiven(at) => fields[*at].clone(),
            Self::Stored(at, stored) => fields[*at].clone().with_data_type(stored.ty.data_type()),
            Self::Default(_) => Field::new(&column.name, self.ty(column, fields), true),
        }
    }
}

/// A default in so many rows.
fn repeated(default: &Result<ArrayRef, ClientError>, rows: usize) -> Result<ArrayRef, RowFault> {
    let failed = |sentence: String| (0, SqlError::new(sentence));
    let default = default.as_ref();
    let default = default.map_err(|error| failed(error.sentence.clone()))?;
    let places = UInt32Array::from(vec![0; rows]);
    take(default, &places, None).map_err(|error| failed(error.to_string()))
}

/// The columns of a table that is declared with some and has the rows of a query, and where each has its values.
fn columns_of_both(
    declared: &[Column],
    fields: &[Field],
) -> Result<(Vec<Column>, Vec<Source>), ClientError> {
    let is = |one: &str, other: &str| fold_name(one) == fold_name(other);
    let twice = declared.iter().enumerate().find(|(at, column)| {
        let before = &declared[..*at];
        before.iter().any(|it| is(&it.name, &column.name))
    });
    if let Some((_, column)) = twice {
        let sentence = format!("the column {} is declared twice", column.name);
        return Err(ClientError::new(ErrorCode::COLUMN_TWICE, sentence));
    }
    let (mut columns, mut sources) = (Vec::new(), Vec::new());
    for (at, column) in declared.iter().enumerate() {
        if !fields.iter().any(|field| is(field.name(), &column.name)) {
            columns.push(column.clone());
            sources.push(Source::Default(at));
        }
    }
    for (at, field) in fields.iter().enumerate() {
        if fields[..at].iter().any(|it| is(it.name(), field.name())) {
            let sentence = format!(
                "the query has two columns that are called {}: give one of them another name with AS",
                field.name()
            );
            return Err(ClientError::new(ErrorCode::COLUMN_TWICE, sentence));
        }
        let own = { declared.iter() }.find(|column| is(&column.name, field.name()));
        let (column, source) = match own {
            Some(own) => {
                let column = Column {
                    name: field.name().clone(),
                    ..own.clone()
                };
                let stored = stored_column(&column);
                (column, Source::Stored(at, stored))
            }
            None => (column_of(field)?, Source::AsGiven(at)),
        };
        columns.push(column);
        sources.push(source);
    }
    Ok((columns, sources))
}

/// A column of a query as a table has it.
fn column_of(field: &Field) -> Result<Column, ClientError> {
    let ty = ingest::column_type(field.data_type()).map_err(|_| {
        let sentence = format!(
            "the column {} of the query is of no type that a table has: CAST it, as to CHAR",
            field.name()
        );
        ClientError::new(ErrorCode::OTHER, sentence)
    })?;
    Ok(Column {
        name: field.name().clone(),
        ty,
        nullable: true,
        declared: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(columns: &[(&str, &str)]) -> Vec<Column> {
        { columns.iter() }
            .map(|(name, ty)| ingest::declared_column(name, ty).unwrap())
            .collect()
    }

    fn fields(columns: &[(&str, DataType)]) -> Vec<Field> {
        { columns.iter() }
            .map(|(name, ty)| Field::new(*name, ty.clone(), true))
            .collect()
    }

    #[test]
    fn columns_that_the_query_lacks_come_first() {
        let declared = declared(&[("a", "INT"), ("B", "DECIMAL(8,2) NOT NULL"), ("c", "TEXT")]);
        let fields = fields(&[("x", DataType::Int64), ("b", DataType::Utf8View)]);
        let (columns, sources) = columns_of_both(&declared, &fields).unwrap();
        assert_eq!(names_of(&columns), ["a", "c", "x", "b"]);
        let types: Vec<String> = columns.iter().map(|it| it.ty.to_string()).collect();
        let expected = [declared[0].ty, declared[2].ty].map(|it| it.to_string());
        assert_eq!(types[..2], expected);
        assert_eq!(
            sources[..3],
            [Source::Default(0), Source::Default(2), Source::AsGiven(0)]
        );
        let Source::Stored(1, stored) = &sources[3] else {
            panic!("{:?}", sources[3]);
        };
        assert_eq!(stored.ty.to_string(), "DECIMAL(8,2)");
        assert!(!stored.nullable);
        assert_eq!(
            columns[3].declared.as_deref(),
            Some("DECIMAL(8,2) NOT NULL")
        );
        assert_eq!(columns[2].declared, None);
    }

    #[test]
    fn names_that_occur_twice_are_rejected() {
        let code = |columns: &[(&str, &str)], of_query: &[(&str, DataType)]| {
            let both = columns_of_both(&declared(columns), &fields(of_query));
            both.unwrap_err().code
        };
        let int = DataType::Int64;
        let twice = [("a", "INT"), ("A", "INT")];
        assert_eq!(code(&twice, &[]), ErrorCode::COLUMN_TWICE);
        let of_query = [("b", int.clone()), ("B", int)];
        assert_eq!(code(&[("a", "INT")], &of_query), ErrorCode::COLUMN_TWICE);
    }
}
