//! `information_schema` for MySQL clients: databases, tables and columns as tables. Internal tables are hidden.
//!
//! Names, order and meaning of the columns are those of MariaDB 10.11 (*MariaDB Server Documentation*, "Information Schema
//! Tables"); of its tables those that browsers and drivers read are here, those about what Meridian does not have without rows.

mod empty;
mod server;
mod value;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use catalog::{Column, ColumnType, Database, Table, TableKind};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;

use crate::error::external;
use crate::show::{
    column_comment, declared_type, key_mark, shown_default, table_comment, view_comment,
};
use crate::shown::ShownTable;
use crate::system_tables::SystemTables;
use crate::{Archive, EngineError};
use value::Value;

/// The name of the database of these tables.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// The only catalogue that MySQL knows.
const CATALOGUE: &str = "def";
pub(crate) const CHARACTER_SET: &str = "utf8mb4";
pub(crate) const COLLATION: &str = "utf8mb4_nopad_bin";
/// Kinds of tables: those that were loaded, and those of this database.
pub(crate) const BASE_TABLE: &str = "BASE TABLE";
pub(crate) const SYSTEM_VIEW: &str = "SYSTEM VIEW";
pub(crate) const VIEW: &str = "VIEW";
/// Bytes of the longest text.
const LONGEST_TEXT: u64 = 4_294_967_295;

type Row = Vec<Value>;

/// One of the tables: its columns, in upper case as MySQL shows them; those of numbers end in `#`, those of times in `@`.
struct TableDescription {
    name: &'static str,
    columns: &'static str,
    rows: fn(&Contents) -> Vec<Row>,
}

/// What there is.
struct Contents {
    databases: Vec<Database>,
    tables: Vec<Table>,
    views: Vec<ShownTable>,
    system: Option<Arc<dyn SystemTables>>,
}

impl Contents {
    async fn read(
        archive: &Archive,
        system: Option<Arc<dyn SystemTables>>,
    ) -> std::result::Result<Self, EngineError> {
        let databases = archive.catalog().databases().await?;
        let (mut tables, mut views) = (Vec::new(), Vec::new());
        for database in &databases {
            for shown in archive.shown_tables(&database.name).await? {
                match shown.view {
                    Some(_) => views.push(shown),
                    None => tables.push(shown.table),
                }
            }
        }
        Ok(Self {
            databases,
            tables,
            views,
            system,
        })
    }
}

