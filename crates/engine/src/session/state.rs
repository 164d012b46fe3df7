//! The state of a session: DataFusion's state with our rules and functions, and a pool of copies.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::{Rights, fold_name};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::prelude::{SessionConfig, SessionContext};
use sql::mysql::Operators;
use sql::rules::{
    ApartGroups, CheckIntegers, CompareValues, GuardValues, JsonValues, KeysOfGroups, MeetValues,
    NullableSubqueries, OrderComparisons, PlainUsing, ProjectSetExpressions, ProjectSubqueries,
    RoundRecursion, SettleNumbers, SingleRows, TimesAsTexts, WidenFloats, WindowOrders,
    WriteOutMemberships,
};
use sql::{AdqlOperators, Dialect};

use super::in_units::InUnits;
use super::mocs_as_texts::MocsAsTexts;
use super::{CATALOG, NO_DATABASE, SessionOptions};
use crate::crossmatch::{MatchRelations, MatchingPlanner, PushProbeFilters};
use crate::dispatch::Dispatching;
use crate::information_schema::INFORMATION_SCHEMA;
use crate::memory::MeasuredPool;
use crate::plan::{
    CutChunkPhases, CutShuffles, KeepRecursionLimits, ReduceJoinOutput, SortManyRows, checked,
    engine_rules, most_first_rows, place_of, place_of_rule,
};
use crate::shuffle::ReadingBuckets;
use crate::stored_rows::{RESULT_FUNCTION, ResultFunction};
use crate::{Archive, EngineError, files};

/// States for planning that are not in use. A state holds hundreds of functions by their names, so copying it for each query, as
/// DataFusion does, takes a tenth of the time of a short one.
#[derive(Default)]
pub(super) struct Planners(Mutex<Vec<SessionState>>);

impl Planners {
    pub(super) fn take(&self, context: &SessionContext) -> SessionState {
        let spare = self.lock().pop();
        let Some(mut state) = spare else {
            return context.state();
        };
        // The time that `now()` gives.
        let config = Arc::clone(state.config_options());
        state.execution_props_mut().mark_start_execution(config);
        state
    }

    pub(super) fn give_back(&self, state: SessionState) {
        self.lock().push(state);
    }

    /// A panic in another thread leaves the list consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<SessionState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// DataFusion's state for a session whose tables are looked for in a database.
pub(super) fn state(options: &SessionOptions, database: &str) -> Result<SessionState, EngineError> {
    let cores = options
        .cores
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get);
    let runtime = match &options.runtime {
        Some(shared) => Arc::clone(shared),
        None => runtime(options.memory, options.spilled)?,
    };
    let mut config = SessionConfig::new()
        .with_target_partitions(cores)
        .with_default_catalog_and_schema(CATALOG, database)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(false);
    if let Some(dispatcher) = &options.dispatcher {
        config = config.with_extension(Arc::new(Dispatching(Arc::clone(dispatcher))));
    }
    let dispatcher = options.dispatcher.as_ref();
    let reader = dispatcher.map(|it| it.bucket_reader());
    if let Some(reader) = reader.or_else(|| options.bucket_reader.clone()) {
        config = config.with_extension(Arc::new(ReadingBuckets(reader)));
    }
    // Names are folded before DataFusion sees them.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    // The logical plan knows of more expressions that they are never NULL than the physical one does, as of CASE WHEN that is
    // false where its own THEN is NULL: what goes into GROUP BY and DISTINCT would be rejected for the difference.
    config
        .options_mut()
        .execution
        .skip_physical_aggregate_schema_check = true;
    if options.dialect == Dialect::MySql {
        // NULL is below every value.
        config.options_mut().sql_parser.default_null_ordering = "nulls_min".to_owned();
    }
    if let MemoryLimit::Finite(reservable) = runtime.memory_pool.memory_limit() {
        config.options_mut().execution.sort_spill_reservation_bytes =
            (reservable / SORTS).min(MERGE_BYTES);
    }
    let most_first_rows = most_first_rows(&runtime.memory_pool.memory_limit());
    let mut rules = physical_rules(most_first_rows)?;
    if let Some(most_rows) = dispatcher.and_then(|it| it.shuffles_above()) {
        rules.push(Arc::new(CutShuffles { most_rows }));
        // Shuffles bring sorts with limits of their own.
        rules.push(Arc::new(SortManyRows { most_first_rows }));
    }
    let mut state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_analyzer_rules(checked(analyzer_rules(options.dialect)?, |rule| {
            Arc::new(rule)
        }))
        .with_physical_optimizer_rules(checked(rules, |rule| Arc::new(rule)))
        .with_optimizer_rules(checked(PushProbeFilters::among_rules()?, |rule| {
            Arc::new(rule)
        }))
        .with_relation_planners(vec![Arc::new(KeysOfGroups), Arc::new(MatchRelations)])
        .with_query_planner(Arc::new(MatchingPlanner))
        .build();
    use datafusion::execution::FunctionRegistry as _;
    for name in sql::functions::UNBOUNDED {
        state
            .deregister_udf(name)
            .map_err(|error| EngineError::from_run(&error))?;
        state
            .deregister_udtf(name)
            .map_err(|error| EngineError::from_run(&error))?;
    }
    for (name, function) in files::functions(&options.files, options.dialect) {
        state.register_udtf(name, function);
    }
    let function = ResultFunction {
        system: options.system.clone(),
    };
    state.register_udtf(RESULT_FUNCTION, Arc::new(function));
    let operators: Arc<dyn ExprPlanner> = match options.dialect {
        Dialect::MySql => Arc::new(Operators),
        Dialect::Adql => Arc::new(AdqlOperators),
    };
    state
        .register_expr_planner(operators)
        .map_err(|error| EngineError::from_run(&error))?;
    for function in sql::functions::all() {
        state
            .register_udf(function)
            .map_err(|error| EngineError::from_run(&error))?;
    }
    for function in sql::functions::all_aggregates() {
        state
            .register_udaf(function)
            .map_err(|error| EngineError::from_run(&error))?;
    }
    Ok(state)
}

