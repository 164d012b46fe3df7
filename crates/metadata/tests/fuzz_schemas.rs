//! Strange schema files: whatever comes, they end with a description or with a short sentence, soon and in little memory. What a description
//! says is the same when it is printed and read.
//!
//! Files are made of real ones, whose bytes and lines are mutated. Each has a number of its own, from which it is made again.
//! `MERIDIAN_MUTATIONS` says how many there are of each language, `MERIDIAN_MUTATION` which is the first; `scripts/mutations` runs many.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

#[path = "../../server/tests/chance/mod.rs"]
mod chance;

use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use chance::{Chance, from_environment, resident};
use meridian_metadata::{
    DatabaseWords, FileValue, SchemaFileError, check_ucd, check_unit, conversion, read_edit,
    read_edit_toml, read_felis, to_json, to_yaml,
};

/// Mutated files of an ordinary run, of each language.
const USUAL_MUTATIONS: usize = 1500;
/// The longest that a file may take: a machine that has others at work is no error.
const LONGEST: Duration = Duration::from_secs(20);
/// Bytes of memory that may come and go.
const MEMORY: u64 = 64 << 20;
/// Bytes of the longest sentence.
const LONGEST_SENTENCE: usize = 2000;

const FELIS: &str = r##"---
# A catalogue of objects and of what was seen of them.
name: survey
"@id": "#survey"
version: &version
  current: "1.2.3"
  compatible: ["1.2.2", '1.2.1']
description: |
  Objects,
  over several lines.
resources:
  other:
    uri: resource://schemas/other.yaml
tables:
- name: Object
  "@id": "#Object"
  description: >-
    Objects, folded
    into one line.
  tap:table_index: 10
  votable:utype: sky:object
  primaryKey: "#Object.objectId"
  indexes:
  - {name: idx, "@id": "#idx", columns: ["#Object.ra", "#Object.dec"]}
  columns:
  - &key
    name: objectId
    "@id": "#Object.objectId"
    datatype: long
    nullable: false
    description: Unique id; 100 % of rows.
    ivoa:ucd: meta.id;src;meta.main
    tap:principal: 1
    tap:column_index: 0
  - {name: ra, "@id": "#Object.ra", datatype: double, ivoa:unit: deg, ivoa:ucd: pos.eq.ra;meta.main, principal: true}
  - name: flux
    datatype: float
    fits:tunit: "10**-2.5 nJy"
    votable:xtype: ~
    description: 'it''s "in" nanojansky \ é'
  columnRefs:
    other:
      Exposure:
        seen: {ref_name: time, overrides: {ivoa:unit: s}}
        band:
- name: Source
  columns:
  - *key
- name: Empty
  version: *version
...
"##;
const OTHER: &str = r##"
name: other
tables:
- name: Exposure
  columns:
  - {name: time, "@id": "#t", datatype: timestamp, ivoa:unit: d, description: when}
  - {name: band, "@id": "#b", datatype: char, length: 1}
"##;
const EDITED: &str = r#"name: survey
description: Objects
tables:
- name: Object
  description: Objects
  utype: sky:object
  table_index: 10
  scan_rating: fast
  columns:
  - name: ra
    description: "Right\tascension"
    unit: km.s**-1.Mpc**(-1/2)
    ucd: pos.eq.ra;meta.main
    xtype: null
    principal: true
    column_index: 2
"#;
const EDITED_JSON: &str = r#"{"name": "survey", "description": "Obje\u0063ts", "tables": [
 {"name": "Object", "table_index": 10, "columns": [
  {"name": "ra", "unit": "log(1e-3 mag(AB))", "ucd": "POS_EQ_RA_MAIN", "principal": 0, "column_index": -2147483648},
  {"name": "dec", "unit": null, "description": ""}]}]}"#;
