//! Binding values to the parameters of a cached plan.
//!
//! ```text
//!   cached plan ──► each parameter becomes a constant ──► restrictions and pieces are computed anew ──► a plan that runs once
//! ```
//!
//! Invariant: the bound plan shares no state with the cached plan or with other plans that were bound from it, and the cached plan itself
//! never runs.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::logical_expr::{BinaryExpr as LogicalBinary, Expr};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NegativeExpr,
    NotExpr, in_list,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use futures::future::{BoxFuture, FutureExt};
use sql::functions::{RegionShape, SEPARATION};

use super::parameter::{bound, parameter};
use crate::exec::{
    ChunkNumberExec, ChunkPhaseExec, CrossmatchExec, NeighbourJoinExec, PieceScanExec,
};
use crate::piece::Piece;
use crate::plan::PhaseSource;
use crate::{Archive, EngineError};

/// Whether values can be bound wherever the plan has parameters, and bound plans share no state.
///
/// A plan with an operator that is not known here is not cached.
pub(super) fn is_bindable(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
        return phase.source().is_some_and(PhaseSource::is_rebindable)
            && is_bindable(phase.inner());
    }
    let binds_expressions =
        plan.is::<PieceScanExec>() || plan.is::<FilterExec>() || plan.is::<ProjectionExec>();
    let mut fits = binds_expressions || is_stateless_when_reset(plan);
    let found = plan.apply_expressions(&mut |expr| {
        fits &= if binds_expressions {
            is_plain(expr)
        } else {
            !is_open(expr)
        };
        Ok(TreeNodeRecursion::Continue)
    });
    fits && found.is_ok() && plan.children().into_iter().all(is_bindable)
}

/// Operators without state, or whose state `reset_state` clears.
fn is_stateless_when_reset(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<AggregateExec>()
        || plan.is::<BoundedWindowAggExec>()
        || plan.is::<ChunkNumberExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<CrossmatchExec>()
        || plan.is::<EmptyExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<NeighbourJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<PlaceholderRowExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<ScalarSubqueryExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<UnionExec>()
        || plan.is::<WindowAggExec>()
}

/// Whether an expression has a parameter.
fn is_open(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let open = |expr: &Arc<dyn PhysicalExpr>| {
        Ok(parameter(expr).is_some() || expr.is::<ScalarSubqueryExpr>())
    };
    // The closure cannot fail.
    expr.exists(open).unwrap_or(true)
}

/// Whether each operator above a parameter evaluates its operands at every execution and stores nothing of them.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if !is_open(expr) {
        return true;
    }
    let plain = expr.is::<BinaryExpr>()
        || expr.is::<CaseExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<NegativeExpr>()
        || expr.is::<NotExpr>()
        || expr.is::<ScalarFunctionExpr>()
        || expr.is::<ScalarSubqueryExpr>();
    plain && expr.children().into_iter().all(is_plain)
}

/// Values for the parameters of a plan.
pub(super) struct Binding<'a> {
    values: &'a [ScalarValue],
    archive: &'a Arc<Archive>,
    /// For the results of each scalar subquery in the plan, those of the bound plan.
    results: Vec<(ScalarSubqueryResults, ScalarSubqueryResults)>,
    /// Whether planning may reject one of the values.
    needs_planning: bool,
}

/// A chunk phase with bound values.
pub(super) struct BoundPhase {
    pub pieces: Vec<Piece>,
    pub inner: Arc<dyn ExecutionPlan>,
}

