//! Where in an index the partners of a position can be, and where all rows are partners.
//!
//! For a position at declination δ, with `p = cos δ`, and a point at declination d at the distance of a chord `c`,
//!
//! `c² = D² + 4 cos δ cos d sin²(Δα/2)`, where `D² = (sin δ - sin d)² + (cos δ - cos d)²`,
//!
//! so that the circle of chord C holds on the parallel d what has `sin²(Δα/2) <= q(d) = (C² - D²) / (4 cos δ cos d)`: nothing
//! if q is negative, everything if it is 1 or more. As long as the circle does not hold both poles, q rises up to one
//! parallel (where a meridian touches the circle, or the pole in it) and falls from there. Hence in a zone it is
//! least at one of both edges, and largest at one of them too, but for the zone that has the parallel in it.

use std::ops::Range;

use super::chords::{LANES, larger, smaller};
use super::index::{NeighbourIndex, reciprocal_of_cosine};
use super::limits::Limits;
use super::positions::Place;
use crate::position::vector_of_degrees;
use crate::trig::cos_degrees;

/// How near the sine of a zone's edge and that of the parallel with the largest q can be for their order to be in
/// doubt. Much larger than any rounding error: for a zone taken to have the parallel by mistake, the bound is still one.
const PARALLEL_TOLERANCE: f64 = 1e-9;

/// The square of the sine of half a circle's width, from which on the circle is taken to have a pole in it or on it. The
/// parallel of a circle of less is at most 2e-10 (in its sine) from the pole: within [`PARALLEL_TOLERANCE`].
const TOUCHES_POLE: f64 = 1.0 - 1e-10;

/// Times this, the greatest width is larger than each of the others, whatever their rounding.
const WIDER_THAN_ANY: f64 = 1.001;

/// As many degrees on both sides are all around.
const HALF_A_TURN: f64 = 180.0;

const TURN: f64 = 360.0;

/// A left row on the search for its partners.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub row: u32,
    pub place: Place,
    pub vector: [f64; 3],
    /// Of the declination.
    pub cosine: f64,
    pub limits: Limits,
}

impl Probe {
    #[inline]
    pub fn new(row: u32, place: Place, limits: Limits) -> Self {
        Self {
            row,
            place,
            vector: vector_of_degrees(place.east, place.north).components(),
            cosine: cos_degrees(place.north),
            limits,
        }
    }

    /// The probe of a position whose vector is known.
    #[inline]
    pub fn with_vector(place: Place, vector: [f64; 3], limits: Limits) -> Self {
        Self {
            row: 0,
            place,
            vector,
            cosine: cos_degrees(place.north),
            limits,
        }
    }
}

/// Places of one zone in which partners can be, all in whole blocks of [`LANES`].
///
/// Those before `inner` and those after it are to be tested: some at their ends may be padding or have nothing to do with the
/// position, which the test finds out.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub start: usize,
    /// All of these are surely partners.
    pub inner: Range<usize>,
    pub end: usize,
}

impl Run {
    /// Places all of which are to be tested.
    fn tested(places: Range<usize>) -> Self {
        Self::with_inner(places, 0..0)
    }

    /// The same where those of `inner` need no test.
    #[inline]
    fn with_inner(places: Range<usize>, inner: Range<usize>) -> Self {
        let (start, end) = (
            in_whole_blocks(places.start),
            places.end.next_multiple_of(LANES),
        );
        let inner = inner.start.next_multiple_of(LANES)..in_whole_blocks(inner.end);
        let inner = if inner.is_empty() { end..end } else { inner };
        Self { start, inner, end }
    }

    /// The parts that are to be tested.
    pub fn edges(&self) -> [Range<usize>; 2] {
        [self.start..self.inner.start, self.inner.end..self.end]
    }
}

/// The last multiple of [`LANES`] up to a place.
fn in_whole_blocks(place: usize) -> usize {
    place - place % LANES
}

/// How far everything is within on a parallel, or on all of a zone, and beyond what nothing is, in degrees of right
/// ascension. Negative where nothing is within.
#[derive(Debug, Default)]
struct Widths {
    inside: Vec<f64>,
    outside: Vec<f64>,
}

/// A value of q that rounding cannot bring below 1.
const ALL_AROUND: f64 = 2.0;

/// The runs of one position, with what it takes to find them: made once, filled for each left row.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// In the order of their zones.
    pub runs: Vec<Run>,
    /// At the edges of the zones.
    edges: Widths,
    /// In the zones between.
    zones: Widths,
    /// For each zone: the bins of where the window begins and ends, and of where the part begins and ends in which everything is
    /// within.
    bins: Vec<[u32; 4]>,
}

