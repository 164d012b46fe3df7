//! The trixels that cover a region.

use std::ops::Range;

use super::{Level, ROOTS, Trixel};
use crate::position::UnitVector;
use crate::ranges::merged;
use crate::region::MARGIN;
use crate::{Angle, Region};

/// When more trixels than this lie on a region's edge, they are not divided further but taken whole.
const MAX_EDGE_TRIXELS: usize = 2_048;

/// Trixels of the level that cover the region: sorted ranges that do not touch. An envelope: each of the region's points
/// is in one of them. Where the edge would need more than some thousand trixels, larger ones are taken whole.
pub fn ranges(level: Level, region: &Region) -> Vec<Range<u64>> {
    let bounds = region.bounding_circle();
    let mut inside = Vec::new();
    let mut edge: Vec<(u64, Trixel)> = Vec::new();
    for (id, root) in (8..).zip(ROOTS) {
        classify(region, bounds, id, Trixel(root), 0, &mut inside, &mut edge);
    }
    let mut reached = 0;
    while reached < level.get() && edge.len() <= MAX_EDGE_TRIXELS {
        reached += 1;
        for (id, trixel) in std::mem::take(&mut edge) {
            let middles = trixel.middles();
            for quarter in 0..4 {
                let part = trixel.quarter(&middles, quarter as usize);
                classify(
                    region,
                    bounds,
                    4 * id + quarter,
                    part,
                    reached,
                    &mut inside,
                    &mut edge,
                );
            }
        }
    }
    inside.extend(edge.iter().map(|&(id, _)| (reached, id)));
    let to_level = |(at, id): (u8, u64)| {
        let shift = 2 * (level.get() - at);
        id << shift..(id + 1) << shift
    };
    merged(inside.into_iter().map(to_level).collect())
}

/// Puts a trixel of level `at` to those inside of the region or to those on its edge, if it is near the region at all.
fn classify(
    region: &Region,
    bounds: (UnitVector, Angle),
    id: u64,
    trixel: Trixel,
    at: u8,
    inside: &mut Vec<(u8, u64)>,
    edge: &mut Vec<(u64, Trixel)>,
) {
    let (centre, radius) = trixel.bounding_circle();
    let distance = region.signed_distance(centre);
    if distance > radius + MARGIN || trixel.has_edge_before(bounds) {
        return;
    }
    if distance + radius + MARGIN < Angle::ZERO {
        inside.push((at, id));
    } else {
        edge.push((id, trixel));
    }
}

impl Trixel {
    /// The circle around the corners: of a triangle smaller than a hemisphere no point is farther from an inner point
    /// than the farthest corner.
    fn bounding_circle(&self) -> (UnitVector, Angle) {
        let [a, b, c] = self.0;
        let sum = [
            a.x() + b.x() + c.x(),
            a.y() + b.y() + c.y(),
            a.z() + b.z() + c.z(),
        ];
        let norm = (sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2]).sqrt();
        let centre = UnitVector::from_components(sum[0] / norm, sum[1] / norm, sum[2] / norm);
        let radius = self.0.map(|corner| corner.separation(centre));
        (centre, radius.into_iter().fold(Angle::ZERO, Angle::max))
    }

    /// Whether the circle lies wholly on the outer side of one of the edges.
    fn has_edge_before(&self, (centre, radius): (UnitVector, Angle)) -> bool {
        let limit = Angle::from_degrees(90.0) + radius + MARGIN;
        let [a, b, c] = self.0;
        [(a, b), (b, c), (c, a)].into_iter().any(|(from, to)| {
            crate::region::pole_of(from, to).is_some_and(|pole| pole.separation(centre) > limit)
        })
    }
}
