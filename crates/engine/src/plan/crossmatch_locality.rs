//! Where a crossmatch can run.
//!
//! In the pieces of its probe rows, where whatever else it reads is read around these, or is whole in every piece. Else above,
//! where it still reads around its probe rows what can be read so, by cells of the sky.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

use super::locality::{KeyOrigin, Locality, Variant};
use super::neighbour_locality::around;
use crate::exec::{CrossmatchExec, MatchColumn};

/// A place for a crossmatch.
pub(super) enum MatchPlace {
    /// In pieces, with these inputs.
    InPieces {
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        locality: Locality,
    },
    /// Above them. For each input, how it is read around the probe rows; `None` if it cannot be.
    Above {
        around: Vec<Option<Arc<dyn ExecutionPlan>>>,
    },
}

/// Finds a crossmatch's place, given its inputs (probe side, build side, rivals) and where these can run.
pub(super) fn plan_crossmatch(
    matched: &CrossmatchExec,
    inputs: &[(&Arc<dyn ExecutionPlan>, &Locality)],
) -> Result<MatchPlace> {
    let others = [Some(matched.build()), matched.rivals()];
    // Around the probe rows themselves nothing is read of them.
    let mut near = vec![None];
    for (side, (plan, _)) in others.into_iter().flatten().zip(&inputs[1..]) {
        near.push(around(plan, &side.position)?);
    }
    let there = near[1..]
        .iter()
        .zip(&inputs[1..])
        .all(|(near, (_, locality))| near.is_some() || matches!(locality, Locality::Anywhere));
    let reads_around = near.iter().any(Option::is_some);
    let locality = match inputs[0].1 {
        Locality::Pieces { partial: false, .. } if there && !matched.probes_are_rivals() => {
            Some(by_probe(matched, inputs[0].1))
        }
        // Around rows from anywhere might be all of the sky: above, it is taken by cells.
        Locality::Anywhere if there && !reads_around => Some(Locality::Anywhere),
        _ => None,
    };
    let Some(locality) = locality else {
        return Ok(MatchPlace::Above { around: near });
    };
    let input = |(near, (plan, _)): (Option<_>, &(&Arc<dyn ExecutionPlan>, _))| {
        near.unwrap_or_else(|| Arc::clone(plan))
    };
    Ok(MatchPlace::InPieces {
        inputs: near.into_iter().zip(inputs).map(input).collect(),
        locality,
    })
}

/// The locality of the probe rows, which stay in their piece, whatever is matched to them.
fn by_probe(matched: &CrossmatchExec, probe: &Locality) -> Locality {
    let columns = |variant: &Variant| -> Vec<Option<KeyOrigin>> {
        let origin = |column: &MatchColumn| match column {
            MatchColumn::Probe(at) => variant.columns.get(*at).cloned().flatten(),
            MatchColumn::Build(_) | MatchColumn::Separation => None,
        };
        matched.columns().iter().map(origin).collect()
    };
    match probe.clone() {
        Locality::Pieces {
            cut,
            variants,
            partial,
        } => Locality::Pieces {
            cut,
            variants: variants
                .into_iter()
                .map(|variant| Variant {
                    columns: columns(&variant),
                    ..variant
                })
                .collect(),
            partial,
        },
        other => other,
    }
}
