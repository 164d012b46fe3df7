//! Near pairs that a condition describes by windows in both coordinates, and the radius that covers them.
//!
//! ```text
//!   ABS(a.ra - b.ra) < r / COS(RADIANS(a.decl)) AND ABS(a.decl - b.decl) < s      separation <= r + s
//! ```
//!
//! The radius follows from a way from the one position to the other. Along the parallel of the declination under the cosine it is
//! `|Δra| cos(decl) <= r` long, or shorter across the seam, where the difference of the right ascensions counts the long way round.
//! Along the meridian of the other position it is `|Δdecl| <= s` long. The separation is the shortest way, so it is at most `r + s`,
//! at the poles too. A window in right ascension without the cosine is the wider one with it, as the cosine is at most 1.
//!
//! The join only looks for partners within the radius: it tests the whole condition, as it is written, on each of these pairs.
//!
//! Two of the forms hold only where declinations are in [-90, 90] and coordinates are not huge: with the cosine as a factor, a
//! declination beyond a pole admits every right ascension; and `b.ra + w` is rounded by as much as `b.ra` is large. They are recognised
//! only for the positions of partitioned tables, which are of that range. So are windows without a cosine, where nothing else says which
//! of the columns is the declination.

use std::f64::consts::PI;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinSide, Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, Literal, NegativeExpr, lit,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::utils::JoinFilter;
use sql::functions::REAL;

use crate::exec::constant_value;

const ABSOLUTE: [&str; 2] = ["abs", "mysql_abs"];
const COSINE: &str = "cos";
const RADIANS: &str = "radians";
const NULL_IF: &str = "nullif";

/// How far the factor of a declination under a cosine may be from π/180, relatively: the roundings of π, of two products and of the
/// factor that is computed here are at most an ulp each.
const FACTOR_TOLERANCE: f64 = 1e-15;
/// What the roundings of a condition and of a separation can add to a radius, relatively. Each of their operations adds at most
/// some 1e-16.
const RELATIVE_SLACK: f64 = 1e-12;
/// The same in degrees: 180° times the error of a cosine (its argument is wrong by 4e-16), the ulps of sums of right ascensions of 360°
/// (6e-14), and the error of a separation (1e-13) add up to less than this. It is 0.04 microarcseconds.
const SLACK_DEGREES: f64 = 1e-11;

/// Windows in both coordinates of two positions.
pub(super) struct PositionWindow {
    /// Right ascension and declination of the left side, columns of its input.
    pub left: [SideColumn; 2],
    pub right: [SideColumn; 2],
    /// Degrees. It depends on no column.
    pub radius: Arc<dyn PhysicalExpr>,
}

/// A column of one side of a join.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SideColumn {
    side: JoinSide,
    /// In the input of the side.
    pub index: usize,
    pub name: String,
}

impl SideColumn {
    pub fn expr(&self) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(&self.name, self.index))
    }
}

impl PositionWindow {
    /// The windows that the parts of a join's condition describe; `is_position` says whether a right ascension and a declination of a side
    /// are surely the position of a partitioned table.
    pub fn of(
        parts: &[&Arc<dyn PhysicalExpr>],
        filter: &JoinFilter,
        is_position: impl Fn(JoinSide, [usize; 2]) -> Result<bool>,
    ) -> Result<Option<Self>> {
        let reader = Reader { filter };
        let bounds: Vec<Bound> = parts.iter().filter_map(|part| reader.bound(part)).collect();
        let windows = Window::all(&bounds)?;
        for ra in &windows {
            for dec in windows.iter().filter(|dec| ra.belongs_to(dec)) {
                let sure = ra.cosine.is_some() && ra.holds_anywhere && dec.holds_anywhere;
                let are_positions = || {
                    Ok::<_, DataFusionError>(
                        is_position(JoinSide::Left, [ra.left.index, dec.left.index])?
                            && is_position(JoinSide::Right, [ra.right.index, dec.right.index])?,
                    )
                };
                if sure || are_positions()? {
                    return Ok(Some(Self {
                        left: [ra.left.clone(), dec.left.clone()],
                        right: [ra.right.clone(), dec.right.clone()],
                        radius: covering_radius(&ra.width, &dec.width)?,
                    }));
                }
            }
        }
        Ok(None)
    }
}

