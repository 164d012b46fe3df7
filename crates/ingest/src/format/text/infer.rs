//! Column types of a text file that no schema declares: the narrowest type that all values of the sample have.
//!
//! A few values that are no numbers among very many that are do not make a text of a column: they are faults of the data,
//! or stand for NULL. The column keeps its type then, and the rows that have them are rejected when they are read, with
//! their places. Where there are more of them the column is a text, and whoever loads is told which value decided it.

use std::path::Path;

use catalog::{Column, ColumnType};

use super::super::{FileColumns, OddValues};
use super::block::{BLOCK, Block, BlockReader};
use super::dialect::{Dialect, Head};
use super::record::{Fields, RecordEnd};
use super::{number, time};
use crate::error::IngestError;
use crate::row_errors::excerpt;

/// How much of a file (decompressed) is looked at. A later value of another type is rejected with its line, and the
/// way out is a schema.
const SAMPLE: usize = 64 << 20;

/// One odd value among so many does not change a column's type.
const VALUES_FOR_EACH_ODD: u64 = 1000;
/// Nor does a single one among so many.
const VALUES_FOR_THE_ONLY_ODD: u64 = 100;
/// A column is told to be a text for its odd values where at most one in so many is odd.
const VALUES_FOR_A_REMARK: u64 = 10;
/// A type is given up for a column with so many odd values, if they are also more than a quarter of all.
const HOPELESS: u64 = 1000;

/// The types that are looked for, narrowest first.
const LADDER: [ColumnType; 6] = [
    ColumnType::Int64,
    ColumnType::UInt64,
    ColumnType::Float64,
    ColumnType::Date,
    ColumnType::Timestamp,
    ColumnType::Boolean,
];

/// How one type suits the values of one column so far.
#[derive(Clone, Default)]
struct Fit {
    /// Values that are not of the type.
    odd: u64,
    /// The line of the first of them, and that value.
    first: Option<(u64, String)>,
    /// Whether there are so many that they are not counted any more.
    hopeless: bool,
}

/// What the values of one column have been like so far.
#[derive(Clone, Default)]
struct Guess {
    /// Values that are not blank.
    values: u64,
    fits: [Fit; LADDER.len()],
}

/// What a column is taken for.
struct InferredType {
    ty: ColumnType,
    odd: Option<OddValues>,
}

impl Guess {
    /// Takes one more value into account; `line` tells where it is.
    fn look_at(&mut self, value: &[u8], line: impl Fn() -> u64) {
        if value.trim_ascii().is_empty() {
            return;
        }
        self.values += 1;
        for (fit, ty) in self.fits.iter_mut().zip(LADDER) {
            if fit.hopeless || can_be(ty, value) {
                continue;
            }
            fit.odd += 1;
            fit.hopeless = fit.odd > HOPELESS && fit.odd * 4 > self.values;
            if fit.first.is_none() {
                fit.first = Some((line(), excerpt(value)));
            }
        }
    }

    /// The type that suits best: the fewest odd values, the narrowest of equals.
    fn best(&self) -> (ColumnType, &Fit) {
        let fits = LADDER.iter().zip(&self.fits);
        let best = fits.min_by_key(|(_, fit)| (fit.hopeless, fit.odd));
        best.map_or((ColumnType::Text, &self.fits[0]), |(ty, fit)| (*ty, fit))
    }

    fn inferred_type(&self, column: &str) -> InferredType {
        let (best, fit) = self.best();
        let text = InferredType {
            ty: ColumnType::Text,
            odd: None,
        };
        if self.values == 0 || fit.hopeless {
            return text;
        }
        let Some((line, value)) = fit.first.clone() else {
            return InferredType {
                ty: best,
                odd: None,
            };
        };
        let few = fit.odd * VALUES_FOR_EACH_ODD <= self.values
            || (fit.odd == 1 && self.values >= VALUES_FOR_THE_ONLY_ODD);
        if !few && fit.odd * VALUES_FOR_A_REMARK > self.values {
            return text;
        }
        let ty = if few { best } else { ColumnType::Text };
        InferredType {
            ty,
            odd: Some(OddValues {
                column: column.to_owned(),
                ty: best,
                kept: few,
                values: self.values,
                odd: fit.odd,
                line,
                value,
            }),
        }
    }

