//! Conditions on geometry in the forms in which the engine knows what they say about where rows are.
//!
//! `CONTAINS(POINT(ra, dec), CIRCLE(a, b, r)) = 1` becomes `scisql_angSep(ra, dec, a, b) <= r`, from which a scan reads a part of
//! the sky and a join its neighbours. Beside a condition on a constant polygon that is not convex its bounding circle is put.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use sky::Shape;

use crate::functions::SEPARATION;
use crate::functions::adql::constructors::RADIUS;
use crate::functions::adql::moc;
use crate::functions::adql::parts::{self, call};
use crate::functions::adql::value::Kind;

/// Rewrites conditions of filters, joins and scans, where they stand under AND and OR alone: there NULL is as good as false, and
/// a geometry that is unknown may give either. Runs after expressions have been simplified, before filters are pushed down.
#[derive(Debug, Default)]
pub struct RecogniseGeometry;

impl OptimizerRule for RecogniseGeometry {
    fn name(&self) -> &str {
        "recognise_geometry"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let schema = match &plan {
            LogicalPlan::Filter(filter) => Arc::clone(filter.input.schema()),
            LogicalPlan::TableScan(scan) if !scan.filters.is_empty() => {
                Arc::clone(&scan.projected_schema)
            }
            LogicalPlan::Join(join) if join.filter.is_some() => {
                Arc::new(merge_schema(&[&join.left, &join.right]))
            }
            _ => return Ok(Transformed::no(plan)),
        };
        let places = Conditions {
            schema: &schema,
            of_join: matches!(plan, LogicalPlan::Join(_)),
        };
        plan.map_expressions(|expr| Ok(places.rewritten(expr)))
    }
}

struct Conditions<'a> {
    schema: &'a DFSchema,
    /// Whether they are of a join, into which nothing more will be pushed.
    of_join: bool,
}

impl Conditions<'_> {
    fn rewritten(&self, expr: Expr) -> Transformed<Expr> {
        let mut changed = false;
        let mut parts = Vec::new();
        let given = split_conjunction_owned(expr);
        for part in &given {
            match part {
                Expr::BinaryExpr(BinaryExpr {
                    left,
                    op: Operator::Or,
                    right,
                }) => {
                    let (left, right) = (
                        self.rewritten((**left).clone()),
                        self.rewritten((**right).clone()),
                    );
                    changed |= left.transformed || right.transformed;
                    parts.push(left.data.or(right.data));
                }
                part => match self.recognised(part) {
                    Some(GeometryCondition::Same(same)) => {
                        changed = true;
                        parts.push(same);
                    }
                    Some(GeometryCondition::Within(wider)) if !given.contains(&wider) => {
                        changed = true;
                        parts.extend([wider, part.clone()]);
                    }
                    _ => parts.push(part.clone()),
                },
            }
        }
        let all = conjunction(parts).unwrap_or_else(|| lit(true));
        Transformed::new_transformed(all, changed)
    }

    fn recognised(&self, condition: &Expr) -> Option<GeometryCondition> {
        if let Some(separation) = self.separation_of_columns(condition) {
            return Some(GeometryCondition::Same(separation));
        }
        let (function, first, second) = holding(condition)?;
        let contains = function == "adql_contains";
        if let Some(cover) = self.cover_of_map(first, second) {
            return Some(GeometryCondition::Within(cover));
        }
        if let (Some(point), Some([ra, dec, radius])) =
            (self.point(first), parts::of_circle(second))
        {
            return Some(GeometryCondition::Same(within(point, [ra, dec], radius)));
        }
        if !contains
            && let (Some([ra, dec, radius]), Some(point)) =
                (parts::of_circle(first), self.point(second))
        {
            return Some(GeometryCondition::Same(within(point, [ra, dec], radius)));
        }
        // Two shapes, of which one may be constant: where the other one's middle can be.
        match (Place::of(first), Place::of(second)) {
            (Some(a), Some(b)) if !contains && a.radius_is_exact && b.radius_is_exact => Some(
                GeometryCondition::Same(within(a.centre, b.centre, lit(a.radius + b.radius))),
            ),
            (Some(a), Some(b)) => {
                let bounding = within(a.centre, b.centre, lit(a.radius + b.radius + ROUNDING));
                (!is_constant(first) || !is_constant(second))
                    .then_some(GeometryCondition::Within(bounding))
            }
            _ => None,
        }
    }

    /// Where a point is that is in a constant map: in one of some circles.
    fn cover_of_map(&self, first: &Expr, second: &Expr) -> Option<Expr> {
        let map = moc::constant(second)?;
        let point = self.point(first)?;
        let circles = map.circles(MOST_CIRCLES).into_iter();
        let within = circles.map(|(centre, radius)| {
            let centre = [centre.ra(), centre.dec()].map(|angle| lit(angle.degrees()));
            within(point.clone(), centre, lit(radius.degrees() + ROUNDING))
        });
        within.reduce(Expr::or)
    }

    /// Right ascension and declination of a point; in a join's condition also of one that is a column.
    fn point(&self, expr: &Expr) -> Option<[Expr; 2]> {
        parts::of_point(expr).or_else(|| {
            let data_type = expr.get_type(self.schema).ok()?;
            (self.of_join && Kind::of(&data_type) == Some(Kind::Point))
                .then(|| parts::of_any_point(expr))
        })
    }

    /// A comparison with the distance of two points that are columns of a join's sides.
    fn separation_of_columns(&self, condition: &Expr) -> Option<Expr> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
            return None;
        };
        let side = |expr: &Expr| -> Option<Expr> {
            let [a, b] = arguments(expr, "adql_distance")?;
            let ([ra1, dec1], [ra2, dec2]) = (self.point(a)?, self.point(b)?);
            Some(call(SEPARATION, vec![ra1, dec1, ra2, dec2]))
        };
        let (left, right) = match (side(left), side(right)) {
            (None, None) => return None,
            (of_left, of_right) => (
                of_left.unwrap_or_else(|| (**left).clone()),
                of_right.unwrap_or_else(|| (**right).clone()),
            ),
        };
        Some(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(left),
            *op,
            Box::new(right),
        )))
    }
}

