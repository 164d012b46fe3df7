//! Questions about one key, asked again and again with other keys: planned once for each wording.
//!
//! ```text
//!   SELECT * FROM Object WHERE objectId = 17          wording: SELECT * FROM Object WHERE objectId = ?, key: 17
//!      │ first time: planned, and the plan of its pieces kept
//!      │ second time, another key: planned, and compared with the kept plan with the other key put into it
//!      ▼ from then on, if they were the same: the director index ─► pieces ─► the kept plan with the key put into it
//! ```
//!
//! Planning takes longer than reading the row. Invariant: an answer is what planning would have given. The kept plans hold for
//! one state of the catalog, and their filters are evaluated as ever. A plan that knows the time of day is not kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::{CatalogState, LoadId, fold_name};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr as LogicalExpr, LogicalPlan, Operator, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, SetExpr, Statement as Ast, Value, ValueWithSpan,
};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::coverage::Coverage;
use crate::exec::{ChunkPhaseExec, PieceScanExec, RowsOf, bind_to_piece};
use crate::piece::Piece;
use crate::restriction::Restriction;
use crate::{Archive, EngineError, Prepared};

/// Wordings that are kept; when there are more, all are forgotten.
const MOST_WORDINGS: usize = 512;
/// Numbers of a text that are tried as its key.
const MOST_NUMBERS: usize = 4;
/// Bytes of the longest wording that is kept.
const LONGEST_WORDING: usize = 4096;

/// A question about one key: its wording and the key.
#[derive(Debug)]
pub(crate) struct PointQuery {
    wording: String,
    key: i64,
}

impl PointQuery {
    /// What `statement`, the only one of `text`, asks; `None` if it is not about one key as far as its text can tell.
    pub fn of(text: &str, statement: &Statement) -> Option<Self> {
        let Statement::Statement(ast) = statement else {
            return None;
        };
        let Ast::Query(query) = &**ast else {
            return None;
        };
        let SetExpr::Select(select) = &*query.body else {
            return None;
        };
        let number = equal_number(select.selection.as_ref()?)?;
        let key = number.parse().ok()?;
        Some(Self {
            wording: without_number(only_statement(text)?, number)?,
            key,
        })
    }

    /// What `text` asks if one of its whole numbers is the key: the same for each number, as only the wordings that were met
    /// can tell. A wording that was met stands for the same statement whatever whole number is put into it, because where one
    /// number was read as such another is.
    pub fn possible(text: &str) -> Vec<Self> {
        let Some(text) = only_statement(text) else {
            return Vec::new();
        };
        whole_numbers(text)
            .filter_map(|at| {
                Some(Self {
                    key: text[at.clone()].parse().ok()?,
                    wording: [&text[..at.start], "?", &text[at.end..]].concat(),
                })
            })
            .take(MOST_NUMBERS)
            .collect()
    }
}

/// The text of a single statement, without what ends it.
fn only_statement(text: &str) -> Option<&str> {
    let text = text.trim().trim_end_matches(';');
    (!text.contains(';') && text.len() <= LONGEST_WORDING).then_some(text)
}

/// Where runs of digits stand that are no part of a word or of another number.
fn whole_numbers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let part_of_word =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | 128..);
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            if !part_of_word(bytes[at]) {
                at += 1;
                continue;
            }
            while at < bytes.len() && part_of_word(bytes[at]) {
                at += 1;
            }
            if bytes[start..at].iter().all(u8::is_ascii_digit) {
                return Some(start..at);
            }
        }
        None
    })
}

