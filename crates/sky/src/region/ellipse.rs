//! [`Ellipse`]: the points inside an elliptical cone.
//!
//! With `ξ`, `η`, `ζ` the components of a point towards the end of the semi-major axis, towards the end of the
//! semi-minor axis and towards the centre, the ellipse with semi-axes `a`, `b` is `ζ ≥ 0` and
//! `(ξ / tan a)² + (η / tan b)² ≤ ζ²`. It is also the set of points whose distances to two foci, `γ` from the
//! centre with `cos γ = cos a / cos b`, have a sum of at most `2a` (both as in lsst/sphgeom's `Ellipse`, which
//! derives the one from the other).

use std::fmt;

use crate::region::circle::Circle;
use crate::separation::{ra_difference, square};
use crate::trig::{sin_cos_degrees, sin_degrees};
use crate::{Angle, LonLat, LonLatBox, SkyError, UnitVector};

/// All points in an ellipse or on its edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ellipse {
    centre: LonLat,
    semi_major: Angle,
    semi_minor: Angle,
    position_angle: Angle,
    /// Sine and cosine of the centre's declination, the position angle and the semi-axes.
    dec: (f64, f64),
    turn: (f64, f64),
    major: (f64, f64),
    minor: (f64, f64),
    /// Unit vectors along the major axis, along the minor axis and towards the centre.
    frame: [UnitVector; 3],
    foci: [UnitVector; 2],
    envelope: LonLatBox,
}

impl Ellipse {
    /// The ellipse around `centre` whose major axis points `position_angle` from north towards east.
    ///
    /// # Errors
    /// [`SkyError::EllipseAxes`] unless 0 ≤ semi-minor ≤ semi-major < 90 degrees, [`SkyError::PositionAngle`] if the
    /// position angle is not finite.
    pub fn new(
        centre: LonLat,
        semi_major: Angle,
        semi_minor: Angle,
        position_angle: Angle,
    ) -> Result<Self, SkyError> {
        let (a, b) = (semi_major.degrees(), semi_minor.degrees());
        if !(0.0 <= b && b <= a && a < 90.0) {
            return Err(SkyError::EllipseAxes {
                semi_major: a,
                semi_minor: b,
            });
        }
        if !position_angle.degrees().is_finite() {
            return Err(SkyError::PositionAngle(position_angle.degrees()));
        }
        let frame = frame(centre, position_angle);
        Ok(Self {
            centre,
            semi_major,
            semi_minor,
            position_angle,
            dec: centre.dec().sin_cos(),
            turn: sin_cos_degrees(position_angle.degrees() % 360.0),
            major: semi_major.sin_cos(),
            minor: semi_minor.sin_cos(),
            foci: foci(frame, semi_major, semi_minor),
            frame,
            envelope: Circle::valid(centre, semi_major).envelope_box(),
        })
    }

    /// The centre.
    pub const fn centre(&self) -> LonLat {
        self.centre
    }

    /// Half of the longest diameter.
    pub const fn semi_major(&self) -> Angle {
        self.semi_major
    }

    /// Half of the shortest diameter.
    pub const fn semi_minor(&self) -> Angle {
        self.semi_minor
    }

    /// The direction of the major axis at the centre, from north towards east.
    pub const fn position_angle(&self) -> Angle {
        self.position_angle
    }

