//! Statements as they come by a connection, by their text or prepared, and their answers as they go.

use std::sync::Arc;
use std::time::Duration;

use engine::Answer;
use futures::{FutureExt, StreamExt};
use sql::mysql::{executed, first_word, placeholders, received, split_statements};
use sql::{ErrorCode, Warning};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span};

use super::answers::{end_of_rows, ok};
use super::capabilities::Capabilities;
use super::connection::{Client, Done, Over, no_text};
use super::prepared::put_prepared;
use super::question::{Described, Part, Question, describe};
use super::rows::Form;
use super::watch::{Deadline, Interruption, Watch};
use super::wire::Reader;
use crate::Refusal;
use crate::journal::Ended;
use crate::metrics::{Begun, Door, Ending, Kind};
use crate::running::Statement;
use crate::workshop::{Parts, done_here};

/// Bytes of packets that are sent together, at the least, where there are as many.
const TOGETHER: usize = 64 << 10;
/// How long packets wait for others to go with them.
const SOON: Duration = Duration::from_millis(5);
/// Bytes of a text from which on reading it takes long.
const LONG: usize = 256 << 10;
/// Placeholders that a statement may have.
const MOST_PARAMETERS: usize = u16::MAX as usize;

/// What a statement comes to.
enum Outcome {
    /// It has been done and has no rows.
    Done,
    /// Its rows have been sent, so many.
    Rows(u64),
}

