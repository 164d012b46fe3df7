//! Views: reading and changing them.

use sqlx::{AssertSqlSafe, FromRow};

use super::Statements;
use super::checksum::Digest;
use super::query::{Transaction, query, query_as};
use super::read::{database_named, expect, list_checksum};
use super::seal::seal_list;
use crate::view::full_name;
use crate::{
    CatalogError, ChangedView, Position, TableChange, TableMetadata, View, ViewQuery, fold_name,
};

/// The name of their checksum among those of lists.
const LIST: &str = "views";

impl Statements {
    /// All views, by database and name.
    pub async fn views(&self) -> Result<Vec<View>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let mut rows = view_rows(&mut snapshot).await?;
        rows.sort_by(|a, b| a.order().cmp(&b.order()));
        rows.into_iter().map(ViewRow::into_view).collect()
    }

    pub async fn create_view(
        &self,
        database: &str,
        name: &str,
        query: &ViewQuery,
        description: Option<&str>,
        replace: bool,
        now: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        let rows = view_rows(&mut change).await?;
        let listed = database_named(&mut change, database).await?;
        let listed = listed.ok_or_else(|| CatalogError::NoDatabase {
            database: database.to_owned(),
        })?;
        let folded = fold_name(name);
        if listed.tables.iter().any(|it| it.folded_name == folded) {
            let table = full_name(database, name);
            return Err(CatalogError::TableInTheWay { table });
        }
        let is_there = |row: &ViewRow| row.order() == (&listed.row.folded_name, &folded);
        if !replace && rows.iter().any(is_there) {
            let view = full_name(database, name);
            return Err(CatalogError::ViewExists { view });
        }
        put_view(
            &mut change,
            listed.row.id,
            name,
            query,
            (description, replace),
            now,
        )
        .await?;
        seal_views(&mut change, |row| {
            row.order() == (&listed.row.folded_name, &folded)
        })
        .await?;
        self.commit_publication(change).await
    }

    pub async fn drop_view(&self, database: &str, name: &str) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        let rows = view_rows(&mut change).await?;
        let names = (&fold_name(database), &fold_name(name));
        let found = rows.iter().find(|row| row.order() == names);
        let found = found.ok_or_else(|| CatalogError::NoView {
            view: full_name(database, name),
        })?;
        query("DELETE FROM views WHERE id = ?")
            .bind(found.id)
            .execute(&mut change)
            .await?;
        seal_views(&mut change, |_| false).await?;
        self.commit_publication(change).await
    }
}

/// A row of `views`, with the names of its database.
#[derive(Debug, FromRow)]
pub(crate) struct ViewRow {
    id: i64,
    database_id: i64,
    database: String,
    folded_database: String,
    name: String,
    folded_name: String,
    default_database: Option<String>,
    definition: String,
    columns: String,
    ra_column: Option<String>,
    dec_column: Option<String>,
    description: Option<String>,
    created_at: String,
    headings: Option<String>,
    metadata: Option<String>,
    checksum: i64,
}

impl ViewRow {
    /// The folded names of database and view, by which views are listed.
    fn order(&self) -> (&String, &String) {
        (&self.folded_database, &self.folded_name)
    }

    fn digest(&self) -> i64 {
        let digest = Digest::of("view")
            .int(self.id)
            .int(self.database_id)
            .text(&self.name)
            .text(&self.folded_name)
            .maybe_text(self.default_database.as_deref())
            .text(&self.definition)
            .text(&self.columns)
            .maybe_text(self.ra_column.as_deref())
            .maybe_text(self.dec_column.as_deref())
            .maybe_text(self.description.as_deref())
            .text(&self.created_at);
        // A view without these has the checksum that it had before there were such columns.
        match (&self.headings, &self.metadata) {
            (None, None) => digest.finish(),
            (headings, metadata) => digest
                .maybe_text(headings.as_deref())
                .maybe_text(metadata.as_deref())
                .finish(),
        }
    }

