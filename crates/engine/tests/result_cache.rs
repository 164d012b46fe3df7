//! By what a result is known: which statements have a key at all, and which have the same.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_sky;

use std::sync::Arc;
use std::time::Duration;

use meridian_engine::{CachedRows, QueryExecution, ResultCache, ResultKey, Session};
use small_sky::{SmallSky, in_order};
use sql::Connection;
use sql::Dialect::{self, Adql, MySql};

const MEMORY: u64 = 1 << 30;

struct Keys {
    sky: SmallSky,
    results: Arc<ResultCache>,
}

impl Keys {
    async fn new() -> Self {
        Self {
            sky: SmallSky::load().await,
            results: ResultCache::new(Duration::ZERO, MEMORY),
        }
    }

    async fn session(&self, dialect: Dialect) -> Session {
        self.sky.session_with(&self.results, dialect, "sky").await
    }

    async fn of(&self, dialect: Dialect, sql: &str) -> Option<ResultKey> {
        self.of_connection(dialect, sql, &Connection::alone(None))
            .await
    }

    async fn of_connection(
        &self,
        dialect: Dialect,
        sql: &str,
        connection: &Connection,
    ) -> Option<ResultKey> {
        let session = self.session(dialect).await;
        let parsed = session.parse_one_for(sql, connection).await.unwrap();
        let prepared = session.prepare(sql, parsed).await.unwrap();
        session.result_key(&prepared)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_tables_alone_has_a_key() {
    let keys = Keys::new().await;
    for sql in [
        "SELECT count(*) FROM Object",
        "SELECT o.id, s.flux FROM Object o JOIN Source s ON o.id = s.objectId ORDER BY 1, 2",
        "SELECT flag, avg(ra) FROM Object GROUP BY flag HAVING count(*) > 3",
        "SELECT id FROM Object WHERE id IN (SELECT objectId FROM Source WHERE flux > 7)",
        "SELECT id, (SELECT max(flux) FROM Source) FROM Object LIMIT 3",
        "SELECT id, row_number() OVER (ORDER BY ra) FROM Object",
        "SELECT id, sum(ra) OVER (PARTITION BY flag) FROM Object",
        "SELECT id FROM Object WHERE scisql_s2PtInCircle(ra, decl, 5, 0.5, 3) = 1",
        "SELECT count(*) FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1.5",
        "SELECT * FROM nearest(Object, Object, 5000)",
        "SELECT id FROM Object UNION SELECT id FROM Source",
        "WITH x AS (SELECT id FROM Object) SELECT count(*) FROM x a, x b WHERE a.id = b.id",
        "SELECT chunkId, count(*) FROM Object GROUP BY chunkId",
        "SELECT CONCAT('a', name), CASE WHEN id > 3 THEN 1 ELSE 0 END FROM Filter",
        "SELECT GROUP_CONCAT(name ORDER BY id SEPARATOR '-') FROM Filter",
        "SELECT DISTINCT flag FROM Object",
    ] {
        assert!(keys.of(MySql, sql).await.is_some(), "{sql}");
    }
    let points = "SELECT id FROM Object WHERE 1 = CONTAINS(POINT(ra, decl), CIRCLE(5, 0.5, 3))";
    assert!(keys.of(Adql, points).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_more_has_none() {
    let keys = Keys::new().await;
    for sql in [
        "SELECT NOW(), id FROM Object",
        "SELECT id FROM Object WHERE CURDATE() > '2000-01-01'",
        "SELECT UNIX_TIMESTAMP() FROM Object",
        "SELECT UTC_TIMESTAMP()",
        "SELECT CURRENT_TIMESTAMP",
        "SELECT RAND(), id FROM Object",
        "SELECT id FROM Object ORDER BY RAND() LIMIT 3",
        "SELECT UUID()",
        "SELECT SLEEP(0)",
        "SELECT count(*) FROM Object WHERE SLEEP(0) = 0 AND id < 0",
        "SELECT max(ra + RAND()) FROM Object",
        "SELECT sum(RAND()) OVER () FROM Object",
        "SELECT id FROM Object WHERE id IN (SELECT objectId FROM Source WHERE flux > RAND())",
        "SELECT id, (SELECT max(flux + RAND()) FROM Source) FROM Object",
        "SELECT x FROM (SELECT NOW() AS x) t",
        "WITH x AS (SELECT RAND() AS r) SELECT r FROM x",
        "SELECT CONNECTION_ID(), id FROM Object",
        "SELECT id FROM Object WHERE ra > @limit",
        "SELECT USER()",
        "SELECT DATABASE()",
        "SELECT @@sql_mode",
        "SELECT FOUND_ROWS()",
        "SELECT * FROM information_schema.TABLES",
        "SELECT count(*) FROM Object, information_schema.PROCESSLIST",
        "SELECT id FROM Object WHERE id IN (SELECT count(*) FROM information_schema.COLUMNS)",
        "SELECT SQL_NO_CACHE count(*) FROM Object",
        "SHOW TABLES",
        "DESCRIBE Object",
        "EXPLAIN SELECT count(*) FROM Object",
        "EXPLAIN ANALYZE SELECT count(*) FROM Object",
    ] {
        assert!(keys.of(MySql, sql).await.is_none(), "{sql}");
    }
    for sql in [
        "SELECT * FROM TAP_SCHEMA.tables",
        "SELECT count(*) FROM Object, TAP_SCHEMA.columns",
    ] {
        assert!(keys.of(Adql, sql).await.is_none(), "{sql}");
    }
    let without = keys.sky.session_of(MySql).await;
    let parsed = without.parse_one("SELECT count(*) FROM Object").await;
    let prepared = without.prepare("", parsed.unwrap()).await.unwrap();
    assert!(without.result_key(&prepared).is_none(), "there is no cache");
}

/// Every way in which two texts can differ, and whether they are the same statement all the same.
#[tokio::test(flavor = "multi_thread")]
async fn texts_that_mean_the_same_have_the_same_key() {
    let keys = Keys::new().await;
    let statement = "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75";
    let key = keys.of(MySql, statement).await.unwrap();
    for same in [
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75;",
        "select ID,  RA+1\nFROM\tobject -- all of them\nWHERE FLAG=2 and DECL<0.75",
        "SELECT /* some */ id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT SQL_CACHE id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT `id`, ra + 1 FROM `Object` WHERE flag = 2 AND decl < 0.75",
    ] {
        let other = keys.of(MySql, same).await.unwrap();
        // Quotes are part of the text as it was read; no more than a result is lost by that.
        assert!(other == key || same.contains('`'), "{same}");
    }
    for other in [
        "SELECT id, ra + 2 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT id, ra - 1 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT id, ra + 1.0 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.750001",
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl <= 0.75",
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 OR decl < 0.75",
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75 LIMIT 3",
        "SELECT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75 ORDER BY ra",
        "SELECT DISTINCT id, ra + 1 FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT id, ra + 1 AS x FROM Object WHERE flag = 2 AND decl < 0.75",
        "SELECT ra + 1, id FROM Object WHERE flag = 2 AND decl < 0.75",
    ] {
        assert_ne!(keys.of(MySql, other).await.unwrap(), key, "{other}");
    }
    // Letters of texts count.
    let named = |name: &str| format!("SELECT id FROM Filter WHERE name = '{name}'");
    let [small, large] = [named("f1"), named("F1")];
    assert_ne!(keys.of(MySql, &small).await, keys.of(MySql, &large).await);
    // Whole numbers are divided otherwise there.
    let division = "SELECT id / 2 FROM Object";
    assert_ne!(
        keys.of(MySql, division).await,
        keys.of(Adql, division).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_connection_is_part_of_the_key() {
    let keys = Keys::new().await;
    let sql = "SELECT id FROM Object ORDER BY id";
    let all = keys.of(MySql, sql).await.unwrap();
    let mut limited = Connection::alone(None);
    let mut known = vec![all];
    for rows in [3, 4] {
        let value = sql::connection::VariableValue::Number(rows);
        let set = limited.variables.set("sql_select_limit", Some(value));
        set.unwrap();
        let key = keys.of_connection(MySql, sql, &limited).await.unwrap();
        assert!(!known.contains(&key), "{rows}");
        known.push(key);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_changes_has_other_keys() {
    let keys = Keys::new().await;
    let of_objects = "SELECT count(*) FROM Object WHERE ra > 7";
    let of_sources = "SELECT count(*) FROM Source WHERE flux > 7";
    let of_none = "SELECT objectId FROM Source WHERE objectId = 100000";
    let mut before = Vec::new();
    for sql in [of_objects, of_sources, of_none] {
        before.push(keys.of(MySql, sql).await.unwrap());
    }
    keys.sky.replace_sources().await;
    assert_eq!(keys.of(MySql, of_objects).await.unwrap(), before[0]);
    assert_ne!(keys.of(MySql, of_sources).await.unwrap(), before[1]);
    // No piece of the new table is read, either.
    assert_ne!(keys.of(MySql, of_none).await.unwrap(), before[2]);
}

/// The rows of a statement that runs as a query of this number, and the number of the query that answered it.
async fn execute(session: &Session, sql: &str, number: u64) -> (String, Option<u64>) {
    let interrupt = sql::Interrupt::new();
    let execution = Arc::new(QueryExecution::new().with_number(number));
    let asking = async {
        assert!(execution.attach());
        in_order(session.execute(sql).await.unwrap()).await
    };
    let rows = interrupt.scope(asking).await;
    (rows, execution.cached_from())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_statement_gets_the_rows_under_its_own_headings() {
    let keys = Keys::new().await;
    let session = keys.session(MySql).await;
    let sql = "SELECT id, ra FROM Object WHERE flag = 1";
    let (rows, from) = execute(&session, sql, 1).await;
    assert_eq!(from, None);
    for number in 2..6 {
        assert_eq!(
            execute(&session, sql, number).await,
            (rows.clone(), Some(1))
        );
    }
    let (other, from) = execute(&session, "SELECT ID, RA FROM Object WHERE flag = 1", 9).await;
    assert_eq!(from, Some(1));
    assert_eq!(other.to_lowercase(), rows);
    assert!(other.contains("| ID") && rows.contains("| id"));
    assert_eq!(keys.results.hits(), 5);
    assert!(keys.results.num_bytes() > 0);
    // A result of no rows is one, too.
    let nothing = "SELECT id FROM Object WHERE ra < -1";
    let (rows, _) = execute(&session, nothing, 10).await;
    assert_eq!(execute(&session, nothing, 11).await, (rows, Some(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_read_to_its_end_is_not_kept() {
    let keys = Keys::new().await;
    let session = keys.session(MySql).await;
    let sql = "SELECT id, ra FROM Object WHERE flag = 1";
    let interrupt = sql::Interrupt::new();
    let execution = Arc::new(QueryExecution::new().with_number(1));
    let leaving = async {
        execution.attach();
        let mut result = session.execute(sql).await.unwrap();
        futures::StreamExt::next(&mut result.batches).await
    };
    assert!(interrupt.scope(leaving).await.is_some());
    assert_eq!(execute(&session, sql, 2).await.1, None);
    // A statement whose plan is known is noted first, and kept when it is asked again.
    assert_ne!(execute(&session, sql, 3).await.1, Some(1));
    assert!(matches!(execute(&session, sql, 4).await.1, Some(2 | 3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_took_less_are_not_kept() {
    let sky = SmallSky::load().await;
    let results = ResultCache::new(Duration::from_secs(3600), MEMORY);
    let session = sky.session_with(&results, MySql, "sky").await;
    for number in 0..4 {
        let (_, from) = execute(&session, "SELECT sum(ra) FROM Object", number).await;
        assert_eq!(from, None);
    }
    assert_eq!(results.num_bytes(), 0);
}

/// A result on the disk that has expired is none, and is forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_gone_answer_nothing() {
    let keys = Keys::new().await;
    let session = keys.session(MySql).await;
    let sql = "SELECT sum(ra) FROM Object WHERE flag = 1";
    let key = keys.of(MySql, sql).await.unwrap();
    keys.results.insert(key, CachedRows::stored(7, || None));
    assert_eq!(execute(&session, sql, 8).await.1, None);
    assert_eq!(execute(&session, sql, 9).await.1, Some(8));
}
