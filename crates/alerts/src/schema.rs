//! The schema of an alert database: a file in Felis's language (YAML), which the operator gives.
//!
//! Only what storing needs is read of it: the tables' names, and their columns' names, types, defaults and whether they may be NULL. The
//! text is kept whole, for clients that read more from it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use metadata::{SchemaFile, SchemaFileError};
use serde::{Deserialize, Serialize};

use crate::editions::{PUBLISHED, REPLACES};
use crate::error::{AlertsError, Result};

/// The columns that have a meaning here, by the names that the field's schemas give them.
#[expect(missing_docs, reason = "the names say it")]
pub mod names {
    pub const DIA_OBJECT: &str = "diaObjectId";
    pub const DIA_SOURCE: &str = "diaSourceId";
    pub const SS_OBJECT: &str = "ssObjectId";
    pub const SS_REASSIGNED: &str = "ssObjectReassocTimeMjdTai";
    pub const VALIDITY_START: &str = "validityStartMjdTai";
    pub const VALIDITY_END: &str = "validityEndMjdTai";
    pub const N_SOURCES: &str = "nDiaSources";
    pub const RA: &str = "ra";
    pub const DEC: &str = "dec";
    pub const VISIT: &str = "visit";
    pub const DETECTOR: &str = "detector";
    pub const MIDPOINT: &str = "midpointMjdTai";
    pub const WITHDRAWN: &str = "timeWithdrawnMjdTai";
}

/// A table that pipelines store into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AlertTable {
    /// Versions of objects.
    DiaObject,
    /// Detections in difference images.
    DiaSource,
    /// Measurements at the positions of objects.
    DiaForcedSource,
}

impl AlertTable {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DiaObject, Self::DiaSource, Self::DiaForcedSource];

    /// The name in the schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DiaObject => "DiaObject",
            Self::DiaSource => "DiaSource",
            Self::DiaForcedSource => "DiaForcedSource",
        }
    }

    /// The table of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The columns that the schema has to have, with their types; and those that it may have, of these types.
    const fn known_columns(self) -> (&'static [KnownColumn], &'static [KnownColumn]) {
        use ColumnType::{Double, Int, Long};
        match self {
            Self::DiaObject => (
                &[
                    (names::DIA_OBJECT, Long),
                    (names::VALIDITY_START, Double),
                    (names::VALIDITY_END, Double),
                    (names::RA, Double),
                    (names::DEC, Double),
                    (names::N_SOURCES, Int),
                ],
                &[],
            ),
            Self::DiaSource => (
                &[
                    (names::DIA_SOURCE, Long),
                    (names::DIA_OBJECT, Long),
                    (names::SS_OBJECT, Long),
                    (names::VISIT, Long),
                    (names::RA, Double),
                    (names::DEC, Double),
                    (names::MIDPOINT, Double),
                ],
                &[(names::SS_REASSIGNED, Double), (names::WITHDRAWN, Double)],
            ),
            Self::DiaForcedSource => (
                &[
                    (names::DIA_OBJECT, Long),
                    (names::VISIT, Long),
                    (names::RA, Double),
                    (names::DEC, Double),
                    (names::MIDPOINT, Double),
                ],
                &[(names::WITHDRAWN, Double)],
            ),
        }
    }
}

impl AlertTable {
    /// The columns with a meaning that a row need not have.
    const fn may_be_null(self) -> &'static [&'static str] {
        match self {
            Self::DiaObject => &[names::VALIDITY_END, names::N_SOURCES],
            Self::DiaSource => &[
                names::DIA_OBJECT,
                names::SS_OBJECT,
                names::SS_REASSIGNED,
                names::WITHDRAWN,
            ],
            Self::DiaForcedSource => &[names::WITHDRAWN],
        }
    }
}

type KnownColumn = (&'static str, ColumnType);

/// The type of a column, one of Felis's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// 64 bits.
    Long,
    /// 32 bits.
    Int,
    /// 16 bits.
    Short,
    /// 8 bits.
    Byte,
    /// A double.
    Double,
    /// A float.
    Float,
    /// True or false.
    Boolean,
    /// Text, of any length: what a schema says of lengths is not enforced.
    #[serde(alias = "char", alias = "string", alias = "unicode")]
    Text,
    /// Bytes.
    Binary,
    /// A time, in microseconds.
    Timestamp,
}