    /// What is said of it, but for its description.
    fn metadata(&self) -> Result<TableMetadata, CatalogError> {
        let Some(text) = &self.metadata else {
            return Ok(TableMetadata::default());
        };
        serde_json::from_str(text)
            .map_err(|_| CatalogError::Damaged(format!("what is said of the view {}", self.name)))
    }

    fn into_view(self) -> Result<View, CatalogError> {
        let damaged =
            |what: &str| CatalogError::Damaged(format!("{what} of the view {}", self.name));
        let columns: Vec<String> =
            serde_json::from_str(&self.columns).map_err(|_| damaged("the columns"))?;
        let headings = match &self.headings {
            Some(headings) => {
                serde_json::from_str(headings).map_err(|_| damaged("the headings"))?
            }
            None => columns.clone(),
        };
        let metadata = TableMetadata {
            description: self.description.clone(),
            ..self.metadata()?
        };
        let position = self.ra_column.zip(self.dec_column);
        Ok(View {
            id: self.id,
            database: self.database,
            name: self.name,
            query: ViewQuery {
                definition: self.definition,
                default_database: self.default_database,
                columns,
                headings,
                position: position.map(|(ra, dec)| Position { ra, dec }),
            },
            metadata,
            created_at: self.created_at,
        })
    }
}

/// All views, in the order of their numbers.
///
/// # Errors
/// [`CatalogError::Altered`] if one of them or their list does not fit its checksum.
pub(super) async fn view_rows(
    connection: &mut Transaction<'_>,
) -> Result<Vec<ViewRow>, CatalogError> {
    let rows = view_rows_unverified(connection).await?;
    for row in &rows {
        expect(row.checksum, row.digest(), || {
            format!("view {}", full_name(&row.database, &row.name))
        })?;
    }
    expect(
        list_checksum(connection, LIST).await?,
        digest_views(&rows),
        || "the list of views".to_owned(),
    )?;
    Ok(rows)
}

async fn view_rows_unverified(
    connection: &mut Transaction<'_>,
) -> Result<Vec<ViewRow>, CatalogError> {
    let sql = "SELECT v.id, v.database_id, d.name AS database, d.folded_name AS folded_database, v.name, v.folded_name, \
                      v.default_database, v.definition, v.columns, v.ra_column, v.dec_column, v.description, v.created_at, v.headings, v.metadata, v.checksum \
               FROM views v JOIN databases d ON d.id = v.database_id ORDER BY v.id";
    Ok(query_as(sql).fetch_all(connection).await?)
}

fn digest_views(rows: &[ViewRow]) -> i64 {
    let add = |digest: Digest, row: &ViewRow| digest.int(row.id).int(row.checksum);
    Digest::of("views").list(rows, add).finish()
}

/// Seals the views that were changed, and the list of all.
pub(crate) async fn seal_views(
    change: &mut Transaction<'_>,
    changed: impl Fn(&ViewRow) -> bool,
) -> Result<(), CatalogError> {
    let mut rows = view_rows_unverified(change).await?;
    for row in rows.iter_mut().filter(|row| changed(row)) {
        row.checksum = row.digest();
        query("UPDATE views SET checksum = ? WHERE id = ?")
            .bind(row.checksum)
            .bind(row.id)
            .execute(&mut *change)
            .await?;
    }
    seal_list(change, LIST, digest_views(&rows)).await
}

/// Sees that no view has the name of a table that is to be made.
pub(super) async fn expect_no_view(
    change: &mut Transaction<'_>,
    database: &str,
    name: &str,
) -> Result<(), CatalogError> {
    let names = (&fold_name(database), &fold_name(name));
    let rows = view_rows(change).await?;
    match rows.iter().any(|row| row.order() == names) {
        false => Ok(()),
        true => Err(CatalogError::ViewInTheWay {
            view: full_name(database, name),
        }),
    }
}

