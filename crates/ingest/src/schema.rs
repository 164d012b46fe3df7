//! A table's columns as declared in a JSON file: `--schema`.
//!
//! Either the file declares one table, `{"columns": [{"name", "type"}], "delimiter", "null", "quote"}` (the keys
//! beside `columns` optional, `null` one text or a list of them), or it holds `"tables": [...]` of such objects with a `"name"`, from which the
//! table's is picked without regard to case; what a table does not say itself is taken from the file's top level.

use std::path::Path;

use catalog::Column;
use serde::Deserialize;

use crate::error::{IngestError, nearest};
use crate::mysql_type;

/// What a schema file says about one table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeclaredTable {
    /// The columns in the order of the file's fields.
    pub columns: Vec<Column>,
    /// The byte between fields.
    pub delimiter: Option<u8>,
    /// The texts that stand for NULL.
    pub nulls: Vec<String>,
    /// The quote: absent when not said, `Some(None)` when said to be null.
    pub quote: Option<Option<u8>>,
}

impl DeclaredTable {
    /// Columns that are known without a schema file.
    pub(crate) fn of_columns(columns: Vec<Column>) -> Self {
        Self {
            columns,
            delimiter: None,
            nulls: Vec::new(),
            quote: None,
        }
    }

    /// The columns without those that are computed, which files lack.
    pub(crate) fn in_files(&self) -> Vec<Column> {
        let columns = self.columns.iter();
        let is_in_files = |column: &&Column| column.text_key_of().is_none();
        columns.filter(is_in_files).cloned().collect()
    }
}

#[derive(Deserialize)]
struct File {
    tables: Option<Vec<TableJson>>,
    #[serde(flatten)]
    single: TableJson,
}

#[derive(Deserialize, Clone)]
struct TableJson {
    name: Option<String>,
    columns: Option<Vec<ColumnJson>>,
    delimiter: Option<String>,
    null: Option<Nulls>,
    #[serde(default, deserialize_with = "said")]
    quote: Option<Option<String>>,
}

/// One text that stands for NULL, or several.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum Nulls {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize, Clone)]
struct ColumnJson {
    name: String,
    #[serde(rename = "type")]
    ty: String,
}

/// Tells `"quote": null` (no quoting) from no `quote` at all.
fn said<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(value).map(Some)
}

/// Reads the declaration of `table` from the JSON file at `path`.
pub(crate) fn read_schema(path: &Path, table: &str) -> Result<DeclaredTable, IngestError> {
    let text = std::fs::read_to_string(path).map_err(|e| IngestError::io("open", path, e))?;
    parse_schema(&text, table).map_err(|reason| IngestError::Schema {
        path: path.to_path_buf(),
        reason,
    })
}

fn parse_schema(text: &str, table: &str) -> Result<DeclaredTable, String> {
    let file: File = serde_json::from_str(text).map_err(|e| {
        format!("it is not the JSON expected ({e}): write {{\"columns\": [{{\"name\": ..., \"type\": ...}}]}}")
    })?;
    let common = file.single;
    let own = match file.tables {
        None => common.clone(),
        Some(tables) => pick_table(tables, table)?,
    };
    let columns = own.columns.ok_or("it declares no \"columns\"")?;
    if columns.is_empty() {
        return Err("its \"columns\" are empty: a table needs at least one".to_owned());
    }
    let delimiter = own.delimiter.or(common.delimiter);
    let quote = own.quote.or(common.quote);
    Ok(DeclaredTable {
        columns: declared_columns(columns)?,
        delimiter: delimiter
            .map(|text| one_byte("delimiter", &text))
            .transpose()?,
        nulls: match own.null.or(common.null) {
            None => Vec::new(),
            Some(Nulls::One(null)) => vec![null],
            Some(Nulls::Several(nulls)) => nulls,
        },
        quote: match quote {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => Some(Some(one_byte("quote", &text)?)),
        },
    })
}

fn pick_table(tables: Vec<TableJson>, wanted: &str) -> Result<TableJson, String> {
    let names: Vec<String> = tables.iter().filter_map(|t| t.name.clone()).collect();
    let found = tables.into_iter().find(|t| {
        t.name
            .as_deref()
            .is_some_and(|name| name.eq_ignore_ascii_case(wanted))
    });
    found.ok_or_else(|| match nearest(wanted, names.iter().map(String::as_str)) {
        Some(near) => format!("it has no table {wanted:?}: did you mean {near:?}?"),
        None => format!("it has no table {wanted:?}; it has {}", names.join(", ")),
    })
}

fn declared_columns(columns: Vec<ColumnJson>) -> Result<Vec<Column>, String> {
    let mut declared: Vec<Column> = Vec::with_capacity(columns.len());
    for column in columns {
        if declared
            .iter()
            .any(|c| c.name.eq_ignore_ascii_case(&column.name))
        {
            return Err(format!("the column {:?} is declared twice", column.name));
        }
        let (ty, nullable) = mysql_type::parse(&column.ty)
            .map_err(|reason| format!("column {:?}: {reason}", column.name))?;
        declared.push(Column {
            name: column.name,
            ty,
            nullable,
            declared: Some(column.ty),
        });
    }
    Ok(declared)
}

