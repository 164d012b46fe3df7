//! Columns of users' tables: how they are declared, what they store, and their defaults.

use catalog::{Column, ColumnType, fold_name};
use sql::mysql::{DeclaredColumn, InsertedValue};
use sql::{ErrorCode, Longest, StoredColumn, StoredType};

use crate::ClientError;

/// The names of columns that are taken for positions.
const POSITIONS: [(&str, &str); 3] = [("ra", "dec"), ("ra", "decl"), ("ra_ps", "decl_ps")];
/// Bytes of the longest values of MySQL's types of texts and bytes.
const TINY: u32 = u8::MAX as u32;
const PLAIN: u32 = u16::MAX as u32;
const MEDIUM: u32 = (1 << 24) - 1;

/// A column as it is declared.
pub(crate) fn declared_column(declared: &DeclaredColumn) -> Result<Column, ClientError> {
    let DeclaredColumn { name, ty, default } = declared;
    let mut column = ingest::declared_column(name, ty).map_err(|reason| {
        ClientError::new(ErrorCode::SYNTAX, format!("the column {name}: {reason}"))
    })?;
    if let Some(default) = default {
        column.declared = Some(format!("{ty} DEFAULT {default}"));
    }
    Ok(column)
}

/// What a column stores, by its type and as it was declared.
pub(crate) fn stored_column(column: &Column) -> StoredColumn {
    let declared = column.declared.as_deref().unwrap_or_default();
    let declared = declared.trim().to_ascii_lowercase();
    let word = declared.split(|c: char| !c.is_ascii_alphanumeric()).next();
    let word = word.unwrap_or_default();
    let length = declared[word.len()..]
        .trim_start()
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')')?.0.trim().parse::<u32>().ok());
    let mut words = declared.split_whitespace().skip(1);
    let unsigned = words.any(|word| word == "unsigned");
    StoredColumn {
        name: column.name.clone(),
        ty: stored_type(column.ty, word, length, unsigned),
        nullable: column.nullable,
    }
}

fn stored_type(ty: ColumnType, word: &str, length: Option<u32>, unsigned: bool) -> StoredType {
    use ColumnType as T;
    let integer = |bits, unsigned| StoredType::Integer { bits, unsigned };
    let middle = if word == "mediumint" { 24 } else { 32 };
    match ty {
        T::Boolean => StoredType::Boolean,
        T::Int8 => integer(8, false),
        T::Int16 => integer(16, false),
        T::Int32 => integer(middle, false),
        T::Int64 => integer(64, false),
        T::UInt8 => integer(8, true),
        T::UInt16 => integer(16, true),
        T::UInt32 => integer(middle, true),
        T::UInt64 => integer(64, true),
        T::Float32 | T::Float64 => StoredType::Real {
            single: ty == T::Float32,
            unsigned,
        },
        T::Decimal { precision, scale } => StoredType::Decimal {
            precision,
            scale,
            unsigned,
        },
        T::Text => StoredType::Text(longest_text(word, length)),
        T::Binary => StoredType::Binary {
            longest: match word {
                "binary" => Some(length.unwrap_or(1)),
                "varbinary" => length,
                "tinyblob" => Some(TINY),
                "blob" => Some(PLAIN),
                "mediumblob" => Some(MEDIUM),
                _ => None,
            },
            fixed: word == "binary",
        },
        T::Date => StoredType::Date,
        T::Timestamp => StoredType::Time {
            digits: match word {
                // As the engine has them.
                "" => 6,
                _ => length.and_then(|it| u8::try_from(it).ok()).unwrap_or(0),
            },
        },
    }
}

fn longest_text(word: &str, length: Option<u32>) -> Longest {
    match word {
        "char" | "character" | "nchar" => Longest::Trimmed(length.unwrap_or(1)),
        "varchar" | "nvarchar" => length.map_or(Longest::Unbounded, Longest::Characters),
        "tinytext" => Longest::Bytes(TINY),
        "text" => Longest::Bytes(PLAIN),
        "mediumtext" => Longest::Bytes(MEDIUM),
        _ => Longest::Unbounded,
    }
}

/// The default of a column; NULL where it has no other. Whatever a column that is computed of another one gets, it has the computed value
/// in the end.
///
/// # Errors
/// It has none and may not be NULL, or it cannot be read.
pub(crate) fn default_of(column: &Column) -> Result<InsertedValue, ClientError> {
    match column.default_expression() {
        Some(expression) => Ok(sql::mysql::default_value(expression)?),
        None if column.text_key_of().is_some() => Ok(InsertedValue::Number("0".to_owned())),
        None if column.nullable => Ok(InsertedValue::Null),
        None => {
            let sentence = format!(
                "the column {} gets no value, and has neither a default nor NULL: give it one",
                column.name
            );
            Err(ClientError::new(ErrorCode::NO_DEFAULT, sentence))
        }
    }
}

/// The columns with positions, if there are some under usual names.
pub(crate) fn positions(names: &[String]) -> Option<(String, String)> {
    let find = |wanted: &str| names.iter().find(|name| fold_name(name) == wanted).cloned();
    POSITIONS
        .iter()
        .find_map(|(ra, dec)| find(ra).zip(find(dec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(ty: &str) -> String {
        let column = ingest::declared_column("c", ty).unwrap();
        stored_column(&column).ty.to_string()
    }

    #[test]
    fn columns_store_what_they_are_declared_for() {
        for (declared, expected) in [
            ("VARCHAR(4) NOT NULL", "VARCHAR(4)"),
            ("char", "CHAR(1)"),
            ("CHAR ( 12 )", "CHAR(12)"),
            ("text", "TEXT(65535)"),
            ("longtext", "LONGTEXT"),
            ("json", "LONGTEXT"),
            ("mediumint(8) unsigned", "MEDIUMINT UNSIGNED"),
            ("int(11)", "INT"),
            ("decimal(8, 2) unsigned", "DECIMAL(8,2) UNSIGNED"),
            ("float unsigned", "FLOAT UNSIGNED"),
            ("datetime", "DATETIME"),
            ("timestamp(3)", "DATETIME(3)"),
            ("binary(3)", "BINARY(3)"),
            ("blob", "VARBINARY(65535)"),
        ] {
            assert_eq!(stored(declared), expected, "{declared}");
        }
        let mut undeclared = ingest::declared_column("c", "datetime").unwrap();
        undeclared.declared = None;
        assert_eq!(stored_column(&undeclared).ty.to_string(), "DATETIME(6)");
    }

    #[test]
    fn defaults_are_kept_in_the_declaration() {
        let declared = |ty: &str, default: Option<&str>| {
            declared_column(&DeclaredColumn {
                name: "c".to_owned(),
                ty: ty.to_owned(),
                default: default.map(str::to_owned),
            })
            .unwrap()
        };
        let column = declared("VARCHAR(20)", Some("'not null'"));
        assert!(column.nullable);
        assert_eq!(
            default_of(&column),
            Ok(InsertedValue::Text("not null".to_owned()))
        );
        assert_eq!(default_of(&declared("INT", None)), Ok(InsertedValue::Null));
        let error = default_of(&declared("INT NOT NULL", None)).unwrap_err();
        assert_eq!(error.code, ErrorCode::NO_DEFAULT);
    }
}
