//! Statements about the connection itself: USE, SET, KILL, and those of transactions.

use std::sync::Arc;
use std::time::Duration;

use engine::Session;
use queries::{Protocol, Submission};
use sql::connection::{UserValue, VariableValue, Variables};
use sql::mysql::{AssignedValue, Assignment, Command, Scope, UserStatement};
use sql::{Connection, Dialect, ErrorCode, RESULT_FUNCTION};

use super::connection::Client;
use super::query::evaluate;
use super::select_into::no_room;
use super::watch::{Interruption, Watch};
use crate::ClientError;

impl Client {
    /// Executes a statement about the connection.
    pub(crate) async fn execute_command(
        &mut self,
        command: Command,
        watch: &Watch<'_>,
    ) -> Result<(), Interruption> {
        match command {
            Command::Nothing => {}
            Command::Use(database) => self.use_database(&database).await?,
            Command::Set(assignments) => self.set(assignments, watch).await?,
            Command::Kill { id, statement_only } => {
                let id = id.unwrap_or(self.connection.id.into());
                if !self.shared.queries.has(id) && self.shared.processes.user_of(id).is_none() {
                    let caught_up = self.shared.queries.catch_up().await;
                    caught_up.map_err(ClientError::from)?;
                }
                match self.shared.queries.has(id) {
                    true => self.cancel(id).await?,
                    false => self.kill(id, statement_only)?,
                }
            }
            Command::Cancel(id) => self.cancel(id).await?,
            Command::Do(expressions) => {
                let _taken = self.shared.usage.query()?;
                let connection = Connection::clone(&self.connection);
                for expression in expressions {
                    self.evaluate(expression, &connection, watch).await?;
                }
            }
            // These tell more than that they are done: `run_statement` executes them.
            Command::User(UserStatement::ShowGrants { .. } | UserStatement::ShowReleases)
            | Command::SelectInto { .. }
            | Command::Submit(_)
            | Command::Table(_) => {}
            Command::Prepare(command) => self.change_prepared(command, watch).await?,
            Command::User(statement) => {
                self.change_users(statement, &watch.statement.text())
                    .await?
            }
            Command::View(statement) => self.change_views(statement).await?,
        }
        let connection = Arc::make_mut(&mut self.connection);
        (connection.found_rows, connection.row_count) = (0, 0);
        Ok(())
    }

    /// Makes a database the connection's default.
    pub(crate) async fn use_database(&mut self, database: &str) -> Result<(), ClientError> {
        let session = match self.shared.sessions.made(Some(database)) {
            Some(session) => session,
            None => self.open(database.to_owned()).await?,
        };
        let declared = session.database().unwrap_or(database);
        self.guard
            .set_identity(&self.connection.user, Some(declared));
        Arc::make_mut(&mut self.connection).database = Some(declared.to_owned());
        Ok(())
    }

    /// Opens a session of a database that has none yet.
    pub(super) async fn open(&mut self, database: String) -> Result<Arc<Session>, ClientError> {
        let sessions = Arc::clone(&self.shared.sessions);
        let opened = async move { Ok(sessions.of(Some(&database)).await?) };
        self.shared.query_runtime.compute(opened).recv_one().await
    }

    /// Kills a connection, or only its statement.
    pub(crate) fn kill(&self, id: u64, statement_only: bool) -> Result<(), ClientError> {
        let user = self.shared.processes.user_of(id);
        if user.is_some_and(|user| !self.shared.may_see_those_of(&user)) {
            let sentence = format!(
                "connection {id} is another user's: only they or an administrator can end it"
            );
            return Err(ClientError::new(ErrorCode::NOT_OWNER, sentence));
        }
        if self.shared.processes.kill(id, statement_only) {
            tracing::debug!(id, statement_only, "killed");
            return Ok(());
        }
        let sentence =
            format!("there is no connection of number {id}; SHOW PROCESSLIST lists them");
        Err(ClientError::new(ErrorCode::NO_CONNECTION, sentence))
    }

    /// Ends a query.
    async fn cancel(&mut self, id: u64) -> Result<(), ClientError> {
        let queries = Arc::clone(&self.shared.queries);
        queries.cancel(id, &self.connection.user).await?;
        tracing::debug!(id, "cancelled");
        Ok(())
    }

    /// Lets a query run without the connection; returns the statement that tells its number.
    pub(super) async fn submit(
        &mut self,
        statement: String,
        watch: &Watch<'_>,
    ) -> Result<String, Interruption> {
        let variables = &self.connection.variables;
        let statement = self.connection.user_variables.written_out(&statement);
        let submission = Submission {
            user: self.connection.user.clone(),
            database: self.connection.database.clone(),
            protocol: Protocol::MySql,
            row_limit: variables.row_limit(),
            time_limit: variables
                .milliseconds_of_a_statement()
                .map(Duration::from_millis),
            limits: variables.statement_limits(),
            as_of: variables.as_of(),
            dialect: Dialect::MySql,
            statement: statement.map_err(ClientError::from)?,
        };
        let queries = Arc::clone(&self.shared.queries);
        let submitted = async move { queries.submit(submission).await };
        let id = watch.during(&mut self.incoming, submitted).await?;
        let id = id.map_err(ClientError::from)?;
        Ok(format!(
            "SELECT {id} AS jobId, '{RESULT_FUNCTION}({id})' AS resultLocation"
        ))
    }

    /// Executes SET: all assignments of a statement take effect, or none.
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
                    .map_err(ClientError::from)?,
                Assignment::User { name, expression } => {
                    let value = self.evaluate(expression, &changed, watch).await?;
                    if !changed.user_variables.set(&name, value) {
                        return Err(no_room(&name).into());
                    }
                }
                Assignment::Variable { scope, name, value } => {
                    Variables::check(&name).map_err(ClientError::from)?;
                    if scope == Scope::Global {
                        let sentence = format!(
                            "{name} cannot be set for all connections from one of them: SET SESSION {name} is possible"
                        );
                        return Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence).into());
                    }
                    // Later assignments of a statement see the earlier ones.
                    let value = self.evaluate_assignment(value, &changed, watch).await?;
                    let set = changed.variables.set(&name, value);
                    set.map_err(ClientError::from)?;
                }
            }
        }
        self.connection = Arc::new(changed);
        Ok(())
    }

    /// The value that is assigned to a variable; `None` for its default.
    async fn evaluate_assignment(
        &mut self,
        value: AssignedValue,
        connection: &Connection,
        watch: &Watch<'_>,
    ) -> Result<Option<VariableValue>, Interruption> {
        Ok(Some(match value {
            AssignedValue::Default => return Ok(None),
            AssignedValue::Null => VariableValue::Null,
            AssignedValue::Number(number) => VariableValue::Number(number),
            AssignedValue::Text(text) => VariableValue::Text(text),
            AssignedValue::Expression(expression) => {
                let value = self.evaluate(expression, connection, watch).await?;
                value
                    .text()
                    .map_or(VariableValue::Null, VariableValue::Text)
            }
        }))
    }

    /// The value of an expression in a SET.
    async fn evaluate(
        &mut self,
        expression: String,
        connection: &Connection,
        watch: &Watch<'_>,
    ) -> Result<UserValue, Interruption> {
        let sessions = Arc::clone(&self.shared.sessions);
        let value = evaluate(sessions, expression, Arc::new(connection.clone()));
        let mut computed = self.shared.query_runtime.compute(value);
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }
}