impl Client {
    /// Answers the statements of a text.
    pub(super) async fn query(&mut self, packet: &[u8]) -> Done {
        let statements = match aside(packet.len(), || statements(packet)) {
            Ok(statements) => statements,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if statements.len() > 1 && !self.capabilities.has(Capabilities::MULTI_STATEMENTS) {
            return Ok(Err(several()));
        }
        let last = statements.len() - 1;
        for (at, statement) in statements.into_iter().enumerate() {
            let done = self.statement("Query", statement, None, at < last);
            if let Err(refusal) = done.await? {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(()))
    }

    /// Answers a statement; `prepared` are the headings that were announced for a prepared one.
    async fn statement(
        &mut self,
        command: &'static str,
        text: String,
        prepared: Option<Option<Vec<String>>>,
        more: bool,
    ) -> Done {
        let statement = self.entered.begin(command, &text);
        let shared = Arc::clone(&self.shared);
        let counted = self.count(Kind::of(&text), &statement);
        let limit = self.connection.variables.milliseconds_of_a_statement();
        let watch = Watch {
            shared: &shared,
            statement: &statement,
            deadline: limit.and_then(|limit| Deadline::after(Duration::from_millis(limit))),
        };
        let span = info_span!("statement", query = statement.number);
        let answering = async {
            let outcome = self.outcome(text, prepared, &watch).boxed().await;
            let rows = match outcome {
                Ok(Outcome::Rows(rows)) => rows,
                _ => 0,
            };
            let ended = outcome.map(|outcome| self.end(outcome, more));
            self.account(counted, &statement, rows, ended.as_ref().err());
            match ended {
                Ok(()) => Ok(Ok(())),
                Err(Interruption::Refused(refusal)) => Ok(Err(refusal)),
                Err(Interruption::Gone) => Err(Over),
            }
        };
        answering.instrument(span).await
    }

    fn count(&self, kind: Kind, statement: &Statement) -> Begun {
        let metrics = &self.shared.metrics;
        metrics.begin(Door::Mysql, kind, statement.begun)
    }

    /// Counts a statement that has ended, and writes it down.
    fn account(
        &self,
        counted: Begun,
        statement: &Statement,
        rows: u64,
        why: Option<&Interruption>,
    ) {
        let (ending, refusal) = match why {
            None => (Ending::Answered, None),
            Some(Interruption::Refused(refusal)) => (Ending::of(refusal), Some(refusal)),
            Some(Interruption::Gone) => (Ending::Gone, None),
        };
        let took = statement.begun.elapsed();
        counted.end(ending, took);
        let ended = Ended {
            ending,
            took,
            rows,
            user: &self.connection.user,
            database: self.connection.database.as_deref(),
            refusal,
        };
        ended.log(self.shared.slow, || statement.text());
    }

    /// Puts the packet that ends an answer.
    fn end(&mut self, outcome: Outcome, more: bool) {
        let capabilities = self.capabilities;
        let status = self.status().followed(more);
        match outcome {
            Outcome::Done => self.outgoing.add(|bytes| ok(bytes, status)),
            Outcome::Rows(rows) => {
                let warnings = self.connection.warnings.len();
                let warnings = u16::try_from(warnings).unwrap_or(u16::MAX);
                self.outgoing
                    .add(|bytes| end_of_rows(bytes, capabilities, status, warnings));
                let connection = Arc::make_mut(&mut self.connection);
                (connection.found_rows, connection.row_count) = (rows, -1);
            }
        }
    }

    async fn outcome(
        &mut self,
        text: String,
        prepared: Option<Option<Vec<String>>>,
        watch: &Watch<'_>,
    ) -> Result<Outcome, Interruption> {
        let command = aside(text.len(), || sql::mysql::command(&text));
        if let Some(command) = command.map_err(Refusal::from)? {
            self.obey(command, watch).await?;
            return Ok(Outcome::Done);
        }
        let form = match prepared {
            Some(_) => Form::Binary,
            None => Form::Text,
        };
        if !asks_for_warnings(&text) {
            Arc::make_mut(&mut self.connection).warnings.clear();
        }
        let question = Question {
            text,
            connection: Arc::clone(&self.connection),
            capabilities: self.capabilities,
            form,
            headings: prepared.flatten(),
            number: self.outgoing.number,
        };
        let sessions = Arc::clone(&self.shared.sessions);
        let short = done_here(question.short_answer(&sessions));
        if let Some(answer) = watch.during(&mut self.incoming, short).await?? {
            let rows = self.give(&question, answer, watch).await?;
            return Ok(Outcome::Rows(rows));
        }
        let parts = self
            .shared
            .workshop
            .start(|giver| question.answer(sessions, giver));
        self.pass_on(parts, watch).await.map(Outcome::Rows)
    }

    /// Sends an answer that is made as it is sent. Gives the number of rows.
    async fn give(
        &mut self,
        question: &Question,
        mut answer: Answer,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        question.put_columns(&mut self.outgoing, &answer.schema);
        self.warn(std::mem::take(&mut answer.warnings));
        let mut rows = 0;
        loop {
            let next = done_here(async { Ok(answer.batches.next().await.transpose()?) });
            let Some(batch) = watch.during(&mut self.incoming, next).await?? else {
                break;
            };
            let mut row = 0;
            while row < batch.num_rows() {
                row = question.put_rows(&mut self.outgoing, &batch, row)?;
                if self.outgoing.len() >= TOGETHER {
                    self.send(watch).await?;
                }
            }
            rows += batch.num_rows() as u64;
        }
        watch.shared.metrics.rows(Door::Mysql).inc_by(rows);
        Ok(rows)
    }

    /// Sends the parts of an answer as they come; small ones together. Gives the number of rows.
    async fn pass_on(
        &mut self,
        mut parts: Parts<Part>,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let mut rows = 0;
        loop {
            let next = if self.outgoing.len() == 0 {
                watch.during(&mut self.incoming, parts.next()).await?
            } else {
                let soon = timeout(SOON, parts.next());
                match watch.during(&mut self.incoming, soon).await? {
                    Ok(next) => next,
                    Err(_) => {
                        self.send(watch).await?;
                        continue;
                    }
                }
            };
            let Some(part) = next else {
                return Ok(rows);
            };
            let part = part?;
            self.warn(part.warnings);
            rows += part.rows;
            watch.shared.metrics.rows(Door::Mysql).inc_by(part.rows);
            self.outgoing.append(part.packets, part.number);
            if self.outgoing.len() >= TOGETHER {
                self.send(watch).await?;
            }
        }
    }

    /// Keeps what is odd about a statement until another one is asked.
    fn warn(&mut self, warnings: Vec<Warning>) {
        if !warnings.is_empty() {
            Arc::make_mut(&mut self.connection).warnings = warnings;
        }
    }

    /// Sends what waits while a statement is answered.
    async fn send(&mut self, watch: &Watch<'_>) -> Result<(), Interruption> {
        let patience = Duration::from_secs(self.connection.variables.write_seconds());
        self.sending.put(self.outgoing.take());
        let sent = timeout(patience, self.sending.flush());
        match watch.during(&mut self.incoming, sent).await? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Interruption::Gone),
            Err(_) => {
                debug!("the client did not read on within net_write_timeout");
                Err(Interruption::Gone)
            }
        }
    }

