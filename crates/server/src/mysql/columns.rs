//! Column definitions: a column's type in MySQL, and its flags.
//!
//! Source: *MySQL Source Code Documentation*, "Column Definition Protocol", and the type codes of `field_types.h`.

use arrow::datatypes::{DataType, Field, TimeUnit};
use sql::connection::CharacterSet;

use super::wire::{put_bytes, put_null};

/// Type codes of the protocol.
pub(crate) mod types {
    pub(crate) const DECIMAL: u8 = 0;
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const NULL: u8 = 6;
    pub(crate) const TIMESTAMP: u8 = 7;
    pub(crate) const LONGLONG: u8 = 8;
    pub(crate) const INT24: u8 = 9;
    pub(crate) const DATE: u8 = 10;
    pub(crate) const TIME: u8 = 11;
    pub(crate) const DATETIME: u8 = 12;
    pub(crate) const YEAR: u8 = 13;
    pub(crate) const VARCHAR: u8 = 15;
    pub(crate) const BIT: u8 = 16;
    pub(crate) const JSON: u8 = 245;
    pub(crate) const NEWDECIMAL: u8 = 246;
    pub(crate) const ENUM: u8 = 247;
    pub(crate) const SET: u8 = 248;
    pub(crate) const TINY_BLOB: u8 = 249;
    pub(crate) const MEDIUM_BLOB: u8 = 250;
    pub(crate) const LONG_BLOB: u8 = 251;
    pub(crate) const BLOB: u8 = 252;
    pub(crate) const VAR_STRING: u8 = 253;
    pub(crate) const STRING: u8 = 254;
}

const UTF8: u16 = 255;
const BINARY: u16 = 63;

const NOT_NULL_FLAG: u16 = 1;
const BLOB_FLAG: u16 = 16;
const UNSIGNED_FLAG: u16 = 32;
const BINARY_FLAG: u16 = 128;
const NUMBER_FLAG: u16 = 32_768;

/// Bytes of a text column without a declared length: those of a VARCHAR of 16,383 characters.
const TEXT_LENGTH: u32 = UTF8_BYTES * 16_383;
/// Bytes that a character of UTF-8 may have.
const UTF8_BYTES: u32 = 4;
const BLOB_LENGTH: u32 = u32::MAX;
/// The number of decimals of a number that has as many as it needs.
const ANY_DECIMALS: u8 = 31;

/// The MySQL type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(crate) ty: u8,
    character_set: u16,
    length: u32,
    flags: u16,
    decimals: u8,
}

impl ColumnType {
    /// The type of a column of a result.
    pub(crate) fn of(field: &Field) -> Self {
        let of_type = match field.metadata().contains_key(sql::functions::TIME) {
            true => Self::of_type(&DataType::Time64(TimeUnit::Microsecond)),
            false => Self::of_type(field.data_type()),
        };
        let of_type = match fraction_digits(field) {
            Some(decimals) => Self {
                length: fractional(MOMENT_LENGTH, decimals),
                decimals,
                ..of_type
            },
            None => of_type,
        };
        let not_null = match field.is_nullable() || of_type.ty == types::NULL {
            true => 0,
            false => NOT_NULL_FLAG,
        };
        Self {
            flags: of_type.flags | not_null,
            ..of_type
        }
    }

    fn of_type(ty: &DataType) -> Self {
        use DataType as D;
        match ty {
            D::Null => Self::new(types::NULL, 0, BINARY_FLAG, 0),
            // TINYINT(1), as MySQL's BOOLEAN is: many drivers make bytes of a BIT(1).
            D::Boolean => Self::signed(types::TINY, 1),
            D::Int8 => Self::signed(types::TINY, 4),
            D::Int16 => Self::signed(types::SHORT, 6),
            D::Int32 => Self::signed(types::LONG, 11),
            D::Int64 => Self::signed(types::LONGLONG, 20),
            D::UInt8 => Self::unsigned(types::TINY, 3),
            D::UInt16 => Self::unsigned(types::SHORT, 5),
            D::UInt32 => Self::unsigned(types::LONG, 10),
            D::UInt64 => Self::unsigned(types::LONGLONG, 20),
            D::Float16 | D::Float32 => Self::real(types::FLOAT, 12),
            D::Float64 => Self::real(types::DOUBLE, 22),
            D::Decimal32(precision, scale)
            | D::Decimal64(precision, scale)
            | D::Decimal128(precision, scale)
            | D::Decimal256(precision, scale) => Self::decimal(*precision, *scale),
            D::Date32 | D::Date64 => Self::new(types::DATE, 10, BINARY_FLAG, 0),
            D::Timestamp(unit, _) => {
                let decimals = decimals(unit);
                Self::new(
                    types::DATETIME,
                    fractional(MOMENT_LENGTH, decimals),
                    BINARY_FLAG,
                    decimals,
                )
            }
            D::Time32(unit) | D::Time64(unit) => {
                let decimals = decimals(unit);
                Self::new(types::TIME, fractional(10, decimals), BINARY_FLAG, decimals)
            }
            D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => {
                Self::new(types::BLOB, BLOB_LENGTH, BINARY_FLAG | BLOB_FLAG, 0)
            }
            _ => Self::text(),
        }
    }

