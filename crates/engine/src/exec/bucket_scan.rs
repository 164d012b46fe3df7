//! The rows of one bucket of a shuffle.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use super::plan_node::{no_children, no_expressions, plan_node};
use crate::piece::Piece;
use crate::shuffle::{KeptPiece, ReadingBuckets, ShuffleId, WantedBucket};

/// Reads a bucket of a shuffle: of each piece, in their order, the rows that are in it.
///
/// A bucket is run as a piece of a phase is: the number of its chunk is that of the bucket.
#[derive(Debug, Clone)]
pub struct BucketScanExec {
    shuffle: ShuffleId,
    pieces: Arc<[KeptPiece]>,
    bucket: Option<u32>,
    properties: Arc<PlanProperties>,
}

impl BucketScanExec {
    /// A scan that has to be bound to a bucket before it runs.
    pub fn new(shuffle: ShuffleId, pieces: Arc<[KeptPiece]>, schema: SchemaRef) -> Self {
        Self {
            shuffle,
            pieces,
            bucket: None,
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
        }
    }

    /// The plan with its scans of buckets reading these rows.
    pub(crate) fn placed(
        plan: &Arc<dyn ExecutionPlan>,
        shuffle: ShuffleId,
        pieces: &Arc<[KeptPiece]>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Arc::clone(plan)
            .transform_up(|node| {
                let schema = match node.downcast_ref::<Self>() {
                    Some(scan) => scan.schema(),
                    None => return Ok(Transformed::no(node)),
                };
                let scan = Self::new(shuffle, Arc::clone(pieces), schema);
                Ok(Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>))
            })
            .data()
    }

    /// The same scan of the bucket that a piece stands for.
    pub(crate) fn bound_to(&self, piece: &Piece) -> Result<Self> {
        match piece
            .slices()
            .first()
            .map(|slice| u32::try_from(slice.chunk.0))
        {
            Some(Ok(bucket)) => Ok(Self {
                bucket: Some(bucket),
                ..self.clone()
            }),
            _ => exec_err!("a bucket of a shuffle has no number"),
        }
    }

    /// The shuffle.
    pub fn shuffle(&self) -> ShuffleId {
        self.shuffle
    }

    /// All pieces whose rows are read, in order.
    pub fn pieces(&self) -> &Arc<[KeptPiece]> {
        &self.pieces
    }

    /// Whether it is bound to a bucket.
    pub fn is_bound(&self) -> bool {
        self.bucket.is_some()
    }
}

impl DisplayAs for BucketScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketScanExec: pieces={}", self.pieces.len())
    }
}

impl ExecutionPlan for BucketScanExec {
    plan_node!("BucketScanExec");
    no_expressions!();
    no_children!();

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(bucket) = self.bucket else {
            return internal_err!("a bucket of a shuffle was to be read, and none was named");
        };
        let reader = context.session_config().get_extension::<ReadingBuckets>();
        let Some(reader) = reader else {
            return internal_err!("this process cannot read buckets of shuffles");
        };
        let rows = reader.0.read(WantedBucket {
            shuffle: self.shuffle,
            bucket,
            pieces: Arc::clone(&self.pieces),
            schema: self.schema(),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
