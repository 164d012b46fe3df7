//! Joins whose condition is that two rows are near each other: found, whatever form the condition has, and made neighbour
//! joins.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use sky::neighbours::Bound;
use sql::functions::SEPARATION;

use super::neighbour_locality::around;
use super::recognise_windows::{PositionWindow, SideColumn};
use crate::condition::renumber;
use crate::exec::{BeyondPoles, NeighbourJoinExec, SeparationCondition};

/// A join that was found, to be probed by either side.
pub(super) struct FoundNeighbours {
    join_type: JoinType,
    separation: Separation,
    /// What else is to hold.
    rest: Option<JoinFilter>,
    projection: Option<Vec<usize>>,
}

impl FoundNeighbours {
    /// The join by nearness that an operator is; `None` if it is none.
    ///
    /// One that also requests equality is one as well: the equality becomes part of the rest of its condition. (That equal keys lie
    /// in the same piece is for the caller to see beforehand: then joining by them is better.)
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            let Some(filter) = join.filter() else {
                return Ok(None);
            };
            let projection = join.projection().as_ref().map(|columns| columns.to_vec());
            return Self::by(filter, *join.join_type(), projection, inputs(plan));
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let Some(filter) = join.filter().filter(|_| !join.null_aware) else {
                return Ok(None);
            };
            let filter = with_equalities(filter, join)?;
            let projection = join.projection.as_ref().map(|columns| columns.to_vec());
            return Self::by(&filter, *join.join_type(), projection, inputs(plan));
        }
        Ok(None)
    }

    fn by(
        filter: &JoinFilter,
        join_type: JoinType,
        projection: Option<Vec<usize>>,
        inputs: [&Arc<dyn ExecutionPlan>; 2],
    ) -> Result<Option<Self>> {
        let parts = split_conjunction(filter.expression());
        let mut found = None;
        for (at, part) in parts.iter().enumerate() {
            if let Some(separation) = Separation::of(part, filter)? {
                found = Some((separation, Some(at)));
                break;
            }
        }
        if found.is_none() {
            let is_position = |side, [ra, dec]: [usize; 2]| {
                let column = |at| Arc::new(Column::new("", at)) as Arc<dyn PhysicalExpr>;
                let input = inputs[usize::from(side != JoinSide::Left)];
                Ok(around(input, &[column(ra), column(dec)])?.is_some())
            };
            let window = PositionWindow::of(&parts, filter, is_position)?;
            found = window.map(|window| (Separation::covering(&window), None));
        }
        let Some((separation, decided)) = found else {
            return Ok(None);
        };
        // All but what the separation decides.
        let others = parts.iter().enumerate();
        let others = others.filter(|(other, _)| Some(*other) != decided);
        let found = Self {
            join_type,
            separation,
            rest: rest(filter, others.map(|(_, part)| Arc::clone(part)))?,
            projection,
        };
        let any = [JoinSide::Left, JoinSide::Right]
            .into_iter()
            .any(|side| found.can_probe(side));
        Ok(any.then_some(found))
    }

    /// Whether the rows of this side can be taken one after another.
    pub fn can_probe(&self, side: JoinSide) -> bool {
        let radius = self.separation.radius_side;
        NeighbourJoinExec::can_probe(self.join_type, side)
            && (radius == JoinSide::None || radius == side)
    }

    /// The side that has these columns of the join, if one has all of them and there are any; the left input has `left_width`.
    pub fn side_of(&self, columns: &[usize], left_width: usize) -> Option<JoinSide> {
        let side = |at: &usize| {
            let at = match &self.projection {
                Some(projection) => projection[*at],
                None => *at,
            };
            if at < left_width {
                JoinSide::Left
            } else {
                JoinSide::Right
            }
        };
        let (first, rest) = columns.split_first()?;
        let found = side(first);
        rest.iter().all(|at| side(at) == found).then_some(found)
    }

    /// Right ascension and declination of a side, over its columns.
    pub fn position(&self, side: JoinSide) -> &[Arc<dyn PhysicalExpr>; 2] {
        if side == JoinSide::Left {
            &self.separation.left
        } else {
            &self.separation.right
        }
    }

    /// The join of two inputs, which take the places of its own, probed by this side.
    pub fn join(
        &self,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        probe: JoinSide,
    ) -> Result<NeighbourJoinExec> {
        let near = SeparationCondition {
            probe: self.position(probe).clone(),
            build: self.position(other(probe)).clone(),
            radius: Arc::clone(&self.separation.radius),
            bound: self.separation.bound,
            poles: self.separation.poles,
        };
        let join = NeighbourJoinExec::try_new(
            left,
            right,
            near,
            probe,
            self.rest.clone(),
            self.join_type,
        )?;
        match &self.projection {
            Some(columns) => join.with_projection(columns),
            None => Ok(join),
        }
    }
}

/// The inputs of a join.
fn inputs(join: &Arc<dyn ExecutionPlan>) -> [&Arc<dyn ExecutionPlan>; 2] {
    let inputs = join.children();
    [inputs[0], inputs[1]]
}

/// The other side.
pub(super) fn other(side: JoinSide) -> JoinSide {
    if side == JoinSide::Left {
        JoinSide::Right
    } else {
        JoinSide::Left
    }
}

/// A bound on the separation of a row of the left side from one of the right.
struct Separation {
    left: [Arc<dyn PhysicalExpr>; 2],
    right: [Arc<dyn PhysicalExpr>; 2],
    /// Over the columns of `radius_side`.
    radius: Arc<dyn PhysicalExpr>,
    /// `None`: it is the same for all rows.
    radius_side: JoinSide,
    bound: Bound,
    poles: BeyondPoles,
}

