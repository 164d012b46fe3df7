//! A table as cone searches serve it: the selected columns and their descriptions.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{TableKind, TableSpec, fold_name};
use engine::ConeTable;

use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::problem::Problem;

/// The verbosity that selects only names and positions.
const LEAST: u8 = 1;
/// The verbosity that selects every column.
const MOST: u8 = 3;

/// The columns of a table that a verbosity selects.
///
/// The server caches these between requests, so they hold no reference to the table: the files of a load that was replaced must be free
/// to be removed.
#[derive(Debug)]
pub(crate) struct ColumnSelection {
    /// Their positions in the table.
    pub(crate) columns: Vec<usize>,
    /// Their descriptions.
    pub(crate) described: Vec<TableColumn>,
}

impl ColumnSelection {
    /// `named` are the columns that the operator has configured for this table.
    ///
    /// # Errors
    /// The operator configured a column that the table does not have.
    pub(crate) fn new(
        cones: &ConeTable,
        named: Option<&[String]>,
        verbosity: u8,
    ) -> Result<Self, Problem> {
        let spec = cones.table().spec();
        let key = identifier(spec).filter(|name| cones.may_read(name));
        let key = key.and_then(|name| number(spec, name));
        let [ra, dec] = cones.position();
        let needed = key.into_iter().chain([ra, dec]);
        let columns: BTreeSet<usize> = match (verbosity, named) {
            (..=LEAST, _) => needed.collect(),
            (MOST.., _) | (_, None) => (0..spec.columns.len()).collect(),
            (_, Some(named)) => {
                let found = named
                    .iter()
                    .map(|name| number(spec, name).ok_or_else(|| unknown(spec, name)));
                found.chain(needed.map(Ok)).collect::<Result<_, _>>()?
            }
        };
        let may_read = |at: &usize| {
            let column = spec.columns.get(*at);
            column.is_some_and(|column| cones.may_read(&column.name))
        };
        let columns: Vec<usize> = columns.into_iter().filter(may_read).collect();
        let described = columns.iter().filter_map(|at| {
            let role = match *at {
                at if Some(at) == key => Role::Identifier,
                at if at == ra => Role::RightAscension,
                at if at == dec => Role::Declination,
                _ => Role::Other,
            };
            Some(TableColumn::of_cone(&cones.field(*at)?, role))
        });
        Ok(Self {
            described: described.collect(),
            columns,
        })
    }
}

/// A table with the selected columns, for the duration of one request.
#[derive(Debug, Clone)]
pub(crate) struct ServedTable {
    pub(crate) cones: ConeTable,
    pub(crate) chosen: Arc<ColumnSelection>,
}

impl ServedTable {
    /// The table's name.
    pub(crate) fn name(&self) -> &str {
        &self.cones.table().spec().name
    }

    /// The selected columns.
    pub(crate) fn described(&self) -> &[TableColumn] {
        &self.chosen.described
    }

    /// A writer for its rows.
    pub(crate) fn writer(&self, format: Format) -> TableWriter<'_> {
        TableWriter::new(format, self.name(), self.described())
    }
}

/// The column that identifies a row: the table's own key, or its director's.
pub(super) fn identifier(spec: &TableSpec) -> Option<&str> {
    let directors = match spec.kind {
        TableKind::Child => spec.directors.first(),
        _ => None,
    };
    let own = spec.key.as_deref();
    own.or(directors.map(|director| director.key.as_str()))
}

fn number(spec: &TableSpec, name: &str) -> Option<usize> {
    let folded = fold_name(name);
    let mut names = spec.columns.iter().map(|column| fold_name(&column.name));
    names.position(|name| name == folded)
}

fn unknown(spec: &TableSpec, name: &str) -> Problem {
    Problem::new(
        axum::http::StatusCode::INTERNAL_SERVER_ERROR,
        format!(
            "the server's configuration names a column {name} of {}.{}, which does not exist",
            spec.database, spec.name
        ),
    )
}
