//! A crossmatch in a logical plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::{DFSchemaRef, Result, ToDFSchema, internal_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::exec::{MatchRule, MatchSelection, Unmatched, separation_field};

/// An input and the names of its columns of right ascension and declination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeSide {
    pub plan: LogicalPlan,
    pub position: [String; 2],
}

/// See [`CrossmatchExec`](crate::exec::CrossmatchExec): probe side, build side and rivals, whose columns all have names of
/// their own without a table's, but for those of the rivals, which have the probe side's.
#[derive(Debug, Clone)]
pub(super) struct CrossmatchNode {
    probe: NodeSide,
    build: NodeSide,
    rivals: Option<NodeSide>,
    rule: MatchRule,
    schema: DFSchemaRef,
}

impl CrossmatchNode {
    pub fn try_new(
        probe: NodeSide,
        build: NodeSide,
        rivals: Option<NodeSide>,
        rule: MatchRule,
    ) -> Result<Self> {
        let mut fields: Vec<Arc<Field>> = fields(&probe);
        if rule.unmatched != Unmatched::Alone {
            let kept = rule.unmatched == Unmatched::Kept;
            fields.extend(self::fields(&build).into_iter().map(|field| {
                let nullable = field.is_nullable() || kept;
                Arc::new(field.as_ref().clone().with_nullable(nullable))
            }));
            fields.push(Arc::new(separation_field(rule.unmatched)));
        }
        Ok(Self {
            schema: Schema::new(fields).to_dfschema_ref()?,
            probe,
            build,
            rivals,
            rule,
        })
    }

    pub fn probe(&self) -> &NodeSide {
        &self.probe
    }

    /// The sides, in the order of the inputs.
    pub fn sides(&self) -> impl Iterator<Item = &NodeSide> {
        [&self.probe, &self.build].into_iter().chain(&self.rivals)
    }

    pub fn rule(&self) -> MatchRule {
        self.rule
    }

    /// Whether a condition on the probe rows may be tested before they are matched: not where they are each other's rivals.
    pub fn probe_may_be_filtered(&self) -> bool {
        self.rule.wanted != MatchSelection::Mutual || self.rivals.is_some()
    }

    /// The same with another input for the probe side.
    pub fn with_probe(&self, plan: LogicalPlan) -> Result<Self> {
        let probe = NodeSide {
            plan,
            position: self.probe.position.clone(),
        };
        Self::try_new(probe, self.build.clone(), self.rivals.clone(), self.rule)
    }

    /// The radius as something that has an identity.
    fn radius_bits(&self) -> u64 {
        self.rule.radius.degrees().to_bits()
    }
}

fn fields(side: &NodeSide) -> Vec<Arc<Field>> {
    side.plan.schema().fields().iter().cloned().collect()
}

impl PartialEq for CrossmatchNode {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule && self.sides().eq(other.sides())
    }
}

impl Eq for CrossmatchNode {}

impl PartialOrd for CrossmatchNode {
    /// No node is before another.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for CrossmatchNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sides().for_each(|side| side.hash(state));
        (self.rule.wanted, self.rule.unmatched, self.radius_bits()).hash(state);
    }
}

impl UserDefinedLogicalNodeCore for CrossmatchNode {
    fn name(&self) -> &str {
        "Crossmatch"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.sides().map(|side| &side.plan).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    /// None: the columns of positions are known by their names, which no rewriting changes.
    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ra, dec] = &self.probe.position;
        let [build_ra, build_dec] = &self.build.position;
        write!(
            f,
            "Crossmatch: {}, from ({ra}, {dec}) to ({build_ra}, {build_dec})",
            self.rule
        )
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        if inputs.len() != self.sides().count() {
            return internal_err!("a crossmatch of {} inputs", inputs.len());
        }
        let mut sides = self.sides().zip(inputs).map(|(side, plan)| NodeSide {
            plan,
            position: side.position.clone(),
        });
        match (sides.next(), sides.next(), sides.next()) {
            (Some(probe), Some(build), rivals) => Self::try_new(probe, build, rivals, self.rule),
            _ => internal_err!("a crossmatch without two sides"),
        }
    }

    /// The columns requested, and those of the positions.
    fn necessary_children_exprs(&self, wanted: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut first = 0;
        let mut all = Vec::with_capacity(3);
        for (number, side) in self.sides().enumerate() {
            let width = side.plan.schema().fields().len();
            let own = first..first + width;
            // Nothing but their places is wanted of rivals.
            let asked = wanted.iter().filter(|at| number < 2 && own.contains(at));
            let mut columns: Vec<usize> = asked.map(|at| at - own.start).collect();
            for name in &side.position {
                columns.push(side.plan.schema().index_of_column_by_name(None, name)?);
            }
            columns.sort_unstable();
            columns.dedup();
            all.push(columns);
            first += width;
        }
        Some(all)
    }
}
