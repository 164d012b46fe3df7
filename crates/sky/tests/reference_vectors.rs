//! Every line of the reference values in `tests/vectors/`, which lsst-sphgeom computed.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a failure is the test's own message"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use meridian_sky::{ChunkId, Chunker, LonLat, Region, SubChunks, htm};

/// The lines of a file below its header, cut at commas.
fn lines_of(file: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(file);
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().skip(1);
    lines
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn position(ra: &str, dec: &str) -> LonLat {
    LonLat::from_degrees(number(ra), number(dec)).unwrap()
}

#[test]
fn numbers_of_chunks() {
    let lines = lines_of("chunk_counts.csv");
    assert_eq!(lines.len(), 8);
    for line in lines {
        let chunker = Chunker::new(number(&line[0]), number(&line[1])).unwrap();
        assert_eq!(
            chunker.all_chunks().count(),
            number::<usize>(&line[2]),
            "{line:?}"
        );
    }
}

#[test]
fn chunks_of_points() {
    let lines = lines_of("chunk_points.csv");
    assert_eq!(lines.len(), 3599);
    for line in lines {
        let chunker = Chunker::new(number(&line[0]), number(&line[1])).unwrap();
        let location = chunker.locate(position(&line[2], &line[3]));
        let found = (location.chunk.0, location.sub_chunk.0);
        assert_eq!(found, (number(&line[4]), number(&line[5])), "{line:?}");
    }
}

#[test]
fn trixels_of_points() {
    let lines = lines_of("htm_points.csv");
    assert_eq!(lines.len(), 900);
    for line in lines {
        let level = htm::Level::new(number(&line[0])).unwrap();
        let position = position(&line[1], &line[2]);
        let known: u64 = number(&line[3]);
        assert_eq!(htm::id_at(level, position), known, "{line:?}");
        assert_eq!(htm::id(level, position.into()), known, "{line:?}");
    }
}

#[test]
fn points_in_regions() {
    let lines = lines_of("region_points.csv");
    assert_eq!(lines.len(), 1920);
    for line in lines {
        let region: Region = line[0].parse().unwrap();
        let inside = region.contains(position(&line[1], &line[2]));
        assert_eq!(inside, line[3] == "1", "{line:?}");
    }
}

/// The sets are the reference's own, but for polygons across right ascension 0: when lsst-sphgeom widens a range that
/// already wraps by a corner inside of it, it takes the whole circle, and so lists chunks far from the polygon.
#[test]
fn chunks_of_regions() {
    let lines = lines_of("region_chunks.csv");
    assert_eq!(lines.len(), 160);
    for line in lines {
        let chunker = Chunker::new(number(&line[0]), number(&line[1])).unwrap();
        let region: Region = line[2].parse().unwrap();
        let expected: Vec<ChunkId> = line[3]
            .split_whitespace()
            .map(|id| ChunkId(number(id)))
            .collect();
        let found = chunker.chunks_intersecting(&region);
        let envelope = region.envelope_box();
        if matches!(region, Region::Polygon(_)) && envelope.ra_min() > envelope.ra_max() {
            assert!(
                found.iter().all(|chunk| expected.contains(chunk)),
                "{line:?}"
            );
        } else {
            assert_eq!(found, expected, "{line:?}");
        }
    }
}

/// The closer look may leave out chunks of the reference, which takes ellipses for circles and polygons for boxes, but
/// adds none, and leaves out none that holds a point of the region.
#[test]
fn sub_chunks_of_regions_stay_within_the_reference() {
    for line in lines_of("region_chunks.csv") {
        let chunker = Chunker::new(number(&line[0]), number(&line[1])).unwrap();
        let region: Region = line[2].parse().unwrap();
        let reference: BTreeSet<i32> = line[3].split_whitespace().map(number).collect();
        let found = chunker.sub_chunks_intersecting(&region);
        assert!(
            found.iter().all(|(chunk, _)| reference.contains(&chunk.0)),
            "{line:?}"
        );
        if matches!(region, Region::Circle(_) | Region::Box(_)) {
            assert_eq!(found.len(), reference.len(), "{line:?}");
        }
    }
    for line in lines_of("region_points.csv") {
        if line[3] == "1" {
            let region: Region = line[0].parse().unwrap();
            let chunker = Chunker::new(85, 12).unwrap();
            let location = chunker.locate(position(&line[1], &line[2]));
            let found = chunker.sub_chunks_intersecting(&region);
            let chunk = found.iter().find(|(chunk, _)| *chunk == location.chunk);
            let sub_chunks: Option<&SubChunks> = chunk.map(|(_, sub_chunks)| sub_chunks);
            assert!(
                sub_chunks.is_some_and(|s| s.contains(location.sub_chunk)),
                "{line:?}"
            );
        }
    }
}
