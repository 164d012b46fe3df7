//! How the plan of a share travels: as other plans do, but with the rows of small files in the place of their paths, and with the values of
//! scalar subqueries, which are in the process that has computed them.
//!
//! Invariant: no file is opened when such a plan is read, whatever it names.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::{PhysicalExprNode, PhysicalExtensionExprNode, PhysicalPlanNode};
use prost::Message;

use super::PlanCodec;
use crate::{Archive, FileScanExec};

/// Bytes that the rows of a file may have in a share.
const MOST_ROW_BYTES: usize = 16 << 20;

/// How files travel in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileForm {
    /// By their paths, under which the process that reads the plan finds them.
    Path,
    /// By their rows.
    Rows,
    /// Without rows: the plan is only asked whether it could travel.
    Preview,
}

/// Writes the plan of a share. For a preview what is not known yet is left out.
///
/// # Errors
/// It has an operator that does not travel, a file of too many rows, or a value that is not known.
pub(crate) fn encode_share(
    plan: &Arc<dyn ExecutionPlan>,
    archive: Arc<Archive>,
    is_preview: bool,
) -> Result<Vec<u8>> {
    let files = match is_preview {
        true => FileForm::Preview,
        false => FileForm::Rows,
    };
    let converter = ValueConverter { is_preview };
    let codec = PlanCodec { archive, files };
    Ok(converter
        .execution_plan_to_proto(&with_short_limits(plan)?, &codec)?
        .encode_to_vec())
}

/// The plan without limits of more rows than 32 bits count: some messages would have other ones in their place. A piece may give more rows than are
/// wanted of all, since the operators above its phase cut off what is too much.
fn with_short_limits(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let is_long = |limit: usize| u32::try_from(limit).is_err();
    let shorten = |node: Arc<dyn ExecutionPlan>| {
        let skip = node
            .downcast_ref::<GlobalLimitExec>()
            .map_or(0, GlobalLimitExec::skip);
        if !is_long(skip) && !node.fetch().is_some_and(is_long) {
            return Ok(Transformed::no(node));
        }
        let without = match node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>() {
            true => (skip == 0).then(|| Arc::clone(node.children()[0])),
            false => node.with_fetch(None),
        };
        without
            .map(Transformed::yes)
            .ok_or_else(|| internal_datafusion_err!("the limit of {} is too long", node.name()))
    };
    Ok(Arc::clone(plan).transform_up(shorten)?.data)
}

/// Reads the plan of a share.
///
/// # Errors
/// It is damaged, or names what this process does not have.
pub(crate) fn decode_share(
    bytes: &[u8],
    archive: Arc<Archive>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let node = PhysicalPlanNode::decode(bytes)
        .map_err(|error| internal_datafusion_err!("the plan of a share cannot be read: {error}"))?;
    let files = FileForm::Rows;
    let codec = PlanCodec { archive, files };
    let converter = ValueConverter { is_preview: false };
    converter.proto_to_execution_plan(&node, &PhysicalPlanDecodeContext::new(context, &codec))
}

/// Whether a node reads what another process gives it under a name: a source other than rows that are there.
pub(crate) fn names_source(node: &Arc<dyn ExecutionPlan>) -> bool {
    let source = node.downcast_ref::<DataSourceExec>();
    let is_elsewhere = |source: &DataSourceExec| {
        source
            .data_source()
            .downcast_ref::<MemorySourceConfig>()
            .is_none()
    };
    node.is::<FileScanExec>() || source.is_some_and(is_elsewhere)
}

/// The rows of a file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileRowsMessage {
    /// An Arrow stream.
    #[prost(bytes = "vec", tag = "1")]
    rows: Vec<u8>,
}

impl FileRowsMessage {
    /// The rows of a file that have been read.
    pub fn of(scan: &FileScanExec, form: FileForm) -> Result<Self> {
        let rows = match (scan.kept_rows(), form) {
            (_, FileForm::Preview) => &[],
            (Some(rows), _) => rows.as_slice(),
            (None, _) => {
                return internal_err!("a file whose rows were not read was to be sent elsewhere");
            }
        };
        let bytes: usize = rows.iter().map(RecordBatch::get_array_memory_size).sum();
        if bytes > MOST_ROW_BYTES {
            return internal_err!("a file of {bytes} bytes was to be sent elsewhere");
        }
        let rows = written(&scan.schema(), rows)?;
        Ok(Self { rows })
    }

