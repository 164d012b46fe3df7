//! Conditions decided by looking at fluxes keep exactly the rows for which they are true as written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float32Array, Float64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ScalarUDF, cast, col, lit};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use proptest::prelude::*;
use store::RowCondition;

use super::exact::Exact;
use super::{Decision, ScanCondition};

const MAGNITUDES: [&str; 2] = ["scisql_fluxtoabmag", "scisql_nanojanskytoabmag"];

/// Columns `s` and `t` of 32 bits, `d` and `e` of 64.
fn schema() -> Schema {
    Schema::new(vec![
        Field::new("s", DataType::Float32, true),
        Field::new("t", DataType::Float32, true),
        Field::new("d", DataType::Float64, true),
        Field::new("e", DataType::Float64, true),
    ])
}

fn function(name: &str) -> Arc<ScalarUDF> {
    sql::functions::all()
        .into_iter()
        .find(|function| function.name() == name)
        .unwrap()
}

fn magnitude(name: &str, column: &str) -> Expr {
    function(name).call(vec![cast(col(column), DataType::Float64)])
}

fn real(expr: Expr) -> Expr {
    sql::functions::real().call(vec![expr])
}

fn compare(left: Expr, op: usize, bound: f64) -> Expr {
    match op {
        0 => left.lt(lit(bound)),
        1 => left.lt_eq(lit(bound)),
        2 => left.gt(lit(bound)),
        3 => left.gt_eq(lit(bound)),
        4 => lit(bound).lt(left),
        _ => lit(bound).gt_eq(left),
    }
}

fn physical(expr: &Expr) -> Arc<dyn PhysicalExpr> {
    let schema = DFSchema::try_from(schema()).unwrap();
    create_physical_expr(expr, &schema, &Default::default(), &Default::default()).unwrap()
}

/// A 32-bit number some representable steps beside `value`.
fn beside_32(value: f64, steps: i32) -> f32 {
    let mut near = value as f32;
    for _ in 0..steps.abs() {
        near = if steps > 0 {
            near.next_up()
        } else {
            near.next_down()
        };
    }
    near
}

fn beside_64(value: f64, steps: i32) -> f64 {
    let mut near = value;
    for _ in 0..steps.abs() {
        near = if steps > 0 {
            near.next_up()
        } else {
            near.next_down()
        };
    }
    near
}

/// Numbers of every kind that a file can hold.
fn any_values() -> Vec<f64> {
    let mut values = vec![
        0.0,
        1.0,
        -1.0,
        f64::from(f32::MAX),
        f64::from(f32::MIN_POSITIVE),
        1.4e-45,
        -1.4e-45,
        1e-29,
        -1e-29,
        3631e-23,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e300,
        5e-324,
        2e-310,
        1e-95,
    ];
    values.extend((-45..=38).map(|power| 10_f64.powi(power) * 1.7));
    values
}

/// The columns for pairs of values, the second of which is meant for `t` and `e`; every seventh is NULL.
fn columns(pairs: &[(f64, f64)]) -> Vec<ArrayRef> {
    let value = |at: usize, value: f64| (at % 7 != 3).then_some(value);
    let single = |of: fn(&(f64, f64)) -> f64| -> ArrayRef {
        let values = pairs.iter().enumerate();
        Arc::new(Float32Array::from_iter(
            values.map(|(at, pair)| value(at, of(pair)).map(|v| v as f32 + 0.0)),
        ))
    };
    let double = |of: fn(&(f64, f64)) -> f64| -> ArrayRef {
        let values = pairs.iter().enumerate();
        Arc::new(Float64Array::from_iter(
            values.map(|(at, pair)| value(at, of(pair)).map(|v| v + 0.0)),
        ))
    };
    vec![
        single(|pair| pair.0),
        single(|pair| pair.1),
        double(|pair| pair.0),
        double(|pair| pair.1),
    ]
}

