//! One block of a text file on its way to columns.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::RecordBatch;

use super::super::{Part, ReadContext};
use super::block::Block;
use super::dialect::{Comments, Dialect};
use super::record::{Fields, RecordEnd};
use super::values::{Cells, parse_column};
use crate::error::IngestError;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;
use crate::row_errors::{RowErrors, excerpt};

/// Fields split before they are parsed: their places should stay in the processor's cache.
const FIELDS_PER_BATCH: usize = 1 << 16;
const ROWS_PER_BATCH: usize = 8192;

/// Which field of a record goes into which column.
#[derive(Debug, Clone)]
pub(super) struct FieldMap {
    width: usize,
    fields: Arc<[Option<usize>]>,
}

impl FieldMap {
    /// `fields[column]` is the number of its field; records have `width` fields.
    pub(super) fn new(width: usize, fields: Vec<Option<usize>>) -> Self {
        Self {
            width,
            fields: fields.into(),
        }
    }
}

/// A block that is being parsed.
pub(super) struct TextPart {
    block: Block,
    number: usize,
    dialect: Arc<Dialect>,
    map: FieldMap,
    context: Arc<ReadContext>,
    at: usize,
    line: u64,
    fields: Fields,
}

impl TextPart {
    pub(super) fn new(
        block: Block,
        number: usize,
        dialect: Arc<Dialect>,
        map: FieldMap,
        context: Arc<ReadContext>,
    ) -> Self {
        Self {
            line: block.first_line,
            block,
            number,
            dialect,
            map,
            context,
            at: 0,
            fields: Fields::default(),
        }
    }

    /// Splits records until there are enough for a batch; gives the row of each.
    fn split(&mut self) -> Vec<u64> {
        self.fields.clear();
        let limit = (FIELDS_PER_BATCH / self.map.width.max(1)).clamp(64, ROWS_PER_BATCH);
        let mut rows = Vec::with_capacity(limit);
        while rows.len() < limit && self.at < self.block.bytes.len() {
            let (start, before) = (self.at, self.fields.width());
            let end = match self
                .fields
                .split_record(&self.block.bytes, start, &self.dialect)
            {
                RecordEnd::Whole(end) => end,
                RecordEnd::BytesEnded => self.block.bytes.len(),
            };
            let width = self.fields.width() - before;
            let record = &self.block.bytes[start..end];
            let row = RowId::new(self.number, self.line);
            self.at = end;
            self.line += memchr::memchr_iter(b'\n', record).count() as u64;
            let blank = match self.dialect.blanks {
                true => width == 0,
                false => self.map.width > 1 && record.iter().all(|b| matches!(b, b'\n' | b'\r')),
            };
            if self.is_comment(start, width) {
                self.context.comment_lines.fetch_add(1, Relaxed);
                self.fields.truncate(before);
            } else if blank || !self.record_is_whole(row, width, start..end) {
                self.fields.truncate(before);
            } else {
                rows.push(row.0);
            }
        }
        rows
    }

    /// Whether the record that was just split and begins at byte `start` is a comment.
    fn is_comment(&self, start: usize, width: usize) -> bool {
        let begins_with = |byte| self.block.bytes.get(start) == Some(&byte);
        match self.dialect.comments {
            Comments::NoRows(byte) => width != self.map.width && begins_with(byte),
            Comments::Lines(_) | Comments::Nowhere => self.fields.is_comment,
        }
    }

    fn record_is_whole(&self, row: RowId, width: usize, record: std::ops::Range<usize>) -> bool {
        let rejected_rows = &self.context.rejected_rows;
        if self.fields.broken_quotes {
            rejected_rows.reject(
                row,
                "a quote that is not closed, or text behind one".to_owned(),
                || {
                    let begin = excerpt(&self.block.bytes[record]);
                    format!("a quoted field is not closed, or has text behind it: {begin}")
                },
            );
            return false;
        }
        if width != self.map.width {
            let class = "wrong number of fields".to_owned();
            rejected_rows.reject(row, class, || {
                format!("{width} fields where {} are expected", self.map.width)
            });
            return false;
        }
        true
    }

    fn parse(&self, rows: Vec<u64>) -> Result<RowBatch, IngestError> {
        let mut row_errors = RowErrors::new(&self.context, &rows);
        let mut arrays = Vec::with_capacity(self.map.fields.len());
        for (column, field) in self.context.columns.iter().zip(self.map.fields.iter()) {
            let cells = Cells {
                block: &self.block.bytes,
                fields: &self.fields,
                width: self.map.width,
                field: *field,
                rows: rows.len(),
            };
            arrays.push(parse_column(
                column,
                &cells,
                &mut row_errors,
                &self.context,
            )?);
        }
        let keep = row_errors.into_keep();
        let columns = RecordBatch::try_new(self.context.schema.clone(), arrays)?;
        RowBatch { columns, rows }.filter(&keep)
    }
}

impl Part for TextPart {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        loop {
            let start = self.at;
            if start >= self.block.bytes.len() {
                return Ok(None);
            }
            let rows = self.split();
            if rows.is_empty() {
                continue;
            }
            let batch = self.parse(rows)?;
            self.context.progress.read(0, (self.at - start) as u64);
            return Ok(Some(batch));
        }
    }
}
