//! Statements about tables of users' own, by whatever protocol they come: `CREATE TABLE`, `INSERT` and `DROP TABLE`; those that change rows and
//! columns are in `changes`.

use std::sync::Arc;

use catalog::{Column, Columns};
use engine::Archive;
use sql::mysql::{TableCommand, TargetTable};
use sql::{Connection, ErrorCode, Warning};

use super::changes::TableChange;
use super::{Change, Filling, OwnTable, RowSource, declared_column};
use crate::{ClientError, Shared};

/// A connection's statements about tables of its user's own.
#[derive(Debug)]
pub(crate) struct TableStatements {
    pub(super) shared: Arc<Shared>,
    connection: Arc<Connection>,
    /// The database of a table that is named without one; by default the user's own.
    database: Option<String>,
    /// Whether an UPDATE counts rows that have the values already.
    counts_matched: bool,
}

/// What a statement has done.
#[derive(Debug)]
pub(crate) struct ChangedTable {
    /// How many rows it concerns.
    pub(crate) rows: u64,
    pub(crate) warnings: Vec<Warning>,
}

impl TableStatements {
    /// The statements of a connection, whose default database is also that of the tables that they change.
    pub(crate) fn of_connection(shared: &Arc<Shared>, connection: Arc<Connection>) -> Self {
        Self {
            shared: Arc::clone(shared),
            database: connection.database.clone(),
            connection,
            counts_matched: false,
        }
    }

    /// The same, with another default database for the tables that they change.
    #[must_use]
    pub(crate) fn into_database(self, database: Option<String>) -> Self {
        Self { database, ..self }
    }

    /// The same, where an UPDATE counts, or not, the rows too that have the values already.
    #[must_use]
    pub(crate) fn counting_matched(self, counts_matched: bool) -> Self {
        Self {
            counts_matched,
            ..self
        }
    }

    /// Executes a statement of a text.
    ///
    /// # Errors
    /// The user may not do it, or it cannot be done. Then nothing has changed.
    pub(crate) async fn execute(
        &self,
        command: TableCommand,
        text: &str,
    ) -> Result<ChangedTable, ClientError> {
        let warning = match named_before(&command) {
            Some(target) => self.table(target.clone())?.expiry_warning().await,
            None => None,
        };
        let named = named_after(&command).cloned();
        let rows = Box::pin(self.change(command, text)).await?;
        let warning = match named {
            Some(target) => self.table(target)?.expiry_warning().await,
            None => warning,
        };
        Ok(ChangedTable {
            rows,
            warnings: warning.into_iter().collect(),
        })
    }

    async fn change(&self, command: TableCommand, text: &str) -> Result<u64, ClientError> {
        let (table, change) = match command {
            TableCommand::Create {
                table,
                if_not_exists,
                partition,
                query,
            } => {
                let Some(table) = self.new_table(table, if_not_exists).await? else {
                    return Ok(0);
                };
                let filling = Filling::New(partition);
                return self.fill(table, RowSource::Query(query), filling).await;
            }
            TableCommand::Declare {
                table,
                if_not_exists,
                partition,
                columns,
                query,
            } => {
                let Some(table) = self.new_table(table, if_not_exists).await? else {
                    return Ok(0);
                };
                let declared = columns.iter().map(declared_column);
                let declared: Vec<Column> = declared.collect::<Result<_, _>>()?;
                let rows = query.map_or(RowSource::NONE, RowSource::Query);
                let filling = Filling::Declared(declared, partition);
                return self.fill(table, rows, filling).await;
            }
            TableCommand::Like {
                table,
                if_not_exists,
                source,
            } => {
                let Some(table) = self.new_table(table, if_not_exists).await? else {
                    return Ok(0);
                };
                let columns = self.columns_of(source).await?;
                let filling = Filling::Declared(columns, None);
                return self.fill(table, RowSource::NONE, filling).await;
            }
            TableCommand::Insert {
                table,
                columns,
                rows,
            } => {
                let table = self.table(table)?;
                let columns = table.columns(columns).await?;
                return self.fill(table, rows, Filling::More(columns)).await;
            }
            TableCommand::LoadFile(_) => return Err(no_file()),
            TableCommand::Rename { from, to } => return self.rename(from, to).await.map(|()| 0),
            TableCommand::Drop { tables, if_exists } => {
                return self.drop_tables(tables, if_exists).await.map(|()| 0);
            }
            TableCommand::Expire { table, expiry } => {
                return self.table(table)?.set_expiry(expiry).await.map(|_| 0);
            }
            TableCommand::Update {
                table,
                alias,
                assigned,
                condition,
            } => {
                let change = TableChange::Update {
                    statement: text.to_owned(),
                    alias,
                    assigned,
                    condition,
                    counts_matched: self.counts_matched,
                };
                (table, change)
            }
            TableCommand::Delete {
                table,
                alias,
                condition,
            } => {
                let change = TableChange::Delete {
                    statement: text.to_owned(),
                    alias,
                    condition,
                };
                (table, change)
            }
            TableCommand::Truncate(table) => (table, TableChange::Truncate),
            TableCommand::Partition { table, partition } => {
                (table, TableChange::Partition(partition))
            }
            TableCommand::Alter { table, changes } => (table, TableChange::Alter(changes)),
        };
        self.rewrite(table, change).await
    }