/// Whether the decision agrees with the condition as written on every row; also on which kind of decision it is.
fn check(expr: &Expr, pairs: &[(f64, f64)]) -> &'static str {
    let predicate = physical(expr);
    let columns = columns(pairs);
    let all = BooleanBuffer::new_set(pairs.len());
    let written = Exact::of(&predicate, &schema()).unwrap();
    let expected = written.keep(&columns, all.clone()).unwrap();
    let decision = Decision::of(&predicate, &schema()).unwrap();
    let found = decision.keep(&columns, all.clone()).unwrap();
    for (at, (expected, found)) in expected.iter().zip(found.iter()).enumerate() {
        assert_eq!(expected, found, "{expr} at {:?}", pairs[at]);
    }
    // Rows that are out already stay out.
    let some = BooleanBuffer::collect_bool(pairs.len(), |at| at % 3 != 0);
    let found = decision.keep(&columns, some.clone()).unwrap();
    assert_eq!(found, &expected & &some, "{expr}");
    match decision {
        Decision::Within(_) => "within",
        Decision::Ratio(_) => "ratio",
        Decision::Exact(_) => "exact",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_bound_on_a_magnitude(
        bound in -60.0..120.0_f64, op in 0..6_usize, name in 0..2_usize, column in prop::sample::select(vec!["s", "d"]),
    ) {
        // The flux that has this magnitude, and its neighbours.
        let unit = if name == 0 { 1.0 } else { 1e32 };
        let flux = 10_f64.powf((bound + 48.6) / -2.5) * unit;
        let mut pairs: Vec<_> = any_values().into_iter().map(|v| (v, v)).collect();
        for steps in -6..=6 {
            let near = if column == "s" { f64::from(beside_32(flux, steps)) } else { beside_64(flux, steps) };
            pairs.push((near, near));
            pairs.push((flux * (1.0 + f64::from(steps) * 2e-12), 1.0));
        }
        let left = magnitude(MAGNITUDES[name], column);
        prop_assert_eq!(check(&compare(left.clone(), op, bound), &pairs), "within");
        prop_assert_eq!(check(&compare(real(left * lit(-3.5) + lit(0.25)), op, bound * -3.5 + 0.25), &pairs), "within");
    }

    #[test]
    fn a_bound_on_a_column(value in any::<f32>(), op in 0..6_usize, column in prop::sample::select(vec!["s", "d"])) {
        prop_assume!(value.is_finite());
        for bound in [f64::from(value), beside_64(value.into(), 1), beside_64(value.into(), -1)] {
            let mut pairs: Vec<_> = any_values().into_iter().map(|v| (v, v)).collect();
            pairs.extend((-3..=3).map(|steps| (f64::from(beside_32(bound, steps)), 0.0)));
            pairs.extend((-3..=3).map(|steps| (beside_64(bound, steps), 0.0)));
            let left = cast(col(column), DataType::Float64);
            prop_assert_eq!(check(&compare(left, op, bound), &pairs), "within");
        }
    }

    #[test]
    fn a_bound_on_a_colour(
        bound in -12.0..12.0_f64, op in 0..6_usize, name in 0..2_usize, power in -44.0..37.0_f64,
        first in prop::sample::select(vec!["s", "d"]), second in prop::sample::select(vec!["t", "e"]),
    ) {
        let mut pairs: Vec<(f64, f64)> = Vec::new();
        for a in any_values() {
            pairs.extend(any_values().into_iter().map(|b| (a, b)));
        }
        let flux = f64::from(10_f64.powf(power) as f32);
        let other = flux * 10_f64.powf(bound / 2.5);
        for steps in -6..=6 {
            pairs.push((flux, f64::from(beside_32(other, steps))));
            pairs.push((flux, beside_64(other, steps)));
            pairs.push((flux, other * (1.0 + f64::from(steps) * 3e-12)));
        }
        let colour = magnitude(MAGNITUDES[name], first) - magnitude(MAGNITUDES[name], second);
        prop_assert_eq!(check(&compare(real(colour), op, bound), &pairs), "ratio");
    }
}

#[test]
fn a_colour_of_zero_keeps_equal_fluxes() {
    let pairs: Vec<_> = any_values().into_iter().map(|v| (v, v)).collect();
    let colour = magnitude(MAGNITUDES[0], "s") - magnitude(MAGNITUDES[0], "t");
    for op in 0..6 {
        assert_eq!(
            check(&compare(real(colour.clone()), op, 0.0), &pairs),
            "ratio"
        );
    }
}

