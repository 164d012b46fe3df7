//! Radii, and what they mean for squared chords: which pairs are surely within, which surely not, and which must be asked.
//!
//! A pair belongs to the join where [`crate::separation_degrees`] says so, to the last bit. That costs some nanoseconds
//! a pair; the squared chord `|a - b|²` of two unit vectors costs a fraction of one. The two cannot contradict each
//! other but for separations that differ from the radius by rounding errors. [`CHORD_SLACK`] bounds these, so that a
//! squared chord outside of a narrow band decides, and the function is called for pairs within it.

use super::positions::{Column, Sizes, Validity};
use crate::Angle;
use crate::trig::sin_degrees;

/// How far a computed chord and a computed separation can be from describing the same pair, in units of the sphere's radius.
///
/// With ε = 2⁻⁵² and positions in [0, 360) × [-90, 90]:
/// * Sines and cosines of degrees have relative errors of at most 2ε (`trig`). A component of a unit vector is a product of
///   two, within 4.5ε of its own size, and so the vector within 4.5ε, and the difference of two within 9ε. Subtracting,
///   squaring, adding and the root add less than 2ε times the chord, which is at most 2. Together: below 13ε.
/// * The separation: `Δδ`, `Δα` and `δ₁ + δ₂` are each rounded once (taking off 360 is exact), ε/2 of their size. Squares
///   of sines then have 5.5ε, times both cosines of declinations 11.5ε, so the roots of `h` and of `1 - h` have 6ε, but
///   that the rounding of `Δα/2` near 90 degrees adds ε, absolutely, to the latter. `atan2` turns by at most half the
///   difference of the relative errors, 6ε, plus 1.5ε; twice that, with the last bits of `atan2` and of the conversion to
///   degrees (2ε of at most π): below 23ε. That of near pairs, the arc sine of a root that has 6ε of its small size, is better.
/// * The chord of the radius, `2 sin(r/2)`: below 6ε.
///
/// A chord grows no faster than its angle, so the sum, 42ε, bounds how far the chord of a pair that the function puts on one
/// side of the radius can be on the other. This is half as much again.
const CHORD_SLACK: f64 = 64.0 * f64::EPSILON;

/// For larger numbers, rounding errors of differences grow with them: three roundings of at most ε·M degrees, 0.06 ε·M in
/// radians, for a magnitude of M degrees, which is below `CHORD_SLACK · M / 360`. From this magnitude on (and it
/// should be below 2⁵⁰, where `trig` ends) a chord says nothing.
const LARGEST_MAGNITUDE: f64 = 1_099_511_627_776.0;

/// Longer than any chord.
const NO_CHORD: f64 = 4.0;

/// Where the radius is larger than this, in degrees, zones are searched all around. Windows of right ascension
/// are sure to be wide enough because the radius is widened by slack, which is what makes up for their rounding; but
/// what it adds to the sine of the radius fades towards 90 degrees. (At 60 degrees a slack of s still makes the square
/// of the sine larger by 1.1·s of its size, and 2·`CHORD_SLACK` by 140ε, where rounding takes less than 12ε.)
const WIDEST_WINDOWED: f64 = 60.0;

/// The middle between two squared chords is rounded by ε/2 of its size, as the distance of a third from it is. Where the two are
/// 2·`CHORD_SLACK` apart, which is least, half their distance is at least 64ε of it. A 16th more is more than enough.
const ROUNDING_OF_MIDDLE: f64 = 1.0 + 1.0 / 16.0;

/// Whether the radius itself is within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Separations less than the radius: `<`.
    Below,
    /// Separations less than the radius or equal to it: `<=`.
    AtMost,
}

/// The separations that are near enough.
///
/// Nothing is within a radius that is negative or NaN, and everything that has a separation within one of more than
/// 180 degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Radius {
    degrees: f64,
    bound: Bound,
}

impl Radius {
    /// Separations below the radius or at most of it.
    pub const fn new(radius: Angle, bound: Bound) -> Self {
        Self {
            degrees: radius.degrees(),
            bound,
        }
    }

    /// `separation < radius`.
    pub const fn below(radius: Angle) -> Self {
        Self::new(radius, Bound::Below)
    }

    /// `separation <= radius`.
    pub const fn at_most(radius: Angle) -> Self {
        Self::new(radius, Bound::AtMost)
    }

    pub(super) const fn degrees(self) -> f64 {
        self.degrees
    }

    /// Whether a separation, in degrees, is within.
    #[inline]
    pub(super) fn admits(self, separation: f64) -> bool {
        match self.bound {
            Bound::Below => separation < self.degrees,
            Bound::AtMost => separation <= self.degrees,
        }
    }
}

/// How near the partners of each left row are.
#[derive(Debug, Clone, Copy)]
pub struct Radii<'a>(Kind<'a>);

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Common(Radius),
    OfRow(Column<'a>, Bound),
}

