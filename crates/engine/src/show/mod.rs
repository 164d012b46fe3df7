//! The rows of SHOW and DESCRIBE: databases, tables and columns of the catalog in MySQL's form, and the server's variables, status and
//! processes.
//!
//! The rows are written into the text of a query, so that everything after that is as for any other query.

mod static_lists;
mod tables;

use catalog::{Columns, Rights, Tables, fold_name};
use sql::Connection;
use sql::connection::ProcessInfo;
use sql::mysql::{ShowKind, ShowStatement};

use crate::{Archive, EngineError};
pub(crate) use tables::{
    column_comment, declared_type, key_mark, shown_default, table_comment, view_comment,
};

/// Rows under headings. Columns whose headings end in `#` are numeric.
struct Rows {
    headings: Vec<String>,
    rows: Vec<Row>,
}

type Row = Vec<Option<String>>;

impl Rows {
    fn new(headings: &[&str], rows: Vec<Row>) -> Self {
        Self {
            headings: headings
                .iter()
                .map(|heading| (*heading).to_owned())
                .collect(),
            rows,
        }
    }
}

/// A value of a row.
fn some(text: impl Into<String>) -> Option<String> {
    Some(text.into())
}

/// A query in ADQL's dialect that returns the rows of a SHOW statement. `default` is the default database.
pub(crate) async fn query(
    archive: &Archive,
    default: &str,
    statement: &ShowStatement,
    connection: &Connection,
) -> Result<String, EngineError> {
    let database = |named: &Option<String>| named.clone().unwrap_or_else(|| default.to_owned());
    let rows = match &statement.of {
        ShowKind::Databases => tables::databases(archive).await?,
        ShowKind::Tables {
            database: named,
            full,
        } => tables::tables(archive, &database(named), *full).await?,
        ShowKind::TableStatus { database: named } => {
            tables::status(archive, &database(named)).await?
        }
        ShowKind::Columns { table, full } => {
            tables::columns(archive, default, table, *full).await?
        }
        ShowKind::Keys(name) => tables::keys(&tables::table(archive, default, name).await?.table),
        ShowKind::Create(name) => tables::create(&tables::table(archive, default, name).await?)?,
        ShowKind::CreateDatabase(name) => tables::create_database(archive, name).await?,
        ShowKind::Variables { global } => named_values(connection.all_variables(*global)),
        ShowKind::Status => named_values(connection.server_info.status()),
        ShowKind::Processes { full } => processes(connection.server_info.processes(), *full),
        ShowKind::Grants => grants(archive, connection),
        ShowKind::Limits => limits(archive, connection).await?,
        ShowKind::Warnings { from, most } => warnings(connection, *from, *most),
        ShowKind::WarningCount => {
            let count = connection.warnings.len().to_string();
            Rows::new(&["@@session.warning_count#"], vec![vec![Some(count)]])
        }
        ShowKind::StaticList(list) => static_lists::rows(*list),
    };
    Ok(text(&rows, statement.condition.as_deref()))
}

/// The warnings of the last statement.
fn warnings(connection: &Connection, from: usize, most: Option<usize>) -> Rows {
    let warnings = connection.warnings.iter().skip(from);
    let rows = warnings.take(most.unwrap_or(usize::MAX)).map(|warning| {
        let number = warning.code.number.to_string();
        vec![
            some("Warning"),
            Some(number),
            Some(warning.sentence.clone()),
        ]
    });
    Rows::new(&["Level", "Code#", "Message"], rows.collect())
}

fn named_values(values: Vec<(&'static str, String)>) -> Rows {
    let rows = values.into_iter();
    let rows = rows.map(|(name, value)| vec![some(name), Some(value)]);
    Rows::new(&["Variable_name", "Value"], rows.collect())
}

/// Characters of a statement in SHOW PROCESSLIST without FULL.
const SHORT_STATEMENT: usize = 100;

fn processes(processes: Vec<ProcessInfo>, full: bool) -> Rows {
    let headings = [
        "Id#", "User", "Host", "db", "Command", "Time#", "State", "Info",
    ];
    let row = |process: ProcessInfo| {
        let statement = process.statement.map(|statement| match full {
            true => statement,
            false => statement.chars().take(SHORT_STATEMENT).collect(),
        });
        vec![
            some(process.id.to_string()),
            Some(process.user),
            Some(process.host),
            process.database,
            some(process.command),
            some(process.seconds.to_string()),
            Some(process.state),
            statement,
        ]
    };
    Rows::new(&headings, processes.into_iter().map(row).collect())
}

/// What whoever asks may do, as MySQL writes it: read what was granted, and change the tables of databases of their own.
fn grants(archive: &Archive, connection: &Connection) -> Rows {
    let (user, host) = (&connection.user, &connection.host);
    let server = &connection.server_info;
    let rights = archive.catalog().rights();
    let granted = granted(rights, &server.own_databases(), &server.groups());
    let row = |what: String| vec![Some(format!("GRANT {what} TO `{user}`@`{host}`"))];
    Rows {
        headings: vec![format!("Grants for {user}@{host}")],
        rows: granted.into_iter().map(row).collect(),
    }
}

/// What a user or a group of these rights may do, as it stands between GRANT and TO, and the groups to which the user belongs. Databases of their
/// own come before others, in their order.
pub fn granted(rights: &Rights, own: &[String], groups: &[String]) -> Vec<String> {
    let own: Vec<String> = own.iter().map(|name| fold_name(name)).collect();
    let is_own = |database: &String| own.contains(database);
    let mut granted = Vec::new();
    match rights {
        Rights::All => granted.push("SELECT ON *.*".to_owned()),
        Rights::Listed(databases) => {
            granted.push("USAGE ON *.*".to_owned());
            granted.extend(own.iter().map(|database| {
                format!("SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `{database}`.*")
            }));
            for (database, tables) in databases {
                match tables {
                    Tables::All if is_own(database) => {}
                    Tables::All => granted.push(format!("SELECT ON `{database}`.*")),
                    Tables::Listed(tables) => {
                        let of = |(table, columns): (&String, &Columns)| {
                            format!("SELECT{} ON `{database}`.`{table}`", listed(columns))
                        };
                        granted.extend(tables.iter().map(of));
                    }
                }
            }
        }
    }
    granted.extend(groups.iter().map(|group| format!("`{group}`@`%`")));
    granted
}

/// The columns of a grant, if they are not all that there are.
fn listed(columns: &Columns) -> String {
    match columns {
        Columns::All => String::new(),
        Columns::Listed(names) => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!(" ({})", names.join(", "))
        }
    }
}

