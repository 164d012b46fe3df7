//! [`Catalog`]: the queries on databases and tables, and the few operations that change them.

use std::path::Path;
use std::sync::Arc;

use crate::access::make_directories;
use crate::clock::utc_now;
use crate::names::is_usable;
use crate::opened::DirectoryLock;
use crate::opening::{open, open_or_create};
use crate::postgres::PostgresCatalog;
use crate::state::CatalogState;
use crate::statements::Statements;
use crate::view::full_name;
use crate::{
    CatalogError, Chunk, Column, Database, DatabaseChange, Expiry, LoadId, NewDatabase,
    PartContents, PostgresAddress, Releases, Rights, Table, TableChange, TableSpec, View,
    ViewQuery, fold_name,
};

/// What a directory has in it as long as a backup is being restored into it: the name of the backup.
pub const RESTORE_MARKER: &str = "restore.unfinished";

/// What exists in one data directory. Cheap to clone: clones share their connections.
///
/// The rules are here (names, what a table must say of itself), what is read and changed is in [`Statements`], and which database keeps the
/// rows is the business of the backend: an SQLite file `meridian.sqlite` in the data directory, or a schema of a PostgreSQL database, which
/// the file `meridian.catalog` in the data directory names.
#[derive(Debug, Clone)]
pub struct Catalog {
    rows: Statements,
    data_dir: Arc<Path>,
    _opened: Arc<DirectoryLock>,
    /// Of whoever asks: what else there is does not exist for them.
    rights: Arc<Rights>,
    releases: Arc<Releases>,
}

/// One of the tables that [`Catalog::repartition`] or [`Catalog::replace_all`] shows anew.
#[derive(Debug, Clone)]
pub struct Publication<'a> {
    /// The load that is to be shown, which is running.
    pub load: LoadId,
    /// The parts that the table has to have until then.
    pub replaces: Vec<LoadId>,
    /// What is to be said of the table.
    pub spec: TableSpec,
    /// The one part that it has then.
    pub contents: PartContents<'a>,
}

/// One more part for a table: see [`Catalog::append`].
#[derive(Debug, Clone)]
pub struct Append<'a> {
    /// The load, which is running.
    pub load: LoadId,
    /// The table as it was when the load began. Its placement and its directors must be the same still; it may have other parts.
    pub table: &'a Table,
    /// What the load holds.
    pub contents: PartContents<'a>,
    /// Match tables of the database, by name, that may have pairs with keys which this part of a director brings: these pairs
    /// lie elsewhere, and the tables are not taken for placed by the director from now on.
    pub unsettled: &'a [String],
    /// The last parts of the table's list whose rows this part has, too, in front of its own: it takes their place. None for a part
    /// that is only added.
    pub replaces: &'a [LoadId],
}

/// Columns that a table gets behind those that it has. The files of its parts from before lack them: they are NULL in these rows.
#[derive(Debug, Clone, Copy)]
pub struct NewColumns<'a> {
    /// The table as it was, which must have the same columns, placement and directors still.
    pub table: &'a Table,
    /// The columns, which may be NULL.
    pub columns: &'a [Column],
}

/// A view that is changed together with tables that it reads.
#[derive(Debug, Clone)]
pub struct ChangedView {
    /// Its database.
    pub database: String,
    /// Its name. The view is there.
    pub name: String,
    /// What it is made of from now on. Whether that can be planned is for the caller to know.
    pub query: ViewQuery,
    /// What is said of it beside what was said before.
    pub said: TableChange,
}

impl Catalog {
    /// Opens the catalog of a data directory that has one.
    ///
    /// # Errors
    /// [`CatalogError::NoCatalog`] if there is none, and nothing is created then.
    pub async fn open(data_dir: &Path) -> Result<Self, CatalogError> {
        // Before it is looked where the catalog is: from then on it stays there.
        let opened = DirectoryLock::where_there_is_one(data_dir)?;
        Ok(Self {
            rows: open(data_dir).await?,
            _opened: Arc::new(opened),
            data_dir: data_dir.into(),
            rights: Arc::new(Rights::All),
            releases: Arc::default(),
        })
    }