    /// The type of a statement's parameter, which may be anything.
    pub(crate) fn any() -> Self {
        Self::new(types::VAR_STRING, 0, BINARY_FLAG, 0)
    }

    fn new(ty: u8, length: u32, flags: u16, decimals: u8) -> Self {
        Self {
            ty,
            character_set: BINARY,
            length,
            flags,
            decimals,
        }
    }

    fn text() -> Self {
        Self {
            character_set: UTF8,
            ..Self::new(types::VAR_STRING, TEXT_LENGTH, 0, 0)
        }
    }

    /// The same where text is in a character set in which a character is a byte.
    fn in_character_set(self, set: &CharacterSet) -> Self {
        match self.character_set {
            UTF8 => Self {
                character_set: set.number.into(),
                length: self.length / UTF8_BYTES,
                ..self
            },
            _ => self,
        }
    }

    fn signed(ty: u8, length: u32) -> Self {
        Self::new(ty, length, BINARY_FLAG | NUMBER_FLAG, 0)
    }

    fn unsigned(ty: u8, length: u32) -> Self {
        Self::new(ty, length, BINARY_FLAG | NUMBER_FLAG | UNSIGNED_FLAG, 0)
    }

    fn real(ty: u8, length: u32) -> Self {
        Self::new(ty, length, BINARY_FLAG | NUMBER_FLAG, ANY_DECIMALS)
    }

    fn decimal(precision: u8, scale: i8) -> Self {
        // A sign, and a decimal point if there are decimals.
        let length = u32::from(precision) + 1 + u32::from(scale > 0);
        let scale = u8::try_from(scale).unwrap_or(0);
        Self::new(types::NEWDECIMAL, length, BINARY_FLAG | NUMBER_FLAG, scale)
    }
}

/// The type of a column of a result as CREATE TABLE would have it, and whether its values are bytes rather than text.
pub(crate) fn declared_type(field: &Field) -> (String, bool) {
    use DataType as D;
    let with_fraction = |name: &str, unit: &TimeUnit| match decimals(unit) {
        0 => name.to_owned(),
        decimals => format!("{name}({decimals})"),
    };
    let name = match field.data_type() {
        D::Null => return ("BINARY(0)".to_owned(), true),
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => {
            return ("LONGBLOB".to_owned(), true);
        }
        D::Boolean => "TINYINT(1)".to_owned(),
        D::Int8 => "TINYINT".to_owned(),
        D::Int16 => "SMALLINT".to_owned(),
        D::Int32 => "INT".to_owned(),
        D::Int64 => "BIGINT".to_owned(),
        D::UInt8 => "TINYINT UNSIGNED".to_owned(),
        D::UInt16 => "SMALLINT UNSIGNED".to_owned(),
        D::UInt32 => "INT UNSIGNED".to_owned(),
        D::UInt64 => "BIGINT UNSIGNED".to_owned(),
        D::Float16 | D::Float32 => "FLOAT".to_owned(),
        D::Float64 => "DOUBLE".to_owned(),
        D::Decimal32(precision, scale)
        | D::Decimal64(precision, scale)
        | D::Decimal128(precision, scale)
        | D::Decimal256(precision, scale) => format!("DECIMAL({precision},{scale})"),
        D::Date32 | D::Date64 => "DATE".to_owned(),
        D::Timestamp(unit, _) => with_fraction("DATETIME", unit),
        D::Time32(unit) | D::Time64(unit) => with_fraction("TIME", unit),
        _ => format!("VARCHAR({})", TEXT_LENGTH / UTF8_BYTES),
    };
    (name, false)
}

/// Characters of a date with a time of day.
const MOMENT_LENGTH: u32 = 19;

/// How many digits of a second all values of a column have, if that is known.
pub(super) fn fraction_digits(field: &Field) -> Option<u8> {
    let is_time = matches!(field.data_type(), DataType::Timestamp(..));
    let known = field.metadata().get(sql::functions::FRACTION_DIGITS);
    known.filter(|_| is_time)?.parse().ok()
}