/// `|left - right| <= width`, or `<= width / cos(cosine)`.
struct Window {
    left: SideColumn,
    right: SideColumn,
    /// Not negative, and of no columns.
    width: Arc<dyn PhysicalExpr>,
    cosine: Option<SideColumn>,
    /// Whether it bounds a separation whatever the values of the columns are.
    holds_anywhere: bool,
}

impl Window {
    /// Whether it may be of the right ascensions of positions whose declinations the other one is of.
    fn belongs_to(&self, dec: &Self) -> bool {
        let is_of_dec = |column: &SideColumn| *column == dec.left || *column == dec.right;
        // One window is not both; the declinations have no cosine.
        self.left != dec.left && dec.cosine.is_none() && self.cosine.as_ref().is_none_or(is_of_dec)
    }

    /// The windows that bounds describe: each by itself, or two of them from both sides.
    fn all(bounds: &[Bound]) -> Result<Vec<Self>> {
        let mut windows = Vec::new();
        for (at, bound) in bounds.iter().enumerate() {
            if bound.of_both_signs {
                windows.push(bound.window(absolute(&bound.width)?, bound.holds_anywhere));
                continue;
            }
            let opposite = bounds[at + 1..].iter().find(|other| {
                !other.of_both_signs
                    && other.greater == bound.less
                    && other.less == bound.greater
                    && other.cosine == bound.cosine
            });
            if let Some(opposite) = opposite {
                let width = greatest(absolute(&bound.width)?, absolute(&opposite.width)?)?;
                windows.push(bound.window(width, false));
            }
        }
        Ok(windows)
    }
}

/// `greater - less <= width`, or `<= width / cos(cosine)`, or the same of the absolute difference.
struct Bound {
    greater: SideColumn,
    less: SideColumn,
    of_both_signs: bool,
    width: Arc<dyn PhysicalExpr>,
    cosine: Option<SideColumn>,
    holds_anywhere: bool,
}

impl Bound {
    fn window(&self, width: Arc<dyn PhysicalExpr>, holds_anywhere: bool) -> Window {
        let (left, right) = match self.greater.side {
            JoinSide::Left => (&self.greater, &self.less),
            _ => (&self.less, &self.greater),
        };
        Window {
            left: left.clone(),
            right: right.clone(),
            width,
            cosine: self.cosine.clone(),
            holds_anywhere,
        }
    }
}

/// A difference of two sides' columns, perhaps times a cosine.
struct Difference {
    greater: SideColumn,
    less: SideColumn,
    is_absolute: bool,
    cosine: Option<SideColumn>,
}

/// A constant, perhaps divided by a cosine. Its sign does not matter: only its absolute value is taken.
struct Width {
    value: Arc<dyn PhysicalExpr>,
    cosine: Option<SideColumn>,
}

/// Reads the parts of a condition.
struct Reader<'a> {
    filter: &'a JoinFilter,
}

