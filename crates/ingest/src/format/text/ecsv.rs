//! ECSV: a text table whose comments declare its columns in YAML (Astropy's APE 6, version 1.0).
//!
//! ```text
//! # %ECSV 1.0
//! # ---
//! # delimiter: ','
//! # datatype:
//! # - {name: id, datatype: int64}
//! # - {name: ra, unit: deg, datatype: float64, description: Right ascension}
//! id,ra
//! 1,10.5
//! ```
//!
//! Of the YAML only what writers of ECSV make is read: the list `datatype` of mappings, in braces or indented, and `delimiter`: of each
//! column its name, type, unit and description.

use catalog::{Column, ColumnType};

use crate::format::FieldDescription;

const MARK: &str = "%ECSV ";

/// The texts of the comments, without their sign; `None` where the file is no ECSV.
fn header<'a>(comments: &[&'a [u8]]) -> Option<Vec<&'a str>> {
    let text = |line: &&'a [u8]| str::from_utf8(line.get(1..)?).ok();
    let lines: Vec<&str> = comments.iter().map(text).collect::<Option<_>>()?;
    let first = lines.first()?.trim_start();
    first.starts_with(MARK).then_some(lines)
}

/// What separates the fields, if the comments say that the file is ECSV: blanks, unless they say otherwise.
pub(super) fn delimiter(comments: &[&[u8]]) -> Option<u8> {
    let lines = header(comments)?;
    let said = lines
        .iter()
        .find_map(|line| line.trim().strip_prefix("delimiter:"));
    match said.map(|said| unquoted(said.trim())) {
        Some(text) => crate::schema::parse_byte(text.as_str()),
        None => Some(b' '),
    }
}

/// The columns that the comments declare, if they say that the file is ECSV.
///
/// # Errors
/// They declare none, or a column without a name or of a type that ECSV does not have.
pub(super) fn columns(comments: &[&[u8]]) -> Result<Option<Vec<Column>>, String> {
    let Some(lines) = header(comments) else {
        return Ok(None);
    };
    let columns: Vec<Column> = items(&lines)
        .iter()
        .map(|item| column(item))
        .collect::<Result<_, _>>()?;
    match columns.is_empty() {
        true => Err(
            "its comments say that it is ECSV and declare no columns under \"datatype:\""
                .to_owned(),
        ),
        false => Ok(Some(columns)),
    }
}

/// The texts of the mappings in the list `datatype`, without the dash and the braces.
fn items(lines: &[&str]) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let begun = lines.iter().skip_while(|line| line.trim() != "datatype:");
    for line in begun.skip(1) {
        let text = line.trim();
        // The list ends at the next key of the document.
        let is_indented = line.starts_with("  ");
        if let Some(item) = text.strip_prefix("- ").or((text == "-").then_some("")) {
            items.push(item.trim().to_owned());
        } else if is_indented && let Some(item) = items.last_mut() {
            // A mapping that goes on: on the next line of the braces, or as the next of its indented pairs.
            item.push_str(if item.starts_with('{') || item.is_empty() {
                " "
            } else {
                ", "
            });
            item.push_str(text);
        } else {
            break;
        }
    }
    let inner = |item: String| match item.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
        Some(inner) => inner.to_owned(),
        None => item,
    };
    items.into_iter().map(inner).collect()
}

/// What the comments of an ECSV file say of its columns, by their names.
pub(super) fn descriptions(comments: &[&[u8]]) -> Vec<(String, FieldDescription)> {
    let lines = header(comments).unwrap_or_default();
    let described = |item: &String| {
        let mut said = FieldDescription::default();
        let mut name = None;
        for (key, value) in pairs(item) {
            match key.as_str() {
                "name" => name = Some(value),
                "unit" => said.unit = value,
                "description" => said.description = value,
                _ => {}
            }
        }
        Some((name?, said))
    };
    items(&lines).iter().filter_map(described).collect()
}

/// The pairs of a mapping such as `name: ra, unit: deg, datatype: float64`.
fn pairs(item: &str) -> Vec<(String, String)> {
    split_pairs(item)
        .iter()
        .filter_map(|pair| pair.split_once(':'))
        .map(|(key, value)| (unquoted(key.trim()), unquoted(value.trim())))
        .collect()
}

