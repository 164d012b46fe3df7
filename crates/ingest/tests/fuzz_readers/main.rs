//! Strange bytes at the readers of foreign formats: whatever comes, they end with rows or with a sentence that names the file, and take no
//! more memory than their budget says.
//!
//! Files are made of real ones, mutated and cut; bombs are files of a few kilobytes that stand for gigabytes. Each file has a number
//! of its own, from which it is made again. `MERIDIAN_MUTATIONS` says how many there are of each format, `MERIDIAN_MUTATION` which is the
//! first; `scripts/mutations` runs many.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

mod bombs;
mod hats_catalogue;
mod measured;
mod mutation;
mod usual;
mod written;

use std::path::Path;

use hats_catalogue::Catalogue;
use measured::{LIMITS, MEMORY, peak, read, read_own};
use meridian_ingest::{FileFormat, RowFile};
use mutation::{Chance, Outcomes};
use parquet::file::properties::WriterProperties;
use usual::{usual, usual_arrow};
use written::{Files, parquet, repeated};

/// Mutated files of an ordinary run, of each format.
const USUAL_MUTATIONS: usize = 1500;

#[test]
fn files_as_people_have_them_are_read_within_a_budget() {
    let files = Files::new();
    for usual in usual() {
        let name = usual.name;
        let path = files.put(name, &usual.bytes);
        let (rows, _) = (usual.read(&path)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = RowFile::open(&path, usual.format).unwrap();
        let all: Vec<usize> = (0..file.schema().fields().len()).collect();
        let without: usize = file
            .rows(&all)
            .unwrap()
            .map(|it| it.unwrap().num_rows())
            .sum();
        assert_eq!((rows, rows > 0), (without, true), "{name}");
    }
}

/// A long text in rows of a Parquet file is copied a few rows at a time, and every row is there.
#[test]
fn texts_that_are_repeated_are_read_whole() {
    let files = Files::new();
    let columns = vec![("t", repeated(&"x".repeat(100_000), 130))];
    let path = files.put("t", &parquet(columns, WriterProperties::default()));
    let (rows, bytes) = read(&path, FileFormat::Parquet).unwrap();
    assert_eq!(rows, 130);
    assert!(bytes >= 13_000_000, "{bytes}");
}

fn from_environment(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A length in a message that was changed ended the process: the library allocates what it says.
#[test]
fn lengths_in_arrow_are_looked_at() {
    const WORD: usize = 8;
    let files = Files::new();
    for usual in usual_arrow() {
        let mut rejected = 0;
        for (at, word) in usual.bytes.chunks_exact(WORD).enumerate() {
            // What may be a length, and not a value.
            let number = i64::from_le_bytes(word.try_into().unwrap());
            if !(64..usual.bytes.len() as i64).contains(&number) {
                continue;
            }
            let mut bytes = usual.bytes.clone();
            bytes[at * WORD..][..WORD].copy_from_slice(&(1_i64 << 60).to_le_bytes());
            let path = files.put(usual.name, &bytes);
            rejected += usize::from(usual.read(&path).is_err());
        }
        assert!(rejected > 0, "{}", usual.name);
    }
}

/// A column of a Parquet file that began before the file ended a load: what is read ahead was computed of a negative number.
#[test]
fn places_in_parquet_are_looked_at() {
    // The number -1 as the footer writes it.
    const MINUS_ONE: u8 = 1;
    let files = Files::new();
    let usual = usual().into_iter().find(|it| it.name == "own.parquet");
    let bytes = usual.unwrap().bytes;
    let ends = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[ends..][..4].try_into().unwrap());
    let mut rejected = 0;
    for at in ends - footer as usize..ends {
        let mut changed = bytes.clone();
        changed[at] = MINUS_ONE;
        // Whatever it comes to, it does not panic.
        let outcome = read_own(&files.put("own.parquet", &changed), FileFormat::Parquet);
        let told = outcome.err().map(|error| error.to_string());
        rejected += usize::from(told.is_some_and(|it| it.contains("bytes that it does not have")));
    }
    assert!(rejected > 0);
}

/// Whether a source file is one of this test.
fn is_of_this_test(file: &str) -> bool {
    Path::new(file).parent() == Path::new(file!()).parent()
}

#[test]
fn strange_files_do_no_harm() {
    let first = from_environment("MERIDIAN_MUTATION", 0);
    let count = from_environment("MERIDIAN_MUTATIONS", USUAL_MUTATIONS);
    // What a library panics over is damage, and told as such. Who reads one file wants to see where.
    if count > 1 {
        std::panic::set_hook(Box::new(|panic| {
            if panic
                .location()
                .is_some_and(|it| is_of_this_test(it.file()))
            {
                println!("{panic}");
            }
        }));
    }
    let (files, before) = (Files::new(), peak());
    for format in FileFormat::ALL {
        let mut of_format = usual();
        of_format.retain(|usual| usual.format == format);
        let mut outcomes = Outcomes::default();
        for number in first..first + count {
            let usual = &of_format[number % of_format.len()];
            let what = format!("{}: MERIDIAN_MUTATION={number}", usual.name);
            let path = files.put(usual.name, &Chance(number as u64).mutated(&usual.bytes));
            outcomes.add((&what, usual.name), || usual.read(&path));
        }
        outcomes.tell(format.name(), count, before);
    }
    let (catalogue, dir) = (Catalogue::usual(), files.path().join("hats"));
    let mut outcomes = Outcomes::default();
    for number in first..first + count {
        let what = format!("a HATS catalogue: MERIDIAN_MUTATION={number}");
        let dir = catalogue.put_mutated(&dir, &mut Chance(number as u64));
        outcomes.add((&what, "hats"), || read_own(&dir, FileFormat::Parquet));
    }
    outcomes.tell("HATS", count, before);
    drop(std::panic::take_hook());
    let grown = peak().saturating_sub(before);
    assert!(
        grown < MEMORY + LIMITS.bytes,
        "memory grew by {} MiB",
        grown >> 20
    );
}
