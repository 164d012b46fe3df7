//! Batches of a response, an Arrow stream, while its bytes arrive.

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Incoming;

use super::{RequestError, ServerError};
use crate::failure::Failure;
use crate::output::Output;

/// Decodes batches as their bytes arrive.
pub struct BatchReader {
    body: Incoming,
    decoder: StreamDecoder,
    /// Bytes that arrived and are not decoded yet.
    buffer: Buffer,
    /// What came behind the rows.
    trailers: HeaderMap,
}

impl BatchReader {
    /// Reads a response's body.
    pub fn new(body: Incoming) -> Self {
        Self {
            body,
            decoder: StreamDecoder::new(),
            buffer: Buffer::from(bytes::Bytes::new()),
            trailers: HeaderMap::new(),
        }
    }

    /// The next batch; `None` at the end of a stream that is whole.
    ///
    /// # Errors
    /// The server tells an error, or the response ends before it is whole.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, RequestError> {
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.buffer).map_err(broken_off)? {
                return Ok(Some(batch));
            }
            let Some(frame) = self.body.frame().await else {
                if let Some(error) = self.told_error() {
                    return Err(error);
                }
                self.decoder.finish().map_err(|_| ends_within())?;
                return Ok(None);
            };
            match frame.map_err(broken_off)?.into_data() {
                Ok(bytes) => self.buffer = Buffer::from(bytes),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.trailers.extend(trailers);
                    }
                }
            }
        }
    }

    /// Writes all batches to an output, which is opened when the columns are known. Returns the number of rows. `told` makes a failure of
    /// the server's errors.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), or the output cannot be written.
    pub async fn write_all(
        &mut self,
        open: impl FnOnce(&SchemaRef) -> Result<Box<dyn Output>, Failure>,
        told: impl Fn(RequestError) -> Failure,
    ) -> Result<u64, Failure> {
        let mut next = self.next().await.map_err(&told)?;
        let schema = self.decoder.schema().ok_or_else(|| told(ends_within()))?;
        let mut output = open(&schema)?;
        let mut rows = 0;
        while let Some(batch) = next {
            rows += batch.num_rows() as u64;
            if !output.write(&batch)? {
                break;
            }
            next = self.next().await.map_err(&told)?;
        }
        output.finish()?;
        Ok(rows)
    }

    /// The warnings, after the last batch.
    pub fn warnings(&self) -> Vec<String> {
        warnings_in(&self.trailers)
    }

    fn told_error(&self) -> Option<RequestError> {
        let told: ServerError = self.trailer("meridian-error")?;
        Some(RequestError::Rejected(told))
    }

    fn trailer<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        value_in(&self.trailers, name)
    }
}

/// The warnings that the head of a response tells, or its trailers.
pub fn warnings_in(headers: &HeaderMap) -> Vec<String> {
    value_in(headers, "meridian-warnings").unwrap_or_default()
}

fn value_in<T: serde::de::DeserializeOwned>(headers: &HeaderMap, name: &str) -> Option<T> {
    serde_json::from_slice(headers.get(name)?.as_bytes()).ok()
}

fn broken_off(error: impl ToString) -> RequestError {
    RequestError::BrokenOff(error.to_string())
}

fn ends_within() -> RequestError {
    broken_off("it ends within the result")
}
