//! The same questions to one process and to a cluster of two executors with one core each: the same multisets of rows.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

#[path = "../common/mod.rs"]
mod common;
mod questions;

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

use questions::{As, QUESTIONS};

struct Both {
    local: Session,
    remote: ClusterSession,
    cluster: LocalCluster,
    archive: Arc<Archive>,
    _dir: TempDir,
}

/// The questions call functions of the query engine's by their own names.
fn asking() -> SessionOptions {
    SessionOptions {
        dialect: sql::Dialect::Adql,
        ..SessionOptions::default()
    }
}

async fn both() -> Both {
    let dir = TempDir::new().unwrap();
    common::load_sky(dir.path()).await;
    let archive = Archive::open(&dir.path().join("data")).await.unwrap();
    let local = Session::new(Arc::clone(&archive), &asking()).await.unwrap();
    let options = ClusterOptions {
        executors: 2,
        slots: 1,
        memory: None,
    };
    let cluster = LocalCluster::start(Arc::clone(&archive), &options)
        .await
        .unwrap();
    let remote = cluster.session(&asking()).await.unwrap();
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
        let session = cluster.session(&asking()).await.unwrap();
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
    let answer = tokio::time::timeout(Duration::from_secs(600), quick)
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
