//! How many rows there are.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};

/// Gives one row for each partition of its input: the number of its rows, in every column.
///
/// It is what a `count(*)` without groups gives, without a value being made for every row to be counted: the pairs of a
/// neighbour join are billions.
#[derive(Debug)]
pub struct CountRowsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl CountRowsExec {
    /// Counts the rows of `input` into columns of these names, which must be 64-bit integers.
    pub fn try_new(input: Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Result<Self> {
        let counts = schema
            .fields()
            .iter()
            .all(|field| *field.data_type() == DataType::Int64);
        if !counts {
            return internal_err!("rows are counted into something else than integers: {schema}");
        }
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self {
            input,
            properties: Arc::new(properties),
        })
    }
}

async fn count(mut rows: SendableRecordBatchStream, schema: SchemaRef) -> Result<RecordBatch> {
    let mut count = 0_i64;
    while let Some(batch) = rows.next().await {
        count += batch?.num_rows() as i64;
    }
    let column: ArrayRef = Arc::new(Int64Array::from(vec![count]));
    let columns = schema
        .fields()
        .iter()
        .map(|_| Arc::clone(&column))
        .collect();
    Ok(RecordBatch::try_new(schema, columns)?)
}

impl DisplayAs for CountRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountRowsExec")
    }
}

impl ExecutionPlan for CountRowsExec {
    fn name(&self) -> &str {
        "CountRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::try_new(input, self.schema())?)),
            Err(children) => internal_err!("a count of {} inputs", children.len()),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let counted = stream::once(count(rows, self.schema()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            counted,
        )))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
}
