//! The values that a client binds to the placeholders of a prepared statement, read and written into its text.
//!
//! Source: *MySQL Source Code Documentation*, "COM_STMT_EXECUTE" and "Binary Protocol Value".

use std::collections::BTreeMap;
use std::fmt::Write;

use sql::ErrorCode;
use sql::connection::CharacterSet;

use super::columns::types;
use super::wire::{MalformedPacket, Reader};
use crate::ClientError;

/// Bytes of overhead of a long-data value, about.
pub(crate) const ENTRY: usize = 48;

/// The type of a parameter, as the client declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParameterType {
    ty: u8,
    unsigned: bool,
}

/// The parameters of a prepared statement.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    /// The number of placeholders.
    pub(crate) count: usize,
    /// The types that were bound last.
    types: Option<Vec<ParameterType>>,
    /// Values from COM_STMT_SEND_LONG_DATA, by the index of their parameter.
    ahead: BTreeMap<u16, Vec<u8>>,
    /// Memory of these values.
    ahead_bytes: usize,
}

impl Parameters {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }

    /// Appends a chunk of a long-data value.
    pub(crate) fn add_ahead(&mut self, parameter: u16, piece: &[u8]) {
        let value = self.ahead.entry(parameter).or_insert_with(|| {
            self.ahead_bytes += ENTRY;
            Vec::new()
        });
        value.extend_from_slice(piece);
        self.ahead_bytes += piece.len();
    }

    /// Bytes of memory of the long-data values.
    pub(crate) fn bytes_ahead(&self) -> usize {
        self.ahead_bytes
    }

    pub(crate) fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.ahead_bytes = 0;
    }

    /// The values as SQL literals, of texts in a character set or else in UTF-8. Consumes the long-data values.
    pub(crate) fn read(
        &mut self,
        reader: &mut Reader<'_>,
        set: Option<&CharacterSet>,
    ) -> Result<Vec<String>, ClientError> {
        let ahead = std::mem::take(&mut self.ahead);
        self.ahead_bytes = 0;
        if self.count == 0 {
            return Ok(Vec::new());
        }
        let nulls = reader.bytes(self.count.div_ceil(8)).map_err(in_values)?;
        if reader.u8().map_err(in_values)? == 1 {
            self.types = Some(read_types(reader, self.count).map_err(in_values)?);
        }
        let types = self.types.as_deref().ok_or_else(|| {
            let sentence = "the parameters' types are not known: they come with the first values";
            ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence)
        })?;
        let is_null = |at: usize| {
            nulls
                .get(at / 8)
                .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
        };
        let literal = |(at, ty): (usize, &ParameterType)| {
            let sent = u16::try_from(at).ok().and_then(|at| ahead.get(&at));
            match sent {
                Some(bytes) => Ok(ty.text_or_bytes(bytes, set)),
                None if is_null(at) => Ok("NULL".to_owned()),
                None => ty.literal(reader, set),
            }
        };
        types.iter().enumerate().map(literal).collect()
    }
}

fn in_values(_: MalformedPacket) -> ClientError {
    ClientError::malformed("it ends before the last parameter's value")
}

fn read_types(
    reader: &mut Reader<'_>,
    count: usize,
) -> Result<Vec<ParameterType>, MalformedPacket> {
    let one = |_| {
        Ok(ParameterType {
            ty: reader.u8()?,
            unsigned: reader.u8()? & 0x80 != 0,
        })
    };
    (0..count).map(one).collect()
}

impl ParameterType {
    /// Whether its values are bytes, which may be text: drivers disagree about which type means which.
    fn is_bytes(self) -> bool {
        matches!(
            self.ty,
            types::BIT
                | types::TINY_BLOB
                | types::MEDIUM_BLOB
                | types::LONG_BLOB
                | types::BLOB
                | types::VARCHAR
                | types::VAR_STRING
                | types::STRING
                | types::ENUM
                | types::SET
                | types::JSON
        )
    }

    /// Whether its values are text and no bytes, in a character set that is not UTF-8.
    fn is_text(self) -> bool {
        matches!(
            self.ty,
            types::VARCHAR
                | types::VAR_STRING
                | types::STRING
                | types::ENUM
                | types::SET
                | types::JSON
        )
    }

    fn text_or_bytes(self, bytes: &[u8], set: Option<&CharacterSet>) -> String {
        match set {
            Some(set) if self.is_text() => quoted(&set.decode(bytes)),
            _ => text_or_bytes(bytes),
        }
    }

