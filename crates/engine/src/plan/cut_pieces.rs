//! Cutting the chunks that a phase touches into pieces: large chunks are cut, small ones joined.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use catalog::TableKind;
use datafusion::common::Result;
use sky::{ChunkId, SubChunkId};

use super::phase::TableScan;
use crate::coverage::{Coverage, SubChunkSet};
use crate::loaded_table::{ChunkSummary, LoadedTable};
use crate::piece::{ChunkSlice, Piece};

/// Rows that make a part of a chunk worth its overhead, and few enough that the cores end at about the same time.
const ROWS_OF_A_CUT: RangeInclusive<u64> = 32_768..=524_288;
/// Pieces for each core that cutting aims for.
const CUTS_FOR_A_CORE: u64 = 8;
/// Rows that chunks which are joined come to. A piece of fewer than the least takes longer to be started than to be read; one of the
/// most takes about 10 ms.
const ROWS_JOINED: RangeInclusive<u64> = 20_000..=100_000;
/// Pieces for each core below which joining does not go, where they have the least number of rows.
const JOINED_FOR_A_CORE: u64 = 4;
/// Rows that a piece reads of each part of a table that has several, on average. To begin with a part takes about as long as a block of 8,192
/// rows, and a block through which a cut goes is read by both pieces.
const ROWS_OF_A_PART: u64 = 32_768;
/// Rows that a cut of a large chunk has at most on that account.
const MOST_CUT_ON_ACCOUNT_OF_PARTS: u64 = *ROWS_OF_A_CUT.end() * 2;
/// Rows that joined chunks have at most on that account: with a large chunk behind small ones a piece is no larger than others may be.
const MOST_JOINED_ON_ACCOUNT_OF_PARTS: u64 = *ROWS_OF_A_CUT.end() / 2;
/// Pieces for each core below which there are not fewer on account of the number of parts.
const PIECES_FOR_A_CORE: u64 = 2;
/// Rows that are read in the time in which a chunk's file is looked up and its reading begins.
const ROWS_OF_AN_OPENING: u64 = 256;

/// Rows of the tables read around a piece up to which chunks may be joined there: all of them may have to be held at once, and no
/// piece shall take more memory than one of a large chunk does.
pub(super) const ROWS_AROUND_JOINED: u64 = *ROWS_JOINED.end();

/// A chunk that a phase touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TouchedChunk {
    pub sub_chunks: SubChunkSet,
    /// Rows in it of the table that has most there, as far as they are known to be wanted.
    pub rows: u64,
    /// Rows in it of all tables, with what opening their files comes to.
    work: u64,
}

/// How chunks become pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cutting {
    /// How many pieces run at once.
    pub cores: usize,
    /// Whether a piece may have several chunks.
    pub joins: bool,
    /// The parts of the table that has most of them.
    pub parts: usize,
}

impl Cutting {
    /// The rows that a piece has at least, of so many and up to a greatest number, where a table has several parts.
    fn least_rows(&self, rows: u64, most: u64) -> u64 {
        if self.parts < 2 {
            return 0;
        }
        let of_parts = (self.parts as u64).saturating_mul(ROWS_OF_A_PART);
        let for_cores = rows / (self.cores as u64 * PIECES_FOR_A_CORE).max(1);
        of_parts.min(for_cores).min(most)
    }
}

/// The chunks that a phase over these tables touches.
pub(super) fn touched_chunks(
    scans: &[Arc<TableScan>],
    coverage: &Coverage,
) -> BTreeMap<ChunkId, TouchedChunk> {
    let mut touched = BTreeMap::new();
    for scan in scans
        .iter()
        .filter(|s| s.table.spec().kind != TableKind::Replicated)
    {
        for (chunk, stored, sub_chunks) in stored_chunks(&scan.table, coverage) {
            let known = touched.entry(*chunk).or_insert(TouchedChunk {
                sub_chunks,
                rows: 0,
                work: 0,
            });
            let share = share(&scan.table, *chunk, &known.sub_chunks);
            let rows = (stored.rows as f64 * share).ceil() as u64;
            known.rows = known.rows.max(rows);
            known.work += rows + ROWS_OF_AN_OPENING;
        }
    }
    touched
}

