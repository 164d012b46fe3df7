//! Which part of each chunk a catalogue covers, and how positions are drawn there.

use sky::{ChunkId, Chunker, LonLat, LonLatBox, Region};

use crate::error::SynthesizeError;
use crate::random::Stream;

/// Square degrees of a range of right ascension (degrees) times a range of the sine of the declination.
const DEGREES_IN_RADIAN: f64 = 180.0 / std::f64::consts::PI;

/// The whole sky in square degrees.
pub const WHOLE_SKY_SQUARE_DEGREES: f64 = 360.0 * 2.0 * DEGREES_IN_RADIAN;

/// A chunk that a curved edge crosses is measured on a grid of this many points each way: to about a part in a thousand.
const GRID: u32 = 128;

/// Draws before a position is taken as it is. The smallest part of a box that the grid sees is 1/16,384 of it, so that
/// this many draws miss it with a probability of e⁻⁶¹.
const MOST_DRAWS: u32 = 1_000_000;

/// The part of one chunk that lies in the region.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub chunk: ChunkId,
    /// Square degrees.
    pub area: f64,
    /// Ranges of right ascension, `(western edge, width)` in degrees: two where region and chunk meet on both sides.
    arcs: Vec<(f64, f64)>,
    width: f64,
    /// The sines of the southern and northern edge.
    sines: [f64; 2],
    decs: [f64; 2],
    /// Whether part of the box that the arcs and declinations make lies outside of the region.
    clipped: bool,
    /// Whether part of the chunk lies outside of the region.
    cut: bool,
}

/// The chunks of a region.
#[derive(Debug, Clone)]
pub(crate) struct Footprint {
    pub chunker: Chunker,
    pub region: Region,
    pub pieces: Vec<Piece>,
}

impl Footprint {
    /// Every chunk that has a part of the region with an area, in the order of their numbers.
    pub(crate) fn new(chunker: Chunker, region: Region) -> Self {
        let chunks = chunker.chunks_intersecting(&region);
        let boxes = chunks
            .into_iter()
            .filter_map(|c| Some((c, chunker.chunk_box(c)?)));
        let pieces = boxes
            .map(|(chunk, b)| Piece::new(chunk, &b, &region))
            .filter(|piece| piece.area > 0.0)
            .collect();
        Self {
            chunker,
            region,
            pieces,
        }
    }

    /// Square degrees.
    pub(crate) fn area(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.area).sum()
    }

    /// A position in the piece, of equal density on the sphere: right ascension and declination in degrees.
    #[inline]
    pub(crate) fn draw(&self, piece: &Piece, stream: &mut Stream) -> (f64, f64) {
        let mut drawn = piece.draw(stream);
        for _ in 0..MOST_DRAWS {
            if self.accepts(piece, drawn, piece.clipped) {
                break;
            }
            drawn = piece.draw(stream);
        }
        drawn
    }

    /// Whether a position (right ascension in [0, 360)) lies in the piece.
    pub(crate) fn holds(&self, piece: &Piece, position: (f64, f64)) -> bool {
        self.accepts(piece, position, piece.cut)
    }

    #[inline]
    fn accepts(&self, piece: &Piece, (ra, dec): (f64, f64), ask_region: bool) -> bool {
        LonLat::from_degrees(ra, dec).is_ok_and(|p| {
            self.chunker.locate(p).chunk == piece.chunk && (!ask_region || self.region.contains(p))
        })
    }
}

impl Piece {
    fn new(chunk: ChunkId, chunk_box: &LonLatBox, region: &Region) -> Self {
        let envelope = region.envelope_box();
        let decs = [
            chunk_box.dec_min().max(envelope.dec_min()),
            chunk_box.dec_max().min(envelope.dec_max()),
        ];
        let sines = decs.map(|dec| sky::Angle::from_degrees(dec).sin_cos().0);
        let arcs = common_arcs(chunk_box, &envelope);
        let cut = !region.surely_contains(chunk_box);
        let mut piece = Self {
            chunk,
            area: 0.0,
            width: arcs.iter().map(|(_, width)| width).sum(),
            arcs,
            sines,
            decs,
            clipped: cut && !matches!(region, Region::Box(_)),
            cut,
        };
        let box_area = piece.width * (sines[1] - sines[0]).max(0.0) * DEGREES_IN_RADIAN;
        piece.area = box_area * piece.share_inside(region);
        piece
    }

    /// The share of the piece's box that lies in the region.
    fn share_inside(&self, region: &Region) -> f64 {
        if !self.clipped || self.width <= 0.0 {
            return 1.0;
        }
        let middle = |i: u32| (f64::from(i) + 0.5) / f64::from(GRID);
        let mut inside = 0_u32;
        for row in 0..GRID {
            for column in 0..GRID {
                let (ra, dec) = self.at(middle(column), middle(row));
                inside +=
                    u32::from(LonLat::from_degrees(ra, dec).is_ok_and(|p| region.contains(p)));
            }
        }
        f64::from(inside) / f64::from(GRID * GRID)
    }

    #[inline]
    fn draw(&self, stream: &mut Stream) -> (f64, f64) {
        let east = stream.uniform();
        self.at(east, stream.uniform())
    }

