//! Planning a call: its sides, and what is made of them.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, Extension, JoinType, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{Ident, Query, TableAlias, TableFactor};
use sky::Angle;
use sql::functions::SEPARATION;
use sql::{Find, MatchCall, MatchJoin, MatchNames, SEPARATION_COLUMN, SIDE_SUFFIXES};

use super::node::{CrossmatchNode, NodeSide};
use super::position;
use crate::exec::{MatchRule, MatchSelection, Unmatched};

/// Arcseconds in a degree.
const ARCSEC: f64 = 3600.0;
/// Nothing is farther from anything, in arcseconds.
const LARGEST_RADIUS: f64 = 180.0 * ARCSEC;

/// Plans `nearest(...)` and `crossmatch(...)` in FROM.
#[derive(Debug)]
pub(crate) struct MatchRelations;

impl RelationPlanner for MatchRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let call =
            MatchCall::of(&relation).map_err(|sentence| plan_datafusion_err!("{sentence}"))?;
        let (TableFactor::Table { alias, .. }, Some(call)) = (&relation, &call) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let name = || TableAlias {
            explicit: false,
            name: Ident::new(call.function.name()),
            columns: vec![],
            at: None,
        };
        let alias = alias.clone().unwrap_or_else(name);
        let plan = plan(call, context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan,
            Some(alias),
        ))))
    }
}

/// The declared spelling of a name to which a crossmatch has put a suffix.
pub(crate) fn suffixed(name: &str, declared: impl Fn(&str) -> Option<String>) -> Option<String> {
    SIDE_SUFFIXES.into_iter().find_map(|suffix| {
        let declared = declared(name.strip_suffix(suffix)?)?;
        Some(declared + suffix)
    })
}

/// A side whose columns have the names that they have in the result.
struct Side {
    plan: LogicalPlan,
    /// The names that its columns had.
    own: Vec<String>,
    /// Their names in the result.
    names: Vec<String>,
    position: [String; 2],
}

impl Side {
    fn node(&self) -> NodeSide {
        NodeSide {
            plan: self.plan.clone(),
            position: self.position.clone(),
        }
    }

