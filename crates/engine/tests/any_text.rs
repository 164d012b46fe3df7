//! Any text at all gets an answer or a sentence: no panic, no endless work, no listing for developers.
//!
//! Texts are statements of all kinds with words taken out, doubled, swapped and put in, and runs of words that are no statement
//! at all. The same few each time, or as many others as `PROPTEST_CASES` says.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_sky;

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::process;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use meridian_engine::{EngineError, Session};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;
use small_sky::SmallSky;
use sql::Dialect;
use sql::interrupt::Interrupt;
use tokio::runtime::Runtime;

/// Far longer than any of these statements takes, on a busy machine and in a debug build.
const LONGEST: Duration = Duration::from_secs(20);
/// Rows after which an answer is left: a comma too many makes a product of tables.
const MOST_ROWS: usize = 100_000;
/// What belongs into no sentence for an astronomer.
const ENTRAILS: [&str; 8] = [
    "panicked",
    "DataFusion",
    "Internal error",
    "Some(",
    "SchemaError",
    "ArrowError",
    "backtrace",
    ".rs:",
];

/// Statements to begin with.
const STATEMENTS: [&str; 40] = [
    "SELECT * FROM Object WHERE id = 17",
    "SELECT o.id, s.flux FROM Object o JOIN Source s ON o.id = s.objectId WHERE s.flux > 1.5e1 ORDER BY s.flux DESC LIMIT 5",
    "SELECT count(*) FROM Object WHERE qserv_areaspec_circle(17.5, 0.5, 2)",
    "SELECT count(*) FROM Object WHERE qserv_areaspec_box(1, -1, 20, 1) = 1 AND flag <> 2",
    "SELECT count(*) FROM Object WHERE qserv_areaspec_poly(1, -1, 5, -1, 3, 2)",
    "SELECT id FROM Object WHERE scisql_s2PtInCircle(ra, decl, 3.5, 0.5, 1.1) = 1",
    "SELECT id FROM Object WHERE scisql_s2PtInEllipse(ra, decl, 3.5, 0.5, 9000, 3600, 45) = 1",
    "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1.2 AND a.id < b.id",
    "SELECT a.id, count(*) FROM Object a, Object b WHERE angSep(a.ra, a.decl, b.ra, b.decl) <= 1.2 GROUP BY a.id",
    "SELECT * FROM nearest(Object, (SELECT id AS other, ra, decl FROM Object), 3600)",
    "SELECT count(*) FROM crossmatch(Object, (SELECT id AS other, ra, decl FROM Object), 4000, 'all', 'all1')",
    "SELECT flag, sum(id), avg(ra), min(decl), max(id) FROM Object GROUP BY flag HAVING count(*) > 3 ORDER BY 2",
    "SELECT chunkId, count(*) FROM Object GROUP BY chunkId",
    "SELECT DISTINCT flag FROM Object UNION ALL SELECT filterId FROM Source EXCEPT SELECT 2",
    "WITH bright AS (SELECT * FROM Source WHERE flux > 100) SELECT count(*) FROM bright b LEFT JOIN Object o ON b.objectId = o.id",
    "SELECT id FROM Object WHERE id IN (SELECT objectId FROM Source WHERE filterId = 3) OR NOT EXISTS (SELECT 1 FROM Filter)",
    "SELECT CASE WHEN flag = 1 THEN 'one' WHEN flag BETWEEN 2 AND 3 THEN \"more\" ELSE NULL END x FROM Object",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY flag ORDER BY ra DESC) FROM Object",
    "SELECT IF(flag & 1, flag | 4, flag ^ 2), flag << 3, flag >> 1, ~flag, -flag, !flag FROM Object",
    "SELECT flag DIV 2, flag MOD 2, flag % 2, id / 0, 5 <=> NULL, flag && 1, flag || 0, flag XOR 1 FROM Object",
    "SELECT CONCAT('a', id, \"b\"), SUBSTRING('hello' FROM 2 FOR 3), LPAD('x', 5, 'ab'), REPLACE('abc', 'b', '') FROM Filter",
    "SELECT DATE_ADD('2010-06-15 12:00:00', INTERVAL 3 MONTH), DATEDIFF('2010-01-01', '2009-01-01'), DATE_FORMAT(NOW(), '%Y-%m')",
    "SELECT 0x41, x'4142', b'101', 1e3, .5, 'it''s', 'a\\tb', DATE '2010-06-15', TRUE, NULL",
    "SELECT CAST(ra AS SIGNED), CAST('12abc' AS DECIMAL(10, 2)), CONVERT(id, CHAR), CAST(id AS UNSIGNED) FROM Object",
    "SELECT name LIKE 'f1%', name REGEXP '^f[0-9]$', name NOT LIKE '%a\\_b' FROM Filter",
    "SELECT f.id FROM Filter f NATURAL JOIN Object",
    "SELECT * FROM Object JOIN Filter USING (id) WHERE ra > ALL (SELECT ra FROM Object WHERE flag = 0) LIMIT 3, 4",
    "SELECT GROUP_CONCAT(DISTINCT name ORDER BY name DESC SEPARATOR '; '), COUNT(DISTINCT id, name) FROM Filter",
    "EXPLAIN SELECT * FROM Object WHERE ra BETWEEN 1 AND 2",
    "SHOW TABLES LIKE 'O%'",
    "SHOW COLUMNS FROM Object FROM sky",
    "DESCRIBE Source",
    "SHOW CREATE TABLE Object",
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'sky'",
    "SELECT fluxToAbMag(flux), abMagToFlux(20.5), nanojanskyToAbMag(flux), scisql_fluxToAbMagSigma(flux, 0.1) FROM Source",
    "SELECT TOP 5 \"id\" FROM \"Object\" ORDER BY id OFFSET 2",
    "SELECT id FROM Object WHERE 1 = CONTAINS(POINT('ICRS', ra, decl), CIRCLE('ICRS', 3.5, 0.5, 1.2))",
    "SELECT DISTANCE(POINT(ra, decl), POINT(3, 4)), AREA(CIRCLE(1, 2, 3)) FROM Object",
    "SELECT /* why */ 1 -- not\n + 2 # at all\n",
    "SELECT t.* FROM (SELECT id, (SELECT max(flux) FROM Source s WHERE s.objectId = o.id) m FROM Object o) t WHERE m > 3",
];

