//! Statements that run in SQLite and in PostgreSQL: what is written once, with `?` for parameters, and the rows that come back.
//!
//! Integers have 64 bits, numbers with fractions are doubles, and there are no other types but texts. A truth value is 0 or 1.

use std::marker::PhantomData;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, FromRow, Postgres, SqlSafeStr, SqlStr, Sqlite};

/// A transaction in either database. It is rolled back unless it is committed.
pub(crate) enum Transaction<'c> {
    Sqlite(sqlx::Transaction<'c, Sqlite>),
    Postgres(sqlx::Transaction<'c, Postgres>),
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Int(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
}

/// What a row of a result becomes.
pub(crate) trait Found:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> Found for T where
    T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

/// A statement with the values of its parameters.
#[must_use]
pub(crate) struct Query {
    sql: SqlStr,
    values: Vec<Value>,
}

/// A statement whose rows are read.
#[must_use]
pub(crate) struct QueryAs<T> {
    query: Query,
    row: PhantomData<fn() -> T>,
}

/// A statement of whose rows the first column is read.
#[must_use]
pub(crate) struct QueryScalar<T>(QueryAs<(T,)>);

/// A statement that changes rows.
pub(crate) fn query(sql: impl SqlSafeStr) -> Query {
    Query {
        sql: sql.into_sql_str(),
        values: Vec::new(),
    }
}

/// A statement that returns rows.
pub(crate) fn query_as<T>(sql: impl SqlSafeStr) -> QueryAs<T> {
    QueryAs {
        query: query(sql),
        row: PhantomData,
    }
}

/// A statement that returns one column.
pub(crate) fn query_scalar<T>(sql: impl SqlSafeStr) -> QueryScalar<T> {
    QueryScalar(query_as(sql))
}

/// Binds the values of a query of `sqlx`, of whichever database.
macro_rules! bound {
    ($values:expr, $query:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match value {
                Value::Int(it) => query.bind(it),
                Value::Real(it) => query.bind(it),
                Value::Text(it) => query.bind(it),
            };
        }
        query
    }};
}

impl Query {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) async fn execute(self, on: &mut Transaction<'_>) -> Result<(), sqlx::Error> {
        let Self { sql, values } = self;
        match on {
            Transaction::Sqlite(on) => {
                let query: sqlx::query::Query<'_, Sqlite, SqliteArguments> = sqlx::query(sql);
                bound!(values, query).execute(&mut **on).await?;
            }
            Transaction::Postgres(on) => {
                let query: sqlx::query::Query<'_, Postgres, PgArguments> =
                    sqlx::query(numbered(sql.as_str()));
                bound!(values, query).execute(&mut **on).await?;
            }
        }
        Ok(())
    }
}

impl<T: Found> QueryAs<T> {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_all(self, on: &mut Transaction<'_>) -> Result<Vec<T>, sqlx::Error> {
        let Query { sql, values } = self.query;
        match on {
            Transaction::Sqlite(on) => {
                let query = sqlx::query_as::<Sqlite, T>(sql);
                bound!(values, query).fetch_all(&mut **on).await
            }
            Transaction::Postgres(on) => {
                let query = sqlx::query_as::<Postgres, T>(numbered(sql.as_str()));
                bound!(values, query).fetch_all(&mut **on).await
            }
        }
    }

    pub(crate) async fn fetch_optional(
        self,
        on: &mut Transaction<'_>,
    ) -> Result<Option<T>, sqlx::Error> {
        Ok(self.fetch_all(on).await?.into_iter().next())
    }

    pub(crate) async fn fetch_one(self, on: &mut Transaction<'_>) -> Result<T, sqlx::Error> {
        let found = self.fetch_optional(on).await?;
        found.ok_or(sqlx::Error::RowNotFound)
    }
}

impl<T> QueryScalar<T>
where
    (T,): Found,
{
    pub(crate) fn bind(self, value: impl Into<Value>) -> Self {
        Self(self.0.bind(value))
    }

    pub(crate) async fn fetch_all(self, on: &mut Transaction<'_>) -> Result<Vec<T>, sqlx::Error> {
        let rows = self.0.fetch_all(on).await?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    pub(crate) async fn fetch_optional(
        self,
        on: &mut Transaction<'_>,
    ) -> Result<Option<T>, sqlx::Error> {
        Ok(self.0.fetch_optional(on).await?.map(|(value,)| value))
    }

    pub(crate) async fn fetch_one(self, on: &mut Transaction<'_>) -> Result<T, sqlx::Error> {
        Ok(self.0.fetch_one(on).await?.0)
    }
}

impl Transaction<'_> {
    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }
}

/// A statement as PostgreSQL wants it: `?` becomes `$1`, `$2` and so on, and `?3` becomes `$3`. No statement of ours has a question mark
/// in a text.
fn numbered(sql: &str) -> AssertSqlSafe<String> {
    let mut text = String::with_capacity(sql.len() + 16);
    let mut characters = sql.chars().peekable();
    let mut count = 0;
    while let Some(character) = characters.next() {
        text.push(if character == '?' { '$' } else { character });
        if character == '?' && !characters.peek().is_some_and(char::is_ascii_digit) {
            count += 1;
            text.push_str(&count.to_string());
        }
    }
    AssertSqlSafe(text)
}

macro_rules! values {
    ($($from:ty => $value:ident),+ $(,)?) => {
        $(
            impl From<$from> for Value {
                fn from(value: $from) -> Self {
                    Self::$value(Some(value.into()))
                }
            }

            impl From<Option<$from>> for Value {
                fn from(value: Option<$from>) -> Self {
                    Self::$value(value.map(Into::into))
                }
            }
        )+
    };
}

values! {
    i64 => Int,
    i32 => Int,
    u32 => Int,
    u8 => Int,
    bool => Int,
    f64 => Real,
    String => Text,
    &str => Text,
    &String => Text,
}

impl From<&Option<String>> for Value {
    fn from(value: &Option<String>) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&i64> for Value {
    fn from(value: &i64) -> Self {
        Self::Int(Some(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered() {
        for (written, expected) in [
            ("SELECT 1", "SELECT 1"),
            (
                "a = ? AND (? IS NULL OR b = ?)",
                "a = $1 AND ($2 IS NULL OR b = $3)",
            ),
            ("?2 ?1 ?10", "$2 $1 $10"),
            ("größe = ?", "größe = $1"),
        ] {
            assert_eq!(numbered(written).0, expected);
        }
    }
}
