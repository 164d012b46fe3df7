//! `TAP_SCHEMA`: the tables of an archive as the Virtual Observatory describes them, as tables of their own.
//!
//! Source: TAP 1.1 (Dowler et al., IVOA Recommendation 2019), section 4, for the tables and their columns. They describe themselves too.
//! They are made of the catalog, and kept until that changes.

mod describe;
mod kept;

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;

use self::kept::Told;
use crate::error::external;
use crate::{Archive, EngineError};
pub(crate) use describe::described;
pub use describe::{ForeignKey, TapColumn, TapSchemaEntry, TapTable};
pub(crate) use kept::KeptTapSchemas;

/// The folded name of the database of these tables.
pub(crate) const TAP_SCHEMA: &str = "tap_schema";
/// Its name as it is shown.
const SHOWN: &str = "TAP_SCHEMA";

/// Everything that `TAP_SCHEMA` tells, itself included.
///
/// # Errors
/// The catalog cannot be read.
pub async fn tap_schema(
    archive: &Archive,
) -> std::result::Result<Arc<[TapSchemaEntry]>, EngineError> {
    let told = told(archive).await?;
    Ok(Arc::clone(&told.entries))
}

async fn told(archive: &Archive) -> std::result::Result<Arc<Told>, EngineError> {
    let (catalog, kept) = (archive.catalog(), archive.kept_tap_schemas());
    // The state is read before the catalog: a later change makes the next reader read the catalog again.
    let state = catalog.state();
    if let Some(told) = state.and_then(|state| kept.find(state, catalog)) {
        return Ok(told);
    }
    let mut entries = Vec::new();
    for database in catalog.databases().await? {
        let tables = archive.shown_tables(&database.name).await?;
        entries.push(TapSchemaEntry::of(&database, &tables));
    }
    entries.push(own_entry());
    let told = Arc::new(Told {
        entries: entries.into(),
        rows: std::array::from_fn(|_| OnceLock::new()),
    });
    if let Some(state) = state {
        kept.keep(state, catalog, &told);
    }
    Ok(told)
}

/// One of the five tables; columns of numbers end in `#`, each is followed by what it means.
struct TapSchemaTable {
    name: &'static str,
    description: &'static str,
    columns: &'static [(&'static str, &'static str)],
    /// Column, and the table and column that it refers to.
    keys: &'static [(&'static str, &'static str, &'static str)],
}

const DESCRIBED: [TapSchemaTable; 5] = [
    TapSchemaTable {
        name: "schemas",
        description: "the databases",
        columns: &[
            ("schema_name", "name of the database, possibly quoted"),
            ("utype", "data model that it is of"),
            ("description", "what it has"),
            ("schema_index#", "place in which it is listed"),
        ],
        keys: &[],
    },
    TapSchemaTable {
        name: "tables",
        description: "the tables of all databases",
        columns: &[
            ("schema_name", "database that the table is in"),
            (
                "table_name",
                "name with the database's, as it stands in a query",
            ),
            ("table_type", "table or view"),
            ("utype", "data model that it is of"),
            ("description", "what it has"),
            ("table_index#", "place in which it is listed"),
        ],
        keys: &[("schema_name", "schemas", "schema_name")],
    },
    TapSchemaTable {
        name: "columns",
        description: "the columns of all tables",
        columns: &[
            ("table_name", "table that the column is in"),
            ("column_name", "name, as it stands in a query"),
            ("datatype", "type of its values in a VOTable"),
            ("arraysize", "number of them in a VOTable, * for any"),
            ("xtype", "what its texts are: a timestamp"),
            ("\"size\"#", "number of characters, if it is fixed"),
            ("description", "what it means"),
            ("utype", "data model that it is of"),
            ("unit", "unit of its values"),
            ("ucd", "what it is physically, in UCD1+"),
            ("indexed#", "1 if rows are found fast by it"),
            ("principal#", "1 if it is one of the first to look at"),
            ("std#", "1 if a standard defines it"),
            ("column_index#", "its place in the table, from 1 on"),
        ],
        keys: &[("table_name", "tables", "table_name")],
    },
    TapSchemaTable {
        name: "keys",
        description: "foreign keys: which tables belong together",
        columns: &[
            ("key_id", "name of the key"),
            ("from_table", "table that refers to another"),
            ("target_table", "table that it refers to"),
            ("utype", "data model that it is of"),
            ("description", "what it means"),
        ],
        keys: &[
            ("from_table", "tables", "table_name"),
            ("target_table", "tables", "table_name"),
        ],
    },
    TapSchemaTable {
        name: "key_columns",
        description: "the columns of foreign keys",
        columns: &[
            ("key_id", "name of the key"),
            ("from_column", "column that refers to another"),
            ("target_column", "column that it refers to"),
        ],
        keys: &[("key_id", "keys", "key_id")],
    },
];

impl TapSchemaTable {
    /// The place of the table of this name in the list.
    fn find(name: &str) -> Option<usize> {
        DESCRIBED
            .iter()
            .position(|described| described.name == name)
    }

    fn batch(&self, entries: &[TapSchemaEntry]) -> Result<RecordBatch> {
        let rows = rows_of(self.name, entries);
        let schema = self.schema();
        let columns = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| -> ArrayRef {
                let cells = rows.iter().map(|row| row.get(at));
                match field.data_type() {
                    DataType::Int32 => Arc::new(cells.map(number).collect::<Int32Array>()),
                    _ => Arc::new(cells.map(text).collect::<StringArray>()),
                }
            });
        let columns = columns.collect();
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    fn full_name(name: &str) -> String {
        format!("{SHOWN}.{name}")
    }

    fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|(column, _)| {
            let ty = match column.ends_with('#') {
                true => DataType::Int32,
                false => DataType::Utf8,
            };
            Field::new(column.trim_end_matches('#').trim_matches('"'), ty, true)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn entry(&self, index: i32) -> TapTable {
        let name = Self::full_name(self.name);
        let columns = self.columns.iter().zip(1..).map(|((column, meaning), at)| {
            let is_number = column.ends_with('#');
            TapColumn {
                name: column.trim_end_matches('#').to_owned(),
                datatype: if is_number { "int" } else { "unicodeChar" },
                arraysize: (!is_number).then_some("*"),
                xtype: None,
                description: Some((*meaning).to_owned()),
                utype: None,
                unit: None,
                ucd: None,
                is_indexed: false,
                is_principal: true,
                is_standard: true,
                index: at,
            }
        });
        let keys = self.keys.iter().map(|(column, table, target)| ForeignKey {
            id: format!("{}_{column}_{table}", self.name),
            from_table: name.clone(),
            target_table: Self::full_name(table),
            from_column: (*column).to_owned(),
            target_column: (*target).to_owned(),
            description: None,
        });
        TapTable {
            columns: columns.collect(),
            keys: keys.collect(),
            description: Some(self.description.to_owned()),
            utype: None,
            index,
            name,
            rows: None,
            is_view: false,
        }
    }
}

fn own_entry() -> TapSchemaEntry {
    let tables = DESCRIBED.iter().zip(1..);
    TapSchemaEntry {
        name: SHOWN.to_owned(),
        description: "what there is here: the databases, tables, columns and foreign keys"
            .to_owned(),
        tables: tables
            .map(|(described, index)| described.entry(index))
            .collect(),
    }
}

/// A value in a row.
enum Cell {
    Text(String),
    Number(i32),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<i32> for Cell {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Number(flag.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

fn rows_of(table: &str, entries: &[TapSchemaEntry]) -> Vec<Vec<Cell>> {
    let tables = || {
        entries
            .iter()
            .flat_map(|entry| entry.tables.iter().map(move |table| (entry, table)))
    };
    let keys = || tables().flat_map(|(_, table)| &table.keys);
    match table {
        "schemas" => (entries.iter().zip(1..))
            .map(|(entry, index): (_, i32)| {
                vec![
                    (&entry.name).into(),
                    Cell::Null,
                    (&entry.description).into(),
                    index.into(),
                ]
            })
            .collect(),
        "tables" => tables()
            .map(|(entry, table)| {
                vec![
                    (&entry.name).into(),
                    (&table.name).into(),
                    table.kind().into(),
                    table.utype.as_ref().into(),
                    table.description.as_ref().into(),
                    table.index.into(),
                ]
            })
            .collect(),
        "columns" => tables()
            .flat_map(|(_, table)| {
                table
                    .columns
                    .iter()
                    .map(move |column| column_row(table, column))
            })
            .collect(),
        "keys" => keys()
            .map(|key| {
                vec![
                    (&key.id).into(),
                    (&key.from_table).into(),
                    (&key.target_table).into(),
                    Cell::Null,
                    key.description.as_ref().into(),
                ]
            })
            .collect(),
        _ => keys()
            .map(|key| {
                vec![
                    (&key.id).into(),
                    (&key.from_column).into(),
                    (&key.target_column).into(),
                ]
            })
            .collect(),
    }
}

fn column_row(table: &TapTable, column: &TapColumn) -> Vec<Cell> {
    vec![
        (&table.name).into(),
        (&column.name).into(),
        column.datatype.into(),
        column.arraysize.into(),
        column.xtype.as_ref().into(),
        Cell::Null,
        column.description.as_ref().into(),
        column.utype.as_ref().into(),
        column.unit.as_ref().into(),
        column.ucd.as_ref().into(),
        column.is_indexed.into(),
        column.is_principal.into(),
        column.is_standard.into(),
        column.index.into(),
    ]
}

/// The database of these tables.
#[derive(Debug)]
pub(crate) struct TapSchema {
    pub archive: Arc<Archive>,
}

#[async_trait]
impl SchemaProvider for TapSchema {
    fn table_names(&self) -> Vec<String> {
        DESCRIBED.iter().map(|it| it.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(at) = TapSchemaTable::find(name) else {
            return Ok(None);
        };
        let told = told(&self.archive).await.map_err(external)?;
        let batch = match told.rows[at].get() {
            Some(batch) => batch.clone(),
            None => {
                let batch = DESCRIBED[at].batch(&told.entries)?;
                told.rows[at].get_or_init(|| batch).clone()
            }
        };
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        TapSchemaTable::find(name).is_some()
    }
}

fn number(cell: Option<&Cell>) -> Option<i32> {
    match cell {
        Some(Cell::Number(number)) => Some(*number),
        _ => None,
    }
}

fn text(cell: Option<&Cell>) -> Option<&str> {
    match cell {
        Some(Cell::Text(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_value_for_each_column() {
        let entries = [own_entry()];
        for described in &DESCRIBED {
            let rows = rows_of(described.name, &entries);
            assert!(!rows.is_empty(), "{}", described.name);
            for row in rows {
                assert_eq!(row.len(), described.columns.len(), "{}", described.name);
            }
        }
    }

    #[test]
    fn it_describes_itself() {
        let columns = rows_of("columns", &[own_entry()]);
        assert_eq!(columns.len(), 4 + 6 + 14 + 5 + 3);
        assert_eq!(rows_of("keys", &[own_entry()]).len(), 5);
    }
}
