//! Pieces: the unit of work. A chunk, or a range of its sub-chunks where it is large.

use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::common::{Result, exec_err};
use sky::ChunkId;

use crate::coverage::SubChunkSet;

/// A chunk and which of its sub-chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its sub-chunks that belong to the piece.
    pub sub_chunks: SubChunkSet,
}

impl Piece {
    /// A whole chunk.
    pub fn whole(chunk: ChunkId) -> Self {
        Self {
            chunk,
            sub_chunks: SubChunkSet::All,
        }
    }

    /// The schema of batches that describe pieces: the chunk, and the sub-chunks as text.
    pub fn schema() -> SchemaRef {
        static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
            Arc::new(Schema::new(vec![
                Field::new("chunk", DataType::Int32, false),
                Field::new("sub_chunks", DataType::Utf8, false),
            ]))
        });
        Arc::clone(&SCHEMA)
    }

    /// One row for each piece.
    pub fn encode(pieces: &[Self]) -> Result<RecordBatch> {
        let chunks: Int32Array = pieces.iter().map(|piece| Some(piece.chunk.0)).collect();
        let sub_chunks: StringArray = pieces
            .iter()
            .map(|piece| Some(piece.sub_chunks.to_string()))
            .collect();
        Ok(RecordBatch::try_new(
            Self::schema(),
            vec![Arc::new(chunks), Arc::new(sub_chunks)],
        )?)
    }

    /// Reads back what [`Self::encode`] wrote.
    pub fn decode(batch: &RecordBatch) -> Result<Vec<Self>> {
        let (Some(chunks), Some(sub_chunks)) = (
            batch.column(0).as_primitive_opt::<Int32Type>(),
            batch.column(1).as_string_opt::<i32>(),
        ) else {
            return exec_err!(
                "a chunk phase was given something other than pieces: {}",
                batch.schema()
            );
        };
        chunks
            .values()
            .iter()
            .zip(sub_chunks)
            .map(|(chunk, text)| match text.and_then(SubChunkSet::parse) {
                Some(sub_chunks) => Ok(Self {
                    chunk: ChunkId(*chunk),
                    sub_chunks,
                }),
                None => {
                    exec_err!("a chunk phase was given sub-chunks that cannot be read: {text:?}")
                }
            })
            .collect()
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chunk, self.sub_chunks)
    }
}

#[cfg(test)]
mod tests {
    use sky::SubChunkId;

    use super::*;

    #[test]
    fn pieces_survive_the_journey() {
        let pieces = vec![
            Piece::whole(ChunkId(17)),
            Piece {
                chunk: ChunkId(3),
                sub_chunks: SubChunkSet::of([SubChunkId(1), SubChunkId(2), SubChunkId(9)]),
            },
        ];
        assert_eq!(
            Piece::decode(&Piece::encode(&pieces).unwrap()).unwrap(),
            pieces
        );
        assert_eq!(pieces[1].to_string(), "3:1-2,9");
    }
}