impl Separation {
    /// The bound that follows from windows in both coordinates.
    fn covering(window: &PositionWindow) -> Self {
        Self {
            left: window.left.each_ref().map(SideColumn::expr),
            right: window.right.each_ref().map(SideColumn::expr),
            radius: Arc::clone(&window.radius),
            radius_side: JoinSide::None,
            bound: Bound::AtMost,
            poles: BeyondPoles::Direction,
        }
    }

    /// The bound that a condition is: `separation < r` or `<=`, or `r > separation` or `>=`.
    fn of(condition: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Option<Self>> {
        let Some(comparison) = condition.downcast_ref::<BinaryExpr>() else {
            return Ok(None);
        };
        let (function, bound, radius) = match comparison.op() {
            Operator::Lt => (comparison.left(), Bound::Below, comparison.right()),
            Operator::LtEq => (comparison.left(), Bound::AtMost, comparison.right()),
            Operator::Gt => (comparison.right(), Bound::Below, comparison.left()),
            Operator::GtEq => (comparison.right(), Bound::AtMost, comparison.left()),
            _ => return Ok(None),
        };
        let Some(function) = function.downcast_ref::<ScalarFunctionExpr>() else {
            return Ok(None);
        };
        let ([a_ra, a_dec, b_ra, b_dec], SEPARATION) = (function.args(), function.name()) else {
            return Ok(None);
        };
        let side = |expr: &Arc<dyn PhysicalExpr>| side_of(expr, filter.column_indices());
        let (Some(a), Some(b)) = (
            side(a_ra).filter(|a| side(a_dec) == Some(*a)),
            side(b_ra).filter(|b| side(b_dec) == Some(*b)),
        ) else {
            return Ok(None);
        };
        let Some(radius_side) = side(radius) else {
            return Ok(None);
        };
        let of_side = |expr| over_side(expr, filter);
        let a_place = [of_side(a_ra)?, of_side(a_dec)?];
        let b_place = [of_side(b_ra)?, of_side(b_dec)?];
        // The separation is the same in both orders, to the last bit.
        let (left, right) = match (a, b) {
            (JoinSide::Left, JoinSide::Right) => (a_place, b_place),
            (JoinSide::Right, JoinSide::Left) => (b_place, a_place),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            left,
            right,
            radius: of_side(radius)?,
            radius_side,
            bound,
            poles: BeyondPoles::Nowhere,
        }))
    }
}

/// The side whose columns an expression names: `None` inside if it names no column, nothing if it names both sides'.
fn side_of(expr: &Arc<dyn PhysicalExpr>, indices: &[ColumnIndex]) -> Option<JoinSide> {
    let mut found = JoinSide::None;
    for column in collect_columns(expr) {
        let side = indices.get(column.index())?.side;
        if found != JoinSide::None && found != side {
            return None;
        }
        found = side;
    }
    Some(found)
}

/// An expression over the columns of a join's condition as one over those of the only side that it names.
fn over_side(expr: &Arc<dyn PhysicalExpr>, filter: &JoinFilter) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let index = filter.column_indices()[column.index()].index;
            let column = Column::new(column.name(), index);
            Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
        })
        .data()
}

/// A join's condition with the equalities that it requests beside it.
fn with_equalities(filter: &JoinFilter, join: &HashJoinExec) -> Result<JoinFilter> {
    let mut all = Arc::clone(filter.expression());
    let mut columns = filter.column_indices().to_vec();
    let mut fields: Vec<FieldRef> = filter.schema().fields().iter().cloned().collect();
    let operator = match join.null_equality() {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    for (left, right) in join.on() {
        let mut of = |expr, input: &Arc<dyn ExecutionPlan>, side| {
            over_filter(expr, &input.schema(), side, &mut columns, &mut fields)
        };
        let left = of(left, join.left(), JoinSide::Left)?;
        let right = of(right, join.right(), JoinSide::Right)?;
        let equal = Arc::new(BinaryExpr::new(left, operator, right));
        all = Arc::new(BinaryExpr::new(all, Operator::And, equal));
    }
    Ok(JoinFilter::new(all, columns, Arc::new(Schema::new(fields))))
}

/// An expression over the columns of a side as one over those of a join's condition, to which they are added.
fn over_filter(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    side: JoinSide,
    columns: &mut Vec<ColumnIndex>,
    fields: &mut Vec<FieldRef>,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let index = column.index();
            let added = Column::new(column.name(), columns.len());
            columns.push(ColumnIndex { index, side });
            fields.push(Arc::clone(&schema.fields()[index]));
            Ok(Transformed::yes(Arc::new(added) as Arc<dyn PhysicalExpr>))
        })
        .data()
}

/// The other parts of a condition, with the columns that they need.
fn rest(
    filter: &JoinFilter,
    parts: impl Iterator<Item = Arc<dyn PhysicalExpr>>,
) -> Result<Option<JoinFilter>> {
    let all = parts.reduce(|a, b| Arc::new(BinaryExpr::new(a, Operator::And, b)));
    let Some(all) = all else {
        return Ok(None);
    };
    let mut columns: Vec<usize> = collect_columns(&all).iter().map(Column::index).collect();
    columns.sort_unstable();
    columns.dedup();
    let indices = columns
        .iter()
        .map(|at| filter.column_indices()[*at].clone());
    Ok(Some(JoinFilter::new(
        renumber(&all, &columns)?,
        indices.collect(),
        Arc::new(filter.schema().project(&columns)?),
    )))
}

/// Rows that an input is thought to have.
pub(super) fn expected_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let context = StatisticsContext::new();
    let statistics = context
        .compute(plan.as_ref(), &StatisticsArgs::new())
        .ok()?;
    statistics.num_rows.get_value().copied()
}
