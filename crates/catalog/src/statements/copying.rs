//! Copies of all rows of a catalog, from a database of either kind into one of either kind.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, ColumnIndex, Decode, FromRow, Row, Type};

use super::query::{Transaction, Value, query, query_as, query_scalar};
use crate::CatalogError;

/// Parameters of one INSERT statement at most: SQLite takes 32,766.
const MOST_PARAMETERS: usize = 14_000;

/// What a column holds.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Int,
    Real,
    Text,
}

/// A table that is copied, with all its columns.
struct TableCopy {
    name: &'static str,
    /// Whether its rows have numbers that are never used again.
    is_numbered: bool,
    /// What its rows are told apart by.
    key: &'static str,
    ints: &'static str,
    reals: &'static str,
    texts: &'static str,
}

/// The tables, each behind those that it refers to.
const TABLES: [TableCopy; 9] = [
    TableCopy {
        name: "databases",
        is_numbered: true,
        key: "id",
        ints: "id, stripes, sub_stripes, checksum",
        reals: "overlap_deg",
        texts: "name, folded_name, description",
    },
    TableCopy {
        name: "loads",
        is_numbered: true,
        key: "id",
        ints: "id, pid, chunk_count, chunks_checksum, checksum",
        reals: "",
        texts: "folded_database, folded_table, state, host, started_at, ended_at",
    },
    TableCopy {
        name: "tables",
        is_numbered: true,
        key: "id",
        ints: "id, database_id, placement, scan_rating, checksum, table_index",
        reals: "",
        texts: "name, folded_name, kind, key_column, ra_column, dec_column, description, utype, expires_at",
    },
    TableCopy {
        name: "parts",
        is_numbered: false,
        key: "load_id",
        ints: "load_id, table_id, ordinal, row_count, byte_count, null_keys, orphan_rows",
        reals: "",
        texts: "loaded_at, source, merged_from",
    },
    TableCopy {
        name: "columns",
        is_numbered: false,
        key: "table_id, ordinal",
        ints: "table_id, ordinal, nullable, principal, column_index",
        reals: "",
        texts: "name, folded_name, type, declared, description, unit, ucd, utype, xtype",
    },
    TableCopy {
        name: "table_directors",
        is_numbered: false,
        key: "table_id, ordinal",
        ints: "table_id, ordinal, director_placement, stripes, sub_stripes",
        reals: "",
        texts: "director, key_column, director_database",
    },
    TableCopy {
        name: "views",
        is_numbered: true,
        key: "id",
        ints: "id, database_id, checksum",
        reals: "",
        texts: "name, folded_name, default_database, definition, columns, ra_column, dec_column, description, created_at, \
                headings, metadata",
    },
    TableCopy {
        name: "lists",
        is_numbered: false,
        key: "name",
        ints: "checksum",
        reals: "",
        texts: "name",
    },
    TableCopy {
        name: "publications",
        is_numbered: false,
        key: "id",
        ints: "id, counter",
        reals: "",
        texts: "",
    },
];

/// The chunks, which are many: they are copied load by load.
const CHUNKS: TableCopy = TableCopy {
    name: "chunks",
    is_numbered: false,
    key: "chunk_id",
    ints: "load_id, chunk_id, row_count, byte_count, checksum, overlap_rows, overlap_bytes, overlap_checksum, file, strays",
    reals: "ra_min, dec_min, ra_max, dec_max",
    texts: "",
};

impl TableCopy {
    /// Its columns: integers, fractions, texts.
    fn columns(&self) -> Vec<(&'static str, Kind)> {
        let lists = [
            (self.ints, Kind::Int),
            (self.reals, Kind::Real),
            (self.texts, Kind::Text),
        ];
        let columns = lists.into_iter().flat_map(|(list, kind)| {
            let names = list.split(',').map(str::trim);
            names
                .filter(|name| !name.is_empty())
                .map(move |name| (name, kind))
        });
        columns.collect()
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.columns().into_iter().map(|(name, _)| name).collect();
        names.join(", ")
    }

    /// Its rows, in the order of their keys; those of one load if one is given.
    async fn rows(
        &self,
        from: &mut Transaction<'_>,
        load: Option<i64>,
    ) -> Result<Vec<Cells>, CatalogError> {
        let (names, name, key) = (self.names(), self.name, self.key);
        let sql = match load {
            None => format!("SELECT {names} FROM {name} ORDER BY {key}"),
            Some(_) => format!("SELECT {names} FROM {name} WHERE load_id = ? ORDER BY {key}"),
        };
        let mut select = query_as::<Cells>(AssertSqlSafe(sql));
        if let Some(load) = load {
            select = select.bind(load);
        }
        let mut rows = select.fetch_all(from).await?;
        for row in &mut rows {
            for (value, (column, kind)) in row.0.iter_mut().zip(self.columns()) {
                *value = of_kind(value.clone(), kind)
                    .ok_or_else(|| CatalogError::Damaged(format!("{name}.{column}")))?;
            }
        }
        Ok(rows)
    }

    async fn put(&self, rows: &[Cells], to: &mut Transaction<'_>) -> Result<(), CatalogError> {
        let columns = self.columns();
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        for some in rows.chunks(MOST_PARAMETERS / columns.len()) {
            let sql = format!(
                "INSERT INTO {} ({}) VALUES {}",
                self.name,
                self.names(),
                vec![row.as_str(); some.len()].join(", ")
            );
            let mut insert = query(AssertSqlSafe(sql));
            for value in some.iter().flat_map(|row| &row.0) {
                insert = insert.bind(value.clone());
            }
            insert.execute(to).await?;
        }
        Ok(())
    }