const DESCRIBED: [TableDescription; 14] = [
    TableDescription {
        name: "schemata",
        columns: "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH SCHEMA_COMMENT",
        rows: schemata,
    },
    TableDescription {
        name: "tables",
        columns: "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION# ROW_FORMAT TABLE_ROWS# AVG_ROW_LENGTH# \
                  DATA_LENGTH# MAX_DATA_LENGTH# INDEX_LENGTH# DATA_FREE# AUTO_INCREMENT# CREATE_TIME UPDATE_TIME CHECK_TIME \
                  TABLE_COLLATION CHECKSUM# CREATE_OPTIONS TABLE_COMMENT",
        rows: table_rows,
    },
    TableDescription {
        name: "columns",
        columns: "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION# COLUMN_DEFAULT IS_NULLABLE DATA_TYPE \
                  CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# DATETIME_PRECISION# \
                  CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES COLUMN_COMMENT IS_GENERATED \
                  GENERATION_EXPRESSION",
        rows: columns,
    },
    TableDescription {
        name: "views",
        columns: "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME VIEW_DEFINITION CHECK_OPTION IS_UPDATABLE DEFINER SECURITY_TYPE \
                  CHARACTER_SET_CLIENT COLLATION_CONNECTION ALGORITHM",
        rows: view_rows,
    },
    TableDescription {
        name: "table_constraints",
        columns: "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_SCHEMA TABLE_NAME CONSTRAINT_TYPE",
        rows: table_constraints,
    },
    TableDescription {
        name: "key_column_usage",
        columns: "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME \
                  ORDINAL_POSITION# POSITION_IN_UNIQUE_CONSTRAINT# REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME \
                  REFERENCED_COLUMN_NAME",
        rows: key_column_usage,
    },
    TableDescription {
        name: "statistics",
        columns: "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE# INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX# COLUMN_NAME COLLATION \
                  CARDINALITY# SUB_PART# PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT",
        rows: statistics,
    },
    TableDescription {
        name: "engines",
        columns: "ENGINE SUPPORT COMMENT TRANSACTIONS XA SAVEPOINTS",
        rows: engines,
    },
    TableDescription {
        name: "character_sets",
        columns: "CHARACTER_SET_NAME DEFAULT_COLLATE_NAME DESCRIPTION MAXLEN#",
        rows: |_| {
            vec![vec![
                CHARACTER_SET.into(),
                COLLATION.into(),
                "UTF-8 Unicode".into(),
                4.into(),
            ]]
        },
    },
    TableDescription {
        name: "collations",
        columns: "COLLATION_NAME CHARACTER_SET_NAME ID# IS_DEFAULT IS_COMPILED SORTLEN#",
        rows: |_| {
            vec![vec![
                COLLATION.into(),
                CHARACTER_SET.into(),
                1070.into(),
                "Yes".into(),
                "Yes".into(),
                1.into(),
            ]]
        },
    },
    TableDescription {
        name: "keywords",
        columns: "WORD RESERVED#",
        rows: |_| {
            let row = |(word, reserved)| vec![Value::from(word), u64::from(reserved).into()];
            sql::mysql::keywords().map(row).collect()
        },
    },
    TableDescription {
        name: "processlist",
        columns: "ID# USER HOST DB COMMAND TIME# STATE INFO",
        rows: server::processes,
    },
    TableDescription {
        name: "queries",
        columns: server::QUERY_COLUMNS,
        rows: server::queries,
    },
    TableDescription {
        name: "query_milestones",
        columns: server::MILESTONE_COLUMNS,
        rows: server::milestones,
    },
];

fn schemata(contents: &Contents) -> Vec<Row> {
    let databases = contents.databases.iter().map(|database| {
        let comment = database.description.as_deref().unwrap_or_default();
        (database.name.as_str(), comment)
    });
    let row = |(name, comment)| {
        vec![
            CATALOGUE.into(),
            Value::from(name),
            CHARACTER_SET.into(),
            COLLATION.into(),
            Value::Null,
            Value::from(comment),
        ]
    };
    databases
        .chain([(INFORMATION_SCHEMA, "")])
        .map(row)
        .collect()
}

fn table_rows(contents: &Contents) -> Vec<Row> {
    let row = |table: &Table| {
        let (rows, bytes, loaded) = table.told_contents();
        let row_length = rows.zip(bytes);
        let row_length = row_length.map(|(rows, bytes)| bytes.checked_div(rows).unwrap_or(0));
        let loaded = || loaded.map(time);
        vec![
            CATALOGUE.into(),
            table.database.name.as_str().into(),
            table.spec.name.as_str().into(),
            BASE_TABLE.into(),
            "Meridian".into(),
            10.into(),
            "Compressed".into(),
            rows.into(),
            row_length.into(),
            bytes.into(),
            0.into(),
            0.into(),
            0.into(),
            Value::Null,
            loaded().into(),
            loaded().into(),
            Value::Null,
            COLLATION.into(),
            Value::Null,
            create_options(table).into(),
            table_comment(table).into(),
        ]
    };
    let own = described().map(|described| {
        let mut row: Row = vec![
            CATALOGUE.into(),
            INFORMATION_SCHEMA.into(),
            described.name.to_ascii_uppercase().into(),
            SYSTEM_VIEW.into(),
            "MEMORY".into(),
        ];
        row.resize_with(21, || Value::Null);
        row
    });
    let of_view = |shown: &ShownTable| {
        let mut row: Row = vec![
            CATALOGUE.into(),
            shown.table.spec.database.as_str().into(),
            shown.table.spec.name.as_str().into(),
            VIEW.into(),
        ];
        row.resize_with(20, || Value::Null);
        row.push(view_comment(shown).into());
        row
    };
    let tables = contents.tables.iter().map(row);
    let views = contents.views.iter().map(of_view);
    tables.chain(views).chain(own).collect()
}