/// Arguments at the ends of their ranges, and of other kinds than a function expects.
const ARGUMENTS: [&str; 22] = [
    "9223372036854775807",
    "0",
    "'abc'",
    "-9223372036854775808",
    "NULL",
    "1e308",
    "'9999-12-31 23:59:59'",
    "-1",
    "18446744073709551615",
    "''",
    "-1e308",
    "3",
    "TIMESTAMP '9999-12-30 21:59:59'",
    "1e-320",
    "'0000-00-00'",
    "0.5",
    "DATE '2010-06-15'",
    "99999999999999999999999999999999999999",
    "'\u{e9}\u{2604}'",
    "(1 = 0)",
    "2147483648",
    "'-99999999999-01-01 99:99:99'",
];

/// What is put in between.
const WORDS: [&str; 84] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "ON",
    "USING",
    "NATURAL",
    "UNION",
    "ALL",
    "DISTINCT",
    "AS",
    "AND",
    "OR",
    "NOT",
    "XOR",
    "IN",
    "IS",
    "NULL",
    "BETWEEN",
    "LIKE",
    "EXISTS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "INTERVAL",
    "DAY",
    "WITH",
    "OVER",
    "TOP",
    "EXPLAIN",
    "SHOW",
    "CAST",
    "DIV",
    "MOD",
    "(",
    ")",
    "((",
    "))",
    ",",
    ".",
    ";",
    "*",
    "+",
    "-",
    "/",
    "%",
    "=",
    "<",
    ">=",
    "<=>",
    "!=",
    "!",
    "||",
    "&&",
    "<<",
    "^",
    "~",
    "'",
    "\"",
    "`",
    "'x'",
    "\"y\"",
    "0",
    "-1",
    "1e308",
    "9223372036854775808",
    "0x",
    "b'1",
    "@@version",
    "?",
    "Object",
    "id",
    "nosuch",
    "é\u{0}",
    "\\",
];

static SKY: LazyLock<(Runtime, SmallSky)> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let sky = runtime.block_on(SmallSky::load());
    (runtime, sky)
});

