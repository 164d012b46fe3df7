//! Values of ADQL's functions, through the engine.

use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::{FunctionRegistry as _, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::DFParserBuilder;

use crate::{Dialect, fold_case};

/// What an expression of ADQL's gives, or the engine's complaint.
async fn evaluate(expression: &str) -> Result<String, String> {
    let mut state = SessionStateBuilder::new().with_default_features().build();
    for function in crate::functions::all() {
        state.register_udf(function).map_err(|e| e.to_string())?;
    }
    for function in crate::functions::all_aggregates() {
        state.register_udaf(function).map_err(|e| e.to_string())?;
    }
    let context = SessionContext::new_with_state(state);
    let sql =
        format!("SELECT {expression} AS v FROM (VALUES (1.0, 2.0, 3.0, NULL)) AS t (x, y, z, u)");
    let folded = fold_case(Dialect::Adql, &sql).map_err(|e| e.to_string())?;
    let mut statements = DFParserBuilder::new(folded.as_str())
        .with_dialect(Dialect::Adql.grammar())
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|e| e.to_string())?;
    let mut statement = statements.pop_front().unwrap();
    if let datafusion::sql::parser::Statement::Statement(ast) = &mut statement {
        crate::adql::rewrite(&sql, ast).map_err(|e| e.sentence().to_owned())?;
    }
    let plan = context.state().statement_to_plan(statement).await;
    let plan = plan.map_err(|e| e.to_string())?;
    let frame = context.execute_logical_plan(plan).await;
    let frame = frame.map_err(|e| e.to_string())?;
    let batches = frame.collect().await.map_err(|e| e.to_string())?;
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let line = text.lines().nth(3).unwrap();
    Ok(line.trim_matches(['|', ' ']).to_owned())
}

#[tokio::test]
async fn geometry_has_values() {
    for (expression, expected) in [
        ("POINT(x, y)", "[1.0, 2.0]"),
        ("POINT('ICRS GEOCENTER', 1, 2)", "[1.0, 2.0]"),
        ("POINT('unheard of', 1, 2)", "[1.0, 2.0]"),
        ("POINT(x + 360, -y)", "[1.0, -2.0]"),
        ("POINT(x, 100 * y)", ""),
        ("CIRCLE(x, y, -z)", ""),
        ("ROUND(COORD1(POINT('GALACTIC', x, y)), 6)", "265.073332"),
        (
            "CONTAINS(POINT('FK5', x, y), CIRCLE('J2000', 1, 1, 1))",
            "1",
        ),
        ("POINT(x, u)", ""),
        ("CIRCLE(x, y, z)", "[1.0, 2.0, 3.0]"),
        ("CIRCLE('', POINT(x, y), 0.5)", "[1.0, 2.0, 0.5]"),
        (
            "POLYGON(POINT(0, 0), POINT(x, 0), POINT(0, 1))",
            "[0.0, 0.0, 1.0, 0.0, 0.0, 1.0]",
        ),
        ("REGION('Position ICRS 10 -5')", "[10.0, -5.0]"),
        ("CENTROID(CIRCLE(359, -1, 3))", "[359.0, -1.0]"),
        ("COORD1(POINT(x, y)) + COORD2(POINT(x, y))", "3.0"),
        ("COORDSYS(POINT(x, y))", "ICRS"),
        ("AREA(POINT(x, y))", "0.0"),
        ("ROUND(AREA(CIRCLE(x, y, 180)), 6)", "41252.961249"),
        ("AREA(CIRCLE(x, y, u))", ""),
        ("DISTANCE(POINT(x, y), POINT(x, 3))", "1.0"),
        ("DISTANCE(x, y, x, 3)", "1.0"),
        ("DISTANCE(POINT(x, y), POINT(u, 3))", ""),
        ("CONTAINS(POINT(x, y), CIRCLE(1, 1, 1))", "1"),
        ("CONTAINS(POINT(x, y), CIRCLE(1, 1, 0.999))", "0"),
        ("CONTAINS(POINT(x, u), CIRCLE(1, 1, 1))", "0"),
        (
            "CONTAINS(POINT(x, y), POLYGON(0, 0, 3, 0, 3, 3, 1.5, 0.5))",
            "0",
        ),
        ("CONTAINS(POINT(x, y), BOX(x, y, 1, 1))", "1"),
        ("CONTAINS(CIRCLE(x, y, 1), BOX(x, y, 1, 1))", "0"),
        ("INTERSECTS(CIRCLE(x, y, 1), BOX(x, 4, 3, 3))", "1"),
        (
            "INTERSECTS(POINT(x, y), CIRCLE(1, 1, 1)) + INTERSECTS(CIRCLE(1, 1, 1), POINT(x, y))",
            "2",
        ),
        (
            "IN_UNIT(DISTANCE(POINT(x, y), POINT(x, 3)), 'arcmin')",
            "60.0",
        ),
        (
            "ROUND(IN_UNIT(AREA(CIRCLE(x, y, 180)), 'sr'), 9)",
            "12.566370614",
        ),
    ] {
        assert_eq!(
            evaluate(expression).await.as_deref(),
            Ok(expected),
            "{expression}"
        );
    }
}

