//! `meridian sql` at a terminal: a prompt that reads statements, executes each when its semicolon has come, and shows its result.
//!
//! Invariant: nothing that is typed ends the program but `\q`, Ctrl-D and their like. An error and Ctrl-C end a statement alone.

mod command;
mod complete;
mod history;
mod input;
mod names;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::fold_name;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use sql::Dialect;
use sql::interrupt::Interrupt;
use tracing_subscriber::EnvFilter;

use crate::console::{remark, tell};
use crate::executor::{ArchiveSession, Executor, ServerSession};
use crate::failure::Failure;
use crate::output::{Destination, Layout};
use crate::sql::{Format, SqlArgs};
use crate::statements::{Executed, Remarks, ResultWriter};
use crate::{serve, tables};
use command::{Command, HELP};
use complete::Completion;
use names::Names;

/// How deep files may include files.
const DEEPEST_INCLUDE: usize = 16;

/// Runs the prompt until the user leaves.
pub fn run(args: &SqlArgs) -> Result<(), Failure> {
    if matches!(
        args.result_writer().format,
        Format::Parquet | Format::Arrow | Format::Fits
    ) {
        return Err(Failure::new(
            "this format is not for a terminal: give a statement and --output FILE",
        ));
    }
    if let Ok(filter) = EnvFilter::try_from_env("RUST_LOG") {
        serve::log_to_stderr(filter);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async { Prompt::open(args).await?.read_and_execute().await });
    // Without waiting for what other threads still compute of a cancelled statement.
    runtime.shutdown_background();
    outcome
}

/// Whether to go on reading.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Continue,
    /// The statement or command failed, which has been reported.
    Failed,
    Leave,
}

/// The state of the prompt.
struct Prompt {
    executor: Executor,
    writer: ResultWriter,
    names: Names,
    /// The lines of a statement that is not complete.
    typed: String,
    /// Whether `--quiet` was given.
    is_quiet: bool,
}

type LineEditor = Editor<Completion, FileHistory>;

impl Prompt {
    async fn open(args: &SqlArgs) -> Result<Self, Failure> {
        let executor = Executor::open(args).await?;
        let mut writer = args.result_writer();
        writer.destination = match writer.destination {
            // All results of the prompt go there, one after another.
            Destination::NewFile(path) => open_file(&path)?,
            _ => Destination::Screen,
        };
        Ok(Self {
            is_quiet: writer.remarks == Remarks::None,
            names: Names::of_dialect(writer.dialect),
            executor,
            writer,
            typed: String::new(),
        })
    }

    /// Reads and executes until the user leaves.
    async fn read_and_execute(mut self) -> Result<(), Failure> {
        let (mut editor, history) = editor(&self.names)?;
        if !self.is_quiet {
            tell(&format!(
                "Meridian {}. Statements end with a semicolon; \\? lists the commands, \\q leaves.\n",
                env!("CARGO_PKG_VERSION")
            ))?;
        }
        loop {
            self.refresh_names().await;
            if let Some(helper) = editor.helper_mut() {
                helper.names = self.names.clone();
                helper.typed = self.typed.clone();
            }
            let prompt = input::prompt(self.executor.database(), self.dialect(), &self.typed);
            let line = tokio::task::block_in_place(|| editor.readline(&prompt));
            match line {
                Ok(line) => {
                    let typed = format!("{}{line}", self.typed);
                    let next = self.take_line(&line, 0).await;
                    if self.typed.is_empty() {
                        keep(&mut editor, history.as_deref(), &typed);
                    }
                    if next == Next::Leave {
                        return Ok(());
                    }
                }
                Err(ReadlineError::Interrupted) => self.typed.clear(),
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => {
                    return Err(Failure::new(format!("cannot read the terminal: {error}")));
                }
            }
        }
    }

    fn dialect(&self) -> Dialect {
        self.executor.dialect()
    }

    /// Looks up what can be completed. Without it, nothing is missing but completion.
    async fn refresh_names(&mut self) {
        self.names.database = self.executor.database().map(str::to_owned);
        let _ = self.names.refresh(&self.executor).await;
    }

    /// Takes a line from the terminal or from a file: a command, or a part of a statement, which is executed if it is complete.
    async fn take_line(&mut self, line: &str, depth: usize) -> Next {
        if self.typed.is_empty() {
            match Command::read(line) {
                Ok(Some(command)) => return self.execute_command(command, depth).await,
                Ok(None) => {}
                Err(sentence) => return failed(Failure::new(sentence)),
            }
        }
        self.typed.push_str(line);
        self.typed.push('\n');
        if input::is_blank(self.dialect(), &self.typed) {
            self.typed.clear();
        } else if sql::ends_statement(self.dialect(), &self.typed) {
            let text = std::mem::take(&mut self.typed);
            return self.execute_all(&text).await;
        }
        Next::Continue
    }