    /// Whether the point is in the ellipse or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        self.contains_degrees(p.ra().degrees(), p.dec().degrees())
    }

    /// The same for right ascension in [0, 360) and declination. The envelope spares most points the trigonometry.
    #[inline(always)]
    pub(crate) fn contains_degrees(&self, ra: f64, dec: f64) -> bool {
        self.envelope.contains_degrees(ra, dec) && self.is_inside_cone(ra, dec)
    }

    #[inline]
    fn is_inside_cone(&self, ra: f64, dec: f64) -> bool {
        let (sin_dec0, cos_dec0) = self.dec;
        let (sin_dec, cos_dec) = sin_cos_degrees(dec);
        let (sin_half, cos_half) =
            sin_cos_degrees(0.5 * ra_difference(self.centre.ra().degrees(), ra));
        let versine = 2.0 * square(sin_half);
        // East, north and towards the centre; differences are taken before sines, so that nothing cancels when near.
        let east = cos_dec * 2.0 * sin_half * cos_half;
        let difference = dec - self.centre.dec().degrees();
        let north = sin_degrees(difference) + sin_dec0 * cos_dec * versine;
        let towards = sin_dec * sin_dec0 + cos_dec * cos_dec0 * (1.0 - versine);
        let (sin_turn, cos_turn) = self.turn;
        let xi = square(north * cos_turn + east * sin_turn);
        let eta = square(east * cos_turn - north * sin_turn);
        let zeta = square(towards);
        let (sin2_a, cos2_a) = (square(self.major.0), square(self.major.1));
        let (sin2_b, cos2_b) = (square(self.minor.0), square(self.minor.1));
        // The third condition implies the first two but for an axis of length 0.
        towards >= 0.0
            && xi * cos2_a <= zeta * sin2_a
            && eta * cos2_b <= zeta * sin2_b
            && xi * cos2_a * sin2_b + eta * cos2_b * sin2_a <= zeta * sin2_a * sin2_b
    }

    /// The better of two bounds, of which each is exact at one of the axes and poor at the other.
    ///
    /// Moving by an angle changes the sum of the distances to the foci by at most twice that angle.
    pub(crate) fn signed_distance(&self, p: UnitVector) -> Angle {
        let sum = p.separation(self.foci[0]) + p.separation(self.foci[1]);
        let from_foci = sum / 2.0 - self.semi_major;
        let from_cone = self.signed_distance_by_cone(p);
        // Both are lower bounds, of the distance outside and of the depth inside; they may differ about which it is
        // only within rounding of the edge.
        if from_foci <= Angle::ZERO && from_cone <= Angle::ZERO {
            from_foci.min(from_cone)
        } else {
            from_foci.max(from_cone)
        }
    }

    /// `F = √((ξ cos a sin b)² + (η cos b sin a)²) - ζ sin a sin b` is convex and homogeneous, and not positive in the
    /// ellipse alone. Hence `F(q) ≥ ∇F(p)·q` for all `p` and `q`: the ellipse lies on the inner side of the plane
    /// through the origin whose normal is `∇F(p)`, and `p` is `asin(F(p) / |∇F(p)|)` outside of that plane. Inside,
    /// `F` changes no faster than its largest gradient, `sin a` (at the minor axis).
    fn signed_distance_by_cone(&self, p: UnitVector) -> Angle {
        let [xi, eta, zeta] = self.frame.map(|axis| axis.dot(p));
        let (sin_a, cos_a) = self.major;
        let (sin_b, cos_b) = self.minor;
        let (x, y) = (cos_a * sin_b, cos_b * sin_a);
        let root = (xi * x).hypot(eta * y);
        let value = root - zeta * sin_a * sin_b;
        if sin_a <= 0.0 {
            // A single point, which the foci tell all about.
            Angle::ZERO
        } else if value <= 0.0 {
            // No point at a shorter chord than this is outside.
            let chord = (-value / sin_a).min(1.0);
            Angle::from_radians(-2.0 * (0.5 * chord).asin())
        } else {
            let slope = (xi * x * x).hypot(eta * y * y).hypot(root * sin_a * sin_b);
            Angle::from_radians(
                (value * root / slope.max(f64::MIN_POSITIVE))
                    .min(1.0)
                    .asin(),
            )
        }
    }

    /// The smallest circle around the centre that holds the ellipse.
    pub fn bounding_circle(&self) -> Circle {
        Circle::valid(self.centre, self.semi_major)
    }

    pub(crate) const fn envelope_box(&self) -> LonLatBox {
        self.envelope
    }
}

/// North turned by the position angle, the same turned by 90 degrees towards east, and the centre.
fn frame(centre: LonLat, position_angle: Angle) -> [UnitVector; 3] {
    let (sin_turn, cos_turn) = sin_cos_degrees(position_angle.degrees() % 360.0);
    let (sin_ra, cos_ra) = centre.ra().sin_cos();
    let (sin_dec, cos_dec) = centre.dec().sin_cos();
    let north = UnitVector::from_components(-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec);
    let east = UnitVector::from_components(-sin_ra, cos_ra, 0.0);
    [
        combined(cos_turn, north, sin_turn, east),
        combined(-sin_turn, north, cos_turn, east),
        UnitVector::from(centre),
    ]
}

/// `p·a + q·b` for orthogonal unit vectors and `p² + q² = 1`.
fn combined(p: f64, a: UnitVector, q: f64, b: UnitVector) -> UnitVector {
    UnitVector::from_components(
        p * a.x() + q * b.x(),
        p * a.y() + q * b.y(),
        p * a.z() + q * b.z(),
    )
}

/// `sin²γ = 1 - cos²a / cos²b = sin(a - b) sin(a + b) / cos²b`, which does not cancel for small ellipses.
fn foci(frame: [UnitVector; 3], semi_major: Angle, semi_minor: Angle) -> [UnitVector; 2] {
    let product = (semi_major - semi_minor).sin_cos().0 * (semi_major + semi_minor).sin_cos().0;
    let (sin_gamma, cos_gamma) = product
        .max(0.0)
        .sqrt()
        .atan2(semi_major.sin_cos().1)
        .sin_cos();
    [sin_gamma, -sin_gamma].map(|side| combined(cos_gamma, frame[2], side, frame[0]))
}

/// `ellipse RA DEC SEMI_MAJOR SEMI_MINOR POSITION_ANGLE` in degrees.
impl fmt::Display for Ellipse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ellipse {} {} {} {}",
            self.centre, self.semi_major, self.semi_minor, self.position_angle
        )
    }
}
