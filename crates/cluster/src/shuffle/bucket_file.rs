//! The rows of a run's pieces, by buckets, in a temporary file.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SpillFile, SpillWriter};

use super::hash::BucketHash;

/// Bytes of rows that are gathered before they are written: each bucket's part of them is one block.
const GATHERED: usize = 16 << 20;
/// Buckets that rows may be shared out over.
const MOST_BUCKETS: u32 = 1 << 16;

/// Some rows of a piece that are in one bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    bucket: u32,
    offset: u64,
    bytes: usize,
    /// How many rows there are.
    pub rows: u64,
}

/// Where the rows of the pieces of a run are. A piece is there once it has given all its rows.
pub(crate) struct BucketFile {
    /// The message of an Arrow stream that says what columns there are.
    schema: Bytes,
    reader: File,
    /// The blocks of each piece, in the order of the buckets.
    pieces: Mutex<HashMap<u32, Arc<[Block]>>>,
    /// Removes the file.
    _file: Arc<dyn SpillFile>,
}

impl fmt::Debug for BucketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketFile({} pieces)", self.lock().len())
    }
}

impl BucketFile {
    /// The first message of an Arrow stream of the rows.
    pub fn schema_message(&self) -> &Bytes {
        &self.schema
    }

    /// The blocks of a piece in a bucket, in the order of their rows; `None` if the piece is not there.
    pub fn blocks(&self, piece: u32, bucket: u32) -> Option<Vec<Block>> {
        let blocks = self.lock().get(&piece).cloned()?;
        let first = blocks.partition_point(|block| block.bucket < bucket);
        let of_bucket = blocks[first..].iter();
        Some(
            of_bucket
                .take_while(|it| it.bucket == bucket)
                .copied()
                .collect(),
        )
    }

    /// The message of an Arrow stream that a block is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, block: Block) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; block.bytes];
        self.reader.read_exact_at(&mut bytes, block.offset)?;
        Ok(bytes)
    }

    /// Every change is a single one.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<[Block]>>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the rows of one piece after the other.
pub(crate) struct BucketWriter {
    file: Arc<BucketFile>,
    writer: Box<dyn SpillWriter>,
    end: u64,
    hash: BucketHash,
    stream: StreamWriter<Vec<u8>>,
    /// The rows of each bucket that are not written yet.
    gathered: Vec<Vec<RecordBatch>>,
    gathered_bytes: usize,
    /// Counts them.
    memory: MemoryReservation,
    /// What is written of the piece.
    blocks: Vec<Block>,
}