impl ColumnType {
    /// The type of its values in Arrow.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Int => DataType::Int32,
            Self::Short => DataType::Int16,
            Self::Byte => DataType::Int8,
            Self::Double => DataType::Float64,
            Self::Float => DataType::Float32,
            Self::Boolean => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Column {
    /// Its name, with its case.
    pub name: String,
    /// Its type.
    #[serde(rename = "datatype")]
    pub column_type: ColumnType,
    /// Whether it may be NULL; a column may unless the schema says that it may not.
    #[serde(default = "yes")]
    pub nullable: bool,
    /// The value that it has where a client gives none.
    #[serde(default, rename = "value")]
    pub default: Option<serde_json::Value>,
}

const fn yes() -> bool {
    true
}

/// A table of a schema.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TableSchema {
    /// Its name, with its case.
    pub name: String,
    /// Its columns, in their order.
    pub columns: Vec<Column>,
}

impl TableSchema {
    /// The column of a name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The schema of its rows in Arrow.
    pub fn arrow(&self) -> Arc<Schema> {
        let field =
            |column: &Column| Field::new(&column.name, column.column_type.arrow(), column.nullable);
        Arc::new(Schema::new(
            self.columns.iter().map(field).collect::<Vec<_>>(),
        ))
    }
}

/// The schema of an alert database.
#[derive(Debug, Clone)]
pub struct AlertSchema {
    text: String,
    version: String,
    objects: TableSchema,
    latest: TableSchema,
    sources: TableSchema,
    forced: TableSchema,
    solar_system: Option<TableSchema>,
}

/// The table of objects of the solar system, which the operator loads.
const SOLAR_SYSTEM: &str = "SSObject";

/// A subset of the columns of [`AlertTable::DiaObject`] that is read of the latest versions.
const LATEST: &str = "DiaObjectLast";

impl AlertSchema {
    /// Reads a schema, and checks that it has what storing needs.
    ///
    /// # Errors
    /// It is no schema, or lacks a table or a column, or one has another type.
    pub fn parse(text: &str) -> Result<Self> {
        let unreadable = |error: SchemaFileError| AlertsError::Schema(error.to_string());
        let file = SchemaFile::parse(text).map_err(unreadable)?;
        let table = |name: &str| -> Result<Option<TableSchema>> {
            let Some(found) = file.table(name) else {
                return Ok(None);
            };
            let columns: Vec<Column> = found.columns().map_err(unreadable)?;
            for (at, column) in columns.iter().enumerate() {
                check_name(name, &column.name, &columns[..at])?;
            }
            Ok(Some(TableSchema {
                name: name.to_owned(),
                columns,
            }))
        };
        let stored = |kind: AlertTable| -> Result<TableSchema> {
            let Some(found) = table(kind.name())? else {
                let sentence = format!("it has no table {}", kind.name());
                return Err(AlertsError::Schema(sentence));
            };
            check_known(kind, &found)?;
            Ok(with_values(kind, found))
        };
        let objects = stored(AlertTable::DiaObject)?;
        let latest = match table(LATEST)? {
            Some(latest) => {
                check_latest(&latest, &objects)?;
                latest
            }
            None => objects.clone(),
        };
        Ok(Self {
            text: text.to_owned(),
            version: file.version().to_owned(),
            sources: stored(AlertTable::DiaSource)?,
            forced: stored(AlertTable::DiaForcedSource)?,
            objects,
            latest,
            // Nothing is stored in it: where it is not as it would have to be, it is left out.
            solar_system: table(SOLAR_SYSTEM).ok().flatten().filter(|found| {
                let key = found.column(names::SS_OBJECT);
                key.is_some_and(|key| key.column_type == ColumnType::Long)
            }),
        })
    }

    /// The text, as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The version that it says, or 0.1.0.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A table's columns.
    pub fn table(&self, table: AlertTable) -> &TableSchema {
        match table {
            AlertTable::DiaObject => &self.objects,
            AlertTable::DiaSource => &self.sources,
            AlertTable::DiaForcedSource => &self.forced,
        }
    }

    /// The columns in which the latest versions of objects are read: those of `DiaObjectLast`, or all if there is no such table.
    pub fn latest(&self) -> &TableSchema {
        &self.latest
    }

    /// The columns of the table of objects of the solar system, `SSObject`, if there is one with their number (`ssObjectId`).
    pub fn solar_system(&self) -> Option<&TableSchema> {
        self.solar_system.as_ref()
    }

