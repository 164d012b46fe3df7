//! How a plan with nodes of ours travels from one process to another.
//!
//! A chunk phase travels with its inner plan, which is no child of it. A scan travels as the name of the load that it reads
//! and what its files hold, so that it can be put together again at once, without asking the catalog. What was read or done
//! already does not travel: a plan is sent before it runs.

mod bucket_scan;
mod crossmatch;
mod file_scan;
mod neighbour_join;
mod share;

use std::sync::Arc;

use arrow::datatypes::Schema;
use catalog::{LoadId, TableKind};
use datafusion::common::{
    DataFusionError, Result, exec_err, internal_datafusion_err, internal_err, not_impl_err,
};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use prost::Message;

use crate::archive::StoredTableId;
use crate::error::external;
use crate::exec::{
    BarrierExec, BucketScanExec, ChunkNumberExec, ChunkPhaseExec, CrossmatchExec,
    NeighbourJoinExec, PhaseSummary, PieceScanExec, RowsOf,
};
use crate::loaded_table::StoredTable;
use crate::{Archive, FileScanExec};
use bucket_scan::BucketScanMessage;
use crossmatch::CrossmatchMessage;
use file_scan::FileScanMessage;
use neighbour_join::NeighbourJoinMessage;
use share::{FileForm, FileRowsMessage};

pub(crate) use share::{decode_share, encode_share, names_source};

/// Writes and reads plans with nodes of ours, which read the tables of one archive.
#[derive(Debug)]
pub struct PlanCodec {
    archive: Arc<Archive>,
    files: FileForm,
}

impl PlanCodec {
    /// A codec for plans whose only foreign nodes are ours.
    pub fn new(archive: Arc<Archive>) -> Self {
        Self {
            archive,
            files: FileForm::Path,
        }
    }

    fn decode_phase(
        &self,
        message: ChunkPhaseMessage,
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ([input], Some(inner)) = (inputs, &message.inner) else {
            return internal_err!("a chunk phase arrived without its pieces or its inner plan");
        };
        let inner =
            converter.proto_to_execution_plan(inner, &PhysicalPlanDecodeContext::new(ctx, self))?;
        let phase = ChunkPhaseExec::new(
            Arc::clone(input),
            inner,
            usize::try_from(message.concurrency).unwrap_or(1),
            message.ordered,
            PhaseSummary {
                text: message.summary,
            },
        );
        let rating = u8::try_from(message.rating).unwrap_or(u8::MAX);
        Ok(Arc::new(phase.with_rating(rating)))
    }

    fn encode_phase(
        &self,
        phase: &ChunkPhaseExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<ChunkPhaseMessage> {
        Ok(ChunkPhaseMessage {
            concurrency: phase.concurrency() as u64,
            ordered: phase.ordered(),
            summary: phase.summary().text.clone(),
            rating: phase.rating().into(),
            inner: Some(Box::new(
                converter.execution_plan_to_proto(phase.inner(), self)?,
            )),
        })
    }

    fn decode_scan(
        &self,
        message: PieceScanMessage,
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = RowsMessage::try_from(message.rows_of).map_err(|error| {
            internal_datafusion_err!("a scan arrived with rows of an unknown kind: {error}")
        })?;
        let Some(table) = message.table else {
            return internal_err!("a scan arrived without its table");
        };
        let stored = self
            .archive
            .stored_table(table.into_id()?)
            .map_err(external)?;
        let projection: Vec<usize> = message.projection.iter().map(|at| *at as usize).collect();
        if projection
            .iter()
            .any(|at| *at >= stored.schema.fields().len())
        {
            return internal_err!(
                "a scan arrived that asks {} for columns it does not have",
                stored.name
            );
        }
        let bounds = <[f64; 4]>::try_from(message.bounds).ok();
        let scan = PieceScanExec::new(
            Arc::clone(&self.archive),
            stored,
            projection,
            rows.into(),
            bounds,
        );
        let schema = Arc::clone(&scan.stored().schema);
        let decode = PhysicalPlanDecodeContext::new(ctx, self);
        let predicates = message
            .predicates
            .iter()
            .map(|predicate| converter.proto_to_physical_expr(predicate, &schema, &decode))
            .collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(scan.with_predicates(predicates)?))
    }