    fn columns(&self) -> impl Iterator<Item = Expr> {
        self.names.iter().map(|name| column(name))
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// A side as it was given, and where its position is among its columns.
struct PlannedSide {
    plan: LogicalPlan,
    own: Vec<String>,
    position: [usize; 2],
}

impl PlannedSide {
    fn plan(
        call: &MatchCall,
        side: &str,
        query: &Query,
        named: Option<&[String; 2]>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Self> {
        let plan = context.plan(TableFactor::Derived {
            lateral: false,
            subquery: Box::new(query.clone()),
            alias: None,
            sample: None,
        })?;
        let fields = plan.schema().fields();
        let own: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let function = call.function.name();
        let wrong = |sentence: String| plan_datafusion_err!("{function}: {sentence}");
        let names = position::find(side, &plan, &own, named).map_err(wrong)?;
        let mut position = [0; 2];
        for (at, name) in position.iter_mut().zip(&names) {
            let mut places = (0..own.len()).filter(|at| own[*at] == *name);
            *at = match (places.next(), places.next()) {
                (Some(only), None) => only,
                _ => {
                    return Err(wrong(format!(
                        "the {side} side has several columns {name}: give them other names"
                    )));
                }
            };
            let data_type = fields[*at].data_type();
            if !data_type.is_numeric() {
                return Err(wrong(format!(
                    "the column {name} of the {side} side is no number of degrees but of type {data_type}"
                )));
            }
        }
        Ok(Self {
            plan,
            own,
            position,
        })
    }

    fn side(self, names: Vec<String>) -> Result<Side> {
        let columns = self.plan.schema().columns().into_iter();
        let named = columns.zip(&names);
        let named: Vec<Expr> = named.map(|(c, name)| Expr::Column(c).alias(name)).collect();
        Ok(Side {
            plan: LogicalPlanBuilder::from(self.plan)
                .project(named)?
                .build()?,
            own: self.own,
            position: self.position.map(|at| names[at].clone()),
            names,
        })
    }
}

fn plan(call: &MatchCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let pairing = Pairing::plan(call, context)?;
    let unmatched = match call.join {
        MatchJoin::Matched => Unmatched::Dropped,
        MatchJoin::AllLeft => Unmatched::Kept,
        MatchJoin::LeftAlone => Unmatched::Alone,
    };
    let matched = match (call.find, call.join) {
        // Whoever has a partner has a nearest one.
        (Find::All | Find::Best1 | Find::Nearest(_), MatchJoin::LeftAlone) => {
            pairing.left_without_any()
        }
        (Find::All, MatchJoin::AllLeft) => pairing.all(JoinType::Left),
        (Find::All, _) => pairing.all(JoinType::Inner),
        (Find::Nearest(most), _) => pairing.nearest(most, unmatched),
        (Find::Best1, _) => pairing.nearest(1, unmatched),
        (Find::Best2, _) => pairing.nearest_of_right(),
        (Find::Best, _) => pairing.mutual(unmatched),
    }?;
    match call.join {
        MatchJoin::LeftAlone => under_own_names(matched, &pairing.left),
        _ => Ok(matched),
    }
}

/// Two sides and when their rows are a pair.
struct Pairing {
    left: Side,
    right: Side,
    radius: Angle,
    /// The separation of a left and a right row, degrees.
    separation: Expr,
}

impl Pairing {
    fn plan(call: &MatchCall, context: &mut dyn RelationPlannerContext) -> Result<Self> {
        let radius = radius(call, context)?;
        let left = call.left_position.as_ref();
        let left = PlannedSide::plan(call, "left", &call.left, left, context)?;
        let right = call.right_position.as_ref();
        let right = PlannedSide::plan(call, "right", &call.right, right, context)?;
        let names = MatchNames::of(&left.own, &right.own);
        let (left, right) = (left.side(names.left)?, right.side(names.right)?);
        let function = context.context_provider().get_function_meta(SEPARATION);
        let function =
            function.ok_or_else(|| plan_datafusion_err!("there is no function {SEPARATION}"))?;
        let positions = left.position.iter().chain(&right.position);
        let separation = function.call(positions.map(|name| column(name)).collect());
        Ok(Self {
            left,
            right,
            radius,
            separation,
        })
    }

    /// All pairs within the radius, as a user could request them.
    fn all(&self, join: JoinType) -> Result<LogicalPlan> {
        let separation = self.separation.clone() * lit(ARCSEC);
        let separation = separation.alias(SEPARATION_COLUMN);
        let columns = self.left.columns().chain(self.right.columns());
        self.join(join)?
            .project(columns.chain([separation]).collect::<Vec<_>>())?
            .build()
    }

    fn left_without_any(&self) -> Result<LogicalPlan> {
        self.join(JoinType::LeftAnti)?.build()
    }

    fn join(&self, join: JoinType) -> Result<LogicalPlanBuilder> {
        let near = self.separation.clone().lt_eq(lit(self.radius.degrees()));
        LogicalPlanBuilder::from(self.left.plan.clone()).join_on(
            self.right.plan.clone(),
            join,
            Some(near),
        )
    }

    fn nearest(&self, most: usize, unmatched: Unmatched) -> Result<LogicalPlan> {
        let rule = self.rule(MatchSelection::Nearest(most), unmatched);
        node(self.left.node(), self.right.node(), None, rule)
    }

    fn nearest_of_right(&self) -> Result<LogicalPlan> {
        let rule = self.rule(MatchSelection::Nearest(1), Unmatched::Dropped);
        let matched = node(self.right.node(), self.left.node(), None, rule)?;
        let columns = self.left.columns().chain(self.right.columns());
        LogicalPlanBuilder::from(matched)
            .project(columns.chain([column(SEPARATION_COLUMN)]))?
            .build()
    }

    /// Pairs that are each other's nearest. The rivals are read apart where the left side is the same each time it is read.
    fn mutual(&self, unmatched: Unmatched) -> Result<LogicalPlan> {
        let again = is_same_when_read_again(&self.left.plan)?;
        let rivals = again.then(|| self.left.node());
        let rule = self.rule(MatchSelection::Mutual, unmatched);
        node(self.left.node(), self.right.node(), rivals, rule)
    }

    fn rule(&self, wanted: MatchSelection, unmatched: Unmatched) -> MatchRule {
        MatchRule {
            radius: self.radius,
            wanted,
            unmatched,
        }
    }
}

fn node(
    probe: NodeSide,
    build: NodeSide,
    rivals: Option<NodeSide>,
    rule: MatchRule,
) -> Result<LogicalPlan> {
    let node = Arc::new(CrossmatchNode::try_new(probe, build, rivals, rule)?);
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// The left side's rows alone have nobody's names to be told from.
fn under_own_names(matched: LogicalPlan, left: &Side) -> Result<LogicalPlan> {
    let alone = MatchNames::left_alone(&left.names, &left.own);
    let named = left.columns().zip(alone);
    let named = named.map(|(column, name)| column.alias(name));
    LogicalPlanBuilder::from(matched)
        .project(named.collect::<Vec<_>>())?
        .build()
}

/// Whether a plan gives the same rows each time: it does nothing but choose among the rows and columns of a table.
fn is_same_when_read_again(plan: &LogicalPlan) -> Result<bool> {
    let mut same = true;
    plan.apply(|node| {
        let plain = matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
        );
        let uncertain = |expr: &Expr| {
            expr.exists(|part| {
                let subquery = matches!(
                    part,
                    Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)
                );
                Ok(subquery || part.is_volatile_node())
            })
        };
        for expr in node.expressions() {
            same &= !uncertain(&expr)?;
        }
        same &= plain;
        Ok(if same {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    })?;
    Ok(same)
}

fn radius(call: &MatchCall, context: &mut dyn RelationPlannerContext) -> Result<Angle> {
    match constant(call, context) {
        Some(arcsec) if (0.0..=LARGEST_RADIUS).contains(&arcsec) => Ok(Angle::from_arcsec(arcsec)),
        _ => plan_err!(
            "{}: the radius is a number of arcseconds from 0 to {LARGEST_RADIUS}, the same for all rows, not {}",
            call.function.name(),
            call.radius
        ),
    }
}

fn constant(call: &MatchCall, context: &mut dyn RelationPlannerContext) -> Option<f64> {
    let schema = DFSchema::empty();
    let expr = context.sql_to_expr(call.radius.clone(), &schema).ok()?;
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().build());
    let expr = simplifier.coerce(expr, &schema).ok()?;
    let Expr::Literal(value, _) = simplifier.simplify(expr).ok()? else {
        return None;
    };
    match value.cast_to(&arrow::datatypes::DataType::Float64).ok()? {
        ScalarValue::Float64(number) => number,
        _ => None,
    }
}
