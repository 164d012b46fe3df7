//! Views: a definition becomes a plan, which stands in a statement's plan in the place of a table, as a derived table would.
//!
//! A definition is planned with the rights of the archive, whoever reads the view: they need to be able to read the view alone. So what
//! is told of it (errors, EXPLAIN, warnings) has to be told by what the reader may see, not by what the plan reads: see [`reads_hidden`].
//!
//! Above the plan of a view is an alias of a catalogue that no statement can name ([`marked`]), by which results know whose columns
//! theirs are.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{FieldRef, SchemaRef};
use catalog::{Columns, Rights, View, ViewQuery, fold_name};
use datafusion::catalog::CatalogProviderList;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DataFusionError, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use sql::rules::{CompareValues, PlainUsing, ProjectSubqueries};
use sql::{Connection, Dialect, ErrorCode, Headings, SqlError};

use super::names::{declared_columns, explain_error, parse, resolved_headings};
use super::origins::{self, Origin};
use super::planning::logical_plan;
use super::view_columns::places;
use super::{NO_DATABASE, SessionOptions, is_query, only, state};
use crate::archive::Views;
use crate::barrier::BarrierNode;
use crate::loaded_table::LoadedTable;
use crate::provider::{ArchiveCatalog, ArchiveTable};
use crate::{Archive, EngineError};

/// The catalogue of the aliases that mark the plans of views.
const VIEW: &str = "view of the archive";
/// How many views may be read through each other.
const DEEPEST: usize = 16;

/// The views whose definitions are being planned, from the outermost on.
pub(crate) type ViewPath = Arc<[PathView]>;

/// A view whose definition is being planned.
#[derive(Debug, Clone)]
pub(crate) struct PathView {
    /// The folded names of its database and its own.
    folded: [String; 2],
    /// Both as declared.
    full_name: String,
}

impl PathView {
    /// The error of a definition that names one of the views in which it stands, by folded names; `None` if these name another one.
    pub(crate) fn named_within(path: &[Self], database: &str, name: &str) -> Option<EngineError> {
        let view = { path.iter() }.find(|view| view.folded == [database, name])?;
        let sentence = format!("the view {} reads itself", view.full_name);
        let error = SqlError::new(sentence).with_code(ErrorCode::VIEW_RECURSIVE);
        Some(error.into())
    }
}

/// The folded names of the view that an alias marks.
pub(super) fn marked(alias: &TableReference) -> Option<(String, String)> {
    match alias {
        TableReference::Full {
            catalog,
            schema,
            table,
        } if &**catalog == VIEW => Some((schema.to_string(), table.to_string())),
        _ => None,
    }
}

/// A view whose definition was planned.
pub(crate) struct PlannedView {
    /// The plan, whose columns have the view's names, folded.
    pub plan: LogicalPlan,
    /// The types of its values.
    pub types: SchemaRef,
}

/// Plans a view for a statement in a dialect, which reads published data as of a time. `path` are the views whose definitions name it.
///
/// # Errors
/// [`ErrorCode::VIEW_INVALID`] if its definition cannot be planned any more; who may read everything is told why.
pub(crate) async fn planned(
    archive: &Archive,
    view: &View,
    path: &ViewPath,
    dialect: Dialect,
    as_of: Option<i64>,
) -> Result<PlannedView, EngineError> {
    let plan = async {
        let path = extended(path, view)?;
        let whole = archive.whole();
        let definition = Definition::plan(&whole, &view.query, path, as_of).await?;
        let rights = archive.catalog().rights();
        let is_fenced = reads_hidden(&definition.plan, rights);
        definition.under(view, dialect, is_fenced)
    };
    plan.await.map_err(|cause| invalid(archive, view, &cause))
}

fn invalid(archive: &Archive, view: &View, cause: &EngineError) -> EngineError {
    let (code, name) = (cause.code(), view.full_name());
    let rights = archive.catalog().rights().as_ref();
    let told = match rights {
        // Whose state is asked for is no fault of the view.
        _ if code == ErrorCode::INTERRUPTED || code == ErrorCode::WRONG_VARIABLE_VALUE => {
            return SqlError::new(sentence(cause)).with_code(code).into();
        }
        Rights::All if code == ErrorCode::VIEW_RECURSIVE => {
            return SqlError::new(sentence(cause)).with_code(code).into();
        }
        Rights::All => format!(
            "the view {name} cannot be read, since what it is made of has changed: {}; CREATE OR REPLACE VIEW makes it anew, DROP VIEW removes it",
            sentence(cause)
        ),
        Rights::Listed(_) => format!(
            "the view {name} cannot be read at present, since what it is made of has changed: tell whoever runs this archive"
        ),
    };
    SqlError::new(told)
        .with_code(ErrorCode::VIEW_INVALID)
        .into()
}

