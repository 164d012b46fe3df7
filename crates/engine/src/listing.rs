//! What SHOW and DESCRIBE answer: the catalog's databases, tables and columns as rows, in MySQL's form.
//!
//! The rows are put into the text of a question, so that everything after is as for any other.

use catalog::{Column, ColumnType, Table, TableKind, fold_name};
use sql::mysql::{Listed, Listing, TableName};
use sql::{ErrorCode, SqlError};

use crate::information_schema::INFORMATION_SCHEMA;
use crate::{Archive, EngineError};

/// Rows under headings.
struct Rows {
    headings: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

/// A question in ADQL's dialect whose answer is what is listed. `default` is the database of names that name none.
pub(crate) async fn question(
    archive: &Archive,
    default: &str,
    listing: &Listing,
) -> Result<String, EngineError> {
    let rows = match &listing.of {
        Listed::Databases => databases(archive).await?,
        Listed::Tables { database, full } => {
            tables(archive, database.as_deref().unwrap_or(default), *full).await?
        }
        Listed::Columns(name) => columns(&table(archive, default, name).await?),
        Listed::Create(name) => create(&table(archive, default, name).await?),
    };
    Ok(text(&rows, listing.condition.as_deref()))
}

async fn databases(archive: &Archive) -> Result<Rows, EngineError> {
    let databases = archive.catalog().databases().await?;
    let names = databases.into_iter().map(|database| database.name);
    let names = names.chain([INFORMATION_SCHEMA.to_owned()]);
    Ok(Rows {
        headings: vec!["Database".to_owned()],
        rows: names.map(|name| vec![Some(name)]).collect(),
    })
}

async fn tables(archive: &Archive, database: &str, full: bool) -> Result<Rows, EngineError> {
    let declared = archive.catalog().databases().await?;
    let declared = declared
        .into_iter()
        .find(|known| fold_name(&known.name) == fold_name(database))
        .ok_or_else(|| EngineError::NoDatabase {
            name: database.to_owned(),
            hint: "SHOW DATABASES lists those that there are".to_owned(),
        })?;
    let mut headings = vec![format!("Tables_in_{}", declared.name)];
    headings.extend(full.then(|| "Table_type".to_owned()));
    let tables = archive.catalog().tables(database).await?.into_iter();
    let rows = tables.map(|table| {
        let mut row = vec![Some(table.spec.name)];
        row.extend(full.then(|| Some("BASE TABLE".to_owned())));
        row
    });
    Ok(Rows {
        headings,
        rows: rows.collect(),
    })
}

async fn table(archive: &Archive, default: &str, name: &TableName) -> Result<Table, EngineError> {
    let database = name.database.as_deref().unwrap_or(default);
    let found = archive.catalog().table(database, &name.table).await?;
    found.ok_or_else(|| {
        SqlError::new(format!(
            "there is no table {database}.{}; SHOW TABLES lists those that there are",
            name.table
        ))
        .with_code(ErrorCode::NO_TABLE)
        .into()
    })
}

fn columns(table: &Table) -> Rows {
    let headings = ["Field", "Type", "Null", "Key", "Default", "Extra"];
    let row = |column: &Column| {
        let null = if column.nullable { "YES" } else { "NO" };
        let fields = [
            &column.name,
            &declared_type(column),
            null,
            key_mark(table, column),
        ];
        let mut row: Vec<Option<String>> = fields
            .iter()
            .map(|field| Some((*field).to_owned()))
            .collect();
        row.extend([None, Some(String::new())]);
        row
    };
    Rows {
        headings: headings.map(str::to_owned).into(),
        rows: table.spec.columns.iter().map(row).collect(),
    }
}

/// `PRI` for a director's key, `MUL` for a column that holds the key of one.
pub(crate) fn key_mark(table: &Table, column: &Column) -> &'static str {
    let is = |name: &str| fold_name(name) == fold_name(&column.name);
    if table.spec.kind == TableKind::Director && table.spec.key.as_deref().is_some_and(is) {
        "PRI"
    } else if table
        .spec
        .directors
        .iter()
        .any(|director| is(&director.key))
    {
        "MUL"
    } else {
        ""
    }
}

fn create(table: &Table) -> Rows {
    let columns = table.spec.columns.iter().map(|column| {
        let null = if column.nullable {
            "DEFAULT NULL"
        } else {
            "NOT NULL"
        };
        format!("  `{}` {} {null}", column.name, declared_type(column))
    });
    let mut lines: Vec<String> = columns.collect();
    if let (TableKind::Director, Some(key)) = (table.spec.kind, &table.spec.key) {
        lines.push(format!("  PRIMARY KEY (`{key}`)"));
    }
    let statement = format!(
        "CREATE TABLE `{}` (\n{}\n)",
        table.spec.name,
        lines.join(",\n")
    );
    Rows {
        headings: vec!["Table".to_owned(), "Create Table".to_owned()],
        rows: vec![vec![Some(table.spec.name.clone()), Some(statement)]],
    }
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
        T::Boolean => "bit(1)".to_owned(),
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

/// The text of the question. The first column is `tables` to conditions on a list of tables, whatever its heading.
fn text(rows: &Rows, condition: Option<&str>) -> String {
    let names: Vec<String> = rows
        .headings
        .iter()
        .map(|heading| inner_name(heading))
        .collect();
    let items: Vec<String> = rows
        .headings
        .iter()
        .zip(&names)
        .map(|(heading, name)| format!("\"{name}\" AS \"{heading}\""))
        .collect();
    let values: Vec<String> = rows
        .rows
        .iter()
        .map(|row| format!("({})", literals(row)))
        .collect();
    // A list of nothing has its columns all the same.
    let (values, never) = if values.is_empty() {
        (
            format!("({})", vec!["''"; names.len()].join(", ")),
            " AND 1 = 0",
        )
    } else {
        (values.join(", "), "")
    };
    let condition = condition.unwrap_or("1 = 1");
    let named: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!(
        "SELECT {} FROM (VALUES {values}) AS listed ({}) WHERE ({condition}){never}",
        items.join(", "),
        named.join(", ")
    )
}

fn inner_name(heading: &str) -> String {
    if heading.starts_with("Tables_in_") {
        return "tables".to_owned();
    }
    heading.to_ascii_lowercase()
}

fn literals(row: &[Option<String>]) -> String {
    let literals = row.iter().map(|value| match value {
        Some(value) => format!("'{}'", value.replace('\'', "''")),
        None => "CAST(NULL AS VARCHAR)".to_owned(),
    });
    literals.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_questions() {
        let rows = Rows {
            headings: vec!["Tables_in_sky".to_owned()],
            rows: vec![vec![Some("it's".to_owned())]],
        };
        assert_eq!(
            text(&rows, Some("tables LIKE 'i%'")),
            "SELECT \"tables\" AS \"Tables_in_sky\" FROM (VALUES ('it''s')) AS listed (\"tables\") WHERE (tables LIKE 'i%')"
        );
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
