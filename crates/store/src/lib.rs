//! What lies on disk for a loaded table: chunk files, their directories, and the director index.
//!
//! A chunk file holds the rows of one chunk, or of several small ones, sorted by sub-chunk, as a Vortex file inside a
//! container that adds a directory (sub-chunk to row range) and a checksum for each block. It is
//! written once, never changed, and every block is verified whenever it is read. The director
//! index maps the keys of a director to their chunk and sub-chunk and is searched without being
//! loaded. A manifest says what files a load has written, so that they can be read without a catalog.
//! `docs/chunk-file.md` and `docs/director-index.md` describe both byte by byte.
//!
//! The crate knows of columns (`catalog`) and chunk numbers (`sky`), and nothing of queries: no
//! DataFusion here, and no decision about which rows a query needs. It never changes a file that
//! has its final name.

mod away;
mod block_file;
mod block_rows;
mod block_statistics;
mod blocks;
mod byte_source;
mod chunk_file;
mod column_blocks;
mod columns;
mod compress;
mod condition;
mod decoded_blocks;
mod directory;
mod durable;
mod error;
mod home;
mod index;
mod joint_scan;
mod layout;
mod load_dir;
mod manifest;
mod open_file;
mod open_files;
mod packed;
mod read_ahead;
mod read_counters;
mod scan;
mod schema;
mod session;
mod shared_blocks;
mod sorted;
mod trailer;
mod untested_rows;
mod write;

pub use away::{
    FileService, ReadPlace, bring_back, files_away, give_up, is_away, open_anywhere, open_here,
};
pub use byte_source::{
    ByteSource, Fault, FaultySource, HttpFile, HttpPeer, HttpTimeouts, LocalFile, PeerConnector,
    PeerStream,
};
pub use chunk_file::ChunkFile;
pub use condition::{Hint, RowCondition, constant};
pub use decoded_blocks::DecodedBlocks;
pub use directory::{Directory, DirectoryBuilder, SubChunkRange};
pub use durable::Durability;
pub use error::StoreError;
pub use home::{
    FileHome, FileWithHome, HomeObject, IncomingCopy, files_with_home, forget_home, has_home,
    is_at_home, name_in_data_dir, note_reading, read_homes_by, remove_abandoned_copies,
    remove_copy,
};
pub use index::{DirectorIndex, IndexEntries, IndexEntry, IndexSummary, IndexWriter};
pub use joint_scan::scan_files;
pub use load_dir::{LoadDir, Removal, table_dir};
pub use manifest::{MANIFEST_FILE, PartChunk, PartManifest, PartOverlap, PartPartitioning};
pub use open_file::OpenFile;
pub use open_files::OpenFiles;
pub use packed::ChunkSection;
pub use read_ahead::read_ahead;
pub use read_counters::ReadCounters;
pub use scan::{BatchStream, ScanRequest, WORTH_PRUNING};
pub use schema::{arrow_schema, numbers_in_file};
pub use sorted::SortedColumn;
pub use write::{
    FileSummary, PackedSummary, ROWS_PER_BLOCK, write_chunk_file, write_chunk_file_with,
    write_packed_file_with,
};