    /// The position at these shares, in (0, 1), of the box's width and area.
    #[inline]
    fn at(&self, east: f64, north: f64) -> (f64, f64) {
        let mut offset = east * self.width;
        let mut ra = 0.0;
        for &(start, width) in &self.arcs {
            ra = start + offset;
            if offset <= width {
                break;
            }
            offset -= width;
        }
        let sine = self.sines[0] + north * (self.sines[1] - self.sines[0]);
        let dec = (libm::asin(sine) * DEGREES_IN_RADIAN).clamp(self.decs[0], self.decs[1]);
        (if ra >= 360.0 { ra - 360.0 } else { ra }, dec)
    }
}

/// The right ascensions that two boxes have in common: none, one or two ranges of some width.
fn common_arcs(a: &LonLatBox, b: &LonLatBox) -> Vec<(f64, f64)> {
    let (a_width, b_width) = (a.width().degrees(), b.width().degrees());
    if b.is_all_around() {
        return vec![(a.ra_min(), a_width)];
    }
    if a.is_all_around() {
        return vec![(b.ra_min(), b_width)];
    }
    // In degrees east of a's western edge b begins in [0, 360); its part from before the full turn may reach into a.
    let begin = (b.ra_min() - a.ra_min()).rem_euclid(360.0);
    let part = |begin: f64| {
        let (from, to) = (begin.max(0.0), (begin + b_width).min(a_width));
        (to > from).then_some(((a.ra_min() + from).rem_euclid(360.0), to - from))
    };
    [part(begin), part(begin - 360.0)]
        .into_iter()
        .flatten()
        .collect()
}

/// How many objects a catalogue has and where.
#[derive(Debug, Clone)]
pub struct Extent {
    /// The number of objects.
    pub objects: u64,
    /// Where they are.
    pub region: Region,
    /// The region's area in square degrees.
    pub area: f64,
}

/// Objects in a square degree where nothing else is said.
pub const DEFAULT_DENSITY: f64 = 50_000.0;

/// The declination to which the default box reaches on both sides of the equator, in degrees.
const BOX_DECLINATION: f64 = 10.0;
/// The default box is not narrower than this in right ascension, in degrees: a smaller catalogue gets a square.
const NARROWEST_BOX: f64 = 1.0;

/// Objects, density and region agree if the density that the other two give differs by less than this part.
const DENSITY_TOLERANCE: f64 = 1e-3;

/// Stripes of the grid on which a region's area is measured.
pub(crate) const AREA_STRIPES: u32 = 45;

impl Extent {
    /// Settles any two of objects, density (objects in a square degree) and region. Of one alone the density is
    /// [`DEFAULT_DENSITY`], and the region a box from right ascension 0 around the equator.
    ///
    /// # Errors
    /// All three that contradict each other, nothing at all, no objects, a density that is not positive, more objects
    /// than the whole sky holds at this density, a region without an area.
    pub fn new(
        objects: Option<u64>,
        density: Option<f64>,
        region: Option<Region>,
    ) -> Result<Self, SynthesizeError> {
        if objects == Some(0) {
            return Err(wrong(
                "a catalogue needs at least one object: give --objects 1 or more",
            ));
        }
        if let Some(density) = density.filter(|d| !(d.is_finite() && *d > 0.0)) {
            return Err(wrong(format!(
                "a density of {density} is not possible: give objects in a square degree, more than 0"
            )));
        }
        match (objects, region) {
            (None, None) => Err(wrong(
                "how many objects? Give --objects, or --region to fill at the density",
            )),
            (Some(objects), None) => default_extent(objects, density.unwrap_or(DEFAULT_DENSITY)),
            (objects, Some(region)) => extent_of(region, objects, density),
        }
    }
}

fn wrong(sentence: impl Into<String>) -> SynthesizeError {
    SynthesizeError::Options(sentence.into())
}

fn extent_of(
    region: Region,
    objects: Option<u64>,
    density: Option<f64>,
) -> Result<Extent, SynthesizeError> {
    let area = Footprint::new(Chunker::new(AREA_STRIPES, 1)?, region.clone()).area();
    if area <= 0.0 {
        return Err(wrong(format!(
            "the region {region} has no area: give a larger one"
        )));
    }
    let fitting = (density.unwrap_or(DEFAULT_DENSITY) * area).round();
    let objects = match (objects, density) {
        (Some(objects), None) => objects,
        (Some(objects), Some(density)) => {
            let given = objects as f64 / area;
            if (given / density - 1.0).abs() > DENSITY_TOLERANCE
                && (objects as f64 - fitting).abs() > 1.0
            {
                return Err(wrong(format!(
                    "{objects} objects in the {area:.3} square degrees of {region} are {given:.1} in each, not \
                     {density}: give two of --objects, --density and --region"
                )));
            }
            objects
        }
        (None, _) if fitting < 1.0 => {
            return Err(wrong(format!(
                "the {area:.3e} square degrees of {region} are too few for one object: give --objects, or more"
            )));
        }
        (None, _) => fitting as u64,
    };
    Ok(Extent {
        objects,
        region,
        area,
    })
}

