//! What can be wrong with an angle, a position, a region or a partitioning.

use thiserror::Error;

/// An error of sky geometry. Every message says what is wrong and what to do.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SkyError {
    /// The right ascension is NaN or infinite.
    #[error("the right ascension {0} is not a finite number; give degrees, for example 266.4")]
    RightAscension(f64),
    /// The declination is NaN, infinite or outside of [-90, 90] degrees.
    #[error("the declination {0} is outside of -90 to 90 degrees; give degrees within that range")]
    Declination(f64),
    /// A circle's radius is NaN or outside of [0, 180] degrees.
    #[error("the radius {0} is outside of 0 to 180 degrees; give degrees within that range")]
    Radius(f64),
    /// A box's declinations are in the wrong order.
    #[error(
        "the box's smaller declination {dec_min} is above its larger one {dec_max}; exchange the two"
    )]
    BoxDeclinations {
        /// The declination given first, degrees.
        dec_min: f64,
        /// The declination given second, degrees.
        dec_max: f64,
    },
    /// An ellipse's semi-axes are out of range or in the wrong order.
    #[error(
        "the semi-axes {semi_major} and {semi_minor} do not make an ellipse; \
         give the larger one first, both of 0 or more and less than 90 degrees"
    )]
    EllipseAxes {
        /// The semi-major axis, degrees.
        semi_major: f64,
        /// The semi-minor axis, degrees.
        semi_minor: f64,
    },
    /// An ellipse's position angle is NaN or infinite.
    #[error(
        "the position angle {0} is not a finite number; give degrees, counted from north through east"
    )]
    PositionAngle(f64),
    /// A polygon has fewer than three corners that are not on one great circle.
    #[error(
        "a polygon needs at least three corners that do not lie on one great circle; \
         of the {given} given, {distinct} can serve"
    )]
    PolygonCorners {
        /// Corners given.
        given: usize,
        /// Corners left without repeated ones and those in the middle of an edge.
        distinct: usize,
    },
    /// A polygon turns both ways or crosses itself.
    #[error(
        "the polygon is not convex at corner {corner} (counted from 1); \
         give the corners of a convex polygon in order, one way round, or split it into convex ones"
    )]
    PolygonNotConvex {
        /// The corner where it was seen, counted from 1.
        corner: usize,
    },
    /// A polygon that is half of the sky or larger.
    #[error("the polygon does not fit into half of the sky; split it into smaller ones")]
    PolygonTooLarge,
    /// A polygon whose edges cross.
    #[error("the polygon crosses itself; give its corners in order, one way round")]
    PolygonCrossesItself,
    /// A box around a centre whose sides are not those of a polygon.
    #[error(
        "the width {width} and the height {height} do not make a box; \
         give degrees, more than 0 and less than 180"
    )]
    BoxSides {
        /// The width, degrees.
        width: f64,
        /// The height, degrees.
        height: f64,
    },
    /// The text does not begin with a known shape.
    #[error(
        "\"{0}\" is not a region; write \"circle RA DEC RADIUS\", \"box RA_MIN DEC_MIN RA_MAX DEC_MAX\", \
         \"ellipse RA DEC SEMI_MAJOR SEMI_MINOR POSITION_ANGLE\" or \"polygon RA DEC RA DEC RA DEC ...\", \
         all in degrees"
    )]
    Shape(String),
    /// A word of a region's text is not a number.
    #[error(
        "\"{word}\" in the region \"{region}\" is not a number; give degrees, for example -5.25"
    )]
    Number {
        /// The word that is not a number.
        word: String,
        /// The region's whole text.
        region: String,
    },
    /// A region's text has too few or too many numbers.
    #[error(
        "a {shape} takes {expected}, but {found} are given; write \"{shape} {form}\", all in degrees"
    )]
    NumberCount {
        /// The shape's name.
        shape: &'static str,
        /// How many numbers it takes, in words.
        expected: &'static str,
        /// How many were given.
        found: usize,
        /// The numbers it takes, by name.
        form: &'static str,
    },
    /// No stripes, no sub-stripes, or too many of them.
    #[error(
        "the sky cannot be cut into {stripes} stripes of {sub_stripes} sub-stripes; \
         give at least 1 of each, at most {max_stripes} stripes, {max_sub_stripes} sub-stripes in a stripe \
         and {max_all} in all",
        max_stripes = crate::chunker::MAX_STRIPES,
        max_sub_stripes = crate::chunker::MAX_SUB_STRIPES,
        max_all = crate::chunker::MAX_ALL_SUB_STRIPES
    )]
    Partitioning {
        /// The number of stripes requested.
        stripes: u32,
        /// The number of sub-stripes in a stripe requested.
        sub_stripes: u32,
    },
    /// More positions than an index of neighbours can number.
    #[error(
        "{given} positions are too many for one search of neighbours, which takes {most}; divide them"
    )]
    TooManyRows {
        /// Positions given.
        given: usize,
        /// The most there may be.
        most: usize,
    },
    /// A word of a MOC that is none of an order and its cells.
    #[error(
        "{0:?} is no part of a MOC; write orders and their cells, as in \"3/1,5-8 4/77\": orders of 0 to 29, each with cells from 0 on"
    )]
    Moc(String),
    /// A cover of more cells than there is time for.
    #[error(
        "the edge of the geometry has too many cells of the order {depth}; give a smaller order or a smaller geometry"
    )]
    TooManyCells {
        /// The order.
        depth: u8,
    },
    /// A subdivision level that the pixelization does not have.
    #[error("{pixels} has no level {level}; give one of 0 to {max}")]
    Level {
        /// The name of the pixelization.
        pixels: &'static str,
        /// The level requested.
        level: u32,
        /// The highest level there is.
        max: u32,
    },
}
