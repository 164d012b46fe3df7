//! Columns that a schema takes from another one: it names the other as a resource, and in a table the columns of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::felis::{SchemaFile, SchemaFileError, TableEntry, YamlValue};

/// The words of a column.
type Words = BTreeMap<String, YamlValue>;

/// The schemas to which another one refers, by the names that it gives them.
#[derive(Default)]
pub(crate) struct Resources(BTreeMap<String, SchemaFile>);

#[derive(Deserialize)]
struct Resource {
    uri: String,
}

/// A reference to a column, under the name that it has in the table that refers to it.
#[derive(Default, Deserialize)]
struct ColumnRef {
    /// The column's own name, if it is another one.
    ref_name: Option<String>,
    /// Words that take the places of the column's own.
    #[serde(default)]
    overrides: Words,
}

/// References by resource, table and column.
type ColumnRefs = BTreeMap<String, BTreeMap<String, BTreeMap<String, Option<ColumnRef>>>>;

impl Resources {
    /// Opens those of a file. References in them to further ones are not followed.
    pub(crate) fn open(
        file: &SchemaFile,
        open: impl Fn(&str) -> Result<String, SchemaFileError>,
    ) -> Result<Self, SchemaFileError> {
        let named: BTreeMap<String, Resource> = part(file.words(), "resources")?;
        let open = |(name, Resource { uri }): (String, Resource)| {
            let schema = open(&uri).and_then(|text| SchemaFile::parse(&text));
            let schema = schema.map_err(|error| error.at(&format!("the resource {name}")))?;
            Ok((name, schema))
        };
        Ok(Self(named.into_iter().map(open).collect::<Result<_, _>>()?))
    }

    /// The columns that a table takes from them.
    pub(crate) fn columns(&self, table: &TableEntry) -> Result<Vec<Words>, SchemaFileError> {
        let references: ColumnRefs = part(table.words(), "columnRefs")?;
        let mut columns = Vec::new();
        for (resource, tables) in references {
            let Some(schema) = self.0.get(&resource) else {
                let sentence = format!("there is no resource {resource}");
                return Err(SchemaFileError::new(sentence));
            };
            for (name, references) in tables {
                let Some(there) = schema.table(&name) else {
                    let sentence = format!("the resource {resource} has no table {name}");
                    return Err(SchemaFileError::new(sentence));
                };
                let mut by_name = columns_by_name(there)?;
                for (name, reference) in references {
                    let reference = reference.unwrap_or_default();
                    let own_name = reference.ref_name.as_deref().unwrap_or(&name);
                    let Some(mut column) = by_name.remove(own_name) else {
                        let table = &there.name;
                        let sentence =
                            format!("{table} of the resource {resource} has no column {own_name}");
                        return Err(SchemaFileError::new(sentence));
                    };
                    column.extend(reference.overrides);
                    column.insert("name".to_owned(), name.into());
                    columns.push(column);
                }
            }
        }
        Ok(columns)
    }
}

fn columns_by_name(table: &TableEntry) -> Result<BTreeMap<String, Words>, SchemaFileError> {
    let columns = table.column_words()?.into_iter();
    let named = columns.filter_map(|column| {
        let name = column.get("name")?.as_str()?.to_owned();
        Some((name, column))
    });
    Ok(named.collect())
}

/// A part of what is said; empty if it is not there.
fn part<T: DeserializeOwned + Default>(said: &Words, name: &str) -> Result<T, SchemaFileError> {
    match said.get(name).filter(|value| !value.is_null()) {
        None => Ok(T::default()),
        Some(value) => serde_norway::from_value(value.clone())
            .map_err(|error| SchemaFileError::of(&error).at(name)),
    }
}
