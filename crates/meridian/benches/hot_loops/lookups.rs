//! From sub-chunks to rows, and from keys to chunks.

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput};
use sky::{Chunker, Region, SubChunks};
use store::{DirectorIndex, Directory, DirectoryBuilder, IndexWriter};

use crate::made::{self, Positions, Random};

/// The row ranges of some sub-chunks, from the directory of a chunk that has rows in each of its own. An element is a
/// sub-chunk that is requested; entry by entry, an entry of the directory.
pub fn sub_chunk_directory(criterion: &mut Criterion) {
    let chunker = made::chunker();
    let directory = directory_of_a_chunk(&chunker);
    let mut group = criterion.benchmark_group("row ranges of sub-chunks");
    let entries = directory.entries().len();
    let cone = sub_chunks_of_cone(&chunker);
    for (name, wanted) in [("cone", &cone), ("all", &SubChunks::All)] {
        let asked = match wanted {
            SubChunks::All => entries,
            SubChunks::Some(some) => some.len(),
        };
        group.throughput(Throughput::Elements(asked as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| directory.rows_of(black_box(wanted)));
        });
    }
    // As a scan asks, which looks at the bounds of each entry as well.
    group.throughput(Throughput::Elements(entries as u64));
    group.bench_function("cone, entry by entry", |bencher| {
        bencher.iter(|| {
            let wanted = black_box(&cone);
            directory.rows_where(|entry| wanted.contains(entry.sub_chunk))
        });
    });
    group.finish();
}

fn directory_of_a_chunk(chunker: &Chunker) -> Directory {
    const ROWS_PER_SUB_CHUNK: usize = 3000;
    let mut random = Random::new(11);
    let mut directory = DirectoryBuilder::default();
    for sub_chunk in chunker.sub_chunks_of(made::chunk()) {
        let rows = 1 + random.below(2 * ROWS_PER_SUB_CHUNK) as u64;
        directory.push(sub_chunk, rows, None);
    }
    directory.finish().unwrap()
}

/// Those sub-chunks of the chunk of [`made`] that a cone of half a degree touches: some, not all.
fn sub_chunks_of_cone(chunker: &Chunker) -> SubChunks {
    let (ra, dec) = made::middle_of_chunk();
    let cone = Region::circle_degrees(ra, dec, 0.5).unwrap();
    let chunks = chunker.sub_chunks_intersecting(&cone);
    let chunk = made::chunk();
    let found = chunks.into_iter().find(|(id, _)| *id == chunk).unwrap().1;
    assert!(matches!(found, SubChunks::Some(_)));
    found
}

/// The director index of a million keys, of which it holds each once: one key, keys from all over it in random order as
/// a query's list has them, and neighbouring keys in ascending order as a file of sources has them. An element is a key.
pub fn director_index(criterion: &mut Criterion) {
    const KEYS: usize = 1_000_000;
    const ASKED: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let keys = made::keys(KEYS, 12);
    let index = write_and_open(dir.path(), &keys);
    let mut group = criterion.benchmark_group("director index");

    let mut random = Random::new(13);
    group.throughput(Throughput::Elements(1));
    group.bench_function("one key", |bencher| {
        bencher.iter_batched(
            || keys[random.below(KEYS)],
            |key| index.get(key).unwrap().unwrap(),
            BatchSize::SmallInput,
        );
    });
    let scattered = &keys[..ASKED];
    let mut neighbours = keys.clone();
    neighbours.sort_unstable();
    let neighbours = &neighbours[KEYS / 2..KEYS / 2 + ASKED];
    group.throughput(Throughput::Elements(ASKED as u64));
    for (name, asked) in [
        ("scattered keys", scattered),
        ("neighbouring keys", neighbours),
    ] {
        assert!(index.lookup(asked).unwrap().iter().all(Option::is_some));
        group.bench_function(name, |bencher| {
            bencher.iter(|| index.lookup(black_box(asked)).unwrap());
        });
    }
    group.finish();
}

fn write_and_open(dir: &Path, keys: &[i64]) -> DirectorIndex {
    let positions = Positions::over_the_sky(keys.len(), 14);
    let mut locations = Vec::new();
    made::chunker().locate_degrees(&positions.ra, &positions.dec, &mut locations);
    let mut entries: Vec<_> = keys.iter().copied().zip(locations).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    let mut writer = IndexWriter::create(dir).unwrap();
    for (key, location) in entries {
        writer.push(key, location, false).unwrap();
    }
    writer.finish().unwrap();
    DirectorIndex::open(dir).unwrap()
}
