//! The same questions to one process and to a cluster of two executors with one core each: the same multisets of rows.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_proto::physical_plan::{
    AsExecutionPlan, DefaultPhysicalProtoConverter, PhysicalExtensionCodec,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use engine::exec::{ChunkPhaseExec, PieceScanExec};
use engine::{Answer, Archive, PlanCodec, Session, SessionOptions};
use futures::TryStreamExt;
use meridian_cluster::{ClusterOptions, ClusterSession, LocalCluster};
use tempfile::TempDir;

/// How answers are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum As {
    /// The same rows, in any order.
    Rows,
    /// The same rows in the same order.
    List,
    /// Any rows, as many of them: which ones is left open by the question.
    Count,
}

/// The questions, by what they are to hit.
const QUESTIONS: &[(As, &str)] = &[
    // Scans, cones, boxes through right ascension 0, the poles.
    (As::Rows, "SELECT * FROM Object"),
    (
        As::Rows,
        "SELECT objectId, ra_PS, flux * 2 FROM Object WHERE flux > 60",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE scisql_s2PtInCircle(ra_PS, decl_PS, 120, 10, 15) = 1",
    ),
    (
        As::Rows,
        "SELECT objectId, mag FROM Object WHERE qserv_areaspec_box(350, -15, 10, 15)",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE qserv_areaspec_circle(0, 90, 1) AND class = 0",
    ),
    (
        As::Rows,
        "SELECT count(*) FROM Object WHERE scisql_angSep(ra_PS, decl_PS, 0, 0) < 20",
    ),
    (
        As::Rows,
        "SELECT * FROM Source WHERE qserv_areaspec_box(300, -20, 340, 20)",
    ),
    // Keys.
    (As::Rows, "SELECT * FROM Object WHERE objectId = 77"),
    (
        As::Rows,
        "SELECT * FROM Object WHERE objectId IN (1, 500, 501, 1999, 77777)",
    ),
    (As::Rows, "SELECT * FROM Source WHERE objectId = 77"),
    (
        As::Rows,
        "SELECT count(*), sum(flux) FROM Source WHERE objectId IN (3, 51475, 700)",
    ),
    // No chunk at all, no row at all, not even a table.
    (As::Rows, "SELECT * FROM Object WHERE objectId = 123456789"),
    (
        As::Rows,
        "SELECT count(*), sum(flux), min(mag) FROM Object WHERE objectId = 123456789",
    ),
    (
        As::Rows,
        "SELECT class, count(*) FROM Object WHERE objectId = 123456789 GROUP BY class",
    ),
    (As::Rows, "SELECT count(*) FROM Object WHERE 1 = 0"),
    (As::Rows, "SELECT objectId FROM Object WHERE flux < -1"),
    (As::Rows, "SELECT 1 + 1 AS two, 'x' AS letter"),
    (
        As::Rows,
        "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, letter)",
    ),
    // Aggregates: without groups, with few groups, with the director's key, exact DISTINCT, states of any kind.
    (As::Rows, "SELECT count(*) FROM Object"),
    (
        As::Rows,
        "SELECT count(*), count(flux), sum(flux), avg(flux), min(name), max(mag) FROM Object",
    ),
    (
        As::Rows,
        "SELECT class, count(*), sum(flux), avg(mag) FROM Object GROUP BY class",
    ),
    (
        As::Rows,
        "SELECT name, class, max(flux) AS brightest FROM Object GROUP BY name, class HAVING count(*) > 1",
    ),
    (
        As::Rows,
        "SELECT objectId, count(*), sum(flux) FROM Source GROUP BY objectId",
    ),
    (
        As::Rows,
        "SELECT count(DISTINCT class), count(DISTINCT name) FROM Object",
    ),
    (As::Rows, "SELECT DISTINCT class FROM Object"),
    (
        As::Rows,
        "SELECT class, median(flux), round(stddev(flux), 6) FROM Object GROUP BY class",
    ),
    (
        As::Rows,
        "SELECT class, name, count(*) FROM Object WHERE class < 2 GROUP BY GROUPING SETS ((class), (class, name), ())",
    ),
    (
        As::Rows,
        "SELECT floor(ra_PS / 30) AS bin, count(*) FROM Object GROUP BY floor(ra_PS / 30)",
    ),
    (
        As::Rows,
        "SELECT approx_distinct(class), bool_and(flux > 0), array_length(array_agg(class)) FROM Object",
    ),
    // ORDER BY, LIMIT, OFFSET.
    (
        As::List,
        "SELECT objectId, flux FROM Object ORDER BY flux DESC, objectId LIMIT 17",
    ),
    (
        As::List,
        "SELECT objectId, flux FROM Object ORDER BY flux, objectId LIMIT 10 OFFSET 100",
    ),
    (
        As::List,
        "SELECT objectId FROM Object ORDER BY ra_PS, objectId",
    ),
    (
        As::List,
        "SELECT class, count(*) AS n FROM Object GROUP BY class ORDER BY class NULLS FIRST LIMIT 3",
    ),
    (As::Count, "SELECT * FROM Source LIMIT 123"),
    (As::Count, "SELECT * FROM Source LIMIT 100 OFFSET 5950"),
    (
        As::Count,
        "SELECT objectId FROM Object WHERE flux > 10 LIMIT 5",
    ),
    // Joins that stay within pieces, of every kind.
    (
        As::Rows,
        "SELECT o.objectId, s.sourceId, s.flux - o.flux FROM Object o JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        As::Rows,
        "SELECT a.objectId, b.objectId FROM Object a, Object b
         WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) <= 3 AND a.objectId < b.objectId",
    ),
    (
        As::Rows,
        "SELECT a.objectId AS a, b.objectId AS b FROM Object a
         LEFT JOIN Object b ON scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < a.flux / 50 AND a.class <> b.class",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object a WHERE NOT EXISTS (SELECT 1 FROM Object b
         WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra_PS, b.decl_PS) < 1 AND a.objectId <> b.objectId)",
    ),
    (
        As::Rows,
        "SELECT o.objectId, s.sourceId FROM Object o LEFT JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        As::Rows,
        "SELECT o.objectId, s.sourceId FROM Object o RIGHT JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        As::Rows,
        "SELECT o.objectId, s.sourceId FROM Object o FULL JOIN Source s ON o.objectId = s.objectId",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object o WHERE EXISTS (SELECT 1 FROM Source s WHERE s.objectId = o.objectId AND s.flux > 400)",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source WHERE objectId IS NOT NULL)",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE objectId NOT IN (SELECT objectId FROM Source)",
    ),
    (
        As::Rows,
        "SELECT f.filterName, count(*), sum(s.flux) FROM Object o JOIN Source s ON o.objectId = s.objectId JOIN Filter f ON s.filterId = f.filterId GROUP BY f.filterName",
    ),
    (
        As::Rows,
        "SELECT o.objectId, count(s.sourceId) FROM Object o LEFT JOIN Source s ON s.objectId = o.objectId AND s.flux > 100 GROUP BY o.objectId",
    ),
    // The match table: pairs once, across chunks.
    (As::Rows, "SELECT count(*), sum(separation) FROM Pair"),
    (
        As::Rows,
        "SELECT o.objectId, g.gaiaId, m.separation FROM Object o JOIN Pair m ON o.objectId = m.objectId JOIN Gaia g ON g.gaiaId = m.gaiaId",
    ),
    (
        As::Rows,
        "SELECT count(*) FROM Pair m JOIN Gaia g ON g.gaiaId = m.gaiaId WHERE g.g < 16",
    ),
    (
        As::Rows,
        "SELECT m.gaiaId FROM Pair m LEFT JOIN Object o ON o.objectId = m.objectId WHERE o.objectId IS NULL",
    ),
    // Joins that do not stay within pieces: hash joins of every kind, broadcast or not, and nested loops, which give rows of
    // a build side that all tasks share.
    (
        As::Rows,
        "SELECT a.objectId, b.gaiaId FROM Object a JOIN Gaia b ON a.objectId + 10000 = b.gaiaId",
    ),
    (
        As::Rows,
        "SELECT a.objectId, b.gaiaId FROM Object a LEFT JOIN Gaia b ON a.objectId + 10001 = b.gaiaId",
    ),
    (
        As::Rows,
        "SELECT a.objectId, b.gaiaId FROM Object a FULL JOIN Gaia b ON a.objectId + 10001 = b.gaiaId",
    ),
    (
        As::Rows,
        "SELECT a.objectId FROM Object a WHERE a.objectId + 10000 NOT IN (SELECT gaiaId FROM Gaia)",
    ),
    (
        As::Rows,
        "SELECT a.objectId FROM Object a WHERE a.flux IN (SELECT flux FROM Source WHERE filterId = 2)",
    ),
    (
        As::Rows,
        "SELECT f.filterName, count(g.gaiaId) FROM Filter f LEFT JOIN Gaia g ON g.g < 14.5 + f.filterId AND g.g > 13.9 + f.filterId GROUP BY f.filterName",
    ),
    (
        As::Rows,
        "SELECT f.filterId, o.objectId FROM Filter f LEFT JOIN Object o ON o.flux < f.filterId - 2",
    ),
    (
        As::Rows,
        "SELECT f.filterId, o.objectId FROM (SELECT * FROM Object WHERE objectId < 40) o FULL JOIN Filter f ON o.flux < f.filterId * 2",
    ),
    (
        As::Rows,
        "SELECT f.filterId FROM Filter f WHERE NOT EXISTS (SELECT 1 FROM Object o WHERE o.flux < f.filterId - 3)",
    ),
    (
        As::Rows,
        "SELECT f.filterId FROM Filter f WHERE EXISTS (SELECT 1 FROM Object o WHERE o.flux > f.filterId * 40)",
    ),
    (
        As::Rows,
        "SELECT a.objectId, g.gaiaId FROM (SELECT * FROM Object WHERE flux < 2) a LEFT JOIN (SELECT * FROM Gaia WHERE g < 14.2) g ON scisql_angSep(a.ra_PS, a.decl_PS, g.ra, g.dec) < 3",
    ),
    (
        As::Rows,
        "SELECT count(*) FROM Object a, Gaia b WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) < 0.0015",
    ),
    (As::Rows, "SELECT count(*) FROM Filter CROSS JOIN Object"),
    // Windows.
    (
        As::Rows,
        "SELECT sourceId, row_number() OVER (PARTITION BY objectId ORDER BY taken, sourceId) FROM Source",
    ),
    (
        As::Rows,
        "SELECT objectId, rank() OVER (ORDER BY flux) FROM Object",
    ),
    (
        As::Rows,
        "SELECT objectId, sum(flux) OVER (PARTITION BY class ORDER BY objectId ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM Object",
    ),
    // UNION, subqueries, common table expressions.
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE class = 1 UNION ALL SELECT gaiaId FROM Gaia WHERE g < 15",
    ),
    (
        As::Rows,
        "SELECT class FROM Object UNION SELECT filterId FROM Filter",
    ),
    (
        As::Rows,
        "SELECT count(*) FROM Object UNION ALL SELECT count(*) FROM Source UNION ALL SELECT 7",
    ),
    (
        As::Rows,
        "SELECT class FROM Object WHERE objectId < 900 INTERSECT SELECT filterId FROM Filter",
    ),
    (
        As::Rows,
        "SELECT class FROM Object EXCEPT SELECT filterId FROM Filter WHERE filterId > 1",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object WHERE flux > (SELECT avg(flux) FROM Object)",
    ),
    (
        As::Rows,
        "SELECT objectId FROM Object o WHERE flux > (SELECT avg(s.flux) FROM Source s WHERE s.objectId = o.objectId)",
    ),
    (
        As::Rows,
        "SELECT (SELECT max(flux) FROM Source) - max(flux), (SELECT count(*) FROM Filter) FROM Object",
    ),
    (
        As::Rows,
        "WITH bright AS (SELECT objectId, flux, class FROM Object WHERE flux > 100), n AS (SELECT class, count(*) AS c FROM bright GROUP BY class) SELECT b.objectId, n.c FROM bright b JOIN n ON b.class = n.class",
    ),
    (
        As::List,
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t ORDER BY n",
    ),
    // The number of the chunk.
    (
        As::Rows,
        "SELECT chunkId, count(*), min(objectId) FROM Object GROUP BY chunkId",
    ),
    (
        As::Rows,
        "SELECT s.chunkId, o.objectId FROM Source s JOIN Object o ON s.objectId = o.objectId WHERE o.chunkId > 100",
    ),
    // The replicated table alone, and texts that are NULL.
    (As::List, "SELECT * FROM Filter ORDER BY filterId"),
    (
        As::Rows,
        "SELECT coalesce(filterName, '?'), length(filterName) FROM Filter",
    ),
    // What only the front end knows.
    (
        As::Rows,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'sky'",
    ),
];