/// Changes what is said of a view. Returns whether it was not said before.
///
/// # Errors
/// There is no such view, or it lacks a column.
pub(super) async fn describe_view(
    connection: &mut Transaction<'_>,
    (database, name): (&str, &str),
    change: &TableChange,
) -> Result<bool, CatalogError> {
    let names = (&fold_name(database), &fold_name(name));
    let rows = view_rows(connection).await?;
    let found = rows.into_iter().find(|row| row.order() == names);
    let missing = || CatalogError::TableChanged {
        table: full_name(database, name),
    };
    let view = found.ok_or_else(missing)?.into_view()?;
    let after = change
        .applied_to(&view.metadata, |column| view.query.has(column))
        .ok_or_else(missing)?;
    if after == view.metadata {
        return Ok(false);
    }
    let description = after.description.clone();
    let besides = TableMetadata {
        description: None,
        ..after
    };
    let text =
        match besides == TableMetadata::default() {
            true => None,
            false => Some(serde_json::to_string(&besides).map_err(|error| {
                CatalogError::Damaged(format!("what is said of a view: {error}"))
            })?),
        };
    query("UPDATE views SET description = ?, metadata = ? WHERE id = ?")
        .bind(description)
        .bind(text)
        .bind(view.id)
        .execute(&mut *connection)
        .await?;
    seal_views(connection, |row| row.id == view.id).await?;
    Ok(true)
}

/// Puts another definition in the place of a view's. Everything is sealed afterwards.
///
/// # Errors
/// There is no such view, or it lacks a column of which something is said.
pub(super) async fn change_view(
    change: &mut Transaction<'_>,
    view: &ChangedView,
    now: &str,
) -> Result<(), CatalogError> {
    let names = (&fold_name(&view.database), &fold_name(&view.name));
    let rows = view_rows(change).await?;
    let found = rows.iter().find(|row| row.order() == names);
    let found = found.ok_or_else(|| CatalogError::NoView {
        view: full_name(&view.database, &view.name),
    })?;
    let (id, name) = (found.database_id, &found.name);
    put_view(change, id, name, &view.query, (None, true), now).await?;
    seal_views(change, |row| row.order() == names).await?;
    let names = (view.database.as_str(), view.name.as_str());
    describe_view(change, names, &view.said).await.map(drop)
}

/// Writes a view, new or over the one that was there. One that replaces another keeps what was said of that, unless something is said.
async fn put_view(
    change: &mut Transaction<'_>,
    database: i64,
    name: &str,
    view: &ViewQuery,
    (description, replace): (Option<&str>, bool),
    now: &str,
) -> Result<(), CatalogError> {
    let position = view.position.as_ref();
    let insert = "INSERT INTO views (database_id, name, folded_name, default_database, definition, columns, ra_column, dec_column, \
                                     description, created_at, headings) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let replacing = "ON CONFLICT (database_id, folded_name) DO UPDATE SET \
             name = excluded.name, default_database = excluded.default_database, definition = excluded.definition, \
             columns = excluded.columns, ra_column = excluded.ra_column, dec_column = excluded.dec_column, \
             description = coalesce(excluded.description, views.description), created_at = excluded.created_at, headings = excluded.headings";
    let sql = match replace {
        true => format!("{insert} {replacing}"),
        false => insert.to_owned(),
    };
    let list = |names: &[String]| serde_json::Value::from(names.to_vec()).to_string();
    let columns = list(&view.columns);
    let headings = (view.headings != view.columns).then(|| list(&view.headings));
    query(AssertSqlSafe(sql))
        .bind(database)
        .bind(name)
        .bind(fold_name(name))
        .bind(&view.default_database)
        .bind(&view.definition)
        .bind(columns)
        .bind(position.map(|position| &position.ra))
        .bind(position.map(|position| &position.dec))
        .bind(description)
        .bind(now)
        .bind(headings)
        .execute(change)
        .await?;
    Ok(())
}