/// The chunks of a table that a coverage touches. Where it names some, only these are looked at: a query about one place
/// must not take longer because there are many others.
fn stored_chunks<'a>(
    table: &'a LoadedTable,
    coverage: &'a Coverage,
) -> Box<dyn Iterator<Item = (&'a ChunkId, &'a ChunkSummary, SubChunkSet)> + 'a> {
    match coverage {
        Coverage::Everything => {
            let all = table.chunks.iter();
            Box::new(all.map(|(chunk, stored)| (chunk, stored, SubChunkSet::All)))
        }
        Coverage::Only(only) => Box::new(only.iter().filter_map(|(chunk, set)| {
            let stored = table.chunks.get(chunk)?;
            Some((chunk, stored, set.clone()))
        })),
    }
}

/// The share of a chunk's sub-chunks that a set holds.
fn share(table: &LoadedTable, chunk: ChunkId, set: &SubChunkSet) -> f64 {
    match set {
        SubChunkSet::All => 1.0,
        SubChunkSet::Intervals(intervals) => {
            let all = table.chunker().sub_chunks_of(chunk);
            let held = all
                .iter()
                .filter(|s| intervals.iter().any(|(a, b)| (*a..=*b).contains(&s.0)))
                .count();
            held as f64 / all.len().max(1) as f64
        }
    }
}

/// Makes pieces of the chunks that are touched: large chunks are cut into pieces of about equal numbers of rows, and small ones
/// that follow each other are joined until a piece is worth a task.
///
/// ```text
///   rows of chunks   100  7  250000       40  40  9  99980   120000
///   pieces          └──────┘└─────┘└─────┘└────────────────┘└──────┘
/// ```
///
/// Invariant: every sub-chunk that is touched is in exactly one piece, and pieces and the chunks within them ascend. `sub_chunks_of`
/// gives all sub-chunks of a chunk.
pub(super) fn cut_pieces(
    touched: &BTreeMap<ChunkId, TouchedChunk>,
    cutting: Cutting,
    sub_chunks_of: impl Fn(ChunkId) -> Vec<SubChunkId>,
) -> Result<Vec<Piece>> {
    let rows = touched.values().map(|chunk| chunk.rows).sum();
    let rows_of_a_cut = for_each(rows, cutting.cores, CUTS_FOR_A_CORE, ROWS_OF_A_CUT)
        .max(cutting.least_rows(rows, MOST_CUT_ON_ACCOUNT_OF_PARTS));
    let work = touched.values().map(|chunk| chunk.work).sum();
    let enough = match cutting.joins {
        true => for_each(work, cutting.cores, JOINED_FOR_A_CORE, ROWS_JOINED)
            .max(cutting.least_rows(work, MOST_JOINED_ON_ACCOUNT_OF_PARTS)),
        false => 0,
    };
    let mut pieces = Vec::new();
    let mut joined = JoinedChunks::default();
    for (chunk, of_chunk) in touched {
        let cuts = of_chunk.rows.div_ceil(rows_of_a_cut);
        if cuts > 1 {
            pieces.extend(joined.take()?);
            let all = sub_chunks_of(*chunk).into_iter();
            let held: Vec<_> = all.filter(|s| of_chunk.sub_chunks.contains(*s)).collect();
            pieces.extend(parts_of(*chunk, &held, cuts));
            continue;
        }
        joined.slices.push(ChunkSlice {
            chunk: *chunk,
            sub_chunks: of_chunk.sub_chunks.clone(),
        });
        joined.work += of_chunk.work;
        if joined.work >= enough {
            pieces.extend(joined.take()?);
        }
    }
    pieces.extend(joined.take()?);
    Ok(pieces)
}

