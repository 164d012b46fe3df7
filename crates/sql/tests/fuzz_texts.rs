//! Strange texts at the parsers of statements in both dialects, of regions, of values, and of what functions take: whatever comes, they end with
//! a result or an error.
//!
//! Texts are made of real ones (`chance::feed`).

#![expect(
    clippy::unwrap_used,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

#[path = "../../server/tests/chance/mod.rs"]
mod chance;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use chance::feed;
use datafusion::common::ScalarValue;
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use meridian_sql::{
    Connection, Dialect, GivenValue, Longest, StoredColumn, StoredType, TableShape, TableShapes,
    functions, headings, mysql, parse, time_of_variable,
};
use sky::Region;
use sky::moc::Moc;

struct NoTables;

impl TableShapes for NoTables {
    fn shape(&self, _: Option<&str>, _: &str) -> Option<TableShape> {
        None
    }

    fn all_hidden(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The texts as bytes, and what reads them as texts.
fn feed_texts(parser: &str, usual: &[&str], read: impl Fn(&str)) {
    let usual: Vec<&[u8]> = usual.iter().map(|text| text.as_bytes()).collect();
    feed(parser, &usual, |bytes| {
        read(&String::from_utf8_lossy(bytes))
    });
}

const STATEMENTS: [&str; 24] = [
    "SELECT o.id, s.flux FROM Object o JOIN Source s ON o.id = s.objectId WHERE s.flux > 1.5e1 ORDER BY s.flux DESC LIMIT 5, 10",
    "SELECT count(*) FROM Object WHERE qserv_areaspec_circle(17.5, 0.5, 2) AND flag <> 2",
    "SELECT * FROM nearest(Object, (SELECT id AS other, ra, decl FROM Object), 3600)",
    "SELECT CASE WHEN a = 1 THEN 'one' WHEN b BETWEEN 2 AND 3 THEN \"more\" ELSE NULL END x, ROW_NUMBER() OVER (PARTITION BY f ORDER BY ra DESC) FROM t",
    "WITH RECURSIVE b AS (SELECT 1 UNION ALL SELECT n + 1 FROM b) SELECT /*! STRAIGHT_JOIN */ DISTINCT * FROM b NATURAL JOIN c # end",
    "SELECT 0x41, x'4142', b'101', 1e3, .5, 'it''s', 'a\\tb', _utf8mb4'x', N'y', DATE '2010-06-15', INTERVAL 3 DAY + NOW(), -- a\n NULL",
    "SELECT GROUP_CONCAT(DISTINCT name ORDER BY name DESC SEPARATOR '; '), COUNT(DISTINCT id, name) FROM Filter GROUP BY 1 WITH ROLLUP HAVING 1",
    "SELECT @a := @b, @@session.sql_mode, !x, ~y << 3, z <=> NULL, a DIV b, c REGEXP '^f', MATCH(a) AGAINST ('b') FROM DUAL FOR UPDATE",
    "SELECT * FROM DiaSource AS OF '2026-11-20 08:00' AS s WHERE (a, b) IN ((1, 2), ROW(3, 4)); SHOW TABLES LIKE 'a\\_%'",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin, autocommit = 0, @@global.x = DEFAULT, @u = (SELECT 1)",
    "CREATE USER IF NOT EXISTS 'ann'@'%' IDENTIFIED WITH mysql_native_password BY 'p''w', bob@'%', `c@d`",
    "ALTER USER USER() IDENTIFIED BY \"x\"; SET PASSWORD FOR ann = 'x'; ALTER USER ann LIMIT scans = 2, rows = NONE",
    "GRANT SELECT (id, ra, `dec`) ON sky.Object TO bob, PUBLIC; REVOKE survey FROM ann; GRANT UNRELEASED ON sky.* TO survey",
    "ALTER TABLE sky.Source RELEASE WHERE obsTime < NOW() - INTERVAL 2 YEAR",
    "CREATE TABLE IF NOT EXISTS t (id BIGINT NOT NULL DEFAULT 1, `dec` DOUBLE, n VARCHAR(80), d DECIMAL(10, 2) UNSIGNED) PARTITION BY DIRECTOR (id, ra, `dec`)",
    "SUBMIT CREATE TABLE a.b PARTITION BY CHILD OF sky.Star (star) AS SELECT id AS star FROM ann.u",
    "INSERT INTO near (id, x) VALUES (7, DEFAULT), (-8.5e-3, x'00ff'), (NULL, 'a\\'b') ON DUPLICATE KEY UPDATE x = 1",
    "UPDATE near SET note = CONCAT('a', ?), ra = ra + 0.5 WHERE id < 100 ORDER BY id LIMIT 3; DELETE FROM near WHERE `dec` IS NULL",
    "ALTER TABLE near ADD COLUMN (mag DOUBLE DEFAULT 99), RENAME COLUMN note TO remark, DROP COLUMN x, EXPIRE INTERVAL 30 DAY",
    "LOAD DATA LOCAL INFILE 'a.csv' IGNORE INTO TABLE t CHARACTER SET utf8 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' IGNORE 1 LINES (id, @h) SET ra = @h * 15",
    "CREATE OR REPLACE VIEW v (a, b) AS SELECT 1, 2; DROP VIEW IF EXISTS v, w; RENAME TABLE a TO b; TRUNCATE TABLE c",
    "SHOW FULL COLUMNS FROM t FROM sky WHERE Field LIKE 'a%'; DESCRIBE t 'a%'; EXPLAIN ANALYZE FORMAT=JSON SELECT 1; KILL QUERY 7",
    "SELECT JSON_EXTRACT('{\"a\": [1]}', '$.a[0]'), a->'$.b', a->>'$.c', CAST(x AS DECIMAL(10, 2)), CONVERT(y USING utf8mb4) FROM t USE INDEX (i)",
    "SELECT ((((((((1)))))))) + - + 2 FROM (SELECT 1 UNION (SELECT 2) INTERSECT SELECT 3) a WHERE EXISTS (SELECT 1) OR x = ALL (SELECT 2)",
];

#[test]
fn strange_statements_do_no_harm() {
    let connection = Connection::alone(Some("sky".to_owned()));
    feed_texts("statements of MySQL", &STATEMENTS, |text| {
        let _ = mysql::without_passwords(text);
        let text = &*mysql::executed(text);
        for statement in mysql::split_statements(text) {
            let _ = (mysql::command(statement), mysql::placeholders(statement));
            let _ = headings(statement);
        }
        let _ = parse(Dialect::MySql, text, &NoTables, &connection);
    });
}

const ADQL: [&str; 8] = [
    "SELECT TOP 10 s.\"ra\", COUNT(*) AS n FROM sky.\"Star\" AS s WHERE 1 = CONTAINS(POINT('ICRS', ra, dec), CIRCLE('ICRS', 10.5, -20, 0.5)) GROUP BY ra OFFSET 3",
    "SELECT AREA(POLYGON(1, 2, 3, 4, 5, 6)), DISTANCE(POINT(1, 2), POINT(3, 4)), COORD1(CENTROID(BOX('', 1, 2, 3, 4))) FROM TAP_UPLOAD.mine",
    "SELECT * FROM t JOIN u USING (id) WHERE INTERSECTS(REGION('CIRCLE ICRS 10 20 0.5'), POLYGON('ICRS GEOCENTER', 1, 2, 3, 4, 5, 6)) = 1",
    "SELECT IN_UNIT(pmra, 'deg.yr**-1'), COALESCE(a, b), CAST(x AS TIMESTAMP), BITWISE_AND(a, 3), ivo_healpix_index(9, ra, dec) FROM t",
    "WITH b AS (SELECT ALL a FROM t) SELECT b.a FROM b WHERE a ILIKE '%x' UNION ALL SELECT 1 FROM u EXCEPT SELECT 2 FROM v",
    "SELECT REGION('UNION ICRS (CIRCLE 1 2 3 BOX 4 5 6 7 NOT (POLYGON 1 2 3 4 5 6))') FROM t",
    "SELECT REGION('PositionInterval ICRS 1 2 3 4 unit deg resolution 5'), MOC(4, '1/2,3-5 2/9') FROM t -- end",
    "SELECT x FROM t WHERE ra BETWEEN 10h42m AND 1.5 AND NOT EXISTS (SELECT 1 FROM u) ORDER BY 1 ASC",
];

#[test]
fn strange_statements_of_adql_do_no_harm() {
    let connection = Connection::alone(None);
    feed_texts("statements of ADQL", &ADQL, |text| {
        let _ = parse(Dialect::Adql, text, &NoTables, &connection);
    });
}

const STCS: [&str; 8] = [
    "CIRCLE ICRS GEOCENTER SPHERICAL2 10.5 -20 0.5",
    "Polygon FK5 J2000 1 2 3 4 5 6 7 8",
    "UNION ICRS (CIRCLE 1 2 3 BOX 4 5 6 7 NOT (POLYGON 1 2 3 4 5 6) INTERSECTION (CIRCLE 1 1 1 CIRCLE 2 2 2))",
    "Position GALACTIC 1e2 -3.5e-1 Error 0.1 0.1 Size 1 1 PixSize 2 2",
    "PositionInterval ICRS 1 2 3 4 unit deg Resolution 5",
    "Ellipse ICRS BARYCENTER 1 2 3 4 5",
    "AllSky ICRS",
    "Box ICRS 350 89 40 5",
];

#[test]
fn strange_regions_of_stcs_do_no_harm() {
    let connection = Connection::alone(None);
    feed_texts("STC-S", &STCS, |text| {
        let quoted = text.replace('\'', "''");
        let sql =
            format!("SELECT id FROM t WHERE CONTAINS(POINT(ra, dec), REGION('{quoted}')) = 1");
        let _ = parse(Dialect::Adql, &sql, &NoTables, &connection);
    });
}

#[test]
fn strange_regions_do_no_harm() {
    let usual = [
        "circle 10.5 -20 0.5",
        "box 350 -10 10 20",
        "ellipse 10 20 3600 1800 45",
        "polygon 1 2 3 4 5 6",
        "1/0-3 2/16,18,20-31 29/",
        "{\"1\": [0, 2], \"29\": [3458764513820540927]}",
        "0/0-11",
    ];
    feed_texts("regions and coverages", &usual, |text| {
        let _ = (text.parse::<Region>(), text.parse::<Moc>());
    });
}

const VALUES: [&str; 16] = [
    "2026-11-28",
    "2026-11-28 08:55:02.123456",
    "20261128085502",
    "0000-00-00",
    "2024-02-29T23:59:60Z",
    "9999-12-31 23:59:59.9999999",
    "-838:59:59",
    "1 10:11:12.5",
    "-123.456e-7",
    "+0.5",
    "99999999999999999999999999999999999999",
    "0x1F",
    "1e309",
    " 12 abc",
    "inf",
    "é",
];

#[test]
fn strange_values_of_columns_do_no_harm() {
    let integer = |bits, unsigned| StoredType::Integer { bits, unsigned };
    let decimal = |precision, scale| StoredType::Decimal {
        precision,
        scale,
        unsigned: false,
    };
    let real = |single| StoredType::Real {
        single,
        unsigned: false,
    };
    let types = [
        StoredType::Boolean,
        integer(8, true),
        integer(24, false),
        integer(64, false),
        real(true),
        real(false),
        decimal(10, 2),
        decimal(38, 30),
        StoredType::Text(Longest::Characters(3)),
        StoredType::Text(Longest::Trimmed(4)),
        StoredType::Binary {
            longest: Some(5),
            fixed: true,
        },
        StoredType::Date,
        StoredType::Time { digits: 0 },
        StoredType::Time { digits: 6 },
    ];
    let columns = types.map(|ty| StoredColumn {
        name: "c".to_owned(),
        ty,
        nullable: false,
    });
    feed_texts("values of columns", &VALUES, |text| {
        for column in &columns {
            for given in [
                GivenValue::Text(text),
                GivenValue::Number(text),
                GivenValue::Bits(text.as_bytes()),
            ] {
                let _ = column.of_values([given].into_iter());
            }
        }
        let _ = time_of_variable(text);
    });
}

/// What a function gives for texts, as the types that it takes.
fn call(function: &ScalarUDF, texts: &[&str]) -> Option<ColumnarValue> {
    let types = function
        .coerce_types(&vec![DataType::Utf8; texts.len()])
        .ok()?;
    let scalars =
        { texts.iter().zip(&types) }.map(|(text, ty)| ScalarValue::from(*text).cast_to(ty));
    let scalars: Vec<ScalarValue> = scalars.collect::<Result<_, _>>().ok()?;
    let arg_fields: Vec<_> = { types.into_iter() }
        .map(|ty| Arc::new(Field::new("a", ty, true)))
        .collect();
    let scalar_arguments: Vec<Option<&ScalarValue>> = scalars.iter().map(Some).collect();
    let of_field = ReturnFieldArgs {
        arg_fields: &arg_fields,
        scalar_arguments: &scalar_arguments,
    };
    let return_field = function.return_field_from_args(of_field).ok()?;
    let args = scalars.iter().cloned().map(ColumnarValue::Scalar).collect();
    let called = ScalarFunctionArgs {
        args,
        arg_fields,
        number_rows: 1,
        return_field,
        config_options: Arc::new(ConfigOptions::default()),
    };
    function.invoke_with_args(called).ok()
}

/// Arguments with a bar between them.
const ARGUMENTS: [&str; 14] = [
    "^f[0-9]{2,3}(a|b)*?$",
    "fabulous|(?i)^F.*s$",
    "a-b-c|([a-z])-([a-z])|$2\\1",
    "2026-11-28 08:55:02.5|%Y-%m-%d %H:%i:%s.%f",
    "28.11.26|%d.%m.%y",
    "2026-W48 Sat|%X-W%V %a",
    "2026-11-28|%W %M %e %Y %j %U %p %r %T",
    "10:11:12.123456|-1:00:00",
    "{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}|$.a[last].b",
    "[1, 2.5e3, \"x\", true]|$[0 to 1]|$**.b",
    "CIRCLE ICRS 1 2 3",
    "abc|utf8mb4",
    "-12.5e3|10|36",
    "a%b\\_c|a\\%%|!",
];
/// A function that waits by intention.
const SLEEP: &str = "mysql_sleep";

#[test]
fn strange_arguments_of_functions_do_no_harm() {
    let functions = functions::all();
    let text = |it: &&Arc<ScalarUDF>| it.coerce_types(&[DataType::Utf8, DataType::Utf8]).is_ok();
    assert!(functions.iter().filter(text).count() > 50);
    feed_texts("arguments of functions", &ARGUMENTS, |text| {
        let texts: Vec<&str> = text.split('|').take(5).collect();
        // Which one follows from the text, so that its number makes it again.
        let place = { text.bytes() }.fold(texts.len(), |sum, byte| {
            (sum * 31 + usize::from(byte)) % 65_521
        });
        for step in 0..8 {
            let function = &functions[(place + step * 37) % functions.len()];
            if function.name() != SLEEP {
                let _ = call(function, &texts);
            }
        }
    });
    let by_name = [
        "mysql_regexp_like",
        "mysql_regexp_replace",
        "mysql_regexp_substr",
        "mysql_regexp_instr",
    ];
    let by_name = by_name.map(|name| functions.iter().find(|it| it.name() == name).unwrap());
    feed_texts("regular expressions", &ARGUMENTS[..3], |text| {
        let (pattern, rest) = text.split_once('|').unwrap_or((text, "a"));
        for function in by_name {
            let _ = call(function, &[rest, pattern]);
            let _ = call(function, &[rest, pattern, "$1"]);
        }
    });
}
