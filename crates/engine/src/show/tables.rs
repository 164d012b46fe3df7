//! Lists of databases, tables, columns and keys.

use arrow::datatypes::DataType;
use catalog::{Column, ColumnType, Rights, Table, TableKind, View, fold_name};
use sql::mysql::{InsertedValue, TableName};
use sql::{ErrorCode, SqlError};

use super::{Row, Rows, some};
use crate::information_schema::{
    self, BASE_TABLE, CHARACTER_SET, COLLATION, INFORMATION_SCHEMA, SYSTEM_VIEW, VIEW,
};
use crate::loaded_table::texts_of;
use crate::shown::ShownTable;
use crate::{Archive, EngineError, NO_DATABASE};

pub(super) async fn databases(archive: &Archive) -> Result<Rows, EngineError> {
    let databases = archive.catalog().databases().await?;
    let names = databases.into_iter().map(|database| database.name);
    let names = names.chain([INFORMATION_SCHEMA.to_owned()]);
    let rows = names.map(|name| vec![Some(name)]).collect();
    Ok(Rows::new(&["Database"], rows))
}

/// The declared name of a database.
async fn declared(archive: &Archive, database: &str) -> Result<String, EngineError> {
    if database == NO_DATABASE {
        let sentence =
            "no database is chosen: USE one, or say which is meant, as in SHOW TABLES FROM sky";
        return Err(SqlError::new(sentence)
            .with_code(ErrorCode::NO_DATABASE_CHOSEN)
            .into());
    }
    if fold_name(database) == INFORMATION_SCHEMA {
        return Ok(INFORMATION_SCHEMA.to_owned());
    }
    let found = archive.catalog().database(database).await?;
    let found = found.ok_or_else(|| match archive.catalog().rights().as_ref() {
        Rights::All => EngineError::NoDatabase {
            name: database.to_owned(),
            hint: "SHOW DATABASES lists those that there are".to_owned(),
        },
        Rights::Listed(_) => EngineError::denied_database(database),
    })?;
    Ok(found.name)
}

pub(super) async fn tables(
    archive: &Archive,
    database: &str,
    full: bool,
) -> Result<Rows, EngineError> {
    let declared = declared(archive, database).await?;
    let mut names: Vec<(String, &str)> = if declared == INFORMATION_SCHEMA {
        information_schema::tables()
            .map(|name| (name, SYSTEM_VIEW))
            .collect()
    } else {
        let tables = archive.catalog().tables(&declared).await?.into_iter();
        let views = archive.views_in(&declared).await?;
        let views = views.iter().map(|view| (view.name.clone(), VIEW));
        let tables = tables.map(|table| (table.spec.name, BASE_TABLE));
        tables.chain(views).collect()
    };
    if declared != INFORMATION_SCHEMA {
        names.sort_by_cached_key(|(name, _)| fold_name(name));
    }
    let rows = names.into_iter().map(|(name, kind)| {
        let mut row = vec![Some(name)];
        row.extend(full.then(|| some(kind)));
        row
    });
    let mut headings = vec![format!("Tables_in_{declared}")];
    headings.extend(full.then(|| "Table_type".to_owned()));
    Ok(Rows {
        headings,
        rows: rows.collect(),
    })
}

const STATUS: [&str; 18] = [
    "Name",
    "Engine",
    "Version#",
    "Row_format",
    "Rows#",
    "Avg_row_length#",
    "Data_length#",
    "Max_data_length#",
    "Index_length#",
    "Data_free#",
    "Auto_increment#",
    "Create_time",
    "Update_time",
    "Check_time",
    "Collation",
    "Checksum#",
    "Create_options",
    "Comment",
];

pub(super) async fn status(archive: &Archive, database: &str) -> Result<Rows, EngineError> {
    let declared = declared(archive, database).await?;
    if declared == INFORMATION_SCHEMA {
        let row = |name| {
            let mut row = vec![Some(name), some("MEMORY")];
            row.resize(STATUS.len(), None);
            row
        };
        return Ok(Rows::new(
            &STATUS,
            information_schema::tables().map(row).collect(),
        ));
    }
    let shown = archive.shown_tables(&declared).await?;
    let row = |shown: &ShownTable| match &shown.view {
        None => status_row(&shown.table),
        Some(view) => {
            let mut row = vec![some(view.name.as_str())];
            row.resize(STATUS.len() - 1, None);
            row.push(some(view_comment(shown)));
            row
        }
    };
    Ok(Rows::new(&STATUS, shown.iter().map(row).collect()))
}

