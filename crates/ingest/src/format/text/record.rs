//! Splitting text into records and fields.

use super::dialect::{Comments, Dialect};

/// A field: a stretch of the block, or of the side buffer if it had to be unescaped.
#[derive(Debug, Clone, Copy)]
struct Field {
    start: u32,
    len: u32,
}

const IN_SCRATCH: u32 = 1 << 31;
const LEN: u32 = IN_SCRATCH - 1;
/// `start` of a field that is NULL.
const NULL: u32 = u32::MAX;

/// How a record ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordEnd {
    /// The next record starts at this byte.
    Whole(usize),
    /// The bytes ended within the record (or just where it would end without a newline).
    BytesEnded,
}

/// How a field ended, and where the next byte to look at is.
enum FieldEnd {
    Delimiter(usize),
    Newline(usize),
    BytesEnded,
}

/// The fields of some records, one record behind the other.
#[derive(Debug, Default)]
pub(super) struct Fields {
    fields: Vec<Field>,
    scratch: Vec<u8>,
    /// Whether the last record had text behind a closing quote, or a quote that is not closed.
    pub broken_quotes: bool,
    /// Whether the last record was a comment, which has no fields.
    pub is_comment: bool,
}

impl Fields {
    pub(super) fn clear(&mut self) {
        self.fields.clear();
        self.scratch.clear();
        self.broken_quotes = false;
    }

    /// Fields so far.
    pub(super) fn width(&self) -> usize {
        self.fields.len()
    }

    /// Drops all fields from number `width` on: those of a rejected record.
    pub(super) fn truncate(&mut self, width: usize) {
        self.fields.truncate(width);
    }

    /// The bytes of a field; `None` is NULL.
    #[inline]
    pub(super) fn bytes<'a>(&'a self, block: &'a [u8], number: usize) -> Option<&'a [u8]> {
        let field = self.fields[number];
        if field.start == NULL {
            return None;
        }
        let (start, len) = (field.start as usize, (field.len & LEN) as usize);
        let from = if field.len & IN_SCRATCH != 0 {
            &self.scratch
        } else {
            block
        };
        Some(&from[start..start + len])
    }

    /// Appends the fields of the record that begins at byte `at`.
    pub(super) fn split_record(
        &mut self,
        block: &[u8],
        mut at: usize,
        dialect: &Dialect,
    ) -> RecordEnd {
        self.broken_quotes = false;
        self.is_comment =
            matches!(dialect.comments, Comments::Lines(byte) if block.get(at) == Some(&byte));
        if self.is_comment {
            let end = memchr::memchr(b'\n', &block[at..]);
            return end.map_or(RecordEnd::BytesEnded, |end| RecordEnd::Whole(at + end + 1));
        }
        if dialect.blanks {
            return self.split_at_blanks(block, at, dialect);
        }
        loop {
            let quoted = dialect
                .quote
                .is_some_and(|quote| block.get(at) == Some(&quote));
            let end = if quoted {
                self.quoted_field(block, at + 1, dialect)
            } else if dialect.escapes {
                self.escaped_field(block, at, dialect)
            } else {
                self.plain_field(block, at, dialect)
            };
            match end {
                FieldEnd::Delimiter(next) => at = next,
                FieldEnd::Newline(next) => return RecordEnd::Whole(next),
                FieldEnd::BytesEnded => return RecordEnd::BytesEnded,
            }
        }
    }

    /// Fields that are separated by any number of blanks and tabs, which may stand before the first and behind the last one too.
    fn split_at_blanks(&mut self, block: &[u8], mut at: usize, dialect: &Dialect) -> RecordEnd {
        loop {
            // The CR of an empty line or behind blanks is no field.
            while let Some(b' ' | b'\t' | b'\r') = block.get(at) {
                at += 1;
            }
            match block.get(at) {
                None => return RecordEnd::BytesEnded,
                Some(b'\n') => return RecordEnd::Whole(at + 1),
                Some(byte) if dialect.quote == Some(*byte) => {
                    match self.quoted_field(block, at + 1, dialect) {
                        FieldEnd::Delimiter(next) => at = next,
                        FieldEnd::Newline(next) => return RecordEnd::Whole(next),
                        FieldEnd::BytesEnded => return RecordEnd::BytesEnded,
                    }
                }
                Some(_) => {
                    let rest = &block[at..];
                    let end = memchr::memchr3(b' ', b'\t', b'\n', rest);
                    let end = end.map_or(block.len(), |end| at + end);
                    let last = block.get(end).is_none_or(|byte| *byte == b'\n');
                    self.push_raw(block, at, end, dialect, last);
                    at = end;
                }
            }
        }
    }

    #[inline]
    fn plain_field(&mut self, block: &[u8], start: usize, dialect: &Dialect) -> FieldEnd {
        let found = memchr::memchr2(dialect.delimiter, b'\n', &block[start..]).map(|i| start + i);
        let end = found.unwrap_or(block.len());
        self.push_raw(
            block,
            start,
            end,
            dialect,
            found.is_none_or(|at| block[at] == b'\n'),
        );
        field_end(block, found)
    }

