//! Stored results in several formats, whole or in part, sent while they are read. Reading and encoding run on the query runtime.

use std::mem::take;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use engine::StoredRows;
use futures::StreamExt;
use result_formats::{ResultFormat, ResultWriter, check_names};
use sql::Warning;

use super::JSON;
use super::requester::Requester;
use crate::formats::{
    Format, Role, SharedBuffer, TableColumn, TableEnd, TableWriter, cannot_be_written,
};
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::http::streaming::BLOCK_BYTES;
use crate::metrics::Protocol;
use crate::process_list::TrackedTask;
use crate::query_runtime::ResultSender;
use crate::{ClientError, Shared};

/// The format of a response with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DownloadFormat {
    /// An object with the columns and a list for each row, as cone searches return it.
    Json,
    /// One of the formats of files.
    File(ResultFormat),
}

impl DownloadFormat {
    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Json).chain(ResultFormat::ALL.map(Self::File))
    }

    /// Reads `format`.
    ///
    /// # Errors
    /// There is no such format.
    pub(super) fn read(parameters: &RequestParameters) -> Result<Self, Problem> {
        let name = parameters.value("FORMAT")?.unwrap_or("json");
        let format = Self::all().find(|it| it.name().eq_ignore_ascii_case(name));
        format.ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            Problem::bad(format!(
                "format is {name}: it is one of {}",
                names.join(", ")
            ))
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::File(format) => format.name(),
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::File(format) => format.media_type(),
        }
    }
}

/// Which rows of a result are requested, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DownloadRequest {
    pub(super) format: DownloadFormat,
    /// Rows that are left out at the beginning.
    offset: u64,
    /// The most rows that are sent.
    limit: Option<u64>,
    /// Whether the result so far of a query that runs is wanted.
    partial: bool,
}

impl DownloadRequest {
    /// Reads `format`, `offset`, `limit` and `partial`.
    ///
    /// # Errors
    /// One of them has no such value.
    pub(super) fn read(parameters: &RequestParameters) -> Result<Self, Problem> {
        let format = DownloadFormat::read(parameters)?;
        let partial = match parameters.value("PARTIAL")? {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(Problem::bad(format!(
                    "partial is {other}: it is true or false"
                )));
            }
        };
        Ok(Self {
            format,
            offset: parameters.count("OFFSET")?.unwrap_or(0),
            limit: parameters.count("LIMIT")?,
            partial,
        })
    }
}

/// A result that is sent.
pub(super) struct Download {
    shared: Arc<Shared>,
    work: TrackedTask,
    id: u64,
    user: String,
    request: DownloadRequest,
    warnings: Arc<OnceLock<Arc<[Warning]>>>,
}

impl Download {
    /// Registers the sending of a result.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        requester: Requester,
        id: u64,
        request: DownloadRequest,
    ) -> Self {
        let Requester { user, peer } = requester;
        Self {
            shared: Arc::clone(shared),
            work: shared.track_for(peer, &user, None, "Result", &id.to_string()),
            id,
            user,
            request,
            warnings: Arc::default(),
        }
    }

    /// The warnings that are told with the rows: there from the first block on, if the result so far is wanted.
    pub(super) fn warnings(&self) -> Arc<OnceLock<Arc<[Warning]>>> {
        Arc::clone(&self.warnings)
    }

    /// The rows, and how many of them have to be left out.
    ///
    /// # Errors
    /// There is no such result.
    fn open(&self) -> Result<(StoredRows, u64), ClientError> {
        let (queries, offset) = (&self.shared.queries, self.request.offset);
        Ok(match self.request.partial {
            true => (queries.partial_result(self.id, &self.user)?, offset),
            false => queries.result_from(self.id, &self.user, offset)?,
        })
    }

    /// Checks that there is a result to be sent.
    ///
    /// # Errors
    /// There is no such result.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        self.open().map(drop)
    }

    /// Sends the rows. An error after the first block breaks off the response.
    ///
    /// # Errors
    /// There is no such result, it cannot be read, or the client has gone.
    pub(super) async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        self.work.run(self.send(sender)).await
    }

    async fn send(&self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let (stored, skip) = self.open()?;
        if self.request.partial {
            // It is opened once.
            let _ = self.warnings.set(Arc::clone(&stored.warnings));
        }
        let mut page = Page {
            skip,
            left: self.request.limit.unwrap_or(u64::MAX),
        };
        let columns = described(&stored.schema);
        let mut encoder = Encoder::new(self.request.format, &columns, &stored.schema)?;
        let counter = self.shared.metrics.rows(Protocol::Http);
        let mut batches = (stored.open)();
        while page.left > 0
            && let Some(batch) = batches.next().await
        {
            let batch = page.cut(&batch?);
            if batch.num_rows() == 0 {
                continue;
            }
            counter.inc_by(batch.num_rows() as u64);
            encoder.send(&batch, &sender).await?;
        }
        encoder.send_rest(&sender).await
    }
}

pub(super) fn described(schema: &SchemaRef) -> Vec<TableColumn> {
    let fields = schema.fields().iter();
    fields
        .map(|field| TableColumn::new(field, Role::Other))
        .collect()
}

/// The part of the rows that is still to be sent.
#[derive(Debug)]
struct Page {
    skip: u64,
    left: u64,
}

impl Page {
    /// What is wanted of the next batch.
    fn cut(&mut self, batch: &RecordBatch) -> RecordBatch {
        let rows = batch.num_rows() as u64;
        let from = self.skip.min(rows);
        let wanted = self.left.min(rows - from);
        self.skip -= from;
        self.left -= wanted;
        // Both are at most the batch's number of rows, which is a `usize`.
        batch.slice(from as usize, wanted as usize)
    }
}

