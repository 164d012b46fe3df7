//! A table as it becomes a catalogue: the queries that give its cells and their rows.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use catalog::{Position, Table, TableKind, fold_name};
use engine::{Archive, EngineError, QueryResult, Session};
use futures::StreamExt;
use sky::healpix::MAX_DEPTH;
use sql::Dialect;

use crate::error::HatsError;
use crate::tiles::{Counts, Tile, Tiling};

/// The column with the number of the cell of a row, at the deepest depth.
pub const CELL_COLUMN: &str = "_healpix_29";

/// The dialect of its queries.
pub const DIALECT: Dialect = Dialect::Adql;

/// The names of the tables in queries.
const TABLE: &str = "t";
const DIRECTOR: &str = "d";

/// A table that becomes a catalogue.
#[derive(Debug)]
pub struct Catalogue {
    archive: Arc<Archive>,
    session: Arc<Session>,
    /// The table as it was found.
    pub table: Table,
    /// The director by whose rows the table's rows have their positions, as it was found.
    director: Option<Director>,
    /// The columns of the position, as they are called in the files.
    pub position: Position,
    /// The conditions by which rows are released to whoever asks, if that is not all rows, and the hour, since these may name the time.
    released_by: Option<(Vec<String>, u64)>,
}

/// The director of a child that has no positions of its own.
#[derive(Debug)]
struct Director {
    table: Table,
    /// Its key, and the child's column with it.
    keys: [String; 2],
    position: Position,
}

impl Catalogue {
    /// Looks at a table of an archive. The session, of the same archive, is one of [`DIALECT`].
    ///
    /// # Errors
    /// There is no such table, or its rows have no positions.
    pub async fn open(
        archive: &Arc<Archive>,
        session: Arc<Session>,
        database: &str,
        name: &str,
    ) -> Result<Self, HatsError> {
        let full_name = format!("{database}.{name}");
        let Some(found) = archive.table(database, name).await? else {
            return Err(match archive.view(database, name).await? {
                Some(_) => HatsError::IsView(full_name),
                None => HatsError::NoTable(full_name),
            });
        };
        let mut released_by: Vec<String> = Vec::new();
        released_by.extend(archive.release_of(&found).map(str::to_owned));
        // Who may read other columns has another catalogue.
        let seen = archive.catalog().rights().seen_table(found.table.clone());
        let table = seen.ok_or(HatsError::NoTable(full_name))?;
        let director = Director::of(archive, &table, &mut released_by).await?;
        let position = match (&table.spec.position, &director) {
            (Some(position), _) => position.clone(),
            (None, Some(director)) => director.names_in(&table),
            (None, None) => {
                return Err(HatsError::NoPosition {
                    table: table.spec.full_name(),
                    kind: table.spec.kind.to_string(),
                });
            }
        };
        Ok(Self {
            session,
            archive: Arc::clone(archive),
            table,
            director,
            position,
            released_by: (!released_by.is_empty()).then(|| (released_by, hour())),
        })
    }

    /// The table's full name.
    pub fn name(&self) -> String {
        self.table.spec.full_name()
    }

    /// What tells states of the table apart: two with the same have the same rows, and the same is said of them.
    pub fn state(&self) -> String {
        let tables = [
            Some(&self.table),
            self.director.as_ref().map(|it| &it.table),
        ];
        let states = tables.into_iter().flatten().map(|table| {
            let (placement, origins) = (table.placement, table.origins());
            format!(
                "{} {placement} {origins:?} {:?} {:?}",
                table.id, table.spec, table.metadata
            )
        });
        let mut states: Vec<String> = states.collect();
        // Who sees other rows has another catalogue.
        states.extend(self.released_by.as_ref().map(|it| format!("{it:?}")));
        states.join("; ")
    }

