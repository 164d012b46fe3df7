//! Points in regions, and the chunks of regions.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use sky::Region;

use crate::made::{self, BATCH, Positions};

/// Whether a point is in a region: what a scan requests each row of a chunk that the region's edge crosses. Of the
/// points between a third and two thirds are inside, in no order.
pub fn points_in_regions(criterion: &mut Criterion) {
    /// Four tenths of the chunk's height.
    const RADIUS: f64 = 0.85;
    let positions = Positions::over_a_chunk(BATCH, 7);
    let mut group = criterion.benchmark_group("point in region");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut contained = Vec::new();
    for (name, region) in regions(RADIUS) {
        region.contains_degrees(&positions.ra, &positions.dec, &mut contained);
        let inside = contained.iter().filter(|inside| **inside).count();
        assert!((BATCH / 3..2 * BATCH / 3).contains(&inside), "{inside}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (ra, dec) = (black_box(&positions.ra), black_box(&positions.dec));
                region.contains_degrees(ra, dec, &mut contained);
                black_box(&contained);
            });
        });
    }
    group.finish();
}

/// Which chunks, and which sub-chunks of them, a region touches: what is asked once for each region of a query. An
/// element is a chunk that is found.
pub fn chunks_of_regions(criterion: &mut Criterion) {
    const RADII: [(&str, f64); 2] = [("1 degree", 1.0), ("10 degrees", 10.0)];
    let chunker = made::chunker();
    for (name, radius) in RADII {
        let mut group = criterion.benchmark_group(format!("chunks of a region of radius {name}"));
        for (name, region) in regions(radius) {
            let chunks = chunker.chunks_intersecting(&region).len();
            group.throughput(Throughput::Elements(chunks as u64));
            group.bench_function(name, |bencher| {
                bencher.iter(|| chunker.chunks_intersecting(black_box(&region)));
            });
            let chunks = chunker.sub_chunks_intersecting(&region).len();
            group.throughput(Throughput::Elements(chunks as u64));
            group.bench_function(format!("{name}, with sub-chunks"), |bencher| {
                bencher.iter(|| chunker.sub_chunks_intersecting(black_box(&region)));
            });
        }
        group.finish();
    }
}

/// One region of each kind around the middle of the chunk of [`made`], reaching about `radius` degrees from it.
fn regions(radius: f64) -> [(&'static str, Region); 4] {
    let (ra, dec) = made::middle_of_chunk();
    let degree_of_ra = 1.0 / dec.to_radians().cos();
    let half = 0.8 * radius;
    let corner = |degrees: f64| {
        let (sin, cos) = degrees.to_radians().sin_cos();
        (ra + radius * sin * degree_of_ra, dec + radius * cos)
    };
    let hexagon: Vec<(f64, f64)> = (0..6).map(|k| corner(f64::from(k) * 60.0)).collect();
    [
        ("circle", Region::circle_degrees(ra, dec, radius)),
        (
            "box",
            Region::box_degrees(
                ra - half * degree_of_ra,
                dec - half,
                ra + half * degree_of_ra,
                dec + half,
            ),
        ),
        ("polygon", Region::polygon_degrees(&hexagon)),
        (
            "ellipse",
            Region::ellipse_degrees(ra, dec, 1.2 * radius, 0.8 * radius, 30.0),
        ),
    ]
    .map(|(name, region)| (name, region.unwrap()))
}
