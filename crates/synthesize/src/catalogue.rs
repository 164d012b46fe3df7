//! [`Catalogue`]: tables that are made chunk by chunk, whatever they are made from.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use sky::ChunkId;

use crate::error::SynthesizeError;

/// The rows of one table in one chunk, in batches of bounded size.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, SynthesizeError>> + Send>;

/// Tables over the sky whose chunks can be made in any order, by anybody, with the same rows.
pub trait Catalogue: Send + Sync {
    /// The tables, a director before its children.
    fn tables(&self) -> &[Table];

    /// The chunks that may have rows, sorted.
    fn chunks(&self) -> &[ChunkId];

    /// The rows of a table in a chunk, both by their place in the lists above; exact unless
    /// [`Catalogue::counts_are_exact`] denies it.
    fn rows(&self, table: usize, chunk: usize) -> u64;

    /// Whether [`Catalogue::rows`] is exact, rather than what is to be expected.
    fn counts_are_exact(&self) -> bool;

    /// Makes the rows of a table in a chunk.
    fn batches(self: Arc<Self>, table: usize, chunk: usize) -> Batches;
}

/// A table of a catalogue.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// What it is to the others.
    pub role: Role,
    /// Columns with few different values, which are worth a dictionary.
    pub few_values: Vec<String>,
}

/// What a table is to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Each row has a position and a unique key.
    Director {
        /// The key.
        key: String,
        /// Right ascension and declination, degrees.
        position: [String; 2],
    },
    /// Each row belongs to a row of the director.
    Child {
        /// The director's name.
        director: String,
        /// The column with the director's key.
        key: String,
        /// The rows' own key, an integer.
        own_key: Option<String>,
        /// What the rows of one object are ordered by.
        order: Option<String>,
        /// The rows' own positions, degrees.
        position: Option<[String; 2]>,
    },
}

/// The places of some chunks in a catalogue's list.
///
/// # Errors
/// A chunk that has no rows.
pub fn find_chunks(
    catalogue: &dyn Catalogue,
    wanted: &[ChunkId],
) -> Result<Vec<usize>, SynthesizeError> {
    let there = catalogue.chunks();
    let mut found = Vec::with_capacity(wanted.len());
    for chunk in wanted {
        match there.binary_search(chunk) {
            Ok(at) => found.push(at),
            Err(_) => {
                return Err(SynthesizeError::NoSuchChunk {
                    wanted: *chunk,
                    there: there.to_vec(),
                });
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