/// The number that something must be equal to, under AND alone.
fn equal_number(condition: &Expr) -> Option<&str> {
    match condition {
        Expr::Nested(inner) => equal_number(inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => equal_number(left).or_else(|| equal_number(right)),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } if matches!(**left, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {
            match &**right {
                Expr::Value(ValueWithSpan {
                    value: Value::Number(number, _),
                    ..
                }) => Some(number),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The text with a mark in the place of a number; `None` unless it stands there exactly once.
fn without_number(text: &str, number: &str) -> Option<String> {
    let mut places = whole_numbers(text).filter(|at| text[at.clone()] == *number);
    let at = places.next()?;
    if places.next().is_some() {
        return None;
    }
    Some([&text[..at.start], "?", &text[at.end..]].concat())
}

/// The wordings that were met.
#[derive(Debug, Default)]
pub(crate) struct PointQueries {
    known: Mutex<Wordings>,
}

#[derive(Debug, Default)]
struct Wordings {
    /// The state of the catalog in which they were met.
    state: Option<CatalogState>,
    known: HashMap<String, Known>,
}

#[derive(Debug, Clone)]
enum Known {
    /// Planned with one key.
    Once(Arc<Template>),
    /// Planned with two keys, the same way.
    Sure(Arc<Template>),
    /// To be planned every time.
    Never,
}

impl PointQueries {
    /// Forgets what was met in another state of the catalog: a kept plan keeps the files of its load in being.
    pub fn follow(&self, state: Option<CatalogState>) {
        let mut wordings = self.lock();
        if state.is_none() || wordings.state != state {
            wordings.known.clear();
            wordings.state = state;
        }
    }

    /// Whether the wording is known well enough to be answered.
    pub fn knows(&self, query: &PointQuery) -> bool {
        matches!(self.lock().known.get(&query.wording), Some(Known::Sure(_)))
    }

    /// The rows of the answer and their schema, if the wording is known well enough.
    pub async fn answer(
        &self,
        query: &PointQuery,
        archive: &Arc<Archive>,
        context: Arc<TaskContext>,
    ) -> Result<Option<PointAnswer>, EngineError> {
        let known = self.lock().known.get(&query.wording).cloned();
        let Some(Known::Sure(template)) = known else {
            return Ok(None);
        };
        let Some(pieces) = template.pieces(archive, query.key).await? else {
            self.lock().known.remove(&query.wording);
            return Ok(None);
        };
        let plan = template
            .with_key(query.key)
            .map_err(|error| EngineError::from_run(&error))?;
        Ok(Some(PointAnswer {
            schema: Arc::clone(&template.schema),
            batches: run(&plan, pieces, &context),
            plan,
        }))
    }

    /// Learns from a question that was planned.
    ///
    /// # Errors
    /// Those of looking the table up.
    pub async fn learn(
        &self,
        query: PointQuery,
        archive: &Archive,
        prepared: &Prepared,
    ) -> Result<(), EngineError> {
        let template = Template::of(prepared, archive, query.key).await?;
        let known = &mut self.lock().known;
        let before = known.get(&query.wording);
        let now = match (before, template) {
            (Some(Known::Never), _) | (_, None) => Known::Never,
            (Some(Known::Once(first) | Known::Sure(first)), Some(second))
                if first.load == second.load && first.key != second.key =>
            {
                if first.becomes(&second) {
                    Known::Sure(Arc::new(second))
                } else {
                    Known::Never
                }
            }
            (_, Some(template)) => Known::Once(Arc::new(template)),
        };
        if known.len() >= MOST_WORDINGS {
            known.clear();
        }
        known.insert(query.wording, now);
        Ok(())
    }

    /// A panic elsewhere leaves the map whole: every change is a single one.
    fn lock(&self) -> std::sync::MutexGuard<'_, Wordings> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer on its way.
pub(crate) struct PointAnswer {
    /// The columns under their headings.
    pub schema: SchemaRef,
    /// The rows, whose columns have the plan's own names.
    pub batches: BoxStream<'static, datafusion::common::Result<RecordBatch>>,
    /// The plan that gives them for each piece.
    pub plan: Arc<dyn ExecutionPlan>,
}

/// One piece after another, on the thread that asks: there is one, or none.
fn run(
    plan: &Arc<dyn ExecutionPlan>,
    pieces: Vec<Piece>,
    context: &Arc<TaskContext>,
) -> BoxStream<'static, datafusion::common::Result<RecordBatch>> {
    let (plan, context) = (Arc::clone(plan), Arc::clone(context));
    stream::iter(pieces)
        .map(move |piece| bind_to_piece(&plan, &piece)?.execute(0, Arc::clone(&context)))
        .try_flatten()
        .boxed()
}

/// The plan of a question about one key.
#[derive(Debug)]
struct Template {
    database: String,
    table: String,
    load: LoadId,
    /// The key's column.
    column: usize,
    key: i64,
    /// What runs for each piece.
    inner: Arc<dyn ExecutionPlan>,
    /// The answer's columns under their headings.
    schema: SchemaRef,
}

impl Template {
    /// The template of a question that was planned with `key`; `None` if other keys might need another plan.
    async fn of(
        prepared: &Prepared,
        archive: &Archive,
        key: i64,
    ) -> Result<Option<Self>, EngineError> {
        let Some(phase) = prepared.plan.downcast_ref::<ChunkPhaseExec>() else {
            return Ok(None);
        };
        if depends_on_the_moment(&prepared.logical) {
            return Ok(None);
        }
        let Some(scan) = only_scan(phase.inner()).filter(|scan| scan.rows() == RowsOf::Own) else {
            return Ok(None);
        };
        let stored = scan.stored();
        let Some(table) = archive.table(&stored.database, &stored.name).await? else {
            return Ok(None);
        };
        let keys = table.roles().keys;
        let ([key_column], true) = (keys.as_slice(), table.table.load == stored.load) else {
            return Ok(None);
        };
        let column = stored.schema.index_of(key_column).ok();
        let column = column.filter(|column| {
            let mut predicates = scan.predicates().iter();
            predicates.any(|predicate| is_key(predicate, *column, key))
        });
        Ok(column.map(|column| Self {
            database: fold_name(&stored.database),
            table: fold_name(&stored.name),
            load: stored.load,
            column,
            key,
            inner: Arc::clone(phase.inner()),
            schema: Arc::clone(&prepared.schema),
        }))
    }

    /// Whether putting the key of `other` into this one gives that one.
    fn becomes(&self, other: &Self) -> bool {
        let words =
            |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        self.with_key(other.key)
            .is_ok_and(|plan| words(&plan) == words(&other.inner) && self.schema == other.schema)
    }

    fn with_key(&self, key: i64) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        self.put(&self.inner, key)
    }

    fn put(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        key: i64,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let Some(scan) = plan.downcast_ref::<PieceScanExec>() else {
            let children = plan
                .children()
                .into_iter()
                .map(|child| self.put(child, key))
                .collect::<datafusion::common::Result<Vec<_>>>()?;
            return replace_children_if_necessary(Arc::clone(plan), children);
        };
        let predicates = scan
            .predicates()
            .iter()
            .map(|predicate| {
                if is_key(predicate, self.column, self.key) {
                    other_key(predicate, key)
                } else {
                    Ok(Arc::clone(predicate))
                }
            })
            .collect::<datafusion::common::Result<Vec<_>>>()?;
        Ok(Arc::new(scan.clone().with_predicates(predicates)?))
    }

    /// Where the rows with a key are; `None` if the table has been loaded anew.
    async fn pieces(
        &self,
        archive: &Arc<Archive>,
        key: i64,
    ) -> Result<Option<Vec<Piece>>, EngineError> {
        let table = match archive.table(&self.database, &self.table).await? {
            Some(table) if table.table.load == self.load => table,
            _ => return Ok(None),
        };
        let restriction = Restriction::Keys(0, vec![key]);
        Ok(match table.coverage(archive, &restriction, 0).await? {
            Coverage::Everything => None,
            Coverage::Only(parts) => Some(
                parts
                    .into_iter()
                    .map(|(chunk, sub_chunks)| Piece { chunk, sub_chunks })
                    .collect(),
            ),
        })
    }
}

/// Whether a plan has a function whose value planning may have put into it, as that of `current_date()`.
fn depends_on_the_moment(plan: &LogicalPlan) -> bool {
    let of_the_moment = |expr: &LogicalExpr| {
        Ok(matches!(expr, LogicalExpr::ScalarFunction(function)
            if function.func.signature().volatility != Volatility::Immutable))
    };
    plan.exists(|node| {
        Ok(node
            .expressions()
            .iter()
            .any(|expr| expr.exists(of_the_moment).unwrap_or(true)))
    })
    .unwrap_or(true)
}

/// The scan of a plan that does nothing else but compute columns of its rows.
fn only_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PieceScanExec> {
    let mut node = plan;
    loop {
        if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
            return Some(scan);
        }
        if !node.is::<ProjectionExec>() && !node.is::<CooperativeExec>() {
            return None;
        }
        node = node.children().into_iter().next()?;
    }
}

/// Whether a condition is that the column has this value.
fn is_key(predicate: &Arc<dyn PhysicalExpr>, column: usize, key: i64) -> bool {
    predicate.downcast_ref::<BinaryExpr>().is_some_and(|equal| {
        let (left, right) = (
            equal.left().downcast_ref::<Column>(),
            equal.right().downcast_ref::<Literal>(),
        );
        *equal.op() == Operator::Eq
            && left.is_some_and(|left| left.index() == column)
            && right.is_some_and(|right| *right.value() == ScalarValue::Int64(Some(key)))
    })
}

/// The condition that [`is_key`] found, for another key.
fn other_key(
    predicate: &Arc<dyn PhysicalExpr>,
    key: i64,
) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(predicate)
        .transform(|expr| {
            Ok(if expr.is::<Literal>() {
                let literal = Literal::new(ScalarValue::Int64(Some(key)));
                Transformed::yes(Arc::new(literal) as Arc<dyn PhysicalExpr>)
            } else {
                Transformed::no(expr)
            })
        })
        .data()
}
