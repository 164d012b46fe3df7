//! Tables that submitted queries make.

use std::sync::Arc;

use ::queries::MadeTable;
use sql::Connection;

use super::{Change, Filling, OwnTable, RowSource};
use crate::ClientError;
use crate::authenticator::{Authenticator, Principal};

/// Makes the table of a query, or without rows sees whether it may be made. One that the query has made already is there.
///
/// # Errors
/// The user may not make it, there is one of the name, or its rows cannot be stored.
pub(crate) async fn make_table(
    authenticator: &Arc<Authenticator>,
    principal: &Principal,
    made: MadeTable,
) -> Result<(), ClientError> {
    let MadeTable {
        query,
        user,
        database,
        table,
        if_not_exists,
        partition,
        rows,
    } = made;
    let Principal {
        sessions, usage, ..
    } = principal;
    let named = table.database.or_else(|| database.clone());
    let me = principal.user.as_deref();
    let table = OwnTable::of_user(me, authenticator, sessions, named, table.table)?;
    let source = format!("query {query}");
    if table.is_there().await? {
        // A process that was killed may have made it and not said so.
        let found = table.find().await?;
        let is_ours = found
            .table
            .parts
            .first()
            .is_some_and(|it| it.source == source);
        return match is_ours || if_not_exists {
            true => Ok(()),
            false => Err(table.exists()),
        };
    }
    let Some(rows) = rows else {
        return Ok(());
    };
    let mut connection = Connection::alone(database);
    connection.user = user;
    let change = Change {
        sessions: Arc::clone(sessions),
        connection: Arc::new(connection),
        usage: Arc::clone(usage),
        table,
        rows: RowSource::Stored(rows),
        filling: Filling::New(partition),
        names_files: false,
        source: Some(source),
        // No rows are inserted.
        turns: Arc::default(),
    };
    change.run().await.map(drop)
}