    /// Counts the rows by cells, and cuts the table into tiles.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn tiling(&self, most_rows: u64, max_order: u8) -> Result<Tiling, HatsError> {
        let mut counts = Counts::new(max_order);
        let mut numbers = self.session.execute(&self.numbers_query()).await?;
        while let Some(batch) = numbers.batches.next().await {
            let batch = batch?;
            let column = batch.column(0).as_primitive_opt::<Int64Type>();
            let column = column.ok_or_else(|| EngineError::internal("cells are not numbers"))?;
            counts.add(column);
        }
        Ok(counts.into_tiling(most_rows))
    }

    /// The rows of a tile, in the order of their numbers; of none the columns without rows.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn rows(&self, tile: Option<&Tile>) -> Result<QueryResult, HatsError> {
        Ok(self.session.execute(&self.rows_query(tile)).await?)
    }

    /// Sees that the table has the rows that it had when it was looked at.
    ///
    /// # Errors
    /// It has others.
    pub async fn check_unchanged(&self) -> Result<(), HatsError> {
        let tables = [
            Some(&self.table),
            self.director.as_ref().map(|it| &it.table),
        ];
        for table in tables.into_iter().flatten() {
            let spec = &table.spec;
            let now = self.archive.table(&spec.database, &spec.name).await?;
            let is_same = now.is_some_and(|now| same_rows(&now.table, table));
            if !is_same {
                return Err(HatsError::Changed(spec.full_name()));
            }
        }
        Ok(())
    }

    /// The query that gives the number of each row's cell.
    pub fn numbers_query(&self) -> String {
        let join = if self.director.is_some() {
            "LEFT JOIN"
        } else {
            ""
        };
        format!("SELECT {} AS n FROM {}", self.number(), self.from(join))
    }

    /// The query that gives the rows of a tile; of none one that gives no rows.
    pub fn rows_query(&self, tile: Option<&Tile>) -> String {
        let mut columns = vec![format!("{} AS {}", self.number(), quoted(CELL_COLUMN))];
        let own = self.table.spec.columns.iter().map(|it| it.name.as_str());
        let own = own.filter(|name| fold_name(name) != CELL_COLUMN);
        columns.extend(own.map(|name| format!("{TABLE}.{}", quoted(name))));
        if let Some(director) = &self.director {
            let given = [&director.position.ra, &director.position.dec];
            let names = [&self.position.ra, &self.position.dec];
            let columns_of_director = given.into_iter().zip(names);
            columns.extend(
                columns_of_director.map(|(given, name)| {
                    format!("{DIRECTOR}.{} AS {}", quoted(given), quoted(name))
                }),
            );
        }
        let condition = match tile {
            Some(Tile { order, cell, .. }) => {
                let [ra, dec] = self.coordinates();
                format!("1 = CONTAINS(POINT({ra}, {dec}), MOC('{order}/{cell}'))")
            }
            None => "1 = 0".to_owned(),
        };
        format!(
            "SELECT {} FROM {} WHERE {condition} ORDER BY {}",
            columns.join(", "),
            self.from("JOIN"),
            quoted(CELL_COLUMN)
        )
    }

    fn from(&self, join: &str) -> String {
        let named = |table: &Table| {
            let spec = &table.spec;
            format!("{}.{}", quoted(&spec.database), quoted(&spec.name))
        };
        let table = format!("{} AS {TABLE}", named(&self.table));
        match &self.director {
            None => table,
            Some(director) => {
                let [key, of_child] = director.keys.each_ref().map(|key| quoted(key));
                format!(
                    "{table} {join} {} AS {DIRECTOR} ON {TABLE}.{of_child} = {DIRECTOR}.{key}",
                    named(&director.table)
                )
            }
        }
    }

    /// The columns of the position in queries.
    fn coordinates(&self) -> [String; 2] {
        let (alias, position) = match &self.director {
            Some(director) => (DIRECTOR, &director.position),
            None => (TABLE, &self.position),
        };
        [&position.ra, &position.dec].map(|name| format!("{alias}.{}", quoted(name)))
    }

    fn number(&self) -> String {
        let [ra, dec] = self.coordinates();
        format!("ivo_healpix_index({MAX_DEPTH}, {ra}, {dec})")
    }
}

impl Director {
    /// The director of a child that has no positions of its own.
    /// Adds the condition by which its rows are released.
    async fn of(
        archive: &Arc<Archive>,
        child: &Table,
        released_by: &mut Vec<String>,
    ) -> Result<Option<Self>, HatsError> {
        let spec = &child.spec;
        let (TableKind::Child, None, Some(reference)) =
            (spec.kind, &spec.position, spec.directors.first())
        else {
            return Ok(None);
        };
        let found = archive.table(&spec.database, &reference.table).await?;
        let Some(director) = found else {
            let name = format!("{}.{}", spec.database, reference.table);
            return Err(HatsError::NoTable(name));
        };
        released_by.extend(archive.release_of(&director).map(str::to_owned));
        let Some(table) = archive
            .catalog()
            .rights()
            .seen_table(director.table.clone())
        else {
            return Ok(None);
        };
        let (Some(key), Some(position)) = (&table.spec.key, &table.spec.position) else {
            return Ok(None);
        };
        Ok(Some(Self {
            keys: [key.clone(), reference.key.clone()],
            position: position.clone(),
            table,
        }))
    }

    /// The names of the position's columns beside those of a child.
    fn names_in(&self, child: &Table) -> Position {
        let free = |name: &str| {
            let mut name = name.to_owned();
            while child.spec.column(&name).is_some() {
                name = format!("{}_{name}", self.table.spec.name);
            }
            name
        };
        Position {
            ra: free(&self.position.ra),
            dec: free(&self.position.dec),
        }
    }
}

/// The hour, counted from 1970 on.
fn hour() -> u64 {
    const SECONDS: u64 = 3600;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 was never set.
    since.map_or(0, |it| it.as_secs() / SECONDS)
}

/// Whether two states of a table have the same rows. Parts that are merged meanwhile change nothing.
fn same_rows(one: &Table, other: &Table) -> bool {
    (one.id, one.placement, one.origins()) == (other.id, other.placement, other.origins())
}

/// A name in ADQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("dec"), "\"dec\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