/// A box from right ascension 0, of declination -10 to 10 if it is then neither narrower than a degree nor wider than the
/// whole circle; else as high as wide, or all around and as high as it takes.
fn default_extent(objects: u64, density: f64) -> Result<Extent, SynthesizeError> {
    let area = objects as f64 / density;
    if area > WHOLE_SKY_SQUARE_DEGREES {
        return Err(wrong(format!(
            "{objects} objects at {density} in a square degree need {area:.0} square degrees, and the whole sky has \
             {WHOLE_SKY_SQUARE_DEGREES:.0}: give fewer --objects or a higher --density"
        )));
    }
    let width_at = |half_height: f64| {
        let sine = sky::Angle::from_degrees(half_height).sin_cos().0;
        area / (2.0 * sine * DEGREES_IN_RADIAN)
    };
    let half_height = if width_at(BOX_DECLINATION) > 360.0 {
        let sine = (area / WHOLE_SKY_SQUARE_DEGREES).min(1.0);
        libm::asin(sine) * DEGREES_IN_RADIAN
    } else if width_at(BOX_DECLINATION) < NARROWEST_BOX {
        0.5 * area.sqrt()
    } else {
        BOX_DECLINATION
    };
    let width = width_at(half_height).min(360.0);
    let region = Region::box_degrees(0.0, -half_height, width, half_height)?;
    Ok(Extent {
        objects,
        region,
        area,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn footprint(region: &str, stripes: u32) -> Footprint {
        Footprint::new(Chunker::new(stripes, 1).unwrap(), region.parse().unwrap())
    }

    #[test]
    fn areas_are_known() {
        let area = |region: &str| footprint(region, 20).area();
        assert!((area("box 0 -90 360 90") - 41_252.961).abs() < 0.001);
        assert!((area("box 350 -10 10 10") - 20.0 * 2.0 * 9.949_308_5).abs() < 1e-3);
        // 2π(1 - cos 5°) steradians.
        assert!((area("circle 10 60 5") / 78.489 - 1.0).abs() < 2e-3);
        assert!((area("circle 10 -89 5") / 78.489 - 1.0).abs() < 2e-3);
    }

    #[test]
    fn a_box_that_nearly_goes_round_meets_a_chunk_twice() {
        let a = LonLatBox::from_degrees(0.0, 0.0, 100.0, 1.0).unwrap();
        let b = LonLatBox::from_degrees(80.0, 0.0, 20.0, 1.0).unwrap();
        assert_eq!(common_arcs(&a, &b), [(80.0, 20.0), (0.0, 20.0)]);
        let apart = LonLatBox::from_degrees(200.0, 0.0, 220.0, 1.0).unwrap();
        assert!(common_arcs(&a, &apart).is_empty());
    }

    #[test]
    fn any_two_of_objects_density_and_region() {
        let choose = |objects, density, region: Option<&str>| {
            Extent::new(objects, density, region.map(|r| r.parse().unwrap()))
        };
        let benchmark = choose(Some(20_000_000), None, None).unwrap();
        assert!((benchmark.area - 400.0).abs() < 1e-9);
        let b = benchmark.region.envelope_box();
        assert!((b.dec_max() - 10.0).abs() < 1e-12 && (b.width().degrees() - 20.102).abs() < 1e-3);
        let small = choose(Some(1000), None, None)
            .unwrap()
            .region
            .envelope_box();
        assert!((small.width() - small.height()).degrees().abs() < 1e-6);
        let large = choose(Some(1_000_000_000), None, None).unwrap();
        assert!(large.region.envelope_box().is_all_around());
        let filled = choose(None, Some(10.0), Some("box 0 -90 360 90")).unwrap();
        assert_eq!(filled.objects, 412_530);
        assert_eq!(
            choose(Some(5), None, Some("circle 0 0 1")).unwrap().objects,
            5
        );
        for (objects, density, region, part) in [
            (None, None, None, "how many"),
            (Some(0), None, None, "at least one"),
            (Some(5), Some(-1.0), None, "not possible"),
            (Some(5), Some(f64::NAN), None, "not possible"),
            (Some(3_000_000_000), None, None, "whole sky"),
            (Some(1000), Some(10.0), Some("box 0 0 1 1"), "give two of"),
            (Some(1000), None, Some("box 0 0 0 1"), "no area"),
            (None, Some(1e-9), Some("box 0 0 1 1"), "too few"),
        ] {
            let error = choose(objects, density, region).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_drawn_lies_in_chunk_and_region(
            ra in 0.0_f64..360.0, dec in -90.0_f64..90.0, radius in 0.1_f64..20.0, stripes in 1_u32..60,
        ) {
            let footprint = footprint(&format!("circle {ra} {dec} {radius}"), stripes);
            for piece in &footprint.pieces {
                let mut stream = Stream::new(3, crate::random::Purpose::Position, piece.chunk.0, 0);
                for _ in 0..5 {
                    let drawn = footprint.draw(piece, &mut stream);
                    prop_assert!(footprint.holds(piece, drawn), "{drawn:?} in chunk {}", piece.chunk);
                }
            }
        }
    }
}
