//! Plans that were encoded and decoded give the rows that they gave before.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_archive;
mod statements;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion_proto::physical_plan::{
    AsExecutionPlan, DefaultPhysicalProtoConverter, PhysicalExtensionCodec,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::TryStreamExt;
use meridian_engine::exec::{ChunkPhaseExec, PieceScanExec};
use meridian_engine::{Archive, FileAccess, PlanCodec, Session, SessionOptions};
use prost::Message;
use tempfile::TempDir;

use statements::{Comparison, STATEMENTS};

struct Sky {
    session: Session,
    archive: Arc<Archive>,
    _dir: TempDir,
}

async fn sky() -> Sky {
    let dir = TempDir::new().unwrap();
    small_archive::load_sky(dir.path()).await;
    let archive = Archive::open(&dir.path().join("data")).await.unwrap();
    // The statements call functions of the query engine's by their own names.
    let options = SessionOptions {
        dialect: sql::Dialect::Adql,
        ..SessionOptions::default()
    };
    let session = Session::new(Arc::clone(&archive), &options).await.unwrap();
    // Operators that share values in memory cannot be in different processes.
    let state = session.context().state_ref();
    let mut state = state.write();
    let optimizer = &mut state.config_mut().options_mut().optimizer;
    optimizer.enable_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    drop(state);
    Sky {
        session,
        archive,
        _dir: dir,
    }
}

impl Sky {
    async fn plan(&self, statement: &str) -> Arc<dyn ExecutionPlan> {
        let parsed = self.session.parse_one(statement).await.unwrap();
        self.session.prepare(statement, parsed).await.unwrap().plan
    }

    async fn rows(&self, plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
        let batches = execute_stream(plan, self.session.context().task_ctx()).unwrap();
        let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
        batches.iter().flat_map(texts).collect()
    }

    /// A plan after it was encoded and decoded.
    fn travelled(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &PlanCodec,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), codec)?
            .try_into_physical_plan(&self.session.context().task_ctx(), codec)
    }
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
async fn decoded_plans_are_the_same_and_give_the_same_rows() {
    let sky = sky().await;
    let codec = PlanCodec::new(Arc::clone(&sky.archive));
    let mut wrong = Vec::new();
    for (compared, statement) in STATEMENTS {
        // What only this process knows does not travel.
        if statement.contains("information_schema") || statement.contains("RECURSIVE") {
            continue;
        }
        let plan = sky.plan(statement).await;
        let decoded = sky
            .travelled(&plan, &codec)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        let (before, after) = (own_nodes(&plan), own_nodes(&decoded));
        assert_eq!(before.len(), after.len(), "{statement}");
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(shown(after), shown(before), "{statement}");
            assert_eq!(bytes(after, &codec), bytes(before, &codec), "{statement}");
        }
        let (mut expected, mut given) = (sky.rows(plan).await, sky.rows(decoded).await);
        match compared {
            Comparison::Multisets => {
                expected.sort();
                given.sort();
            }
            Comparison::Lists => {}
            Comparison::Counts if expected.len() == given.len() => continue,
            Comparison::Counts => {}
        }
        if expected != given {
            wrong.push(format!("{statement}\n    {expected:?}\n    {given:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sum_is_the_same_to_the_last_bit_every_time() {
    let sky = sky().await;
    let codec = PlanCodec::new(Arc::clone(&sky.archive));
    // Nothing about these numbers is exact.
    let sums = "sum(ra_PS * decl_PS), avg(sqrt(ra_PS)), stddev(ra_PS / 3)";
    for statement in [
        format!("SELECT {sums} FROM Object"),
        format!("SELECT class, {sums} FROM Object GROUP BY class ORDER BY class"),
    ] {
        let plan = sky.plan(&statement).await;
        let first = sky.rows(Arc::clone(&plan)).await;
        for _ in 0..5 {
            let decoded = sky.travelled(&plan, &codec).unwrap();
            assert_eq!(sky.rows(decoded).await, first, "{statement}");
        }
    }
}

/// The plan of a share was decoded first, which opened the files that it named, and rejected then.
#[tokio::test(flavor = "multi_thread")]
async fn shares_open_no_files() {
    let sky = sky().await;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("mine.csv");
    std::fs::write(&path, "n,v\n1,2\n").unwrap();
    let options = SessionOptions {
        dialect: sql::Dialect::Adql,
        files: FileAccess::Everything,
        ..SessionOptions::default()
    };
    let session = Session::new(Arc::clone(&sky.archive), &options)
        .await
        .unwrap();
    let statement = format!("SELECT n + v FROM read_csv('{}')", path.display());
    let parsed = session.parse_one(&statement).await.unwrap();
    let plan = session.prepare(&statement, parsed).await.unwrap().plan;
    let codec = PlanCodec::new(Arc::clone(&sky.archive));
    let encoded = PhysicalPlanNode::try_from_physical_plan(plan, &codec).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = session
        .decode_share_plan(&encoded.encode_to_vec())
        .unwrap_err();
    assert!(error.to_string().contains("names a file"), "{error}");
    assert!(session.decode_share_plan(b"nonsense").is_err());
}

/// The nodes of Meridian's in a plan, and in the plans inside them.
fn own_nodes(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut found = Vec::new();
    if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
        found.push(Arc::clone(plan));
        found.extend(own_nodes(phase.inner()));
    } else if plan.is::<PieceScanExec>() {
        found.push(Arc::clone(plan));
    }
    found.extend(plan.children().into_iter().flat_map(own_nodes));
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
