//! What a table's filters say about where its rows are: regions of the sky and keys.
//!
//! A restriction is read off a filter only where it is certain. It may keep more than the filter does (the filter itself
//! is always evaluated as well), never less: under NOT, or beside a condition that says nothing, nothing is restricted.

use std::fmt;

use arrow::datatypes::DataType;
use catalog::text_key;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use sky::Region;
use sql::functions::{APART, RegionShape, SEPARATION};

/// Where the rows that a filter keeps can be.
#[derive(Debug, Clone, PartialEq)]
pub enum Restriction {
    /// Anywhere.
    None,
    /// Nowhere: the filter keeps no row.
    Nothing,
    /// Rows whose own position is in the region.
    Region(Box<Region>),
    /// Rows whose key column (by its number among [`Roles::keys`]) has one of these values.
    Keys(usize, Vec<i64>),
    /// All of these at once.
    All(Vec<Restriction>),
    /// At least one of these.
    Any(Vec<Restriction>),
}

impl Restriction {
    fn region(region: Region) -> Self {
        Self::Region(Box::new(region))
    }

    /// A box (`[ra_min, dec_min, ra_max, dec_max]`, degrees) that holds the positions of all rows kept, where there is one.
    pub(crate) fn envelope(&self) -> Option<[f64; 4]> {
        match self {
            Self::Region(region) => {
                let envelope = region.envelope_box();
                Some([
                    envelope.ra_min(),
                    envelope.dec_min(),
                    envelope.ra_max(),
                    envelope.dec_max(),
                ])
            }
            Self::All(parts) => parts.iter().find_map(Self::envelope),
            _ => None,
        }
    }
}

/// What restricts, as EXPLAIN says it.
impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Self], word: &str| {
            let texts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            write!(f, "({})", texts.join(word))
        };
        match self {
            Self::None => f.write_str("unrestricted"),
            Self::Nothing => f.write_str("a condition that nothing meets"),
            Self::Region(region) => region.fmt(f),
            Self::Keys(_, keys) if keys.len() == 1 => write!(f, "key {}", keys[0]),
            Self::Keys(_, keys) => write!(f, "{} keys", keys.len()),
            Self::All(parts) => joined(f, parts, " and "),
            Self::Any(parts) => joined(f, parts, " or "),
        }
    }
}

/// Which columns of a table say where a row is. Names are folded.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    /// Right ascension and declination, in degrees.
    pub position: Option<(String, String)>,
    /// Columns that hold the key of a director.
    pub keys: Vec<String>,
    /// For each of these the column of texts whose numbers it has, if it has such: a row with a text has the text's number.
    pub texts: Vec<Option<String>>,
}

/// A separation is computed with rounding; a circle this much larger (relative, and in degrees) misses nothing.
/// The haversine formula is accurate to a few units in the last place of the *sine of half the angle*, so 1e-12 of the
/// angle plus 1e-13 degrees (a third of a nanoarcsecond) is ample.
const RADIUS_ROUNDING: (f64, f64) = (1e-12, 1e-13);
/// Near the antipode the sine is flat: an error of 1e-16 in it is 1e-6 degrees in the angle.
const ANTIPODE_ROUNDING: f64 = 1e-6;

impl Roles {
    /// The restriction that all `filters` together put on the table.
    pub fn restriction(&self, filters: &[Expr]) -> Restriction {
        self.all(filters.iter().collect())
    }

    fn of(&self, expr: &Expr) -> Restriction {
        self.all(vec![expr])
    }