    fn literal(
        self,
        reader: &mut Reader<'_>,
        set: Option<&CharacterSet>,
    ) -> Result<String, ClientError> {
        let read = match self.ty {
            types::NULL => Ok("NULL".to_owned()),
            types::TINY => reader.u8().map(|value| match self.unsigned {
                true => value.to_string(),
                false => signed((value as i8).into()),
            }),
            types::SHORT | types::YEAR => reader.u16().map(|value| match self.unsigned {
                true => value.to_string(),
                false => signed((value as i16).into()),
            }),
            types::LONG | types::INT24 => reader.u32().map(|value| match self.unsigned {
                true => value.to_string(),
                false => signed((value as i32).into()),
            }),
            types::LONGLONG => reader.u64().map(|value| match self.unsigned {
                true => value.to_string(),
                false => signed(value as i64),
            }),
            types::FLOAT => reader.f32().map(|value| real(value.into())),
            types::DOUBLE => reader.f64().map(real),
            types::DATE => return moment(reader, true),
            types::DATETIME | types::TIMESTAMP => return moment(reader, false),
            types::TIME => return time(reader),
            types::DECIMAL | types::NEWDECIMAL => {
                return decimal(reader.sized().map_err(in_values)?);
            }
            _ if self.is_bytes() => {
                let bytes = reader.sized();
                bytes.map(|bytes| self.text_or_bytes(bytes, set))
            }
            other => {
                let sentence =
                    format!("a parameter is of a type that is not known, number {other}");
                return Err(ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence));
            }
        };
        read.map_err(in_values)
    }
}

/// A number, with parentheses if its sign could be taken for an operator or a comment.
fn signed(value: i64) -> String {
    match value {
        0.. => value.to_string(),
        _ => format!("({value})"),
    }
}

/// A number with all its digits. NaN and infinities are NULL, as in the data.
fn real(value: f64) -> String {
    match value {
        value if !value.is_finite() => "NULL".to_owned(),
        value if value < 0.0 => format!("({value:e})"),
        value => format!("{:e}", value.abs()),
    }
}

fn decimal(bytes: &[u8]) -> Result<String, ClientError> {
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match is_number {
        // A literal would be an unsigned integer, of which no preparation tells.
        true if is_beyond_integers(text) => {
            Ok(format!("CAST('{text}' AS DECIMAL({DIGITS_OF_DECIMAL}))"))
        }
        true if text.starts_with(['-', '+']) => Ok(format!("({text})")),
        true => Ok(text.to_owned()),
        false => {
            let sentence = format!("{:?} is no decimal number", String::from_utf8_lossy(bytes));
            Err(ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence))
        }
    }
}

/// Digits of the longest decimal.
const DIGITS_OF_DECIMAL: usize = 38;

/// Whether a number is a whole one beyond those of 64 bits with a sign, and a decimal holds it.
fn is_beyond_integers(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && digits.len() <= DIGITS_OF_DECIMAL && text.parse::<i64>().is_err()
}

/// Text as a literal; bytes that are not UTF-8 in hexadecimal digits.
fn text_or_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => quoted(text),
        Err(_) => {
            let mut literal = String::with_capacity(2 * bytes.len() + 3);
            literal.push_str("x'");
            for byte in bytes {
                // Writing into a `String` does not fail.
                let _ = write!(literal, "{byte:02x}");
            }
            literal.push('\'');
            literal
        }
    }
}

/// A text as a literal.
pub(super) fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            literal.push('\\');
        }
        literal.push(c);
    }
    literal.push('\'');
    literal
}

fn wrong_time() -> ClientError {
    ClientError::new(
        ErrorCode::WRONG_PARAMETERS,
        "a parameter is no date or time of the calendar",
    )
}

/// A date, or a date and a time. The zero date, which is invalid, is NULL.
fn moment(reader: &mut Reader<'_>, date_only: bool) -> Result<String, ClientError> {
    let bytes = reader.sized().map_err(in_values)?;
    let mut parts = Reader::new(bytes);
    if !matches!(bytes.len(), 4 | 7 | 11) {
        return match bytes.len() {
            0 => Ok("NULL".to_owned()),
            _ => Err(wrong_time()),
        };
    }
    let mut read = || -> Result<_, MalformedPacket> {
        let (year, month, day) = (parts.u16()?, parts.u8()?, parts.u8()?);
        let time = match parts.is_empty() {
            true => (0, 0, 0),
            false => (parts.u8()?, parts.u8()?, parts.u8()?),
        };
        let micros = match parts.is_empty() {
            true => 0,
            false => parts.u32()?,
        };
        Ok(((year, month, day), time, micros))
    };
    let ((year, month, day), (hour, minute, second), micros) = read().map_err(in_values)?;
    if (year, month, day) == (0, 0, 0) {
        return Ok("NULL".to_owned());
    }
    let on_calendar = year <= 9999
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && micros < 1_000_000;
    match (on_calendar, date_only) {
        (false, _) => Err(wrong_time()),
        (true, true) => Ok(format!("DATE '{year:04}-{month:02}-{day:02}'")),
        (true, false) => Ok(format!(
            "TIMESTAMP '{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}'"
        )),
    }
}

