//! What must hold for every cut of the sky.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a failure is the test's own message"
)]

mod common;

use std::collections::BTreeSet;

use common::{at, circles, offset, positions, shapes_with_points, sizes};
use meridian_sky::{
    Angle, ChunkId, Chunker, Location, LonLat, Region, SkyError, SubChunkId, SubChunks, separation,
};
use proptest::prelude::*;

/// Cuts from one chunk to some thousands.
fn chunkers() -> impl Strategy<Value = Chunker> {
    prop_oneof![
        (1_u32..40, 1_u32..12).prop_map(|(stripes, sub_stripes)| Chunker::new(
            stripes,
            sub_stripes
        )
        .unwrap()),
        prop::sample::select(vec![(1, 1), (2, 1), (3, 2), (85, 12), (60, 18), (120, 9)])
            .prop_map(|(stripes, sub_stripes)| Chunker::new(stripes, sub_stripes).unwrap()),
    ]
}

/// What rounding may move a chunk's edge by.
fn rounding() -> Angle {
    Angle::from_degrees(1e-12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_point_lies_in_the_boxes_of_its_location(chunker in chunkers(), p in positions()) {
        let location = chunker.locate(p);
        let chunk_box = chunker.chunk_box(location.chunk).unwrap();
        let sub_chunk_box = chunker.sub_chunk_box(location).unwrap();
        prop_assert!(chunk_box.separation(p) <= rounding(), "{chunk_box}");
        prop_assert!(sub_chunk_box.separation(p) <= rounding(), "{sub_chunk_box}");
        prop_assert!(chunk_box.dilated(rounding()).contains_box(&sub_chunk_box));
        prop_assert!(chunker.sub_chunks_of(location.chunk).contains(&location.sub_chunk));
        let mut out = vec![location; 3];
        chunker.locate_degrees(&[p.ra().degrees() - 360.0], &[p.dec().degrees()], &mut out);
        let wrapped = chunker.locate(LonLat::from_degrees(p.ra().degrees() - 360.0, p.dec().degrees()).unwrap());
        prop_assert_eq!(out, vec![wrapped]);
    }

    #[test]
    fn the_middle_of_a_sub_chunk_is_located_in_it(chunker in chunkers(), which in 0.0_f64..1.0, sub in 0.0_f64..1.0) {
        let chunks: Vec<ChunkId> = chunker.all_chunks().collect();
        let chunk = chunks[(which * chunks.len() as f64) as usize];
        let sub_chunks = chunker.sub_chunks_of(chunk);
        let sub_chunk = sub_chunks[(sub * sub_chunks.len() as f64) as usize];
        let location = Location { chunk, sub_chunk };
        let middle = chunker.sub_chunk_box(location).unwrap().middle();
        prop_assert_eq!(chunker.locate(middle), location);
    }

    #[test]
    fn a_point_of_a_region_is_in_its_chunks_and_sub_chunks(
        chunker in chunkers(),
        (shape, points) in shapes_with_points(),
    ) {
        let chunks = chunker.chunks_intersecting(&shape.region);
        let sub_chunks = chunker.sub_chunks_intersecting(&shape.region);
        for p in points.into_iter().filter(|&p| shape.region.contains(p)) {
            let location = chunker.locate(p);
            prop_assert!(chunks.contains(&location.chunk), "{p}");
            let own = sub_chunks.iter().find(|(chunk, _)| *chunk == location.chunk);
            prop_assert!(own.is_some_and(|(_, some)| some.contains(location.sub_chunk)), "{p}");
        }
    }

    #[test]
    fn sets_are_sorted_and_the_closer_one_is_the_smaller(
        chunker in chunkers(),
        (shape, _) in shapes_with_points(),
    ) {
        let chunks = chunker.chunks_intersecting(&shape.region);
        prop_assert!(chunks.is_sorted_by(|a, b| a < b));
        let sub_chunks = chunker.sub_chunks_intersecting(&shape.region);
        prop_assert!(sub_chunks.is_sorted_by(|a, b| a.0 < b.0));
        for (chunk, some) in sub_chunks {
            prop_assert!(chunks.contains(&chunk));
            if let SubChunks::Some(ids) = some {
                let all = chunker.sub_chunks_of(chunk);
                prop_assert!(!ids.is_empty() && ids.len() < all.len());
                prop_assert!(ids.is_sorted_by(|a, b| a < b));
                prop_assert!(ids.iter().all(|id| all.contains(id)));
            }
        }
    }

    /// Against every chunk's distance from the centre.
    #[test]
    fn a_circle_needs_the_chunks_within_its_radius(chunker in chunkers(), shape in circles()) {
        let found: BTreeSet<ChunkId> = chunker.chunks_intersecting(&shape.region).into_iter().collect();
        let slack = Angle::from_arcsec(1e-5).degrees();
        for chunk in chunker.all_chunks() {
            let gap = chunker.chunk_box(chunk).unwrap().separation(shape.centre).degrees() - shape.size;
            if gap.abs() > slack {
                prop_assert_eq!(found.contains(&chunk), gap < 0.0, "{} {}", chunk, gap);
            }
        }
    }

    /// Against every chunk's distance from the point.
    #[test]
    fn chunks_within_a_radius(chunker in chunkers(), p in positions(), radius in sizes()) {
        let mut found = vec![ChunkId(-5)];
        chunker.chunks_within(p, Angle::from_degrees(radius), &mut found);
        prop_assert!(found.is_sorted_by(|a, b| a < b));
        prop_assert!(found.contains(&chunker.locate(p).chunk));
        let slack = Angle::from_arcsec(1e-5).degrees();
        for chunk in chunker.all_chunks() {
            let gap = chunker.chunk_box(chunk).unwrap().separation(p).degrees() - radius;
            if gap.abs() > slack {
                prop_assert_eq!(found.contains(&chunk), gap < 0.0, "{} {}", chunk, gap);
            }
        }
    }

    /// What the overlap is for: the near neighbours of a chunk's points are in the chunk or in its overlap.
    #[test]
    fn a_neighbour_reaches_the_chunk(chunker in chunkers(), p in positions(), radius in 1e-6_f64..1.0,
                                     share in 0.0_f64..0.999, direction in 0.0_f64..360.0) {
        let neighbour = offset(p, radius * share, direction);
        let mut found = Vec::new();
        chunker.chunks_within(neighbour, Angle::from_degrees(radius), &mut found);
        prop_assert!(found.contains(&chunker.locate(p).chunk));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn chunks_and_sub_chunks_make_up_the_sky(chunker in chunkers()) {
        let chunks: Vec<ChunkId> = chunker.all_chunks().collect();
        prop_assert!(chunks.is_sorted_by(|a, b| a < b));
        // The area of a box in units of the sphere's.
        let area = |b: meridian_sky::LonLatBox| {
            let sine = |degrees| Angle::from_degrees(degrees).sin_cos().0;
            b.width().degrees() / 360.0 * 0.5 * (sine(b.dec_max()) - sine(b.dec_min()))
        };
        let mut whole = (0.0, 0.0);
        for &chunk in &chunks {
            prop_assert!(chunker.is_chunk(chunk));
            whole.0 += area(chunker.chunk_box(chunk).unwrap());
            let sub_chunks = chunker.sub_chunks_of(chunk);
            prop_assert!(sub_chunks.is_sorted_by(|a, b| a < b));
            for sub_chunk in sub_chunks {
                whole.1 += area(chunker.sub_chunk_box(Location { chunk, sub_chunk }).unwrap());
            }
        }
        prop_assert!((whole.0 - 1.0_f64).abs() < 1e-9 && (whole.1 - 1.0_f64).abs() < 1e-9, "{whole:?}");
        let last = chunks[chunks.len() - 1].0;
        let known: BTreeSet<ChunkId> = chunks.into_iter().collect();
        for id in -2..last + 3 {
            prop_assert_eq!(chunker.is_chunk(ChunkId(id)), known.contains(&ChunkId(id)));
            prop_assert_eq!(chunker.chunk_box(ChunkId(id)).is_some(), known.contains(&ChunkId(id)));
        }
    }

    #[test]
    fn the_whole_sky_is_all_of_every_chunk(chunker in chunkers()) {
        let all: Vec<(ChunkId, SubChunks)> = chunker.all_chunks().map(|chunk| (chunk, SubChunks::All)).collect();
        for text in ["circle 0 0 180", "box 0 -90 360 90"] {
            prop_assert_eq!(&chunker.sub_chunks_intersecting(&text.parse().unwrap()), &all, "{}", text);
        }
    }
}

#[test]
fn what_is_no_cut_is_rejected() {
    for (stripes, sub_stripes) in [
        (0, 1),
        (1, 0),
        (32_768, 1),
        (1, 16_385),
        (40, 16_384),
        (u32::MAX, u32::MAX),
    ] {
        let rejected = Chunker::new(stripes, sub_stripes);
        assert!(
            matches!(rejected, Err(SkyError::Partitioning { .. })),
            "{stripes} {sub_stripes}"
        );
    }
}

/// The finest cuts: the numbers still fit and the last chunk is found again.
#[test]
fn the_largest_cuts() {
    for (stripes, sub_stripes) in [
        (32_767, 19),
        (648, 1000),
        (1, 16_384),
        (3, 16_384),
        (32_767, 19),
        (39, 16_384),
    ] {
        let chunker = Chunker::new(stripes, sub_stripes).unwrap();
        for (ra, dec) in [
            (0.0, -90.0),
            (359.999_999_999_9, 0.0),
            (180.0, 45.0),
            (0.0, 90.0),
        ] {
            let location = chunker.locate(at(ra, dec));
            assert!(location.chunk.0 >= 0 && location.sub_chunk.0 >= 0);
            let b = chunker.sub_chunk_box(location).unwrap();
            assert!(b.separation(at(ra, dec)) <= rounding(), "{b}");
        }
    }
}

#[test]
fn sub_chunks_that_do_not_exist() {
    let chunker = Chunker::new(18, 3).unwrap();
    let location = chunker.locate(at(10.0, 10.0));
    let with = |id| Location {
        sub_chunk: SubChunkId(id),
        ..location
    };
    assert_eq!(chunker.sub_chunk_box(with(-1)), None);
    assert_eq!(chunker.sub_chunk_box(with(1_000_000)), None);
    assert_eq!(
        chunker.sub_chunk_box(Location {
            chunk: ChunkId(-1),
            ..location
        }),
        None
    );
    assert!(chunker.sub_chunks_of(ChunkId(35)).is_empty());
}

/// Positions that should have been rejected get some location, and no panic.
#[test]
fn bad_positions_are_located_somewhere() {
    let chunker = Chunker::new(85, 12).unwrap();
    let ra = [f64::NAN, f64::INFINITY, 1e300, -1e300, 0.0, 0.0];
    let dec = [f64::NAN, 0.0, 1e300, -1e300, 90.1, f64::NEG_INFINITY];
    let mut out = Vec::new();
    chunker.locate_degrees(&ra, &dec, &mut out);
    assert!(
        out.iter()
            .all(|location| chunker.sub_chunk_box(*location).is_some())
    );
}

/// A slanting sliver of a polygon takes far fewer sub-chunks than its bounding box.
#[test]
fn a_polygon_takes_only_what_it_crosses() {
    let chunker = Chunker::new(85, 12).unwrap();
    let sliver: Region = "polygon 10 -10 10.1 -10 20.1 10 20 10".parse().unwrap();
    let count = |found: Vec<(ChunkId, SubChunks)>| -> usize {
        found
            .into_iter()
            .map(|(chunk, some)| match some {
                SubChunks::All => chunker.sub_chunks_of(chunk).len(),
                SubChunks::Some(ids) => ids.len(),
            })
            .sum()
    };
    let own = count(chunker.sub_chunks_intersecting(&sliver));
    let around = count(chunker.sub_chunks_intersecting(&Region::Box(sliver.envelope_box())));
    assert!(own * 20 < around, "{own} of {around}");
    // Nor more than it needs: each sub-chunk taken holds a point of a fine grid over the polygon, or nearly so.
    let needed: BTreeSet<Location> = (0..=4_000)
        .flat_map(|i| {
            let t = f64::from(i) / 4_000.0;
            [0.0, 0.05, 0.1].map(|x| at(10.0 + x + 10.0 * t, -10.0 + 20.0 * t))
        })
        .map(|p| chunker.locate(p))
        .collect();
    assert!(
        own <= needed.len() + needed.len() / 5,
        "{own} {}",
        needed.len()
    );
}

#[test]
fn an_ellipse_takes_less_than_the_circle_around_it() {
    let chunker = Chunker::new(85, 12).unwrap();
    let ellipse: Region = "ellipse 30 20 8 0.5 30".parse().unwrap();
    let tight: BTreeSet<ChunkId> = chunker
        .sub_chunks_intersecting(&ellipse)
        .into_iter()
        .map(|(chunk, _)| chunk)
        .collect();
    let loose = chunker.chunks_intersecting(&ellipse);
    assert!(
        tight.len() * 3 < loose.len(),
        "{} {}",
        tight.len(),
        loose.len()
    );
    // The ends of the axes are there.
    for (distance, direction) in [(7.99, 30.0), (7.99, 210.0), (0.49, 120.0), (0.49, 300.0)] {
        let end = offset(at(30.0, 20.0), distance, direction);
        assert!(ellipse.contains(end) && tight.contains(&chunker.locate(end).chunk));
        assert!(separation(end, at(30.0, 20.0)).degrees() < 8.0);
    }
}