/// With what a table was made that is not told elsewhere: when it expires.
pub(crate) fn create_options(table: &Table) -> String {
    let expires = table.expires_at.as_deref();
    expires.map_or_else(String::new, |time| format!("expires={time}"))
}

/// The views; the definition of one is told to those who may read what it is made of, and empty for others, as in MySQL.
fn view_rows(contents: &Contents) -> Vec<Row> {
    let row = |shown: &ShownTable| {
        vec![
            CATALOGUE.into(),
            shown.table.spec.database.as_str().into(),
            shown.table.spec.name.as_str().into(),
            shown.definition.as_deref().unwrap_or_default().into(),
            "NONE".into(),
            "NO".into(),
            "".into(),
            "DEFINER".into(),
            CHARACTER_SET.into(),
            COLLATION.into(),
            "UNDEFINED".into(),
        ]
    };
    contents.views.iter().map(row).collect()
}

/// `2026-11-22 10:00:00` of `2026-11-22T10:00:00Z`.
pub(crate) fn time(iso: &str) -> String {
    iso.replace('T', " ").trim_end_matches('Z').to_owned()
}

fn columns(contents: &Contents) -> Vec<Row> {
    let of_table = |table: &Table| -> Vec<Row> {
        let columns = table.spec.columns.iter().enumerate();
        columns
            .map(|(at, column)| column_row(table, at, column))
            .collect()
    };
    let views = contents.views.iter().map(|shown| &shown.table);
    contents
        .tables
        .iter()
        .chain(views)
        .flat_map(of_table)
        .collect()
}

fn column_row(table: &Table, at: usize, column: &Column) -> Row {
    let declared = declared_type(column);
    let is_text = column.ty == ColumnType::Text;
    let length = (is_text || column.ty == ColumnType::Binary)
        .then(|| declared_length(&declared).unwrap_or(LONGEST_TEXT));
    let bytes = length.map(|length| {
        if is_text {
            length.saturating_mul(4).min(LONGEST_TEXT)
        } else {
            length
        }
    });
    let (precision, scale) = numeric(column.ty);
    let null = if column.nullable { "YES" } else { "NO" };
    vec![
        CATALOGUE.into(),
        table.database.name.as_str().into(),
        table.spec.name.as_str().into(),
        column.name.as_str().into(),
        (at as u64 + 1).into(),
        shown_default(column).into(),
        null.into(),
        first_word(&declared).into(),
        length.into(),
        bytes.into(),
        precision.into(),
        scale.into(),
        (column.ty == ColumnType::Timestamp).then_some(6).into(),
        is_text.then_some(CHARACTER_SET).into(),
        is_text.then_some(COLLATION).into(),
        declared.into(),
        key_mark(table, column).into(),
        "".into(),
        "select".into(),
        column_comment(table, column).into(),
        "NEVER".into(),
        Value::Null,
    ]
}

/// `bigint` of `bigint(20) unsigned`.
fn first_word(declared: &str) -> &str {
    declared
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or(declared)
}

/// The 8 of `varchar(8)`.
fn declared_length(declared: &str) -> Option<u64> {
    declared
        .split_once('(')?
        .1
        .split_once(')')?
        .0
        .trim()
        .parse()
        .ok()
}

