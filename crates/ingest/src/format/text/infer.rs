//! Column types of a text file that no schema declares: the narrowest type that all values of the sample have.

use std::path::Path;

use catalog::{Column, ColumnType};

use super::block::{BLOCK, BlockReader};
use super::dialect::{Dialect, Head};
use super::record::{Fields, RecordEnd};
use super::{number, time};
use crate::error::IngestError;

/// How much of a file (decompressed) is looked at. A later value of another type is refused with its line, and the
/// way out is a schema.
const SAMPLE: usize = 64 << 20;

/// The types a column may still have, narrowest first.
const LADDER: [ColumnType; 6] = [
    ColumnType::Int64,
    ColumnType::UInt64,
    ColumnType::Float64,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::Boolean,
];

/// What the values of one column have been like so far.
#[derive(Clone)]
struct Guess {
    possible: [bool; LADDER.len()],
    seen: bool,
}

impl Guess {
    fn new() -> Self {
        Self {
            possible: [true; LADDER.len()],
            seen: false,
        }
    }

    fn look_at(&mut self, value: &[u8]) {
        let blank = value.trim_ascii().is_empty();
        if blank || (!self.possible.contains(&true) && self.seen) {
            return;
        }
        self.seen = true;
        for (possible, ty) in self.possible.iter_mut().zip(LADDER) {
            *possible = *possible && can_be(ty, value);
        }
    }

    fn ty(&self) -> ColumnType {
        let first = LADDER
            .iter()
            .zip(self.possible)
            .find(|(_, possible)| *possible);
        first
            .filter(|_| self.seen)
            .map_or(ColumnType::Text, |(ty, _)| *ty)
    }
}

fn can_be(ty: ColumnType, value: &[u8]) -> bool {
    // A decimal point says that the column is one of floats, even where all fractions are zero.
    let has_point = value.contains(&b'.');
    match ty {
        ColumnType::Int64 => !has_point && matches!(number::signed(value), Ok(Some(_))),
        ColumnType::UInt64 => !has_point && matches!(number::unsigned(value), Ok(Some(_))),
        ColumnType::Float64 => number::float64(value).is_ok(),
        ColumnType::Date => time::date(value).is_ok(),
        ColumnType::Timestamp => time::timestamp(value).is_ok(),
        ColumnType::Boolean => {
            let word = value.trim_ascii();
            word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false")
        }
        _ => true,
    }
}

/// The columns of a file; all of them nullable.
pub(super) fn columns(
    path: &Path,
    mut reader: BlockReader,
    dialect: &Dialect,
    head: &Head,
) -> Result<Vec<Column>, IngestError> {
    if head.names.is_empty() {
        return Err(IngestError::layout(
            path,
            "it is empty and there is no schema: give the columns by --schema",
        ));
    }
    if head.is_header {
        reader.skip_line()?;
    }
    let mut guesses = vec![Guess::new(); head.names.len()];
    let mut looked_at = 0;
    while looked_at < SAMPLE {
        let Some(block) = reader.next_block(dialect, BLOCK)? else {
            break;
        };
        looked_at += block.bytes.len();
        look_at_block(&block.bytes, dialect, &mut guesses);
    }
    let column = |(name, guess): (&String, &Guess)| Column {
        name: name.clone(),
        ty: guess.ty(),
        nullable: true,
        declared: None,
    };
    Ok(head.names.iter().zip(&guesses).map(column).collect())
}

fn look_at_block(bytes: &[u8], dialect: &Dialect, guesses: &mut [Guess]) {
    let mut fields = Fields::default();
    let mut at = 0;
    while at < bytes.len() {
        fields.clear();
        at = match fields.split_record(bytes, at, dialect) {
            RecordEnd::Whole(end) => end,
            RecordEnd::BytesEnded => bytes.len(),
        };
        // A record of another length will be refused when it is read.
        if fields.width() != guesses.len() || fields.broken_quotes {
            continue;
        }
        for (number, guess) in guesses.iter_mut().enumerate() {
            if let Some(value) = fields.bytes(bytes, number) {
                guess.look_at(value);
            }
        }
    }
}