impl<'a> Radii<'a> {
    /// The same radius for all rows.
    pub const fn common(radius: Radius) -> Self {
        Self(Kind::Common(radius))
    }

    /// A radius for each left row, in degrees (a positional error, for example). A row whose radius is NULL, NaN or
    /// negative, or for which there is none, has no partner.
    pub const fn of_rows(degrees: &'a [f64], validity: Option<Validity<'a>>, bound: Bound) -> Self {
        Self(Kind::OfRow(Column::new(degrees, validity), bound))
    }

    /// The radius that all rows have, if there is one.
    pub(super) const fn shared(&self) -> Option<Radius> {
        match self.0 {
            Kind::Common(radius) => Some(radius),
            Kind::OfRow(..) => None,
        }
    }

    /// The radius of a left row.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<Radius> {
        match self.0 {
            Kind::Common(radius) => Some(radius),
            Kind::OfRow(degrees, bound) => {
                degrees.get(row).map(|degrees| Radius { degrees, bound })
            }
        }
    }
}

/// What a radius means for the search. Chords and their squares are of the unit sphere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub radius: Radius,
    /// A pair with a squared chord below this is within the radius; negative where no chord is small enough to say so.
    pub surely: f64,
    /// A pair with a squared chord above this is not.
    pub possibly: f64,
    /// Between both, and how far from there a squared chord must be to be outside of both.
    pub middle: f64,
    pub doubt: f64,
    /// Every position whose squared chord is in truth below this is surely within, with room for the rounding of windows.
    pub window_inside: f64,
    /// No position whose squared chord is in truth above this is within, with room for the rounding of windows.
    pub window_outside: f64,
    /// The radius of `window_outside` or a little more, degrees.
    pub reach: f64,
    /// The square of the sine of the radius of `window_outside`.
    pub sin2_outside: f64,
    /// Whether zones are to be searched all around.
    pub all_around: bool,
    /// See [`slack`], for the sizes of the positions at hand.
    slack: f64,
}

impl Limits {
    /// The limits for positions whose numbers are no larger than these; `None` where nothing is within.
    pub fn new(radius: Radius, sizes: Sizes) -> Option<Self> {
        if !radius.admits(0.0) {
            return None;
        }
        let slack = slack(sizes);
        let degrees = radius.degrees.min(180.0);
        let chord = 2.0 * sin_degrees(0.5 * degrees);
        let reach = degrees + (4.0 * slack).to_degrees();
        let below = |slack: f64| {
            let chord = chord - slack;
            // Beyond a pole, the separation of near positions can be NaN, so that nothing is sure.
            if chord > 0.0 && !sizes.beyond_pole {
                chord * chord
            } else {
                -1.0
            }
        };
        let above = |slack: f64| square_of_chord(chord + slack);
        let window_outside = above(2.0 * slack);
        let (surely, possibly) = (below(slack), above(slack));
        Some(Self {
            radius,
            surely,
            possibly,
            middle: 0.5 * (surely + possibly),
            doubt: 0.5 * (possibly - surely) * ROUNDING_OF_MIDDLE,
            window_inside: below(2.0 * slack),
            window_outside,
            reach,
            sin2_outside: window_outside * (1.0 - 0.25 * window_outside),
            all_around: reach > WIDEST_WINDOWED,
            slack,
        })
    }

    /// Of two pairs, the one with the larger squared chord surely has the larger separation where its squared
    /// chord is above this and that of the other is `squared_chord`.
    ///
    /// Each chord and each separation has an error of its own here, and [`CHORD_SLACK`] is one of each.
    #[inline]
    pub fn surely_farther(&self, squared_chord: f64) -> f64 {
        square_of_chord(squared_chord.sqrt() + 2.0 * self.slack)
    }
}

/// The square of a chord that may have grown beyond all chords.
#[inline]
fn square_of_chord(chord: f64) -> f64 {
    let chord = chord.min(NO_CHORD);
    chord * chord
}

/// How far a chord and a separation can be apart for numbers of such sizes.
///
/// Beyond a pole a cosine is negative, and `h` is a difference. Of its terms, which are at most 1, the rounding errors are below
/// 20ε, and 0.1ε·M for a magnitude of M degrees. Its root, and that of `1 - h`, is off by at most the root of that, and the
/// separation, twice their arc tangent, by less than four times as much.
fn slack(sizes: Sizes) -> f64 {
    let magnitude = sizes.magnitude.max(Sizes::USUAL.magnitude);
    if magnitude > LARGEST_MAGNITUDE {
        return NO_CHORD;
    }
    let usual = CHORD_SLACK * (magnitude / Sizes::USUAL.magnitude);
    if sizes.beyond_pole {
        usual + 4.0 * ((20.0 + 0.1 * magnitude) * f64::EPSILON).sqrt()
    } else {
        usual
    }
}