/// Digits in all and after the point.
fn numeric(ty: ColumnType) -> (Option<u64>, Option<u64>) {
    use ColumnType as T;
    match ty {
        T::Boolean | T::Int8 | T::UInt8 => (Some(3), Some(0)),
        T::Int16 | T::UInt16 => (Some(5), Some(0)),
        T::Int32 | T::UInt32 => (Some(10), Some(0)),
        T::Int64 => (Some(19), Some(0)),
        T::UInt64 => (Some(20), Some(0)),
        T::Float32 => (Some(12), None),
        T::Float64 => (Some(22), None),
        T::Decimal { precision, scale } => (Some(precision.into()), Some(scale.into())),
        T::Text | T::Binary | T::Date | T::Timestamp => (None, None),
    }
}

/// Directors and their keys.
fn keys(contents: &Contents) -> impl Iterator<Item = (&Table, &str)> {
    let directors = contents
        .tables
        .iter()
        .filter(|table| table.spec.kind == TableKind::Director);
    directors.filter_map(|table| Some((table, table.spec.key.as_deref()?)))
}

fn table_constraints(contents: &Contents) -> Vec<Row> {
    let row = |(table, _): (&Table, &str)| {
        let database = table.database.name.as_str();
        vec![
            CATALOGUE.into(),
            database.into(),
            "PRIMARY".into(),
            database.into(),
            table.spec.name.as_str().into(),
            "PRIMARY KEY".into(),
        ]
    };
    keys(contents).map(row).collect()
}

fn key_column_usage(contents: &Contents) -> Vec<Row> {
    let row = |(table, key): (&Table, &str)| {
        let database = table.database.name.as_str();
        let mut row: Row = vec![
            CATALOGUE.into(),
            database.into(),
            "PRIMARY".into(),
            CATALOGUE.into(),
            database.into(),
            table.spec.name.as_str().into(),
            key.into(),
            1.into(),
        ];
        row.resize_with(12, || Value::Null);
        row
    };
    keys(contents).map(row).collect()
}

fn statistics(contents: &Contents) -> Vec<Row> {
    let row = |(table, key): (&Table, &str)| {
        let database = table.database.name.as_str();
        vec![
            CATALOGUE.into(),
            database.into(),
            table.spec.name.as_str().into(),
            0.into(),
            database.into(),
            "PRIMARY".into(),
            1.into(),
            key.into(),
            "A".into(),
            table.told_contents().0.into(),
            Value::Null,
            Value::Null,
            "".into(),
            "BTREE".into(),
            "".into(),
            "".into(),
        ]
    };
    keys(contents).map(row).collect()
}

fn engines(_: &Contents) -> Vec<Row> {
    let comment = "Chunks of the sky, compressed column by column";
    vec![vec![
        "Meridian".into(),
        "DEFAULT".into(),
        comment.into(),
        "NO".into(),
        "NO".into(),
        "NO".into(),
    ]]
}

/// All tables, those without rows too.
fn described() -> impl Iterator<Item = &'static TableDescription> {
    DESCRIBED.iter().chain(&empty::EMPTY)
}