    /// A condition that is neither an AND nor a bound on a position column.
    fn condition(&self, expr: &Expr) -> Restriction {
        match expr {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Or,
                right,
            }) => any(vec![self.of(left), self.of(right)]),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self
                .comparison(left, *op, right)
                .or_else(|| self.comparison(right, op.swap()?, left))
                .unwrap_or(Restriction::None),
            Expr::InList(list) if !list.negated => self
                .key_list(&list.expr, &list.list)
                .unwrap_or(Restriction::None),
            Expr::Literal(ScalarValue::Boolean(Some(false) | None), _) => Restriction::Nothing,
            Expr::Alias(alias) => self.of(&alias.expr),
            _ => Restriction::None,
        }
    }

    /// Conditions joined by AND: those on the position columns together make a box.
    fn all(&self, exprs: Vec<&Expr>) -> Restriction {
        let mut parts = Vec::new();
        let mut bounds = Bounds::default();
        let mut pending = exprs;
        while let Some(expr) = pending.pop() {
            match expr {
                Expr::BinaryExpr(BinaryExpr {
                    left,
                    op: Operator::And,
                    right,
                }) => pending.extend([&**left, &**right]),
                Expr::Between(between) if !between.negated => {
                    let taken =
                        self.bound(&mut bounds, &between.expr, Operator::GtEq, &between.low)
                            & self.bound(&mut bounds, &between.expr, Operator::LtEq, &between.high);
                    if !taken {
                        parts.push(self.separation_between(between));
                    }
                }
                Expr::BinaryExpr(BinaryExpr { left, op, right })
                    if self.bound(&mut bounds, left, *op, right)
                        || op
                            .swap()
                            .is_some_and(|op| self.bound(&mut bounds, right, op, left)) => {}
                other => parts.push(self.condition(other)),
            }
        }
        parts.push(bounds.restriction());
        all(parts)
    }

    fn separation_between(&self, between: &datafusion::logical_expr::Between) -> Restriction {
        self.comparison(&between.expr, Operator::LtEq, &between.high)
            .unwrap_or(Restriction::None)
    }

    /// Takes `column op number` into the bounds; says whether it was one.
    fn bound(&self, bounds: &mut Bounds, column: &Expr, op: Operator, number: &Expr) -> bool {
        let (Some((ra, dec)), Some(name), Some(number)) =
            (&self.position, position_name(column), as_number(number))
        else {
            return false;
        };
        let interval = match name {
            name if name == ra => &mut bounds.ra,
            name if name == dec => &mut bounds.dec,
            _ => return false,
        };
        match op {
            Operator::Lt | Operator::LtEq => interval.1 = interval.1.min(number),
            Operator::Gt | Operator::GtEq => interval.0 = interval.0.max(number),
            Operator::Eq => *interval = (interval.0.max(number), interval.1.min(number)),
            _ => return false,
        }
        bounds.any = true;
        true
    }

    fn comparison(&self, left: &Expr, op: Operator, right: &Expr) -> Option<Restriction> {
        if let Some(function) = as_function(left) {
            let name = function.func.name();
            if name == SEPARATION && matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq) {
                return self.separation(&function.args, as_number(right)?);
            }
            let shape = RegionShape::ALL
                .into_iter()
                .find(|shape| shape.function() == name)?;
            let one = as_number(right)?;
            let inside = match op {
                Operator::Eq | Operator::GtEq => (one - 1.0).abs() < f64::EPSILON,
                Operator::NotEq | Operator::Gt => one.abs() < f64::EPSILON,
                _ => false,
            };
            return inside.then(|| self.region(shape, &function.args))?;
        }
        if op == Operator::Eq {
            return self.key_list(left, std::slice::from_ref(right));
        }
        None
    }

    fn is_position(&self, ra: &Expr, dec: &Expr) -> bool {
        let names = (position_name(ra), position_name(dec));
        match &self.position {
            Some((own_ra, own_dec)) => names == (Some(own_ra.as_str()), Some(own_dec.as_str())),
            None => false,
        }
    }

    fn region(&self, shape: RegionShape, args: &[Expr]) -> Option<Restriction> {
        let [ra, dec, numbers @ ..] = args else {
            return None;
        };
        if !self.is_position(ra, dec) {
            return None;
        }
        let numbers: Option<Vec<f64>> = numbers.iter().map(as_number).collect();
        // A region that makes no sense is reported when the function is evaluated.
        shape.region(&numbers?).ok().map(Restriction::region)
    }

    fn separation(&self, args: &[Expr], radius: f64) -> Option<Restriction> {
        let [ra1, dec1, ra2, dec2] = args else {
            return None;
        };
        let centre = if self.is_position(ra1, dec1) {
            (as_number(ra2)?, as_number(dec2)?)
        } else if self.is_position(ra2, dec2) {
            (as_number(ra1)?, as_number(dec1)?)
        } else {
            return None;
        };
        if radius < 0.0 {
            return Some(Restriction::Nothing);
        }
        let flat = if radius > 179.0 {
            ANTIPODE_ROUNDING
        } else {
            0.0
        };
        let radius = radius * (1.0 + RADIUS_ROUNDING.0) + RADIUS_ROUNDING.1 + flat;
        Region::circle_degrees(centre.0, centre.1, radius.min(180.0))
            .ok()
            .map(Restriction::region)
    }

    /// The keys of `column = value` or `column IN (values)`; `None` if that is not what it is.
    fn key_list(&self, column: &Expr, values: &[Expr]) -> Option<Restriction> {
        if let Some(keys) = self.text_list(column, values) {
            return Some(keys);
        }
        let name = key_name(column)?;
        let key = self.keys.iter().position(|key| key == name)?;
        // A key that is NULL or no whole number equals no key.
        let keys: Option<Vec<Option<i64>>> = values.iter().map(as_key).collect();
        let mut keys: Vec<i64> = keys?.into_iter().flatten().collect();
        keys.sort_unstable();
        keys.dedup();
        Some(Restriction::Keys(key, keys))
    }

    /// The same of a column of texts whose numbers are a key.
    fn text_list(&self, column: &Expr, values: &[Expr]) -> Option<Restriction> {
        let name = column_name(column, &TEXTS)?;
        let is_named = |texts: &Option<String>| texts.as_deref() == Some(name);
        let key = self.texts.iter().position(is_named)?;
        let mut keys = Vec::with_capacity(values.len());
        for value in values {
            let value = literal(value)?;
            // A text that is NULL equals none.
            if !value.is_null() {
                keys.push(text_key(text_of(value)?));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Some(Restriction::Keys(key, keys))
    }
}

/// The types of texts, which are compared by their bytes whichever they are of.
const TEXTS: [DataType; 3] = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];

