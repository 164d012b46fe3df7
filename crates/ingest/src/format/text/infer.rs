//! Column types of a text file that no schema declares: the narrowest type that all values of the file have.
//!
//! The whole file is looked at, by several threads, so that no value far behind comes as a surprise. What is found does not depend on
//! the number of threads: what is known of two stretches of a file is merged the same in whatever order.
//!
//! A few values that are no numbers among very many that are do not make a text of a column: they are faults of the data,
//! or stand for NULL. The column keeps its type then, and the rows that have them are rejected when they are read, with
//! their places. Where there are more of them the column is a text, and whoever loads is told which value decided it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use catalog::{Column, ColumnType};

use super::super::{DecidingValue, FileColumns, NearlyIntegers, OddValues};
use super::block::{BLOCK, Block, BlockReader};
use super::dialect::Dialect;
use super::head::{Head, NO_HEADER};
use super::record::{Fields, RecordEnd};
use super::{number, time};
use crate::error::IngestError;
use crate::row_errors::excerpt;

/// One odd value among so many does not change a column's type.
const VALUES_FOR_EACH_ODD: u64 = 1000;
/// Nor does a single one among so many.
const VALUES_FOR_THE_ONLY_ODD: u64 = 100;
/// A column is told to be a text for its odd values where at most one in so many is odd.
const VALUES_FOR_A_REMARK: u64 = 10;
/// A column is told to be one of floats for its fractions where at most one value in so many has one.
const VALUES_FOR_A_FRACTION: u64 = 10;
/// A type is given up for a column with so many odd values, if they are also more than a quarter of all.
const HOPELESS: u64 = 1000;

/// Texts that people write for values that are missing, in small letters.
const NULL_SPELLINGS: [&str; 12] = [
    "--", "-", "---", "n/a", "na", "#n/a", "null", "none", "nil", "?", "...", "*",
];

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
    /// Values among them that usually stand for NULL: the fits do not count them.
    nulls: u64,
    /// Their spellings.
    null_spellings: BTreeSet<String>,
    /// The line of the first of them, and that value.
    first_null: Option<(u64, String)>,
    fits: [Fit; LADDER.len()],
}

/// What a column is taken for.
struct InferredType {
    ty: ColumnType,
    odd: Option<OddValues>,
}

impl Guess {
    /// A guess that does not try what is given up.
    fn without(hopeless: &[AtomicBool; LADDER.len()]) -> Self {
        let mut guess = Self::default();
        for (fit, hopeless) in guess.fits.iter_mut().zip(hopeless) {
            fit.hopeless = hopeless.load(Relaxed);
        }
        guess
    }

