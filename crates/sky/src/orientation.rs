//! On which side of a great circle a point lies, decided exactly.
//!
//! The sign of the determinant of three vectors is computed in floating point first; when that is within its error
//! bound of zero, the determinant is computed without rounding, as a sum of non-overlapping terms. After
//! J. R. Shewchuk, *Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates*, Discrete and
//! Computational Geometry 18 (1997) 305-363: TWO-SUM (theorem 7), TWO-PRODUCT with a fused multiply-add, and
//! GROW-EXPANSION (theorem 10).

use std::cmp::Ordering;

use crate::UnitVector;

/// The relative error of the determinant below is at most 5 roundings of 2⁻⁵³ of the sum of its terms'
/// magnitudes, (5 + O(2⁻⁵³))·2⁻⁵³; 8 of them leave room for the bound's own rounding.
const ERROR_BOUND: f64 = 8.0 * f64::EPSILON / 2.0;

/// `Greater` if `a`, `b`, `c` turn anti-clockwise as seen from outside of the sphere, that is, if `c` lies to the left
/// of the great circle from `a` to `b`; `Equal` if the three are on one great circle; `Less` otherwise.
#[inline]
pub(crate) fn orientation(a: UnitVector, b: UnitVector, c: UnitVector) -> Ordering {
    let [ax, ay, az] = a.components();
    let [bx, by, bz] = b.components();
    let [cx, cy, cz] = c.components();
    let determinant =
        ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
    let magnitude = ax.abs() * ((by * cz).abs() + (bz * cy).abs())
        + ay.abs() * ((bz * cx).abs() + (bx * cz).abs())
        + az.abs() * ((bx * cy).abs() + (by * cx).abs());
    if determinant > ERROR_BOUND * magnitude {
        Ordering::Greater
    } else if -determinant > ERROR_BOUND * magnitude {
        Ordering::Less
    } else {
        exact_orientation(a, b, c)
    }
}

#[cold]
fn exact_orientation(a: UnitVector, b: UnitVector, c: UnitVector) -> Ordering {
    let mut sum = Expansion::default();
    let (b, c) = (b.components(), c.components());
    for (x, (j, k)) in a.components().into_iter().zip([(1, 2), (2, 0), (0, 1)]) {
        sum.add_product(x, b[j], c[k]);
        sum.add_product(-x, b[k], c[j]);
    }
    sum.sign()
}

/// An exact sum: terms of increasing magnitude that do not overlap.
#[derive(Default)]
struct Expansion {
    /// Six products of four terms each.
    terms: [f64; 24],
    len: usize,
}

impl Expansion {
    fn add_product(&mut self, x: f64, y: f64, z: f64) {
        let (high, low) = two_product(x, y);
        for part in [low, high] {
            let (h, l) = two_product(part, z);
            self.add(l);
            self.add(h);
        }
    }

    fn add(&mut self, term: f64) {
        let mut carry = term;
        for slot in &mut self.terms[..self.len] {
            let (sum, error) = two_sum(carry, *slot);
            *slot = error;
            carry = sum;
        }
        self.terms[self.len] = carry;
        self.len += 1;
    }

    /// The largest term that is not zero outweighs all others together.
    fn sign(&self) -> Ordering {
        let largest = self.terms[..self.len].iter().rev().find(|t| **t != 0.0);
        largest.map_or(Ordering::Equal, |t| t.total_cmp(&0.0))
    }
}

/// `x + y` rounded, and what rounding took away.
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let y_virtual = sum - x;
    let x_virtual = sum - y_virtual;
    (sum, (x - x_virtual) + (y - y_virtual))
}

/// `x · y` rounded, and what rounding took away (exact unless it underflows, below 1e-290).
fn two_product(x: f64, y: f64) -> (f64, f64) {
    let product = x * y;
    (product, x.mul_add(y, -product))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LonLat;
    use proptest::prelude::*;

    fn at(ra: f64, dec: f64) -> UnitVector {
        LonLat::from_degrees(ra, dec).unwrap().into()
    }

    #[test]
    fn left_right_and_on_the_line() {
        let (a, b) = (at(0.0, 0.0), at(90.0, 0.0));
        assert_eq!(orientation(a, b, at(45.0, 1e-12)), Ordering::Greater);
        assert_eq!(orientation(a, b, at(45.0, -1e-12)), Ordering::Less);
        assert_eq!(orientation(a, b, at(45.0, 0.0)), Ordering::Equal);
        assert_eq!(orientation(a, b, a), Ordering::Equal);
    }

    #[test]
    fn differences_far_below_rounding_are_seen() {
        // det = x·(1·1 - (1 + ε)(1 - ε)) = x·ε²: nothing of it is left in floating point.
        let e = f64::EPSILON;
        let a = UnitVector::from_components(1.0, 0.0, 0.0);
        let b = UnitVector::from_components(0.0, 1.0, 1.0 + e);
        let c = UnitVector::from_components(0.0, 1.0 - e, 1.0);
        assert_eq!(orientation(a, b, c), Ordering::Greater);
        assert_eq!(orientation(a, c, b), Ordering::Less);
    }

    proptest! {
        #[test]
        fn exchanging_two_changes_the_sign(
            ra in prop::array::uniform3(0.0_f64..360.0),
            dec in prop::array::uniform3(-90.0_f64..90.0),
            squeeze in prop::sample::select(vec![1.0, 1e-6, 1e-12, 1e-15]),
        ) {
            let [a, b, c] = [0, 1, 2].map(|i| at(10.0 + ra[i] * squeeze, dec[i] * squeeze));
            let turn = orientation(a, b, c);
            prop_assert_eq!(orientation(b, c, a), turn);
            prop_assert_eq!(orientation(b, a, c), turn.reverse());
            prop_assert_eq!(exact_orientation(a, b, c), turn);
        }
    }
}
