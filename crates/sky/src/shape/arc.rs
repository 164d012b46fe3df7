//! Arcs of great circles shorter than half a turn: how far a point is from one, whether two cross.

use std::cmp::Ordering;

use crate::orientation::orientation;
use crate::region::pole_of;
use crate::{Angle, UnitVector};

/// The shorter arc between two points that are neither the same nor opposite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arc {
    pub from: UnitVector,
    pub to: UnitVector,
}

impl Arc {
    /// Whether the point is on the arc: on its great circle as exactly as the vectors tell, and between its ends.
    pub fn holds(self, p: UnitVector) -> bool {
        if p == self.from || p == self.to {
            return true;
        }
        orientation(self.from, self.to, p) == Ordering::Equal && self.is_beside(p)
    }

    /// Whether the nearest point of the great circle lies between the arc's ends.
    fn is_beside(self, p: UnitVector) -> bool {
        let Some(pole) = pole_of(self.from, self.to) else {
            return false;
        };
        dot(cross(pole, self.from), p) >= 0.0 && dot(cross(self.to, pole), p) >= 0.0
    }

    /// The angle from a point to the nearest point of the arc.
    pub fn distance(self, p: UnitVector) -> Angle {
        match pole_of(self.from, self.to) {
            Some(pole) if self.is_beside(p) => {
                let [x, y, z] = cross(pole, p);
                let height = pole.dot(p).abs();
                Angle::from_radians(height.atan2((x * x + y * y + z * z).sqrt()))
            }
            _ => self.from.separation(p).min(self.to.separation(p)),
        }
    }

    /// The angle from a point to the farthest point of the arc: that which is nearest to the point's antipode.
    pub fn largest_distance(self, p: UnitVector) -> Angle {
        Angle::from_degrees(180.0) - self.distance(p.antipode())
    }

    /// Whether two arcs pass through each other; touching is not enough.
    ///
    /// They do if the four triangles of their ends, two of one and one of the other, turn the same way.
    pub fn crosses(self, other: Self) -> bool {
        let (a, b, c, d) = (self.from, self.to, other.from, other.to);
        let turn = orientation(a, c, b);
        turn != Ordering::Equal
            && orientation(c, b, d) == turn
            && orientation(b, d, a) == turn
            && orientation(d, a, c) == turn
    }

    /// The point in the middle.
    pub fn middle(self) -> UnitVector {
        let sum = [
            self.from.x() + self.to.x(),
            self.from.y() + self.to.y(),
            self.from.z() + self.to.z(),
        ];
        UnitVector::from_vector(sum).unwrap_or(self.from)
    }
}

/// The vector product of two vectors.
pub(super) fn cross(a: UnitVector, b: UnitVector) -> [f64; 3] {
    let ([ax, ay, az], [bx, by, bz]) = (a.components(), b.components());
    [ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx]
}

fn dot(a: [f64; 3], b: UnitVector) -> f64 {
    let [x, y, z] = b.components();
    a[0] * x + a[1] * y + a[2] * z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LonLat;
    use proptest::prelude::*;

    fn at(ra: f64, dec: f64) -> UnitVector {
        LonLat::from_degrees(ra, dec).unwrap().into()
    }

    fn arc(from: (f64, f64), to: (f64, f64)) -> Arc {
        Arc {
            from: at(from.0, from.1),
            to: at(to.0, to.1),
        }
    }

    #[test]
    fn distances_are_to_the_arc_not_to_its_circle() {
        let equator = arc((350.0, 0.0), (10.0, 0.0));
        for (p, nearest, farthest) in [
            (at(0.0, 5.0), 5.0, 11.169),
            (at(20.0, 0.0), 10.0, 30.0),
            (at(180.0, 0.0), 170.0, 180.0),
            (at(77.0, 90.0), 90.0, 90.0),
        ] {
            assert!((equator.distance(p).degrees() - nearest).abs() < 1e-12);
            assert!((equator.largest_distance(p).degrees() - farthest).abs() < 1e-3);
        }
    }

    #[test]
    fn arcs_cross_where_both_pass_and_not_on_the_other_side_of_the_sky() {
        let equator = arc((350.0, 0.0), (10.0, 0.0));
        assert!(equator.crosses(arc((0.0, -1.0), (0.5, 1.0))));
        assert!(!equator.crosses(arc((11.0, -1.0), (11.0, 1.0))));
        assert!(!equator.crosses(arc((180.0, -1.0), (180.0, 1.0))));
        // Touching.
        assert!(!equator.crosses(arc((0.0, 0.0), (0.0, 1.0))));
        assert!(equator.holds(at(0.0, 0.0)));
        assert!(!equator.holds(at(180.0, 0.0)));
    }

    proptest! {
        /// No point of a fine division of the arc is nearer than the distance, or farther than the largest.
        #[test]
        fn distances_bound_those_of_all_points(
            ra in prop::array::uniform3(0.0_f64..360.0),
            dec in prop::array::uniform3(-90.0_f64..90.0),
        ) {
            let whole = arc((ra[0], dec[0]), (ra[1], dec[1]));
            let p = at(ra[2], dec[2]);
            let (mut nearest, mut farthest) = (f64::INFINITY, 0.0_f64);
            for step in 0..=400 {
                let t = f64::from(step) / 400.0;
                let [a, b] = [whole.from.components(), whole.to.components()];
                let mixed = [0, 1, 2].map(|i| a[i] * (1.0 - t) + b[i] * t);
                let d = UnitVector::from_vector(mixed).unwrap().separation(p).degrees();
                nearest = nearest.min(d);
                farthest = farthest.max(d);
            }
            // Rounding, and how far apart the points of the division may be.
            let step = whole.from.separation(whole.to).degrees() / 20.0 + 1e-9;
            prop_assert!(whole.distance(p).degrees() <= nearest + 1e-9);
            prop_assert!(whole.distance(p).degrees() >= nearest - step);
            prop_assert!(whole.largest_distance(p).degrees() >= farthest - 1e-9);
            prop_assert!(whole.largest_distance(p).degrees() <= farthest + step);
        }
    }
}