struct Both {
    local: Session,
    remote: ClusterSession,
    cluster: LocalCluster,
    archive: Arc<Archive>,
    _dir: TempDir,
}

async fn both() -> Both {
    let dir = TempDir::new().unwrap();
    common::load_sky(dir.path()).await;
    let archive = Archive::open(&dir.path().join("data")).await.unwrap();
    let local = Session::new(Arc::clone(&archive), &SessionOptions::default())
        .await
        .unwrap();
    let options = ClusterOptions {
        executors: 2,
        slots: 1,
        memory: None,
    };
    let cluster = LocalCluster::start(Arc::clone(&archive), &options)
        .await
        .unwrap();
    let remote = cluster.session(&SessionOptions::default()).await.unwrap();
    Both {
        local,
        remote,
        cluster,
        archive,
        _dir: dir,
    }
}

async fn rows(answer: Answer) -> (Vec<String>, Vec<String>) {
    let headings = answer
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
    (headings, batches.iter().flat_map(texts).collect())
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|c| ArrayFormatter::try_new(c, &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|c| c.value(row).to_string())
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_answers_as_one_process_does() {
    let both = both().await;
    let pieces = phases(&both.local.ask("SELECT * FROM Object").await.unwrap().plan);
    assert!(
        pieces[0].contains("of") && piece_count(&pieces[0]) >= 8,
        "{pieces:?}"
    );
    let mut wrong = Vec::new();
    for (how, question) in QUESTIONS {
        if let Err(what) = compare(&both, *how, question).await {
            wrong.push(format!("{question}\n    {what}"));
        }
    }
    both.cluster.stop().await;
    assert!(
        wrong.is_empty(),
        "{} questions:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

async fn compare(both: &Both, how: As, question: &str) -> Result<(), String> {
    let (headings, mut expected) = rows(
        both.local
            .ask(question)
            .await
            .map_err(|e| format!("locally: {e}"))?,
    )
    .await;
    let answer = both
        .remote
        .ask(question)
        .await
        .map_err(|e| format!("on the cluster: {e}"))?;
    let plan = displayable(answer.plan.as_ref()).indent(false).to_string();
    let (remote_headings, mut given) = rows(answer).await;
    if headings != remote_headings {
        return Err(format!("headed {headings:?} and {remote_headings:?}"));
    }
    if how == As::Rows {
        expected.sort();
        given.sort();
    }
    let same = if how == As::Count {
        expected.len() == given.len()
    } else {
        expected == given
    };
    if same {
        return Ok(());
    }
    let first = expected.iter().zip(&given).find(|(a, b)| a != b);
    Err(format!(
        "{} rows and {}, first difference {first:?}\n{plan}",
        expected.len(),
        given.len()
    ))
}

/// What the phases of a plan say of themselves.
fn phases(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let own = plan
        .downcast_ref::<ChunkPhaseExec>()
        .map(|phase| phase.summary().text.clone());
    own.into_iter()
        .chain(plan.children().into_iter().flat_map(phases))
        .collect()
}

/// The number before `pieces`.
fn piece_count(summary: &str) -> usize {
    let words: Vec<&str> = summary.split([' ', ';', ',']).collect();
    let at = words.iter().position(|word| *word == "pieces").unwrap();
    words[at - 1].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_survive_the_journey() {
    let both = both().await;
    let codec = PlanCodec::new(Arc::clone(&both.archive));
    for (_, question) in QUESTIONS {
        if question.contains("information_schema") || question.contains("RECURSIVE") {
            continue;
        }
        let session = both.remote.session();
        let parsed = session.parse_one(question).await.unwrap();
        let plan = session.prepare(question, parsed).await.unwrap().plan;
        let arrived = sent(&plan, session, &codec);
        let phases = (nodes(&plan), nodes(&arrived));
        assert_eq!(phases.0.len(), phases.1.len(), "{question}");
        for (before, after) in phases.0.iter().zip(&phases.1) {
            assert_eq!(shown(after), shown(before), "{question}");
            assert_eq!(bytes(after, &codec), bytes(before, &codec), "{question}");
        }
    }
    both.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_pieces_survives_the_journey() {
    let both = both().await;
    let codec = PlanCodec::new(Arc::clone(&both.archive));
    let session = both.remote.session();
    let question = "SELECT class, avg(ra_PS) FROM Object GROUP BY class";
    let plan = both.remote.ask(question).await.unwrap().plan;
    assert!(
        shown(&plan).contains("PieceOrderExec") && shown(&plan).contains("numbered"),
        "{}",
        shown(&plan)
    );
    assert_eq!(shown(&sent(&plan, session, &codec)), shown(&plan));
    both.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sum_is_the_same_to_the_last_bit_every_time() {
    let both = both().await;
    // Nothing about these numbers is exact.
    let sums = "sum(ra_PS * decl_PS), avg(sqrt(ra_PS)), stddev(ra_PS / 3)";
    let all = format!("SELECT {sums} FROM Object");
    let (_, first) = rows(both.remote.ask(&all).await.unwrap()).await;
    let groups = format!("SELECT class, {sums} FROM Object GROUP BY class ORDER BY class");
    let (_, local) = rows(both.local.ask(&groups).await.unwrap()).await;
    for _ in 0..5 {
        assert_eq!(rows(both.remote.ask(&all).await.unwrap()).await.1, first);
        // Groups meet their states one by one, here as there; without groups a whole batch is added up at once.
        assert_eq!(rows(both.remote.ask(&groups).await.unwrap()).await.1, local);
    }
    both.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_may_be_lost() {
    let mut both = both().await;
    // Several stages: one for each side of the join, the join itself, the sums.
    let question = "SELECT a.class, count(*), sum(b.g) FROM Object a, Gaia b \
        WHERE scisql_angSep(a.ra_PS, a.decl_PS, b.ra, b.dec) < 5 GROUP BY a.class";
    let (_, mut expected) = rows(both.local.ask(question).await.unwrap()).await;
    expected.sort();
    let mut under_way = 0;
    for pause in [100, 400, 900, 1600] {
        let options = ClusterOptions {
            executors: 2,
            slots: 1,
            memory: None,
        };
        let mut cluster = LocalCluster::start(Arc::clone(&both.archive), &options)
            .await
            .unwrap();
        let session = cluster.session(&SessionOptions::default()).await.unwrap();
        let asked = tokio::spawn(async move { session.ask(question).await.map(rows) });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        under_way += usize::from(!asked.is_finished());
        assert!(cluster.lose_executor());
        match tokio::time::timeout(Duration::from_secs(120), asked)
            .await
            .unwrap()
            .unwrap()
        {
            Ok(answer) => {
                let (_, mut given) = answer.await;
                given.sort();
                assert_eq!(given, expected, "lost after {pause} ms");
            }
            Err(error) => panic!("lost after {pause} ms: {error}"),
        }
        cluster.stop().await;
    }
    assert!(
        under_way > 0,
        "every question was answered before the executor was lost"
    );
    // A cluster that has lost one goes on answering.
    assert!(both.cluster.lose_executor());
    let (_, count) = rows(
        both.remote
            .ask("SELECT count(class) FROM Object")
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(count, ["1935"]);
    both.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_with_the_one_who_asks() {
    let both = both().await;
    let slow = "SELECT count(*) FROM Source a, Object b \
        WHERE scisql_angSep(a.ra, a.decl, b.ra_PS, b.decl_PS) > 3";
    for _ in 0..3 {
        let asked = tokio::time::timeout(Duration::from_millis(700), both.remote.ask(slow)).await;
        assert!(asked.is_err(), "the slow question was answered");
    }
    // The slots are free again, once the tasks have come to a point where they can stop.
    let quick = both.remote.ask("SELECT count(class) FROM Object");
    let answer = tokio::time::timeout(Duration::from_secs(240), quick)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rows(answer).await.1, ["1935"]);
    both.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_said() {
    let both = both().await;
    let said = async |question: &str| match both.remote.ask(question).await {
        Ok(_) => panic!("answered: {question}"),
        Err(error) => error.to_string(),
    };
    let typo = said("SELECT objctId FROM Object").await;
    assert!(typo.contains("objectId"), "{typo}");
    let cast = said("SELECT CAST(name AS INT) FROM Object").await;
    assert!(
        cast.contains("cluster: Cannot cast string 'star "),
        "{cast}"
    );
    let analyze = said("EXPLAIN ANALYZE SELECT * FROM Object").await;
    assert!(analyze.contains("without the cluster"), "{analyze}");
    let mixed = said("SELECT count(*) FROM Object, information_schema.tables").await;
    assert!(mixed.contains("front end"), "{mixed}");
    let (_, explained) = rows(
        both.remote
            .ask("EXPLAIN SELECT sum(flux) FROM Source")
            .await
            .unwrap(),
    )
    .await;
    assert!(
        explained.join("\n").contains("ChunkPhaseExec"),
        "{explained:?}"
    );
    both.cluster.stop().await;
}

/// A plan after its journey.
fn sent(
    plan: &Arc<dyn ExecutionPlan>,
    session: &Session,
    codec: &PlanCodec,
) -> Arc<dyn ExecutionPlan> {
    let message = PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), codec).unwrap();
    message
        .try_into_physical_plan(&session.context().task_ctx(), codec)
        .unwrap()
}

/// The nodes of ours in a plan, and in the plans inside them.
fn nodes(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut found = Vec::new();
    if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
        found.push(Arc::clone(plan));
        found.extend(nodes(phase.inner()));
    } else if plan.is::<PieceScanExec>() {
        found.push(Arc::clone(plan));
    }
    found.extend(plan.children().into_iter().flat_map(nodes));
    found
}

fn bytes(node: &Arc<dyn ExecutionPlan>, codec: &PlanCodec) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec
        .try_encode(
            Arc::clone(node),
            &mut bytes,
            &DefaultPhysicalProtoConverter {},
        )
        .unwrap();
    bytes
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}