    /// Opens the catalog of a data directory; makes the directory and the catalog if need be.
    ///
    /// # Errors
    /// [`CatalogError::BeingRestored`], and whatever the file system or the database says.
    pub async fn open_or_create(data_dir: &Path) -> Result<Self, CatalogError> {
        if data_dir.join(RESTORE_MARKER).exists() {
            return Err(CatalogError::BeingRestored {
                dir: data_dir.to_owned(),
            });
        }
        make_directories(data_dir).map_err(CatalogError::io("make directory", data_dir))?;
        let opened = DirectoryLock::in_dir(data_dir)?;
        Ok(Self {
            rows: open_or_create(data_dir).await?,
            _opened: Arc::new(opened),
            data_dir: data_dir.into(),
            rights: Arc::new(Rights::All),
            releases: Arc::default(),
        })
    }

    /// Makes a catalog in PostgreSQL for a data directory that has none; makes the directory if need be.
    ///
    /// # Errors
    /// There is a catalog, or the schema is there; or the database cannot be used.
    pub async fn create_in_postgres(
        data_dir: &Path,
        address: &PostgresAddress,
    ) -> Result<(), CatalogError> {
        PostgresCatalog::create(data_dir, address).await
    }

    /// The same catalog as somebody with these rights sees it.
    pub fn seen_with(&self, rights: Arc<Rights>) -> Self {
        Self {
            rights,
            ..self.clone()
        }
    }

    /// The same catalog where whoever asks sees some rows alone of some tables.
    #[must_use]
    pub fn released_by(&self, releases: Arc<Releases>) -> Self {
        Self {
            releases,
            ..self.clone()
        }
    }

    /// Of which tables whoever asks sees some rows alone.
    pub fn releases(&self) -> &Arc<Releases> {
        &self.releases
    }

    /// The rights of whoever asks.
    pub fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// The data directory, as it was named.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Closes the connections of this catalog and its clones; no query works after that. What was changed is
    /// in the database file then, so that a copy of it is a copy of the catalog, unless a reader is in the way.
    pub async fn close(&self) {
        self.rows.backend().close().await;
    }

    /// The state in which the catalog is now: while it stays the same, so does every result of a query on databases and tables,
    /// whichever process may write. It changes with every publication, and not with a load that begins or is given up. Takes a
    /// microsecond, where a query takes hundreds. `None` if it is unknown: then query.
    pub fn state(&self) -> Option<CatalogState> {
        self.rows.backend().state()
    }

    /// The older version that the catalog had when this handle opened it and brought it up to date. What happened to an
    /// older catalog before is not known: versions below 2 have no checksums.
    pub fn upgraded_from(&self) -> Option<i64> {
        self.rows.backend().upgraded_from()
    }

    /// What is wrong with the catalog itself, in sentences: its file, and whatever does not fit its checksum.
    ///
    /// # Errors
    /// Only where it cannot be read at all.
    pub async fn verify(&self) -> Result<Vec<String>, CatalogError> {
        self.rows.verify().await
    }

    /// All databases, by name.
    pub async fn databases(&self) -> Result<Vec<Database>, CatalogError> {
        let mut databases = self.rows.databases().await?;
        databases.retain(|database| self.rights.may_see_database(&database.name));
        Ok(databases)
    }

    /// The database of this name, without regard to case.
    pub async fn database(&self, name: &str) -> Result<Option<Database>, CatalogError> {
        match self.rights.may_see_database(name) {
            true => self.rows.database(name).await,
            false => Ok(None),
        }
    }

    /// The tables of a database, by name; none if there is no such database.
    pub async fn tables(&self, database: &str) -> Result<Vec<Table>, CatalogError> {
        if !self.rights.may_see_database(database) {
            return Ok(Vec::new());
        }
        let tables = self.rows.tables(database, None).await?.into_iter();
        Ok(tables.filter_map(|it| self.seen(it)).collect())
    }

    /// The table of this name in a database, both without regard to case.
    pub async fn table(&self, database: &str, name: &str) -> Result<Option<Table>, CatalogError> {
        if !self.rights.may_read(database, name) {
            return Ok(None);
        }
        let mut found = self.rows.tables(database, Some(name)).await?;
        Ok(found.pop().and_then(|it| self.seen(it)))
    }

