//! What a file says of a database, its tables and their columns: a schema of Felis, or a small file of the same words.
//!
//! Felis puts the name of a standard before a word (`ivoa:ucd`); files that are edited may leave it out (`ucd`), and what is printed does.
//! A description that was printed is read as what it was printed from.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};

use crate::felis::{SchemaFile, SchemaFileError, TableEntry, YamlValue, parse_yaml};
use crate::resources::Resources;

/// What a file says of one thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileValue<T> {
    /// It says nothing.
    #[default]
    Nothing,
    /// It says that there is nothing to say: NULL, or an empty text.
    Empty,
    /// It says this.
    Value(T),
}

impl<T> FileValue<T> {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            said => said,
        }
    }
}

impl<T> From<Option<T>> for FileValue<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Self::Value)
    }
}

impl<T: Serialize> Serialize for FileValue<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing | Self::Empty => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}

/// What is said of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DatabaseWords {
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it has, in words.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub description: FileValue<String>,
    /// Its tables.
    pub tables: Vec<TableWords>,
    /// Words of the file that are none of ours, with where they stand.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

/// What is said of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TableWords {
    /// Its name.
    pub name: String,
    /// What it has, in words.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub description: FileValue<String>,
    /// Its place in a data model.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub utype: FileValue<String>,
    /// Its place in a list of tables.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub table_index: FileValue<i32>,
    /// The lane of its scans.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub scan_rating: FileValue<String>,
    /// Its columns.
    pub columns: Vec<ColumnWords>,
}

/// What is said of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ColumnWords {
    /// Its name.
    pub name: String,
    /// What it means, in words.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub description: FileValue<String>,
    /// The unit of its values.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub unit: FileValue<String>,
    /// What it is physically, in words of UCD1+.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub ucd: FileValue<String>,
    /// Its place in a data model.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub utype: FileValue<String>,
    /// How its values are to be read.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub xtype: FileValue<String>,
    /// Whether it is one of the columns that are returned by default.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub principal: FileValue<bool>,
    /// Its place in a list of columns.
    #[serde(skip_serializing_if = "FileValue::is_nothing")]
    pub column_index: FileValue<i32>,
}

/// Words of ours, and Felis's names of the same, in the order in which they count.
const DESCRIPTION: &[&str] = &["description"];
const UNIT: &[&str] = &["unit", "ivoa:unit", "fits:tunit"];
const UCD: &[&str] = &["ucd", "ivoa:ucd"];
const UTYPE: &[&str] = &["utype", "votable:utype"];
const XTYPE: &[&str] = &["xtype", "votable:xtype"];
const PRINCIPAL: &[&str] = &["principal", "tap:principal"];
const COLUMN_INDEX: &[&str] = &["column_index", "tap:column_index"];
const TABLE_INDEX: &[&str] = &["table_index", "tap:table_index"];
const SCAN_RATING: &[&str] = &["scan_rating"];
/// Words of Felis without a standard's name that say nothing of what is kept here.
const OF_FELIS: &[&str] = &[
    "id",
    "datatype",
    "length",
    "nullable",
    "value",
    "autoincrement",
    "precision",
    "primaryKey",
    "constraints",
    "indexes",
    "timestamp_precision",
    "columnGroups",
    "version",
    "name",
    "columnRefs",
    "resources",
];

/// Reads a schema file of Felis. `open` gives the text of another schema by its URI, where this one refers to columns there.
///
/// # Errors
/// It is no YAML or no schema, one of the words has another type, or what it refers to is not there.
pub fn read_felis(
    text: &str,
    open: impl Fn(&str) -> Result<String, SchemaFileError>,
) -> Result<DatabaseWords, SchemaFileError> {
    let file = SchemaFile::parse(text)?;
    let resources = Resources::open(&file, open)?;
    words_of(&file, &resources)
}

