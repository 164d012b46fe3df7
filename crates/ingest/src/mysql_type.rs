//! MySQL column types as they stand in a CREATE TABLE: `bigint(20) unsigned NOT NULL`.

use catalog::{Column, ColumnType};

use crate::error::nearest;

/// Every type name known, for suggestions.
const NAMES: [&str; 33] = [
    "bool",
    "boolean",
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "integer",
    "bigint",
    "float",
    "double",
    "real",
    "decimal",
    "numeric",
    "bit",
    "date",
    "datetime",
    "timestamp",
    "time",
    "year",
    "char",
    "varchar",
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "enum",
    "set",
    "json",
    "binary",
    "varbinary",
    "blob",
    "mediumblob",
    "longblob",
];

/// A column as a CREATE TABLE declares it.
///
/// # Errors
/// A sentence, for a type that is not known or that cannot be kept exactly.
pub fn declared_column(name: &str, declared: &str) -> Result<Column, String> {
    let (ty, nullable) = parse(declared)?;
    Ok(Column {
        name: name.to_owned(),
        ty,
        nullable,
        declared: Some(declared.to_owned()),
    })
}

/// The column type and whether NULL is allowed.
///
/// A type without `NOT NULL` (and without `PRIMARY KEY`) is nullable. Display widths are ignored, `tinyint(1)` is an
/// integer, `TIME` (which may exceed a day) and `ENUM` are text, `BIT(1)` is a boolean and wider ones unsigned integers.
///
/// # Errors
/// A sentence, for a type that is not known or that cannot be kept exactly.
pub(crate) fn parse(declared: &str) -> Result<(ColumnType, bool), String> {
    let lower = declared.trim().to_ascii_lowercase();
    let name_end = lower
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(lower.len());
    let (name, rest) = lower.split_at(name_end);
    let (arguments, attributes) = split_arguments(rest);
    let nullable = !attributes.contains("not null") && !attributes.contains("primary key");
    let unsigned = attributes.split_whitespace().any(|word| word == "unsigned");
    let ty = match name {
        "float" => float_type(arguments),
        "double" | "real" => ColumnType::Float64,
        "decimal" | "numeric" | "dec" | "fixed" => decimal_type(declared, arguments)?,
        "bit" => bit_type(arguments),
        _ => plain_type(name, unsigned).ok_or_else(|| unknown(declared, name))?,
    };
    Ok((ty, nullable))
}

/// The name of a type, as messages have it: `SMALLINT`.
pub(crate) fn shown(ty: ColumnType) -> String {
    written(ty, true).to_uppercase()
}

/// The declaration of a type, which [`parse`] reads back.
pub(crate) fn written(ty: ColumnType, nullable: bool) -> String {
    use ColumnType as T;
    let name = match ty {
        T::Boolean => "boolean".to_owned(),
        T::Int8 => "tinyint".to_owned(),
        T::Int16 => "smallint".to_owned(),
        T::Int32 => "int".to_owned(),
        T::Int64 => "bigint".to_owned(),
        T::UInt8 => "tinyint unsigned".to_owned(),
        T::UInt16 => "smallint unsigned".to_owned(),
        T::UInt32 => "int unsigned".to_owned(),
        T::UInt64 => "bigint unsigned".to_owned(),
        T::Float32 => "float".to_owned(),
        T::Float64 => "double".to_owned(),
        T::Text => "text".to_owned(),
        T::Binary => "longblob".to_owned(),
        T::Date => "date".to_owned(),
        T::Timestamp => "datetime".to_owned(),
        T::Decimal { precision, scale } => format!("decimal({precision},{scale})"),
    };
    match nullable {
        true => name,
        false => format!("{name} NOT NULL"),
    }
}

fn split_arguments(rest: &str) -> (&str, &str) {
    let rest = rest.trim_start();
    match rest
        .strip_prefix('(')
        .and_then(|inner| inner.split_once(')'))
    {
        Some((arguments, attributes)) => (arguments, attributes),
        None => ("", rest),
    }
}