/// The text that a constant is.
pub(crate) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_deref()
        }
        _ => None,
    }
}

/// Bounds on the position columns, in degrees.
#[derive(Debug)]
struct Bounds {
    ra: (f64, f64),
    dec: (f64, f64),
    any: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ra: (0.0, 360.0),
            dec: (-90.0, 90.0),
            any: false,
        }
    }
}

impl Bounds {
    fn restriction(&self) -> Restriction {
        if !self.any {
            return Restriction::None;
        }
        let ((ra_min, ra_max), (dec_min, dec_max)) = (self.ra, self.dec);
        if ra_min > ra_max || dec_min > dec_max {
            return Restriction::Nothing;
        }
        Region::box_degrees(ra_min, dec_min, ra_max, dec_max)
            .map_or(Restriction::None, Restriction::region)
    }
}

fn all(parts: Vec<Restriction>) -> Restriction {
    let mut parts: Vec<Restriction> = parts
        .into_iter()
        .filter(|part| *part != Restriction::None)
        .collect();
    if parts.contains(&Restriction::Nothing) {
        return Restriction::Nothing;
    }
    match parts.len() {
        0 => Restriction::None,
        1 => parts.remove(0),
        _ => Restriction::All(parts),
    }
}

fn any(parts: Vec<Restriction>) -> Restriction {
    if parts.contains(&Restriction::None) {
        return Restriction::None;
    }
    let mut parts: Vec<Restriction> = parts
        .into_iter()
        .filter(|part| *part != Restriction::Nothing)
        .collect();
    match parts.len() {
        0 => Restriction::Nothing,
        1 => parts.remove(0),
        _ => Restriction::Any(parts),
    }
}

/// The column that an expression is, perhaps cast to one of `widenings`: types that keep the column's values apart and in
/// their order.
fn column_name<'e>(expr: &'e Expr, widenings: &[DataType]) -> Option<&'e str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(Cast { expr, field }) if widenings.contains(field.data_type()) => {
            column_name(expr, widenings)
        }
        Expr::ScalarFunction(function) if function.name() == APART => {
            column_name(function.args.first()?, widenings)
        }
        _ => None,
    }
}

