//! Objects, made in blocks of a chunk: positions (a tenth of them in clumps), magnitudes and light curves.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema};

use crate::footprint::{Footprint, Piece};
use crate::light_curve::LightCurve;
use crate::photometry::{self, Band};
use crate::random::{Purpose, Stream};

/// Rows of a block: enough to spread a batch's costs, few enough for a processor's cache.
pub(crate) const BLOCK_ROWS: u64 = 65_536;

/// The key of the catalogue's first object and source, in the range of LSST's simulations.
pub(crate) const FIRST_OBJECT_ID: i64 = 433_327_840_000_000;

/// A tenth of the objects stand in clumps, in 65,536ths; a clump has about 50 members.
const CLUMPED: u16 = 6554;
const CLUMP_MEMBERS: f64 = 50.0;
/// The scatter of a clump's members in each direction, in degrees, so that a clump is about 0.01 degrees wide.
const CLUMP_SIGMA: f32 = 0.005;
/// Draws of a member that falls out of the chunk before it is put into the clump's middle.
const MEMBER_DRAWS: u32 = 32;

/// Where a block lies in the catalogue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockPlace<'a> {
    pub seed: u64,
    pub footprint: &'a Footprint,
    pub piece: &'a Piece,
    /// The block's number in the chunk.
    pub block: u64,
    /// The number of the block's first object in the catalogue.
    pub first: u64,
    pub rows: usize,
}

impl BlockPlace<'_> {
    pub(crate) fn stream(&self, purpose: Purpose) -> Stream {
        Stream::new(self.seed, purpose, self.piece.chunk.0, self.block)
    }
}

/// What all tables need to know of a block's objects.
#[derive(Debug)]
pub(crate) struct ObjectBlock {
    pub first_key: i64,
    /// Degrees.
    pub ra: Vec<f64>,
    pub dec: Vec<f64>,
    /// log2 of the flux in r.
    pub red: Vec<f64>,
    /// The objects that vary, by their row in the block.
    pub variable: Vec<(usize, LightCurve)>,
    /// The mean fluxes in the bands of the catalogue's sources, where sources are made.
    pub fluxes: Vec<(Band, Vec<f32>)>,
}

impl ObjectBlock {
    /// Makes the block, with the fluxes in `bands`.
    pub(crate) fn make(place: &BlockPlace<'_>, bands: &[Band]) -> Self {
        let (ra, dec) = positions(place);
        let red = photometry::red_log2_fluxes(&mut place.stream(Purpose::Magnitude), place.rows);
        let mut stream = place.stream(Purpose::Variability);
        let variable = (0..place.rows)
            .filter_map(|row| Some((row, LightCurve::draw(&mut stream)?)))
            .collect();
        let fluxes = |band: &Band| (*band, fluxes(place, *band, &red));
        Self {
            first_key: FIRST_OBJECT_ID + place.first as i64,
            fluxes: bands.iter().map(fluxes).collect(),
            ra,
            dec,
            red,
            variable,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.ra.len()
    }

    /// The director's keys, as a column.
    pub(crate) fn keys(&self) -> ArrayRef {
        let end = self.first_key + self.rows() as i64;
        Arc::new(Int64Array::from_iter_values(self.first_key..end))
    }
}

fn fluxes(place: &BlockPlace<'_>, band: Band, red: &[f64]) -> Vec<f32> {
    photometry::band_fluxes(&mut place.stream(Purpose::Colour(band.number())), band, red)
}

/// Positions in no order of place.
fn positions(place: &BlockPlace<'_>) -> (Vec<f64>, Vec<f64>) {
    let BlockPlace {
        footprint, piece, ..
    } = *place;
    let stream = &mut place.stream(Purpose::Position);
    let clumped = place.rows as f64 * f64::from(CLUMPED) / 65_536.0;
    let clumps = (clumped / CLUMP_MEMBERS).round().max(1.0) as u64;
    let centres: Vec<(f64, f64)> = (0..clumps).map(|_| footprint.draw(piece, stream)).collect();
    let draw = |_| {
        let bits = stream.bits();
        if bits as u16 >= CLUMPED {
            return footprint.draw(piece, stream);
        }
        let clump = ((bits >> 32) * clumps) >> 32;
        clump_member(place, centres[clump as usize], stream)
    };
    (0..place.rows).map(draw).unzip()
}

/// A member of the clump around a centre, in the same chunk.
fn clump_member(place: &BlockPlace<'_>, centre: (f64, f64), stream: &mut Stream) -> (f64, f64) {
    for _ in 0..MEMBER_DRAWS {
        let [east, north] = stream.two_normals();
        let member = moved(centre, CLUMP_SIGMA * east, CLUMP_SIGMA * north);
        if member.1.abs() <= 90.0 && place.footprint.holds(place.piece, member) {
            return member;
        }
    }
    centre
}

/// The position so many degrees on the sky to the east and north: along the parallel of the new declination, so that
/// it is never farther, also beside a pole. The declination may come out beyond ±90.
#[inline]
pub(crate) fn moved((ra, dec): (f64, f64), east: f32, north: f32) -> (f64, f64) {
    let dec = dec + f64::from(north);
    let cosine = sky::Angle::from_degrees(dec).sin_cos().1.max(1e-9);
    let ra = ra + f64::from(east) / cosine;
    let in_range = (0.0..360.0).contains(&ra);
    // A tiny negative angle would be rounded up to 360 itself.
    let wrapped = if in_range { ra } else { ra.rem_euclid(360.0) };
    (if wrapped < 360.0 { wrapped } else { 0.0 }, dec)
}

/// A column of Object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectColumn {
    Key,
    Ra,
    Dec,
    Flux(Band),
    FluxError(Band),
    Extendedness,
    Flags,
}