/// What a view has, in words: why it cannot be read, what is said of it, or what it is.
pub(crate) fn view_comment(shown: &ShownTable) -> String {
    match (&shown.trouble, &shown.table.metadata.description) {
        (Some(trouble), _) => trouble.to_string(),
        (None, Some(said)) => said.clone(),
        (None, None) => VIEW.to_owned(),
    }
}

fn status_row(table: &Table) -> Row {
    let number = |number: u64| some(number.to_string());
    let (rows, bytes, loaded) = table.told_contents();
    let told = |number: Option<u64>| number.map(|number| number.to_string());
    let row_length = rows.zip(bytes);
    let row_length = row_length.map(|(rows, bytes)| bytes.checked_div(rows).unwrap_or(0));
    let loaded = loaded.map(information_schema::time);
    vec![
        some(table.spec.name.as_str()),
        some("Meridian"),
        number(10),
        some("Compressed"),
        told(rows),
        told(row_length),
        told(bytes),
        number(0),
        number(0),
        number(0),
        None,
        loaded.clone(),
        loaded,
        None,
        some(COLLATION),
        None,
        some(information_schema::create_options(table)),
        some(table_comment(table)),
    ]
}

/// What a table has, in words: what is said of it, or its kind.
pub(crate) fn table_comment(table: &Table) -> String {
    let said = table.metadata.description.clone();
    said.unwrap_or_else(|| format!("{} table", table.spec.kind))
}

/// What is said of a column; empty if nothing is.
pub(crate) fn column_comment<'a>(table: &'a Table, column: &Column) -> &'a str {
    let said = table.metadata.column(&column.name);
    let said = said.and_then(|said| said.description.as_deref());
    said.unwrap_or_default()
}

pub(super) async fn table(
    archive: &Archive,
    default: &str,
    name: &TableName,
) -> Result<ShownTable, EngineError> {
    let database = declared(archive, name.database.as_deref().unwrap_or(default)).await?;
    let found = archive.shown_table(&database, &name.table).await?;
    let may_read_all = archive.catalog().rights().may_read_all_of(&database);
    found.ok_or_else(|| match may_read_all {
        true => no_table(&database, name),
        false => EngineError::denied_table(&format!("{database}.{}", name.table)),
    })
}

fn no_table(database: &str, name: &TableName) -> EngineError {
    SqlError::new(format!(
        "there is no table {database}.{}; SHOW TABLES lists those that there are",
        name.table
    ))
    .with_code(ErrorCode::NO_TABLE)
    .into()
}

/// A column as SHOW COLUMNS tells of it.
struct ColumnRow {
    name: String,
    ty: String,
    nullable: bool,
    key: &'static str,
    default: Option<String>,
    is_text: bool,
    comment: String,
}

pub(super) async fn columns(
    archive: &Archive,
    default: &str,
    name: &TableName,
    full: bool,
) -> Result<Rows, EngineError> {
    let database = name.database.as_deref().unwrap_or(default);
    let shown: Vec<ColumnRow> = if fold_name(database) == INFORMATION_SCHEMA {
        let columns = information_schema::columns_of(&name.table);
        let columns = columns.ok_or_else(|| no_table(INFORMATION_SCHEMA, name))?;
        let own = |(name, ty): (&str, DataType)| ColumnRow {
            name: name.to_owned(),
            ty: match ty {
                DataType::UInt64 => "bigint unsigned",
                DataType::Timestamp(..) => "datetime(6)",
                _ => "longtext",
            }
            .to_owned(),
            nullable: true,
            key: "",
            default: None,
            is_text: ty == DataType::Utf8,
            comment: String::new(),
        };
        columns.map(own).collect()
    } else {
        let shown = table(archive, default, name).await?;
        if let Some(trouble) = shown.trouble {
            return Err(trouble);
        }
        let table = shown.table;
        let of_table = |column: &Column| ColumnRow {
            name: column.name.clone(),
            ty: declared_type(column),
            nullable: column.nullable,
            key: key_mark(&table, column),
            default: shown_default(column),
            is_text: column.ty == ColumnType::Text,
            comment: column_comment(&table, column).to_owned(),
        };
        table.spec.columns.iter().map(of_table).collect()
    };
    Ok(shown_columns(shown, full))
}