/// The column of a mapping.
fn column(item: &str) -> Result<Column, String> {
    let pairs = pairs(item);
    let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| &pair.1);
    let name = value("name")
        .ok_or_else(|| format!("its ECSV header has a column without a name: {item}"))?;
    let ty = value("datatype")
        .ok_or_else(|| format!("its ECSV header gives the column {name} no datatype"))?;
    // Values of a subtype are arrays or JSON, which stay texts.
    let ty = match value("subtype") {
        Some(_) => ColumnType::Text,
        None => column_type(ty).ok_or_else(|| {
            format!("the column {name} is of the type {ty}, which ECSV does not have")
        })?,
    };
    Ok(Column {
        name: name.clone(),
        ty,
        nullable: true,
        declared: None,
    })
}

fn column_type(name: &str) -> Option<ColumnType> {
    Some(match name {
        "bool" => ColumnType::Boolean,
        "int8" => ColumnType::Int8,
        "int16" => ColumnType::Int16,
        "int32" => ColumnType::Int32,
        "int64" => ColumnType::Int64,
        "uint8" => ColumnType::UInt8,
        "uint16" => ColumnType::UInt16,
        "uint32" => ColumnType::UInt32,
        "uint64" => ColumnType::UInt64,
        "float16" | "float32" => ColumnType::Float32,
        "float64" | "float128" => ColumnType::Float64,
        "string" | "complex64" | "complex128" | "complex256" => ColumnType::Text,
        _ => return None,
    })
}

/// Splits at the commas that stand neither in quotes nor in brackets.
fn split_pairs(text: &str) -> Vec<&str> {
    let (mut pairs, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            // An apostrophe within a word opens nothing.
            (None, '\'' | '"') if text[..at].trim_end().ends_with([':', ',', '{', '[']) => {
                quote = Some(c)
            }
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth -= 1,
            (None, ',') if depth == 0 => {
                pairs.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pairs.push(&text[start..]);
    pairs
}

/// A YAML scalar without its quotes.
fn unquoted(text: &str) -> String {
    let within = |quote: char| {
        text.strip_prefix(quote)
            .and_then(|it| it.strip_suffix(quote))
    };
    match (within('\''), within('"')) {
        (Some(inner), _) => inner.replace("''", "'"),
        (_, Some(inner)) => inner.replace("\\t", "\t").replace("\\\"", "\""),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<&[u8]> {
        text.lines().map(str::as_bytes).collect()
    }

    #[test]
    fn columns_are_read_from_braces_and_from_indented_pairs() {
        let text = "# %ECSV 1.0\n# ---\n# delimiter: ','\n# datatype:\n\
                    # - {name: id, datatype: int64}\n\
                    # - {name: ra, unit: deg, datatype: float64, description: 'Right ascension, at epoch'}\n\
                    # -\n#   name: 'it''s'\n#   datatype: string\n\
                    # - {name: when, datatype: string,\n#    description: a time}\n\
                    # meta: !!omap\n# - {keywords: none}\n# schema: astropy-2.0";
        let columns = columns(&comments(text)).unwrap().unwrap();
        let found: Vec<(&str, ColumnType)> =
            columns.iter().map(|c| (c.name.as_str(), c.ty)).collect();
        let expected = [
            ("id", ColumnType::Int64),
            ("ra", ColumnType::Float64),
            ("it's", ColumnType::Text),
            ("when", ColumnType::Text),
        ];
        assert_eq!(found, expected);
        assert_eq!(delimiter(&comments(text)), Some(b','));
        let said = |unit: &str, description: &str| FieldDescription {
            unit: unit.to_owned(),
            description: description.to_owned(),
            ..FieldDescription::default()
        };
        let descriptions = descriptions(&comments(text));
        let ra = said("deg", "Right ascension, at epoch");
        assert_eq!(descriptions[1], ("ra".to_owned(), ra));
        assert_eq!(descriptions[3], ("when".to_owned(), said("", "a time")));
    }

    #[test]
    fn what_is_no_ecsv_or_wrong_is_told_apart() {
        assert_eq!(columns(&comments("# a comment")), Ok(None));
        assert_eq!(delimiter(&comments("# a comment")), None);
        assert_eq!(delimiter(&comments("# %ECSV 0.9\n# ---")), Some(b' '));
        let wrong = |text: &str| columns(&comments(text)).unwrap_err();
        assert!(wrong("# %ECSV 1.0\n# ---").contains("declare no columns"));
        let unknown = "# %ECSV 1.0\n# datatype:\n# - {name: a, datatype: float63}";
        assert!(wrong(unknown).contains("float63"));
    }
}