impl Runs {
    /// Finds the places of the index where the partners of `probe` can be; each is in one run.
    #[inline]
    pub fn find(&mut self, index: &NeighbourIndex, probe: &Probe) {
        self.find_from(index, probe, 0);
    }

    /// The same in the zones from `first` on.
    #[inline]
    pub fn find_from(&mut self, index: &NeighbourIndex, probe: &Probe, first: usize) {
        self.runs.clear();
        let (layout, limits) = (&index.layout, &probe.limits);
        let (south, north) = (
            probe.place.north - limits.reach,
            probe.place.north + limits.reach,
        );
        if !layout.overlaps(south, north) {
            return;
        }
        let zones = layout.zone(south).max(first)..layout.zone(north) + 1;
        if limits.all_around {
            self.push_whole(index, zones);
            return;
        }
        self.make_room(zones.len() + 1);
        self.widths_at_edges(index, probe, zones.start..zones.end + 1);
        let parallel = Widest::of(probe);
        self.widths_of_zones(index, &parallel, &zones);
        let eastward = layout.eastward(probe.place.east);
        let widest = parallel.width * WIDER_THAN_ANY;
        if eastward - widest < 0.0 || eastward + widest >= TURN {
            self.push_across_seam(index, zones, eastward);
        } else {
            self.push_windows(index, zones, eastward);
        }
    }

    fn push_whole(&mut self, index: &NeighbourIndex, zones: Range<usize>) {
        for zone in zones {
            let places = index.places_of(zone);
            if !places.is_empty() {
                self.runs.push(Run::tested(places));
            }
        }
    }

    fn make_room(&mut self, edges: usize) {
        if self.bins.len() < edges {
            for widths in [&mut self.edges, &mut self.zones] {
                widths.inside.resize(edges, 0.0);
                widths.outside.resize(edges, 0.0);
            }
            self.bins.resize(edges, [0; 4]);
        }
    }

    #[inline]
    fn widths_at_edges(&mut self, index: &NeighbourIndex, probe: &Probe, edges: Range<usize>) {
        let (sin_dec, cos_dec) = (probe.vector[2], probe.cosine);
        let window_inside = probe.limits.window_inside;
        let window_outside = probe.limits.window_outside;
        let quarter = 0.25 * reciprocal_of_cosine(cos_dec);
        let edge_z = &index.edge_z[edges.clone()];
        let edge_cos = &index.edge_cos[edges.clone()];
        let edge_per_cos = &index.edge_per_cos[edges];
        let inside = &mut self.edges.inside[..edge_z.len()];
        let outside = &mut self.edges.outside[..edge_z.len()];
        for at in 0..edge_z.len() {
            let (dz, dp) = (sin_dec - edge_z[at], cos_dec - edge_cos[at]);
            let squared_distance = dz * dz + dp * dp;
            let per_chord = quarter * edge_per_cos[at];
            inside[at] = at_most((window_inside - squared_distance) * per_chord);
            outside[at] = at_least((window_outside - squared_distance) * per_chord);
        }
    }

    /// Turns the widths at the edges into those of the zones between.
    #[inline]
    fn widths_of_zones(&mut self, index: &NeighbourIndex, widest: &Widest, zones: &Range<usize>) {
        let len = zones.len();
        let edge_z = &index.edge_z[zones.start..=zones.end];
        let (south, north) = (&edge_z[..len], &edge_z[1..=len]);
        let (inside_south, inside_north) = (&self.edges.inside[..len], &self.edges.inside[1..=len]);
        let (outside_south, outside_north) =
            (&self.edges.outside[..len], &self.edges.outside[1..=len]);
        let inside = &mut self.zones.inside[..len];
        let outside = &mut self.zones.outside[..len];
        for at in 0..len {
            inside[at] = smaller(inside_south[at], inside_north[at]);
            let at_edges = larger(outside_south[at], outside_north[at]);
            let has_parallel = widest.is_between(south[at], north[at]);
            outside[at] = if has_parallel { widest.width } else { at_edges };
        }
    }

    /// Adds the runs of zones whose windows do not reach over the end of right ascensions.
    #[inline]
    fn push_windows(&mut self, index: &NeighbourIndex, zones: Range<usize>, eastward: f64) {
        let len = zones.len();
        let (inside, outside) = (&self.zones.inside[..len], &self.zones.outside[..len]);
        let bins = &mut self.bins[..len];
        for at in 0..len {
            let zone = zones.start + at;
            bins[at] = [
                index.zones.bin(zone, eastward - outside[at]),
                index.zones.bin(zone, eastward + outside[at]),
                index.zones.bin(zone, eastward - inside[at]),
                index.zones.bin(zone, eastward + inside[at]),
            ];
        }
        for at in 0..len {
            let (inside, outside) = (inside[at], outside[at]);
            let places = index.place_before(bins[at][0], eastward - outside)
                ..index.place_after(bins[at][1], eastward + outside);
            if places.is_empty() || outside < 0.0 {
                continue;
            }
            // Where nothing is within for sure, this is empty: its end is west of its beginning.
            let inner = index.place_after(bins[at][2], eastward - inside)
                ..index.place_before(bins[at][3], eastward + inside);
            self.runs.push(Run::with_inner(places, inner));
        }
    }