const EDITED_TOML: &str = r#"description = """
Objects
"""
[[tables]]
name = "Object"
utype = 'sky:object'
table_index = 10
columns = [{ name = "ra", unit = "deg", principal = true }, { name = "dec", column_index = 0x7f }]
[[tables]]
name = "Source"
[[tables.columns]]
name = "time"
unit = "d"
"#;

type Outcome = Result<DatabaseWords, SchemaFileError>;

/// A language of schema files: its name, a file, and how it is read.
type Language = (&'static str, &'static str, fn(&str) -> Outcome);

const LANGUAGES: [Language; 5] = [
    ("Felis", FELIS, |text| {
        read_felis(text, |_| Ok(OTHER.to_owned()))
    }),
    ("Felis that is referred to", OTHER, |text| {
        read_felis(FELIS, |_| Ok(text.to_owned()))
    }),
    ("YAML", EDITED, |text| read_edit(text, Some("Object"))),
    ("JSON", EDITED_JSON, |text| read_edit(text, None)),
    ("TOML", EDITED_TOML, |text| read_edit_toml(text, None)),
];

/// A file with lines of it moved, doubled, lost or indented, and then some of its bytes changed.
fn mutated(chance: &mut Chance, text: &str) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for _ in 0..chance.below(3) {
        let count = lines.len() as u64;
        let [one, other] = [(); 2].map(|()| chance.below(count) as usize);
        match chance.below(5) {
            0 => lines.swap(one, other),
            1 => lines.insert(one, lines[other].clone()),
            2 if count > 1 => drop(lines.remove(one)),
            3 => lines[one].insert_str(0, "  "),
            _ => lines[one] = lines[one].trim_start().to_owned(),
        }
    }
    let text = lines.join("\n");
    let bytes = match chance.one_in(4) {
        true => text.into_bytes(),
        false => chance.mutated(text.as_bytes()),
    };
    // A file that is no UTF-8 is rejected before it is parsed.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a file, and does what is done with a description: its units and UCDs are looked at, and it is printed.
fn read(language: &Language, text: &str) -> Outcome {
    let words = (language.2)(text)?;
    for column in words.tables.iter().flat_map(|table| &table.columns) {
        if let FileValue::Value(unit) = &column.unit {
            let _ = (check_unit(unit), conversion(unit, "deg"));
        }
        if let FileValue::Value(ucd) = &column.ucd {
            let _ = check_ucd(ucd);
        }
    }
    for printed in [to_yaml(&words)?, to_json(&words)?] {
        let again = read_edit(&printed, None).unwrap_or_else(|error| panic!("{error}: {printed}"));
        let known = DatabaseWords {
            unknown: Vec::new(),
            ..words.clone()
        };
        assert_eq!(again, known, "{printed}");
    }
    Ok(words)
}

#[test]
fn schema_files_as_people_have_them_are_read() {
    for language in &LANGUAGES {
        let words = read(language, language.1).unwrap_or_else(|it| panic!("{}: {it}", language.0));
        assert!(!words.tables[0].columns.is_empty(), "{}", language.0);
    }
}

#[test]
fn strange_files_of_schemas_do_no_harm() {
    let first = from_environment("MERIDIAN_MUTATION", 0);
    let count = from_environment("MERIDIAN_MUTATIONS", USUAL_MUTATIONS);
    let before = resident();
    for language in &LANGUAGES {
        let (mut whole, mut longest) = (0, Duration::ZERO);
        for number in first..first + count {
            let text = mutated(&mut Chance::of_number(number as u64), language.1);
            let begun = Instant::now();
            let outcome = catch_unwind(|| read(language, &text));
            longest = longest.max(begun.elapsed());
            let what = format!("{}: MERIDIAN_MUTATION={number}", language.0);
            match outcome {
                Ok(Ok(_)) => whole += 1,
                Ok(Err(error)) => {
                    let told = error.to_string();
                    let length = told.len();
                    assert!(!told.trim().is_empty(), "{what} is rejected without a word");
                    assert!(length < LONGEST_SENTENCE, "{what} is told as {told}");
                }
                Err(_) => panic!("the reader panics over {what}"),
            }
            assert!(longest < LONGEST, "{what} took {longest:?}");
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < MEMORY, "memory grew by {} MiB", grown >> 20);
        println!(
            "{}: {whole} of {count} can be read, {longest:.1?} at most, {} MiB",
            language.0,
            grown >> 20
        );
    }
}

/// Few lines that stand for gigabytes, and what is deeper than the stack.
#[test]
fn bombs_of_schemas_are_rejected() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(laughs, "a{level}: &a{level} [{below}]").unwrap();
    }
    laughs.push_str("tables: [{name: t, columns: *a29}]\n");
    let deep = format!("tables: {}", "[".repeat(1 << 20));
    let wide = format!("tables:\n- {}name: t\n", "- ".repeat(100_000));
    let before = resident();
    for bomb in [laughs, deep, wide] {
        for (name, _, read) in &LANGUAGES {
            let begun = Instant::now();
            let outcome = read(&bomb);
            assert!(outcome.is_err(), "{name}: {outcome:?}");
            assert!(begun.elapsed() < LONGEST, "{name}");
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY, "memory grew by {} MiB", grown >> 20);
}
