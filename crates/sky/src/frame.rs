//! Reference frames of positions, as rotations of each other.
//!
//! Plain rotations, as the catalogue of ADQL's functions requests (no aberration, no proper motion of the frames), so that what
//! is turned there and back is where it was.

use crate::{LonLat, UnitVector};

type Matrix = [[f64; 3]; 3];

/// A frame in which positions are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The International Celestial Reference System.
    Icrs,
    /// The fifth fundamental catalogue's, equinox J2000.
    Fk5,
    /// The fourth fundamental catalogue's, equinox B1950.
    Fk4,
    /// Galactic longitude and latitude (IAU 1958).
    Galactic,
    /// Longitude and latitude in the mean ecliptic of J2000.
    Ecliptic,
}

impl Frame {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Icrs,
        Self::Fk5,
        Self::Fk4,
        Self::Galactic,
        Self::Ecliptic,
    ];

    /// Its name in the IVOA's vocabulary `refframe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icrs => "ICRS",
            Self::Fk5 => "FK5",
            Self::Fk4 => "FK4",
            Self::Galactic => "GALACTIC",
            Self::Ecliptic => "ECLIPTIC",
        }
    }

    /// The frame of this name, which is upper case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|frame| frame.name() == name)
    }

    /// Turns vectors of the ICRS into this frame's.
    fn out_of_icrs(self) -> Matrix {
        match self {
            Self::Icrs => IDENTITY,
            Self::Fk5 => FROM_ICRS_TO_FK5,
            Self::Fk4 => product(&transposed(&FROM_FK4_TO_FK5), &FROM_ICRS_TO_FK5),
            Self::Galactic => product(&FROM_FK5_TO_GALACTIC, &FROM_ICRS_TO_FK5),
            Self::Ecliptic => FROM_ICRS_TO_ECLIPTIC,
        }
    }
}

const IDENTITY: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// The galactic pole is at 192.8594812065348, 27.12825118085622 degrees and the ascending node 90 degrees before the longitude
/// 122.9319185680026 of the celestial pole, in FK5 (J.-C. Liu, Z. Zhu and H. Zhang, *Reconsidering the galactic coordinate
/// system*, Astronomy and Astrophysics 526 (2011) A16): the definition of B1950 brought to J2000.
const FROM_FK5_TO_GALACTIC: Matrix = [
    [
        -0.054_875_539_395_714_56,
        -0.873_437_104_727_433_4,
        -0.483_834_991_770_322_46,
    ],
    [
        0.494_109_453_623_363_8,
        -0.444_829_594_298_816_7,
        0.746_982_248_702_05,
    ],
    [
        -0.867_666_135_685_869_9,
        -0.198_076_389_610_949_92,
        0.455_983_794_517_569_2,
    ],
];

/// The rotation vector from FK5 to Hipparcos is (-19.9, -9.1, 22.9) milliarcseconds (F. Mignard and M. Froeschlé, *Global and
/// local bias in the FK5 from the Hipparcos data*, Astronomy and Astrophysics 354 (2000) 732); to the first order, which leaves
/// less than 1e-14.
const FROM_ICRS_TO_FK5: Matrix = [
    [1.0, -FK5_Z, FK5_Y],
    [FK5_Z, 1.0, -FK5_X],
    [-FK5_Y, FK5_X, 1.0],
];
const FK5_X: f64 = (-0.0199 / 3600.0_f64).to_radians();
const FK5_Y: f64 = (-0.0091 / 3600.0_f64).to_radians();
const FK5_Z: f64 = (0.0229 / 3600.0_f64).to_radians();

/// The rotation part of the transformation from B1950 to J2000 (E. M. Standish, *Conversion of positions and proper motions from
/// B1950.0 to the IAU system at J2000.0*, Astronomy and Astrophysics 115 (1982) 20; Explanatory Supplement (1992), 3.59).
const FROM_FK4_TO_FK5: Matrix = [
    [0.999_925_678_2, -0.011_182_061_1, -0.004_857_947_7],
    [0.011_182_060_9, 0.999_937_478_4, -0.000_027_176_5],
    [0.004_857_947_9, -0.000_027_147_4, 0.999_988_199_7],
];

/// The obliquity of the ecliptic at J2000 is 84381.448 arcseconds (IAU 1980).
const FROM_ICRS_TO_ECLIPTIC: Matrix = [
    [1.0, 0.0, 0.0],
    [0.0, 0.917_482_062_069_181_8, 0.397_777_155_931_913_7],
    [0.0, -0.397_777_155_931_913_7, 0.917_482_062_069_181_8],
];

/// A position of one frame in another.
pub fn turned(position: LonLat, from: Frame, to: Frame) -> LonLat {
    if from == to {
        return position;
    }
    let icrs = apply(
        &transposed(&from.out_of_icrs()),
        UnitVector::from(position).components(),
    );
    let vector = apply(&to.out_of_icrs(), icrs);
    UnitVector::from_vector(vector).map_or(position, LonLat::from)
}

fn apply(matrix: &Matrix, v: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

fn transposed(m: &Matrix) -> Matrix {
    [0, 1, 2].map(|i| [0, 1, 2].map(|j| m[j][i]))
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let columns = transposed(b);
    a.map(|row| columns.map(|column| row[0] * column[0] + row[1] * column[1] + row[2] * column[2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::separation;
    use proptest::prelude::*;

    fn at(ra: f64, dec: f64) -> LonLat {
        LonLat::from_degrees(ra, dec).unwrap()
    }

    /// The examples of the catalogue of ADQL's functions (of FK4 within a third of an arcsecond: theirs is another
    /// matrix), and poles.
    #[test]
    fn known_places() {
        let (icrs, fk4, galactic) = (Frame::Icrs, Frame::Fk4, Frame::Galactic);
        for (from, place, to, expected, degrees) in [
            (
                icrs,
                at(120.0, -23.0),
                galactic,
                at(241.121_831_182, 3.627_857_880_87),
                1e-9,
            ),
            (
                fk4,
                at(189.703_030_55, 22.962_400_06),
                galactic,
                at(275.000_254_05, 84.999_961_54),
                1e-4,
            ),
            (
                galactic,
                at(5.0, 3.0),
                Frame::Fk5,
                at(266.447_21, -23.107_310),
                1e-5,
            ),
            (
                icrs,
                at(266.404_988_2, -28.936_177_2),
                galactic,
                at(0.0, 0.0),
                1e-6,
            ),
            (
                icrs,
                at(192.859_481_2, 27.128_251_2),
                galactic,
                at(0.0, 90.0),
                1e-5,
            ),
            (
                icrs,
                at(270.0, 66.560_708_9),
                Frame::Ecliptic,
                at(0.0, 90.0),
                1e-6,
            ),
        ] {
            let off = separation(turned(place, from, to), expected).degrees();
            assert!(off < degrees, "{place} {to:?}: {off}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(
            ra in 0.0_f64..360.0, dec in -90.0_f64..=90.0,
            from in prop::sample::select(Frame::ALL.to_vec()), to in prop::sample::select(Frame::ALL.to_vec()),
        ) {
            let place = at(ra, dec);
            let back = turned(turned(place, from, to), to, from);
            // The matrix of FK4 has ten digits.
            prop_assert!(separation(back, place).degrees() < 1e-7);
        }
    }
}
