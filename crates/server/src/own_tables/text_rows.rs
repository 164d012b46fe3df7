//! The fields of a file of LOAD DATA.
//!
//! Source: *MySQL 8.0 Reference Manual*, 15.2.9, "Field and Line Handling".

use std::io::{self, BufRead};

use sql::mysql::FileForm;

/// Bytes of the longest field.
const LONGEST_FIELD: usize = 16 << 20;

/// A field: its bytes, or NULL.
pub(super) type TextField = Option<Vec<u8>>;

/// Reads the rows of a file one after another.
pub(super) struct TextRows<R> {
    bytes: R,
    form: FileForm,
    /// Bytes that were read and are not taken yet, the next one last.
    ahead: Vec<u8>,
}

/// What ends a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Field,
    Line,
    File,
}

impl<R: BufRead> TextRows<R> {
    pub(super) fn new(bytes: R, form: FileForm) -> Self {
        Self {
            bytes,
            form,
            ahead: Vec::new(),
        }
    }

    /// Leaves out the lines before the rows.
    pub(super) fn skip_lines(&mut self) -> io::Result<()> {
        for _ in 0..self.form.skipped {
            loop {
                if self.takes(&self.form.line_end.clone())? || self.next()?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The fields of the next line; `None` at the file's end.
    pub(super) fn next_row(&mut self) -> io::Result<Option<Vec<TextField>>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let mut fields = Vec::new();
        loop {
            let (field, end) = self.next_field()?;
            fields.push(field);
            if end != End::Field {
                return Ok(Some(fields));
            }
        }
    }

    fn next_field(&mut self) -> io::Result<(TextField, End)> {
        let quote = self.form.quote.map(|quote| quote as u8);
        match quote {
            Some(quote) if self.peek()? == Some(quote) => {
                self.next()?;
                self.quoted_field(quote)
            }
            _ => self.plain_field(),
        }
    }

    /// The rest of a field that began with a quote.
    fn quoted_field(&mut self, quote: u8) -> io::Result<(TextField, End)> {
        let mut field = Vec::new();
        loop {
            bounded(&field)?;
            match self.next()? {
                None => return Ok((Some(field), End::File)),
                Some(byte) if self.is_escape(byte) && byte != quote => {
                    if let Some(meant) = self.next()? {
                        field.push(escaped(meant));
                    }
                }
                Some(byte) if byte == quote => {
                    if let Some(end) = self.end()? {
                        return Ok((Some(field), end));
                    }
                    // A quote that is doubled is one; any other stands for itself.
                    if self.peek()? == Some(quote) {
                        self.next()?;
                    }
                    field.push(quote);
                }
                Some(byte) => field.push(byte),
            }
        }
    }

    fn plain_field(&mut self) -> io::Result<(TextField, End)> {
        let (mut field, mut is_null) = (Vec::new(), false);
        loop {
            bounded(&field)?;
            if let Some(end) = self.end()? {
                let is_word = self.form.quote.is_some() && field == b"NULL";
                let null = (is_null && field.len() == 1) || is_word;
                return Ok(((!null).then_some(field), end));
            }
            let Some(byte) = self.next()? else {
                continue;
            };
            if !self.is_escape(byte) {
                field.push(byte);
                continue;
            }
            if let Some(meant) = self.next()? {
                is_null |= meant == b'N' && field.is_empty();
                field.push(escaped(meant));
            }
        }
    }

    /// Takes what ends a field, if it comes.
    fn end(&mut self) -> io::Result<Option<End>> {
        if self.takes(&self.form.line_end.clone())? {
            return Ok(Some(End::Line));
        }
        if self.takes(&self.form.field_end.clone())? {
            return Ok(Some(End::Field));
        }
        Ok(self.peek()?.is_none().then_some(End::File))
    }

    fn is_escape(&self, byte: u8) -> bool {
        self.form.escape.is_some_and(|escape| escape as u8 == byte)
    }

    /// Takes a text, if it comes as a whole.
    fn takes(&mut self, text: &str) -> io::Result<bool> {
        let mut taken = Vec::new();
        for wanted in text.bytes() {
            match self.next()? {
                Some(byte) if byte == wanted => taken.push(byte),
                other => {
                    self.ahead.extend(other);
                    self.ahead.extend(taken.iter().rev());
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        let byte = self.next()?;
        self.ahead.extend(byte);
        Ok(byte)
    }

    fn next(&mut self) -> io::Result<Option<u8>> {
        if let Some(byte) = self.ahead.pop() {
            return Ok(Some(byte));
        }
        let byte = self.bytes.fill_buf()?.first().copied();
        if byte.is_some() {
            self.bytes.consume(1);
        }
        Ok(byte)
    }
}

/// What a character behind the escape means.
fn escaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'Z' => 26,
        other => other,
    }
}

fn bounded(field: &[u8]) -> io::Result<()> {
    match field.len() > LONGEST_FIELD {
        true => Err(io::Error::other(format!(
            "a field is longer than {} MiB: the file may have other ends of lines or quotes than the statement says",
            LONGEST_FIELD >> 20
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, form: FileForm) -> Vec<Vec<Option<String>>> {
        let mut rows = TextRows::new(text.as_bytes(), form);
        rows.skip_lines().unwrap();
        let mut found = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            let text = |field: TextField| field.map(|it| String::from_utf8(it).unwrap());
            found.push(row.into_iter().map(text).collect());
        }
        found
    }

    fn some(fields: &[&str]) -> Vec<Option<String>> {
        fields
            .iter()
            .map(|field| (*field != "NULL").then(|| (*field).to_owned()))
            .collect()
    }

    #[test]
    fn fields_are_separated_by_tabs() {
        let text = "1\ta\\tb\t\\N\n2\t\t\\\\N\n3\tx\\\ny\tlast";
        let expected = [
            some(&["1", "a\tb", "NULL"]),
            some(&["2", "", "\\N"]),
            some(&["3", "x\ny", "last"]),
        ];
        assert_eq!(rows(text, FileForm::default()), expected);
        assert!(rows("", FileForm::default()).is_empty());
        assert_eq!(rows("\n", FileForm::default()), [some(&[""])]);
        assert_eq!(rows("\\Nx\n", FileForm::default()), [some(&["Nx"])]);
    }

    #[test]
    fn fields_are_quoted() {
        let form = FileForm {
            field_end: ",".to_owned(),
            quote: Some('"'),
            line_end: "\r\n".to_owned(),
            skipped: 1,
            ..FileForm::default()
        };
        let text = "a,b\r\n1,\"x, \"\"y\"\"\r\nz\"\r\n2,NULL\r\n3,\"NULL \"\r\n4,a\"b\r\n5,\"a\"b\"\r\n6,\\N";
        let expected = [
            some(&["1", "x, \"y\"\r\nz"]),
            some(&["2", "NULL"]),
            some(&["3", "NULL "]),
            some(&["4", "a\"b"]),
            some(&["5", "a\"b"]),
            some(&["6", "NULL"]),
        ];
        assert_eq!(rows(text, form), expected);
    }

    #[test]
    fn separators_may_be_long() {
        let form = FileForm {
            field_end: "||".to_owned(),
            escape: None,
            line_end: "|\n".to_owned(),
            ..FileForm::default()
        };
        assert_eq!(
            rows("a|b||c\\N|\n||d|\n", form),
            [some(&["a|b", "c\\N"]), some(&["", "d"])]
        );
    }
}