/// An error without the place in the text, which is the definition's.
fn sentence(error: &EngineError) -> String {
    match error {
        EngineError::Sql(error) => error.sentence().to_owned(),
        other => other.to_string(),
    }
}

/// The path with one more view.
pub(super) fn extended(path: &ViewPath, view: &View) -> Result<ViewPath, EngineError> {
    let folded = [&view.database, &view.name].map(|name| fold_name(name));
    if let Some(error) = PathView::named_within(path, &folded[0], &folded[1]) {
        return Err(error);
    }
    if path.len() == DEEPEST {
        let sentence =
            format!("views read each other more than {DEEPEST} deep: name the tables themselves");
        let error = SqlError::new(sentence).with_code(ErrorCode::VIEW_RECURSIVE);
        return Err(error.into());
    }
    let last = PathView {
        folded,
        full_name: view.full_name(),
    };
    Ok(path.iter().cloned().chain([last]).collect())
}

/// The plan of a definition.
pub(super) struct Definition {
    pub(super) state: SessionState,
    pub(super) plan: LogicalPlan,
    /// What heads its columns.
    pub(super) headings: Vec<String>,
    /// The types of its values.
    types: SchemaRef,
}

impl Definition {
    /// Plans the definition of the last view of a path, on an archive of which nothing is hidden.
    pub(super) async fn plan(
        archive: &Arc<Archive>,
        query: &ViewQuery,
        path: ViewPath,
        as_of: Option<i64>,
    ) -> Result<Self, EngineError> {
        let text = query.definition.as_str();
        let default = query.default_database.as_deref();
        let connection = Connection::alone(default.map(str::to_owned));
        let folded = folded_default(default);
        let statements = parse(archive, &folded, Dialect::MySql, text, &connection).await?;
        let mut parsed = only(statements)?;
        if parsed.show.is_some() || !is_query(&parsed.statement) {
            let sentence = "a view is made of a query: CREATE VIEW name AS SELECT ...";
            let error = SqlError::new(sentence).with_code(ErrorCode::SYNTAX);
            return Err(error.into());
        }
        if parsed.repeated.is_some() {
            let sentence = "a wildcard gives the same columns twice: write the columns of the view, each under a name of its own";
            let error = SqlError::new(sentence).with_code(ErrorCode::COLUMN_TWICE);
            return Err(error.into());
        }
        if parsed.of_connection {
            let sentence = "a view has the same rows for everybody: its definition cannot read variables, USER(), DATABASE() and what else belongs to a connection, nor results of queries";
            let error = SqlError::new(sentence).with_code(ErrorCode::VIEW_OF_CONNECTION);
            return Err(error.into());
        }
        sql::replace_as_of(&mut parsed.statement, as_of)?;
        let hidden = parsed.names_hidden_columns;
        let tables = ArchiveCatalog::of_definition(archive, hidden, path, as_of);
        let state = definition_state(&folded_default(default), tables.with_states(&parsed))?;
        let plan = match logical_plan(&state, parsed.statement).await {
            Ok(plan) => plan,
            Err(error) => return Err(explain_error(archive, &folded, text, &error).await),
        };
        let analyzed =
            state
                .analyzer()
                .execute_and_check(plan.clone(), state.config_options(), |_, _| {});
        let analyzed = analyzed.map_err(|error| of_planner(text, &error))?;
        let types = Arc::clone(analyzed.schema().inner());
        let headings = headings(archive, default, &plan, &parsed.headings).await?;
        Ok(Self {
            state,
            plan,
            headings,
            types,
        })
    }

    /// Whether another definition gives the same headings and types. What the planner calls a column that has no name of its own may have the
    /// database's in it.
    pub(super) fn gives_columns_of(&self, other: &Self) -> bool {
        let own = self.types.fields().iter().zip(&self.headings);
        let mut pairs = own.zip(other.types.fields().iter().zip(&other.headings));
        let is_same = |((field, heading), (theirs, their_heading)): (
            (&FieldRef, &String),
            (&FieldRef, &String),
        )| {
            heading == their_heading
                && (field.data_type(), field.is_nullable(), field.metadata())
                    == (theirs.data_type(), theirs.is_nullable(), theirs.metadata())
        };
        self.headings.len() == other.headings.len() && pairs.all(is_same)
    }

