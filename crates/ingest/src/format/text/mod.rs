//! Text tables: CSV and TSV (RFC 4180 quoting), and what MySQL's `SELECT INTO OUTFILE` writes; plain or gzipped.
//!
//! A file is cut into blocks that end where a record ends; that is all that is done one after the other. The blocks
//! are split into fields and parsed by several threads.
//!
//! Text columns hold UTF-8. A value that is not UTF-8 is taken as Latin-1 (the default of MySQL when most such
//! dumps were written), so that no byte is lost, and the load report counts such values. Binary columns take the
//! bytes as they are.

mod block;
mod dialect;
mod ecsv;
mod head;
mod infer;
mod no_table;
mod number;
mod part;
mod prelude;
mod record;
mod time;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::Column;

pub(crate) use dialect::{Dialect, TextLayout};
pub(crate) use time::timestamp;
pub(crate) use values::utf8_or_latin1;

use self::block::{BlockReader, SAMPLE_BLOCK};
use self::head::Head;
use self::part::{FieldMap, TextPart};
use super::{FieldDescription, FileColumns, Part, ReadContext, Source, TableFile};
use crate::budget::DecodeBudget;
use crate::error::IngestError;
use crate::row_batch::RowBatch;

/// Places in a plain file from which rows are sampled.
const SAMPLES: u64 = 24;

/// A text file whose dialect is known.
#[derive(Debug)]
pub(crate) struct TextFile {
    path: PathBuf,
    gzip: bool,
    bytes: u64,
    dialect: Arc<Dialect>,
    head: Head,
    /// Why it is hardly a table, if anything says so.
    doubt: Option<&'static str>,
    budget: DecodeBudget,
}

impl TextFile {
    /// Looks at the beginning of the file.
    pub(crate) fn open(
        path: &Path,
        gzip: bool,
        layout: &TextLayout,
        declared: Option<&[Column]>,
        budget: &DecodeBudget,
    ) -> Result<Self, IngestError> {
        let metadata = std::fs::metadata(path).map_err(|e| IngestError::io("open", path, e))?;
        let sample = BlockReader::open(path, gzip, budget)?.read_head()?;
        if budget.is_limited() {
            no_table::reject(path, &sample.bytes)?;
        }
        let dialect = Dialect::detect(path, &sample, layout)?;
        let head = Head::read(path, &sample, &dialect, layout.header, declared)?;
        budget.check_columns(path, head.names.len())?;
        Ok(Self {
            path: path.to_path_buf(),
            gzip,
            bytes: metadata.len(),
            dialect: Arc::new(dialect),
            head,
            doubt: no_table::doubt(&sample.bytes),
            budget: budget.clone(),
        })
    }

    fn reader(&self) -> Result<BlockReader, IngestError> {
        BlockReader::open(&self.path, self.gzip, &self.budget)
    }

    fn part(
        &self,
        block: block::Block,
        number: usize,
        map: &FieldMap,
        context: &Arc<ReadContext>,
    ) -> TextPart {
        TextPart::new(
            block,
            number,
            self.dialect.clone(),
            map.clone(),
            context.clone(),
        )
    }

    /// Rows of the blocks that begin at evenly spread places of a plain file.
    fn sample_plain(
        &self,
        map: &FieldMap,
        context: &Arc<ReadContext>,
    ) -> Result<Vec<RowBatch>, IngestError> {
        let mut batches = Vec::new();
        for sample in 0..SAMPLES {
            let mut reader = self.reader()?;
            let at = self.bytes / SAMPLES * sample;
            if at > 0 {
                reader.skip_to(at)?;
                reader.skip_line()?;
            } else {
                self.head.skip(&mut reader)?;
            }
            // What cannot be read from the middle may well be read from the beginning.
            if let Ok(Some(block)) = reader.next_block(&self.dialect, SAMPLE_BLOCK) {
                batches.extend(self.part(block, 0, map, context).next_batch()?);
            }
        }
        Ok(batches)
    }
}

impl TableFile for TextFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        Ok(self.columns_found()?.columns)
    }

    fn columns_found(&self) -> Result<FileColumns, IngestError> {
        let found = infer::columns(&self.path, self.reader()?, &self.dialect, &self.head)?;
        Ok(FileColumns {
            is_header_missing: !self.head.is_header,
            doubt: self.doubt,
            ..found
        })
    }

    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        self.head.descriptions.clone()
    }

    fn column_names(&self) -> Result<Option<Vec<String>>, IngestError> {
        Ok(self.header_names().map(<[String]>::to_vec))
    }

    fn header_names(&self) -> Option<&[String]> {
        self.head.is_header.then_some(self.head.names.as_slice())
    }

    fn estimated_rows(&self) -> u64 {
        let Some(bytes_per_row) = self.head.bytes_per_row else {
            return 0;
        };
        // Catalogues in text shrink to about a third by gzip; a small file is known whole.
        let text_bytes = if self.gzip {
            self.bytes.saturating_mul(3)
        } else {
            self.bytes
        };
        self.head
            .rows_if_whole
            .unwrap_or((text_bytes as f64 / bytes_per_row) as u64)
    }

    fn work(&self) -> u64 {
        self.bytes
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        let map = self
            .head
            .map_columns(&self.path, &self.dialect, &context.columns)?;
        let mut reader = self.reader()?;
        self.head.skip(&mut reader)?;
        Ok(Box::new(TextSource {
            reader,
            dialect: self.dialect.clone(),
            number,
            map,
            context: context.clone(),
        }))
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let map = self
            .head
            .map_columns(&self.path, &self.dialect, &context.columns)?;
        if !self.gzip && self.head.rows_if_whole.is_none() {
            return self.sample_plain(&map, context);
        }
        let mut reader = self.reader()?;
        self.head.skip(&mut reader)?;
        let mut batches = Vec::new();
        for _ in 0..SAMPLES {
            let Some(block) = reader.next_block(&self.dialect, SAMPLE_BLOCK)? else {
                break;
            };
            let mut part = self.part(block, 0, &map, context);
            while let Some(batch) = part.next_batch()? {
                batches.push(batch);
            }
        }
        Ok(batches)
    }
}

/// A text file that is being read block by block.
struct TextSource {
    reader: BlockReader,
    dialect: Arc<Dialect>,
    number: usize,
    map: FieldMap,
    context: Arc<ReadContext>,
}

impl Source for TextSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        let before = self.reader.file_bytes_read();
        let Some(block) = self.reader.next_block(&self.dialect, block::BLOCK)? else {
            return Ok(None);
        };
        self.context
            .progress
            .advance(self.reader.file_bytes_read() - before);
        let (dialect, map) = (self.dialect.clone(), self.map.clone());
        Ok(Some(Box::new(TextPart::new(
            block,
            self.number,
            dialect,
            map,
            self.context.clone(),
        ))))
    }
}

#[cfg(test)]
mod tests;