    /// A table as whoever asks sees it.
    fn seen(&self, table: Table) -> Option<Table> {
        let mut table = self.rights.seen_table(table)?;
        let release = self
            .releases
            .condition(&table.spec.database, &table.spec.name);
        if release.is_some() {
            table.parts.clear();
        }
        Some(table)
    }

    /// All views, by database and name.
    pub async fn views(&self) -> Result<Vec<View>, CatalogError> {
        let views = self.rows.views().await?.into_iter();
        Ok(views.filter_map(|it| self.rights.seen_view(it)).collect())
    }

    /// The view of this name in a database, both without regard to case.
    pub async fn view(&self, database: &str, name: &str) -> Result<Option<View>, CatalogError> {
        let names = (fold_name(database), fold_name(name));
        let is_meant = |view: &View| (fold_name(&view.database), fold_name(&view.name)) == names;
        Ok(self.views().await?.into_iter().find(is_meant))
    }

    /// Makes a view, or puts it in the place of the one of that name. Whether its query can be planned is for the caller to know.
    ///
    /// # Errors
    /// There is no such database; a table has the name, or a view that is not to be replaced; the names cannot be used.
    pub async fn create_view(
        &self,
        database: &str,
        name: &str,
        query: &ViewQuery,
        description: Option<&str>,
        replace: bool,
    ) -> Result<(), CatalogError> {
        check_name("database", database)?;
        check_name("view", name)?;
        query.check(&full_name(database, name))?;
        self.rows
            .create_view(database, name, query, description, replace, &utc_now())
            .await
    }

    /// Drops a view. Views that read it are there still, and cannot be read.
    ///
    /// # Errors
    /// There is no such view.
    pub async fn drop_view(&self, database: &str, name: &str) -> Result<(), CatalogError> {
        self.rows.drop_view(database, name).await
    }

    /// The chunks that a load published, by chunk number. They can be requested until the load is
    /// forgotten, also when the table has been replaced since.
    pub async fn chunks(&self, load: LoadId) -> Result<Vec<Chunk>, CatalogError> {
        self.rows.chunks(load).await
    }

    /// How many chunks a load published.
    pub async fn chunk_count(&self, load: LoadId) -> Result<u64, CatalogError> {
        self.rows.chunk_count(load).await
    }

    /// Begins a load of a table that may or may not exist, and writes down who we are.
    pub async fn begin_load(&self, database: &str, table: &str) -> Result<LoadId, CatalogError> {
        check_name("database", database)?;
        check_name("table", table)?;
        self.rows.begin_load(database, table, &utc_now()).await
    }

    /// Begins several loads of a table at once, for parts that follow each other soon: one transaction for all of them.
    ///
    /// # Errors
    /// As for [`Catalog::begin_load`].
    pub async fn begin_loads(
        &self,
        database: &str,
        table: &str,
        count: usize,
    ) -> Result<Vec<LoadId>, CatalogError> {
        check_name("database", database)?;
        check_name("table", table)?;
        self.rows
            .begin_loads(database, table, count, &utc_now())
            .await
    }

    /// Makes a load's table visible, all at once: the database if it is new, the table with this one part, its columns,
    /// directors and chunks, in one transaction. If the table exists it is replaced. Gives the parts that it had before,
    /// whose files can go when nobody reads them any more.
    ///
    /// An existing database must have the same stripes, sub-stripes and overlap, unless it holds
    /// nothing but replicated tables, which have no use for them: then it takes the new ones.
    ///
    /// # Errors
    /// The load is not running, or was begun for another table; the description contradicts itself;
    /// a director is not there or is none; the database has another partitioning. Nothing has
    /// changed then, and the load is still running.
    pub async fn publish(
        &self,
        load: LoadId,
        database: &NewDatabase,
        spec: &TableSpec,
        contents: PartContents<'_>,
    ) -> Result<Vec<LoadId>, CatalogError> {
        database.check()?;
        spec.check()?;
        self.rows
            .publish(load, database, spec, contents, &utc_now())
            .await
    }

