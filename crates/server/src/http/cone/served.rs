//! A table as cone searches give it: which of its columns, and what these are.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{TableKind, TableSpec, fold_name};
use engine::ConeTable;

use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::problem::Problem;

/// The verbosity that asks for no more than names and positions.
const LEAST: u8 = 1;
/// The verbosity that asks for everything.
const MOST: u8 = 3;

/// The columns of a table that a verbosity asks for.
///
/// These are kept in mind from request to request, and so hold on to nothing: the files of a load that was replaced must be free to
/// go.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Their numbers.
    pub(crate) columns: Vec<usize>,
    /// What they are.
    pub(crate) described: Vec<TableColumn>,
}

impl Chosen {
    /// `named` are the columns that the archive's operator has named for this table.
    ///
    /// # Errors
    /// The operator named a column that the table has not.
    pub(crate) fn new(
        cones: &ConeTable,
        named: Option<&[String]>,
        verbosity: u8,
    ) -> Result<Self, Problem> {
        let spec = cones.table().spec();
        let key = identifier(spec).and_then(|name| number(spec, name));
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
        let columns: Vec<usize> = columns.into_iter().collect();
        let schema = cones.columns();
        let described = columns.iter().map(|at| {
            let role = match *at {
                at if Some(at) == key => Role::Identifier,
                at if at == ra => Role::RightAscension,
                at if at == dec => Role::Declination,
                _ => Role::Other,
            };
            TableColumn::of_cone(schema.field(*at), role)
        });
        Ok(Self {
            described: described.collect(),
            columns,
        })
    }
}

/// A table for the time of one request, with the columns that are given of it.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) cones: ConeTable,
    pub(crate) chosen: Arc<Chosen>,
}

impl Served {
    /// The table's name.
    pub(crate) fn name(&self) -> &str {
        &self.cones.table().spec().name
    }

    /// The columns that are given.
    pub(crate) fn described(&self) -> &[TableColumn] {
        &self.chosen.described
    }

    /// Writes rows of it.
    pub(crate) fn writer(&self, format: Format) -> TableWriter<'_> {
        TableWriter::new(format, self.name(), self.described())
    }
}

/// The column that names a row: the table's own key, else its director's.
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
            "the server's configuration names a column {name} of {}.{}, which there is not",
            spec.database, spec.name
        ),
    )
}
