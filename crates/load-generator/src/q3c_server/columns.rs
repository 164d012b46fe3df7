//! The columns of the peer's answers: how PostgreSQL sends them, and how a VOTable and CSV have them.

use std::fmt::Write;

use tokio_postgres::Column;
use tokio_postgres::types::{FromSql, Type};

use super::PeerError;

/// A column's type, one of those that a catalogue's numbers have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Short,
    Int,
    Long,
    Float,
    Double,
}

impl Kind {
    fn of(column: &Column) -> Result<Self, PeerError> {
        match *column.type_() {
            Type::INT2 => Ok(Self::Short),
            Type::INT4 => Ok(Self::Int),
            Type::INT8 => Ok(Self::Long),
            Type::FLOAT4 => Ok(Self::Float),
            Type::FLOAT8 => Ok(Self::Double),
            ref other => Err(PeerError::NoNumber {
                column: column.name().to_owned(),
                kind: other.name().to_owned(),
            }),
        }
    }

    fn datatype(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
        }
    }

    /// What stands in BINARY2 where a value is NULL, besides its flag; as long as a value is.
    fn null(self) -> &'static [u8] {
        match self {
            Self::Short => &[0; 2],
            Self::Int => &[0; 4],
            Self::Long => &[0; 8],
            Self::Float => &[0x7F, 0xC0, 0, 0],
            Self::Double => &[0x7F, 0xF8, 0, 0, 0, 0, 0, 0],
        }
    }

    /// Writes a value with as many digits as it needs. Single precision has an exponent: fluxes have thirty zeros.
    fn write_text(self, bytes: &[u8], text: &mut String) -> Result<(), PeerError> {
        let wrong = |_| PeerError::WrongLength;
        let written = match self {
            Self::Short => write!(
                text,
                "{}",
                i16::from_be_bytes(bytes.try_into().map_err(wrong)?)
            ),
            Self::Int => write!(
                text,
                "{}",
                i32::from_be_bytes(bytes.try_into().map_err(wrong)?)
            ),
            Self::Long => write!(
                text,
                "{}",
                i64::from_be_bytes(bytes.try_into().map_err(wrong)?)
            ),
            Self::Float => write!(
                text,
                "{:e}",
                f32::from_be_bytes(bytes.try_into().map_err(wrong)?)
            ),
            Self::Double => write!(
                text,
                "{}",
                f64::from_be_bytes(bytes.try_into().map_err(wrong)?)
            ),
        };
        written.map_err(|_| PeerError::WrongLength)
    }
}

/// A value as it comes over the wire: big-endian, as BINARY2 has it too.
pub struct Wire<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Wire<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The columns of every response.
pub struct Columns {
    kinds: Vec<Kind>,
    names: Vec<String>,
}

impl Columns {
    /// Of a prepared statement's columns, with the names that they are to have.
    ///
    /// # Errors
    /// A column that is no number.
    pub fn new(columns: &[Column], names: &[String]) -> Result<Self, PeerError> {
        Ok(Self {
            kinds: columns.iter().map(Kind::of).collect::<Result<_, _>>()?,
            names: names.to_vec(),
        })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.kinds.len()
    }

    /// The FIELDs of a VOTable.
    pub fn fields(&self) -> String {
        let pairs = self.names.iter().zip(&self.kinds);
        pairs
            .map(|(name, kind)| {
                format!(
                    "<FIELD name=\"{name}\" datatype=\"{}\"/>\n",
                    kind.datatype()
                )
            })
            .collect()
    }

    /// The first line of CSV.
    pub fn heading(&self) -> String {
        self.names.join(",") + "\n"
    }

    /// Appends a row of BINARY2: a bit for each column that says whether it is NULL, the first one highest, and the values.
    pub fn append_binary2<'a>(
        &self,
        values: impl Iterator<Item = Wire<'a>>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), PeerError> {
        let flags = bytes.len();
        bytes.resize(flags + self.count().div_ceil(8), 0);
        for (at, (kind, value)) in self.kinds.iter().zip(values).enumerate() {
            match value.0 {
                Some(value) if value.len() != kind.null().len() => {
                    return Err(PeerError::WrongLength);
                }
                Some(value) => bytes.extend_from_slice(value),
                None => {
                    bytes[flags + at / 8] |= 0x80 >> (at % 8);
                    bytes.extend_from_slice(kind.null());
                }
            }
        }
        Ok(())
    }

    /// Appends a row of CSV, with nothing where a value is NULL.
    pub fn append_csv<'a>(
        &self,
        values: impl Iterator<Item = Wire<'a>>,
        text: &mut String,
    ) -> Result<(), PeerError> {
        for (at, (kind, value)) in self.kinds.iter().zip(values).enumerate() {
            if at > 0 {
                text.push(',');
            }
            if let Some(value) = value.0 {
                kind.write_text(value, text)?;
            }
        }
        text.push('\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        let kinds = vec![
            Kind::Long,
            Kind::Double,
            Kind::Float,
            Kind::Int,
            Kind::Short,
        ];
        let names = ["id", "ra", "flux", "flags", "kind"].map(str::to_owned);
        Columns {
            kinds,
            names: names.to_vec(),
        }
    }

    fn values(bytes: &[Option<Vec<u8>>]) -> impl Iterator<Item = Wire<'_>> {
        bytes.iter().map(|value| Wire(value.as_deref()))
    }

    fn whole_row() -> Vec<Option<Vec<u8>>> {
        vec![
            Some(9_007_199_254_740_993_i64.to_be_bytes().to_vec()),
            Some(0.1_f64.to_be_bytes().to_vec()),
            Some(1.5e-30_f32.to_be_bytes().to_vec()),
            Some((-7_i32).to_be_bytes().to_vec()),
            Some(3_i16.to_be_bytes().to_vec()),
        ]
    }

    #[test]
    fn a_row_as_text() {
        let mut text = columns().heading();
        columns()
            .append_csv(values(&whole_row()), &mut text)
            .unwrap();
        columns()
            .append_csv(values(&[const { None }; 5]), &mut text)
            .unwrap();
        assert_eq!(
            text,
            "id,ra,flux,flags,kind\n9007199254740993,0.1,1.5e-30,-7,3\n,,,,\n"
        );
    }

    #[test]
    fn a_row_in_binary() {
        let mut bytes = Vec::new();
        columns()
            .append_binary2(values(&whole_row()), &mut bytes)
            .unwrap();
        assert_eq!((bytes.len(), bytes[0]), (1 + 8 + 8 + 4 + 4 + 2, 0));
        assert_eq!(bytes[1..9], 9_007_199_254_740_993_i64.to_be_bytes());
        let mut row = whole_row();
        (row[1], row[4]) = (None, None);
        columns().append_binary2(values(&row), &mut bytes).unwrap();
        assert_eq!((bytes.len(), bytes[27]), (2 * 27, 0b0100_1000));
        assert!(f64::from_be_bytes(bytes[36..44].try_into().unwrap()).is_nan());
    }

    #[test]
    fn a_value_of_another_length_is_an_error() {
        let mut row = whole_row();
        row[2] = Some(vec![0; 3]);
        assert!(
            columns()
                .append_binary2(values(&row), &mut Vec::new())
                .is_err()
        );
        assert!(
            columns()
                .append_csv(values(&row), &mut String::new())
                .is_err()
        );
    }
}