    /// The same for a table that consists of several parts from the beginning, in this order: all of them are running loads of it.
    ///
    /// # Errors
    /// As for [`Catalog::publish`], for any of the loads; there is none.
    pub async fn publish_parts(
        &self,
        database: &NewDatabase,
        spec: &TableSpec,
        parts: &[(LoadId, PartContents<'_>)],
    ) -> Result<Vec<LoadId>, CatalogError> {
        database.check()?;
        spec.check()?;
        self.rows
            .publish_parts(database, spec, parts, &utc_now())
            .await
    }

    /// Shows a table under another name, in the same database: the load holds its rows, and takes the place of its parts.
    ///
    /// # Errors
    /// As for [`Catalog::publish`]; and [`CatalogError::TableChanged`] if the table is not as it was, or there is one of the new name.
    /// Nothing has changed then, and the load is still running.
    pub async fn publish_renamed(
        &self,
        load: LoadId,
        former: &Table,
        spec: &TableSpec,
        contents: PartContents<'_>,
    ) -> Result<(), CatalogError> {
        spec.check()?;
        self.rows
            .publish_renamed(load, former, spec, contents, &utc_now())
            .await
    }

    /// Adds a part at the end of a table's list, or in the place of the parts at its end whose rows it has, too.
    ///
    /// # Errors
    /// As for [`Catalog::publish`]; and [`CatalogError::TableChanged`] if the table has been dropped or replaced since the
    /// load began, or its list does not end with the parts that are replaced. Nothing has changed then, and the load is still running.
    pub async fn append(&self, append: Append<'_>) -> Result<(), CatalogError> {
        self.rows.append(&[append], &[], &[], &utc_now()).await
    }

    /// Adds parts at the ends of several tables' lists, after columns were added to them: `appends` know the tables with these. All of it
    /// becomes visible together, and so do the views as they are to be then.
    ///
    /// # Errors
    /// As for [`Catalog::append`], for any of them; a column may not be NULL, has a name that cannot be used or that another one has; one of
    /// the tables is a match table, or one of the views is not there.
    pub async fn append_all(
        &self,
        appends: &[Append<'_>],
        columns: &[NewColumns<'_>],
        views: &[ChangedView],
    ) -> Result<(), CatalogError> {
        for new in columns {
            new.check()?;
        }
        for view in views {
            view.query.check(&full_name(&view.database, &view.name))?;
        }
        self.rows.append(appends, columns, views, &utc_now()).await
    }

    /// Puts one part in the place of several that follow each other in a table's list and hold the same rows.
    ///
    /// # Errors
    /// As for [`Catalog::append`], also if the list does not have these parts one after the other any more.
    pub async fn merge_parts(
        &self,
        load: LoadId,
        table: &Table,
        merged: &[LoadId],
        contents: PartContents<'_>,
    ) -> Result<(), CatalogError> {
        self.rows
            .merge_parts(load, table, merged, contents, &utc_now())
            .await
    }

    /// Takes a part out of a table's list. Whether other rows depend on it is for the caller to know.
    ///
    /// # Errors
    /// There is no such part, or it is the only one.
    pub async fn drop_part(
        &self,
        database: &str,
        table: &str,
        part: LoadId,
    ) -> Result<(), CatalogError> {
        self.rows.drop_part(database, table, part).await
    }

    /// Drops a table. Gives the parts that it had, whose files can go when nobody reads them any more.
    ///
    /// # Errors
    /// There is no such table, or others have its keys, which must be dropped first.
    pub async fn drop_table(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        self.rows.drop_table(database, table, None).await
    }

    /// Drops a table that has expired.
    ///
    /// # Errors
    /// As for [`Catalog::drop_table`]; and [`CatalogError::TableChanged`] if it expires later, or never. Nothing has changed then.
    pub async fn drop_expired(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let now = utc_now();
        self.rows.drop_table(database, table, Some(&now)).await
    }

    /// Says when a table expires. Gives whether that is another time than before.
    ///
    /// # Errors
    /// There is no such table.
    pub async fn set_expiry(
        &self,
        database: &str,
        table: &str,
        expiry: Expiry,
    ) -> Result<bool, CatalogError> {
        self.rows.set_expiry(database, table, expiry).await
    }

    /// Drops a database with all its tables.
    ///
    /// # Errors
    /// There is no such database.
    pub async fn drop_database(&self, database: &str) -> Result<(), CatalogError> {
        self.rows.drop_database(database).await
    }

    /// Gives a database another partitioning and shows all its partitioned tables anew, in one transaction.
    ///
    /// # Errors
    /// As for [`Catalog::publish`]; and [`CatalogError::ChangedMeanwhile`] if the partitioned tables of the database are
    /// others than the publications', or show other loads. Nothing has changed then, and the loads are still running.
    pub async fn repartition(
        &self,
        database: &NewDatabase,
        publications: &[Publication<'_>],
    ) -> Result<(), CatalogError> {
        database.check()?;
        for publication in publications {
            publication.spec.check()?;
        }
        self.rows
            .repartition(database, publications, &utc_now())
            .await
    }

    /// Shows several tables anew, with the views of them, in one transaction. How the sky is cut stays as it is.
    ///
    /// # Errors
    /// As for [`Catalog::publish`] and [`Catalog::append_all`]; and [`CatalogError::TableChanged`] if a table has other parts than those that
    /// are to be replaced. Nothing has changed then, and the loads are still running.
    pub async fn replace_all(
        &self,
        publications: &[Publication<'_>],
        views: &[ChangedView],
    ) -> Result<(), CatalogError> {
        for publication in publications {
            publication.spec.check()?;
        }
        for view in views {
            view.query.check(&full_name(&view.database, &view.name))?;
        }
        self.rows.replace_all(publications, views, &utc_now()).await
    }

    /// Changes what is said of a database, its tables and their columns, all of it in one transaction. No row and no part changes.
    /// Gives whether anything is said otherwise than before.
    ///
    /// # Errors
    /// There is no such database; or one of the tables is not there or does not have one of the columns, as it was changed
    /// meanwhile. Nothing has changed then.
    pub async fn describe(
        &self,
        database: &str,
        change: &DatabaseChange,
    ) -> Result<bool, CatalogError> {
        self.rows.describe(database, change).await
    }

    /// Gives up a running load. It stays among the unpublished ones until it is forgotten.
    pub async fn abandon(&self, load: LoadId) -> Result<(), CatalogError> {
        self.rows.abandon(load, &utc_now()).await
    }

    /// Loads of a table that were begun and neither published nor forgotten, by number. Asked by the
    /// holder of the table's [`LoadLock`](crate::LoadLock), they are what killed and abandoned loads
    /// left behind (and its own load, once begun).
    pub async fn unpublished_loads(
        &self,
        database: &str,
        table: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        self.rows.unpublished_loads(database, table).await
    }

    /// Loads of all tables that were published, then replaced, merged or dropped, and not yet forgotten, by number.
    pub async fn superseded_loads(&self) -> Result<Vec<SupersededLoad>, CatalogError> {
        self.rows.superseded_loads().await
    }

    /// Removes every trace of a load, when its files are gone. A load that is not known is no error,
    /// so a clean-up can be repeated.
    ///
    /// # Errors
    /// [`CatalogError::StillShown`] if the load is the one that its table shows.
    pub async fn forget(&self, load: LoadId) -> Result<(), CatalogError> {
        self.rows.forget(&[load]).await
    }

    /// The same of several loads, in one transaction.
    ///
    /// # Errors
    /// As for [`Catalog::forget`], for any of them: nothing has changed then.
    pub async fn forget_all(&self, loads: &[LoadId]) -> Result<(), CatalogError> {
        match loads {
            [] => Ok(()),
            loads => self.rows.forget(loads).await,
        }
    }
}

/// A load that no table shows any more, and whose files may still be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededLoad {
    /// The load.
    pub load: LoadId,
    /// The folded name of the database that it was begun for.
    pub database: String,
    /// The folded name of the table.
    pub table: String,
}

/// Rejects a name that cannot be used for a `what`.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), CatalogError> {
    if is_usable(name) {
        return Ok(());
    }
    Err(CatalogError::BadName {
        what,
        name: name.to_owned(),
    })
}