/// Reads an edited description in YAML or JSON. Where it is of one table, `table` is its name, and it may have the table's words alone.
///
/// # Errors
/// As of [`read_felis`].
pub fn read_edit(text: &str, table: Option<&str>) -> Result<DatabaseWords, SchemaFileError> {
    edit_of(parse_yaml(text)?, table)
}

/// The same of a description in TOML.
///
/// # Errors
/// It is no TOML; else as of [`read_felis`].
pub fn read_edit_toml(text: &str, table: Option<&str>) -> Result<DatabaseWords, SchemaFileError> {
    let value: YamlValue = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| 1 + before.matches('\n').count());
        SchemaFileError::new(format!("it is no TOML, line {line}: {}", error.message()))
    })?;
    edit_of(value, table)
}

fn edit_of(value: YamlValue, table: Option<&str>) -> Result<DatabaseWords, SchemaFileError> {
    let YamlValue::Mapping(mut mapping) = value else {
        let sentence = "it is no description: that begins with name:, description: or tables:";
        return Err(SchemaFileError::new(sentence));
    };
    if let (Some(table), true) = (table, !mapping.contains_key("tables")) {
        mapping.entry("name".into()).or_insert_with(|| table.into());
        let tables = YamlValue::Sequence(vec![YamlValue::Mapping(mapping)]);
        mapping = [("tables".into(), tables)].into_iter().collect();
    }
    let entry = mapping.entry("tables".into());
    entry.or_insert_with(|| YamlValue::Sequence(Vec::new()));
    let file = SchemaFile::of_value(YamlValue::Mapping(mapping))?;
    words_of(&file, &Resources::default())
}

fn words_of(file: &SchemaFile, resources: &Resources) -> Result<DatabaseWords, SchemaFileError> {
    let mut unknown = Vec::new();
    let description = text_of(file.words(), DESCRIPTION);
    note_unknown(file.words(), &[DESCRIPTION], "the database", &mut unknown);
    let mut words = DatabaseWords {
        name: String::new(),
        description: description.map_err(|error| error.at("the database"))?,
        tables: Vec::with_capacity(file.tables.len()),
        unknown: Vec::new(),
    };
    for table in &file.tables {
        words
            .tables
            .push(table_words(table, resources, &mut unknown)?);
    }
    words.unknown = unknown;
    Ok(words)
}

type Words = BTreeMap<String, YamlValue>;

fn table_words(
    table: &TableEntry,
    resources: &Resources,
    unknown: &mut Vec<String>,
) -> Result<TableWords, SchemaFileError> {
    let place = format!("the table {}", table.name);
    let said = table.words();
    let known = [DESCRIPTION, UTYPE, TABLE_INDEX, SCAN_RATING];
    note_unknown(said, &known, &place, unknown);
    let wrong = |error: SchemaFileError| error.at(&place);
    let mut columns = Vec::new();
    let own = table.column_words()?;
    let referred = resources.columns(table).map_err(wrong)?;
    for column in own.into_iter().chain(referred) {
        columns.push(column_words(&table.name, &column, unknown)?);
    }
    Ok(TableWords {
        name: table.name.clone(),
        description: text_of(said, DESCRIPTION).map_err(wrong)?,
        utype: text_of(said, UTYPE).map_err(wrong)?,
        table_index: find(said, TABLE_INDEX).map_err(wrong)?,
        scan_rating: text_of(said, SCAN_RATING).map_err(wrong)?,
        columns,
    })
}

