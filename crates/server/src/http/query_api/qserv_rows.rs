//! Results as Qserv's REST API writes them: an object with the columns and, for each row, a list of texts.
//!
//! The keys that tell whether the result is whole come last, so that rows are sent while they are computed, and a result that fails
//! half-way says so.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sql::{ErrorCode, Warning};

use super::qserv::error_object;
use crate::ClientError;
use crate::mysql::{Form, Rows, declared_type};

/// How the bytes of binary columns become JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BinaryEncoding {
    /// A text of two hexadecimal digits for each byte.
    #[default]
    Hex,
    /// A text in base64, padded.
    Base64,
    /// A list of numbers from 0 to 255.
    Array,
}

impl BinaryEncoding {
    /// The encoding of this name in the API.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "hex" => Some(Self::Hex),
            "b64" => Some(Self::Base64),
            "array" => Some(Self::Array),
            _ => None,
        }
    }

    fn put(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Hex => {
                out.push(b'"');
                for byte in value {
                    // A list of bytes takes all.
                    let _ = write!(out, "{byte:02X}");
                }
                out.push(b'"');
            }
            Self::Base64 => {
                let _ = write!(out, "\"{}\"", STANDARD.encode(value));
            }
            Self::Array => {
                out.push(b'[');
                for (at, byte) in value.iter().enumerate() {
                    let separator = if at > 0 { "," } else { "" };
                    let _ = write!(out, "{separator}{byte}");
                }
                out.push(b']');
            }
        }
    }
}

/// Writes the rows of one result.
#[derive(Debug)]
pub(super) struct QservRows {
    encoding: BinaryEncoding,
    /// Whether each column has bytes.
    binary: Vec<bool>,
    rows: u64,
    scratch: Vec<u8>,
}

impl QservRows {
    /// Appends everything before the rows.
    pub(super) fn begin(schema: &Schema, encoding: BinaryEncoding, out: &mut Vec<u8>) -> Self {
        let types: Vec<(String, bool)> = schema
            .fields()
            .iter()
            .map(|field| declared_type(field))
            .collect();
        let column = |(field, (type_name, is_binary)): (&std::sync::Arc<_>, &(String, bool))| {
            let field: &arrow::datatypes::Field = field;
            json!({
                "table": "",
                "column": field.name(),
                "type": type_name,
                "is_binary": u8::from(*is_binary),
            })
        };
        let columns: Vec<Value> = schema.fields().iter().zip(&types).map(column).collect();
        let _ = write!(out, "{{\"schema\": {},\n\"rows\": [", Value::Array(columns));
        Self {
            encoding,
            binary: types.into_iter().map(|(_, is_binary)| is_binary).collect(),
            rows: 0,
            scratch: Vec::new(),
        }
    }

    /// The number of rows that were written.
    pub(super) fn num_rows(&self) -> u64 {
        self.rows
    }

    /// Appends the rows of a batch from `from` on until `out` has so many bytes; returns the next row.
    ///
    /// # Errors
    /// A column of a type that cannot be shown.
    pub(super) fn rows(
        &mut self,
        batch: &RecordBatch,
        from: usize,
        most_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, ClientError> {
        let rows = Rows::new(batch, Form::Text, None).map_err(|error| {
            let sentence = format!("a column cannot be sent: {error}");
            ClientError::new(ErrorCode::INTERNAL, sentence)
        })?;
        let mut row = from;
        while row < batch.num_rows() && out.len() < most_bytes {
            out.extend_from_slice(if self.rows > 0 { b",\n[" } else { b"\n[" });
            let (binary, encoding) = (&self.binary, self.encoding);
            rows.texts(row, &mut self.scratch, |at, value| {
                if at > 0 {
                    out.extend_from_slice(b", ");
                }
                match value {
                    None => out.extend_from_slice(b"null"),
                    Some(bytes) if binary[at] => encoding.put(bytes, out),
                    Some(bytes) => put_text(bytes, out),
                }
            });
            out.push(b']');
            self.rows += 1;
            row += 1;
        }
        Ok(row)
    }

    /// Appends what follows the rows.
    pub(super) fn end(outcome: Result<&[Warning], &ClientError>, out: &mut Vec<u8>) {
        let ending = match outcome {
            Ok(warnings) => {
                let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
                json!({"success": 1, "error": "", "error_ext": {}, "warning": warnings.join("; ")})
            }
            Err(error) => error_object(&error.sentence, Some(error.code)),
        };
        out.extend_from_slice(b"\n],\n");
        let ending = ending.to_string();
        // The object continues the one that has the rows.
        out.extend_from_slice(ending.trim_start_matches('{').as_bytes());
        out.push(b'\n');
    }
}

/// Appends a text in JSON.
fn put_text(bytes: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(bytes);
    // A list of bytes takes all.
    let _ = serde_json::to_writer(out, text.as_ref());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array,
    };

    use super::*;

    fn batch() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("n", Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
            ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
            (
                "d",
                Arc::new(Float64Array::from(vec![Some(0.1 + 0.2), None])),
            ),
            (
                "t",
                Arc::new(StringArray::from(vec![Some("a\"b\\\n\u{1}é"), None])),
            ),
            (
                "b",
                Arc::new(BinaryArray::from(vec![Some(&[0x0a, 0x11, 0xff][..]), None])),
            ),
            ("f", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn written(encoding: BinaryEncoding, outcome: Result<&[Warning], &ClientError>) -> Value {
        let (batch, mut out) = (batch(), Vec::new());
        let mut rows = QservRows::begin(&batch.schema(), encoding, &mut out);
        let next = rows.rows(&batch, 0, usize::MAX, &mut out).unwrap();
        assert_eq!((next, rows.num_rows()), (2, 2));
        QservRows::end(outcome, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn values_are_texts_and_null_is_null() {
        let value = written(BinaryEncoding::Hex, Ok(&[]));
        let first = json!([
            "-9223372036854775808",
            "18446744073709551615",
            "0.30000000000000004",
            "a\"b\\\n\u{1}é",
            "0A11FF",
            "1"
        ]);
        let nulls = Value::Array(vec![Value::Null; 6]);
        assert_eq!(value["rows"], json!([first, nulls]));
        let columns = value["schema"].as_array().unwrap();
        let types: Vec<&str> = columns
            .iter()
            .map(|it| it["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            types,
            [
                "BIGINT",
                "BIGINT UNSIGNED",
                "DOUBLE",
                "VARCHAR(16383)",
                "LONGBLOB",
                "TINYINT(1)"
            ]
        );
        assert_eq!(columns[4]["is_binary"], 1);
        assert_eq!(columns[0]["is_binary"], 0);
        assert_eq!(
            (&value["success"], &value["error"]),
            (&json!(1), &json!(""))
        );
    }

    #[test]
    fn bytes_are_encoded_as_requested() {
        let value = |encoding| written(encoding, Ok(&[]))["rows"][0][4].clone();
        assert_eq!(value(BinaryEncoding::Base64), json!("ChH/"));
        assert_eq!(value(BinaryEncoding::Array), json!([10, 17, 255]));
    }

    #[test]
    fn a_result_that_fails_half_way_says_so() {
        let error = ClientError::new(ErrorCode::INTERRUPTED, "it was stopped");
        let value = written(BinaryEncoding::Hex, Err(&error));
        assert_eq!(value["success"], 0);
        assert_eq!(value["error"], "it was stopped");
        assert_eq!(value["error_ext"]["code"], 1317);
    }
}