/// The most circles in whose places rows of a map are looked for.
const MOST_CIRCLES: usize = 32;

/// What bounding circles are made wider by, in degrees: a microarcsecond, far more than their computation is off.
const ROUNDING: f64 = 1e-6 / 3600.0;

/// What stands for a condition, or for part of it.
enum GeometryCondition {
    Same(Expr),
    Within(Expr),
}

/// A circle around a shape: as an expression's its centre, as a number its radius in degrees.
struct Place {
    centre: [Expr; 2],
    radius: f64,
    /// Whether the shape is that circle.
    radius_is_exact: bool,
}

impl Place {
    fn of(shape: &Expr) -> Option<Self> {
        if let Some(centre) = parts::of_point(shape) {
            return Some(Self {
                centre,
                radius: 0.0,
                radius_is_exact: false,
            });
        }
        if let Some([ra, dec, radius]) = parts::of_circle(shape) {
            let Expr::Literal(ScalarValue::Float64(Some(radius)), _) = radius else {
                return None;
            };
            let sensible = (0.0..=180.0).contains(&radius);
            return sensible.then_some(Self {
                centre: [ra, dec],
                radius,
                radius_is_exact: true,
            });
        }
        let (Kind::Polygon, numbers) = parts::constant(shape)? else {
            return None;
        };
        let Ok(Shape::Polygon(polygon)) = Kind::Polygon.shape(&numbers) else {
            return None;
        };
        let (centre, radius) = polygon.bounding_circle();
        Some(Self {
            centre: [centre.ra(), centre.dec()].map(|angle| lit(angle.degrees())),
            radius: radius.degrees(),
            radius_is_exact: false,
        })
    }
}

fn is_constant(expr: &Expr) -> bool {
    parts::constant(expr).is_some()
}

/// The function of two geometries that has to give 1, and the geometries.
fn holding(condition: &Expr) -> Option<(&str, &Expr, &Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let relation = |expr| {
        let names = ["adql_contains", "adql_intersects"];
        names
            .into_iter()
            .find_map(|name| Some((name, arguments(expr, name)?)))
    };
    let ((name, [first, second]), op, number) = match (relation(left), relation(right)) {
        (Some(found), None) => (found, *op, right),
        (None, Some(found)) => (found, op.swap()?, left),
        _ => return None,
    };
    let number = match &**number {
        Expr::Literal(value, _) if value.data_type().is_numeric() => value.to_string(),
        _ => return None,
    };
    let holds = matches!(
        (op, number.as_str()),
        (Operator::Eq | Operator::GtEq, "1") | (Operator::NotEq | Operator::Gt, "0")
    );
    holds.then_some((name, first, second))
}

fn arguments<'e>(expr: &'e Expr, name: &str) -> Option<&'e [Expr; 2]> {
    match expr {
        Expr::ScalarFunction(function) if function.func.name() == name => {
            function.args.as_slice().try_into().ok()
        }
        Expr::Cast(cast) => arguments(&cast.expr, name),
        _ => None,
    }
}

/// Whether a number is given in the statement, so that it is checked when it is planned or its plan is used again.
fn is_given(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Cast(cast) => is_given(&cast.expr),
        _ => false,
    }
}

/// A position that is none has no separation from another; a radius that is none is to be no bound either. (A constant one has been
/// checked before.)
fn within([ra1, dec1]: [Expr; 2], [ra2, dec2]: [Expr; 2], radius: Expr) -> Expr {
    let radius = match radius {
        constant if is_given(&constant) => constant,
        of_row => call(RADIUS, vec![of_row]),
    };
    call(SEPARATION, vec![ra1, dec1, ra2, dec2]).lt_eq(radius)
}
