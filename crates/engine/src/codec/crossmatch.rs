//! How a crossmatch travels.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::Message;
use sky::Angle;

use super::{PlanCodec, foreign};
use crate::exec::{CrossmatchExec, MatchColumn, MatchRule, MatchSelection, MatchSide, Unmatched};

#[derive(Clone, PartialEq, Message)]
pub(super) struct CrossmatchMessage {
    #[prost(double, tag = "1")]
    radius_degrees: f64,
    /// How many of the nearest; 0 stands for those that are each other's.
    #[prost(uint64, tag = "2")]
    nearest: u64,
    #[prost(enumeration = "UnmatchedMessage", tag = "3")]
    unmatched: i32,
    /// Right ascension and declination of the probe side, of the build side, and of rivals if there are any.
    #[prost(message, repeated, tag = "4")]
    positions: Vec<protobuf::PhysicalExprNode>,
    #[prost(message, repeated, tag = "5")]
    columns: Vec<MatchColumnMessage>,
    /// The columns that it gives, under their names.
    #[prost(message, optional, tag = "6")]
    schema: Option<protobuf::Schema>,
    #[prost(bool, tag = "7")]
    spread: bool,
}

/// [`Unmatched`] with numbers that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum UnmatchedMessage {
    Dropped = 0,
    Kept = 1,
    Alone = 2,
}

/// A column of the probe side, of the build side, or, if it has neither's number, the separation.
#[derive(Clone, Copy, PartialEq, Message)]
struct MatchColumnMessage {
    #[prost(uint64, optional, tag = "1")]
    probe: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    build: Option<u64>,
}

impl From<&MatchColumn> for MatchColumnMessage {
    fn from(column: &MatchColumn) -> Self {
        match column {
            MatchColumn::Probe(at) => Self {
                probe: Some(*at as u64),
                build: None,
            },
            MatchColumn::Build(at) => Self {
                probe: None,
                build: Some(*at as u64),
            },
            MatchColumn::Separation => Self {
                probe: None,
                build: None,
            },
        }
    }
}

impl From<MatchColumnMessage> for MatchColumn {
    fn from(column: MatchColumnMessage) -> Self {
        match (column.probe, column.build) {
            (Some(at), _) => Self::Probe(at as usize),
            (None, Some(at)) => Self::Build(at as usize),
            (None, None) => Self::Separation,
        }
    }
}

impl CrossmatchMessage {
    pub fn of(
        matched: &CrossmatchExec,
        codec: &PlanCodec,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Self> {
        let rule = matched.rule();
        let unmatched = match rule.unmatched {
            Unmatched::Dropped => UnmatchedMessage::Dropped,
            Unmatched::Kept => UnmatchedMessage::Kept,
            Unmatched::Alone => UnmatchedMessage::Alone,
        };
        let sides = [matched.probe(), matched.build()].into_iter();
        let positions = sides
            .chain(matched.rivals())
            .flat_map(|side| &side.position);
        Ok(Self {
            radius_degrees: rule.radius.degrees(),
            nearest: match rule.wanted {
                MatchSelection::Nearest(most) => most as u64,
                MatchSelection::Mutual => 0,
            },
            unmatched: unmatched.into(),
            positions: positions
                .map(|expr| converter.physical_expr_to_proto(expr, codec))
                .collect::<Result<_>>()?,
            columns: matched.columns().iter().map(Into::into).collect(),
            schema: Some(matched.schema().as_ref().try_into().map_err(foreign)?),
            spread: matched.is_spread(),
        })
    }

    fn rule(&self) -> Result<MatchRule> {
        let unmatched = match UnmatchedMessage::try_from(self.unmatched) {
            Ok(UnmatchedMessage::Dropped) => Unmatched::Dropped,
            Ok(UnmatchedMessage::Kept) => Unmatched::Kept,
            Ok(UnmatchedMessage::Alone) => Unmatched::Alone,
            Err(error) => return internal_err!("a crossmatch of an unknown kind arrived: {error}"),
        };
        Ok(MatchRule {
            radius: Angle::from_degrees(self.radius_degrees),
            wanted: match self.nearest {
                0 => MatchSelection::Mutual,
                most => MatchSelection::Nearest(most as usize),
            },
            unmatched,
        })
    }

    pub fn into_crossmatch(
        self,
        inputs: &[Arc<dyn ExecutionPlan>],
        codec: &PlanCodec,
        ctx: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<CrossmatchExec> {
        let decode = PhysicalPlanDecodeContext::new(ctx, codec);
        let mut sides = Vec::with_capacity(inputs.len());
        for (plan, position) in inputs.iter().zip(self.positions.chunks_exact(2)) {
            let schema = plan.schema();
            let read = |expr| converter.proto_to_physical_expr(expr, &schema, &decode);
            sides.push(MatchSide {
                plan: Arc::clone(plan),
                position: [read(&position[0])?, read(&position[1])?],
            });
        }
        let rule = self.rule()?;
        let mut sides = sides.into_iter();
        let (Some(probe), Some(build), rivals, Some(schema)) =
            (sides.next(), sides.next(), sides.next(), &self.schema)
        else {
            return internal_err!("a crossmatch arrived without its sides or its columns");
        };
        let schema: Schema = schema.try_into().map_err(foreign)?;
        let columns = self.columns.into_iter().map(Into::into).collect();
        let matched = CrossmatchExec::new(probe, build, rivals, rule);
        let matched = matched.with_columns(columns, Arc::new(schema));
        Ok(if self.spread {
            matched.spread()
        } else {
            matched
        })
    }
}