#[test]
fn what_is_too_large_for_a_double_is_kept_by_no_bound() {
    // A product beyond the largest double is NULL, so a bound has two ends.
    let wide = |column: &str| cast(col(column), DataType::Float64);
    let mut values = any_values();
    for power in [289, 298, 307, 308] {
        let value = f64::MAX / 10_f64.powi(308 - power);
        values.extend((-2..=2).map(|steps| beside_64(value, steps)));
        values.extend((-2..=2).map(|steps| -beside_64(value, steps)));
    }
    let values: Vec<_> = values.into_iter().filter(|value| !value.is_nan()).collect();
    let pairs: Vec<_> = values.iter().map(|&v| (v, v)).collect();
    for op in 0..6 {
        for column in ["s", "d"] {
            for bound in [-1e300, -5.0, 0.0, 5.0, 1e300] {
                let product = real(wide(column) * lit(-1e10) + lit(3.0));
                assert_eq!(check(&compare(product, op, bound), &pairs), "within");
                let nested = real(real(wide(column) * lit(1e10)) - lit(1e308));
                assert_eq!(check(&compare(nested, op, bound), &pairs), "within");
            }
        }
        // Zero itself gives NULL.
        let beyond = real((wide("d") + lit(1e308)) * lit(10.0));
        assert_eq!(check(&compare(beyond, op, 5.0), &pairs), "exact");
    }
}

#[test]
fn what_is_not_monotone_is_left_as_it_is_written() {
    let pairs: Vec<_> = any_values().into_iter().map(|v| (v, 2.0)).collect();
    let [one, other] = ["s", "t"].map(|column| magnitude(MAGNITUDES[0], column));
    let wide = |column: &str| cast(col(column), DataType::Float64);
    let not_monotone = [
        compare(real(one.clone() + other.clone()), 2, 40.0),
        compare(real(magnitude(MAGNITUDES[1], "s") - other.clone()), 2, 1.0),
        compare(real(wide("s") * wide("s")), 2, 1.0),
        compare(real(wide("s") * lit(0.0)), 3, 0.0),
        compare(real(lit(1.0) / wide("s")), 2, 1.0),
        one.clone().eq(lit(20.0)),
        one.clone().gt(other),
        one.is_null(),
        wide("s").not_eq(lit(1.0)),
    ];
    for expr in &not_monotone {
        assert_eq!(check(expr, &pairs), "exact", "{expr}");
    }
}

#[test]
fn several_conditions_must_all_be_true() {
    let pairs: Vec<_> = (0..500)
        .map(|at| (1e-29 * f64::from(at % 17), 3e-29 * f64::from(at % 23)))
        .collect();
    let columns = columns(&pairs);
    let conditions = [
        col("d").eq(lit(1e-29 * 5.0)).or(col("e").is_null()),
        compare(magnitude(MAGNITUDES[0], "s"), 2, 20.0),
        compare(
            real(magnitude(MAGNITUDES[0], "s") - magnitude(MAGNITUDES[0], "t")),
            2,
            0.5,
        ),
    ];
    let predicates: Vec<_> = conditions.iter().map(physical).collect();
    let condition = ScanCondition::try_new(&predicates, &schema())
        .unwrap()
        .unwrap();
    assert_eq!(condition.columns(), [0, 1, 2, 3]);
    let kept = condition.keep(&columns, pairs.len()).unwrap();
    let mut expected = BooleanBuffer::new_set(pairs.len());
    for predicate in &predicates {
        let written = Exact::of(predicate, &schema()).unwrap();
        let truth = written
            .keep(&columns, BooleanBuffer::new_set(pairs.len()))
            .unwrap();
        expected = &expected & &truth;
    }
    assert_eq!(kept.values(), &expected);
    assert_eq!(kept.null_count(), 0);
    assert_ne!(kept.true_count(), 0);
    assert!(ScanCondition::try_new(&[], &schema()).unwrap().is_none());
}