/// Decimals of a second: MySQL has six at most.
fn decimals(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => 6,
    }
}

fn fractional(length: u32, decimals: u8) -> u32 {
    match decimals {
        0 => length,
        decimals => length + 1 + u32::from(decimals),
    }
}

/// Appends the definition of a result's column, for a client that reads text in a character set or else in UTF-8.
pub(crate) fn define(
    bytes: &mut Vec<u8>,
    heading: &str,
    field: &Field,
    set: Option<&CharacterSet>,
) {
    let told = |key| field.metadata().get(key).map_or("", String::as_str);
    let names = [
        told(engine::DATABASE),
        told(engine::ALIAS),
        told(engine::TABLE),
        heading,
        told(engine::COLUMN),
    ];
    put_definition(bytes, names, ColumnType::of(field), set);
}

/// Appends the definition of a statement's parameter, which may be anything.
pub(crate) fn define_parameter(bytes: &mut Vec<u8>) {
    put_definition(bytes, ["", "", "", "?", ""], ColumnType::any(), None);
}

/// The names are those of the database, of the table in the statement and its own, the heading, and the column's own name.
fn put_definition(
    bytes: &mut Vec<u8>,
    names: [&str; 5],
    column: ColumnType,
    set: Option<&CharacterSet>,
) {
    put_bytes(bytes, b"def");
    for name in names {
        match set {
            Some(set) => put_bytes(bytes, &set.encode(name)),
            None => put_bytes(bytes, name.as_bytes()),
        }
    }
    let column = set.map_or(column, |set| column.in_character_set(set));
    // What follows has a fixed length.
    bytes.push(0x0c);
    bytes.extend_from_slice(&column.character_set.to_le_bytes());
    bytes.extend_from_slice(&column.length.to_le_bytes());
    bytes.push(column.ty);
    bytes.extend_from_slice(&column.flags.to_le_bytes());
    bytes.push(column.decimals);
    bytes.extend_from_slice(&[0; 2]);
}

/// Appends the definition of a table's column for COM_FIELD_LIST: with its default, which is NULL.
pub(crate) fn define_with_default(bytes: &mut Vec<u8>, field: &Field, set: Option<&CharacterSet>) {
    define(bytes, field.name(), field, set);
    put_null(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_what_their_values_are() {
        let of = |ty: DataType| {
            let column = ColumnType::of(&Field::new("x", ty, true));
            (
                column.ty,
                column.character_set,
                column.length,
                column.flags,
                column.decimals,
            )
        };
        assert_eq!(of(DataType::Int64), (types::LONGLONG, 63, 20, 0x8080, 0));
        assert_eq!(of(DataType::UInt8), (types::TINY, 63, 3, 0x80a0, 0));
        assert_eq!(of(DataType::Float64), (types::DOUBLE, 63, 22, 0x8080, 31));
        assert_eq!(
            of(DataType::Decimal128(10, 2)),
            (types::NEWDECIMAL, 63, 12, 0x8080, 2)
        );
        assert_eq!(
            of(DataType::Utf8),
            (types::VAR_STRING, 255, TEXT_LENGTH, 0, 0)
        );
        assert_eq!(of(DataType::Boolean), (types::TINY, 63, 1, 0x8080, 0));
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(of(micros), (types::DATETIME, 63, 26, 0x80, 6));
        let time = Field::new("t", DataType::Utf8, true);
        let mark = [(sql::functions::TIME.to_owned(), String::new())];
        let time = ColumnType::of(&time.with_metadata(mark.into()));
        assert_eq!((time.ty, time.length, time.decimals), (types::TIME, 17, 6));
        let key = ColumnType::of(&Field::new("key", DataType::Int64, false));
        assert_eq!(key.flags, 0x8081);
    }

    #[test]
    fn definitions_are_as_the_protocol_has_them() {
        let mut bytes = vec![];
        define(
            &mut bytes,
            "n",
            &Field::new("n", DataType::Int32, true),
            None,
        );
        assert_eq!(
            bytes,
            b"\x03def\0\0\0\x01n\0\x0c\x3f\0\x0b\0\0\0\x03\x80\x80\0\0\0"
        );
        bytes.clear();
        let text = Field::new("é", DataType::Utf8, true);
        define(&mut bytes, "é", &text, CharacterSet::named("latin1"));
        assert_eq!(
            bytes,
            b"\x03def\0\0\0\x01\xe9\0\x0c\x08\0\xff\x3f\0\0\xfd\0\0\0\0\0"
        );
    }
}