    /// The same where they do.
    #[cold]
    fn push_across_seam(&mut self, index: &NeighbourIndex, zones: Range<usize>, eastward: f64) {
        for zone in zones.clone() {
            let at = zone - zones.start;
            let (inside, outside) = (self.zones.inside[at], self.zones.outside[at]);
            if outside >= 0.0 {
                self.push_split(
                    index,
                    zone,
                    [eastward - outside, eastward + outside],
                    inside,
                );
            }
        }
    }

    /// Adds the places of a zone between two right ascensions: two runs where one of them is beyond the end, or the whole zone where
    /// the two touch.
    fn push_split(&mut self, index: &NeighbourIndex, zone: usize, ends: [f64; 2], inside: f64) {
        let [west, east] = ends;
        let before = |eastward| index.place_before(index.zones.bin(zone, eastward), eastward);
        let after = |eastward| index.place_after(index.zones.bin(zone, eastward), eastward);
        let all = index.places_of(zone);
        if inside >= HALF_A_TURN {
            self.runs.push(Run::with_inner(all.clone(), all));
            return;
        }
        let (first, second) = if east - west >= TURN {
            (all.clone(), all.end..all.end)
        } else if west < 0.0 {
            (all.start..after(east), before(west + TURN)..all.end)
        } else if east >= TURN {
            (all.start..after(east - TURN), before(west)..all.end)
        } else {
            (before(west)..after(east), all.end..all.end)
        };
        let (first, second) = (Run::tested(first), Run::tested(second));
        if second.start < first.end {
            self.runs.push(Run::tested(all));
        } else {
            let runs = [first, second].into_iter();
            self.runs.extend(runs.filter(|run| run.start < run.end));
        }
    }
}

/// The parallel on which the circle of `window_outside` is widest, and how wide it is there.
struct Widest {
    /// The sine of the declination of that parallel; ±1 where the circle has a pole in it.
    sin_dec: f64,
    /// Half of the width, degrees of right ascension.
    width: f64,
}

impl Widest {
    /// With ρ the circle's radius: `sin d = sin δ / cos ρ`, `sin Δα = sin ρ / cos δ`, and so `sin²(Δα/2) = s / (2 + 2√(1 - s))`
    /// for `s = sin² Δα`.
    #[inline]
    fn of(probe: &Probe) -> Self {
        let sin2_outside = probe.limits.sin2_outside;
        let per_cosine = reciprocal_of_cosine(probe.cosine);
        let s = sin2_outside * per_cosine * per_cosine;
        let q = if s < TOUCHES_POLE {
            0.5 * s / (1.0 + (1.0 - s).sqrt())
        } else {
            ALL_AROUND
        };
        Self {
            sin_dec: (probe.vector[2] / (1.0 - sin2_outside).sqrt()).clamp(-1.0, 1.0),
            width: at_least(q),
        }
    }

    /// Whether that parallel can be between two others, the sines of whose declinations these are.
    #[inline]
    fn is_between(&self, south: f64, north: f64) -> bool {
        south - PARALLEL_TOLERANCE <= self.sin_dec && self.sin_dec <= north + PARALLEL_TOLERANCE
    }
}

/// The Δα with `sin²(Δα/2) = q` or a little more, degrees; negative if q is.
///
/// `asin(x)/x` is a convex function of x², and so at most `1 + (π/2 - 1) x²` between x = 0 and x = 1. Above 1 this is more than
/// half a turn.
#[inline(always)]
fn at_least(q: f64) -> f64 {
    const BULGE: f64 = std::f64::consts::FRAC_PI_2 - 1.0;
    const TWICE: f64 = 2.0 * 180.0 / std::f64::consts::PI;
    let x = q.max(0.0).sqrt();
    let width = TWICE * x * (1.0 + BULGE * q);
    if q >= 0.0 { width } else { -1.0 }
}

/// The same Δα or a little less; half a turn where q is 1 or more.
///
/// `asin(x)/x` is at least `1 + x²/6`.
#[inline(always)]
fn at_most(q: f64) -> f64 {
    const TWICE: f64 = 2.0 * 180.0 / std::f64::consts::PI;
    let x = q.max(0.0).sqrt();
    let width = TWICE * x * (1.0 + q / 6.0);
    let width = if q >= 1.0 { HALF_A_TURN } else { width };
    if q >= 0.0 { width } else { -1.0 }
}