    /// Executes the statements of a text, one after another, up to one that fails.
    async fn execute_all(&mut self, text: &str) -> Next {
        let statements = match self.dialect() {
            Dialect::MySql => sql::mysql::split_statements(text),
            // Its statements are separated when they are parsed.
            Dialect::Adql => vec![text.trim().trim_end_matches(';')],
        };
        for statement in statements {
            let outcome = match sql::mysql::command(statement) {
                Ok(Some(sql::mysql::Command::Use(database))) => {
                    self.executor.choose(&database).await
                }
                Ok(Some(sql::mysql::Command::Nothing)) => Ok(()),
                Ok(Some(_)) if matches!(self.executor, Executor::Archive(_)) => Err(Failure::new(
                    "this statement is for a connection to `meridian serve`; at the prompt there are only queries and USE",
                )),
                // A statement that cannot be read is reported by its execution.
                Ok(_) | Err(_) => self.execute(statement).await,
            };
            if let Err(failure) = outcome {
                return failed(failure);
            }
        }
        Next::Continue
    }

    /// Executes a statement. Ctrl-C ends it.
    async fn execute(&self, text: &str) -> Result<(), Failure> {
        let (writer, executor) = (self.writer.clone(), self.executor.clone());
        self.run(writer, executor, text.to_owned()).await
    }

    /// Executes a statement of the prompt's own.
    async fn execute_own(&self, text: &str) -> Result<(), Failure> {
        let executor = self.executor.clone();
        self.run(self.own_writer(), executor, text.to_owned()).await
    }

    /// Writes results of the prompt's own statements, whose time nobody asks for.
    fn own_writer(&self) -> ResultWriter {
        ResultWriter {
            remarks: Remarks::None,
            ..self.writer.clone()
        }
    }

    async fn run(
        &self,
        writer: ResultWriter,
        executor: Executor,
        text: String,
    ) -> Result<(), Failure> {
        let interrupt = Interrupt::new();
        let work = async move {
            executor
                .execute(&writer, &text, &mut Executed::default())
                .await
        };
        let mut task = tokio::spawn(interrupt.scope(work));
        let outcome = tokio::select! {
            outcome = &mut task => outcome,
            _ = tokio::signal::ctrl_c() => {
                interrupt.end();
                task.abort();
                // Its memory is free and the pager has left before the next statement begins.
                let _ = task.await;
                return Err(Failure::new("cancelled"));
            }
        };
        outcome.unwrap_or_else(|panicked| Err(Failure::new(panicked)))
    }

    async fn execute_command(&mut self, command: Command, depth: usize) -> Next {
        let outcome = match command {
            Command::Quit => return Next::Leave,
            Command::Help => tell(HELP),
            Command::Databases => self.execute_own("SHOW DATABASES").await,
            Command::Describe(None) => self.list_tables().await,
            Command::Describe(Some(table)) => self.describe(&table).await,
            Command::Timing(on) => self.set_timing(on),
            Command::Expanded(on) => self.set_layout(on),
            Command::Output(file) => self.set_output(file.as_deref()),
            Command::Include(file) => return self.include(&file, depth).await,
        };
        outcome.map_or_else(failed, |()| Next::Continue)
    }

    fn set_timing(&mut self, on: Option<bool>) -> Result<(), Failure> {
        let on = on.unwrap_or(self.writer.remarks != Remarks::RowsAndTime);
        self.writer.remarks = match (on, self.is_quiet) {
            (true, _) => Remarks::RowsAndTime,
            (false, false) => Remarks::Rows,
            (false, true) => Remarks::None,
        };
        tell(match on {
            true => "Times are told.\n",
            false => "Times are not told.\n",
        })
    }

    fn set_layout(&mut self, on: Option<bool>) -> Result<(), Failure> {
        let (layout, sentence) = match (on, self.writer.layout) {
            (Some(true), _) | (None, Layout::AsItFits | Layout::Lines) => {
                (Layout::Blocks, "Each row is a block of lines.\n")
            }
            (Some(false), _) => (Layout::Lines, "Each row is a line.\n"),
            (None, Layout::Blocks) => (
                Layout::AsItFits,
                "Each row is a line, where that fits the terminal, else a block of lines.\n",
            ),
        };
        self.writer.layout = layout;
        tell(sentence)
    }

    fn set_output(&mut self, file: Option<&Path>) -> Result<(), Failure> {
        self.writer.destination = match file {
            Some(path) => open_file(path)?,
            None => Destination::Screen,
        };
        Ok(())
    }

    /// Lists the tables of the database, or of all databases if none is chosen.
    async fn list_tables(&self) -> Result<(), Failure> {
        let chosen = self.executor.database();
        let lists: Vec<&str> = (self.names.databases.iter().map(String::as_str))
            .filter(|name| chosen.is_none_or(|chosen| fold_name(chosen) == fold_name(name)))
            .collect();
        match &self.executor {
            Executor::Archive(session) => {
                tell(&tables::list(session.archive.catalog(), &lists).await?)
            }
            Executor::Server(session) => self.list_tables_of(session, &lists).await,
        }
    }