/// The columns as a schema file declares them, with the texts that stand for NULL if there are such.
pub(crate) fn schema_text(columns: &[Column], nulls: &[String]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let declared = |column: &Column| {
        let ty = match &column.declared {
            Some(declared) => declared.clone(),
            None => mysql_type::written(column.ty, column.nullable),
        };
        let (name, ty) = (quoted(&column.name), quoted(&ty));
        format!("  {{\"name\": {name}, \"type\": {ty}}}")
    };
    // What is computed is in no file.
    let in_files = columns.iter().filter(|it| it.text_key_of().is_none());
    let lines: Vec<String> = in_files.map(declared).collect();
    let nulls: Vec<String> = nulls.iter().map(|null| quoted(null)).collect();
    let null = match nulls.is_empty() {
        true => String::new(),
        false => format!(", \"null\": [{}]", nulls.join(", ")),
    };
    format!("{{\"columns\": [\n{}\n]{null}}}\n", lines.join(",\n"))
}

fn one_byte(what: &str, text: &str) -> Result<u8, String> {
    parse_byte(text).ok_or_else(|| format!("the {what} {text:?} is not a single character"))
}

/// One byte written as itself, or as `\t`, `\\`, or the word `tab`, `comma`, `space`.
pub fn parse_byte(text: &str) -> Option<u8> {
    match text {
        "\\t" | "tab" => return Some(b'\t'),
        "\\\\" => return Some(b'\\'),
        "comma" => return Some(b','),
        "space" => return Some(b' '),
        _ => {}
    }
    match text.as_bytes() {
        [byte] if *byte != b'\n' && *byte != b'\r' => Some(*byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use catalog::ColumnType;

    use super::*;

    #[test]
    fn one_table() {
        let text = r#"{"columns": [{"name": "ra_PS", "type": "double NOT NULL"}, {"name": "n", "type": "int(11) default NULL"}],
                       "delimiter": "\t", "null": "\\N", "quote": null}"#;
        let table = parse_schema(text, "whatever").unwrap();
        assert_eq!(table.columns[0].ty, ColumnType::Float64);
        assert!(!table.columns[0].nullable);
        assert!(table.columns[1].nullable);
        assert_eq!(table.delimiter, Some(b'\t'));
        assert_eq!(table.nulls, ["\\N"]);
        assert_eq!(table.quote, Some(None));
        let bare = parse_schema(r#"{"columns": [{"name": "a", "type": "text"}]}"#, "t").unwrap();
        assert_eq!((bare.delimiter, bare.quote), (None, None));
        assert!(bare.nulls.is_empty());
    }

    #[test]
    fn a_table_of_many_takes_what_the_file_says_for_all() {
        let text = r#"{"delimiter": ",", "null": "\\N", "tables": [
            {"name": "Object", "columns": [{"name": "objectId", "type": "bigint"}]},
            {"name": "Source", "null": "", "columns": [{"name": "sourceId", "type": "bigint"}]}]}"#;
        let source = parse_schema(text, "SOURCE").unwrap();
        assert_eq!(source.columns[0].name, "sourceId");
        assert_eq!(
            (source.delimiter, source.nulls),
            (Some(b','), vec![String::new()])
        );
        let error = parse_schema(text, "Objekt").unwrap_err();
        assert!(error.contains("did you mean \"Object\""), "{error}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        use ColumnType as T;
        let decimal = T::Decimal {
            precision: 10,
            scale: 2,
        };
        let types = [
            T::Boolean,
            T::Int8,
            T::Int16,
            T::Int32,
            T::Int64,
            T::UInt8,
            T::UInt16,
            T::UInt32,
            T::UInt64,
            T::Float32,
            T::Float64,
            T::Text,
            T::Binary,
            T::Date,
            T::Timestamp,
            decimal,
        ];
        let column = |(number, ty): (usize, T)| Column {
            name: format!("c \"{number}"),
            ty,
            nullable: number % 2 == 0,
            declared: None,
        };
        let columns: Vec<Column> = types.into_iter().enumerate().map(column).collect();
        let text = schema_text(&columns, &["N/A".to_owned()]);
        let read = parse_schema(&text, "t").unwrap();
        assert_eq!(read.nulls, ["N/A"]);
        for (column, read) in columns.iter().zip(read.columns) {
            assert_eq!(
                (&column.name, column.ty, column.nullable),
                (&read.name, read.ty, read.nullable)
            );
        }
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("{", "JSON"),
            ("{}", "no \"columns\""),
            (r#"{"columns": []}"#, "empty"),
            (r#"{"columns": [{"name": "a", "type": "flot"}]}"#, "float"),
            (
                r#"{"columns": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}"#,
                "twice",
            ),
            (
                r#"{"columns": [{"name": "a", "type": "int"}], "delimiter": "ab"}"#,
                "delimiter",
            ),
        ] {
            let error = parse_schema(text, "t").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
