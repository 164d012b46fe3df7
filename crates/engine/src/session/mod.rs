//! A session: its settings and memory, and the execution of queries from their text to their results.

mod explain;
mod in_units;
mod journaled;
mod made_views;
mod mocs_as_texts;
mod names;
mod origins;
mod planning;
mod prepared;
mod repeated;
mod results;
mod state;
mod view_columns;
pub(crate) mod view_states;
pub(crate) mod views;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::stream::StreamExt;
use sql::{
    Connection, Dialect, ErrorCode, Headings, Interrupt, ParsedStatement, RecursionLimit, SqlError,
};

use crate::exec::{bound_recursions, run_share};
use crate::files::FileAccess;
use crate::plan_cache::{Candidate, PlanCache, QueryFingerprint};
use crate::provider::ArchiveCatalog;
use crate::shuffle::BucketReader;
use crate::stored_rows::warnings_of_results;
use crate::system_tables::SystemTables;
use crate::{
    Archive, EngineError, PieceDispatcher, QueryExecution, ResultCache, RowStream, ScanEstimate,
    SharePlan, ShareRows, ShareRun, attempts, estimate, show,
};
pub use made_views::{NewView, create_view, drop_view};
pub use origins::{ALIAS, COLUMN, DATABASE, DESCRIPTION, TABLE, UCD, UNIT, UTYPE, XTYPE};
pub(crate) use origins::{Origin, column_metadata};
use planning::{logical_plan, plan, plan_with_parameters};
pub use prepared::{PreparedQuery, QueryResult, too_many_bytes, too_many_rows};
use prepared::{with_headings, with_schema, within};
pub use state::runtime;
use state::{DefaultDatabase, Planners};
pub use views::views_of;

/// The catalog's name inside DataFusion.
pub(crate) const CATALOG: &str = "meridian";

/// Instead of a database's name: there is no default database, and table names need theirs.
pub const NO_DATABASE: &str = "";

/// The settings of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The default database; by default the only one that exists. [`NO_DATABASE`] for none.
    pub database: Option<String>,
    /// Processor cores; by default all.
    pub cores: Option<NonZeroUsize>,
    /// Bytes of memory for sorts, groups and joins, which spill to disk or fail beyond it.
    pub memory: Option<usize>,
    /// Bytes of disk for what these spill; 100 GiB by default.
    pub spilled: Option<u64>,
    /// Memory and disk that several sessions share (see [`runtime`]), instead of `memory` and `spilled` for this one alone.
    pub runtime: Option<Arc<RuntimeEnv>>,
    /// Which files of this machine queries may name.
    pub files: FileAccess,
    /// The dialect of the queries.
    pub dialect: Dialect,
    /// What a server adds to the tables.
    pub system: Option<Arc<dyn SystemTables>>,
    /// Has pieces run by other processes.
    pub dispatcher: Option<Arc<dyn PieceDispatcher>>,
    /// Brings a process without a dispatcher the rows of buckets of shuffles, if it runs pieces for others.
    pub bucket_reader: Option<Arc<dyn BucketReader>>,
    /// The results that may answer statements, if there are any.
    pub results: Option<Arc<ResultCache>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            database: None,
            cores: None,
            memory: None,
            spilled: None,
            runtime: None,
            files: FileAccess::Nothing,
            dialect: Dialect::default(),
            system: None,
            dispatcher: None,
            bucket_reader: None,
            results: None,
        }
    }
}

/// Executes queries on an archive.
pub struct Session {
    archive: Arc<Archive>,
    context: SessionContext,
    /// What statements can name.
    tables: ArchiveCatalog,
    /// The folded name of the default database.
    database: String,
    /// Its name as declared.
    declared_database: Option<String>,
    dialect: Dialect,
    system: Option<Arc<dyn SystemTables>>,
    plan_cache: PlanCache,
    results: Option<Arc<ResultCache>>,
    planners: Planners,
    task: OnceLock<Arc<TaskContext>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {})", self.archive, self.database)
    }
}