/// The rows of each piece where so many are shared out to so many pieces a core.
fn for_each(rows: u64, cores: usize, for_a_core: u64, within: RangeInclusive<u64>) -> u64 {
    let pieces = (cores as u64 * for_a_core).max(1);
    (rows / pieces).clamp(*within.start(), *within.end())
}

/// Sub-chunks of one chunk in about so many pieces.
fn parts_of(
    chunk: ChunkId,
    sub_chunks: &[SubChunkId],
    pieces: u64,
) -> impl Iterator<Item = Piece> + use<'_> {
    let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
    let length = sub_chunks.len().div_ceil(pieces).max(1);
    sub_chunks.chunks(length).map(move |run| {
        Piece::from(ChunkSlice {
            chunk,
            sub_chunks: SubChunkSet::of(run.iter().copied()),
        })
    })
}

/// Chunks that are being joined.
#[derive(Default)]
struct JoinedChunks {
    slices: Vec<ChunkSlice>,
    work: u64,
}

impl JoinedChunks {
    /// The piece of those that there are, if there are any.
    fn take(&mut self) -> Result<Option<Piece>> {
        let Self { slices, .. } = std::mem::take(self);
        match slices.is_empty() {
            true => Ok(None),
            false => Piece::try_new(slices).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sub-chunks of each chunk of the tests.
    const SUB_CHUNKS: i32 = 50;

    fn sub_chunks_of(_: ChunkId) -> Vec<SubChunkId> {
        (0..SUB_CHUNKS).map(SubChunkId).collect()
    }

    fn whole(rows: u64) -> TouchedChunk {
        TouchedChunk {
            sub_chunks: SubChunkSet::All,
            rows,
            work: rows + ROWS_OF_AN_OPENING,
        }
    }

    fn chunks(rows: &[u64]) -> BTreeMap<ChunkId, TouchedChunk> {
        let numbered = (0..).map(|number| ChunkId(number * 3));
        numbered.zip(rows.iter().map(|rows| whole(*rows))).collect()
    }

    /// How many slices each piece has.
    fn slices(rows: &[u64], cores: usize, joins: bool) -> Vec<usize> {
        slices_of(
            rows,
            Cutting {
                cores,
                joins,
                parts: 1,
            },
        )
    }

    fn slices_of(rows: &[u64], cutting: Cutting) -> Vec<usize> {
        let pieces = cut_pieces(&chunks(rows), cutting, sub_chunks_of);
        pieces.unwrap().iter().map(|p| p.slices().len()).collect()
    }

    #[test]
    fn small_chunks_are_joined_until_a_piece_is_worth_a_task() {
        for (rows, cores, expected) in [
            (vec![], 2, vec![]),
            (vec![5], 2, vec![1]),
            // So few that one piece is best, however many cores there are.
            (vec![100; 40], 1, vec![40]),
            (vec![100; 40], 64, vec![40]),
            // What a chunk costs beside its rows counts too: 457 chunks of 7 rows each are work for two cores.
            (vec![7; 457], 2, vec![77, 77, 77, 77, 77, 72]),
            // The pieces that the cores want, of no more than 100,000 rows and no fewer than 20,000.
            (vec![1_000; 400], 1, vec![80; 5]),
            (vec![1_000; 400], 2, vec![50; 8]),
            (vec![1_000; 400], 8, vec![16; 25]),
            (vec![1_000; 400], 64, vec![16; 25]),
            (vec![1_000; 1_600], 1, vec![80; 20]),
            // Large chunks are cut as they would be without small ones beside them, and joined with nothing.
            (
                vec![10, 10, 2_000_000, 10, 10],
                2,
                [vec![2], vec![1; 13], vec![2]].concat(),
            ),
            // A chunk that is worth a task itself takes small ones before it along, and no others.
            (vec![10, 30_000, 10, 30_000], 2, vec![2, 2]),
            (vec![30_000, 30_000, 10], 2, vec![1, 1, 1]),
        ] {
            assert_eq!(slices(&rows, cores, true), expected, "{rows:?} on {cores}");
        }
        assert_eq!(slices(&[7; 457], 2, false), vec![1; 457]);
    }

    /// Each piece reads each part, and a block of it at least if that leaves the cores enough pieces.
    #[test]
    fn pieces_of_many_parts_are_larger() {
        let pieces = |rows: &[u64], cores, parts| {
            let joins = true;
            slices_of(
                rows,
                Cutting {
                    cores,
                    joins,
                    parts,
                },
            )
            .len()
        };
        for (cores, parts, expected) in [(2, 1, 11), (2, 30, 5), (2, 1000, 5), (16, 30, 31)] {
            assert_eq!(
                pieces(&[2500; 400], cores, parts),
                expected,
                "{parts} on {cores}"
            );
        }
        for (cores, parts, expected) in [(2, 1, 16), (2, 30, 4), (16, 30, 26)] {
            assert_eq!(
                pieces(&[500_000; 2], cores, parts),
                expected,
                "{parts} on {cores}"
            );
        }
        // However many parts, no piece has more rows than one of a large chunk, or than two where it is cut on account of them.
        assert_eq!(pieces(&[500_000; 40], 1, 10_000), 40);
        assert_eq!(pieces(&[2_000_000; 40], 1, 10_000), 80);
    }

    /// A chunk of any number of rows, of which all sub-chunks are touched or some.
    fn any_chunk() -> impl Strategy<Value = TouchedChunk> {
        let rows = prop_oneof![0..50_u64, 0..50_000_u64, 0..3_000_000_u64];
        let some = prop::collection::btree_set(0..SUB_CHUNKS, 1..20);
        let sub_chunks = prop_oneof![
            Just(SubChunkSet::All),
            some.prop_map(|set| SubChunkSet::of(set.into_iter().map(SubChunkId))),
        ];
        (rows, sub_chunks).prop_map(|(rows, sub_chunks)| TouchedChunk {
            sub_chunks,
            ..whole(rows)
        })
    }

    proptest! {
        #[test]
        fn every_sub_chunk_is_in_one_piece(
            touched in prop::collection::btree_map((0..5_000).prop_map(ChunkId), any_chunk(), 0..200),
            cores in 1..100_usize,
            joins: bool,
        ) {
            let cutting = Cutting { cores, joins, parts: 1 };
            let pieces = cut_pieces(&touched, cutting, sub_chunks_of).unwrap();
            let of_slice = |chunk: ChunkId, set: &SubChunkSet| {
                let all = (0..SUB_CHUNKS).filter(|s| set.contains(SubChunkId(*s)));
                all.map(|s| (chunk.0, s)).collect::<Vec<_>>()
            };
            let slices = pieces.iter().flat_map(|piece| piece.slices().iter());
            let covered: Vec<_> = slices.flat_map(|s| of_slice(s.chunk, &s.sub_chunks)).collect();
            let wanted = touched.iter().flat_map(|(chunk, of)| of_slice(*chunk, &of.sub_chunks));
            // Ascending, so that each is there once.
            prop_assert_eq!(covered, wanted.collect::<Vec<_>>());
            prop_assert!(joins || pieces.iter().all(|piece| piece.slices().len() == 1));
            let work = |piece: &Piece| -> u64 {
                piece.slices().iter().map(|s| touched[&s.chunk].work).sum()
            };
            let several = pieces.iter().filter(|piece| piece.slices().len() > 1);
            for piece in several {
                let last = piece.slices().last().map_or(0, |s| touched[&s.chunk].work);
                prop_assert!(work(piece) - last < *ROWS_JOINED.end());
            }
        }
    }
}