/// What whoever asks may take, and takes now.
async fn limits(archive: &Archive, connection: &Connection) -> Result<Rows, EngineError> {
    let headings = ["Name", "Limit#", "Used#", "Meaning"];
    let mut rows = Vec::new();
    for limit in connection.server_info.limits() {
        let used = match &limit.stored_in {
            Some(database) => Some(stored_bytes(archive, database).await?),
            None => limit.used,
        };
        rows.push(vec![
            some(limit.name),
            limit.most.map(|most| most.to_string()),
            used.map(|used| used.to_string()),
            some(&*limit.meaning),
        ]);
    }
    Ok(Rows::new(&headings, rows))
}

/// Bytes of the tables of a database; none if there is no such database.
///
/// # Errors
/// The catalog cannot be read.
pub async fn stored_bytes(archive: &Archive, database: &str) -> Result<u64, EngineError> {
    let tables = archive.catalog().tables(database).await?;
    Ok(tables.iter().map(|table| table.bytes()).sum())
}

/// The text of the query. Conditions on a list of tables call its first column `tables`, whatever its heading.
fn text(rows: &Rows, condition: Option<&str>) -> String {
    let headings = rows.headings.iter();
    let headings: Vec<(&str, bool)> = headings
        .map(|heading| match heading.strip_suffix('#') {
            Some(heading) => (heading, true),
            None => (heading.as_str(), false),
        })
        .collect();
    let names: Vec<String> = headings.iter().map(|(name, _)| inner_name(name)).collect();
    let items: Vec<String> = headings
        .iter()
        .zip(&names)
        .map(|((heading, _), name)| format!("{} AS {}", quoted(name), quoted(heading)))
        .collect();
    let of_numbers = || headings.iter().map(|(_, of_numbers)| *of_numbers);
    let literals = |row: &Row| {
        let literals = row.iter().zip(of_numbers());
        let literals: Vec<String> = literals
            .map(|(value, of_numbers)| literal(value.as_deref(), of_numbers))
            .collect();
        format!("({})", literals.join(", "))
    };
    let values: Vec<String> = rows.rows.iter().map(literals).collect();
    // An empty list still has columns.
    let (values, never) = if values.is_empty() {
        (literals(&vec![None; names.len()]), " AND 1 = 0")
    } else {
        (values.join(", "), "")
    };
    let condition = condition.unwrap_or("1 = 1");
    let named: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!(
        "SELECT {} FROM (VALUES {values}) AS listed ({}) WHERE ({condition}){never}",
        items.join(", "),
        named.join(", ")
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn inner_name(heading: &str) -> String {
    if heading.starts_with("Tables_in_") {
        return "tables".to_owned();
    }
    heading.to_ascii_lowercase()
}

fn literal(value: Option<&str>, of_numbers: bool) -> String {
    match (value, of_numbers) {
        (Some(value), true) => value.to_owned(),
        (Some(value), false) => format!("'{}'", value.replace('\'', "''")),
        (None, true) => "CAST(NULL AS BIGINT)".to_owned(),
        (None, false) => "CAST(NULL AS VARCHAR)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_queries() {
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
    fn numbers_stay_numbers() {
        let rows = Rows::new(
            &["Id#", "db"],
            vec![vec![some("7"), None], vec![None, some("sky")]],
        );
        assert_eq!(
            text(&rows, None),
            "SELECT \"id\" AS \"Id\", \"db\" AS \"db\" FROM (VALUES (7, CAST(NULL AS VARCHAR)), (CAST(NULL AS BIGINT), 'sky')) \
             AS listed (\"id\", \"db\") WHERE (1 = 1)"
        );
    }
}