/// One change of a text that is words.
#[derive(Debug, Clone)]
enum Change {
    Remove(Index),
    Double(Index),
    Swap(Index, Index),
    Insert(Index, &'static str),
    Replace(Index, &'static str),
    /// The text ends in the midst of a word.
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let word = || select(&WORDS[..]);
    prop_oneof![
        at().prop_map(Change::Remove),
        at().prop_map(Change::Double),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        (at(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        (at(), word()).prop_map(|(at, word)| Change::Replace(at, word)),
        at().prop_map(Change::Cut),
    ]
}

/// The words and signs of a text.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    for sign in text.chars() {
        let part = sign.is_alphanumeric() || sign == '_';
        match words.last_mut() {
            Some(word) if part && in_word => word.push(sign),
            _ => words.push(sign.to_string()),
        }
        in_word = part;
    }
    words
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut words = words(text);
    for change in changes {
        let len = words.len();
        if len == 0 {
            break;
        }
        match change {
            Change::Remove(at) => drop(words.remove(at.index(len))),
            Change::Double(at) => words.insert(at.index(len), words[at.index(len)].clone()),
            Change::Swap(a, b) => words.swap(a.index(len), b.index(len)),
            Change::Insert(at, word) => words.insert(at.index(len), format!(" {word} ")),
            Change::Replace(at, word) => words[at.index(len)] = format!(" {word} "),
            Change::Cut(at) => words.truncate(at.index(len)),
        }
    }
    words.concat()
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (select(&STATEMENTS[..]), prop::collection::vec(change(), 0..6))
            .prop_map(|(statement, changes)| changed(statement, &changes)),
        2 => prop::collection::vec(select(&WORDS[..]), 0..40).prop_map(|words| words.join(" ")),
        1 => ".{0,60}",
    ]
}

/// Answers all statements of a text, up to so many rows each.
async fn execute(session: &Session, text: &str) -> Result<(), EngineError> {
    for statement in session.parse(text).await? {
        let mut answer = session.run(text, statement).await?;
        let mut rows = 0;
        while rows < MOST_ROWS {
            let Some(batch) = answer.batches.next().await else {
                break;
            };
            rows += batch?.num_rows();
        }
    }
    Ok(())
}

fn check(dialect: Dialect, text: &str) {
    check_until(LONGEST, dialect, text);
}

/// Checks a statement that is interrupted after `limit`.
fn check_until(limit: Duration, dialect: Dialect, text: &str) {
    let (runtime, sky) = &*SKY;
    let begun = Instant::now();
    let interrupt = Interrupt::new();
    let watched = watch(limit, &interrupt, text);
    let outcome = runtime.block_on(interrupt.scope(async {
        let session = sky.session_of(dialect).await;
        AssertUnwindSafe(execute(&session, text))
            .catch_unwind()
            .await
    }));
    drop(watched);
    assert!(begun.elapsed() < LONGEST, "took too long: {text}");
    let outcome = outcome.unwrap_or_else(|_| panic!("panicked over: {text}"));
    if let Err(error) = outcome {
        let sentence = error.to_string();
        let found = ENTRAILS.iter().find(|word| sentence.contains(**word));
        assert_eq!(found, None, "{text}\ngets: {sentence}");
        assert!(!sentence.trim().is_empty(), "{text}");
    }
}

/// Interrupts the statement after `limit` unless the result has been dropped, and ends the tests if that does not end the statement:
/// what computes without a pause cannot be timed out by its own thread.
fn watch(limit: Duration, interrupt: &Arc<Interrupt>, text: &str) -> Sender<()> {
    let (watched, end) = channel();
    let (interrupt, text) = (Arc::clone(interrupt), text.to_owned());
    thread::spawn(move || {
        let waits = |time| end.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if waits(limit) {
            interrupt.end();
            if waits(LONGEST) {
                // The thread that runs the test cannot fail: it computes.
                let message = format!("goes on after an interrupt: {text}\n");
                let _ = std::io::stderr().write_all(message.as_bytes());
                process::abort();
            }
        }
    });
    watched
}

/// The same texts each time, unless more of them are requested.
fn seed() -> RngSeed {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => RngSeed::Random,
        None => RngSeed::Fixed(20),
    }
}

fn cases() -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: seed(),
        ..ProptestConfig::with_cases(cases())
    })]

    #[test]
    fn any_text_gets_an_answer_or_a_sentence_in_mysql(text in any_text()) {
        check(Dialect::MySql, &text);
    }

    #[test]
    fn any_text_gets_an_answer_or_a_sentence_in_adql(text in any_text()) {
        check(Dialect::Adql, &text);
    }
}

