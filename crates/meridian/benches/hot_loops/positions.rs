//! From positions to chunks and to separations.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use sky::{separation, separation_degrees};

use crate::made::{self, BATCH, Positions};

/// Chunk and sub-chunk of a position: what a load requests each row of a director.
pub fn chunk_location(criterion: &mut Criterion) {
    let chunker = made::chunker();
    let mut group = criterion.benchmark_group("chunk location");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut locations = Vec::new();
    for (name, positions) in [
        ("a chunk", Positions::over_a_chunk(BATCH, 1)),
        ("whole sky", Positions::over_the_sky(BATCH, 2)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                chunker.locate_degrees(
                    black_box(&positions.ra),
                    black_box(&positions.dec),
                    &mut locations,
                );
                black_box(&locations);
            });
        });
    }
    let points = Positions::over_the_sky(BATCH, 2).points();
    group.bench_function("whole sky, one by one", |bencher| {
        bencher.iter(|| {
            for point in &points {
                black_box(chunker.locate(black_box(*point)));
            }
        });
    });
    group.finish();
}

/// Angular separation of two positions: of neighbours, of anything, and of each position from one centre.
pub fn separations(criterion: &mut Criterion) {
    const ARCMINUTE: f64 = 1.0 / 60.0;
    let chunk = Positions::over_a_chunk(BATCH, 3);
    let sky = Positions::over_the_sky(BATCH, 4);
    let (ra, dec) = made::middle_of_chunk();
    let centre = Positions {
        ra: vec![ra; BATCH],
        dec: vec![dec; BATCH],
    };
    let mut group = criterion.benchmark_group("angular separation");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut degrees = Vec::new();
    for (name, first, second) in [
        ("neighbours", &chunk, &chunk.moved(ARCMINUTE, 5)),
        ("from a centre", &chunk, &centre),
        ("whole sky", &sky, &Positions::over_the_sky(BATCH, 6)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (first, second) = (black_box(first), black_box(second));
                separation_degrees(&first.ra, &first.dec, &second.ra, &second.dec, &mut degrees);
                black_box(&degrees);
            });
        });
    }
    let (points, others) = (chunk.points(), chunk.moved(ARCMINUTE, 5).points());
    group.bench_function("neighbours, one by one", |bencher| {
        bencher.iter(|| {
            for (point, other) in points.iter().zip(&others) {
                black_box(separation(black_box(*point), black_box(*other)));
            }
        });
    });
    group.finish();
}