impl Session {
    /// Opens a session on an archive.
    pub async fn new(archive: Arc<Archive>, options: &SessionOptions) -> Result<Self, EngineError> {
        let database = DefaultDatabase::find(&archive, options.database.as_deref()).await?;
        let context = SessionContext::new_with_state(state::state(options, &database.folded)?);
        let catalog = ArchiveCatalog::new(
            Arc::clone(&archive),
            options.system.clone(),
            options.dialect,
        );
        context.register_catalog(CATALOG, Arc::new(catalog.clone()));
        Ok(Self {
            archive,
            context,
            tables: catalog,
            database: database.folded,
            declared_database: database.declared,
            dialect: options.dialect,
            system: options.system.clone(),
            plan_cache: PlanCache::default(),
            results: options.results.clone(),
            planners: Planners::default(),
            task: OnceLock::new(),
        })
    }

    /// DataFusion's session.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The default database, in its declared spelling.
    pub fn database(&self) -> Option<&str> {
        self.declared_database.as_deref()
    }

    /// Parses a text of one or more statements.
    pub async fn parse(&self, text: &str) -> Result<Vec<ParsedStatement>, EngineError> {
        let alone = Connection::alone(self.declared_database.clone());
        self.parse_for(text, &alone).await
    }

    /// Parses a text of one or more statements of a connection.
    pub async fn parse_for(
        &self,
        text: &str,
        connection: &Connection,
    ) -> Result<Vec<ParsedStatement>, EngineError> {
        let (archive, database) = (&*self.archive, self.database.as_str());
        let mut statements =
            names::parse(archive, database, self.dialect, text, connection).await?;
        for parsed in &mut statements {
            if let Some(statement) = &parsed.show {
                let query =
                    show::query(&self.archive, &self.database, statement, connection).await?;
                // The row limit of a connection applies to its own queries, not to this one.
                let alone = Connection::alone(None);
                let mut queries =
                    names::parse(archive, database, Dialect::Adql, &query, &alone).await?;
                if let Some(query) = queries.pop() {
                    *parsed = ParsedStatement {
                        // It is still a list, which has no limits.
                        show: parsed.show.take(),
                        of_connection: true,
                        may_be_cached: false,
                        ..query
                    };
                }
            }
        }
        Ok(statements)
    }

