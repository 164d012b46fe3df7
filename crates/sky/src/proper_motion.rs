//! Positions at other epochs: the straight motion of a star through space, seen from a sun that moves straight too.

use crate::{LonLat, UnitVector};

/// What is known of a star's motion at an epoch; what is not known is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Motion {
    /// Parallax, milliarcseconds; 0 is infinitely remote.
    pub parallax: f64,
    /// Proper motion in longitude, times the cosine of the latitude, milliarcseconds a year.
    pub in_longitude: f64,
    /// Proper motion in latitude, milliarcseconds a year.
    pub in_latitude: f64,
    /// Radial velocity, km/s, away from the sun.
    pub radial_velocity: f64,
}

/// One astronomical unit a Julian year, in km/s: 149 597 870.7 km in 365.25 · 86 400 s.
const KM_PER_S: f64 = 149_597_870.7 / 31_557_600.0;

/// The position so many Julian years later.
///
/// `u = r (1 + ζ t) + μ t` with the position `r`, the proper motion `μ = p μ_α* + q μ_δ` along east and north, and the radial
/// motion `ζ = v_r ϖ / A`, all in radians a year (L. Lindegren in *The Hipparcos and Tycho Catalogues*, ESA SP-1200 (1997),
/// volume 1, 1.5.5). Light takes no time.
pub fn moved(position: LonLat, motion: &Motion, years: f64) -> LonLat {
    let radians = |mas: f64| (mas / 3_600_000.0).to_radians();
    let (sin_ra, cos_ra) = position.ra().sin_cos();
    let (sin_dec, cos_dec) = position.dec().sin_cos();
    let east = [-sin_ra, cos_ra, 0.0];
    let north = [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec];
    let away = radians(motion.radial_velocity * motion.parallax / KM_PER_S);
    let (eastward, northward) = (radians(motion.in_longitude), radians(motion.in_latitude));
    let here = UnitVector::from(position).components();
    let vector = [0, 1, 2].map(|i| {
        here[i] * (1.0 + away * years) + (east[i] * eastward + north[i] * northward) * years
    });
    UnitVector::from_vector(vector).map_or(position, LonLat::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::separation;

    /// The examples of the catalogue of ADQL's functions.
    #[test]
    fn known_motions() {
        let start = LonLat::from_degrees(7.606_083_572, 11.790_441_05).unwrap();
        let motion = |parallax, in_latitude, radial_velocity| Motion {
            parallax,
            in_longitude: 300.0,
            in_latitude,
            radial_velocity,
        };
        for (motion, epoch, ra, dec) in [
            (
                motion(125.0, -428.8, 52.51),
                1992.25,
                7.604_061_404_627_978,
                11.793_270_382_827_9,
            ),
            (
                motion(125.0, -428.8, 52.51),
                1875.0,
                7.594_068_213_694_308,
                11.807_251_375_203_935,
            ),
            (
                motion(125.0, -428.8, 0.0),
                1875.0,
                7.594_079_587_029_898,
                11.807_235_464_326_332,
            ),
            (
                motion(125.0, 0.0, 0.0),
                1875.0,
                7.594_080_321_498_365,
                11.790_440_798_509_207,
            ),
            (
                motion(0.0, -428.8, 52.51),
                1875.0,
                7.594_079_587_020_846,
                11.807_235_464_339_055,
            ),
        ] {
            let end = moved(start, &motion, epoch - 2016.0);
            let off = separation(end, LonLat::from_degrees(ra, dec).unwrap());
            assert!(off.degrees() < 1e-10, "{epoch}: {}", off.degrees());
        }
    }
}
