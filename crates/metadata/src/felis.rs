//! Schema files in Felis's language: YAML with a list of tables, each with a list of columns.
//!
//! Source: *Felis*, Rubin Observatory, "Data Model". Each who reads one says what is to be known of a column, by a type of their own:
//! pipelines' stores read types and defaults, `meridian describe` what columns mean.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A value of a file whose type is not known yet.
pub type YamlValue = serde_norway::Value;

/// Why a schema file cannot be read, in a sentence without its file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaFileError(String);

impl SchemaFileError {
    /// An error of which a sentence says what is wrong.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// The same of a place in the file.
    pub(crate) fn at(self, place: &str) -> Self {
        Self(format!("{place}: {}", self.0))
    }

    /// The error of the YAML reader, without all of the file, which it may cite.
    pub(crate) fn of(error: &serde_norway::Error) -> Self {
        const MOST: usize = 200;
        let text = error.to_string();
        Self(match text.char_indices().nth(MOST) {
            Some((at, _)) => format!("{}...", &text[..at]),
            None => text,
        })
    }
}

/// Brackets within each other at most. The YAML reader looks at all that are open for each word that it reads, so that its time grows with the square
/// of their depth.
const DEEPEST: usize = 1000;

/// Reads YAML.
///
/// # Errors
/// It is none, or is too deep.
pub(crate) fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, SchemaFileError> {
    let mut depth = 0_usize;
    for byte in text.bytes() {
        // Brackets in texts count, too: there are not that many that stay open.
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            let sentence = format!("it has more than {DEEPEST} brackets within each other");
            return Err(SchemaFileError::new(sentence));
        }
    }
    serde_norway::from_str(text).map_err(|error| SchemaFileError::of(&error))
}

/// A schema.
#[derive(Debug, Clone, Deserialize)]
pub struct SchemaFile {
    #[serde(default)]
    version: Option<Version>,
    /// Its tables.
    pub tables: Vec<TableEntry>,
    /// All else that is said of it.
    #[serde(flatten)]
    words: BTreeMap<String, YamlValue>,
}

/// A table of a schema. Its columns are read later, so that those of a table that nobody looks at may be whatever they are.
#[derive(Debug, Clone, Deserialize)]
pub struct TableEntry {
    /// Its name, with its case.
    pub name: String,
    #[serde(default)]
    columns: YamlValue,
    /// All else that is said of it.
    #[serde(flatten)]
    words: BTreeMap<String, YamlValue>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Version {
    Plain(String),
    Detailed { current: String },
}

/// The version of a schema that does not say one, as the field's tools take it.
const NO_VERSION: &str = "0.1.0";

impl SchemaFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no YAML, or no schema.
    pub fn parse(text: &str) -> Result<Self, SchemaFileError> {
        parse_yaml(text)
    }

    /// The same of a file in another language, or one that need not have tables.
    ///
    /// # Errors
    /// It is no schema.
    pub(crate) fn of_value(value: YamlValue) -> Result<Self, SchemaFileError> {
        serde_norway::from_value(value).map_err(|error| SchemaFileError::of(&error))
    }

    /// The version that it says, or 0.1.0.
    pub fn version(&self) -> &str {
        match &self.version {
            Some(Version::Plain(version) | Version::Detailed { current: version }) => version,
            None => NO_VERSION,
        }
    }

    /// What is said of it beside its version and tables.
    pub(crate) fn words(&self) -> &BTreeMap<String, YamlValue> {
        &self.words
    }

    /// The table of a name, as it is written.
    pub fn table(&self, name: &str) -> Option<&TableEntry> {
        self.tables.iter().find(|table| table.name == name)
    }
}

impl TableEntry {
    /// What is said of it beside its name and columns.
    pub(crate) fn words(&self) -> &BTreeMap<String, YamlValue> {
        &self.words
    }

    /// Its columns as they are written.
    ///
    /// # Errors
    /// They are no list of mappings.
    pub(crate) fn column_words(&self) -> Result<Vec<BTreeMap<String, YamlValue>>, SchemaFileError> {
        match self.columns.is_null() {
            true => Ok(Vec::new()),
            false => self.columns(),
        }
    }

    /// What is to be known of its columns, in their order.
    ///
    /// # Errors
    /// They are no list of such columns.
    pub fn columns<C: DeserializeOwned>(&self) -> Result<Vec<C>, SchemaFileError> {
        serde_norway::from_value(self.columns.clone()).map_err(|error| {
            let reason = SchemaFileError::of(&error);
            SchemaFileError(format!("the columns of {}: {reason}", self.name))
        })
    }
}