type AnalyzerRules = Vec<Arc<dyn datafusion::optimizer::AnalyzerRule + Send + Sync>>;
type PhysicalRules =
    Vec<Arc<dyn datafusion::physical_optimizer::PhysicalOptimizerRule + Send + Sync>>;

/// DataFusion's analysis with ours. Before types are coerced: joins USING columns of different types become joins ON, values of subqueries
/// are held to one row, expressions are moved out of grouping sets, numbers of CASE and UNION get one type, subqueries are moved out of
/// aggregates and sort keys, JSON values are sorted as such, values made comparable as the dialect compares them, memberships written out,
/// floats widened, numbers of recursions rounded and integers checked. After that values are guarded, the constants of comparisons put on the right, the columns of
/// grouping sets told apart, and scalar subqueries that may have no rows be NULL.
///
/// # Errors
/// This version of DataFusion has no rule that coerces types.
fn analyzer_rules(dialect: Dialect) -> Result<AnalyzerRules, EngineError> {
    let mut rules = Analyzer::new().rules;
    let names = rules.iter().map(|rule| rule.name());
    let coercion = place_of(names, "type_coercion").map_err(|e| EngineError::from_run(&e))?;
    rules.insert(coercion, Arc::new(CheckIntegers));
    rules.insert(coercion, Arc::new(WidenFloats));
    rules.insert(coercion, Arc::new(WriteOutMemberships));
    if dialect == Dialect::MySql {
        rules.insert(coercion, Arc::new(RoundRecursion));
        rules.insert(coercion, Arc::new(TimesAsTexts));
        rules.insert(coercion, Arc::new(CompareValues));
        rules.insert(coercion, Arc::new(JsonValues));
    } else {
        rules.insert(coercion, Arc::new(MeetValues));
    }
    rules.insert(coercion, Arc::new(ProjectSubqueries));
    rules.insert(coercion, Arc::new(SettleNumbers { dialect }));
    rules.insert(coercion, Arc::new(ProjectSetExpressions));
    rules.insert(coercion, Arc::new(SingleRows));
    rules.insert(coercion, Arc::new(PlainUsing));
    if dialect == Dialect::Adql {
        rules.insert(coercion, Arc::new(MocsAsTexts));
        rules.insert(coercion, Arc::new(InUnits));
    }
    rules.push(Arc::new(GuardValues));
    rules.push(Arc::new(OrderComparisons));
    rules.push(Arc::new(WindowOrders));
    rules.push(Arc::new(ApartGroups));
    rules.push(Arc::new(NullableSubqueries));
    Ok(rules)
}

