//! How a neighbour join travels.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{JoinSide, JoinType, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::{Enumeration, Message};
use sky::neighbours::Bound;

use super::{PlanCodec, foreign};
use crate::exec::{
    BeyondPoles, JoinedColumn, NeighbourJoinExec, PartnerAggregate, RowExpr, SeparationCondition,
};

#[derive(Clone, PartialEq, Message)]
pub(super) struct NeighbourJoinMessage {
    /// As DataFusion writes it, such as `LeftSemi`.
    #[prost(string, tag = "1")]
    join_type: String,
    /// Whether the left input is the probe side.
    #[prost(bool, tag = "2")]
    left_probes: bool,
    /// Right ascension and declination of the probe side, of the build side, and the radius.
    #[prost(message, repeated, tag = "3")]
    near: Vec<protobuf::PhysicalExprNode>,
    /// Whether the radius itself is near enough.
    #[prost(bool, tag = "4")]
    at_most: bool,
    #[prost(message, optional, tag = "5")]
    filter: Option<FilterMessage>,
    #[prost(message, repeated, tag = "6")]
    columns: Vec<ColumnMessage>,
    /// The columns that the join gives, under their names.
    #[prost(message, optional, tag = "7")]
    schema: Option<protobuf::Schema>,
    #[prost(message, repeated, tag = "8")]
    row_exprs: Vec<RowExprMessage>,
    /// Whether a declination beyond a pole is the direction that it leads to.
    #[prost(bool, tag = "9")]
    of_directions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RowExprMessage {
    #[prost(bool, tag = "1")]
    of_left: bool,
    /// Over the columns of that input.
    #[prost(message, optional, tag = "2")]
    expr: Option<protobuf::PhysicalExprNode>,
}

#[derive(Clone, PartialEq, Message)]
struct FilterMessage {
    #[prost(message, optional, tag = "1")]
    condition: Option<protobuf::PhysicalExprNode>,
    #[prost(message, repeated, tag = "2")]
    columns: Vec<ColumnMessage>,
    #[prost(message, optional, tag = "3")]
    schema: Option<protobuf::Schema>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ColumnMessage {
    #[prost(enumeration = "ColumnKind", tag = "1")]
    kind: i32,
    /// Of a column of a side and of a row expression, its number.
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum ColumnKind {
    Left = 0,
    Right = 1,
    Separation = 2,
    Count = 3,
    Rows = 4,
    SumOfSeparations = 5,
    LeastSeparation = 6,
    OfRow = 7,
}

/// What neither has a number nor stands for a side.
const COMPUTED: [(ColumnKind, JoinedColumn); 5] = [
    (ColumnKind::Separation, JoinedColumn::Separation),
    (
        ColumnKind::Count,
        JoinedColumn::OfPartners(PartnerAggregate::Count),
    ),
    (
        ColumnKind::Rows,
        JoinedColumn::OfPartners(PartnerAggregate::Rows),
    ),
    (
        ColumnKind::SumOfSeparations,
        JoinedColumn::OfPartners(PartnerAggregate::SumOfSeparations),
    ),
    (
        ColumnKind::LeastSeparation,
        JoinedColumn::OfPartners(PartnerAggregate::LeastSeparation),
    ),
];

impl ColumnMessage {
    fn of(column: JoinedColumn) -> Result<Self> {
        let side = |kind, index: usize| Self {
            kind: i32::from(kind),
            index: index as u64,
        };
        match column {
            JoinedColumn::OfSide(JoinSide::Left, index) => Ok(side(ColumnKind::Left, index)),
            JoinedColumn::OfSide(JoinSide::Right, index) => Ok(side(ColumnKind::Right, index)),
            JoinedColumn::OfRow(index) => Ok(side(ColumnKind::OfRow, index)),
            computed => match COMPUTED.iter().find(|(_, column)| *column == computed) {
                Some((kind, _)) => Ok(side(*kind, 0)),
                None => internal_err!("{column:?} cannot be sent"),
            },
        }
    }

    fn column(self) -> Result<JoinedColumn> {
        let index = self.index as usize;
        match ColumnKind::try_from(self.kind) {
            Ok(ColumnKind::Left) => Ok(JoinedColumn::OfSide(JoinSide::Left, index)),
            Ok(ColumnKind::Right) => Ok(JoinedColumn::OfSide(JoinSide::Right, index)),
            Ok(ColumnKind::OfRow) => Ok(JoinedColumn::OfRow(index)),
            Ok(kind) => match COMPUTED.iter().find(|(of, _)| *of == kind) {
                Some((_, column)) => Ok(*column),
                None => internal_err!("a neighbour join arrived with columns of no kind"),
            },
            Err(error) => internal_err!("a column of a neighbour join cannot be read: {error}"),
        }
    }

    fn all(columns: impl IntoIterator<Item = JoinedColumn>) -> Result<Vec<Self>> {
        columns.into_iter().map(Self::of).collect()
    }
}

impl NeighbourJoinMessage {
    pub fn of(
        join: &NeighbourJoinExec,
        codec: &PlanCodec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Self> {
        let near = join.near();
        let written = |expr: &Arc<dyn PhysicalExpr>| converter.physical_expr_to_proto(expr, codec);
        let filter = match join.filter() {
            Some(filter) => Some(FilterMessage {
                condition: Some(written(filter.expression())?),
                columns: ColumnMessage::all(filter.column_indices().iter().map(Into::into))?,
                schema: Some(filter.schema().as_ref().try_into().map_err(foreign)?),
            }),
            None => None,
        };
        let row_expr = |computed: &RowExpr| {
            Ok(RowExprMessage {
                of_left: computed.side == JoinSide::Left,
                expr: Some(written(&computed.expr)?),
            })
        };
        let exprs = near.probe.iter().chain(&near.build).chain([&near.radius]);
        Ok(Self {
            join_type: join.join_type().to_string(),
            left_probes: join.probe_side() == JoinSide::Left,
            near: exprs.map(written).collect::<Result<_>>()?,
            at_most: near.bound == Bound::AtMost,
            of_directions: near.poles == BeyondPoles::Direction,
            filter,
            columns: ColumnMessage::all(join.columns().iter().copied())?,
            schema: Some(join.schema().as_ref().try_into().map_err(foreign)?),
            row_exprs: join
                .row_exprs()
                .iter()
                .map(row_expr)
                .collect::<Result<_>>()?,
        })
    }

    pub fn into_join(
        self,
        inputs: &[Arc<dyn ExecutionPlan>],
        codec: &PlanCodec,
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<NeighbourJoinExec> {
        let ([left, right], Some(schema)) = (inputs, &self.schema) else {
            return internal_err!("a neighbour join arrived without its inputs or its columns");
        };
        let decode = PhysicalPlanDecodeContext::new(ctx, codec);
        let read = |expr: &protobuf::PhysicalExprNode, schema: &Schema| {
            converter.proto_to_physical_expr(expr, schema, &decode)
        };
        let (probe_side, probe, build) = if self.left_probes {
            (JoinSide::Left, left.schema(), right.schema())
        } else {
            (JoinSide::Right, right.schema(), left.schema())
        };
        let [ra, dec, build_ra, build_dec, radius] = self.near.as_slice() else {
            return internal_err!("a neighbour join arrived without positions or radius");
        };
        let near = SeparationCondition {
            probe: [read(ra, &probe)?, read(dec, &probe)?],
            build: [read(build_ra, &build)?, read(build_dec, &build)?],
            radius: read(radius, &probe)?,
            bound: if self.at_most {
                Bound::AtMost
            } else {
                Bound::Below
            },
            poles: match self.of_directions {
                true => BeyondPoles::Direction,
                false => BeyondPoles::Nowhere,
            },
        };
        let row_expr = |message: RowExprMessage| {
            let (side, input) = if message.of_left {
                (JoinSide::Left, left)
            } else {
                (JoinSide::Right, right)
            };
            match &message.expr {
                Some(expr) => Ok(RowExpr {
                    side,
                    expr: read(expr, &input.schema())?,
                }),
                None => internal_err!("an expression of a neighbour join's rows arrived empty"),
            }
        };
        let row_exprs = self.row_exprs.into_iter().map(row_expr);
        let row_exprs: Vec<RowExpr> = row_exprs.collect::<Result<_>>()?;
        let filter = match self.filter {
            Some(FilterMessage {
                condition: Some(condition),
                columns,
                schema: Some(schema),
            }) => {
                let schema: Schema = (&schema).try_into().map_err(foreign)?;
                let condition = read(&condition, &schema)?;
                let columns = columns.into_iter().map(named_in_condition);
                let columns = columns.collect::<Result<_>>()?;
                Some(JoinFilter::new(condition, columns, Arc::new(schema)))
            }
            Some(_) => return internal_err!("the condition of a neighbour join arrived empty"),
            None => None,
        };
        let join_type: JoinType = self.join_type.parse()?;
        let schema: Schema = schema.try_into().map_err(foreign)?;
        let (left, right) = (Arc::clone(left), Arc::clone(right));
        let join = NeighbourJoinExec::try_new(left, right, near, probe_side, filter, join_type)?;
        let columns = self.columns.into_iter().map(ColumnMessage::column);
        let columns = columns.collect::<Result<_>>()?;
        Ok(join
            .with_row_exprs(row_exprs)
            .with_columns(columns, Arc::new(schema)))
    }
}

fn named_in_condition(column: ColumnMessage) -> Result<ColumnIndex> {
    match column.column()?.index() {
        Some(index) => Ok(index),
        None => internal_err!("the condition of a neighbour join arrived with what is of no pair"),
    }
}
