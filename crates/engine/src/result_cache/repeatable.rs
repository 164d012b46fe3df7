//! Which plans have the same result whenever they run over the same parts, whoever asks.
//!
//! This is a list of what is allowed. A new kind of table, operator or expression is not repeatable until it is listed here.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility, WindowFunctionDefinition};

use crate::barrier::BarrierNode;
use crate::crossmatch::is_crossmatch;
use crate::provider::ArchiveTable;

/// Whether a plan, before it is optimised, reads tables of the catalog alone, and calls functions that depend on their arguments alone.
/// (Functions of the moment are replaced by their values when a plan is optimised.)
pub(crate) fn is_repeatable(plan: &LogicalPlan) -> bool {
    let mut repeatable = true;
    let walked = plan.apply_with_subqueries(|node| {
        repeatable &= is_repeatable_node(node) && node.expressions().iter().all(is_repeatable_expr);
        Ok(match repeatable {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    repeatable && walked.is_ok()
}

fn is_repeatable_node(node: &LogicalPlan) -> bool {
    match node {
        // Which rows are released depends on the reader and on the moment.
        LogicalPlan::TableScan(scan) => source_as_provider(&scan.source).is_ok_and(|provider| {
            let table = provider.downcast_ref::<ArchiveTable>();
            table.is_some_and(|it| it.archive.release_of(&it.table).is_none())
        }),
        LogicalPlan::Extension(extension) => {
            is_crossmatch(&*extension.node) || BarrierNode::of(node).is_some()
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_) => true,
        _ => false,
    }
}

fn is_repeatable_expr(expr: &Expr) -> bool {
    let is_varying = |expr: &Expr| Ok(!is_repeatable_one(expr));
    !datafusion::common::tree_node::TreeNode::exists(expr, is_varying).unwrap_or(true)
}

/// Whether an expression is so, if its parts are. Subqueries are walked with the plan.
fn is_repeatable_one(expr: &Expr) -> bool {
    let is_immutable = |volatility| volatility == Volatility::Immutable;
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) => {
            is_immutable(func.signature().volatility)
        }
        Expr::AggregateFunction(AggregateFunction { func, .. }) => {
            is_immutable(func.signature().volatility)
        }
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, .. } = &**window;
            is_immutable(match fun {
                WindowFunctionDefinition::AggregateUDF(function) => function.signature().volatility,
                WindowFunctionDefinition::WindowUDF(function) => function.signature().volatility,
            })
        }
        Expr::Alias(_)
        | Expr::Column(_)
        | Expr::Literal(..)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::InList(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_)
        | Expr::ScalarSubquery(_)
        | Expr::GroupingSet(_)
        | Expr::OuterReferenceColumn(..) => true,
        _ => false,
    }
}
