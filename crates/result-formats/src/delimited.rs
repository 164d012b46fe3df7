//! Comma- and tab-separated values.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::nested;

/// Values with a delimiter between them, a header first.
#[derive(Debug)]
pub(crate) struct DelimitedWriter<W> {
    out: W,
    delimiter: u8,
    null: &'static str,
    /// Writes text so that no reader can take it for a delimiter, a line's end or NULL.
    protect: fn(&str, &mut String),
    line: String,
}

impl<W: Write> DelimitedWriter<W> {
    /// RFC 4180; NULL is an empty field and empty text is `""`.
    pub(crate) fn csv(out: W, schema: &Schema) -> io::Result<Self> {
        Self {
            out,
            delimiter: b',',
            null: "",
            protect: quote,
            line: String::new(),
        }
        .with_header(schema)
    }

    /// As MySQL writes it: backslash escapes, NULL is `\N`.
    pub(crate) fn tsv(out: W, schema: &Schema) -> io::Result<Self> {
        Self {
            out,
            delimiter: b'\t',
            null: "\\N",
            protect: escape,
            line: String::new(),
        }
        .with_header(schema)
    }

    fn with_header(mut self, schema: &Schema) -> io::Result<Self> {
        for (at, field) in schema.fields().iter().enumerate() {
            self.separate(at);
            (self.protect)(field.name(), &mut self.line);
        }
        self.end_line()?;
        Ok(self)
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.line.push(char::from(self.delimiter));
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push('\n');
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }

    /// Writes rows, a line each.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let options = FormatOptions::default();
        let flat = (batch.columns().iter())
            .map(nested::flat)
            .collect::<Result<Vec<_>, _>>()?;
        let columns = flat
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        // A column of NULLs alone has them by its type, without a bitmap.
        let nulls: Vec<_> = (flat.iter()).map(|column| column.logical_nulls()).collect();
        for row in 0..batch.num_rows() {
            for (at, column) in columns.iter().enumerate() {
                self.separate(at);
                if nulls[at].as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    self.line.push_str(self.null);
                } else {
                    (self.protect)(&column.value(row).try_to_string()?, &mut self.line);
                }
            }
            self.end_line()?;
        }
        Ok(())
    }

    /// The output.
    pub(crate) fn into_inner(self) -> W {
        self.out
    }
}

fn quote(text: &str, line: &mut String) {
    let plain = !text.is_empty()
        && !text.contains(['"', ',', '\n', '\r'])
        && text.trim().len() == text.len();
    if plain {
        line.push_str(text);
        return;
    }
    line.push('"');
    line.push_str(&text.replace('"', "\"\""));
    line.push('"');
}

fn escape(text: &str, line: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => line.push_str("\\\\"),
            '\t' => line.push_str("\\t"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\0' => line.push_str("\\0"),
            other => line.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(protect: fn(&str, &mut String), text: &str) -> String {
        let mut line = String::new();
        protect(text, &mut line);
        line
    }

    #[test]
    fn nothing_can_be_mistaken() {
        assert_eq!(protected(quote, "plain"), "plain");
        assert_eq!(protected(quote, ""), "\"\"");
        assert_eq!(protected(quote, "a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(protected(escape, "a\tb\\N\n"), "a\\tb\\\\N\\n");
    }
}