fn shown_columns(columns: Vec<ColumnRow>, full: bool) -> Rows {
    let row = |column: ColumnRow| {
        let null = some(if column.nullable { "YES" } else { "NO" });
        let (name, ty, key) = (Some(column.name), Some(column.ty), some(column.key));
        if !full {
            return vec![name, ty, null, key, column.default, some("")];
        }
        let collation = column.is_text.then(|| COLLATION.to_owned());
        vec![
            name,
            ty,
            collation,
            null,
            key,
            column.default,
            some(""),
            some("select"),
            Some(column.comment),
        ]
    };
    let short = ["Field", "Type", "Null", "Key", "Default", "Extra"];
    let long = [
        "Field",
        "Type",
        "Collation",
        "Null",
        "Key",
        "Default",
        "Extra",
        "Privileges",
        "Comment",
    ];
    let headings: &[&str] = if full { &long } else { &short };
    Rows::new(headings, columns.into_iter().map(row).collect())
}

/// The key of a director, by which its rows are found.
pub(super) fn keys(table: &Table) -> Rows {
    let headings = [
        "Table",
        "Non_unique#",
        "Key_name",
        "Seq_in_index#",
        "Column_name",
        "Collation",
        "Cardinality#",
        "Sub_part#",
        "Packed",
        "Null",
        "Index_type",
        "Comment",
        "Index_comment",
        "Visible",
        "Expression",
    ];
    let key = table.spec.key.as_ref();
    let key = key.filter(|_| table.spec.kind == TableKind::Director);
    let row = |key: &String| {
        vec![
            some(table.spec.name.as_str()),
            some("0"),
            some("PRIMARY"),
            some("1"),
            some(key.as_str()),
            some("A"),
            table.told_contents().0.map(|rows| rows.to_string()),
            None,
            None,
            some(""),
            some("BTREE"),
            some(""),
            some(""),
            some("YES"),
            None,
        ]
    };
    Rows::new(&headings, key.into_iter().map(row).collect())
}

/// `PRI` for a director's key, `UNI` for the texts that it is computed of, `MUL` for a column that holds the key of one or its text.
pub(crate) fn key_mark(table: &Table, column: &Column) -> &'static str {
    let spec = &table.spec;
    let is = |name: &str| fold_name(name) == fold_name(&column.name);
    let has_texts = |key: &str| texts_of(spec, key).is_some_and(|texts| is(&texts));
    let key = spec.key.as_deref();
    let key = key.filter(|_| spec.kind == TableKind::Director);
    let mut directors = spec.directors.iter().map(|director| director.key.as_str());
    if key.is_some_and(is) {
        "PRI"
    } else if key.is_some_and(has_texts) {
        "UNI"
    } else if directors.any(|key| is(key) || has_texts(key)) {
        "MUL"
    } else {
        ""
    }
}

/// The statement that makes a view.
fn create_view(view: &View, definition: Option<&str>) -> Result<Rows, EngineError> {
    let Some(definition) = definition else {
        return Err(EngineError::denied_table(&view.full_name()));
    };
    let columns = match view.query.columns == view.query.headings {
        true => String::new(),
        false => {
            let names = view.query.columns.iter();
            let names = names.map(|name| format!("`{}`", name.replace('`', "``")));
            format!(" ({})", names.collect::<Vec<_>>().join(", "))
        }
    };
    let statement = format!(
        "CREATE VIEW `{}`.`{}`{columns} AS {definition}",
        view.database, view.name
    );
    let headings = [
        "View",
        "Create View",
        "character_set_client",
        "collation_connection",
    ];
    let row = vec![
        some(view.name.as_str()),
        Some(statement),
        some(CHARACTER_SET),
        some(COLLATION),
    ];
    Ok(Rows::new(&headings, vec![row]))
}

