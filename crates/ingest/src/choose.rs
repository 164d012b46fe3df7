//! Choosing stripes and sub-stripes for a new database from how many rows there are and how much sky they cover.

use std::collections::HashSet;

use sky::Chunker;

use crate::error::IngestError;
use crate::format::TableFile;
use crate::position::{PositionColumns, Positions};
use crate::report::Partitioning;
use crate::row_batch::RowBatch;

/// One arcminute.
pub(crate) const DEFAULT_OVERLAP_DEG: f64 = 1.0 / 60.0;
/// For a database whose first table has no positions.
const DEFAULT_STRIPES: u32 = 85;
const DEFAULT_SUB_STRIPES: u32 = 12;

const ROWS_PER_CHUNK: f64 = 500_000.0;
const ROWS_PER_SUB_CHUNK: f64 = 3_000.0;

/// S stripes make about 1.243 S² chunks: 8,983 for 85. (Squares of side 180/S would make 4/π S².)
const CHUNKS_PER_STRIPE_SQUARED: f64 = 8_983.0 / (85.0 * 85.0);

/// The stripes of the grids on which covered sky is measured, finest first: cells of 1 to 90 degrees.
const GRIDS: [u32; 7] = [180, 90, 45, 20, 10, 5, 2];
/// A grid is fine enough to show gaps between rows, not only between clusters, when its covered cells have fewer
/// sampled rows than this on average; then a coarser one is asked.
const ROWS_PER_COVERED_CELL: usize = 5;

const FEWEST_STRIPES: f64 = 2.0;
/// Stripes of a quarter degree: fifteen times the default overlap, so that overlaps stay small beside chunks.
const MOST_STRIPES: f64 = 720.0;
/// Sub-stripes of an arcminute over the whole sky.
const MOST_ALL_SUB_STRIPES: f64 = 10_800.0;

/// The stripes and sub-stripes that a load chooses for about `rows` rows that cover `fraction` of the sky, 0 to 1.
pub fn partitioning_for(rows: u64, fraction: f64) -> (u32, u32) {
    let rows = rows.max(1) as f64;
    let cells = |rows_per_cell: f64| {
        let over_whole_sky = rows / rows_per_cell / fraction.clamp(1e-6, 1.0);
        (over_whole_sky / CHUNKS_PER_STRIPE_SQUARED).sqrt()
    };
    let stripes = cells(ROWS_PER_CHUNK)
        .round()
        .clamp(FEWEST_STRIPES, MOST_STRIPES);
    let all_sub_stripes = cells(ROWS_PER_SUB_CHUNK).min(MOST_ALL_SUB_STRIPES);
    let sub_stripes = (all_sub_stripes / stripes).round().max(1.0);
    (stripes as u32, sub_stripes as u32)
}

/// The defaults, for a database whose first table has no positions.
pub(crate) fn default_partitioning() -> (u32, u32) {
    (DEFAULT_STRIPES, DEFAULT_SUB_STRIPES)
}

/// The share of the sky, 0 to 1, that has rows in the sample; 1 if the sample has no position. Measured on the finest
/// grid for which the sample is large enough: a few rows all over the sky cover all of it, not a few spots.
pub(crate) fn covered_fraction(
    sample: &[RowBatch],
    columns: PositionColumns,
) -> Result<f64, IngestError> {
    let mut all = Positions::default();
    for batch in sample {
        let positions = Positions::read(batch.columns.columns(), columns)?;
        for row in (0..batch.rows.len()).filter(|row| positions.has(*row)) {
            if positions.ra[row].is_finite() && positions.dec[row].abs() <= 90.0 {
                all.ra.push(positions.ra[row]);
                all.dec.push(positions.dec[row]);
            }
        }
    }
    let mut fraction = 1.0;
    for stripes in GRIDS {
        let grid = Chunker::new(stripes, 1)?;
        let mut locations = Vec::new();
        grid.locate_degrees(&all.ra, &all.dec, &mut locations);
        let covered: HashSet<_> = locations.iter().map(|location| location.chunk).collect();
        if covered.is_empty() {
            break;
        }
        fraction = covered.len() as f64 / grid.all_chunks().count() as f64;
        if locations.len() >= covered.len() * ROWS_PER_COVERED_CELL {
            break;
        }
    }
    Ok(fraction)
}

/// The rows of all files, as far as their beginnings tell.
pub(crate) fn estimated_rows(files: &[Box<dyn TableFile>]) -> u64 {
    files.iter().map(|file| file.estimated_rows()).sum()
}

impl Partitioning {
    /// The cut of the sky that this stands for.
    pub(crate) fn chunker(&self) -> Result<Chunker, IngestError> {
        Ok(Chunker::new(self.stripes, self.sub_stripes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        // A small table of the whole sky: two stripes, not thousands of files.
        let (stripes, sub_stripes) = partitioning_for(5_000, 1.0);
        assert_eq!((stripes, sub_stripes), (2, 1));
        let (stripes, sub_stripes) = partitioning_for(482_000, 1.0);
        assert_eq!(stripes, 2);
        assert!((4..=8).contains(&sub_stripes), "{sub_stripes}");
        // The benchmark: 20 million rows in 400 square degrees.
        let (stripes, sub_stripes) = partitioning_for(20_000_000, 400.0 / 41_253.0);
        assert!((50..=65).contains(&stripes), "{stripes}");
        assert!((10..=16).contains(&sub_stripes), "{sub_stripes}");
        // The whole of Gaia.
        let (stripes, _) = partitioning_for(1_800_000_000, 1.0);
        assert!((50..=60).contains(&stripes), "{stripes}");
        // Everything in one spot: bounded.
        let (stripes, sub_stripes) = partitioning_for(1_000_000_000, 1e-9);
        assert!(stripes <= 720 && stripes * sub_stripes <= 10_800);
        assert_eq!(partitioning_for(0, 1.0), (2, 1));
    }
}
