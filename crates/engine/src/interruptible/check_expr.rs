//! Join conditions that check for interruption at each batch of pairs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{JoinType, Result, ScalarValue, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use super::stream::{begin_turn, turn_began};

/// How long a task may compute before its thread's other tasks are moved to another thread.
const LONG: Duration = Duration::from_millis(50);
/// How long the other thread may take to start.
const HANDED_OVER_WITHIN: Duration = Duration::from_micros(200);

/// An expression with a check before it.
#[derive(Debug, Clone)]
struct CheckExpr(Arc<dyn PhysicalExpr>);

impl fmt::Display for CheckExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl PartialEq for CheckExpr {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}
impl Eq for CheckExpr {}
impl Hash for CheckExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PhysicalExpr for CheckExpr {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        sql::interrupt::check()?;
        self.0.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(only), true) => Ok(Arc::new(Self(only))),
            _ => internal_err!("a check of other than one expression"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}

/// Moves the thread's other tasks to a new thread if this one has computed for long without yielding. The current task continues, and the
/// thread ends with it. For checks in loops that cannot yield.
pub(super) fn relieve_where_it_takes_long() {
    if turn_began().elapsed() < LONG {
        return;
    }
    begin_turn();
    let on_several_threads = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if on_several_threads {
        // The closure does nothing: the other tasks are moved while it blocks.
        block_in_place(|| std::thread::sleep(HANDED_OVER_WITHIN));
    }
}

/// The same operator; if it is a join that can iterate over any number of pairs without returning one, with a checked condition.
pub(super) fn with_checked_condition(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let Some(filter) = checked(join.filter(), *join.join_type()) else {
            return Ok(node);
        };
        let join = HashJoinExecBuilder::from(join).with_filter(Some(filter));
        return join.build_exec();
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = checked(join.filter(), *join.join_type()) else {
            return Ok(node);
        };
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter));
        return Ok(Arc::new(join.build()?));
    }
    Ok(node)
}

/// The condition with a check. A join that returns every pair needs none; one that returns a row for many pairs gets a condition that is
/// always true.
fn checked(filter: Option<&JoinFilter>, join_type: JoinType) -> Option<JoinFilter> {
    if let Some(filter) = filter {
        let condition: Arc<dyn PhysicalExpr> = Arc::new(CheckExpr(Arc::clone(filter.expression())));
        let columns = filter.column_indices().to_vec();
        return Some(JoinFilter::new(
            condition,
            columns,
            Arc::clone(filter.schema()),
        ));
    }
    let gives_pairs = matches!(
        join_type,
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
    );
    if gives_pairs {
        return None;
    }
    let always = CheckExpr(lit(ScalarValue::Boolean(Some(true))));
    let no_columns = Arc::new(Schema::empty());
    Some(JoinFilter::new(Arc::new(always), vec![], no_columns))
}