    /// Checks that rows which were stored with this schema can be read with another.
    ///
    /// # Errors
    /// A column is gone, has another type, or is new and may not be NULL; or the latest versions get a column that they were stored
    /// without though it had values.
    pub fn check_successor(&self, next: &Self) -> Result<()> {
        for table in AlertTable::ALL {
            let (old, new) = (self.table(table), next.table(table));
            for column in &old.columns {
                let Some(same) = new.column(&column.name) else {
                    let sentence = format!("{}.{} is not in it any more", old.name, column.name);
                    return Err(AlertsError::Schema(sentence));
                };
                if same.column_type != column.column_type {
                    let sentence = format!("{}.{} has another type", old.name, column.name);
                    return Err(AlertsError::Schema(sentence));
                }
            }
            for column in &new.columns {
                if old.column(&column.name).is_none() && !column.nullable {
                    let sentence = format!(
                        "{}.{} is new and has to be nullable, as rows are stored without it",
                        new.name, column.name
                    );
                    return Err(AlertsError::Schema(sentence));
                }
            }
        }
        for column in &next.latest.columns {
            if self.latest.column(&column.name).is_none()
                && self.objects.column(&column.name).is_some()
            {
                let sentence = format!(
                    "{LATEST}.{} is new there and not in DiaObject: the latest versions were stored without it",
                    column.name
                );
                return Err(AlertsError::Schema(sentence));
            }
        }
        Ok(())
    }
}

/// Checks that a column can be published: names of tables' columns have no case there.
fn check_name(table: &str, column: &str, before: &[Column]) -> Result<()> {
    let folded = column.to_lowercase();
    let sentence = if before.iter().any(|other| other.name == column) {
        format!("{table} has two columns {column}")
    } else if before.iter().any(|it| it.name.to_lowercase() == folded) {
        format!("{table} has two columns {column}, whose names differ in case alone")
    } else if [PUBLISHED, REPLACES].contains(&folded.as_str()) {
        format!("{table}.{column} cannot be called so: published tables have a column of that name")
    } else {
        return Ok(());
    };
    Err(AlertsError::Schema(sentence))
}

/// Checks the columns that have a meaning here.
fn check_known(kind: AlertTable, table: &TableSchema) -> Result<()> {
    let (required, optional) = kind.known_columns();
    for &(name, column_type) in required {
        let Some(column) = table.column(name) else {
            let sentence = format!("{} has no column {name}", table.name);
            return Err(AlertsError::Schema(sentence));
        };
        check_type(table, column, column_type)?;
    }
    for &(name, column_type) in optional {
        if let Some(column) = table.column(name) {
            check_type(table, column, column_type)?;
        }
    }
    for &(name, _) in required.iter().chain(optional) {
        let is_not_nullable = table.column(name).is_some_and(|column| !column.nullable);
        if is_not_nullable && name != names::N_SOURCES && kind.may_be_null().contains(&name) {
            let sentence = format!("{}.{name} has to be nullable", table.name);
            return Err(AlertsError::Schema(sentence));
        }
    }
    match kind {
        AlertTable::DiaObject => Ok(()),
        // Its width differs between schemas.
        AlertTable::DiaSource | AlertTable::DiaForcedSource => {
            let column = table
                .column(names::DETECTOR)
                .map(|column| column.column_type);
            match column {
                Some(ColumnType::Short | ColumnType::Int | ColumnType::Long) => Ok(()),
                _ => Err(AlertsError::Schema(format!(
                    "{}.{} has to be there, as short, int or long",
                    table.name,
                    names::DETECTOR
                ))),
            }
        }
    }
}

/// The table, whose rows all have what rows are found by, whatever the schema says.
fn with_values(kind: AlertTable, mut table: TableSchema) -> TableSchema {
    let (required, _) = kind.known_columns();
    for column in &mut table.columns {
        let name = column.name.as_str();
        let is_known = required.iter().any(|(known, _)| *known == name) || name == names::DETECTOR;
        if is_known && !kind.may_be_null().contains(&name) {
            column.nullable = false;
        }
    }
    table
}

fn check_type(table: &TableSchema, column: &Column, wanted: ColumnType) -> Result<()> {
    if column.column_type == wanted {
        return Ok(());
    }
    Err(AlertsError::Schema(format!(
        "{}.{} has to be of type {wanted:?}, not {:?}",
        table.name, column.name, column.column_type
    )))
}

/// The latest versions have columns of their objects alone.
fn check_latest(latest: &TableSchema, objects: &TableSchema) -> Result<()> {
    for column in &latest.columns {
        let same = objects.column(&column.name);
        if same.is_none_or(|same| same.column_type != column.column_type) {
            let sentence = format!(
                "{LATEST}.{} has to be a column of DiaObject, of the same type",
                column.name
            );
            return Err(AlertsError::Schema(sentence));
        }
    }
    for name in [names::DIA_OBJECT, names::RA, names::DEC] {
        if latest.column(name).is_none() {
            return Err(AlertsError::Schema(format!(
                "{LATEST} has no column {name}"
            )));
        }
    }
    Ok(())
}