/// DataFusion's physical optimizer with our rules: limits of recursions are kept before anything else, and phases are cut after counts have been
/// taken from statistics, and before anything is distributed or combined.
///
/// # Errors
/// This version of DataFusion lacks a rule that ours stand beside.
fn physical_rules(most_first_rows: usize) -> Result<PhysicalRules, EngineError> {
    let failed = |error| EngineError::from_run(&error);
    let mut rules = engine_rules().map_err(failed)?;
    let counted = place_of_rule(&rules, "aggregate_statistics").map_err(failed)?;
    rules.insert(counted + 1, Arc::new(CutChunkPhases { most_first_rows }));
    rules.insert(0, Arc::new(KeepRecursionLimits));
    rules.push(Arc::new(ReduceJoinOutput));
    rules.push(Arc::new(SortManyRows { most_first_rows }));
    Ok(rules)
}

/// A sort reserves what the merge of its spilled runs begins with as soon as it begins: so many sorts have room for that.
const SORTS: usize = 12;
/// What it reserves at most.
const MERGE_BYTES: usize = 10 << 20;
/// What a spilled run takes while it is read back: four of its batches, each of some hundred kilobytes.
const BYTES_OF_A_RUN: usize = 2 << 20;
/// So many merges have room at once.
const MERGES: usize = 6;
/// How many spilled runs are merged at once, at least and at most; more of them take several passes.
const RUNS: RangeInclusive<usize> = 4..=128;

/// The memory and disk space of queries: at most `memory` bytes for sorts, groups and joins together, which spill to disk or fail beyond
/// that, and at most `spilled` bytes on the disk; without `memory` no limit of it, without `spilled` one of 100 GiB.
pub fn runtime(
    memory: Option<usize>,
    spilled: Option<u64>,
) -> Result<Arc<RuntimeEnv>, EngineError> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(spilled) = spilled {
        runtime = runtime.with_max_temp_directory_size(spilled);
    }
    if let Some(memory) = memory {
        let runs = (memory / BYTES_OF_A_RUN / MERGES).clamp(*RUNS.start(), *RUNS.end());
        runtime = runtime
            .with_memory_pool(Arc::new(MeasuredPool::new(memory)))
            .with_max_spill_merge_fan_in(runs);
    }
    runtime
        .build_arc()
        .map_err(|error| EngineError::from_run(&error))
}

/// The default database of a session.
pub(super) struct DefaultDatabase {
    pub folded: String,
    /// Its declared name; `None` if there is no default database.
    pub declared: Option<String>,
}

impl DefaultDatabase {
    pub async fn find(archive: &Archive, wanted: Option<&str>) -> Result<Self, EngineError> {
        let databases = archive.catalog().databases().await?;
        let mut names = databases.into_iter().map(|database| database.name);
        let chosen = |name: String| Self {
            folded: fold_name(&name),
            declared: Some(name),
        };
        let unchosen = |folded: &str| Self {
            folded: folded.to_owned(),
            declared: None,
        };
        match wanted {
            Some(NO_DATABASE) => Ok(unchosen(NO_DATABASE)),
            Some(wanted) => {
                let known: Vec<String> = names.chain([INFORMATION_SCHEMA.to_owned()]).collect();
                let folded = fold_name(wanted);
                let found = known.iter().find(|name| fold_name(name) == folded).cloned();
                // A user's own database is there once it has a table; it may be chosen before.
                let rights = archive.catalog().rights();
                let may_come =
                    matches!(**rights, Rights::Listed(_)) && rights.may_see_database(wanted);
                { found.or_else(|| may_come.then(|| wanted.to_owned())) }
                    .map(chosen)
                    .ok_or_else(|| match archive.catalog().rights().as_ref() {
                        Rights::All => no_database(wanted, &known),
                        Rights::Listed(_) => EngineError::denied_database(wanted),
                    })
            }
            None => match (names.next(), names.next()) {
                (Some(only), None) => Ok(chosen(only)),
                // Tables must then be named with their database.
                _ => Ok(unchosen(NO_DATABASE)),
            },
        }
    }
}

/// `known` ends with the database of the engine's own.
fn no_database(wanted: &str, known: &[String]) -> EngineError {
    let hint = match known {
        [] | [_] => "nothing has been loaded yet: see `meridian load --help`".to_owned(),
        [loaded @ .., _] => {
            let names: Vec<String> = loaded.iter().map(|name| fold_name(name)).collect();
            format!("databases here: {}", names.join(", "))
        }
    };
    EngineError::NoDatabase {
        name: wanted.to_owned(),
        hint,
    }
}