    /// Plans a statement of `text`, to run here or elsewhere.
    pub async fn prepare(
        &self,
        text: &str,
        parsed: ParsedStatement,
    ) -> Result<PreparedQuery, EngineError> {
        let planned = self.planned(&parsed, None).await;
        let (logical, plan) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                let placed = self.with_place(&parsed, error).await;
                return Err(self.explain_error(text, &placed).await);
            }
        };
        let mut prepared = self.prepared(logical, plan, &parsed).await?;
        if prepared.reads_hidden
            && let Some(explained) = explain::explained(&parsed.statement)
        {
            let analyzes = explain::analyzes(&parsed.statement);
            let rights = self.archive.catalog().rights();
            if analyzes || !views::hides_rows_alone(&prepared.logical, rights) {
                return Err(explain::not_explained(analyzes));
            }
            let explained = ParsedStatement {
                statement: explained,
                ..parsed
            };
            return self.explained_without_rows(&explained, prepared).await;
        }
        prepared.preface = self.preface(&parsed, &prepared).await?;
        prepared.analyzes = explain::analyzes(&parsed.statement);
        prepared.cacheable = self.cacheable(&parsed, &prepared);
        if self.dialect == Dialect::Adql {
            prepared.warnings.splice(0..0, sql::adql_warnings(text));
        }
        Ok(prepared)
    }

    /// A statement with these plans.
    async fn prepared(
        &self,
        logical: LogicalPlan,
        plan: Arc<dyn ExecutionPlan>,
        parsed: &ParsedStatement,
    ) -> Result<PreparedQuery, EngineError> {
        let reads_hidden = views::reads_hidden(&logical, self.archive.catalog().rights());
        let mut warnings = match self.dialect {
            Dialect::MySql if !reads_hidden => sql::warnings(&logical),
            // Those of ADQL are about the text.
            _ => vec![],
        };
        warnings.extend(warnings_of_results(&logical));
        let result = plan.schema();
        let schema = self.headed(&logical, &parsed.headings, &result).await?;
        let (plan, schema) = match &parsed.repeated {
            Some(repeated) => repeated::repeat(repeated, &logical, plan, &schema)?,
            None => (plan, schema),
        };
        Ok(PreparedQuery {
            logical,
            plan,
            schema,
            warnings,
            preface: None,
            analyzes: false,
            cacheable: None,
            reads_hidden,
        })
    }

    /// Plans a statement; with the parameters of a candidate for the plan cache.
    async fn planned(
        &self,
        parsed: &ParsedStatement,
        parameters: Option<&Candidate>,
    ) -> datafusion::common::Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
        let state = self.planner(parsed);
        let statement = parsed.statement.clone();
        let limit = RecursionLimit::of(self.dialect, &statement);
        let planned = match parameters {
            Some(candidate) => plan_with_parameters(&state, statement, candidate).await,
            None => plan(&state, statement).await,
        };
        self.give_back(parsed, state);
        let (logical, plan) = planned?;
        Ok((logical, bound_recursions(plan, limit)?))
    }

    /// A planner's error with its place in the statement. The planner keeps places only if it is told to, which takes time: so it plans once more.
    async fn with_place(
        &self,
        parsed: &ParsedStatement,
        error: DataFusionError,
    ) -> DataFusionError {
        let is_of_planner = matches!(
            error.find_root(),
            DataFusionError::Plan(_) | DataFusionError::SchemaError(..)
        );
        if !is_of_planner || error.diagnostic().is_some_and(|known| known.span.is_some()) {
            return error;
        }
        let mut state = self.context.state();
        if has_own_tables(parsed) {
            let tables = self.tables.seen_by(parsed);
            state.register_catalog_list(tables.with_states(parsed));
        }
        let options = state.config_mut().options_mut();
        options.sql_parser.collect_spans = true;
        match logical_plan(&state, parsed.statement.clone()).await {
            Err(placed) if placed.strip_backtrace() == error.strip_backtrace() => placed,
            _ => error,
        }
    }

    /// The logical plan of a statement after the optimizer, which knows nothing of what is stored.
    async fn optimized(&self, parsed: &ParsedStatement) -> datafusion::common::Result<LogicalPlan> {
        let state = self.planner(parsed);
        let logical = logical_plan(&state, parsed.statement.clone()).await;
        let optimized = logical.and_then(|logical| state.optimize(&logical));
        self.give_back(parsed, state);
        optimized
    }

    /// A state that plans a statement.
    fn planner(&self, parsed: &ParsedStatement) -> SessionState {
        let mut state = self.planners.take(&self.context);
        if has_own_tables(parsed) {
            let tables = self.tables.seen_by(parsed);
            state.register_catalog_list(tables.with_states(parsed));
        }
        state
    }

    /// Returns the state to the pool, unless it has other tables.
    fn give_back(&self, parsed: &ParsedStatement, state: SessionState) {
        if !has_own_tables(parsed) {
            self.planners.give_back(state);
        }
    }

    /// Starts a statement of `text`; its rows are produced as they are polled.
    pub async fn run(
        &self,
        text: &str,
        parsed: ParsedStatement,
    ) -> Result<QueryResult, EngineError> {
        if is_query(&parsed.statement)
            && !parsed.of_connection
            && !self.may_have_result(text)
            && let Some(fingerprint) = QueryFingerprint::of(text)
        {
            let state = self.archive.catalog().state();
            let candidate = self.plan_cache.candidate(&fingerprint, self.dialect, state);
            if let Some(candidate) = candidate {
                let prepared = self.prepare_with_parameters(&candidate).await;
                self.plan_cache.insert(candidate, prepared);
                if let Some(result) = self.execute_cached(text).await? {
                    return Ok(self.timed(text, result));
                }
            }
        }
        let prepared = self.prepare(text, parsed).await?;
        self.execute_or_reuse(text, prepared).await
    }

    /// Plans a statement with parameters; `None` if that fails: with its values the statement may still be valid.
    async fn prepare_with_parameters(&self, candidate: &Candidate) -> Option<PreparedQuery> {
        let parsed = only(self.parse(&candidate.text).await.ok()?).ok()?;
        if !is_query(&parsed.statement) || parsed.of_connection {
            return None;
        }
        let (logical, plan) = self.planned(&parsed, Some(candidate)).await.ok()?;
        let prepared = self.prepared(logical, plan, &parsed).await;
        // What a plan from the cache tells would have to be veiled as well.
        prepared.ok().filter(|prepared| !prepared.reads_hidden)
    }

    /// The result of the only statement of `text` if its plan is cached: it is neither parsed nor planned. Otherwise `None`.
    pub async fn execute_cached(&self, text: &str) -> Result<Option<QueryResult>, EngineError> {
        self.execute_from_cache(text, None).await
    }

    /// The same for a statement of a connection, if at most `most_rows` rows of one chunk have to be scanned, and numbers computed of
    /// them: that takes less time than starting a task. `None` also if it may take longer.
    ///
    /// # Errors
    /// The location of the rows cannot be looked up.
    pub async fn try_execute_inline(
        &self,
        text: &str,
        connection: &Connection,
        most_rows: u64,
    ) -> Result<Option<QueryResult>, EngineError> {
        if connection.variables.change_results() {
            return Ok(None);
        }
        let result = self.execute_from_cache(text, Some(most_rows)).await?;
        Ok(result.map(|result| within(connection, result)))
    }

    async fn execute_from_cache(
        &self,
        text: &str,
        most_rows: Option<u64>,
    ) -> Result<Option<QueryResult>, EngineError> {
        let Some(fingerprint) = QueryFingerprint::of(text) else {
            return Ok(None);
        };
        let task = || self.task();
        let cached = self
            .plan_cache
            .execute_cached(&fingerprint, &self.archive, most_rows, task)
            .await?;
        Ok(cached.map(|cached| QueryResult {
            warnings: cached.warnings,
            row_warnings: cached.row_warnings,
            ..with_headings(cached.schema, cached.plan, cached.batches)
        }))
    }

    /// What a statement will read.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn estimate(&self, prepared: &PreparedQuery) -> Result<ScanEstimate, EngineError> {
        estimate::estimate(&self.archive, &prepared.plan).await
    }

    /// Starts a statement in this process.
    pub fn start(&self, prepared: PreparedQuery) -> Result<QueryResult, EngineError> {
        let interrupt = Interrupt::current_or_new();
        let _guard = interrupt.enter();
        if prepared.analyzes {
            // What it reads is counted here, unless somebody watches the query anyway.
            Arc::new(QueryExecution::new()).attach();
        }
        let batches = attempts::execute(&prepared.plan, self.task())
            .map_err(|error| EngineError::from_run(&error))?;
        Ok(prepared.into_result(batches, &interrupt))
    }

    /// Starts a statement in this process, whose pieces' results the journal of the query keeps; `only_committed` if the rows shall be
    /// the result so far: of the pieces that are committed now.
    ///
    /// # Errors
    /// The plan has an operator that cannot be encoded, or cannot start.
    pub fn start_journaled(
        &self,
        prepared: PreparedQuery,
        only_committed: bool,
    ) -> Result<QueryResult, EngineError> {
        let plan = Arc::clone(&prepared.plan);
        let plan = journaled::with_journal(plan, only_committed)
            .map_err(|error| EngineError::from_run(&error))?;
        self.start(PreparedQuery { plan, ..prepared })
    }

    /// Reads the plan of shares that came from another process.
    ///
    /// # Errors
    /// It cannot be read, or names what is not in this archive.
    pub fn decode_share_plan(&self, bytes: &[u8]) -> Result<SharePlan, EngineError> {
        let decoded = SharePlan::decode(bytes, &self.archive, &self.task());
        decoded.map_err(|error| EngineError::from_run(&error))
    }

    /// Runs the pieces of a share that came from another process: their rows, piece by piece, in the order in which they end. The rows
    /// end without an error only if every piece has run.
    ///
    /// # Errors
    /// The plan cannot start.
    pub fn run_share(&self, plan: &SharePlan, share: ShareRun) -> Result<ShareRows, EngineError> {
        let context = self.task();
        let cores = context.session_config().target_partitions();
        let failed = |error| EngineError::from_run(&error);
        let pieces = run_share(share, &plan.0, cores, context).map_err(failed)?;
        let pieces = pieces.map(move |piece| {
            let (number, rows) = piece.map_err(failed)?;
            let rows: RowStream = rows.map(move |batch| batch.map_err(failed)).boxed();
            Ok((number, rows))
        });
        Ok(pieces.boxed())
    }

    /// The task context of every plan of the session.
    fn task(&self) -> Arc<TaskContext> {
        Arc::clone(self.task.get_or_init(|| self.context.task_ctx()))
    }

    /// Executes the only statement of `text`.
    ///
    /// # Errors
    /// The text has no statement or more than one, or the statement fails.
    pub async fn execute(&self, text: &str) -> Result<QueryResult, EngineError> {
        let alone = Connection::alone(self.declared_database.clone());
        self.execute_for(text, &alone).await
    }

    /// Executes the only statement of a connection's text.
    ///
    /// # Errors
    /// The text has no statement or more than one, or the statement fails.
    pub async fn execute_for(
        &self,
        text: &str,
        connection: &Connection,
    ) -> Result<QueryResult, EngineError> {
        // A cached plan returns all rows, of the latest state.
        if !connection.variables.change_results()
            && !self.may_have_result(text)
            && let Some(result) = self.execute_cached(text).await?
        {
            return Ok(within(connection, self.timed(text, result)));
        }
        let only = only(self.parse_for(text, connection).await?)?;
        // What lists the limits themselves has none.
        let has_limits = only.show.is_none();
        let result = self.run(text, only).await?;
        Ok(match has_limits {
            true => within(connection, result),
            false => result,
        })
    }

    /// The columns of the result of a text's only statement, with `headings` if given.
    ///
    /// # Errors
    /// The statement cannot be planned.
    pub async fn describe(
        &self,
        text: &str,
        connection: &Connection,
        headings: Option<Headings>,
    ) -> Result<SchemaRef, EngineError> {
        let mut only = only(self.parse_for(text, connection).await?)?;
        if let Some(headings) = headings {
            only.headings = headings;
        }
        Ok(self.prepare(text, only).await?.schema)
    }

    /// Parses the only statement of a text.
    ///
    /// # Errors
    /// The text has no statement or more than one, or cannot be parsed.
    pub async fn parse_one(&self, text: &str) -> Result<ParsedStatement, EngineError> {
        only(self.parse(text).await?)
    }

    /// Parses the only statement of a connection's text.
    ///
    /// # Errors
    /// The text has no statement or more than one, or cannot be parsed.
    pub async fn parse_one_for(
        &self,
        text: &str,
        connection: &Connection,
    ) -> Result<ParsedStatement, EngineError> {
        only(self.parse_for(text, connection).await?)
    }

    /// What a table reference of this session means.
    pub fn resolve(&self, table: &TableReference) -> (String, String) {
        (
            table.schema().unwrap_or(&self.database).to_owned(),
            table.table().to_owned(),
        )
    }
}

/// The only one of the statements.
fn only(mut statements: Vec<ParsedStatement>) -> Result<ParsedStatement, EngineError> {
    let (sentence, code) = match (statements.pop(), statements.is_empty()) {
        (Some(only), true) => return Ok(only),
        (None, _) => ("there is no statement in the text", ErrorCode::NO_STATEMENT),
        _ => (
            "the text contains several statements: give one at a time",
            ErrorCode::SYNTAX,
        ),
    };
    Err(SqlError::new(sentence).with_code(code).into())
}

/// Whether a statement is planned on tables that others do not see.
fn has_own_tables(parsed: &ParsedStatement) -> bool {
    parsed.names_hidden_columns || parsed.as_of.is_some() || !parsed.states.is_empty()
}

/// Whether a statement returns rows of tables, rather than a plan or a list of objects.
fn is_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(ast) if matches!(**ast, Ast::Query(_)))
}
