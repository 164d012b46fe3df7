//! Source and ForcedSource: what the survey sees of the objects, epoch after epoch.
//!
//! A source is a detection at a time of its own within its epoch, in one band, with a position scattered by a tenth of an
//! arcsecond. A forced source is a flux measured at the object's place in one exposure, which covers the whole chunk; it
//! may be negative where the sky's noise is larger than the object's flux.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Int8Array, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};

use crate::light_curve::{FIRST_NIGHT, SURVEY_DAYS};
use crate::objects::{BlockPlace, ObjectBlock, moved};
use crate::photometry::{Band, forced_flux_error, source_flux_error};
use crate::random::{Purpose, Stream, normal, unit};

/// The key of the catalogue's first source, in the range of LSST's simulations.
pub(crate) const FIRST_SOURCE_ID: i64 = 2_867_930_096_000_000;
/// Bits of an exposure's number that hold the epoch; the chunk's number stands above them.
pub(crate) const EPOCH_BITS: u32 = 24;
/// The scatter of a source around its object in each direction: a tenth of an arcsecond, in degrees.
const ASTROMETRIC_SIGMA: f32 = 0.1 / 3600.0;

/// The schema of Source.
pub(crate) fn source_schema() -> Schema {
    Schema::new(vec![
        Field::new("sourceId", DataType::Int64, false),
        Field::new("objectId", DataType::Int64, false),
        Field::new("taiMidPoint", DataType::Float64, false),
        Field::new("ra", DataType::Float64, false),
        Field::new("decl", DataType::Float64, false),
        Field::new("psfFlux", DataType::Float32, false),
        Field::new("psfFluxErr", DataType::Float32, false),
        Field::new("filterId", DataType::Int8, false),
    ])
}

/// The schema of ForcedSource.
pub(crate) fn forced_schema() -> Schema {
    Schema::new(vec![
        Field::new("objectId", DataType::Int64, false),
        Field::new("exposureId", DataType::Int64, false),
        Field::new("taiMidPoint", DataType::Float64, false),
        Field::new("filterId", DataType::Int8, false),
        Field::new("psfFlux", DataType::Float32, false),
        Field::new("psfFluxErr", DataType::Float32, false),
    ])
}

/// One epoch of a survey.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    pub number: u32,
    /// Into how many epochs the survey is divided.
    pub of: u32,
}

impl Epoch {
    /// The time (MJD, TAI) at a share, in (0, 1), of the epoch.
    fn time(self, share: f64) -> f64 {
        FIRST_NIGHT + SURVEY_DAYS * (f64::from(self.number) + share) / f64::from(self.of)
    }
}

/// The sources of one epoch of a block. `first_key` is that of the block's first source in this epoch.
pub(crate) fn sources(
    place: &BlockPlace<'_>,
    block: &ObjectBlock,
    epoch: Epoch,
    first_key: i64,
) -> Vec<ArrayRef> {
    let rows = block.rows();
    let mut stream = place.stream(Purpose::Source(epoch.number));
    let (mut ra, mut dec) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let (mut time, mut noise) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for row in 0..rows {
        let [east, north] = stream.two_normals();
        let at = (block.ra[row], block.dec[row]);
        let (source_ra, source_dec) =
            moved(at, ASTROMETRIC_SIGMA * east, ASTROMETRIC_SIGMA * north);
        ra.push(source_ra);
        dec.push(source_dec.clamp(-90.0, 90.0));
        let bits = stream.bits();
        time.push(epoch.time(unit(bits as u32)));
        noise.push(normal((bits >> 32) as u32));
    }
    let (mut flux, filter) = cycled_fluxes(block, place.first + u64::from(epoch.number));
    for (row, curve) in &block.variable {
        flux[*row] *= curve.factor(time[*row]);
    }
    let error = add_noise(&mut flux, &noise, source_flux_error);
    vec![
        Arc::new(Int64Array::from_iter_values(
            first_key..first_key + rows as i64,
        )),
        block.keys(),
        Arc::new(Float64Array::from(time)),
        Arc::new(Float64Array::from(ra)),
        Arc::new(Float64Array::from(dec)),
        Arc::new(Float32Array::from(flux)),
        Arc::new(Float32Array::from(error)),
        Arc::new(Int8Array::from(filter)),
    ]
}

/// Each object's mean flux in the band that the cycle has come to, and the band's number.
fn cycled_fluxes(block: &ObjectBlock, begin: u64) -> (Vec<f32>, Vec<i8>) {
    let bands = &block.fluxes;
    let mut turn = (begin % bands.len() as u64) as usize;
    let next = |row| {
        let (band, fluxes) = &bands[turn];
        turn = if turn + 1 == bands.len() { 0 } else { turn + 1 };
        (fluxes[row], band.number() as i8)
    };
    (0..block.rows()).map(next).unzip()
}

/// Scatters fluxes by their errors and gives the errors.
fn add_noise(flux: &mut [f32], noise: &[f32], error_of: impl Fn(f32) -> f32) -> Vec<f32> {
    let scatter = |(flux, noise): (&mut f32, &f32)| {
        let error = error_of(*flux);
        *flux += error * noise;
        error
    };
    flux.iter_mut().zip(noise).map(scatter).collect()
}

/// The exposure of one epoch of a chunk: its number, its time, and which of the bands it was taken in.
fn exposure(place: &BlockPlace<'_>, epoch: Epoch, bands: &[(Band, Vec<f32>)]) -> (i64, f64, usize) {
    let chunk = place.piece.chunk.0;
    let purpose = Purpose::Exposure(epoch.number);
    let share = Stream::new(place.seed, purpose, chunk, 0).uniform();
    let number = i64::from(chunk) << EPOCH_BITS | i64::from(epoch.number);
    let turn = (chunk as u64 + u64::from(epoch.number)) % bands.len() as u64;
    (number, epoch.time(share), turn as usize)
}

/// The forced sources of one epoch of a block.
pub(crate) fn forced_sources(
    place: &BlockPlace<'_>,
    block: &ObjectBlock,
    epoch: Epoch,
) -> Vec<ArrayRef> {
    let rows = block.rows();
    let (number, time, turn) = exposure(place, epoch, &block.fluxes);
    let (band, mean) = &block.fluxes[turn];
    let mut flux = mean.clone();
    for (row, curve) in &block.variable {
        flux[*row] *= curve.factor(time);
    }
    let mut stream = place.stream(Purpose::Forced(epoch.number));
    let mut noise: Vec<f32> = Vec::with_capacity(rows + 1);
    while noise.len() < rows {
        noise.extend(stream.two_normals());
    }
    let error = add_noise(&mut flux, &noise, forced_flux_error);
    vec![
        block.keys(),
        Arc::new(Int64Array::from_value(number, rows)),
        Arc::new(Float64Array::from_value(time, rows)),
        Arc::new(Int8Array::from_value(band.number() as i8, rows)),
        Arc::new(Float32Array::from(flux)),
        Arc::new(Float32Array::from(error)),
    ]
}