    /// The plan of a view: the columns that it has had since it was made, under their names; below a barrier if it is fenced.
    fn under(
        self,
        view: &View,
        dialect: Dialect,
        is_fenced: bool,
    ) -> Result<PlannedView, EngineError> {
        let places = places(view, &self.headings)?;
        let failed = |error: DataFusionError| of_planner("", &error);
        let plan = match dialect {
            Dialect::MySql => self.plan,
            Dialect::Adql => compared(&self.state, self.plan).map_err(failed)?,
        };
        let columns: Vec<Expr> = places
            .iter()
            .map(|at| Expr::Column(Column::from(plan.schema().qualified_field(*at))))
            .zip(&view.query.columns)
            .map(|(column, name)| column.alias(fold_name(name)))
            .collect();
        let names = [&view.database, &view.name].map(|name| fold_name(name));
        let [database, name] = names;
        let shown = LogicalPlanBuilder::from(plan).project(columns);
        let shown = shown.and_then(LogicalPlanBuilder::build).map_err(failed)?;
        let shown = match is_fenced {
            true => BarrierNode::above(shown),
            false => shown,
        };
        let plan = LogicalPlanBuilder::from(shown)
            .alias(TableReference::full(VIEW, database, name))
            .and_then(LogicalPlanBuilder::build)
            .map_err(failed)?;
        let types = self.types.project(&places);
        let types = types.map_err(|error| EngineError::Query(error.to_string()))?;
        Ok(PlannedView {
            plan,
            types: Arc::new(types),
        })
    }
}

/// The analysed plan of a query over an archive of which nothing is hidden, without its optimisations.
pub(crate) async fn analyzed_definition(
    archive: &Arc<Archive>,
    query: &ViewQuery,
) -> Result<LogicalPlan, EngineError> {
    let definition = Definition::plan(archive, query, Vec::new().into(), None).await?;
    let analyzer = definition.state.analyzer();
    let options = definition.state.config_options();
    let analyzed = analyzer.execute_and_check(definition.plan, options, |_, _| {});
    analyzed.map_err(|error| of_planner(&query.definition, &error))
}

/// The plan of a definition for a statement in another dialect than MySQL's: values are compared as MySQL does, which otherwise is
/// settled with the whole statement.
fn compared(state: &SessionState, mut plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let rules: [&dyn AnalyzerRule; 3] = [&PlainUsing, &ProjectSubqueries, &CompareValues];
    for rule in rules {
        plan = rule.analyze(plan, state.config_options())?;
    }
    Ok(plan)
}

fn folded_default(database: Option<&str>) -> String {
    database.map_or_else(|| NO_DATABASE.to_owned(), fold_name)
}

/// An error of the planner about a definition.
pub(super) fn of_planner(text: &str, error: &DataFusionError) -> EngineError {
    match error.find_root() {
        DataFusionError::External(_) => EngineError::from_run(error),
        _ => SqlError::from_datafusion(text, error, &[], &str::to_owned).into(),
    }
}

/// The state in which a definition is planned: of MySQL's dialect, without files, results of queries and whatever else a server adds.
fn definition_state(
    default: &str,
    tables: Arc<dyn CatalogProviderList>,
) -> Result<SessionState, EngineError> {
    static BASE: OnceLock<SessionState> = OnceLock::new();
    let mut state = match BASE.get() {
        Some(base) => base.clone(),
        None => {
            let made = state::state(&SessionOptions::default(), NO_DATABASE)?;
            BASE.get_or_init(|| made).clone()
        }
    };
    default.clone_into(&mut state.config_mut().options_mut().catalog.default_schema);
    state.register_catalog_list(tables);
    Ok(state)
}

async fn headings(
    archive: &Archive,
    default: Option<&str>,
    plan: &LogicalPlan,
    headings: &Headings,
) -> Result<Vec<String>, EngineError> {
    let declared = declared_columns(archive, &folded_default(default), plan).await?;
    Ok(resolved_headings(plan, headings, &declared))
}

/// The views that a plan reads are among these; there are none if it reads none.
///
/// # Errors
/// The catalog cannot be read.
pub(super) async fn views_in(
    archive: &Archive,
    plan: &LogicalPlan,
) -> Result<Arc<Views>, EngineError> {
    let mut found = false;
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::SubqueryAlias(it) if marked(&it.alias).is_some());
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    match found {
        true => archive.views().await,
        false => Ok(Arc::default()),
    }
}

