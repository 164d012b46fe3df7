//! The files of a part whose rows are in memory: those that a load of the same rows writes, synced together.

use std::sync::Arc;

use catalog::{Chunk, LoadId, TableKind};
use store::{Durability, IndexWriter, LoadDir, PartManifest, PartPartitioning};
use tokio::runtime::Handle;

use super::placing::{MEMORY, PlacedPart, RowPlaces};
use crate::error::IngestError;
use crate::fault;
use crate::memory::MemoryBudget;
use crate::pace::Pace;
use crate::pipeline::{SPILL_DIR, file_schema, write_files};
use crate::place::again::PlacedAgain;
use crate::place::key_run::IndexedKey;
use crate::progress::Progress;
use crate::request::LoadRequest;
use crate::row_batch::places_of;
use crate::write::ChunkWriter;

/// A part that is written, and not shown yet.
pub(super) struct WrittenPart {
    pub load: LoadId,
    pub rows: u64,
    /// Bytes of all files.
    pub bytes: u64,
    pub chunks: Vec<Chunk>,
    _dir: LoadDir,
}

/// Writes the files of a part, all of which are on the disk afterwards. Blocks its thread.
pub(super) fn write_part(
    request: &LoadRequest,
    places: &RowPlaces,
    part: &PlacedPart,
    load: LoadId,
    runtime: Handle,
) -> Result<WrittenPart, IngestError> {
    let spec = &places.spec;
    let dir = LoadDir::create_unsynced(&request.data_dir, &request.database, &spec.name, load)?;
    fault::reached("begun")?;
    let index_bytes = write_index(spec.kind, &dir, &part.keys)?;
    fault::reached("index-written")?;
    let chunks = write_chunks(places, part, &dir, runtime)?;
    let cut = &places.cut;
    let partitioning = PartPartitioning {
        stripes: cut.stripes,
        sub_stripes: cut.sub_stripes,
        overlap_deg: cut.overlap_deg,
    };
    let rows = part.rows.num_rows() as u64;
    let manifest = PartManifest::new(load, spec.clone(), partitioning, rows, &chunks);
    manifest.write_unsynced(dir.path())?;
    dir.sync()?;
    fault::reached("manifest-written")?;
    let of_chunk = |chunk: &Chunk| chunk.bytes + chunk.overlap.map_or(0, |it| it.bytes);
    Ok(WrittenPart {
        load,
        rows,
        bytes: chunks.iter().map(of_chunk).sum::<u64>() + index_bytes,
        chunks,
        _dir: dir,
    })
}

/// Writes the index. Gives its bytes; none of a table that has no index.
fn write_index(kind: TableKind, dir: &LoadDir, keys: &[IndexedKey]) -> Result<u64, IngestError> {
    if !matches!(kind, TableKind::Director | TableKind::Child) {
        return Ok(0);
    }
    let mut index = IndexWriter::create(&dir.index_dir())?;
    for it in keys {
        index.push(it.key, it.place.location(), it.orphan)?;
    }
    Ok(index.finish_with(Durability::WithDirectory)?.bytes)
}

fn write_chunks(
    places: &RowPlaces,
    part: &PlacedPart,
    dir: &LoadDir,
    runtime: Handle,
) -> Result<Vec<Chunk>, IngestError> {
    let spill_dir = dir.path().join(SPILL_DIR);
    let budget = Arc::new(MemoryBudget::new(MEMORY, 1));
    let chunker = places.cut.chunker()?;
    let placed = PlacedAgain::new(&places.table, chunker, &budget, &spill_dir)?;
    let mut input = placed.input();
    let hidden = 2;
    let columns = &part.rows.columns()[..part.rows.num_columns() - hidden];
    input.push(columns, places_of(&part.rows).to_vec())?;
    let strays = input.finish()?;
    let placed = placed.finish(strays, part.rows.num_rows() as u64);
    let kind = places.spec.kind;
    let writer = ChunkWriter {
        placed: &placed,
        load_dir: dir,
        writers: 1,
        schema: file_schema(&places.spec.columns, kind),
        runtime,
        progress: &Progress::default(),
        pace: &Pace::new(None),
        durability: Durability::WithDirectory,
    };
    let chunks = write_files(&writer, kind)?;
    drop(placed);
    if spill_dir.exists() {
        std::fs::remove_dir_all(&spill_dir)
            .map_err(|e| IngestError::io("remove", &spill_dir, e))?;
    }
    Ok(chunks)
}