    /// Whether the first line's value is the only one that is not of the column's type: `Some(true)`. `Some(false)` if
    /// all are of it; nothing where that says nothing about the first line.
    fn first_line_is_odd(&self) -> Option<bool> {
        let (_, fit) = self.best();
        match &fit.first {
            _ if self.values < 2 => None,
            None => Some(false),
            Some((1, _)) if fit.odd == 1 => Some(true),
            Some(_) => None,
        }
    }
}

fn can_be(ty: ColumnType, value: &[u8]) -> bool {
    // A decimal point says that the column is one of floats, even where all fractions are zero.
    let has_point = value.contains(&b'.');
    match ty {
        ColumnType::Int64 => !has_point && matches!(number::signed(value), Ok(Some(_))),
        ColumnType::UInt64 => !has_point && matches!(number::unsigned(value), Ok(Some(_))),
        ColumnType::Float64 => number::float64(value).is_ok() && !loses_digits(value),
        ColumnType::Date => time::date(value).is_ok(),
        ColumnType::Timestamp => time::timestamp(value).is_ok(),
        ColumnType::Boolean => {
            let word = value.trim_ascii();
            word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false")
        }
        _ => true,
    }
}

/// Whether an integer would become another one as a float. So a key of 19 digits never becomes one.
fn loses_digits(value: &[u8]) -> bool {
    // Every integer of up to 15 digits is a float.
    const ALWAYS_KEPT: usize = 15;
    let value = value.trim_ascii();
    let digits = value.strip_prefix(b"-").or(value.strip_prefix(b"+"));
    let digits = digits.unwrap_or(value).trim_ascii();
    if digits.len() <= ALWAYS_KEPT || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let Ok(digits) = std::str::from_utf8(digits) else {
        return false;
    };
    let as_float: f64 = digits.parse().unwrap_or(f64::INFINITY);
    format!("{as_float:.0}") != digits.trim_start_matches('0')
}

/// The columns of a file, all of them nullable, and what is odd about their values.
pub(super) fn columns(
    path: &Path,
    mut reader: BlockReader,
    dialect: &Dialect,
    head: &Head,
) -> Result<FileColumns, IngestError> {
    if head.names.is_empty() {
        return Err(IngestError::layout(
            path,
            "it is empty and there is no schema: give the columns by --schema",
        ));
    }
    if head.is_header {
        reader.skip_line()?;
    }
    let mut guesses = vec![Guess::default(); head.names.len()];
    let mut looked_at = 0;
    while looked_at < SAMPLE {
        let Some(block) = reader.next_block(dialect, BLOCK)? else {
            break;
        };
        looked_at += block.bytes.len();
        look_at_block(&block, dialect, &mut guesses);
    }
    if !head.is_header && head.is_guessed {
        reject_hidden_header(path, &guesses)?;
    }
    let mut found = FileColumns::default();
    for (name, guess) in head.names.iter().zip(&guesses) {
        let inferred_type = guess.inferred_type(name);
        found.odd.extend(inferred_type.odd);
        found.columns.push(Column {
            name: name.clone(),
            ty: inferred_type.ty,
            nullable: true,
            declared: None,
        });
    }
    Ok(found)
}