    /// A field in which a backslash escapes the next byte.
    #[inline]
    fn escaped_field(&mut self, block: &[u8], start: usize, dialect: &Dialect) -> FieldEnd {
        let find = |from: usize| {
            memchr::memchr3(dialect.delimiter, b'\n', b'\\', &block[from..]).map(|i| from + i)
        };
        let mut found = find(start);
        let mut has_escapes = false;
        while let Some(at) = found {
            if block[at] != b'\\' {
                break;
            }
            has_escapes = true;
            found = if at + 2 <= block.len() {
                find(at + 2)
            } else {
                None
            };
        }
        let end = found.unwrap_or(block.len());
        let last = found.is_none_or(|at| block[at] == b'\n');
        let raw = &block[start..without_cr(block, start, end, dialect, last)];
        if !has_escapes {
            self.push_raw(block, start, end, dialect, last);
        } else if raw == b"\\N" || dialect.is_null(raw) {
            self.fields.push(Field {
                start: NULL,
                len: 0,
            });
        } else {
            self.push_unescaped(raw);
        }
        field_end(block, found)
    }

    /// A field whose opening quote is just before `start`.
    fn quoted_field(&mut self, block: &[u8], start: usize, dialect: &Dialect) -> FieldEnd {
        let quote = dialect.quote.unwrap_or(b'"');
        let mut at = start;
        let (mut doubled, mut has_escapes) = (false, false);
        let close = loop {
            let found = if dialect.escapes {
                memchr::memchr2(quote, b'\\', &block[at.min(block.len())..])
            } else {
                memchr::memchr(quote, &block[at..])
            };
            let Some(next) = found.map(|i| at + i) else {
                break None;
            };
            if block[next] == b'\\' && dialect.escapes {
                has_escapes = true;
                at = next + 2;
            } else if block.get(next + 1) == Some(&quote) {
                doubled = true;
                at = next + 2;
            } else {
                break Some(next);
            }
        };
        let inner = &block[start..close.unwrap_or(block.len())];
        if has_escapes {
            self.push_unescaped(inner);
        } else if doubled {
            self.push_undoubled(inner, quote);
        } else {
            self.fields.push(Field {
                start: start as u32,
                len: inner.len() as u32,
            });
        }
        self.after_quote(block, close, dialect)
    }

    /// What follows a closing quote must be the end of the field.
    fn after_quote(&mut self, block: &[u8], close: Option<usize>, dialect: &Dialect) -> FieldEnd {
        let Some(close) = close else {
            self.broken_quotes = true;
            return FieldEnd::BytesEnded;
        };
        let mut next = close + 1;
        if block.get(next) == Some(&b'\r') {
            next += 1;
        }
        match block.get(next) {
            None => FieldEnd::BytesEnded,
            Some(b'\n') => FieldEnd::Newline(next + 1),
            Some(byte) if *byte == dialect.delimiter => FieldEnd::Delimiter(next + 1),
            Some(b'\t') if dialect.blanks => FieldEnd::Delimiter(next + 1),
            Some(_) => {
                self.broken_quotes = true;
                let found = memchr::memchr2(dialect.delimiter, b'\n', &block[next..]);
                field_end(block, found.map(|i| next + i))
            }
        }
    }

    fn push_raw(&mut self, block: &[u8], start: usize, end: usize, dialect: &Dialect, last: bool) {
        let mut end = without_cr(block, start, end, dialect, last);
        let mut start = start;
        if dialect.trims {
            let raw = &block[start..end];
            start += raw.len() - raw.trim_ascii_start().len();
            end = start + block[start..end].trim_ascii_end().len();
        }
        if dialect.is_null(&block[start..end]) {
            self.fields.push(Field {
                start: NULL,
                len: 0,
            });
        } else {
            self.fields.push(Field {
                start: start as u32,
                len: (end - start) as u32,
            });
        }
    }

    fn push_unescaped(&mut self, raw: &[u8]) {
        let start = self.scratch.len();
        let mut bytes = raw.iter();
        while let Some(byte) = bytes.next() {
            if *byte != b'\\' {
                self.scratch.push(*byte);
                continue;
            }
            // A backslash at the very end stands for itself.
            self.scratch
                .push(bytes.next().map_or(b'\\', |escaped| unescape(*escaped)));
        }
        self.push_scratch(start);
    }

    fn push_undoubled(&mut self, inner: &[u8], quote: u8) {
        let start = self.scratch.len();
        let mut bytes = inner.iter();
        while let Some(byte) = bytes.next() {
            self.scratch.push(*byte);
            if *byte == quote {
                bytes.next();
            }
        }
        self.push_scratch(start);
    }

    fn push_scratch(&mut self, start: usize) {
        let len = (self.scratch.len() - start) as u32;
        self.fields.push(Field {
            start: start as u32,
            len: len | IN_SCRATCH,
        });
    }
}

/// The last field of a line may end in the CR of CR LF.
fn without_cr(block: &[u8], start: usize, end: usize, dialect: &Dialect, last: bool) -> usize {
    let strip = last && dialect.crlf && end > start && block[end - 1] == b'\r';
    end - usize::from(strip)
}

fn field_end(block: &[u8], found: Option<usize>) -> FieldEnd {
    match found {
        None => FieldEnd::BytesEnded,
        Some(at) if block[at] == b'\n' => FieldEnd::Newline(at + 1),
        Some(at) => FieldEnd::Delimiter(at + 1),
    }
}

/// What the byte after a backslash stands for, as MySQL's LOAD DATA reads it.
fn unescape(byte: u8) -> u8 {
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