fn position_name(expr: &Expr) -> Option<&str> {
    column_name(expr, &[DataType::Float64])
}

/// Keys are whole numbers; as doubles they are told apart below 2^53, which is where [`as_key`] stops.
fn key_name(expr: &Expr) -> Option<&str> {
    column_name(expr, &[DataType::Int64, DataType::Float64])
}

fn as_function(expr: &Expr) -> Option<&datafusion::logical_expr::expr::ScalarFunction> {
    match expr {
        Expr::ScalarFunction(function) => Some(function),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => as_function(expr),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// A literal as a double, if it is a number.
fn as_number(expr: &Expr) -> Option<f64> {
    let value = literal(expr)?;
    if !value.data_type().is_numeric() && !matches!(value, ScalarValue::Boolean(_)) {
        return None;
    }
    match value.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(number) => number.filter(|n| !n.is_nan()),
        _ => None,
    }
}

/// A literal as a key: `Some(None)` if no key can equal it, `None` if it cannot be told.
fn as_key(expr: &Expr) -> Option<Option<i64>> {
    /// From here on a double no longer holds every whole number.
    const EXACT_DOUBLE: f64 = 9_007_199_254_740_992.0;
    let value = literal(expr)?;
    if value.is_null() {
        return Some(None);
    }
    match value {
        ScalarValue::Float64(Some(number)) if number.abs() < EXACT_DOUBLE => {
            Some((number.fract().abs() < f64::MIN_POSITIVE).then_some(*number as i64))
        }
        ScalarValue::UInt64(Some(number)) => Some(i64::try_from(*number).ok()),
        value if value.data_type().is_integer() => match value.cast_to(&DataType::Int64).ok()? {
            ScalarValue::Int64(number) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, in_list, lit, not};
    use sql::functions;

    use super::*;

    #[test]
    fn regions_are_found_in_either_order_and_through_and() {
        let circle = Restriction::region(Region::circle_degrees(10.0, 5.0, 1.0).unwrap());
        let inside = call(
            "scisql_s2ptincircle",
            vec![col("ra"), col("dec"), lit(10.0), lit(5.0), lit(1.0)],
        );
        assert_eq!(of(inside.clone().eq(lit(1))), circle);
        assert_eq!(of(lit(1).eq(inside.clone())), circle);
        assert_eq!(
            of(inside.clone().not_eq(lit(0)).and(col("flux").gt(lit(3)))),
            circle
        );
    }

    #[test]
    fn nothing_is_pruned_where_it_is_not_certain() {
        let inside = call(
            "scisql_s2ptincircle",
            vec![col("ra"), col("dec"), lit(10.0), lit(5.0), lit(1.0)],
        );
        let swapped = call(
            "scisql_s2ptincircle",
            vec![col("dec"), col("ra"), lit(10.0), lit(5.0), lit(1.0)],
        );
        for filter in [
            inside.clone().eq(lit(0)),
            not(inside.clone().eq(lit(1))),
            inside.clone().eq(lit(1)).or(col("flux").gt(lit(3))),
            swapped.eq(lit(1)),
            not(col("id").eq(lit(3))),
            col("id").not_eq(lit(3)),
            col("id").gt(lit(3)),
            in_list(col("id"), vec![lit(3)], true),
            col("flux").lt(lit(3)),
            col("id").eq(col("other")),
            separation().gt(lit(1.0)),
        ] {
            assert_eq!(of(filter.clone()), Restriction::None, "{filter}");
        }
    }

    #[test]
    fn bounds_on_the_position_make_a_box() {
        let bounds = col("ra")
            .gt_eq(lit(350))
            .and(lit(5.5).gt(col("dec")))
            .and(col("dec").between(lit(1.0), lit(9.0)));
        assert_eq!(
            of(bounds),
            Restriction::region(Region::box_degrees(350.0, 1.0, 360.0, 5.5).unwrap())
        );
        assert_eq!(
            of(col("dec").gt(lit(3)).and(col("dec").lt(lit(2)))),
            Restriction::Nothing
        );
        let disjoint = col("ra").lt(lit(1)).or(col("ra").gt(lit(359)));
        assert!(matches!(of(disjoint), Restriction::Any(parts) if parts.len() == 2));
    }

    #[test]
    fn keys_are_whole_numbers() {
        assert_eq!(of(col("id").eq(lit(7))), Restriction::Keys(0, vec![7]));
        assert_eq!(of(col("id").eq(lit(7.0))), Restriction::Keys(0, vec![7]));
        assert_eq!(of(col("id").eq(lit(7.5))), Restriction::Keys(0, vec![]));
        assert_eq!(
            of(in_list(col("id"), vec![lit(9), lit(-1), lit(9)], false)),
            Restriction::Keys(0, vec![-1, 9])
        );
        assert_eq!(of(col("id").eq(lit("7"))), Restriction::None);
        assert_eq!(
            of(col("id").eq(lit(ScalarValue::Int64(None)))),
            Restriction::Keys(0, vec![])
        );
    }

    #[test]
    fn texts_are_keys_by_their_numbers() {
        let keys = |texts: &[&str]| {
            let mut keys: Vec<i64> = texts.iter().map(|text| text_key(text)).collect();
            keys.sort_unstable();
            Restriction::Keys(0, keys)
        };
        let name = || col("name");
        assert_eq!(of(name().eq(lit("a"))), keys(&["a"]));
        assert_eq!(of(lit("a ").eq(name())), keys(&["a "]));
        let list = vec![lit("b"), lit(ScalarValue::Utf8(None)), lit("a"), lit("b")];
        assert_eq!(of(in_list(name(), list, false)), keys(&["a", "b"]));
        let wide = |to| Expr::Cast(Cast::new(Box::new(name()), to));
        assert_eq!(of(wide(DataType::Utf8View).eq(lit("a"))), keys(&["a"]));
        for filter in [
            name().eq(lit(5)),
            wide(DataType::Int64).eq(lit(5)),
            wide(DataType::Binary).eq(lit("a")),
            name().not_eq(lit("a")),
            not(name().eq(lit("a"))),
            name().gt(lit("a")),
            name().like(lit("a%")),
            name().eq(col("other")),
            name().eq(lit("a")).or(col("flux").gt(lit(3))),
            in_list(name(), vec![lit("a")], true),
            in_list(name(), vec![lit("a"), col("other")], false),
        ] {
            assert_eq!(of(filter.clone()), Restriction::None, "{filter}");
        }
    }

    #[test]
    fn a_separation_is_a_circle_that_misses_nothing() {
        let Restriction::Region(region) = of(lit(1.0).gt_eq(separation())) else {
            panic!("no region");
        };
        assert!(region.contains(sky::LonLat::from_degrees(10.0, 6.0).unwrap()));
        assert!(!region.contains(sky::LonLat::from_degrees(10.0, 6.000_001).unwrap()));
        assert_eq!(of(separation().lt(lit(-1.0))), Restriction::Nothing);
    }

    #[test]
    fn lists_that_are_kept_apart_restrict() {
        let apart = call(APART, vec![col("id"), lit(1)]);
        let either = col("id")
            .eq(lit(3_i64))
            .or(apart.in_list(vec![lit(5_i64), lit(7_i64)], false));
        let keys = |values: &[i64]| Restriction::Keys(0, values.to_vec());
        assert_eq!(
            of(either),
            Restriction::Any(vec![keys(&[3]), keys(&[5, 7])])
        );
    }

    fn separation() -> Expr {
        call(SEPARATION, vec![lit(10.0), lit(5.0), col("ra"), col("dec")])
    }

    fn call(name: &str, args: Vec<Expr>) -> Expr {
        let function = functions::all()
            .into_iter()
            .find(|f| f.name() == name)
            .unwrap();
        function.call(args)
    }

    fn of(filter: Expr) -> Restriction {
        let roles = Roles {
            position: Some(("ra".into(), "dec".into())),
            keys: vec!["id".into()],
            texts: vec![Some("name".into())],
        };
        roles.restriction(&[filter])
    }
}