fn column_words(
    table: &str,
    said: &Words,
    unknown: &mut Vec<String>,
) -> Result<ColumnWords, SchemaFileError> {
    let Ok(FileValue::Value(name)) = text_of(said, &["name"]) else {
        let sentence = format!("a column of the table {table} has no name");
        return Err(SchemaFileError::new(sentence));
    };
    let place = format!("the column {table}.{name}");
    let known = [
        DESCRIPTION,
        UNIT,
        UCD,
        UTYPE,
        XTYPE,
        PRINCIPAL,
        COLUMN_INDEX,
    ];
    note_unknown(said, &known, &place, unknown);
    let wrong = |error: SchemaFileError| error.at(&place);
    Ok(ColumnWords {
        description: text_of(said, DESCRIPTION).map_err(wrong)?,
        unit: text_of(said, UNIT).map_err(wrong)?,
        ucd: text_of(said, UCD).map_err(wrong)?,
        utype: text_of(said, UTYPE).map_err(wrong)?,
        xtype: text_of(said, XTYPE).map_err(wrong)?,
        principal: flag_of(said).map_err(wrong)?,
        column_index: find(said, COLUMN_INDEX).map_err(wrong)?,
        name,
    })
}

/// Notes words that are neither ours nor Felis's: mistakes, most likely.
fn note_unknown(said: &Words, known: &[&[&str]], place: &str, unknown: &mut Vec<String>) {
    let is_known = |word: &str| {
        word.contains([':', '@'])
            || OF_FELIS.contains(&word)
            || known.iter().any(|names| names.contains(&word))
    };
    let words = said.keys().filter(|word| !is_known(word));
    unknown.extend(words.map(|word| format!("{word} of {place}")));
}

/// A text without blanks at its ends.
fn text_of(said: &Words, names: &[&str]) -> Result<FileValue<String>, SchemaFileError> {
    Ok(trimmed(find(said, names)?))
}

fn trimmed(said: FileValue<String>) -> FileValue<String> {
    match said {
        FileValue::Value(text) if text.trim().is_empty() => FileValue::Empty,
        FileValue::Value(text) => FileValue::Value(text.trim().to_owned()),
        other => other,
    }
}

/// A flag, which Felis writes as 0 or 1.
fn flag_of(said: &Words) -> Result<FileValue<bool>, SchemaFileError> {
    match find::<i64>(said, PRINCIPAL) {
        Ok(FileValue::Value(number @ (0 | 1))) => Ok(FileValue::Value(number == 1)),
        Ok(FileValue::Value(number)) => {
            let sentence = format!("principal is {number}: it is 0 or 1");
            Err(SchemaFileError::new(sentence))
        }
        Ok(FileValue::Nothing) => Ok(FileValue::Nothing),
        Ok(FileValue::Empty) => Ok(FileValue::Empty),
        Err(_) => find::<bool>(said, PRINCIPAL),
    }
}

/// A word that a file may say.
trait Word: DeserializeOwned {
    /// What is wrong with a value that is none.
    const IS_NONE: &'static str;
}

impl Word for String {
    const IS_NONE: &'static str = "is no text: write it in quotes if it is meant as one";
}

impl Word for bool {
    const IS_NONE: &'static str = "is neither 0 nor 1";
}

impl Word for i32 {
    const IS_NONE: &'static str = "is no whole number below 2147483648";
}

impl Word for i64 {
    const IS_NONE: &'static str = "is no whole number";
}

/// What is said under the first of several names under which anything is.
fn find<T: Word>(said: &Words, names: &[&str]) -> Result<FileValue<T>, SchemaFileError> {
    let mut found = FileValue::Nothing;
    for name in names {
        if let Some(value) = said.get(*name) {
            let here = match value.is_null() {
                true => FileValue::Empty,
                false => value_of(name, value)?,
            };
            found = found.or(here);
        }
    }
    Ok(found)
}

fn value_of<T: Word>(name: &str, value: &YamlValue) -> Result<FileValue<T>, SchemaFileError> {
    let read = serde_norway::from_value(value.clone());
    read.map(FileValue::Value).map_err(|_| {
        let sentence = format!("{} {}", shown(value), T::IS_NONE);
        SchemaFileError::new(sentence).at(name)
    })
}