    async fn list_tables_of(
        &self,
        session: &ServerSession,
        databases: &[&str],
    ) -> Result<(), Failure> {
        let quoted = databases
            .iter()
            .map(|name| format!("'{}'", name.replace('\'', "''")));
        let listed = format!(
            "SELECT table_schema AS `database`, table_name AS `table`, table_rows AS `rows`, data_length AS `bytes` \
             FROM information_schema.TABLES WHERE table_schema IN ({}) ORDER BY 1, 2",
            quoted.collect::<Vec<_>>().join(", ")
        );
        match databases.is_empty() {
            true => tell("There are no tables that you may read.\n"),
            false => {
                let session = session.in_mysql();
                let writer = self.own_writer();
                self.run(writer, Executor::Server(session), listed).await
            }
        }
    }

    /// Describes a table: its columns, and what it is.
    async fn describe(&self, named: &str) -> Result<(), Failure> {
        self.execute_own(&format!("DESCRIBE {named}")).await?;
        match &self.executor {
            Executor::Archive(session) => self.describe_kind(session, named).await,
            Executor::Server(_) => Ok(()),
        }
    }

    /// Tells what a table is.
    async fn describe_kind(&self, session: &ArchiveSession, named: &str) -> Result<(), Failure> {
        let mut names = named.rsplit('.').map(|name| name.trim_matches(['`', '"']));
        let table = names.next().unwrap_or(named);
        let Some(database) = names.next().or(self.executor.database()) else {
            return Ok(());
        };
        match session.archive.catalog().table(database, table).await? {
            Some(table) => tell(&tables::described(&table)),
            None => match session.archive.view(database, table).await? {
                Some(view) => tell(&format!("{}: view, made {}\n", view.name, view.created_at)),
                None => Ok(()),
            },
        }
    }

    /// Executes the statements and commands of a file, up to one that fails.
    async fn include(&mut self, file: &Path, depth: usize) -> Next {
        if depth == DEEPEST_INCLUDE {
            return failed(Failure::new(format!(
                "files include each other more than {DEEPEST_INCLUDE} deep: {} is left out",
                file.display()
            )));
        }
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                let sentence = format!("cannot read {}: {error}", file.display());
                return failed(Failure::new(sentence));
            }
        };
        for (number, line) in text.lines().enumerate() {
            match Box::pin(self.take_line(line, depth + 1)).await {
                Next::Continue => {}
                Next::Leave => return Next::Leave,
                Next::Failed => {
                    self.typed.clear();
                    let line = number + 1;
                    remark(&format!("meridian: stopped at {}:{line}", file.display()));
                    return Next::Failed;
                }
            }
        }
        // The last statement of a file needs no semicolon.
        let rest = std::mem::take(&mut self.typed);
        match rest.trim().is_empty() {
            true => Next::Continue,
            false => self.execute_all(&rest).await,
        }
    }
}

/// Reports a failure.
fn failed(failure: Failure) -> Next {
    failure.report();
    Next::Failed
}

/// Opens a file for results; what was in it goes.
fn open_file(path: &Path) -> Result<Destination, Failure> {
    let file = File::create(path)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(Destination::OpenFile(Arc::new(file)))
}

/// The line editor with the history of earlier prompts; `None` for the file where none can be kept.
fn editor(names: &Names) -> Result<(LineEditor, Option<PathBuf>), Failure> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(history::MOST_ENTRIES)
        .and_then(|config| config.history_ignore_dups(true));
    let unreadable = |error| Failure::new(format!("cannot read the terminal: {error}"));
    let config = config
        .map_err(unreadable)?
        .history_ignore_space(true)
        .build();
    let mut editor = LineEditor::with_config(config).map_err(unreadable)?;
    editor.set_helper(Some(Completion::new(names.clone())));
    let Some(path) = history::path() else {
        return Ok((editor, None));
    };
    let loaded = history::prepare(&path)
        .map_err(|error| error.to_string())
        .and_then(|()| {
            editor
                .load_history(&path)
                .map_err(|error| error.to_string())
        });
    match loaded {
        Ok(()) => Ok((editor, Some(path))),
        Err(error) => {
            remark(&format!(
                "meridian: what is typed is not kept in {}: {error}",
                path.display()
            ));
            Ok((editor, None))
        }
    }
}

/// Keeps what was typed, at once: another prompt that starts now has it too. That it could not be written was told at the start.
fn keep(editor: &mut LineEditor, history: Option<&Path>, typed: &str) {
    let added = editor.add_history_entry(typed.trim_end());
    if let (Ok(true), Some(path)) = (added, history) {
        let _ = editor.append_history(path);
    }
}