    pub fn into_plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        let (schema, batches) = read(&self.rows)?;
        Ok(MemorySourceConfig::try_new_exec(&[batches], schema, None)?)
    }
}

/// The value of a scalar subquery.
#[derive(Clone, PartialEq, Message)]
struct ValueMessage {
    /// An Arrow stream of one row.
    #[prost(bytes = "vec", tag = "1")]
    row: Vec<u8>,
    /// Whether it could have been NULL, which is a part of the types above it.
    #[prost(bool, tag = "2")]
    nullable: bool,
}

impl ValueMessage {
    fn of(subquery: &ScalarSubqueryExpr, is_preview: bool) -> Result<Self> {
        let empty = Arc::new(Schema::empty());
        let field = subquery.return_field(&empty)?;
        let value = match subquery.evaluate(&RecordBatch::new_empty(empty)) {
            Ok(ColumnarValue::Scalar(value)) => value,
            Ok(ColumnarValue::Array(_)) => return internal_err!("a subquery has several values"),
            Err(_) if is_preview => ScalarValue::try_from(field.data_type())?,
            Err(error) => return Err(error),
        };
        if value.data_type() != *field.data_type() {
            return internal_err!("the value of a subquery is of another type than it");
        }
        let schema = Arc::new(Schema::new([Arc::new(Field::new(
            "value",
            value.data_type(),
            true,
        ))]));
        let row = RecordBatch::try_new(Arc::clone(&schema), vec![value.to_array()?])?;
        Ok(Self {
            row: written(&schema, &[row])?,
            nullable: field.is_nullable(),
        })
    }

    fn into_expr(self) -> Result<Arc<dyn PhysicalExpr>> {
        let (_, batches) = read(&self.row)?;
        let [row] = batches.as_slice() else {
            return internal_err!("the value of a subquery arrived in several batches");
        };
        if row.num_columns() != 1 || row.num_rows() != 1 {
            return internal_err!("the value of a subquery arrived as several");
        }
        let value = ScalarValue::try_from_array(row.column(0), 0)?;
        let (results, index) = (ScalarSubqueryResults::new(1), SubqueryIndex::new(0));
        let data_type = value.data_type();
        results.set(index, value)?;
        Ok(Arc::new(ScalarSubqueryExpr::new(
            data_type,
            self.nullable,
            index,
            results,
        )))
    }
}

/// Writes the values of scalar subqueries where others write that there is one.
struct ValueConverter {
    is_preview: bool,
}

impl PhysicalProtoConverterExtension for ValueConverter {
    fn proto_to_execution_plan(
        &self,
        proto: &PhysicalPlanNode,
        ctx: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.default_proto_to_execution_plan(proto, ctx)
    }

    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)
    }

    fn proto_to_physical_expr(
        &self,
        proto: &PhysicalExprNode,
        input_schema: &Schema,
        ctx: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let Some(ExprType::Extension(extension)) = &proto.expr_type else {
            return self.default_proto_to_physical_expr(proto, input_schema, ctx);
        };
        let value = ValueMessage::decode(extension.expr.as_slice());
        let value = value.map_err(|error| {
            internal_datafusion_err!("the value of a subquery cannot be read: {error}")
        })?;
        value.into_expr()
    }

    fn physical_expr_to_proto(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let Some(subquery) = expr.downcast_ref::<ScalarSubqueryExpr>() else {
            return serialize_physical_expr_with_converter(expr, codec, self);
        };
        let value = ValueMessage::of(subquery, self.is_preview)?;
        Ok(PhysicalExprNode {
            expr_id: None,
            expr_type: Some(ExprType::Extension(PhysicalExtensionExprNode {
                expr: value.encode_to_vec(),
                inputs: Vec::new(),
            })),
        })
    }
}

fn written(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.into_inner()?)
}

fn read(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let reader = StreamReader::try_new(bytes, None)?;
    let schema = reader.schema();
    let batches = reader.collect::<std::result::Result<_, _>>()?;
    Ok((schema, batches))
}