    /// Takes one more value into account; `line` tells where it is.
    fn look_at(&mut self, value: &[u8], line: impl Fn() -> u64) {
        if value.trim_ascii().is_empty() {
            return;
        }
        self.values += 1;
        if is_null_spelling(value) {
            self.nulls += 1;
            let spelling = || String::from_utf8_lossy(value.trim_ascii()).into_owned();
            if self.nulls == 1 || !self.null_spellings.contains(&spelling()) {
                self.null_spellings.insert(spelling());
            }
            if self.first_null.is_none() {
                self.first_null = Some((line(), excerpt(value)));
            }
            return;
        }
        for (fit, ty) in self.fits.iter_mut().zip(LADDER) {
            if fit.hopeless || can_be(ty, value) {
                continue;
            }
            fit.odd += 1;
            fit.hopeless = is_hopeless(fit.odd, self.values);
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

    /// Adds what is known of another stretch of the file.
    fn merge(&mut self, other: Self) {
        self.values += other.values;
        self.nulls += other.nulls;
        self.null_spellings.extend(other.null_spellings);
        self.first_null = earlier(self.first_null.take(), other.first_null);
        for (fit, other) in self.fits.iter_mut().zip(other.fits) {
            fit.odd += other.odd;
            fit.first = earlier(fit.first.take(), other.first);
            fit.hopeless |= other.hopeless || is_hopeless(fit.odd, self.values);
        }
    }

    fn inferred_type(&self, column: &str) -> InferredType {
        let (best, fit) = self.best();
        let of_type = |ty, odd| InferredType { ty, odd };
        if self.values == self.nulls || fit.hopeless {
            return of_type(ColumnType::Text, None);
        }
        let odd = |taken, ty, odd, first: Option<(u64, String)>| {
            let (line, value) = first?;
            Some(OddValues {
                column: column.to_owned(),
                ty,
                taken,
                values: self.values,
                odd,
                line,
                value,
                nulls: self.null_spellings.iter().cloned().collect(),
            })
        };
        let count = fit.odd + self.nulls;
        if count == 0 {
            let whole = &self.fits[0];
            let fractions = best == ColumnType::Float64
                && !whole.hopeless
                && whole.odd * VALUES_FOR_A_FRACTION <= self.values;
            let why = || odd(best, ColumnType::Int64, whole.odd, whole.first.clone());
            return of_type(best, fractions.then(why).flatten());
        }
        let first = earlier(fit.first.clone(), self.first_null.clone());
        let few = count * VALUES_FOR_EACH_ODD <= self.values
            || (count == 1 && self.values >= VALUES_FOR_THE_ONLY_ODD);
        if few {
            return of_type(best, odd(best, best, count, first));
        }
        // Where they all stand for NULL they are told of, however many they are.
        let is_told = fit.odd == 0 || count * VALUES_FOR_A_REMARK <= self.values;
        let text = ColumnType::Text;
        of_type(
            text,
            is_told.then(|| odd(text, best, count, first)).flatten(),
        )
    }

    /// That most values are integers, and not all.
    fn nearly_integers(&self, column: &str) -> Option<NearlyIntegers> {
        let whole = &self.fits[0];
        let odd = whole.odd + self.nulls;
        let (line, value) = earlier(whole.first.clone(), self.first_null.clone())?;
        (!whole.hopeless && odd * 2 <= self.values).then(|| NearlyIntegers {
            column: column.to_owned(),
            values: self.values,
            odd,
            line,
            value,
        })
    }

    /// The first value for which a column of this type is not one of integers, or of floats.
    fn deciding_value(&self, column: &str, ty: ColumnType) -> Option<DecidingValue> {
        let narrower = match ty {
            ColumnType::Text => ColumnType::Float64,
            ColumnType::Float64 => ColumnType::Int64,
            _ => return None,
        };
        let at = LADDER.iter().position(|it| *it == narrower)?;
        let first = self.fits[at].first.clone();
        let (line, value) = match ty {
            ColumnType::Text => earlier(first, self.first_null.clone())?,
            _ => first?,
        };
        Some(DecidingValue {
            column: column.to_owned(),
            ty,
            line,
            value,
        })
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

/// Whether so many odd values among so many say that a column is not of a type.
fn is_hopeless(odd: u64, values: u64) -> bool {
    odd > HOPELESS && odd * 4 > values
}

/// The value on the earlier line.
fn earlier(one: Option<(u64, String)>, other: Option<(u64, String)>) -> Option<(u64, String)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Whether a value usually stands for NULL. (NaN does, and is a number.)
fn is_null_spelling(value: &[u8]) -> bool {
    const LONGEST: usize = 4;
    let value = value.trim_ascii();
    value.len() <= LONGEST
        && NULL_SPELLINGS
            .iter()
            .any(|null| value.eq_ignore_ascii_case(null.as_bytes()))
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
        let option = " and there is no schema: give the columns by --schema";
        return Err(IngestError::layout(path, "it is empty").or_option(option));
    }
    if let Some(columns) = &head.declared {
        return declared(path, columns, &head.names);
    }
    head.skip(&mut reader)?;
    // A small file is not worth threads.
    let threads = match head.rows_if_whole {
        Some(_) => 1,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let guesses = look_at_all(reader, dialect, head.names.len(), threads)?;
    if !head.is_header && head.is_guessed {
        reject_hidden_header(path, &guesses)?;
    }
    let mut found = FileColumns::default();
    for (name, guess) in head.names.iter().zip(&guesses) {
        let inferred_type = guess.inferred_type(name);
        found
            .decided
            .extend(guess.deciding_value(name, inferred_type.ty));
        found.odd.extend(inferred_type.odd);
        found.nearly_integers.extend(guess.nearly_integers(name));
        found.columns.push(Column {
            name: name.clone(),
            ty: inferred_type.ty,
            nullable: true,
            declared: None,
        });
    }
    found.has_no_values = head.rows_if_whole == Some(0);
    Ok(found)
}

/// The columns that the file declares itself, which are those of its header.
fn declared(path: &Path, columns: &[Column], names: &[String]) -> Result<FileColumns, IngestError> {
    let declared = columns.iter().map(|column| &column.name);
    if !declared.clone().eq(names) {
        let declared: Vec<&str> = declared.map(String::as_str).collect();
        let reason = format!(
            "its comments declare the columns {}, and its header has {}",
            declared.join(", "),
            names.join(", ")
        );
        return Err(IngestError::layout(path, reason));
    }
    Ok(FileColumns {
        columns: columns.to_vec(),
        ..FileColumns::default()
    })
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
             number or time), but one of them is empty or a number: give every column a name"
        ),
    )
    .or_option(NO_HEADER))
}