/// Rejects a file whose first line was taken for a row although it reads like column names: a field of it is empty or a
/// number, but in most columns it alone is not what all other lines are.
fn reject_hidden_header(path: &Path, guesses: &[Guess]) -> Result<(), IngestError> {
    let odd: Vec<bool> = guesses
        .iter()
        .filter_map(Guess::first_line_is_odd)
        .collect();
    let names = odd.iter().filter(|odd| **odd).count();
    if names <= odd.len() - names {
        return Ok(());
    }
    let (at, value) = (guesses.iter().enumerate())
        .filter(|(_, guess)| guess.first_line_is_odd() == Some(true))
        .find_map(|(at, guess)| Some((at + 1, guess.best().1.first.clone()?.1)))
        .unwrap_or_default();
    Err(IngestError::layout(
        path,
        format!(
            "its first line seems to hold column names (field {at}, {value}, is the only one of its column that is no \
             number or time), but one of them is empty or a number: give every column a name, or --no-header if the \
             line is a row"
        ),
    ))
}

fn look_at_block(block: &Block, dialect: &Dialect, guesses: &mut [Guess]) {
    let bytes = &block.bytes;
    let mut fields = Fields::default();
    let mut at = 0;
    while at < bytes.len() {
        fields.clear();
        let start = at;
        at = match fields.split_record(bytes, at, dialect) {
            RecordEnd::Whole(end) => end,
            RecordEnd::BytesEnded => bytes.len(),
        };
        // A record of another length will be rejected when it is read.
        if fields.width() != guesses.len() || fields.broken_quotes {
            continue;
        }
        let line = || block.first_line + memchr::memchr_iter(b'\n', &bytes[..start]).count() as u64;
        for (number, guess) in guesses.iter_mut().enumerate() {
            if let Some(value) = fields.bytes(bytes, number) {
                guess.look_at(value, line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess<'a>(values: impl IntoIterator<Item = &'a str>) -> Guess {
        let mut guess = Guess::default();
        for (line, value) in (1..).zip(values) {
            guess.look_at(value.as_bytes(), || line);
        }
        guess
    }

    #[test]
    fn few_odd_values_do_not_make_a_text() {
        let numbers = vec!["1.5"; 5000];
        let with = |odd: usize, of: usize| {
            let values = numbers[..of].iter().copied();
            guess(values.chain(std::iter::repeat_n("N/A", odd))).inferred_type("flux")
        };
        for (odd, of, ty, told) in [
            (0, 5000, ColumnType::Float64, None),
            (5, 5000, ColumnType::Float64, Some(true)),
            (6, 5000, ColumnType::Text, Some(false)),
            (1, 99, ColumnType::Float64, Some(true)),
            (1, 98, ColumnType::Text, Some(false)),
            (1, 9, ColumnType::Text, Some(false)),
            (1, 8, ColumnType::Text, None),
            (5000, 1, ColumnType::Text, None),
        ] {
            let inferred_type = with(odd, of);
            assert_eq!(inferred_type.ty, ty, "{odd} of {of}");
            assert_eq!(
                inferred_type.odd.as_ref().map(|odd| odd.kept),
                told,
                "{odd} of {of}"
            );
            if let Some(found) = inferred_type.odd {
                assert_eq!((found.line, found.odd), (of as u64 + 1, odd as u64));
                assert_eq!(found.value, "\"N/A\"");
            }
        }
    }

    #[test]
    fn integers_that_no_float_can_hold_stay_themselves() {
        for (value, lost) in [
            ("9007199254740993", true),
            ("-9007199254740993", true),
            ("9007199254740992", false),
            ("0009007199254740992", false),
            ("100000000000000000000", false),
            ("100000000000000000001", true),
            ("1234567890123456789.5", false),
            ("123", false),
        ] {
            assert_eq!(loses_digits(value.as_bytes()), lost, "{value}");
        }
        let keys = (0..200).map(|n| (9_007_199_254_740_993_i64 + n).to_string());
        let keys: Vec<String> = keys.chain(["1.5".to_owned()]).collect();
        let inferred_type = guess(keys.iter().map(String::as_str)).inferred_type("id");
        assert_eq!(inferred_type.ty, ColumnType::Int64);
        assert_eq!(inferred_type.odd.map(|odd| odd.line), Some(201));
    }
}