/// Encodes a result into a buffer, from which blocks are taken.
pub(super) enum Encoder<'a> {
    Json(TableWriter<'a>, Vec<u8>),
    File(Box<ResultWriter<SharedBuffer>>, SharedBuffer),
}

impl<'a> Encoder<'a> {
    pub(super) fn new(
        format: DownloadFormat,
        columns: &'a [TableColumn],
        schema: &SchemaRef,
    ) -> Result<Self, ClientError> {
        Ok(match format {
            DownloadFormat::Json => {
                let writer = TableWriter::new(Format::Json, "result", columns);
                let mut out = Vec::new();
                writer.begin(&mut out);
                Self::Json(writer, out)
            }
            DownloadFormat::File(format) => {
                check_names(format, schema).map_err(cannot_be_written)?;
                let buffer = SharedBuffer::default();
                let writer = ResultWriter::new(format, schema, buffer.clone());
                Self::File(Box::new(writer.map_err(cannot_be_written)?), buffer)
            }
        })
    }

    /// Encodes a batch, and sends what makes a block.
    ///
    /// # Errors
    /// The format cannot hold the rows, or the client has gone.
    pub(super) async fn send(
        &mut self,
        batch: &RecordBatch,
        sender: &ResultSender<Bytes>,
    ) -> Result<(), ClientError> {
        self.write(batch)?;
        match self.num_bytes() >= BLOCK_BYTES {
            true => sender.send(self.take().into()).await,
            false => Ok(()),
        }
    }

    /// Sends what is left, after the last batch.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) async fn send_rest(
        mut self,
        sender: &ResultSender<Bytes>,
    ) -> Result<(), ClientError> {
        while self.write_more()? {
            if self.num_bytes() >= BLOCK_BYTES {
                sender.send(self.take().into()).await?;
            }
        }
        sender.send(self.finish()?.into()).await
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ClientError> {
        match self {
            Self::Json(writer, out) => {
                let written = writer.rows(batch, out);
                written.map_err(|error| cannot_be_written(error.into()))
            }
            Self::File(writer, _) => writer.write(batch).map_err(cannot_be_written),
        }
    }

    /// Encodes some of what the format holds back until its end; whether there is more.
    fn write_more(&mut self) -> Result<bool, ClientError> {
        match self {
            Self::Json(..) => Ok(false),
            Self::File(writer, _) => writer.write_more().map_err(cannot_be_written),
        }
    }

    fn num_bytes(&self) -> usize {
        match self {
            Self::Json(_, out) => out.len(),
            Self::File(_, buffer) => buffer.len(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Json(_, out) => take(out),
            Self::File(_, buffer) => buffer.take(),
        }
    }

    fn finish(self) -> Result<Vec<u8>, ClientError> {
        match self {
            Self::Json(mut writer, mut out) => {
                writer.end(TableEnd::Whole, &mut out);
                Ok(out)
            }
            Self::File(writer, buffer) => {
                writer.finish().map_err(cannot_be_written)?;
                Ok(buffer.take())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("n", numbers)]).unwrap()
    }

    fn page(skip: u64, left: u64) -> Vec<i64> {
        let mut page = Page { skip, left };
        let batches = [batch(0..3), batch(3..3), batch(3..7)];
        let cut = batches.iter().map(|batch| page.cut(batch));
        let numbers = cut.flat_map(|batch| {
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            numbers.values().to_vec()
        });
        numbers.collect()
    }

    #[test]
    fn pages_are_cut_across_batches() {
        assert_eq!(page(0, u64::MAX), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(page(2, 3), [2, 3, 4]);
        assert_eq!(page(3, 1), [3]);
        assert_eq!(page(7, 1), [0_i64; 0]);
        assert_eq!(page(100, 1), [0_i64; 0]);
    }

    #[test]
    fn every_format_is_whole_also_in_blocks() {
        for format in DownloadFormat::all() {
            let (first, second) = (batch(0..1000), batch(1000..2000));
            let columns = described(&first.schema());
            let encode = |in_blocks: bool| {
                let mut encoder = Encoder::new(format, &columns, &first.schema()).unwrap();
                let mut out = Vec::new();
                for batch in [&first, &second] {
                    encoder.write(batch).unwrap();
                    if in_blocks {
                        out.extend(encoder.take());
                    }
                }
                out.extend(encoder.finish().unwrap());
                out
            };
            assert_eq!(encode(true), encode(false), "{}", format.name());
        }
    }

    #[test]
    fn requests_say_what_they_want() {
        let read = |query: &str| {
            let parameters = RequestParameters::read(query).unwrap();
            DownloadRequest::read(&parameters)
        };
        let request = read("format=Parquet&offset=5&limit=7&partial=true").unwrap();
        assert_eq!(request.format, DownloadFormat::File(ResultFormat::Parquet));
        assert_eq!((request.offset, request.limit), (5, Some(7)));
        assert!(request.partial);
        assert_eq!(read("").unwrap().format, DownloadFormat::Json);
        for (query, sentence) in [
            (
                "format=hdf5",
                "it is one of json, csv, tsv, jsonl, parquet, arrow, fits",
            ),
            ("partial=maybe", "it is true or false"),
            ("limit=-1", "LIMIT is no whole number"),
        ] {
            let problem = read(query).unwrap_err();
            assert!(problem.sentence.contains(sentence), "{problem:?}");
        }
    }
}