/// A time of day or an interval: as text, because Meridian has no type for it.
fn time(reader: &mut Reader<'_>) -> Result<String, ClientError> {
    let bytes = reader.sized().map_err(in_values)?;
    let mut parts = Reader::new(bytes);
    match bytes.len() {
        0 => return Ok("'00:00:00'".to_owned()),
        8 | 12 => {}
        _ => return Err(wrong_time()),
    }
    let mut read = || -> Result<_, MalformedPacket> {
        let (negative, days) = (parts.u8()? != 0, parts.u32()?);
        let time = (parts.u8()?, parts.u8()?, parts.u8()?);
        let micros = match parts.is_empty() {
            true => 0,
            false => parts.u32()?,
        };
        Ok((negative, days, time, micros))
    };
    let (negative, days, (hour, minute, second), micros) = read().map_err(in_values)?;
    if hour > 23 || minute > 59 || second > 59 || micros > 999_999 {
        return Err(wrong_time());
    }
    let sign = if negative { "-" } else { "" };
    let hours = u64::from(days) * 24 + u64::from(hour);
    Ok(format!(
        "'{sign}{hours:02}:{minute:02}:{second:02}.{micros:06}'"
    ))
}

/// A statement with literals in the places of its placeholders, each of which is one byte.
pub(crate) fn bind<'a>(
    text: &str,
    offsets: &[usize],
    literals: impl IntoIterator<Item = &'a str>,
) -> String {
    let mut bound = String::with_capacity(text.len());
    let mut rest = 0;
    for (place, literal) in offsets.iter().zip(literals) {
        bound.push_str(text.get(rest..*place).unwrap_or_default());
        // With spaces around it: two adjacent quotes would be one.
        bound.push(' ');
        bound.push_str(literal);
        bound.push(' ');
        rest = place + 1;
    }
    bound.push_str(text.get(rest..).unwrap_or_default());
    bound
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chance::feed;

    /// Binds parameters of types and values that a client sent.
    fn read(count: usize, bytes: &[u8]) -> Result<Vec<String>, ClientError> {
        Parameters::new(count).read(&mut Reader::new(bytes), None)
    }

    fn one(ty: u8, unsigned: bool, value: &[u8]) -> Result<String, ClientError> {
        let mut bytes = vec![0, 1, ty, if unsigned { 0x80 } else { 0 }];
        bytes.extend_from_slice(value);
        read(1, &bytes).map(|mut literals| literals.remove(0))
    }

    #[test]
    fn values_become_literals() {
        for (ty, unsigned, value, literal) in [
            (types::TINY, false, &b"\xff"[..], "(-1)"),
            (types::TINY, true, b"\xff", "255"),
            (types::SHORT, false, b"\x00\x80", "(-32768)"),
            (types::LONG, true, b"\xff\xff\xff\xff", "4294967295"),
            (
                types::LONGLONG,
                false,
                &i64::MIN.to_le_bytes(),
                "(-9223372036854775808)",
            ),
            (
                types::LONGLONG,
                true,
                &u64::MAX.to_le_bytes(),
                "18446744073709551615",
            ),
            (types::DOUBLE, false, &1.5_f64.to_le_bytes(), "1.5e0"),
            (
                types::DOUBLE,
                false,
                &(-1e300_f64).to_le_bytes(),
                "(-1e300)",
            ),
            (types::DOUBLE, false, &f64::NAN.to_le_bytes(), "NULL"),
            (types::FLOAT, false, &0.5_f32.to_le_bytes(), "5e-1"),
            (types::NEWDECIMAL, false, b"\x05-1.50", "(-1.50)"),
            (
                types::NEWDECIMAL,
                false,
                b"\x1418446744073709551615",
                "CAST('18446744073709551615' AS DECIMAL(38))",
            ),
            (types::VAR_STRING, false, b"\x07it's \\%", "'it\\'s \\\\%'"),
            (types::BLOB, false, b"\x02\xff\x00", "x'ff00'"),
            (types::BLOB, false, b"\x02ab", "'ab'"),
            (types::VAR_STRING, false, b"\x01\xff", "x'ff'"),
            (
                types::DATE,
                false,
                b"\x04\xda\x07\x06\x0f",
                "DATE '2010-06-15'",
            ),
            (
                types::DATETIME,
                false,
                b"\x07\xda\x07\x06\x0f\x01\x02\x03",
                "TIMESTAMP '2010-06-15 01:02:03.000000'",
            ),
            (types::DATETIME, false, b"\x00", "NULL"),
            (
                types::TIME,
                false,
                b"\x08\x01\x01\0\0\0\x02\x03\x04",
                "'-26:03:04.000000'",
            ),
            (types::NULL, false, b"", "NULL"),
        ] {
            assert_eq!(one(ty, unsigned, value).as_deref(), Ok(literal), "{ty}");
        }
    }

    #[test]
    fn what_is_no_value_is_rejected() {
        for (ty, value, number) in [
            (types::LONG, &b"\x01"[..], 1835),
            (types::VAR_STRING, b"\x05ab", 1835),
            (types::NEWDECIMAL, b"\x091; DROP", 1835),
            (types::NEWDECIMAL, b"\x041; X", 1210),
            (types::NEWDECIMAL, b"\x03inf", 1210),
            (types::DATE, b"\x04\xda\x07\x0d\x0f", 1210),
            (types::DATE, b"\x03\xda\x07\x01", 1210),
            (99, b"", 1210),
        ] {
            assert_eq!(
                one(ty, false, value).unwrap_err().code.number,
                number,
                "{ty}"
            );
        }
    }

    #[test]
    fn nulls_and_types_are_remembered_apart() {
        let mut parameters = Parameters::new(2);
        let first = [0b01, 1, types::TINY, 0, types::TINY, 0, 5];
        let literals = parameters.read(&mut Reader::new(&first), None).unwrap();
        assert_eq!(literals, ["NULL", "5"]);
        let literals = parameters
            .read(&mut Reader::new(&[0, 0, 6, 7]), None)
            .unwrap();
        assert_eq!(literals, ["6", "7"]);
        assert!(read(2, &[0, 0, 6, 7]).is_err());
    }

    #[test]
    fn what_was_sent_ahead_is_not_in_the_packet() {
        let mut parameters = Parameters::new(2);
        parameters.add_ahead(0, b"long ");
        parameters.add_ahead(0, b"text");
        assert_eq!(parameters.bytes_ahead(), 9 + ENTRY);
        let packet = [0, 1, types::STRING, 0, types::TINY, 0, 5];
        let literals = parameters.read(&mut Reader::new(&packet), None).unwrap();
        assert_eq!(literals, ["'long text'", "5"]);
        assert_eq!(parameters.bytes_ahead(), 0);
    }

    #[test]
    fn literals_stand_in_the_places() {
        let text = "SELECT ?, '?' FROM t WHERE a=?'x'";
        let offsets = sql::mysql::placeholders(text);
        let bound = bind(text, &offsets, ["1", "'é'"]);
        assert_eq!(bound, "SELECT  1 , '?' FROM t WHERE a= 'é' 'x'");
    }

    proptest! {
        #[test]
        fn any_bytes_are_values_or_rejected(count in 0_usize..20, bytes: Vec<u8>) {
            if let Ok(literals) = read(count, &bytes) {
                prop_assert_eq!(literals.len(), count);
            }
        }

        #[test]
        fn texts_come_back_as_they_were(text: String) {
            let literal = quoted(&text);
            let bound = bind("SELECT ? ; ?", &[7, 11], [literal.as_str(), "2"]);
            prop_assert_eq!(sql::mysql::split_statements(&bound).len(), 2);
            prop_assert_eq!(sql::mysql::placeholders(&bound), Vec::<usize>::new());
        }
    }

    #[test]
    fn strange_values_of_parameters_do_no_harm() {
        let text = &b"\0\x01\x08\0\xfd\0\x05\0\0\0\0\0\0\0\x03abc"[..];
        let times =
            &b"\0\x01\x0c\0\x0b\0\x0b\xda\x07\x06\x0f\x01\x02\x03\xfa\0\0\0\x08\0\x01\0\0\0\x02\x03\x04"[..];
        let numbers = &b"\x02\x01\x05\0\x08\x80\xf6\0\x01\0\0\0\0\0\xf0\x3f\x0412.5"[..];
        feed("values of parameters", &[text, times, numbers], |bytes| {
            for count in [1, 2, 3, 9] {
                let mut parameters = Parameters::new(count);
                parameters.add_ahead(1, bytes);
                let _ = parameters.read(&mut Reader::new(bytes), None);
                let _ = read(count, bytes);
            }
        });
    }
}
