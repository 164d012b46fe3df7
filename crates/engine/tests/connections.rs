//! Statements that come by connections: what they ask of theirs, and what is kept of them.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_sky;

use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use meridian_engine::{EngineError, NO_DATABASE, Session};
use small_sky::SmallSky;
use sql::connection::VariableValue;
use sql::{Connection, Dialect};

async fn session(sky: &SmallSky) -> Session {
    sky.session_of(Dialect::MySql).await
}

fn connection(id: u32) -> Connection {
    Connection {
        id,
        ..Connection::alone(Some("sky".to_owned()))
    }
}

/// The headings and the rows of an answer, their values as text.
async fn execute(session: &Session, connection: &Connection, text: &str) -> Vec<Vec<String>> {
    let answer = session.execute_for(text, connection).await.unwrap();
    let headings = answer.schema.fields().iter();
    let mut lines = vec![headings.map(|field| field.name().clone()).collect()];
    let batches: Vec<_> = answer.batches.try_collect().await.unwrap();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let values = columns.map(|column| array_value_to_string(column, row).unwrap());
            lines.push(values.collect());
        }
    }
    lines
}

async fn rejected(session: &Session, text: &str) -> EngineError {
    let answer = session.execute_for(text, &connection(1)).await;
    answer.err().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_a_connection_is_of_that_connection() {
    let sky = SmallSky::load().await;
    let session = session(&sky).await;
    for text in [
        "SELECT CONNECTION_ID()",
        "SELECT CONNECTION_ID() FROM Object WHERE id = 7",
    ] {
        for round in 0..4 {
            for id in [7, 8] {
                let answer = execute(&session, &connection(id), text).await;
                assert_eq!(answer[1], [id.to_string()], "{text}, round {round}");
            }
        }
    }
    let typed =
        "select @@Session.autocommit, Version(), current_user, @@sql_mode AS Mode, DATABASE()";
    let answer = execute(&session, &connection(1), typed).await;
    assert_eq!(
        answer[0],
        [
            "@@Session.autocommit",
            "Version()",
            "current_user",
            "Mode",
            "DATABASE()"
        ]
    );
    assert_eq!(answer[1][0], "1");
    assert_eq!(answer[1][2..], ["meridian@localhost", "", "sky"]);
    for (text, number) in [
        ("SELECT @@nosuch", 1193),
        ("SELECT @x := 1", 1235),
        ("SELECT @@nobody.x", 1064),
    ] {
        assert_eq!(
            rejected(&session, text).await.code().number,
            number,
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connections_limit_is_not_kept_for_others() {
    let sky = SmallSky::load().await;
    let session = session(&sky).await;
    let mut limited = connection(1);
    let five = VariableValue::Number(5);
    limited
        .variables
        .set("sql_select_limit", Some(five))
        .unwrap();
    for round in 0..4 {
        for (text, few, all) in [
            ("SELECT id FROM Object WHERE id < 100", 5, 100),
            ("SELECT id FROM Object WHERE id < 100 LIMIT 8", 8, 8),
            ("SELECT sum(1) FROM (SELECT id FROM Object) t", 1, 1),
        ] {
            assert_eq!(
                execute(&session, &limited, text).await.len(),
                few + 1,
                "{text}, round {round}"
            );
            assert_eq!(
                execute(&session, &connection(2), text).await.len(),
                all + 1,
                "{text}, round {round}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_with_their_conditions() {
    let sky = SmallSky::load().await;
    let session = session(&sky).await;
    let first = async |text: &str| -> Vec<String> {
        let lines = execute(&session, &connection(1), text).await;
        lines[1..].iter().map(|line| line[0].clone()).collect()
    };
    assert_eq!(
        first("SHOW TABLES LIKE 'O%'").await,
        ["Object", "ObjectPair"]
    );
    assert_eq!(first("SHOW INDEX FROM Object").await, ["Object"]);
    assert_eq!(first("SHOW INDEX FROM Source").await, Vec::<String>::new());
    assert_eq!(
        first("SHOW VARIABLES LIKE 'auto\\_increment%'").await.len(),
        2
    );
    assert_eq!(
        first("SHOW VARIABLES WHERE Variable_name = \"version\"").await,
        ["version"]
    );
    assert_eq!(
        first("SHOW TABLE STATUS WHERE `Rows` = 360 AND Name LIKE 'F%'").await,
        ["Filter"]
    );
    assert_eq!(first("SHOW FULL COLUMNS FROM Filter").await, ["id", "name"]);
    assert_eq!(
        first("SHOW COLUMNS FROM information_schema.schemata").await[1],
        "SCHEMA_NAME"
    );
    assert_eq!(first("SHOW WARNINGS").await, Vec::<String>::new());
    assert!(
        first("SHOW TABLES FROM information_schema")
            .await
            .contains(&"TABLES".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_known_before_values() {
    let sky = SmallSky::load().await;
    let session = session(&sky).await;
    let headings = sql::headings("SELECT id, ? + 1, Flag FROM Object WHERE id = ?").unwrap();
    let bound = "SELECT id, NULL + 1, Flag FROM Object WHERE id = NULL";
    let columns = session
        .describe(bound, &connection(1), headings)
        .await
        .unwrap();
    let names: Vec<&String> = columns.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["id", "? + 1", "Flag"]);
    assert!(sql::headings("SELECT ? FROM").is_err());
    assert!(sql::headings("SHOW TABLES").unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_tables_are_named_with_theirs() {
    let sky = SmallSky::load().await;
    let session = sky
        .session_in(Dialect::MySql, Some(NO_DATABASE))
        .await
        .unwrap();
    assert_eq!(session.database(), None);
    for text in [
        "SELECT id FROM Object",
        "SHOW TABLES",
        "SHOW COLUMNS FROM Object",
        "DESCRIBE Object",
    ] {
        assert_eq!(rejected(&session, text).await.code().number, 1046, "{text}");
    }
    let counted = execute(&session, &connection(1), "SELECT count(*) FROM sky.Object").await;
    assert_eq!(counted[1], ["360"]);
    let own = sky
        .session_in(Dialect::MySql, Some("Information_Schema"))
        .await
        .unwrap();
    let counted = execute(
        &own,
        &connection(1),
        "SELECT count(*) FROM Schemata WHERE schema_name = 'sky'",
    )
    .await;
    assert_eq!(counted[1], ["1"]);
    let unknown = sky.session_in(Dialect::MySql, Some("nowhere")).await;
    assert_eq!(unknown.unwrap_err().code().number, 1049);
}