impl TableDescription {
    fn find(name: &str) -> Option<&'static Self> {
        described().find(|described| described.name == name)
    }

    /// Declared names and types.
    fn columns(&self) -> impl Iterator<Item = (&'static str, DataType)> + use<> {
        let names = self.columns.split_whitespace();
        names.map(|name| {
            let ty = match name.chars().last() {
                Some('#') => DataType::UInt64,
                Some('@') => DataType::Timestamp(TimeUnit::Microsecond, None),
                _ => DataType::Utf8,
            };
            (name.trim_end_matches(['#', '@']), ty)
        })
    }

    fn schema(&self) -> SchemaRef {
        let columns = self.columns();
        let fields = columns.map(|(name, ty)| Field::new(name.to_ascii_lowercase(), ty, true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn batch(&self, contents: &Contents) -> Result<RecordBatch> {
        let rows = (self.rows)(contents);
        let column = |(at, (_, ty)): (usize, (&str, DataType))| -> ArrayRef {
            let values = rows.iter().map(|row| &row[at]);
            match ty {
                DataType::UInt64 => Arc::new(values.map(Value::number).collect::<UInt64Array>()),
                DataType::Utf8 => Arc::new(values.map(Value::text).collect::<StringArray>()),
                _ => {
                    let times = values.map(Value::time);
                    Arc::new(times.collect::<TimestampMicrosecondArray>())
                }
            }
        };
        let columns = self.columns().enumerate().map(column).collect();
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }
}

/// The database of these tables.
#[derive(Debug)]
pub(crate) struct InformationSchema {
    pub archive: Arc<Archive>,
    pub system: Option<Arc<dyn SystemTables>>,
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        described()
            .map(|described| described.name.to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(described) = TableDescription::find(name) else {
            return Ok(None);
        };
        let contents = Contents::read(&self.archive, self.system.clone());
        let contents = contents.await.map_err(external)?;
        let batch = described.batch(&contents)?;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        TableDescription::find(name).is_some()
    }
}

/// The names of these tables.
pub(crate) fn tables() -> impl Iterator<Item = String> {
    described().map(|described| described.name.to_ascii_uppercase())
}

/// The declared names and the types of a table's columns; `None` if there is no such table.
pub(crate) fn columns_of(table: &str) -> Option<impl Iterator<Item = (&'static str, DataType)>> {
    TableDescription::find(&table.to_ascii_lowercase()).map(TableDescription::columns)
}

/// The declared names of a table's columns.
pub(crate) fn declared_columns(table: &str) -> impl Iterator<Item = &'static str> {
    let described = TableDescription::find(table).into_iter();
    described.flat_map(|described| described.columns().map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_wide_as_their_tables() {
        let database = Database {
            id: 1,
            name: "sky".to_owned(),
            stripes: 85,
            sub_stripes: 12,
            overlap_deg: 0.01,
            description: None,
        };
        let column = |name: &str, ty, declared: Option<&str>| Column {
            name: name.to_owned(),
            ty,
            nullable: true,
            declared: declared.map(str::to_owned),
        };
        let table = Table {
            id: 1,
            database: database.clone(),
            placement: catalog::LoadId(1),
            spec: catalog::TableSpec {
                database: "sky".to_owned(),
                name: "Object".to_owned(),
                kind: TableKind::Director,
                columns: vec![
                    column("objectId", ColumnType::Int64, Some("bigint(20) NOT NULL")),
                    column("name", ColumnType::Text, Some("varchar(8)")),
                ],
                key: Some("objectId".to_owned()),
                position: None,
                directors: Vec::new(),
                scan_rating: 1,
            },
            metadata: catalog::TableMetadata::default(),
            expires_at: None,
            parts: vec![catalog::Part {
                load: catalog::LoadId(1),
                rows: 10,
                bytes: 1000,
                null_keys: 0,
                orphan_rows: 0,
                loaded_at: "2026-11-22T10:00:00Z".to_owned(),
                source: "object.csv".to_owned(),
                merged_from: Vec::new(),
            }],
        };
        let contents = Contents {
            databases: vec![database],
            tables: vec![table],
            views: vec![],
            system: None,
        };
        for described in described() {
            let width = described.columns().count();
            for row in (described.rows)(&contents) {
                assert_eq!(row.len(), width, "{}", described.name);
            }
            assert!(described.batch(&contents).is_ok(), "{}", described.name);
        }
        let columns = TableDescription::find("columns")
            .unwrap()
            .batch(&contents)
            .unwrap();
        let of = |name: &str| columns.column_by_name(name).unwrap();
        let lengths: Vec<_> = of("character_maximum_length")
            .as_any()
            .downcast_ref::<UInt64Array>()
            .unwrap()
            .iter()
            .collect();
        assert_eq!(lengths, [None, Some(8)]);
        let types: Vec<_> = of("data_type")
            .as_any()
            .downcast_ref::<StringArray>()
            .unwrap()
            .iter()
            .collect();
        assert_eq!(types, [Some("bigint"), Some("varchar")]);
    }
}