    /// A table that is to be made; `None` if it is there already and may be.
    async fn new_table(
        &self,
        target: TargetTable,
        if_not_exists: bool,
    ) -> Result<Option<OwnTable>, ClientError> {
        let table = self.table(target)?;
        match (table.is_there().await?, if_not_exists) {
            (true, true) => Ok(None),
            (true, false) => Err(table.exists()),
            (false, _) => Ok(Some(table)),
        }
    }

    async fn fill(
        &self,
        table: OwnTable,
        rows: impl Into<RowSource>,
        filling: Filling,
    ) -> Result<u64, ClientError> {
        let filling = self.filling(table, rows, filling);
        let mut computed = self.shared.query_runtime.compute(filling.run());
        computed.recv_one().await
    }

    /// What fills a table, with the settings of the connection.
    pub(crate) fn filling(
        &self,
        table: OwnTable,
        rows: impl Into<RowSource>,
        filling: Filling,
    ) -> Change {
        Change::new(
            &self.shared,
            Arc::clone(&self.connection),
            table,
            rows,
            filling,
        )
    }

    /// The table, if the user may change it.
    ///
    /// # Errors
    /// The user may not, or there are no users.
    pub(crate) fn table(&self, target: TargetTable) -> Result<OwnTable, ClientError> {
        let TargetTable { database, table } = target;
        OwnTable::of(
            &self.shared,
            database.or_else(|| self.database.clone()),
            table,
        )
    }

    /// The columns of a table that the user may read, as far as they may.
    async fn columns_of(&self, source: TargetTable) -> Result<Vec<Column>, ClientError> {
        let database = source.database.or_else(|| self.connection.database.clone());
        let database = database.unwrap_or_else(|| self.connection.user.clone());
        columns_of(self.shared.sessions.archive(), &database, &source.table).await
    }

    async fn drop_tables(
        &self,
        tables: Vec<TargetTable>,
        if_exists: bool,
    ) -> Result<(), ClientError> {
        let mut dropped = Vec::new();
        for target in tables {
            let table = self.table(target)?;
            match table.is_there().await? {
                true => dropped.push(table),
                false if if_exists => {}
                false => {
                    let sentence = format!("there is no table {}", table.shown());
                    return Err(ClientError::new(ErrorCode::UNKNOWN_TABLE, sentence));
                }
            }
        }
        let dropping = async move {
            for table in dropped {
                table.drop_it().await?;
            }
            Ok(())
        };
        let mut computed = self.shared.query_runtime.compute(dropping);
        computed.recv_one().await
    }
}

/// The error of a statement whose rows only a connection of MySQL's protocol can send.
fn no_file() -> ClientError {
    let sentence = "LOAD DATA LOCAL INFILE is for connections of MySQL's protocol: PUT a file to /tables/NAME, or POST it to /load/NAME";
    ClientError::new(ErrorCode::NOT_SUPPORTED, sentence)
}

/// The columns of a table that whoever asks may read.
async fn columns_of(
    archive: &Archive,
    database: &str,
    table: &str,
) -> Result<Vec<Column>, ClientError> {
    let found = archive.table(database, table).await?;
    let seen = archive.catalog().rights().columns(database, table);
    let (Some(found), Some(seen)) = (found, seen) else {
        let sentence = match archive.view(database, table).await? {
            Some(_) => format!(
                "{database}.{table} is a view, and LIKE is for tables: CREATE TABLE ... AS SELECT * FROM {database}.{table} LIMIT 0 has its columns"
            ),
            None => format!("there is no table {database}.{table}"),
        };
        return Err(ClientError::new(ErrorCode::NO_TABLE, sentence));
    };
    let columns = found.spec().columns.iter();
    let columns = columns.filter(|it| *seen == Columns::All || seen.has(&it.name));
    Ok(columns.cloned().collect())
}

/// The table that a statement changes and that is there before, of which its owner may have to be warned.
fn named_before(command: &TableCommand) -> Option<&TargetTable> {
    match command {
        TableCommand::Insert { table, .. }
        | TableCommand::Update { table, .. }
        | TableCommand::Delete { table, .. }
        | TableCommand::Alter { table, .. }
        | TableCommand::Partition { table, .. }
        | TableCommand::Truncate(table) => Some(table),
        TableCommand::Create { .. }
        | TableCommand::Declare { .. }
        | TableCommand::Like { .. }
        | TableCommand::Rename { .. }
        | TableCommand::Expire { .. }
        | TableCommand::LoadFile(_)
        | TableCommand::Drop { .. } => None,
    }
}

/// The same of a table that there is afterwards.
fn named_after(command: &TableCommand) -> Option<&TargetTable> {
    match command {
        TableCommand::Create { table, .. }
        | TableCommand::Declare { table, .. }
        | TableCommand::Like { table, .. }
        | TableCommand::Expire { table, .. }
        | TableCommand::Rename { to: table, .. } => Some(table),
        _ => None,
    }
}