impl Reader<'_> {
    /// The bound that a comparison is.
    fn bound(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Bound> {
        let comparison = condition.downcast_ref::<BinaryExpr>()?;
        let (less, greater) = match comparison.op() {
            Operator::Lt | Operator::LtEq => (comparison.left(), comparison.right()),
            Operator::Gt | Operator::GtEq => (comparison.right(), comparison.left()),
            Operator::Eq => return self.bound_of_equal(comparison.left(), comparison.right()),
            _ => return None,
        };
        if let (Some(difference), Some(width)) = (self.difference(less), self.width(greater)) {
            return difference.within(width, false);
        }
        if let (Some(width), Some(difference)) = (self.width(less), self.difference(greater)) {
            return difference.within(width, true);
        }
        self.bound_by_terms(less, greater)
    }

    /// A difference that is to be one number, as which the optimizer writes `BETWEEN 0 AND 0`.
    fn bound_of_equal(
        &self,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Bound> {
        let (difference, number) = match self.difference(left) {
            Some(difference) => (difference, right),
            None => (self.difference(right)?, left),
        };
        let bound = difference.within(self.width(number)?, false)?;
        Some(Bound {
            of_both_signs: true,
            ..bound
        })
    }

    /// `x <= y + w`, whatever stands on which side.
    fn bound_by_terms(
        &self,
        less: &Arc<dyn PhysicalExpr>,
        greater: &Arc<dyn PhysicalExpr>,
    ) -> Option<Bound> {
        let mut terms = Vec::new();
        add_terms(less, true, &mut terms);
        add_terms(greater, false, &mut terms);
        if terms.len() != 3 {
            return None;
        }
        let (mut positive, mut negative, mut width) = (None, None, None);
        for (is_positive, term) in terms {
            let place = match (self.column(term), is_positive) {
                (Some(column), true) => {
                    if positive.replace(column).is_some() {
                        return None;
                    }
                    continue;
                }
                (Some(column), false) => negative.replace(column).is_some(),
                (None, _) => width.replace(self.width(term)?).is_some(),
            };
            if place {
                return None;
            }
        }
        let difference = Difference::of(positive?, negative?)?;
        difference.within(width?, false)
    }

    fn difference(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Difference> {
        let expr = bare(expr);
        if let Some([inner]) = arguments(expr, |name| ABSOLUTE.contains(&name)) {
            let inner = self.difference(inner)?;
            return Some(Difference {
                is_absolute: true,
                ..inner
            });
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        match binary.op() {
            Operator::Minus => {
                Difference::of(self.column(binary.left())?, self.column(binary.right())?)
            }
            Operator::Multiply => {
                let sides = [binary.left(), binary.right()];
                let [left, right] = sides.map(|side| self.cosine(side));
                let (cosine, factor) = match (left, right) {
                    (Some(cosine), None) => (cosine, binary.right()),
                    (None, Some(cosine)) => (cosine, binary.left()),
                    _ => return None,
                };
                let inner = self.difference(factor)?;
                inner.cosine.is_none().then_some(Difference {
                    cosine: Some(cosine),
                    ..inner
                })
            }
            _ => None,
        }
    }

    fn width(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Width> {
        let expr = bare(expr);
        if is_constant(expr) {
            return Some(Width {
                value: Arc::clone(expr),
                cosine: None,
            });
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return self.width(negative.arg());
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        if *binary.op() != Operator::Divide || !is_constant(binary.left()) {
            return None;
        }
        Some(Width {
            value: Arc::clone(binary.left()),
            cosine: Some(self.cosine(binary.right())?),
        })
    }

    /// The declination of whose cosine, in degrees, an expression is.
    fn cosine(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<SideColumn> {
        let [angle] = arguments(bare(expr), |name| name == COSINE)? else {
            return None;
        };
        let (column, factor) = self.multiple(angle)?;
        let is_in_radians = (factor * (180.0 / PI) - 1.0).abs() <= FACTOR_TOLERANCE;
        is_in_radians.then_some(column)
    }

    /// A column times a number.
    fn multiple(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<(SideColumn, f64)> {
        let expr = bare(expr);
        if let Some(column) = self.column(expr) {
            return Some((column, 1.0));
        }
        if let Some([degrees]) = arguments(expr, |name| name == RADIANS) {
            let (column, factor) = self.multiple(degrees)?;
            return Some((column, factor * (PI / 180.0)));
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let [left, right] = [binary.left(), binary.right()].map(|side| number(bare(side)));
        match (binary.op(), left, right) {
            (Operator::Multiply, Some(number), None) => {
                let (column, factor) = self.multiple(binary.right())?;
                Some((column, factor * number))
            }
            (Operator::Multiply, None, Some(number)) => {
                let (column, factor) = self.multiple(binary.left())?;
                Some((column, factor * number))
            }
            (Operator::Divide, None, Some(number)) => {
                let (column, factor) = self.multiple(binary.left())?;
                Some((column, factor / number))
            }
            _ => None,
        }
    }

    /// The column of floating-point numbers that an expression is.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<SideColumn> {
        let at = bare(expr).downcast_ref::<Column>()?.index();
        let index = self.filter.column_indices().get(at)?;
        let field = self.filter.schema().fields().get(at)?;
        let is_float = matches!(field.data_type(), DataType::Float32 | DataType::Float64);
        is_float.then(|| SideColumn {
            side: index.side,
            index: index.index,
            name: field.name().clone(),
        })
    }
}

impl Difference {
    /// `None` if both columns are of one side.
    fn of(greater: SideColumn, less: SideColumn) -> Option<Self> {
        let sides = [greater.side, less.side];
        let is_of_both = sides == [JoinSide::Left, JoinSide::Right]
            || sides == [JoinSide::Right, JoinSide::Left];
        is_of_both.then_some(Self {
            greater,
            less,
            is_absolute: false,
            cosine: None,
        })
    }

    /// The bound that it is at most the width, or at least the width, which then stands for its opposite.
    fn within(self, width: Width, from_below: bool) -> Option<Bound> {
        let holds_anywhere = self.is_absolute && self.cosine.is_none();
        let cosine = match (self.cosine, width.cosine) {
            (Some(_), Some(_)) => return None,
            (one, other) => one.or(other),
        };
        let (greater, less) = match (from_below, self.is_absolute) {
            (false, _) => (self.greater, self.less),
            (true, false) => (self.less, self.greater),
            // A lower bound of a distance.
            (true, true) => return None,
        };
        Some(Bound {
            greater,
            less,
            of_both_signs: self.is_absolute,
            width: width.value,
            cosine,
            holds_anywhere,
        })
    }
}

/// The terms of a sum with their signs.
fn add_terms<'a>(
    expr: &'a Arc<dyn PhysicalExpr>,
    is_positive: bool,
    terms: &mut Vec<(bool, &'a Arc<dyn PhysicalExpr>)>,
) {
    let expr = bare(expr);
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
        && matches!(binary.op(), Operator::Plus | Operator::Minus)
        && !is_constant(expr)
    {
        add_terms(binary.left(), is_positive, terms);
        let is_plus = *binary.op() == Operator::Plus;
        add_terms(binary.right(), is_positive == is_plus, terms);
    } else {
        terms.push((is_positive, expr));
    }
}

/// An expression without what does not change a number: casts to double, guards against what is no number or zero. (Where they give
/// NULL, a condition is not true.)
fn bare(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let is_float = |data_type: &DataType| *data_type == DataType::Float64;
        return if is_float(cast.cast_type()) && !is_constant(expr) {
            bare(cast.expr())
        } else {
            expr
        };
    }
    if let Some([inner]) = arguments(expr, |name| name == REAL) {
        return bare(inner);
    }
    if let Some([inner, null]) = arguments(expr, |name| name == NULL_IF)
        && number(null) == Some(0.0)
    {
        return bare(inner);
    }
    expr
}

/// The arguments of a call of a function, if its name is one that is wanted.
fn arguments(
    expr: &Arc<dyn PhysicalExpr>,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<&[Arc<dyn PhysicalExpr>]> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    is_wanted(call.name()).then(|| call.args())
}

fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
    let literal = expr.downcast_ref::<Literal>()?;
    match literal.value().cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) => number,
        _ => None,
    }
}

fn is_constant(expr: &Arc<dyn PhysicalExpr>) -> bool {
    collect_columns(expr).is_empty() && !is_volatile(expr)
}

/// A radius within which all pairs are, whose coordinates differ by at most these widths.
fn covering_radius(
    ra: &Arc<dyn PhysicalExpr>,
    dec: &Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let sum = binary(Arc::clone(ra), Operator::Plus, Arc::clone(dec));
    let larger = binary(sum, Operator::Multiply, lit(1.0 + RELATIVE_SLACK));
    folded(binary(larger, Operator::Plus, lit(SLACK_DEGREES)))
}

fn absolute(value: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let value: Arc<dyn PhysicalExpr> =
        Arc::new(CastExpr::new(Arc::clone(value), DataType::Float64, None));
    let is_negative = binary(Arc::clone(&value), Operator::Lt, lit(0.0));
    let opposite: Arc<dyn PhysicalExpr> = Arc::new(NegativeExpr::new(Arc::clone(&value)));
    either(is_negative, opposite, value)
}

fn greatest(
    one: Arc<dyn PhysicalExpr>,
    other: Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let is_less = binary(Arc::clone(&one), Operator::Lt, Arc::clone(&other));
    either(is_less, other, one)
}

fn either(
    condition: Arc<dyn PhysicalExpr>,
    then: Arc<dyn PhysicalExpr>,
    otherwise: Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let case = CaseExpr::try_new(None, vec![(condition, then)], Some(otherwise))?;
    Ok(Arc::new(case))
}

fn binary(
    left: Arc<dyn PhysicalExpr>,
    op: Operator,
    right: Arc<dyn PhysicalExpr>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, op, right))
}

/// The value of an expression of constants, but for calls: a parameter of a cached plan has no value yet.
fn folded(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let mut calls = false;
    expr.apply(|part| {
        calls |= part.is::<ScalarFunctionExpr>();
        Ok(TreeNodeRecursion::Continue)
    })?;
    if calls {
        return Ok(expr);
    }
    Ok(Arc::new(Literal::new(constant_value(&expr)?)))
}