impl BucketWriter {
    /// A new temporary file, for rows that are shared out by these columns.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(
        runtime: &RuntimeEnv,
        schema: &SchemaRef,
        columns: &[usize],
        buckets: u32,
    ) -> Result<Self, ArrowError> {
        if buckets > MOST_BUCKETS {
            let why = format!("rows were to be shared out over {buckets} buckets");
            return Err(ArrowError::InvalidArgumentError(why));
        }
        let failed =
            |error: datafusion::error::DataFusionError| ArrowError::ExternalError(Box::new(error));
        let file = runtime
            .disk_manager
            .create_tmp_file("keeping rows for a shuffle");
        let file = file.map_err(failed)?;
        let writer = file.open_writer().map_err(failed)?;
        let path = file.path().ok_or_else(|| {
            ArrowError::InvalidArgumentError("temporary files have no path".to_owned())
        })?;
        let reader = File::open(path)?;
        let mut stream = StreamWriter::try_new(Vec::new(), schema)?;
        let message = std::mem::take(stream.get_mut());
        Ok(Self {
            file: Arc::new(BucketFile {
                schema: message.into(),
                reader,
                pieces: Mutex::default(),
                _file: file,
            }),
            writer,
            end: 0,
            hash: BucketHash::new(schema, columns, buckets)?,
            stream,
            gathered: vec![Vec::new(); buckets.max(1) as usize],
            gathered_bytes: 0,
            memory: MemoryConsumer::new("rows of a shuffle")
                .with_can_spill(true)
                .register(&runtime.memory_pool),
            blocks: Vec::new(),
        })
    }

    /// The file.
    pub fn file(&self) -> &Arc<BucketFile> {
        &self.file
    }

    /// Takes rows of the present piece.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        // Views would keep, and count, the bytes of rows that are in other buckets.
        let batch = &queries::without_unused_bytes(batch);
        let buckets = self.hash.buckets_of(batch)?;
        let mut order: Vec<u32> = (0..u32::try_from(buckets.len()).unwrap_or(u32::MAX)).collect();
        // The sort is stable: rows of a bucket stay in their order.
        order.sort_by_key(|row| buckets[*row as usize]);
        let sorted = take_record_batch(batch, &UInt32Array::from(order.clone()))?;
        let mut first = 0;
        for rows in order.chunk_by(|a, b| buckets[*a as usize] == buckets[*b as usize]) {
            let bucket = buckets[rows[0] as usize] as usize;
            self.gathered[bucket].push(sorted.slice(first, rows.len()));
            first += rows.len();
        }
        let bytes = sorted.get_array_memory_size();
        self.gathered_bytes += bytes;
        let has_room = self.memory.try_grow(bytes).is_ok();
        match has_room && self.gathered_bytes <= GATHERED {
            true => Ok(()),
            false => self.write_gathered(),
        }
    }

    /// The present piece has given all its rows. It has this number in the run. Returns how many rows there are.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn end_piece(&mut self, piece: u32) -> Result<u64, ArrowError> {
        self.write_gathered()?;
        self.writer.flush()?;
        let mut blocks = std::mem::take(&mut self.blocks);
        // The sort is stable: blocks of a bucket stay in their order.
        blocks.sort_by_key(|block| block.bucket);
        let rows = blocks.iter().map(|block| block.rows).sum();
        self.file.lock().insert(piece, blocks.into());
        Ok(rows)
    }

    fn write_gathered(&mut self) -> Result<(), ArrowError> {
        for (bucket, batches) in (0..).zip(&mut self.gathered) {
            let batches = std::mem::take(batches);
            let Some(first) = batches.first() else {
                continue;
            };
            let rows = concat_batches(&first.schema(), &batches)?;
            self.stream.write(&queries::without_unused_bytes(&rows))?;
            let message = std::mem::take(self.stream.get_mut());
            self.writer.write_all(&message)?;
            self.blocks.push(Block {
                bucket,
                offset: self.end,
                bytes: message.len(),
                rows: rows.num_rows() as u64,
            });
            self.end += message.len() as u64;
        }
        self.gathered_bytes = 0;
        self.memory.free();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use arrow::buffer::Buffer;
    use arrow::datatypes::Int64Type;
    use arrow_ipc::reader::StreamDecoder;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use proptest::prelude::*;

    use super::*;

    fn batch(numbers: &[i64]) -> RecordBatch {
        let texts = numbers
            .iter()
            .map(|it| format!("the text of the number {it}"));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    fn writer(buckets: u32, runtime: RuntimeEnvBuilder) -> BucketWriter {
        let schema = batch(&[]).schema();
        BucketWriter::new(&runtime.build().unwrap(), &schema, &[0], buckets).unwrap()
    }

    /// The numbers of a piece's rows that are in a bucket.
    fn read(file: &BucketFile, piece: u32, bucket: u32) -> Vec<i64> {
        let mut decoder = StreamDecoder::default();
        let mut schema = Buffer::from(file.schema_message().clone());
        assert!(decoder.decode(&mut schema).unwrap().is_none());
        let mut numbers = Vec::new();
        for block in file.blocks(piece, bucket).unwrap() {
            let mut message = Buffer::from(file.read(block).unwrap());
            let rows = decoder.decode(&mut message).unwrap().unwrap();
            assert_eq!(rows.num_rows() as u64, block.rows);
            let found = rows.column(0).as_primitive::<Int64Type>().values();
            let texts = rows.column(1).as_string_view().iter();
            for (number, text) in found.iter().zip(texts) {
                assert_eq!(
                    text,
                    Some(format!("the text of the number {number}").as_str())
                );
            }
            numbers.extend_from_slice(found);
        }
        numbers
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Each row is in one bucket, that of its number, and rows of a bucket stay in their order, however little memory there is.
        #[test]
        fn rows_are_kept_in_their_order(
            pieces in prop::collection::vec(prop::collection::vec(prop::collection::vec(0i64..50, 0..60), 0..4), 1..5),
            buckets in 1u32..9,
            memory in 0usize..20_000,
        ) {
            let mut writer = writer(buckets, RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0));
            for (piece, batches) in (0..).zip(&pieces) {
                for numbers in batches {
                    writer.push(&batch(numbers)).unwrap();
                }
                let rows = writer.end_piece(piece).unwrap();
                prop_assert_eq!(rows as usize, batches.iter().map(Vec::len).sum::<usize>());
            }
            let file = Arc::clone(writer.file());
            let mut bucket_of: HashMap<i64, u32> = HashMap::new();
            for (piece, batches) in (0..).zip(&pieces) {
                let mut kept = 0;
                for bucket in 0..buckets {
                    let found = read(&file, piece, bucket);
                    kept += found.len();
                    for number in &found {
                        prop_assert_eq!(*bucket_of.entry(*number).or_insert(bucket), bucket);
                    }
                    let wanted: Vec<i64> = batches.concat().into_iter().filter(|it| found.contains(it)).collect();
                    prop_assert_eq!(found, wanted);
                }
                prop_assert_eq!(kept, batches.concat().len());
            }
        }
    }

    #[test]
    fn a_piece_is_there_once_it_has_ended() {
        let mut writer = writer(3, RuntimeEnvBuilder::new());
        writer.push(&batch(&[1, 2, 3])).unwrap();
        let file = Arc::clone(writer.file());
        assert!(file.blocks(4, 0).is_none());
        assert_eq!(writer.end_piece(4).unwrap(), 3);
        assert!(file.blocks(4, 0).is_some() && file.blocks(0, 0).is_none());
        // What came of a piece that did not end is not of the next one that does: a run ends with its first failure.
        assert_eq!(writer.end_piece(5).unwrap(), 0);
    }

    #[test]
    fn where_there_is_no_room_nothing_is_kept() {
        let mut writer = writer(
            2,
            RuntimeEnvBuilder::new().with_max_temp_directory_size(100),
        );
        writer.push(&batch(&[1, 2, 3])).unwrap();
        let error = writer.end_piece(0).unwrap_err();
        assert!(
            error.to_string().contains("exceeded the allowable limit"),
            "{error}"
        );
        assert!(writer.file().blocks(0, 0).is_none());
    }
}