/// A value of a file, or what it is if it has parts.
fn shown(value: &YamlValue) -> String {
    const MOST: usize = 40;
    match value {
        YamlValue::String(text) if text.chars().count() > MOST => {
            let start: String = text.chars().take(MOST).collect();
            format!("{start:?}...")
        }
        YamlValue::String(text) => format!("{text:?}"),
        YamlValue::Number(number) => number.to_string(),
        YamlValue::Bool(truth) => truth.to_string(),
        YamlValue::Null => "null".to_owned(),
        YamlValue::Sequence(_) => "a list".to_owned(),
        YamlValue::Mapping(_) | YamlValue::Tagged(_) => "a value of several parts".to_owned(),
    }
}

/// The description in YAML, as [`read_edit`] reads it.
///
/// # Errors
/// It cannot be written, which no text does.
pub fn to_yaml(words: &DatabaseWords) -> Result<String, SchemaFileError> {
    serde_norway::to_string(words).map_err(|error| SchemaFileError::of(&error))
}

/// The same in JSON.
///
/// # Errors
/// As of [`to_yaml`].
pub fn to_json(words: &DatabaseWords) -> Result<String, SchemaFileError> {
    let text = serde_json::to_string_pretty(words);
    text.map(|text| text + "\n")
        .map_err(|error| SchemaFileError::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_other(uri: &str) -> Result<String, SchemaFileError> {
        Err(SchemaFileError::new(format!("there is no {uri}")))
    }

    const FELIS: &str = r##"
---
name: "sdm"
"@id": "#sdm"
description: a schema
version: {current: "1.2", compatible: ["1.1"]}
tables:
- name: Object
  "@id": "#Object"
  description: >
    Objects
    of coadds.
  primaryKey: "#Object.objectId"
  tap:table_index: 2
  mysql:engine: MyISAM
  columns:
  - name: ra
    "@id": "#Object.ra"
    datatype: double
    description: " Right ascension "
    ivoa:ucd: pos.eq.ra;meta.main
    fits:tunit: deg
    tap:principal: 1
    tap:column_index: 30
    votable:utype: stc:x
    votable:xtype: x
    whatever: [1, 2]
  - name: flux
    datatype: float
    ivoa:unit: nJy
    fits:tunit: mJy
    tap:principal: 0
    ivoa:ucd:
- name: Empty
"##;

    #[test]
    fn a_schema_of_felis_is_read() {
        let words = read_felis(FELIS, no_other).unwrap();
        assert_eq!(words.description, FileValue::Value("a schema".to_owned()));
        let [object, empty] = words.tables.as_slice() else {
            panic!("{words:?}");
        };
        assert_eq!(
            object.description,
            FileValue::Value("Objects of coadds.".to_owned())
        );
        assert_eq!(
            (&object.table_index, empty.columns.len()),
            (&FileValue::Value(2), 0)
        );
        let text = |text: &str| FileValue::Value(text.to_owned());
        let ra = ColumnWords {
            name: "ra".to_owned(),
            description: text("Right ascension"),
            unit: text("deg"),
            ucd: text("pos.eq.ra;meta.main"),
            utype: text("stc:x"),
            xtype: text("x"),
            principal: FileValue::Value(true),
            column_index: FileValue::Value(30),
        };
        let flux = ColumnWords {
            name: "flux".to_owned(),
            unit: text("nJy"),
            ucd: FileValue::Empty,
            principal: FileValue::Value(false),
            ..ColumnWords::default()
        };
        assert_eq!(object.columns, [ra, flux]);
        assert_eq!(words.unknown, ["whatever of the column Object.ra"]);
    }

    #[test]
    fn columns_of_other_schemas_are_read() {
        let text = "
resources: {base: {uri: other.yaml}}
tables:
- name: Source
  columnRefs:
    base:
      Object:
        ra:
        brightness: {ref_name: flux, overrides: {description: mine, datatype: int}}
  columns: [{name: own, description: x}]
";
        let open = |uri: &str| match uri {
            "other.yaml" => Ok(FELIS.to_owned()),
            uri => no_other(uri),
        };
        let words = read_felis(text, open).unwrap();
        let columns = &words.tables[0].columns;
        let names: Vec<&str> = columns.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["own", "brightness", "ra"]);
        let said = |text: &str| FileValue::Value(text.to_owned());
        assert_eq!(
            (&columns[1].unit, &columns[1].description),
            (&said("nJy"), &said("mine"))
        );
        assert_eq!(columns[2].ucd, said("pos.eq.ra;meta.main"));
        for (from, to, told) in [
            (
                "other.yaml",
                "none.yaml",
                "the resource base: there is no none.yaml",
            ),
            (
                "        ra:",
                "        rah:",
                "the table Source: Object of the resource base has no column rah",
            ),
            (
                "      Object:",
                "      Objekt:",
                "the resource base has no table Objekt",
            ),
            (
                "    base:\n      O",
                "    bass:\n      O",
                "there is no resource bass",
            ),
        ] {
            let error = read_felis(&text.replace(from, to), open).unwrap_err();
            assert!(error.to_string().contains(told), "{told}: {error}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let mut words = read_felis(FELIS, no_other).unwrap();
        words.unknown.clear();
        words.tables[0].columns[0].description =
            FileValue::Value("yes: \"no\" # é\n- 1 \\".to_owned());
        for text in [to_yaml(&words).unwrap(), to_json(&words).unwrap()] {
            assert_eq!(read_edit(&text, None).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn a_description_may_be_toml_or_of_one_table() {
        let toml = "[[tables]]\nname = \"Object\"\n[[tables.columns]]\nname = \"ra\"\nunit = \"deg\"\n\"tap:principal\" = true\n";
        let words = read_edit_toml(toml, None).unwrap();
        let ra = &words.tables[0].columns[0];
        assert_eq!(
            (&ra.unit, &ra.principal),
            (&FileValue::Value("deg".to_owned()), &FileValue::Value(true))
        );
        let one = read_edit(
            "columns: [{name: ra, unit: deg, principal: 1}]",
            Some("Object"),
        )
        .unwrap();
        assert_eq!(one.tables, words.tables);
        assert_eq!(read_edit("description: x", None).unwrap().tables, []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            (
                "tables: [{name: a, columns: [{name: b, tap:principal: 2}]}]",
                "the column a.b: principal is 2",
            ),
            (
                "tables: [{name: a, columns: [{name: b, tap:principal: x}]}]",
                "the column a.b: tap:principal: \"x\" is neither 0 nor 1",
            ),
            (
                "tables: [{name: a, columns: [{name: b, column_index: x}]}]",
                "the column a.b: column_index: \"x\" is no whole number",
            ),
            (
                "tables: [{name: a, table_index: [1]}]",
                "the table a: table_index: a list is no whole number",
            ),
            (
                "tables: [{name: a, columns: [{name: b, unit: 3}]}]",
                "the column a.b: unit: 3 is no text",
            ),
            (
                "tables: [{name: a, columns: [{name: b, unit: [m]}]}]",
                "the column a.b: unit: ",
            ),
            (
                "tables: [{name: a, table_index: x}]",
                "the table a: table_index: ",
            ),
            (
                "tables: [{name: a, columns: [{unit: m}]}]",
                "a column of the table a has no name",
            ),
            ("tables: [{name: a, columns: 3}]", "the columns of a: "),
            ("tables: [{description: x}]", "missing field `name`"),
            ("tables: [", "while parsing a flow node"),
            ("- 1", "it is no description"),
        ] {
            let error = read_edit(text, None).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        let error = read_felis("name: x", no_other).unwrap_err().to_string();
        assert!(error.contains("missing field `tables`"), "{error}");
        assert!(
            read_edit_toml("a = ", None)
                .unwrap_err()
                .to_string()
                .contains("TOML")
        );
    }
}
