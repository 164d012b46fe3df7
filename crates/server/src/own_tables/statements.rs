//! Statements about tables of users' own: `CREATE TABLE`, `INSERT` and `DROP TABLE`; those that change rows and columns are in
//! `own_changes`.

use std::sync::Arc;

use catalog::{Column, Columns};
use engine::Archive;
use sql::ErrorCode;
use sql::mysql::{TableCommand, TargetTable};

use super::capabilities::Capabilities;
use super::connection::Client;
use super::own_changes::TableChange;
use super::watch::{Interruption, Watch};
use crate::ClientError;
use crate::own_tables::{Change, Filling, OwnTable, RowSource, declared_column};

impl Client {
    /// Executes a statement of a text that changes a table. Returns the number of rows.
    pub(super) async fn change_table(
        &mut self,
        command: TableCommand,
        text: &str,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let warning = match named_before(&command) {
            Some(target) => self.own(target.clone())?.expiry_warning().await,
            None => None,
        };
        let named = named_after(&command).cloned();
        let rows = self.do_change_table(command, text, watch).await?;
        let warning = match named {
            Some(target) => self.own(target)?.expiry_warning().await,
            None => warning,
        };
        self.add_warnings(warning.into_iter().collect());
        Ok(rows)
    }

    async fn do_change_table(
        &mut self,
        command: TableCommand,
        text: &str,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let changing = match command {
            TableCommand::Create {
                table,
                if_not_exists,
                partition,
                query,
            } => {
                let table = self.own(table)?;
                if is_made(&table, if_not_exists).await? {
                    return Ok(0);
                }
                self.filling(table, RowSource::Query(query), Filling::New(partition))
            }
            TableCommand::Insert {
                table,
                columns,
                rows,
            } => {
                let table = self.own(table)?;
                let columns = table.columns(columns).await?;
                self.filling(table, rows, Filling::More(columns))
            }
            TableCommand::Declare {
                table,
                if_not_exists,
                partition,
                columns,
                query,
            } => {
                let table = self.own(table)?;
                if is_made(&table, if_not_exists).await? {
                    return Ok(0);
                }
                let declared = columns.iter().map(declared_column);
                let declared: Vec<Column> = declared.collect::<Result<_, _>>()?;
                let rows = query.map_or(RowSource::NONE, RowSource::Query);
                self.filling(table, rows, Filling::Declared(declared, partition))
            }
            TableCommand::Like {
                table,
                if_not_exists,
                source,
            } => {
                let table = self.own(table)?;
                if is_made(&table, if_not_exists).await? {
                    return Ok(0);
                }
                let columns = self.columns_of(source).await?;
                self.filling(table, RowSource::NONE, Filling::Declared(columns, None))
            }
            TableCommand::Rename { from, to } => return self.rename_table(from, to, watch).await,
            TableCommand::LoadFile(load) => return self.load_file(*load, watch).await,
            TableCommand::Drop { tables, if_exists } => {
                return self.drop_tables(tables, if_exists, watch).await;
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
                    counts_matched: self.capabilities.has(Capabilities::FOUND_ROWS),
                };
                return self.rewrite(table, change, watch).await;
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
                return self.rewrite(table, change, watch).await;
            }
            TableCommand::Truncate(table) => {
                return self.rewrite(table, TableChange::Truncate, watch).await;
            }
            TableCommand::Expire { table, expiry } => {
                self.own(table)?.set_expiry(expiry).await?;
                return Ok(0);
            }
            TableCommand::Partition { table, partition } => {
                let change = TableChange::Partition(partition);
                return self.rewrite(table, change, watch).await;
            }
            TableCommand::Alter { table, changes } => {
                return self
                    .rewrite(table, TableChange::Alter(changes), watch)
                    .await;
            }
        };
        let mut computed = self.shared.query_runtime.compute(changing.run());
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }

    /// The columns of a table that the user may read, as far as they may.
    async fn columns_of(&mut self, source: TargetTable) -> Result<Vec<Column>, ClientError> {
        let database = source.database.or_else(|| self.connection.database.clone());
        let database = database.unwrap_or_else(|| self.connection.user.clone());
        let archive = Arc::clone(self.shared.sessions.archive());
        columns_of(&archive, &database, &source.table).await
    }

    pub(super) fn filling(
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
    pub(super) fn own(&self, target: TargetTable) -> Result<OwnTable, ClientError> {
        let TargetTable { database, table } = target;
        let database = database.or_else(|| self.connection.database.clone());
        OwnTable::of(&self.shared, database, table)
    }

    async fn drop_tables(
        &mut self,
        tables: Vec<TargetTable>,
        if_exists: bool,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let mut dropped = Vec::new();
        for target in tables {
            let table = self.own(target)?;
            match table.is_there().await? {
                true => dropped.push(table),
                false if if_exists => {}
                false => {
                    let sentence = format!("there is no table {}", table.shown());
                    return Err(ClientError::new(ErrorCode::UNKNOWN_TABLE, sentence).into());
                }
            }
        }
        let dropping = async move {
            for table in dropped {
                table.drop_it().await?;
            }
            Ok(0)
        };
        let mut computed = self.shared.query_runtime.compute(dropping);
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }
}

/// Whether a table that is to be made is there already, and may be.
///
/// # Errors
/// It is there, and may not be.
async fn is_made(table: &OwnTable, if_not_exists: bool) -> Result<bool, ClientError> {
    match (table.is_there().await?, if_not_exists) {
        (true, false) => Err(table.exists()),
        (is_there, _) => Ok(is_there),
    }
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