#[test]
fn the_statements_to_begin_with_are_answered() {
    let (runtime, sky) = &*SKY;
    let of_adql = |statement: &str| statement.contains("TOP") || statement.contains("POINT(");
    let rejected = STATEMENTS
        .iter()
        .filter(|text| !of_adql(text))
        .filter_map(|statement| {
            let session = runtime.block_on(sky.session_of(Dialect::MySql));
            let error = runtime.block_on(execute(&session, statement)).err()?;
            Some(format!("{statement}: {error}"))
        });
    assert_eq!(rejected.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn functions_take_any_values() {
    let functions = sql::functions::all();
    let mut names: Vec<&str> = functions
        .iter()
        .map(|function| function.name().trim_start_matches("mysql_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    let argument = |n: usize| ARGUMENTS[n % ARGUMENTS.len()];
    for (at, name) in names.iter().enumerate() {
        for (n, first) in ARGUMENTS.iter().enumerate() {
            // Another choice of the others for each function.
            let (second, third) = (argument(n + at), argument(7 * n + 5 * at + 1));
            for call in [
                format!("{name}({first})"),
                format!("{name}({first}, {second})"),
                format!("{name}({first}, {second}, {third})"),
            ] {
                let dialect = Dialect::ALL[(n + at) % Dialect::ALL.len()];
                // What is asked to wait waits until it is interrupted.
                let limit = match *name {
                    "sleep" => Duration::from_millis(50),
                    _ => LONGEST,
                };
                check_until(limit, dialect, &format!("SELECT {call}"));
            }
        }
    }
}

#[test]
fn operators_take_any_values() {
    const UNITS: [&str; 9] = [
        "MICROSECOND",
        "SECOND",
        "MINUTE",
        "HOUR",
        "DAY",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
    ];
    const OPERATORS: [&str; 16] = [
        "+", "-", "*", "/", "DIV", "MOD", "%", "&", "|", "^", "<<", ">>", "<=>", "=", "LIKE", "XOR",
    ];
    for (n, left) in ARGUMENTS.iter().enumerate() {
        for (m, right) in ARGUMENTS.iter().enumerate() {
            let operator = OPERATORS[(n + 3 * m) % OPERATORS.len()];
            let unit = UNITS[(n + 2 * m) % UNITS.len()];
            for expression in [
                format!("{left} {operator} {right}"),
                format!("{left} + INTERVAL {right} {unit}"),
                format!("{left} - INTERVAL {right} {unit}"),
                format!("TIMESTAMPDIFF({unit}, {left}, {right})"),
            ] {
                check(Dialect::MySql, &format!("SELECT {expression}"));
            }
        }
        for cast in [
            "SIGNED",
            "UNSIGNED",
            "CHAR",
            "CHAR(3)",
            "DOUBLE",
            "DECIMAL(38, 10)",
            "DECIMAL(10, 2)",
            "DATE",
            "DATETIME",
            "BINARY",
        ] {
            check(Dialect::MySql, &format!("SELECT CAST({left} AS {cast})"));
        }
    }
}

#[test]
fn nesting_and_length_are_bounded_by_an_error() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("SELECT {}1{}", open.repeat(depth), close.repeat(depth))
    };
    let megabyte = |piece: &str| piece.repeat(1_000_000 / piece.len());
    let texts = [
        nested("(", ")", 20_000),
        nested("abs(", ")", 20_000),
        nested("(SELECT ", ")", 5_000),
        nested("CASE WHEN ", " THEN 1 END", 5_000),
        nested("NOT ", "", 100_000),
        nested("- ", "", 100_000),
        nested("/*", "*/", 10_000),
        format!("SELECT 1{}", megabyte(" + 1")),
        format!("SELECT 1{}", megabyte(" AND 1 = 1")),
        format!("SELECT 1{}", megabyte(", 1")),
        format!("SELECT 1{}", megabyte(" UNION ALL SELECT 1")),
        format!("SELECT '{}'", megabyte("x")),
        format!(
            "SELECT id FROM Object WHERE id IN (1{})",
            ", 1".repeat(30_000)
        ),
        format!("SELECT {}", megabyte("x")),
        format!(
            "SELECT * FROM Object{}",
            megabyte(" JOIN Object USING (id)")
        ),
        megabyte("("),
        megabyte("SELECT "),
        megabyte("'"),
        megabyte(";"),
        "SELECT 1;".repeat(300),
        megabyte("\u{0}"),
    ];
    for dialect in Dialect::ALL {
        for text in &texts {
            check_long(dialect, text);
        }
    }
}

/// Memberships within each other whose unknown matters.
fn nested_memberships(depth: usize) -> String {
    let open = "SELECT flag FROM Object WHERE id = 1 OR flag NOT IN (".repeat(depth);
    format!("{open}1{}", ")".repeat(depth))
}

#[test]
fn memberships_within_each_other_take_a_bounded_time() {
    for depth in [1, 4, 13] {
        check(Dialect::MySql, &nested_memberships(depth));
    }
}

/// As [`check`], of a text that is too long to be shown.
fn check_long(dialect: Dialect, text: &str) {
    let shown: String = text.chars().take(60).collect();
    let begun = Instant::now();
    let (runtime, sky) = &*SKY;
    let outcome = runtime.block_on(async {
        let session = sky.session_of(dialect).await;
        AssertUnwindSafe(execute(&session, text))
            .catch_unwind()
            .await
    });
    let took = begun.elapsed();
    assert!(outcome.is_ok(), "{dialect}: panicked over {shown}");
    assert!(took < 3 * LONGEST, "{dialect}: {took:?} for {shown}");
}