fn plain_type(name: &str, unsigned: bool) -> Option<ColumnType> {
    use ColumnType as T;
    let (signed, or_unsigned) = match name {
        "bool" | "boolean" => (T::Boolean, T::Boolean),
        "tinyint" => (T::Int8, T::UInt8),
        "smallint" => (T::Int16, T::UInt16),
        "mediumint" | "int" | "integer" => (T::Int32, T::UInt32),
        "bigint" | "serial" => (T::Int64, T::UInt64),
        "year" => (T::Int16, T::Int16),
        "date" => (T::Date, T::Date),
        "datetime" | "timestamp" => (T::Timestamp, T::Timestamp),
        "char" | "varchar" | "nchar" | "nvarchar" | "tinytext" | "text" | "mediumtext"
        | "longtext" | "enum" | "set" | "json" | "time" | "character" => (T::Text, T::Text),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
            (T::Binary, T::Binary)
        }
        _ => return None,
    };
    Some(if unsigned { or_unsigned } else { signed })
}

/// `float(p)` with more than 24 bits is a double in MySQL; `float(m,d)` is a float.
fn float_type(arguments: &str) -> ColumnType {
    match arguments.trim().parse::<u32>() {
        Ok(bits) if bits > 24 => ColumnType::Float64,
        _ => ColumnType::Float32,
    }
}

fn bit_type(arguments: &str) -> ColumnType {
    match arguments.trim().parse::<u32>() {
        Ok(bits) if bits > 1 => ColumnType::UInt64,
        _ => ColumnType::Boolean,
    }
}

fn decimal_type(declared: &str, arguments: &str) -> Result<ColumnType, String> {
    // MySQL's DECIMAL alone is DECIMAL(10,0).
    let arguments = if arguments.trim().is_empty() {
        "10,0"
    } else {
        arguments
    };
    let mut numbers = arguments.split(',').map(|n| n.trim().parse::<u8>());
    let precision = numbers.next();
    let scale = numbers.next().unwrap_or(Ok(0));
    match (precision, scale) {
        (Some(Ok(precision)), Ok(scale)) if (1..=38).contains(&precision) && scale <= precision => {
            Ok(ColumnType::Decimal { precision, scale })
        }
        _ => Err(format!(
            "the type {declared:?} cannot be kept exactly: a DECIMAL has 1 to 38 digits; declare it DOUBLE or VARCHAR"
        )),
    }
}

fn unknown(declared: &str, name: &str) -> String {
    match nearest(name, NAMES) {
        Some(near) => format!("{declared:?} is not a MySQL type: did you mean {near}?"),
        None => format!("{declared:?} is not a MySQL type that a table can hold"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        use ColumnType as T;
        for (text, expected) in [
            ("bigint(20) NOT NULL", (T::Int64, false)),
            ("BIGINT UNSIGNED", (T::UInt64, true)),
            ("int(11) DEFAULT '9999'", (T::Int32, true)),
            ("tinyint(4) default NULL", (T::Int8, true)),
            ("smallint(6)", (T::Int16, true)),
            ("float NOT NULL", (T::Float32, false)),
            ("float(53)", (T::Float64, true)),
            ("double precision", (T::Float64, true)),
            (
                "decimal(12,3) NOT NULL",
                (
                    T::Decimal {
                        precision: 12,
                        scale: 3,
                    },
                    false,
                ),
            ),
            (
                "decimal",
                (
                    T::Decimal {
                        precision: 10,
                        scale: 0,
                    },
                    true,
                ),
            ),
            ("varchar(4096) DEFAULT NULL", (T::Text, true)),
            ("binary(120) NOT NULL", (T::Binary, false)),
            ("blob", (T::Binary, true)),
            (
                "timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP",
                (T::Timestamp, false),
            ),
            ("int primary key", (T::Int32, false)),
            ("bit(1)", (T::Boolean, true)),
            ("bit(8)", (T::UInt64, true)),
            ("enum('a','b')", (T::Text, true)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unknown_types_are_rejected_with_a_hint() {
        assert!(parse("flot").unwrap_err().contains("did you mean float"));
        assert!(parse("point").is_err());
        assert!(parse("decimal(65,30)").unwrap_err().contains("38"));
        assert!(parse("").is_err());
    }
}