/// What each column of a planned view is, if it is a column of a table.
pub(crate) fn column_origins(planned: &PlannedView, views: &Views) -> Vec<Option<Origin>> {
    let columns = 0..planned.plan.schema().fields().len();
    columns
        .map(|at| origins::origin(&planned.plan, at, views))
        .collect()
}

/// A table that a plan reads.
struct ReadTable {
    table: Arc<LoadedTable>,
    /// Whether all of its columns could be named there, as in the definition of a view.
    is_whole: bool,
    /// Whether some of its rows may be hidden.
    is_released: bool,
}

fn tables(plan: &LogicalPlan) -> Vec<ReadTable> {
    let mut found = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(it) = provider.downcast_ref::<ArchiveTable>()
        {
            found.push(ReadTable {
                table: Arc::clone(&it.table),
                is_whole: *it.archive.columns_of(&it.table) == Columns::All,
                is_released: it.archive.release_of(&it.table).is_some(),
            });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// Whether all that is hidden of what a plan reads are rows that are not released: then its statement can be explained without what the
/// planner has made of the numbers of rows. The plan of a view with a barrier has what its definition says, which is not told.
pub(super) fn hides_rows_alone(plan: &LogicalPlan, rights: &Rights) -> bool {
    let mut has_barrier = false;
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        has_barrier |= BarrierNode::of(node).is_some();
        Ok(TreeNodeRecursion::Continue)
    });
    let is_open = |read: &ReadTable| {
        let spec = read.table.spec();
        match rights.columns(&spec.database, &spec.name) {
            None => false,
            Some(Columns::All) => true,
            Some(Columns::Listed(_)) => !read.is_whole,
        }
    };
    !has_barrier && tables(plan).iter().all(is_open)
}

/// Whether a plan reads tables, columns or rows that somebody with these rights may not read: through views, and below barriers.
pub(crate) fn reads_hidden(plan: &LogicalPlan, rights: &Rights) -> bool {
    let hidden = |read: &ReadTable| {
        let spec = read.table.spec();
        match rights.columns(&spec.database, &spec.name) {
            None => true,
            Some(Columns::All) => read.is_released,
            Some(Columns::Listed(_)) => read.is_whole || read.is_released,
        }
    };
    *rights != Rights::All && tables(plan).iter().any(hidden)
}

/// The views that read a table, or any table of a database, by their full names.
///
/// # Errors
/// The catalog cannot be read.
pub async fn views_of(
    archive: &Archive,
    database: &str,
    table: Option<&str>,
) -> Result<Vec<String>, EngineError> {
    let mut found = Vec::new();
    for view in archive.views().await?.values() {
        let path = Vec::new().into();
        let Ok(planned) = planned(archive, view, &path, Dialect::MySql, None).await else {
            continue;
        };
        let is_meant = |it: &ReadTable| {
            let spec = it.table.spec();
            fold_name(&spec.database) == fold_name(database)
                && table.is_none_or(|table| fold_name(&spec.name) == fold_name(table))
        };
        if tables(&planned.plan).iter().any(is_meant) {
            found.push(view.full_name());
        }
    }
    Ok(found)
}

/// An error of a query that reads, through a view, tables that whoever asks may not read: without words that tell of them.
pub(super) fn veiled(error: EngineError) -> EngineError {
    let code = error.code();
    let told = match code {
        ErrorCode::INTERRUPTED
        | ErrorCode::LIMIT_REACHED
        | ErrorCode::OUT_OF_RESOURCES
        | ErrorCode::TEMPORARY_FULL => {
            return error;
        }
        ErrorCode::OUT_OF_RANGE => {
            "a value is beyond the range of its type in a query of a view, or of a table whose rows are not all released"
        }
        ErrorCode::STORAGE => "files of this archive cannot be read: tell whoever runs it",
        _ => {
            "a value could not be computed in a query of a view, or of a table whose rows are not all released: tell whoever runs this archive"
        }
    };
    SqlError::new(told).with_code(code).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view that is being made was no table that there is.
    #[test]
    fn a_definition_that_names_its_view_is_told_so() {
        let view = |database: &str, name: &str| PathView {
            folded: [fold_name(database), fold_name(name)],
            full_name: format!("{database}.{name}"),
        };
        let path = [view("Sky", "Bright"), view("sky", "Deep")];
        let error = PathView::named_within(&path, "sky", "bright").unwrap();
        assert_eq!(error.to_string(), "the view Sky.Bright reads itself");
        assert_eq!(error.code(), ErrorCode::VIEW_RECURSIVE);
        assert!(PathView::named_within(&path, "deep", "deep").is_none());
        assert!(PathView::named_within(&[], "sky", "bright").is_none());
    }
}
