//! Statements about tables of users' own, of which this protocol alone has one whose rows the client sends.

use std::sync::Arc;

use sql::mysql::TableCommand;

use super::capabilities::Capabilities;
use super::connection::Client;
use super::watch::{Interruption, Watch};
use crate::own_tables::TableStatements;

impl Client {
    /// Executes a statement of a text that changes a table. Returns the number of rows.
    pub(super) async fn change_table(
        &mut self,
        command: TableCommand,
        text: &str,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let command = match command {
            TableCommand::LoadFile(load) => return self.load_file(*load, watch).await,
            command => command,
        };
        let statements = self.table_statements();
        let changing = Box::pin(statements.execute(command, text));
        let changed = watch.during(&mut self.incoming, changing).await??;
        self.add_warnings(changed.warnings);
        Ok(changed.rows)
    }

    pub(super) fn table_statements(&self) -> TableStatements {
        TableStatements::of_connection(&self.shared, Arc::clone(&self.connection))
            .counting_matched(self.capabilities.has(Capabilities::FOUND_ROWS))
    }
}