#[tokio::test]
async fn the_catalogues_examples_hold() {
    for (expression, expected) in [
        ("ivo_healpix_index(0, 1, 1)", "4"),
        ("ivo_healpix_index(17, POINT('ICRS', x, 1))", "81609757711"),
        (
            "ivo_healpix_index(17, CENTROID(CIRCLE(359, -1, 3)))",
            "73009064944",
        ),
        ("ivo_healpix_center(0, 6)", "[180.0, 0.0]"),
        (
            "ivo_healpix_center(0, CAST(10 + x AS INTEGER))",
            "[315.0, -41.810314895778596]",
        ),
        ("ivo_healpix_center(0, CAST(11 + x AS INTEGER))", ""),
        ("ivo_healpix_center(0, CAST(-x AS INTEGER))", ""),
        (
            "ROUND(COORD1(ivo_healpix_center(17, ivo_healpix_index(17, 23.4, 56.7))), 12)",
            "23.399843462947",
        ),
        (
            "ROUND(COORD2(ivo_epoch_prop_pos(7.606083572, 11.79044105, 125, 300, -428.8, NULL, 2016.0, 1875.0)), 10)",
            "11.8072354643",
        ),
        (
            "ivo_epoch_prop_pos(u, 11.79044105, 125, 300, -428.8, x, 2016.0, 1875.0)",
            "",
        ),
        (
            "ROUND(COORD1(ivo_geom_transform('ICRS', 'GALACTIC', POINT(120, -23))), 8)",
            "241.12183118",
        ),
        (
            "ivo_to_jd(CAST('2000-01-02T12:00:00' AS TIMESTAMP))",
            "2451546.0",
        ),
        ("ivo_to_jd('1910-12-31T06:00:00')", "2419036.75"),
        ("ivo_to_mjd('2000-01-02T12:00:00')", "51545.5"),
        ("ivo_to_mjd(NULL)", ""),
        ("ivo_nocasematch('ABcabc', 'ab__bc')", "1"),
        ("ivo_nocasematch('abcabc', 'abcab')", "0"),
        ("ivo_hasword('Miller and Urey have', 'miller')", "1"),
        ("ivo_hasword('shown that a primordial', 'shown soup')", "0"),
        (
            "ivo_hasword('shown that a primordial', 'primordial shown')",
            "1",
        ),
        ("ivo_hashlist_has('Red#green#blue', 'red')", "1"),
        ("ivo_hashlist_has('red#green#blue', 're')", "0"),
        ("ivo_hashlist_has('red#green#blue', 'red#green')", "0"),
        ("ivo_interval_overlaps(-3, -2, 2, 3)", "0"),
        ("ivo_interval_overlaps(-2, 55.3, 2, 3)", "1"),
        ("ivo_interval_overlaps(-2, 55.3, 3, 2)", "0"),
        ("ivo_interval_overlaps(-2, 2, 2, 3)", "1"),
        ("ivo_histogram(x, 0, 2, 4)", "[0, 0, 0, 1, 0, 0]"),
        ("ivo_string_agg(x, '#')", "1.0"),
    ] {
        assert_eq!(
            evaluate(expression).await.as_deref(),
            Ok(expected),
            "{expression}"
        );
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_said_in_a_sentence() {
    for (expression, part) in [
        ("POINT(1)", "POINT takes two numbers"),
        ("POINT('GSE', 1, 2)", "GSE cannot be brought to ICRS"),
        ("POINT(1, 95)", "the declination 95"),
        ("POINT('a', 'b', 'c')", "POINT takes two numbers"),
        ("CIRCLE(x, y, 181)", "the radius 181"),
        ("CIRCLE(x, 91, z)", "the declination 91"),
        ("BOX(x, y, 0, z)", "the width 0"),
        ("CIRCLE(1, 2, -1)", "the radius -1"),
        ("CIRCLE(1, 2)", "CIRCLE takes a centre and a radius"),
        ("BOX(1, 2, 0, 1)", "the width 0"),
        ("POLYGON(1, 2, 3, 4)", "POLYGON takes three corners or more"),
        ("POLYGON(0, 0, 10, 10, 10, 0, 0, 10)", "crosses itself"),
        (
            "CONTAINS(1, CIRCLE(1, 2, 3))",
            "CONTAINS takes two geometries",
        ),
        ("CONTAINS(POINT(1, 2))", "CONTAINS takes two geometries"),
        (
            "DISTANCE(POINT(1, 2), CIRCLE(1, 2, 3))",
            "DISTANCE takes two points",
        ),
        ("DISTANCE(1, 2, 3)", "DISTANCE takes two points"),
        (
            "REGION('CIRCLE GSM 1 2 3')",
            "GSM cannot be brought to ICRS",
        ),
        ("REGION('x')", "begins with none of"),
        ("IN_UNIT(x, 'arcsec')", "cannot tell the unit"),
        ("IN_UNIT(x, y)", "a unit that is written out"),
        (
            "IN_UNIT(DISTANCE(1, 2, 3, 4), 'm')",
            "measure different things",
        ),
        ("ivo_healpix_index(30, 1, 1)", "no order 30"),
        ("ivo_healpix_center(0, 12)", "no cell 12"),
        ("ivo_healpix_center(17, 23.2)", "two whole numbers"),
        (
            "ivo_geom_transform('icrs', 'GALACTIC', POINT(1, 2))",
            "no reference frame icrs",
        ),
        (
            "ivo_epoch_prop_pos(NULL, 1, 1, 1, 1, 1, 2000, 2010)",
            "one of them is NULL",
        ),
        ("ivo_histogram(x, 2, 0, 4)", "a lower limit below"),
        ("LOG(1, 2)", "LOG takes a number"),
    ] {
        let error = evaluate(expression).await.unwrap_err();
        assert!(error.contains(part), "{expression}: {error}");
    }
}