pub(super) fn create(shown: &ShownTable) -> Result<Rows, EngineError> {
    if let Some(view) = &shown.view {
        return create_view(view, shown.definition.as_deref());
    }
    let table = &shown.table;
    let columns = table.spec.columns.iter().map(|column| {
        let null = match (column.nullable, column.default_expression()) {
            (true, None) => "DEFAULT NULL".to_owned(),
            (false, None) => "NOT NULL".to_owned(),
            (true, Some(default)) => format!("DEFAULT {default}"),
            (false, Some(default)) => format!("NOT NULL DEFAULT {default}"),
        };
        let comment = comment(" COMMENT ", column_comment(table, column));
        let ty = declared_type(column);
        format!("  `{}` {ty} {null}{comment}", column.name)
    });
    let mut lines: Vec<String> = columns.collect();
    if let (TableKind::Director, Some(key)) = (table.spec.kind, &table.spec.key) {
        lines.push(format!("  PRIMARY KEY (`{key}`)"));
    }
    let said = table.metadata.description.as_deref().unwrap_or_default();
    let statement = format!(
        "CREATE TABLE `{}` (\n{}\n){}",
        table.spec.name,
        lines.join(",\n"),
        comment(" COMMENT=", said)
    );
    let row = vec![some(table.spec.name.as_str()), Some(statement)];
    Ok(Rows::new(&["Table", "Create Table"], vec![row]))
}

pub(super) async fn create_database(
    archive: &Archive,
    database: &str,
) -> Result<Rows, EngineError> {
    let declared = declared(archive, database).await?;
    let found = archive.catalog().database(&declared).await?;
    let said = found
        .and_then(|database| database.description)
        .unwrap_or_default();
    let comment = comment(" COMMENT ", &said);
    let statement = format!("CREATE DATABASE `{declared}` DEFAULT CHARACTER SET utf8mb4{comment}");
    let row = vec![Some(declared), Some(statement)];
    Ok(Rows::new(&["Database", "Create Database"], vec![row]))
}

/// A text as it stands in a statement behind a word; nothing if it is empty.
fn comment(word: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\0' => quoted.push_str("\\0"),
            other => quoted.push(other),
        }
    }
    format!("{word}'{quoted}'")
}

/// The default of a column as MySQL's lists show it: a text without its quotes.
pub(crate) fn shown_default(column: &Column) -> Option<String> {
    let default = column.default_expression()?;
    let value = sql::mysql::default_value(default).ok()?;
    Some(match value {
        InsertedValue::Text(text) => text,
        _ => default.to_owned(),
    })
}

/// The type of a column as MySQL would declare it: as it was declared, if it was.
pub(crate) fn declared_type(column: &Column) -> String {
    match &column.declared {
        Some(declared) => without_attributes(declared),
        None => type_name(column.ty),
    }
}

/// `bigint(20) unsigned` of `bigint(20) unsigned NOT NULL DEFAULT '0'`.
fn without_attributes(declared: &str) -> String {
    let words = declared.split_whitespace();
    let kept = words.take_while(|word| {
        let word = word.to_ascii_lowercase();
        ![
            "generated",
            "not",
            "null",
            "default",
            "primary",
            "auto_increment",
            "comment",
            "key",
        ]
        .contains(&word.as_str())
    });
    kept.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

fn type_name(ty: ColumnType) -> String {
    use ColumnType as T;
    match ty {
        T::Boolean => "tinyint(1)".to_owned(),
        T::Int8 => "tinyint".to_owned(),
        T::Int16 => "smallint".to_owned(),
        T::Int32 => "int".to_owned(),
        T::Int64 => "bigint".to_owned(),
        T::UInt8 => "tinyint unsigned".to_owned(),
        T::UInt16 => "smallint unsigned".to_owned(),
        T::UInt32 => "int unsigned".to_owned(),
        T::UInt64 => "bigint unsigned".to_owned(),
        T::Float32 => "float".to_owned(),
        T::Float64 => "double".to_owned(),
        T::Text => "text".to_owned(),
        T::Binary => "blob".to_owned(),
        T::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
        T::Date => "date".to_owned(),
        T::Timestamp => "datetime(6)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_quoted() {
        assert_eq!(comment(" COMMENT ", ""), "");
        assert_eq!(comment("=", "it's a\\b\nc"), r"='it''s a\\b\nc'");
    }

    #[test]
    fn declared_types_are_shown_without_attributes() {
        assert_eq!(
            without_attributes("BIGINT(20) unsigned NOT NULL"),
            "bigint(20) unsigned"
        );
        assert_eq!(without_attributes("int(11) DEFAULT '9999'"), "int(11)");
    }
}