    /// Prepares a statement.
    pub(super) async fn prepare(&mut self, packet: &[u8]) -> Done {
        let read = aside(packet.len(), || {
            let text = only_statement(packet)?;
            let places = placeholders(&text);
            if places.len() > MOST_PARAMETERS {
                let sentence = format!("a statement may have {MOST_PARAMETERS} parameters at most");
                return Err(Refusal::new(ErrorCode::TOO_MANY_PARAMETERS, sentence));
            }
            let is_command = sql::mysql::command(&text)?.is_some();
            Ok((text, places, is_command))
        });
        let (text, places, is_command) = match read {
            Ok(read) => read,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let parameters = places.len() as u16;
        let described = match is_command {
            true => Ok(Described::default()),
            false => {
                self.describe("Prepare", text.clone(), places.clone())
                    .await?
            }
        };
        Ok(described.and_then(|described| {
            let number = self.prepared.keep(text, places, &described)?;
            let spoken = (self.capabilities, self.status());
            put_prepared(&mut self.outgoing, spoken, number, parameters, &described);
            Ok(())
        }))
    }

    /// The columns that a statement would give.
    pub(super) async fn describe(
        &mut self,
        command: &'static str,
        text: String,
        places: Vec<usize>,
    ) -> Result<Result<Described, Refusal>, Over> {
        let statement = self.entered.begin(command, &text);
        let shared = Arc::clone(&self.shared);
        let watch = Watch {
            shared: &shared,
            statement: &statement,
            deadline: None,
        };
        let counted = self.count(Kind::Prepare, &statement);
        let span = info_span!("statement", query = statement.number);
        let describing = async {
            let sessions = Arc::clone(&shared.sessions);
            let connection = Arc::clone(&self.connection);
            let described = describe(sessions, text, places, connection);
            let mut described = shared.workshop.compute(described);
            let described = watch.during(&mut self.incoming, described.only()).await;
            let described = described.and_then(|described| Ok(described?));
            self.account(counted, &statement, 0, described.as_ref().err());
            described
        };
        match describing.instrument(span).await {
            Ok(described) => Ok(Ok(described)),
            Err(Interruption::Refused(refusal)) => Ok(Err(refusal)),
            Err(Interruption::Gone) => Err(Over),
        }
    }

    /// Answers a prepared statement.
    pub(super) async fn execute(&mut self, reader: &mut Reader<'_>) -> Done {
        let bound = reader
            .u32()
            .map_err(|_| Refusal::malformed("it has no number"));
        let bound = bound.and_then(|number| {
            // How rows are fetched, which is all at once, and how often to ask, which is once.
            let asked = reader.u8().and_then(|_| reader.u32());
            asked.map_err(|_| Refusal::malformed("it ends too early"))?;
            let prepared = self.prepared.find(number)?;
            let length = reader.len() + prepared.bytes_ahead();
            let bound = aside(length, || prepared.bound(reader))?;
            Ok((bound, prepared.headings.clone()))
        });
        match bound {
            Ok((text, headings)) => self.statement("Execute", text, Some(headings), false).await,
            Err(refusal) => Ok(Err(refusal)),
        }
    }
}

/// Whether a statement asks what was odd about the one before it: SHOW WARNINGS, SHOW COUNT(*) WARNINGS, `@@warning_count`.
fn asks_for_warnings(text: &str) -> bool {
    const LONGEST: usize = 200;
    if text.len() > LONGEST {
        return false;
    }
    let text = text.to_ascii_lowercase();
    let shows =
        first_word(&text) == "show" && (text.contains("warnings") || text.contains("errors"));
    shows || text.contains("@@warning_count") || text.contains("@@session.warning_count")
}

/// The statements of a text that a client sent, of which there is at least one.
fn statements(packet: &[u8]) -> Result<Vec<String>, Refusal> {
    let text = received(packet).map_err(no_text)?;
    let text = executed(&text);
    let statements: Vec<String> = split_statements(&text)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if statements.is_empty() {
        let sentence = "there is no statement in the text";
        return Err(Refusal::new(ErrorCode::NO_STATEMENT, sentence));
    }
    Ok(statements)
}

/// The same where there may be no other.
fn only_statement(packet: &[u8]) -> Result<String, Refusal> {
    let mut statements = statements(packet)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(several()),
    }
}

/// Does what takes a processor for as long as a text is long, so that no other connection waits for it.
fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LONG {
        return work();
    }
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        // Another thread takes over the network meanwhile.
        _ => block_in_place(work),
    }
}

fn several() -> Refusal {
    let sentence = "one statement at a time, please: there are several in the text, which the client has not announced";
    Refusal::new(ErrorCode::SYNTAX, sentence)
}