/// Looks at all values of a file of so many columns, by so many threads.
fn look_at_all(
    reader: BlockReader,
    dialect: &Dialect,
    width: usize,
    threads: usize,
) -> Result<Vec<Guess>, IngestError> {
    let reader = Mutex::new(reader);
    // Types that are given up for a column, so that no thread tries them any more.
    let hopeless: Vec<[AtomicBool; LADDER.len()]> =
        (0..width).map(|_| Default::default()).collect();
    let next_block = || {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.next_block(dialect, BLOCK)
    };
    let work = || {
        let mut all = vec![Guess::default(); width];
        while let Some(block) = next_block()? {
            // Anew for each block: what is given up depends on the block alone.
            let mut guesses: Vec<Guess> = hopeless.iter().map(Guess::without).collect();
            look_at_block(&block, dialect, &mut guesses);
            for ((all, guess), hopeless) in all.iter_mut().zip(guesses).zip(&hopeless) {
                for (fit, hopeless) in guess.fits.iter().zip(hopeless) {
                    hopeless.fetch_or(fit.hopeless, Relaxed);
                }
                all.merge(guess);
            }
        }
        Ok(all)
    };
    let outcomes: Vec<Result<Vec<Guess>, IngestError>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
            handle.join().unwrap_or(Err(IngestError::Internal))
        };
        handles.into_iter().map(join).chain([own]).collect()
    });
    let mut guesses = vec![Guess::default(); width];
    for outcome in outcomes {
        for (guess, other) in guesses.iter_mut().zip(outcome?) {
            guess.merge(other);
        }
    }
    Ok(guesses)
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
            guess(values.chain(std::iter::repeat_n("bad", odd))).inferred_type("flux")
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
                inferred_type.odd.as_ref().map(|odd| odd.taken == odd.ty),
                told,
                "{odd} of {of}"
            );
            if let Some(found) = inferred_type.odd {
                assert_eq!((found.line, found.odd), (of as u64 + 1, odd as u64));
                assert_eq!(found.value, "\"bad\"");
            }
        }
    }

    /// A column of magnitudes became a text because of `--`, and nothing was said where that was in one row of five.
    #[test]
    fn a_text_because_of_null_spellings_is_told() {
        let column = |odd: &[&'static str]| {
            let values = ["1.5", "2.5", "3.5"].into_iter().chain(odd.iter().copied());
            guess(values).inferred_type("mag")
        };
        let odd = column(&["--", "N/A", "--"]).odd.unwrap();
        assert_eq!((odd.taken, odd.ty), (ColumnType::Text, ColumnType::Float64));
        assert_eq!((odd.odd, odd.line), (3, 4));
        assert_eq!(odd.nulls, ["--", "N/A"]);
        let sentence = odd.sentence(Path::new("a.csv"));
        assert!(sentence.contains("--null \"--,N/A\""), "{sentence}");
        assert_eq!(column(&["--", "bad", "worse"]).odd, None);
        assert_eq!(guess(["--", "N/A"]).inferred_type("mag").odd, None);
    }

    #[test]
    fn a_float_because_of_few_fractions_is_told() {
        let whole = ["1"; 20];
        let inferred_type = guess(whole.into_iter().chain(["1.5"])).inferred_type("n");
        assert_eq!(inferred_type.ty, ColumnType::Float64);
        let odd = inferred_type.odd.unwrap();
        assert_eq!((odd.line, odd.ty), (21, ColumnType::Int64));
        assert_eq!(guess(["1", "1.5", "2.5"]).inferred_type("x").odd, None);
    }

    #[test]
    fn the_value_that_decides_is_the_first_of_another_type() {
        let decided = |values: &[&'static str]| {
            let guess = guess(values.iter().copied());
            let decided = guess.deciding_value("x", guess.inferred_type("x").ty)?;
            Some((decided.line, decided.value))
        };
        assert_eq!(
            decided(&["1", "2.5", "3.5"]),
            Some((2, "\"2.5\"".to_owned()))
        );
        assert_eq!(
            decided(&["1", "2.5", "a", "b"]),
            Some((3, "\"a\"".to_owned()))
        );
        assert_eq!(decided(&["1", "--", "2"]), Some((2, "\"--\"".to_owned())));
        assert_eq!(decided(&["1", "2"]), None);
    }

    #[test]
    fn stretches_are_merged_in_any_order() {
        let mut one = guess(["1", "2", "bad"]);
        let mut other = guess(["1.5", "--"]);
        let (a, b) = (one.clone(), other.clone());
        one.merge(b);
        other.merge(a);
        for merged in [one, other] {
            assert_eq!((merged.values, merged.nulls), (5, 1));
            assert_eq!(merged.fits[0].odd, 2);
            assert_eq!(merged.fits[0].first.as_ref().map(|first| first.0), Some(1));
            assert_eq!(merged.first_null.as_ref().map(|first| first.0), Some(2));
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