impl<'a> Binding<'a> {
    pub fn archive(&self) -> &'a Arc<Archive> {
        self.archive
    }

    pub fn new(values: &'a [ScalarValue], archive: &'a Arc<Archive>) -> Self {
        Self {
            values,
            archive,
            results: Vec::new(),
            needs_planning: false,
        }
    }

    /// Whether planning may reject a value that was bound, such as a declination of 95 degrees, with its own message.
    pub fn needs_planning(&self) -> bool {
        self.needs_planning
    }

    /// A plan that runs with the values.
    pub fn plan<'b>(
        &'b mut self,
        plan: &'b Arc<dyn ExecutionPlan>,
    ) -> BoxFuture<'b, std::result::Result<Arc<dyn ExecutionPlan>, EngineError>> {
        async move {
            if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
                let BoundPhase { pieces, inner } = self.phase(phase).await?;
                let bound = phase.of(&pieces, inner).map_err(failed)?;
                return Ok(Arc::new(bound) as Arc<dyn ExecutionPlan>);
            }
            if let Some(subqueries) = plan.downcast_ref::<ScalarSubqueryExec>() {
                return self.subqueries(subqueries).await;
            }
            if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
                return self.scan(scan).map_err(failed);
            }
            let mut children = Vec::with_capacity(plan.children().len());
            for child in plan.children() {
                children.push(self.plan(child).await?);
            }
            self.operator(plan, children).map_err(failed)
        }
        .boxed()
    }

    /// The pieces of a phase, and the plan for each.
    pub async fn phase(
        &mut self,
        phase: &ChunkPhaseExec,
    ) -> std::result::Result<BoundPhase, EngineError> {
        let pieces = match phase.source().filter(|source| source.is_open()) {
            Some(source) => {
                let archive = self.archive;
                let filters = |filters: &[Expr]| self.filters(filters).map_err(failed);
                source.pieces(archive, filters).await?
            }
            None => phase.pieces().map_err(failed)?,
        };
        let inner = self.plan(phase.inner()).await?;
        Ok(BoundPhase { pieces, inner })
    }

    async fn subqueries(
        &mut self,
        node: &ScalarSubqueryExec,
    ) -> std::result::Result<Arc<dyn ExecutionPlan>, EngineError> {
        let slots = node
            .subqueries()
            .iter()
            .map(|link| link.index.as_usize() + 1);
        let results = ScalarSubqueryResults::new(slots.max().unwrap_or(0));
        self.results.push((node.results().clone(), results.clone()));
        let input = self.plan(node.input()).await?;
        self.results.pop();
        let mut links = Vec::with_capacity(node.subqueries().len());
        for link in node.subqueries() {
            links.push(ScalarSubqueryLink {
                plan: self.plan(&link.plan).await?,
                index: link.index,
            });
        }
        Ok(Arc::new(ScalarSubqueryExec::new(input, links, results)))
    }

    /// An operator over children that replace its own and have the same properties.
    fn operator(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(filter) = plan.downcast_ref::<FilterExec>()
            && is_open(filter.predicate())
        {
            let input = children.swap_remove(0);
            let predicate = self.expr(filter.predicate(), &input.schema())?;
            let filter = FilterExecBuilder::from(filter)
                .with_input(input)
                .with_predicate(predicate);
            return Ok(Arc::new(filter.build()?));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
            && projection.expr().iter().any(|it| is_open(&it.expr))
        {
            let input = children.swap_remove(0);
            let schema = input.schema();
            let exprs = projection.expr().iter().map(|it| {
                let mut it = it.clone();
                it.expr = self.expr(&it.expr, &schema)?;
                Ok(it)
            });
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            return Ok(Arc::new(ProjectionExec::try_new(exprs, input)?));
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        Arc::clone(plan)
            .replace_children(children, options)?
            .reset_state()
    }

    fn scan(&mut self, scan: &PieceScanExec) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = &scan.stored().files_schema;
        let predicates = scan.predicates().iter();
        let predicates = predicates
            .map(|predicate| self.expr(predicate, schema))
            .collect::<Result<_>>()?;
        let mut bound = scan.clone();
        if let Some(source) = scan.source()
            && source.is_open()
        {
            let filters = self.filters(&source.filters)?;
            bound = bound.restricted_by(&source.table.roles().restriction(&filters));
        }
        Ok(Arc::new(bound.with_predicates(predicates)?))
    }

    fn filters(&mut self, filters: &[Expr]) -> Result<Vec<Expr>> {
        let values = self.values;
        let filters: Vec<Expr> = filters
            .iter()
            .map(|filter| bound(filter, |index| values.get(index).cloned()))
            .collect::<Result<_>>()?;
        self.needs_planning |= filters.iter().any(is_beyond_the_sky);
        Ok(filters)
    }

    fn expr(&self, expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        if !is_open(expr) {
            return Ok(Arc::clone(expr));
        }
        let bound = Arc::clone(expr)
            .transform_up(|node| self.value(node, schema))
            .data()?;
        PhysicalExprSimplifier::new(schema).simplify(bound)
    }

    fn value(
        &self,
        node: Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
        if let Some(value) = parameter(&node).and_then(|index| self.values.get(index)) {
            return Ok(Transformed::yes(Arc::new(Literal::new(value.clone()))));
        }
        if let Some(subquery) = node.downcast_ref::<ScalarSubqueryExpr>() {
            let own = self.results.iter().rev();
            let mut own = own.filter(|(kept, _)| kept == subquery.results());
            if let Some((_, results)) = own.next() {
                let field = subquery.return_field(schema)?;
                #[expect(
                    deprecated,
                    reason = "there is no other way to the number of a subquery's result"
                )]
                let index = subquery.index();
                let (data_type, nullable) = (field.data_type().clone(), field.is_nullable());
                let own = ScalarSubqueryExpr::new(data_type, nullable, index, results.clone());
                return Ok(Transformed::yes(Arc::new(own)));
            }
        }
        // It looks values up in a hash set that it builds from its list.
        if let Some(list) = node.downcast_ref::<InListExpr>() {
            let items = list.list().to_vec();
            let made = in_list(Arc::clone(list.expr()), items, &list.negated(), schema)?;
            return Ok(Transformed::yes(made));
        }
        Ok(Transformed::no(node))
    }
}

fn failed(error: datafusion::common::DataFusionError) -> EngineError {
    EngineError::from_run(&error)
}

/// Whether a condition has an invalid constant position, radius or region, which planning may reject.
fn is_beyond_the_sky(filter: &Expr) -> bool {
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Float64(number), _) => *number,
        Expr::Literal(ScalarValue::Int64(number), _) => number.map(|number| number as f64),
        _ => None,
    };
    let within = |expr: &Expr, range: RangeInclusive<f64>| {
        number(expr).is_none_or(|number| range.contains(&number))
    };
    let is_region = |shape: RegionShape, args: &[Expr]| {
        let numbers: Option<Vec<f64>> = args.iter().skip(2).map(number).collect();
        numbers.is_none_or(|numbers| shape.region(&numbers).is_ok())
    };
    let beyond = |expr: &Expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) if call.func.name() == SEPARATION => {
                let mut declinations = call.args.iter().skip(1).step_by(2);
                !declinations.all(|dec| within(dec, -90.0..=90.0))
            }
            Expr::ScalarFunction(call) => {
                let mut shapes = RegionShape::ALL.into_iter();
                let shape = shapes.find(|shape| shape.function() == call.func.name());
                shape.is_some_and(|shape| !is_region(shape, &call.args))
            }
            Expr::BinaryExpr(LogicalBinary { left, right, .. })
                if is_separation(left) || is_separation(right) =>
            {
                ![left, right].iter().all(|side| within(side, 0.0..=180.0))
            }
            _ => false,
        })
    };
    filter.exists(beyond).unwrap_or(true)
}

fn is_separation(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == SEPARATION)
}
