//! Statements about the connection itself: USE, SET, KILL, and those of transactions.

use std::sync::Arc;

use engine::Session;
use sql::connection::{VariableValue, Variables};
use sql::mysql::{Assignment, Command, Given, Scope};
use sql::{Connection, ErrorCode};

use super::connection::Client;
use super::question::evaluate;
use super::watch::{Interruption, Watch};
use crate::Refusal;

impl Client {
    /// Does what a statement says about the connection.
    pub(crate) async fn obey(
        &mut self,
        command: Command,
        watch: &Watch<'_>,
    ) -> Result<(), Interruption> {
        match command {
            Command::Nothing => {}
            Command::Use(database) => self.choose(&database).await?,
            Command::Set(assignments) => self.set(assignments, watch).await?,
            Command::Kill { id, statement_only } => {
                let id = id.unwrap_or(self.connection.id.into());
                self.kill(id, statement_only)?;
            }
        }
        let connection = Arc::make_mut(&mut self.connection);
        (connection.found_rows, connection.row_count) = (0, 0);
        Ok(())
    }

    /// Chooses a database.
    pub(crate) async fn choose(&mut self, database: &str) -> Result<(), Refusal> {
        let session = match self.shared.sessions.made(Some(database)) {
            Some(session) => session,
            None => self.open(database.to_owned()).await?,
        };
        let declared = session.database().unwrap_or(database);
        self.entered
            .introduce(&self.connection.user, Some(declared));
        Arc::make_mut(&mut self.connection).database = Some(declared.to_owned());
        Ok(())
    }

    /// A database that nobody has chosen before.
    async fn open(&mut self, database: String) -> Result<Arc<Session>, Refusal> {
        let sessions = Arc::clone(&self.shared.sessions);
        let opened = async move { Ok(sessions.of(Some(&database)).await?) };
        self.shared.workshop.compute(opened).only().await
    }

    /// Ends a connection, or its statement.
    pub(crate) fn kill(&self, id: u64, statement_only: bool) -> Result<(), Refusal> {
        if self.shared.running.kill(id, statement_only) {
            tracing::debug!(id, statement_only, "killed");
            return Ok(());
        }
        let sentence =
            format!("there is no connection of number {id}; SHOW PROCESSLIST lists them");
        Err(Refusal::new(ErrorCode::NO_CONNECTION, sentence))
    }

    /// Changes settings: all that a statement names, or none.
    async fn set(
        &mut self,
        assignments: Vec<Assignment>,
        watch: &Watch<'_>,
    ) -> Result<(), Interruption> {
        let mut changed = Connection::clone(&self.connection);
        for assignment in assignments {
            match assignment {
                Assignment::Names { set, collate } => changed
                    .variables
                    .set_names(set.as_deref(), collate.as_deref())
                    .map_err(Refusal::from)?,
                Assignment::Variable { scope, name, value } => {
                    Variables::check(&name).map_err(Refusal::from)?;
                    if scope == Scope::Global {
                        let sentence = format!(
                            "{name} cannot be set for all connections from one of them: SET SESSION {name} is possible"
                        );
                        return Err(Refusal::new(ErrorCode::ACCESS_DENIED, sentence).into());
                    }
                    // Later settings of a statement see the earlier ones.
                    let value = self.given(value, &changed, watch).await?;
                    let set = changed.variables.set(&name, value);
                    set.map_err(Refusal::from)?;
                }
            }
        }
        self.connection = Arc::new(changed);
        Ok(())
    }

    /// The value that a variable is to have; none for its usual one.
    async fn given(
        &mut self,
        value: Given,
        connection: &Connection,
        watch: &Watch<'_>,
    ) -> Result<Option<VariableValue>, Interruption> {
        Ok(Some(match value {
            Given::Default => return Ok(None),
            Given::Null => VariableValue::Null,
            Given::Number(number) => VariableValue::Number(number),
            Given::Text(text) => VariableValue::Text(text),
            Given::Expression(expression) => {
                let sessions = Arc::clone(&self.shared.sessions);
                let asks = evaluate(sessions, expression, Arc::new(connection.clone()));
                let mut computed = self.shared.workshop.compute(asks);
                match watch.during(&mut self.incoming, computed.only()).await?? {
                    Some(text) => VariableValue::Text(text),
                    None => VariableValue::Null,
                }
            }
        }))
    }
}