    fn encode_scan(
        &self,
        scan: &PieceScanExec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<PieceScanMessage> {
        if scan.piece().is_some() {
            return internal_err!("a scan that is bound to a piece was to be sent elsewhere");
        }
        Ok(PieceScanMessage {
            table: Some(StoredTableMessage::of(scan.stored())?),
            projection: scan.projection().iter().map(|at| *at as u64).collect(),
            rows_of: RowsMessage::from(scan.rows()).into(),
            bounds: scan.bounds().map(Vec::from).unwrap_or_default(),
            predicates: scan
                .predicates()
                .iter()
                .map(|predicate| converter.physical_expr_to_proto(predicate, self))
                .collect::<Result<_>>()?,
        })
    }
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let message = NodeMessage::decode(buf).map_err(|error| {
            internal_datafusion_err!("a node of a plan cannot be read: {error}")
        })?;
        match message.node {
            Some(Node::ChunkPhase(phase)) => self.decode_phase(phase, inputs, ctx, converter),
            Some(Node::PieceScan(scan)) => self.decode_scan(scan, ctx, converter),
            Some(Node::ChunkNumber(ChunkNumberMessage { at })) => match inputs {
                [input] => Ok(Arc::new(ChunkNumberExec::try_new(
                    Arc::clone(input),
                    usize::try_from(at).unwrap_or(usize::MAX),
                )?)),
                _ => internal_err!("the number of a chunk arrived without rows"),
            },
            Some(Node::Barrier(barrier)) => barrier.into_barrier(inputs, self, ctx, converter),
            Some(Node::NeighbourJoin(join)) => {
                Ok(Arc::new(join.into_join(inputs, self, ctx, converter)?))
            }
            Some(Node::Crossmatch(matched)) => {
                let matched = matched.into_crossmatch(inputs, self, ctx, converter)?;
                Ok(Arc::new(matched))
            }
            Some(Node::FileScan(scan)) => match self.files {
                FileForm::Path => Ok(Arc::new(scan.into_scan()?)),
                FileForm::Rows | FileForm::Preview => {
                    exec_err!("the plan of a share names a file")
                }
            },
            Some(Node::FileRows(rows)) => rows.into_plan(),
            Some(Node::BucketScan(scan)) => Ok(Arc::new(scan.into_scan()?)),
            None => internal_err!("a node of a plan arrived empty"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node = if let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() {
            Node::ChunkPhase(self.encode_phase(phase, converter)?)
        } else if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
            Node::PieceScan(self.encode_scan(scan, converter)?)
        } else if let Some(number) = node.downcast_ref::<ChunkNumberExec>() {
            if number.is_bound() {
                return internal_err!("the number of a particular chunk was to be sent elsewhere");
            }
            Node::ChunkNumber(ChunkNumberMessage {
                at: number.at() as u64,
            })
        } else if let Some(barrier) = node.downcast_ref::<BarrierExec>() {
            Node::Barrier(BarrierMessage {
                condition: { barrier.condition() }
                    .map(|condition| converter.physical_expr_to_proto(condition, self))
                    .transpose()?
                    .map(Box::new),
                columns: barrier.columns().iter().map(|at| *at as u64).collect(),
            })
        } else if let Some(join) = node.downcast_ref::<NeighbourJoinExec>() {
            Node::NeighbourJoin(Box::new(NeighbourJoinMessage::of(join, self, converter)?))
        } else if let Some(matched) = node.downcast_ref::<CrossmatchExec>() {
            Node::Crossmatch(CrossmatchMessage::of(matched, self, converter)?)
        } else if let Some(scan) = node.downcast_ref::<FileScanExec>() {
            match self.files {
                FileForm::Path => Node::FileScan(FileScanMessage::of(scan)?),
                form => Node::FileRows(FileRowsMessage::of(scan, form)?),
            }
        } else if let Some(scan) = node.downcast_ref::<BucketScanExec>() {
            Node::BucketScan(BucketScanMessage::of(scan)?)
        } else {
            return not_impl_err!("{} cannot be sent to another process", node.name());
        };
        NodeMessage { node: Some(node) }
            .encode(buf)
            .map_err(|error| {
                internal_datafusion_err!("a node of a plan cannot be written: {error}")
            })
    }
}

/// A node that DataFusion does not know.
#[derive(Clone, PartialEq, Message)]
struct NodeMessage {
    #[prost(oneof = "Node", tags = "1, 2, 5, 6, 7, 8, 9, 10, 11")]
    node: Option<Node>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Node {
    #[prost(message, tag = "1")]
    ChunkPhase(ChunkPhaseMessage),
    #[prost(message, tag = "2")]
    PieceScan(PieceScanMessage),
    #[prost(message, tag = "5")]
    ChunkNumber(ChunkNumberMessage),
    #[prost(message, boxed, tag = "6")]
    NeighbourJoin(Box<NeighbourJoinMessage>),
    #[prost(message, tag = "7")]
    Crossmatch(CrossmatchMessage),
    #[prost(message, tag = "8")]
    FileScan(FileScanMessage),
    #[prost(message, tag = "9")]
    FileRows(FileRowsMessage),
    #[prost(message, tag = "10")]
    Barrier(BarrierMessage),
    #[prost(message, tag = "11")]
    BucketScan(BucketScanMessage),
}

#[derive(Clone, PartialEq, Message)]
struct BarrierMessage {
    /// Over the columns of the input; none if all rows pass.
    #[prost(message, optional, boxed, tag = "1")]
    condition: Option<Box<protobuf::PhysicalExprNode>>,
    /// The numbers of the input's columns that it gives.
    #[prost(uint64, repeated, tag = "2")]
    columns: Vec<u64>,
}

impl BarrierMessage {
    fn into_barrier(
        self,
        inputs: &[Arc<dyn ExecutionPlan>],
        codec: &PlanCodec,
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = inputs else {
            return internal_err!("a barrier arrived above {} inputs", inputs.len());
        };
        let decode = PhysicalPlanDecodeContext::new(ctx, codec);
        let condition = { self.condition.as_ref() }
            .map(|it| converter.proto_to_physical_expr(it, &input.schema(), &decode))
            .transpose()?;
        let columns = self.columns.iter();
        let columns = columns.map(|at| usize::try_from(*at).unwrap_or(usize::MAX));
        Ok(Arc::new(BarrierExec::try_new(
            Arc::clone(input),
            condition,
            columns.collect(),
        )?))
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ChunkNumberMessage {
    /// The place of the number among the columns.
    #[prost(uint64, tag = "1")]
    at: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkPhaseMessage {
    #[prost(uint64, tag = "1")]
    concurrency: u64,
    #[prost(bool, tag = "2")]
    ordered: bool,
    #[prost(string, tag = "3")]
    summary: String,
    #[prost(message, optional, boxed, tag = "4")]
    inner: Option<Box<protobuf::PhysicalPlanNode>>,
    #[prost(uint32, tag = "5")]
    rating: u32,
}

#[derive(Clone, PartialEq, Message)]
struct PieceScanMessage {
    #[prost(message, optional, tag = "1")]
    table: Option<StoredTableMessage>,
    #[prost(uint64, repeated, tag = "2")]
    projection: Vec<u64>,
    #[prost(enumeration = "RowsMessage", tag = "3")]
    rows_of: i32,
    /// Four numbers, or none.
    #[prost(double, repeated, tag = "4")]
    bounds: Vec<f64>,
    #[prost(message, repeated, tag = "5")]
    predicates: Vec<protobuf::PhysicalExprNode>,
}

/// [`RowsOf`] with numbers that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum RowsMessage {
    Own = 0,
    LeftHome = 1,
    RightHome = 2,
    Whole = 3,
    Neighbourhood = 4,
}

impl From<RowsOf> for RowsMessage {
    fn from(rows: RowsOf) -> Self {
        match rows {
            RowsOf::Own => Self::Own,
            RowsOf::LeftHome => Self::LeftHome,
            RowsOf::RightHome => Self::RightHome,
            RowsOf::Whole => Self::Whole,
            RowsOf::Neighbourhood => Self::Neighbourhood,
        }
    }
}

impl From<RowsMessage> for RowsOf {
    fn from(rows: RowsMessage) -> Self {
        match rows {
            RowsMessage::Own => Self::Own,
            RowsMessage::LeftHome => Self::LeftHome,
            RowsMessage::RightHome => Self::RightHome,
            RowsMessage::Whole => Self::Whole,
            RowsMessage::Neighbourhood => Self::Neighbourhood,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct StoredTableMessage {
    #[prost(string, tag = "1")]
    database: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(int64, repeated, tag = "4")]
    parts: Vec<i64>,
    #[prost(uint64, tag = "5")]
    rows: u64,
    #[prost(message, optional, tag = "6")]
    files_schema: Option<protobuf::Schema>,
    #[prost(uint32, tag = "7")]
    stripes: u32,
    #[prost(uint32, tag = "8")]
    sub_stripes: u32,
    #[prost(uint64, optional, tag = "9")]
    sorted_by: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    sorted_by_texts: Option<u64>,
}

impl StoredTableMessage {
    fn of(stored: &StoredTable) -> Result<Self> {
        Ok(Self {
            database: stored.database.clone(),
            name: stored.name.clone(),
            kind: stored.kind.to_string(),
            parts: stored.parts.iter().map(|part| part.load.0).collect(),
            rows: stored.rows,
            files_schema: Some(stored.files_schema.as_ref().try_into().map_err(foreign)?),
            stripes: stored.chunker.num_stripes(),
            sub_stripes: stored.chunker.num_sub_stripes(),
            sorted_by: stored.sorted_by.map(|column| column as u64),
            sorted_by_texts: stored.sorted_by_texts.map(|column| column as u64),
        })
    }

    fn into_id(self) -> Result<StoredTableId> {
        let Some(files_schema) = &self.files_schema else {
            return internal_err!("a scan arrived without the columns of {}", self.name);
        };
        let files_schema: Schema = files_schema.try_into().map_err(foreign)?;
        Ok(StoredTableId {
            kind: self.kind.parse::<TableKind>().map_err(external)?,
            files_schema: Arc::new(files_schema),
            database: self.database,
            name: self.name,
            parts: self.parts.into_iter().map(LoadId).collect(),
            stripes: (self.stripes, self.sub_stripes),
            rows: self.rows,
            sorted_by: self.sorted_by.map(|column| column as usize),
            sorted_by_texts: self.sorted_by_texts.map(|column| column as usize),
        })
    }
}

/// The error of a schema's conversion.
fn foreign(error: impl Into<DataFusionError>) -> DataFusionError {
    error.into()
}