impl ObjectColumn {
    /// All columns, in the table's order.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Key, Self::Ra, Self::Dec];
        for band in Band::ALL {
            all.extend([Self::Flux(band), Self::FluxError(band)]);
        }
        all.extend([Self::Extendedness, Self::Flags]);
        all
    }

    pub(crate) fn field(self) -> Field {
        let (name, ty) = match self {
            Self::Key => ("objectId".to_owned(), DataType::Int64),
            Self::Ra => ("ra_PS".to_owned(), DataType::Float64),
            Self::Dec => ("decl_PS".to_owned(), DataType::Float64),
            Self::Flux(band) => (format!("{}Flux_PS", band.name()), DataType::Float32),
            Self::FluxError(band) => (format!("{}Flux_PS_Sigma", band.name()), DataType::Float32),
            Self::Extendedness => ("extendedness".to_owned(), DataType::Float32),
            Self::Flags => ("flags".to_owned(), DataType::Int32),
        };
        let nullable = matches!(self, Self::Flux(_) | Self::FluxError(_));
        Field::new(name, ty, nullable)
    }
}

/// The schema of Object with these columns.
pub(crate) fn schema(columns: &[ObjectColumn]) -> Schema {
    Schema::new(columns.iter().map(|c| c.field()).collect::<Vec<_>>())
}

/// The columns of a block of Object, only what is requested being computed.
pub(crate) fn columns(
    place: &BlockPlace<'_>,
    block: ObjectBlock,
    wanted: &[ObjectColumn],
) -> Vec<ArrayRef> {
    let keys = block.keys();
    let (extendedness, flags) = shapes(place, &block, wanted);
    let mut photometry = BandColumns::default();
    let (ra, dec): (ArrayRef, ArrayRef) = (
        Arc::new(Float64Array::from(block.ra)),
        Arc::new(Float64Array::from(block.dec)),
    );
    let column = |wanted: &ObjectColumn| match wanted {
        ObjectColumn::Key => keys.clone(),
        ObjectColumn::Ra => ra.clone(),
        ObjectColumn::Dec => dec.clone(),
        ObjectColumn::Flux(band) => photometry.of(place, *band, &block.red).0.clone(),
        ObjectColumn::FluxError(band) => photometry.of(place, *band, &block.red).1.clone(),
        ObjectColumn::Extendedness => extendedness.clone(),
        ObjectColumn::Flags => flags.clone(),
    };
    wanted.iter().map(column).collect()
}

/// The flux and error columns of the band requested last: the two are neighbours.
#[derive(Default)]
struct BandColumns(Option<(Band, ArrayRef, ArrayRef)>);

impl BandColumns {
    fn of(&mut self, place: &BlockPlace<'_>, band: Band, red: &[f64]) -> (&ArrayRef, &ArrayRef) {
        let made = match self.0.take() {
            Some(made) if made.0 == band => made,
            _ => {
                let (flux, error) = band_columns(place, band, red);
                (band, flux, error)
            }
        };
        let (_, flux, error) = self.0.insert(made);
        (flux, error)
    }
}

fn band_columns(place: &BlockPlace<'_>, band: Band, red: &[f64]) -> (ArrayRef, ArrayRef) {
    let flux = fluxes(place, band, red);
    let error: Vec<f32> = flux
        .iter()
        .map(|f| photometry::mean_flux_error(*f))
        .collect();
    let mut stream = place.stream(Purpose::Missing(band.number()));
    let nulls = photometry::seen(&mut stream, band, flux.len()).map(NullBuffer::from);
    let column = |values: Vec<f32>| -> ArrayRef {
        Arc::new(Float32Array::new(values.into(), nulls.clone()))
    };
    (column(flux), column(error))
}

fn shapes(
    place: &BlockPlace<'_>,
    block: &ObjectBlock,
    wanted: &[ObjectColumn],
) -> (ArrayRef, ArrayRef) {
    let asked = wanted
        .iter()
        .any(|c| matches!(c, ObjectColumn::Extendedness | ObjectColumn::Flags));
    let rows = if asked { block.rows() } else { 0 };
    let mut stream = place.stream(Purpose::Shape);
    let (extendedness, mut flags): (Vec<f32>, Vec<i32>) = (0..rows)
        .map(|_| photometry::extendedness_and_flags(stream.bits()))
        .unzip();
    if asked {
        for (row, curve) in &block.variable {
            flags[*row] |= curve.flag();
        }
    }
    (
        Arc::new(Float32Array::from(extendedness)),
        Arc::new(Int32Array::from(flags)),
    )
}
