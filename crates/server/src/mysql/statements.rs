//! The execution of a connection's statements, as text or prepared, and the transfer of their results.

use std::sync::Arc;
use std::time::Duration;

use engine::QueryResult;
use futures::{FutureExt, StreamExt};
use queries::ClassPlaces;
use sql::connection::CharacterSet;
use sql::mysql::{
    Command, PrepareCommand, UserStatement, executed, first_word, placeholders, received,
    split_statements,
};
use sql::{ErrorCode, Warning};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span};

use super::capabilities::Capabilities;
use super::connection::{Client, CommandResult, Disconnected, not_utf8};
use super::prepared::put_prepared;
use super::query::{PacketBatch, Query, ResultColumns, describe};
use super::responses::{changed, end_of_rows, ok};
use super::rows::Form;
use super::watch::{Deadline, Interruption, Watch};
use super::wire::Reader;
use crate::ClientError;
use crate::metrics::{Protocol, QueryOutcome, QueryTimer, StatementKind};
use crate::process_list::Statement;
use crate::query_log::QueryLogEntry;
use crate::query_runtime::{QueryRuntime, ResultReceiver};
use crate::usage::UserPlaces;

/// Bytes of packets that are sent together.
const TOGETHER: usize = 64 << 10;
/// How long small packets wait for more.
const SOON: Duration = Duration::from_millis(5);
/// Bytes of a text that takes long to parse.
const LONG: usize = 32 << 10;
/// Placeholders that a statement may have.
const MOST_PARAMETERS: usize = u16::MAX as usize;

/// The result of a statement.
enum StatementResult {
    /// The number of rows that were changed.
    Changed(u64),
    /// It returned no rows.
    Done,
    /// It returned this many rows.
    Rows(u64),
}

