//! The bodies of requests and responses: JSON, and Arrow streams.

use ::alerts::{AlertTable, StoreRequest};
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use super::{AlertProblem, HttpState};
use crate::http::problem::Problem;
use crate::http::upload::{ReceivedBody, Upload};
use crate::mysql::aside;

/// The body of a request with rows or with a list.
const REQUEST: Upload = Upload {
    name: "the request",
    most_bytes: 512 << 20,
    advice: "send fewer rows at a time",
};
const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";
/// The name of the metadata of an Arrow schema that tells the table of the stream.
const TABLE_KEY: &str = "table";
/// What every message of a stream begins with (Arrow's columnar format, "Encapsulated message format").
const CONTINUATION: u32 = 0xffff_ffff;
/// Rows of all tables of a store; a detector's exposure has some hundreds.
const MOST_ROWS: usize = 1_000_000;

/// Receives the body of a request.
pub(super) async fn receive(state: &HttpState, body: Body) -> Result<ReceivedBody, Problem> {
    ReceivedBody::receive(
        body,
        REQUEST,
        state.shared.http_patience,
        &state.alerts.bodies,
    )
    .await
}

/// Receives an object such as `example`.
pub(super) async fn receive_object<T: DeserializeOwned>(
    state: &HttpState,
    body: Body,
    example: &str,
) -> Result<T, Problem> {
    let body = receive(state, body).await?;
    let parsed = aside(body.bytes.len(), || serde_json::from_slice(&body.bytes));
    parsed.map_err(|error| {
        Problem::bad(format!(
            "the request cannot be read ({error}): send an object such as {example}"
        ))
    })
}

/// Reads the tables of a store: Arrow streams, one behind the other, each with its table's name in the metadata of its schema.
pub(super) async fn read_store(
    body: ReceivedBody,
    request: StoreRequest,
) -> Result<StoreRequest, Problem> {
    let read = spawn_blocking(move || read_tables(&body.bytes, request));
    // Arrow's reader panics where buffers are shorter than the lengths that belong to them.
    read.await
        .unwrap_or_else(|_| Err(unreadable("its bytes contradict each other")))
}

fn read_tables(mut bytes: &[u8], mut request: StoreRequest) -> Result<StoreRequest, Problem> {
    while !bytes.is_empty() {
        let (stream, rest) = bytes.split_at(stream_length(bytes).map_err(|why| unreadable(&why))?);
        let (table, batches) = read_stream(stream)?;
        let rows = match table {
            AlertTable::DiaObject => &mut request.objects,
            AlertTable::DiaSource => &mut request.sources,
            AlertTable::DiaForcedSource => &mut request.forced,
        };
        if !rows.is_empty() {
            return Err(Problem::bad(format!("{} comes twice", table.name())));
        }
        *rows = batches;
        bytes = rest;
    }
    match request.rows() > MOST_ROWS {
        true => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request has more than {MOST_ROWS} rows: send fewer at a time"),
        )),
        false => Ok(request),
    }
}

fn unreadable(why: &str) -> Problem {
    Problem::bad(format!(
        "the request is no sequence of Arrow streams: {why}; send one for each table, uncompressed, with the metadata {TABLE_KEY} = \
         DiaObject, DiaSource or DiaForcedSource in its schema"
    ))
}

/// The bytes of the first stream, with its end. All lengths that it says are within the bytes that there are, so that reading it allocates
/// nothing more.
fn stream_length(bytes: &[u8]) -> Result<usize, String> {
    let mut at = 0;
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (Some(CONTINUATION), Some(length)) = (word(at), word(at + 4)) else {
            return Err("a message does not begin as one".to_owned());
        };
        at += 8;
        if length == 0 {
            return Ok(at);
        }
        let head = bytes
            .get(at..at + length as usize)
            .ok_or("it was cut off")?;
        let message = root_as_message(head).map_err(|error| error.to_string())?;
        let batch = message.header_as_record_batch();
        let batch = batch.or_else(|| message.header_as_dictionary_batch()?.data());
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            return Err("it is compressed".to_owned());
        }
        at += head.len();
        let body = usize::try_from(message.bodyLength()).map_err(|_| "a length is negative")?;
        if body > bytes.len() - at {
            return Err("it was cut off".to_owned());
        }
        at += body;
    }
}

