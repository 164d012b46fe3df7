//! Pairs of positions within a radius.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use sky::Angle;
use sky::neighbours::{NeighbourIndex, PairBuffer, Positions, Radii, Radius, Search};

use crate::made;

/// Rows of a chunk of a deep catalogue: 41 000 stars to a square degree.
const ROWS: usize = 180_000;
/// Neighbours of the same rows, within 0.1 degrees.
const OWN: Radius = Radius::below(Angle::from_degrees(0.1));
/// Pairs that come at a time.
const PAIRS: usize = 8192;

/// The index of a chunk's rows, and each way to ask it for the neighbours of the same rows. An element is a row of the index,
/// or else a pair; of the nearest, a left row.
pub fn neighbours(criterion: &mut Criterion) {
    let rows = made::Positions::over_a_chunk(ROWS, 12);
    let positions = Positions::from_degrees(&rows.ra, &rows.dec);
    index(criterion, positions);
    wide(criterion, positions);
    narrow(criterion, positions);
    nearest(criterion, positions);
}

fn index(criterion: &mut Criterion, positions: Positions<'_>) {
    let mut group = criterion.benchmark_group("index of neighbours");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("a chunk", |bencher| {
        bencher.iter(|| NeighbourIndex::build(black_box(positions), degrees(0.1)).unwrap());
    });
    let index = NeighbourIndex::build(positions, degrees(0.1)).unwrap();
    group.bench_function("order of a chunk", |bencher| {
        bencher.iter(|| index.order(black_box(&positions)));
    });
    group.finish();
}

/// Within 0.1 degrees: 1300 neighbours of each row, so that what is done for each pair counts.
fn wide(criterion: &mut Criterion, positions: Positions<'_>) {
    const SOME: usize = 20;
    let index = NeighbourIndex::build(positions, degrees(0.1)).unwrap();
    let search = Search::new(&index, positions, below(0.1));
    let order = index.order(&positions);
    let some = || order.iter().copied().step_by(SOME);
    let mut group = criterion.benchmark_group("neighbours within 0.1 degrees");
    group.throughput(Throughput::Elements(search.count(some())));
    group.bench_function("count", |bencher| {
        bencher.iter(|| search.count(black_box(some())));
    });
    group.bench_function("count of own pairs", |bencher| {
        let part = index.parts().end / 2..index.parts().end / 2 + ROWS / SOME;
        bencher.iter(|| index.count_own_pairs(OWN, black_box(part.clone())));
    });
    group.bench_function("sum of separations", |bencher| {
        bencher.iter(|| {
            let mut sum = 0.0;
            search.for_each_run(black_box(some()), |partners| {
                sum += partners.sum_of_separations();
            });
            sum
        });
    });
    group.finish();
}

/// Within 0.02 degrees: 50 neighbours of each row, as pairs.
fn narrow(criterion: &mut Criterion, positions: Positions<'_>) {
    let index = NeighbourIndex::build(positions, degrees(0.02)).unwrap();
    let search = Search::new(&index, positions, below(0.02));
    let order = index.order(&positions);
    let some = || order.iter().copied().step_by(4);
    let mut group = criterion.benchmark_group("neighbours within 0.02 degrees");
    group.throughput(Throughput::Elements(search.count(some())));
    group.bench_function("count", |bencher| {
        bencher.iter(|| search.count(black_box(some())));
    });
    for (name, mut buffer) in [
        ("pairs", PairBuffer::new(PAIRS)),
        (
            "pairs with separations",
            PairBuffer::with_separations(PAIRS),
        ),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut cursor = search.pairs(black_box(some()));
                while cursor.fill(&mut buffer) {
                    black_box(&buffer);
                }
            });
        });
    }
    group.finish();
}

/// A second catalogue of the same stars, moved by up to half an arcsecond.
fn nearest(criterion: &mut Criterion, positions: Positions<'_>) {
    const ARCSECOND: f64 = 1.0 / 3600.0;
    let rows = made::Positions::over_a_chunk(ROWS, 12).moved(0.5 * ARCSECOND, 13);
    let left = Positions::from_degrees(&rows.ra, &rows.dec);
    let index = NeighbourIndex::build(positions, degrees(ARCSECOND)).unwrap();
    let search = Search::new(&index, left, below(ARCSECOND));
    let order = index.order(&left);
    let (mut nearest, mut any) = (Vec::new(), Vec::new());
    let mut group = criterion.benchmark_group("neighbours within an arcsecond");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("nearest", |bencher| {
        bencher.iter(|| search.nearest(black_box(order.iter().copied()), &mut nearest));
    });
    group.bench_function("any", |bencher| {
        bencher.iter(|| search.any(black_box(order.iter().copied()), &mut any));
    });
    group.finish();
}

fn degrees(degrees: f64) -> Angle {
    Angle::from_degrees(degrees)
}

fn below(radius: f64) -> Radii<'static> {
    Radii::common(Radius::below(degrees(radius)))
}
