//! Pieces: the unit of work. Several small chunks, one chunk, or a range of its sub-chunks where it is large.

use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, AsArray, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::common::{Result, exec_err};
use sky::ChunkId;

use crate::coverage::SubChunkSet;

/// A chunk and which of its sub-chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSlice {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its sub-chunks that belong to the slice.
    pub sub_chunks: SubChunkSet,
}

impl ChunkSlice {
    /// All of a chunk.
    pub fn whole(chunk: ChunkId) -> Self {
        Self {
            chunk,
            sub_chunks: SubChunkSet::All,
        }
    }
}

impl fmt::Display for ChunkSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chunk, self.sub_chunks)
    }
}

/// Chunks whose rows are worked on together.
///
/// Invariant: it has a slice, and the chunks of its slices ascend strictly, so that its rows have one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Shared, because each scan of each run of a plan holds them.
    slices: Arc<[ChunkSlice]>,
    /// How many other queries are about to read the same chunks. It is known when the piece begins, and not encoded.
    sharers: u32,
}

impl Piece {
    /// The piece of these slices.
    ///
    /// # Errors
    /// There is none, or their chunks do not ascend.
    pub fn try_new(slices: Vec<ChunkSlice>) -> Result<Self> {
        let ascend = slices.windows(2).all(|two| two[0].chunk < two[1].chunk);
        if slices.is_empty() || !ascend {
            return exec_err!("a piece has {} slices in no ascending order", slices.len());
        }
        Ok(Self {
            slices: slices.into(),
            sharers: 0,
        })
    }

    /// The piece of one whole chunk.
    pub fn whole(chunk: ChunkId) -> Self {
        Self::from(ChunkSlice::whole(chunk))
    }

    /// The same piece, which so many other queries are about to read.
    pub(crate) fn shared(&self, sharers: u32) -> Self {
        Self {
            sharers,
            ..self.clone()
        }
    }

    /// How many other queries are about to read the same chunks.
    pub(crate) fn sharers(&self) -> u32 {
        self.sharers
    }

    /// What it consists of, in the order of the chunks.
    pub fn slices(&self) -> &Arc<[ChunkSlice]> {
        &self.slices
    }

    /// The schema of batches that describe pieces: for each the numbers of its chunks, and beside them their sub-chunks as texts.
    pub fn schema() -> SchemaRef {
        static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
            let list =
                |name: &str, of| Field::new_list(name, Field::new_list_field(of, false), false);
            Arc::new(Schema::new(vec![
                list("chunks", DataType::Int32),
                list("sub_chunks", DataType::Utf8),
            ]))
        });
        Arc::clone(&SCHEMA)
    }

    /// One row for each piece.
    pub fn encode(pieces: &[Self]) -> Result<RecordBatch> {
        let lengths = pieces.iter().map(|piece| piece.slices.len());
        let offsets = OffsetBuffer::from_lengths(lengths);
        let slices = || pieces.iter().flat_map(|piece| piece.slices.iter());
        let chunks: Int32Array = slices().map(|slice| Some(slice.chunk.0)).collect();
        let sub_chunks: StringArray = slices()
            .map(|slice| Some(slice.sub_chunks.to_string()))
            .collect();
        let list = |values: Arc<dyn Array>| {
            let item = Field::new_list_field(values.data_type().clone(), false);
            ListArray::try_new(Arc::new(item), offsets.clone(), values, None)
        };
        let columns: Vec<Arc<dyn Array>> = vec![
            Arc::new(list(Arc::new(chunks))?),
            Arc::new(list(Arc::new(sub_chunks))?),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }

    /// Reads back what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// It is anything else.
    pub fn decode(batch: &RecordBatch) -> Result<Vec<Self>> {
        let lists = |at: usize| batch.columns().get(at)?.as_list_opt::<i32>();
        let (Some(chunks), Some(sub_chunks)) = (lists(0), lists(1)) else {
            return exec_err!(
                "a chunk phase was given something other than pieces: {}",
                batch.schema()
            );
        };
        (0..batch.num_rows())
            .map(|row| Self::decode_row(&chunks.value(row), &sub_chunks.value(row)))
            .collect()
    }

    fn decode_row(chunks: &dyn Array, sub_chunks: &dyn Array) -> Result<Self> {
        let (Some(chunks), Some(sub_chunks)) = (
            chunks.as_primitive_opt::<Int32Type>(),
            sub_chunks.as_string_opt::<i32>(),
        ) else {
            return exec_err!("a chunk phase was given a piece of no chunks and sub-chunks");
        };
        if chunks.len() != sub_chunks.len() {
            return exec_err!("a chunk phase was given chunks without their sub-chunks");
        }
        let slices = chunks.values().iter().zip(sub_chunks);
        let slices = slices.map(|(chunk, text)| match text.and_then(SubChunkSet::parse) {
            Some(sub_chunks) => Ok(ChunkSlice {
                chunk: ChunkId(*chunk),
                sub_chunks,
            }),
            None => exec_err!("a chunk phase was given sub-chunks that cannot be read: {text:?}"),
        });
        Self::try_new(slices.collect::<Result<_>>()?)
    }
}

impl From<ChunkSlice> for Piece {
    fn from(slice: ChunkSlice) -> Self {
        Self {
            slices: Arc::new([slice]),
            sharers: 0,
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, slice) in self.slices.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{slice}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sky::SubChunkId;

    use super::*;

    fn several() -> Vec<ChunkSlice> {
        let some = SubChunkSet::of([SubChunkId(1), SubChunkId(2), SubChunkId(9)]);
        vec![
            ChunkSlice {
                chunk: ChunkId(3),
                sub_chunks: some,
            },
            ChunkSlice::whole(ChunkId(4)),
            ChunkSlice::whole(ChunkId(17)),
        ]
    }

    #[test]
    fn pieces_survive_the_journey() {
        let several = Piece::try_new(several()).unwrap();
        assert_eq!(several.to_string(), "3:1-2,9 4:* 17:*");
        let pieces = vec![Piece::whole(ChunkId(17)), several, Piece::whole(ChunkId(2))];
        let decoded = Piece::decode(&Piece::encode(&pieces).unwrap());
        assert_eq!(decoded.unwrap(), pieces);
        let none = Piece::decode(&Piece::encode(&[]).unwrap());
        assert_eq!(none.unwrap(), []);
    }

    #[test]
    fn chunks_of_a_piece_ascend() {
        assert!(Piece::try_new(vec![]).is_err());
        let mut slices = several();
        slices.swap(0, 1);
        assert!(Piece::try_new(slices).is_err());
        let twice = vec![ChunkSlice::whole(ChunkId(3)); 2];
        assert!(Piece::try_new(twice).is_err());
    }
}