fn read_stream(bytes: &[u8]) -> Result<(AlertTable, Vec<RecordBatch>), Problem> {
    let wrong = |error: ArrowError| unreadable(&error.to_string());
    let mut buffer = Buffer::from(bytes);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !buffer.is_empty() {
        let Some(batch) = decoder.decode(&mut buffer).map_err(wrong)? else {
            continue;
        };
        // A row has a number, of four bytes at least; a column of NULLs alone takes none.
        if batch.num_rows() > bytes.len() / 4 {
            return Err(unreadable("it has more rows than bytes for them"));
        }
        batches.push(batch);
    }
    decoder.finish().map_err(wrong)?;
    let Some(schema) = decoder.schema() else {
        return Err(unreadable("it has no schema"));
    };
    let named = schema.metadata().get(TABLE_KEY).map_or("", String::as_str);
    let table = AlertTable::named(named);
    let table = table.ok_or_else(|| unreadable(&format!("{named:?} is none of the tables")))?;
    for field in schema.fields() {
        if matches!(
            field.data_type(),
            DataType::Dictionary(..) | DataType::RunEndEncoded(..)
        ) {
            return Err(unreadable(&format!(
                "the column {} is encoded",
                field.name()
            )));
        }
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok((table, batches))
}

/// Rows as an Arrow stream.
pub(super) async fn arrow_response(
    batches: Vec<RecordBatch>,
) -> Result<Response<Body>, AlertProblem> {
    let written = spawn_blocking(move || -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        if let Some(first) = batches.first() {
            let mut writer = StreamWriter::try_new(&mut bytes, &first.schema())?;
            for batch in &batches {
                writer.write(batch)?;
            }
            writer.finish()?;
        }
        Ok(bytes)
    });
    let failed = |error: String| {
        let sentence = format!("the rows cannot be written: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, sentence)
    };
    let written = written.await.map_err(|error| failed(error.to_string()))?;
    let bytes = written.map_err(|error| failed(error.to_string()))?;
    let mut response = Response::new(Body::from(bytes));
    let media_type = HeaderValue::from_static(ARROW_STREAM);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::chance::feed;

    /// The stream of a table with rows.
    fn stream(table: &str) -> Vec<u8> {
        let columns: [(&str, ArrayRef); 3] = [
            ("diaObjectId", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            (
                "ra",
                Arc::new(Float64Array::from(vec![Some(10.5), None, Some(-1.0)])),
            ),
            ("band", Arc::new(StringArray::from(vec!["u", "g", ""]))),
        ];
        let fields: Vec<Field> = { columns.iter() }
            .map(|(name, values)| Field::new(*name, values.data_type().clone(), true))
            .collect();
        let metadata = HashMap::from([(TABLE_KEY.to_owned(), table.to_owned())]);
        let schema = Arc::new(Schema::new(fields).with_metadata(metadata));
        let values = columns.map(|(_, values)| values).to_vec();
        let batch = RecordBatch::try_new(Arc::clone(&schema), values).unwrap();
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    #[test]
    fn strange_streams_of_alerts_do_no_harm() {
        let (objects, sources) = (stream("DiaObject"), stream("DiaSource"));
        let both = [objects.as_slice(), &sources].concat();
        let read = read_tables(&both, StoreRequest::default()).unwrap();
        assert_eq!(read.rows(), 6);
        // What Arrow's reader panics over is told as damage (`read_store`).
        feed("streams of alerts", &[&objects, &both], |bytes| {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let _ = read_tables(bytes, StoreRequest::default());
            }));
        });
    }
}