    /// Copies its rows, and reads them again.
    async fn copy(
        &self,
        from: &mut Transaction<'_>,
        to: &mut Transaction<'_>,
        load: Option<i64>,
    ) -> Result<usize, CatalogError> {
        let rows = self.rows(from, load).await?;
        self.put(&rows, to).await?;
        match self.rows(to, load).await? == rows {
            true => Ok(rows.len()),
            false => Err(CatalogError::BadCopy { table: self.name }),
        }
    }
}

/// The values of a row.
#[derive(Debug, Clone, PartialEq)]
struct Cells(Vec<Value>);

impl<'r, R: Row> FromRow<'r, R> for Cells
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    f64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let value = |at: usize| match row.try_get(at) {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => match row.try_get(at) {
                Ok(value) => Ok(Value::Real(value)),
                Err(_) => row.try_get(at).map(Value::Text),
            },
        };
        (0..row.len())
            .map(value)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A value as one of this kind, which an absent one is too.
fn of_kind(value: Value, kind: Kind) -> Option<Value> {
    Some(match (kind, value) {
        (Kind::Int, Value::Int(value)) => Value::Int(value),
        (Kind::Real, Value::Real(value)) => Value::Real(value),
        (Kind::Text, Value::Text(value)) => Value::Text(value),
        (Kind::Int, Value::Real(None) | Value::Text(None)) => Value::Int(None),
        (Kind::Real, Value::Int(None) | Value::Text(None)) => Value::Real(None),
        (Kind::Text, Value::Int(None) | Value::Real(None)) => Value::Text(None),
        _ => return None,
    })
}

/// Puts all rows of a catalog in the place of those of another one, which is empty or a copy that was not finished. Gives how many there are.
/// What was copied is read again and compared; whether it fits its checksums is for the caller to see.
pub(crate) async fn copy_all(
    from: &mut Transaction<'_>,
    to: &mut Transaction<'_>,
) -> Result<usize, CatalogError> {
    expect_known_columns(from).await?;
    query("DELETE FROM chunks").execute(to).await?;
    for table in TABLES.iter().rev() {
        let sql = format!("DELETE FROM {}", table.name);
        query(AssertSqlSafe(sql)).execute(to).await?;
    }
    let mut rows = 0;
    for table in &TABLES {
        rows += table.copy(from, to, None).await?;
        if table.is_numbered {
            let last = last_number(from, table.name).await?;
            set_last_number(to, table.name, last).await?;
        }
    }
    let loads: Vec<i64> = query_scalar("SELECT id FROM loads ORDER BY id")
        .fetch_all(from)
        .await?;
    for load in loads {
        rows += CHUNKS.copy(from, to, Some(load)).await?;
    }
    Ok(rows)
}

/// Sees that what is copied is all that there is: a step of the schema may have added something.
async fn expect_known_columns(from: &mut Transaction<'_>) -> Result<(), CatalogError> {
    let sql = match from {
        Transaction::Sqlite(_) => {
            "SELECT m.name || '.' || c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c \
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        }
        Transaction::Postgres(_) => {
            "SELECT (table_name || '.' || column_name)::text FROM information_schema.columns \
             WHERE table_schema = current_schema() \
             AND table_name NOT IN ('meridian', 'load_locks', 'readers', 'leases', 'removals', \
             'queries', 'query_front_ends', 'query_settings', \
             'cluster_settings', 'cluster_front_ends', 'cluster_draining', 'cluster_removals')"
        }
    };
    let there: Vec<String> = query_scalar(sql).fetch_all(from).await?;
    let there: BTreeSet<String> = there.into_iter().collect();
    let tables = TABLES.iter().chain([&CHUNKS]);
    let known: BTreeSet<String> = tables
        .flat_map(|table| {
            let columns = table.columns().into_iter();
            columns.map(|(column, _)| format!("{}.{column}", table.name))
        })
        .collect();
    match there.symmetric_difference(&known).next() {
        None => Ok(()),
        Some(column) => Err(CatalogError::CopyOfDamage {
            problem: format!("one of both has a column {column}, which the other lacks"),
        }),
    }
}

/// The highest number that a row of a table ever had; 0 if it never had any.
async fn last_number(from: &mut Transaction<'_>, table: &str) -> Result<i64, CatalogError> {
    let last: Option<i64> = match from {
        Transaction::Sqlite(_) => {
            query_scalar("SELECT seq FROM sqlite_sequence WHERE name = ?")
                .bind(table)
                .fetch_optional(from)
                .await?
        }
        Transaction::Postgres(_) => {
            let sql = format!(
                "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {table}_id_seq"
            );
            query_scalar(AssertSqlSafe(sql))
                .fetch_optional(from)
                .await?
        }
    };
    Ok(last.unwrap_or(0))
}

/// Has numbers go on after this one.
async fn set_last_number(
    to: &mut Transaction<'_>,
    table: &str,
    last: i64,
) -> Result<(), CatalogError> {
    if last == 0 {
        return Ok(());
    }
    match to {
        Transaction::Sqlite(_) => {
            query("DELETE FROM sqlite_sequence WHERE name = ?")
                .bind(table)
                .execute(to)
                .await?;
            query("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)")
                .bind(table)
                .bind(last)
                .execute(to)
                .await?;
        }
        Transaction::Postgres(_) => {
            let sql = format!("SELECT setval('{table}_id_seq', ?)");
            query(AssertSqlSafe(sql)).bind(last).execute(to).await?;
        }
    }
    Ok(())
}