impl Client {
    /// Executes the statements of a text.
    pub(super) async fn execute_query(&mut self, packet: &[u8]) -> CommandResult {
        let set = self.connection.variables.client_character_set();
        let statements = match aside(packet.len(), || statements(packet, set)) {
            Ok(statements) => statements,
            Err(error) => return Ok(Err(error)),
        };
        if statements.len() > 1 && !self.capabilities.has(Capabilities::MULTI_STATEMENTS) {
            return Ok(Err(several()));
        }
        let last = statements.len() - 1;
        for (at, statement) in statements.into_iter().enumerate() {
            let done = self.execute_statement("Query", statement, None, at < last);
            if let Err(error) = done.await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Executes a statement; `prepared` are the headings that were announced for a prepared statement.
    async fn execute_statement(
        &mut self,
        command: &'static str,
        text: String,
        prepared: Option<Option<Vec<String>>>,
        more: bool,
    ) -> CommandResult {
        let statement = self.guard.begin(command, &text);
        let shared = Arc::clone(&self.shared);
        let timer = self.count(StatementKind::of(&text), &statement);
        let asked = self.connection.variables.milliseconds_of_a_statement();
        let asked = asked.and_then(|limit| Deadline::after(Duration::from_millis(limit)));
        let watch = Watch {
            shared: &shared,
            statement: &statement,
            deadline: Deadline::sooner(asked, self.shared.usage.seconds()),
        };
        let span = info_span!("statement", query = statement.number);
        let executing = async {
            let outcome = self.run_statement(text, prepared, &watch).boxed().await;
            let rows = match outcome {
                Ok(StatementResult::Rows(rows)) => rows,
                _ => 0,
            };
            let ended = outcome.map(|outcome| self.put_end(outcome, more));
            self.record_end(timer, &statement, rows, ended.as_ref().err());
            match ended {
                Ok(()) => Ok(Ok(())),
                Err(Interruption::Error(error)) => Ok(Err(error)),
                Err(Interruption::Disconnected) => Err(Disconnected),
            }
        };
        executing.instrument(span).await
    }

    fn count(&self, kind: StatementKind, statement: &Statement) -> QueryTimer {
        let metrics = &self.shared.metrics;
        metrics.begin(Protocol::Mysql, kind, statement.begun)
    }

    /// Counts and logs a statement that has ended.
    fn record_end(
        &self,
        timer: QueryTimer,
        statement: &Statement,
        rows: u64,
        why: Option<&Interruption>,
    ) {
        let (ending, error) = match why {
            None => (QueryOutcome::Succeeded, None),
            Some(Interruption::Error(error)) => (QueryOutcome::of(error), Some(error)),
            Some(Interruption::Disconnected) => (QueryOutcome::Disconnected, None),
        };
        let took = statement.begun.elapsed();
        timer.end(ending, took);
        let ended = QueryLogEntry {
            ending,
            took,
            rows,
            user: &self.connection.user,
            client: (self.peer, "mysql", u64::from(self.connection.id)),
            database: self.connection.database.as_deref(),
            error,
        };
        let audit = self.shared.authenticator.audit();
        ended.log(self.shared.slow, audit, || statement.text());
    }

    /// Appends the packet that ends the result.
    fn put_end(&mut self, outcome: StatementResult, more: bool) {
        let capabilities = self.capabilities;
        let status = self.status().followed(more);
        match outcome {
            StatementResult::Done => self.outgoing.add(|bytes| ok(bytes, status)),
            StatementResult::Changed(rows) => {
                let warnings = self.count_warnings();
                self.outgoing
                    .add(|bytes| changed(bytes, status, rows, warnings));
                let connection = Arc::make_mut(&mut self.connection);
                connection.found_rows = 0;
                connection.row_count = i64::try_from(rows).unwrap_or(i64::MAX);
            }
            StatementResult::Rows(rows) => {
                let warnings = self.count_warnings();
                self.outgoing
                    .add(|bytes| end_of_rows(bytes, capabilities, status, warnings));
                let connection = Arc::make_mut(&mut self.connection);
                (connection.found_rows, connection.row_count) = (rows, -1);
            }
        }
    }

    async fn run_statement(
        &mut self,
        text: String,
        prepared: Option<Option<Vec<String>>>,
        watch: &Watch<'_>,
    ) -> Result<StatementResult, Interruption> {
        let (is_binary, mut headings) = (prepared.is_some(), prepared.flatten());
        let (mut text, mut command) = read(text)?;
        if let Some(Command::Prepare(PrepareCommand::Execute { name, variables })) = &command {
            let bound = self.bound_text(name, variables)?;
            headings = bound.headings;
            (text, command) = read(bound.text)?;
        }
        let mut is_listed = true;
        let text = match command {
            None => text,
            Some(Command::Submit(statement)) => {
                is_listed = false;
                self.submit(statement, watch).await?
            }
            Some(Command::User(UserStatement::ShowGrants { user })) => {
                self.grants_of(&user).await?
            }
            Some(Command::User(UserStatement::ShowReleases)) => self.releases().await?,
            Some(Command::Table(command)) => {
                let _taken = self.shared.usage.query()?;
                Arc::make_mut(&mut self.connection).warnings.clear();
                let rows = self.change_table(command, &text, watch).await?;
                return Ok(StatementResult::Changed(rows));
            }
            Some(Command::SelectInto { query, variables }) => {
                let _taken = self.shared.usage.query()?;
                Arc::make_mut(&mut self.connection).warnings.clear();
                let rows = self.select_into(query, variables, watch).await?;
                return Ok(StatementResult::Changed(rows));
            }
            Some(command @ Command::User(_)) => {
                Arc::make_mut(&mut self.connection).warnings.clear();
                self.execute_command(command, watch).await?;
                return Ok(StatementResult::Changed(0));
            }
            Some(command) => {
                self.execute_command(command, watch).await?;
                return Ok(StatementResult::Done);
            }
        };
        // What lists the queries, so that one can be ended, or the limits, is no query itself, and is told to whoever has used up all.
        let is_list = first_word(&text).eq_ignore_ascii_case("show");
        let (_taken, runtime) = match is_list {
            true => (None, self.shared.query_runtime.charging_nobody()),
            false => (
                Some(self.shared.usage.query()?),
                QueryRuntime::clone(&self.shared.query_runtime),
            ),
        };
        let form = match is_binary {
            true => Form::Binary,
            false => Form::Text,
        };
        if !reads_warnings(&text) {
            Arc::make_mut(&mut self.connection).warnings.clear();
        }
        let query = Query {
            text,
            connection: Arc::clone(&self.connection),
            capabilities: self.capabilities,
            form,
            headings,
            number: self.outgoing.number,
        };
        let sessions = Arc::clone(&self.shared.sessions);
        // What runs here reads a piece at most. Where all places of such queries are taken, that is found where the class of the query is.
        let usage = &self.shared.usage;
        let place = (!is_list).then(|| usage.interactive().ok()).flatten();
        let found = match is_list || place.is_some() {
            true => {
                let short = runtime.run_inline(query.try_execute_inline(&sessions));
                Box::pin(watch.during(&mut self.incoming, short)).await??
            }
            false => None,
        };
        if let Some(result) = found {
            let rows = self.send_result(&query, result, watch).await?;
            return Ok(StatementResult::Rows(rows));
        }
        drop(place);
        if !is_listed {
            let results = runtime.spawn(|sender| query.execute(sessions, sender));
            let rows = self.forward_results(results, watch).await?;
            return Ok(StatementResult::Rows(rows));
        }
        let places = (!is_list).then(|| Arc::new(UserPlaces(Arc::clone(&self.shared.usage))) as _);
        self.run_listed(query, &runtime, (watch, places))
            .await
            .map(StatementResult::Rows)
    }

    /// Runs a query on the query runtime, listed among the queries of the server. Returns the number of rows.
    async fn run_listed(
        &mut self,
        query: Query,
        runtime: &QueryRuntime,
        (watch, places): (&Watch<'_>, Option<Arc<dyn ClassPlaces>>),
    ) -> Result<u64, Interruption> {
        let sessions = Arc::clone(&self.shared.sessions);
        let (user, database) = (&self.connection.user, self.connection.database.as_deref());
        let registered = self.shared.queries.registry().begin(
            user,
            database,
            queries::Protocol::MySql,
            &query.text,
            watch.statement.stop_token(),
            places,
        );
        let execution = Arc::clone(registered.execution());
        let results = runtime.spawn(|sender| async move {
            execution.attach();
            query.execute(sessions, sender).await
        });
        let mut outcome = self.forward_results(results, watch).await;
        if let Err(Interruption::Error(error)) = &mut outcome
            && [ErrorCode::TIME_LIMIT, ErrorCode::LIMIT_REACHED].contains(&error.code)
            && let Some(why) = registered.waited_for()
        {
            error.sentence = format!("{}; {why}", error.sentence);
        }
        match &outcome {
            Ok(rows) => registered.end(*rows, None),
            Err(Interruption::Error(error)) => registered.end(0, Some(&error.clone().into())),
            // It is aborted.
            Err(Interruption::Disconnected) => drop(registered),
        }
        outcome
    }

    /// Sends a result that this thread produces. Returns the number of rows.
    async fn send_result(
        &mut self,
        query: &Query,
        mut result: QueryResult,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        query.put_columns(&mut self.outgoing, &result.schema);
        self.add_warnings(std::mem::take(&mut result.warnings));
        let mut rows = 0;
        loop {
            let next = watch
                .shared
                .query_runtime
                .run_inline(async { Ok(result.batches.next().await.transpose()?) });
            let Some(batch) = watch.during(&mut self.incoming, next).await?? else {
                break;
            };
            let mut row = 0;
            while row < batch.num_rows() {
                row = query.put_rows(&mut self.outgoing, &batch, row)?;
                if self.outgoing.len() >= TOGETHER {
                    self.send(watch).await?;
                }
            }
            rows += batch.num_rows() as u64;
        }
        self.add_warnings(result.row_warnings.take());
        watch.shared.metrics.rows(Protocol::Mysql).inc_by(rows);
        Ok(rows)
    }

    /// Sends the batches of a result as the query runtime produces them; small ones together. Returns the number of rows.
    async fn forward_results(
        &mut self,
        mut results: ResultReceiver<PacketBatch>,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let mut rows = 0;
        loop {
            let next = if self.outgoing.len() == 0 {
                watch.during(&mut self.incoming, results.next()).await?
            } else {
                let soon = timeout(SOON, results.next());
                match watch.during(&mut self.incoming, soon).await? {
                    Ok(next) => next,
                    Err(_) => {
                        self.send(watch).await?;
                        continue;
                    }
                }
            };
            let Some(block) = next else {
                return Ok(rows);
            };
            let block = block?;
            self.add_warnings(block.warnings);
            rows += block.rows;
            watch
                .shared
                .metrics
                .rows(Protocol::Mysql)
                .inc_by(block.rows);
            self.outgoing.append(block.packets, block.number);
            if self.outgoing.len() >= TOGETHER {
                self.send(watch).await?;
            }
        }
    }

    pub(super) fn count_warnings(&self) -> u16 {
        u16::try_from(self.connection.warnings.len()).unwrap_or(u16::MAX)
    }

    /// Keeps the warnings of a statement until the next one.
    pub(super) fn add_warnings(&mut self, warnings: Vec<Warning>) {
        if !warnings.is_empty() {
            let kept = &mut Arc::make_mut(&mut self.connection).warnings;
            kept.extend(warnings);
            kept.truncate(sql::MOST_WARNINGS);
        }
    }

    /// Sends the buffered packets while a statement runs.
    async fn send(&mut self, watch: &Watch<'_>) -> Result<(), Interruption> {
        let patience = Duration::from_secs(self.connection.variables.write_seconds());
        self.sending.put(self.outgoing.take());
        let sent = timeout(patience, self.sending.flush());
        match watch.during(&mut self.incoming, sent).await? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Interruption::Disconnected),
            Err(_) => {
                debug!("the client did not read on within net_write_timeout");
                Err(Interruption::Disconnected)
            }
        }
    }

    /// Prepares a statement.
    pub(super) async fn prepare(&mut self, packet: &[u8]) -> CommandResult {
        let set = self.connection.variables.client_character_set();
        let read = aside(packet.len(), || {
            Preparable::of(only_statement(packet, set)?)
        });
        let Preparable {
            text,
            offsets,
            is_command,
        } = match read {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let parameters = offsets.len() as u16;
        let described = match is_command {
            true => Ok(ResultColumns::default()),
            false => {
                self.describe("Prepare", text.clone(), offsets.clone())
                    .await?
            }
        };
        Ok(described.and_then(|described| {
            let number = self.prepared.keep(text, offsets, &described)?;
            let set = self.connection.variables.results_character_set();
            let spoken = (self.capabilities, self.status(), set);
            put_prepared(&mut self.outgoing, spoken, number, parameters, &described);
            Ok(())
        }))
    }

    /// The columns of a statement's result.
    pub(super) async fn describe(
        &mut self,
        command: &'static str,
        text: String,
        offsets: Vec<usize>,
    ) -> Result<Result<ResultColumns, ClientError>, Disconnected> {
        let statement = self.guard.begin(command, &text);
        let shared = Arc::clone(&self.shared);
        let watch = Watch {
            shared: &shared,
            statement: &statement,
            deadline: None,
        };
        let timer = self.count(StatementKind::Prepare, &statement);
        let span = info_span!("statement", query = statement.number);
        let describing = async {
            let sessions = Arc::clone(&shared.sessions);
            let connection = Arc::clone(&self.connection);
            let described = describe(sessions, text, offsets, connection);
            let mut described = shared.query_runtime.compute(described);
            let described = watch.during(&mut self.incoming, described.recv_one()).await;
            let described = described.and_then(|described| Ok(described?));
            self.record_end(timer, &statement, 0, described.as_ref().err());
            described
        };
        match describing.instrument(span).await {
            Ok(described) => Ok(Ok(described)),
            Err(Interruption::Error(error)) => Ok(Err(error)),
            Err(Interruption::Disconnected) => Err(Disconnected),
        }
    }

    /// Executes a prepared statement.
    pub(super) async fn execute_prepared(&mut self, reader: &mut Reader<'_>) -> CommandResult {
        let set = self.connection.variables.client_character_set();
        let bound = reader
            .u32()
            .map_err(|_| ClientError::malformed("it has no number"));
        let bound = bound.and_then(|number| {
            // The cursor type, which is ignored, and the iteration count, which is 1.
            let asked = reader.u8().and_then(|_| reader.u32());
            asked.map_err(|_| ClientError::malformed("it ends too early"))?;
            let prepared = self.prepared.find(number)?;
            let length = reader.len() + prepared.bytes_ahead();
            let bound = aside(length, || prepared.bound(reader, set))?;
            Ok((bound, prepared.headings.clone()))
        });
        match bound {
            Ok((text, headings)) => {
                self.execute_statement("Execute", text, Some(headings), false)
                    .await
            }
            Err(error) => Ok(Err(error)),
        }
    }
}

/// A statement that can be prepared.
pub(super) struct Preparable {
    pub(super) text: String,
    /// The byte offsets of its placeholders.
    pub(super) offsets: Vec<usize>,
    /// Whether it is about the connection, and has no columns.
    pub(super) is_command: bool,
}

impl Preparable {
    /// # Errors
    /// It has too many placeholders, cannot be read, or is about prepared statements itself.
    pub(super) fn of(text: String) -> Result<Self, ClientError> {
        let offsets = placeholders(&text);
        if offsets.len() > MOST_PARAMETERS {
            let sentence = format!("a statement may have {MOST_PARAMETERS} parameters at most");
            return Err(ClientError::new(ErrorCode::TOO_MANY_PARAMETERS, sentence));
        }
        let command = sql::mysql::command(&text)?;
        if matches!(command, Some(Command::Prepare(_))) {
            let sentence =
                "PREPARE, EXECUTE and DEALLOCATE PREPARE cannot be prepared: send them as they are";
            return Err(ClientError::new(ErrorCode::NOT_PREPARABLE, sentence));
        }
        Ok(Self {
            text,
            offsets,
            is_command: command.is_some(),
        })
    }
}

/// Whether a statement reads the warnings of the previous one: SHOW WARNINGS, SHOW COUNT(*) WARNINGS, `@@warning_count`.
fn reads_warnings(text: &str) -> bool {
    const LONGEST: usize = 200;
    if text.len() > LONGEST {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let shows =
        first_word(&text) == "show" && (text.contains("warnings") || text.contains("errors"));
    shows || text.contains("@@warning_count") || text.contains("@@session.warning_count")
}

/// A statement, and what it is about the connection, if it is that.
fn read(text: String) -> Result<(String, Option<Command>), ClientError> {
    let command = aside(text.len(), || sql::mysql::command(&text))?;
    Ok((text, command))
}

/// The statements of a text that a client sent in a character set or else in UTF-8; at least one.
fn statements(packet: &[u8], set: Option<&CharacterSet>) -> Result<Vec<String>, ClientError> {
    statements_of(&received(packet, set).map_err(not_utf8)?)
}

fn statements_of(text: &str) -> Result<Vec<String>, ClientError> {
    let text = executed(text);
    let statements: Vec<String> = split_statements(&text)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if statements.is_empty() {
        let sentence = "there is no statement in the text";
        return Err(ClientError::new(ErrorCode::NO_STATEMENT, sentence));
    }
    Ok(statements)
}

/// The statement of a text that must contain only one.
fn only_statement(packet: &[u8], set: Option<&CharacterSet>) -> Result<String, ClientError> {
    only(statements(packet, set)?).ok_or_else(several)
}

fn only(mut statements: Vec<String>) -> Option<String> {
    let first = statements.pop()?;
    statements.is_empty().then_some(first)
}

/// The statement of a text that is to be prepared.
pub(super) fn to_prepare(text: &str) -> Result<Preparable, ClientError> {
    let only = only(statements_of(text)?).ok_or_else(|| {
        let sentence = "prepare one statement at a time: the text contains several";
        ClientError::new(ErrorCode::SYNTAX, sentence)
    })?;
    Preparable::of(only)
}

/// Parses a long text without delaying other connections.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LONG {
        return work();
    }
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        // Another thread takes over the network meanwhile.
        _ => block_in_place(work),
    }
}

fn several() -> ClientError {
    let sentence = "send one statement at a time: the text contains several, and the client has not enabled multiple statements";
    ClientError::new(ErrorCode::SYNTAX, sentence)
}
