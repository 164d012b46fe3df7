//! The columns of a table as the Virtual Observatory describes them.
//!
//! Source: VOTable 1.4 (Ochsenbein et al., IVOA Recommendation 2019), section 2.1, and DALI 1.1 for `xtype`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use engine::{DESCRIPTION, UCD, UNIT, UTYPE, XTYPE};
use result_formats::nested;

/// The role of a column in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Names the row.
    Identifier,
    /// Right ascension of the row's position, degrees.
    RightAscension,
    /// Declination of the row's position, degrees.
    Declination,
    /// Distance between the two ends of a pair, arcseconds.
    Separation,
    /// Anything else.
    Other,
}

/// A column of a table that is sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableColumn {
    /// Its name.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: Role,
    /// How its values are sent.
    pub(crate) form: ValueForm,
    /// What it is physically.
    pub(crate) ucd: Option<String>,
    /// The unit of its values.
    pub(crate) unit: Option<String>,
    /// How its values are to be read.
    pub(crate) xtype: Option<String>,
    /// Its place in a data model.
    pub(crate) utype: Option<String>,
    /// What it means, in words.
    pub(crate) description: Option<String>,
}

impl TableColumn {
    /// A column of a table, its UCD in the words of UCD1+.
    pub(crate) fn new(field: &Field, role: Role) -> Self {
        // What the column of the table is that it comes from.
        let word = |name: &str| field.metadata().get(name).cloned();
        let ucd = match role {
            Role::Identifier => Some("meta.id;meta.main"),
            Role::RightAscension => Some("pos.eq.ra;meta.main"),
            Role::Declination => Some("pos.eq.dec;meta.main"),
            Role::Separation => Some("pos.angDistance"),
            Role::Other => None,
        };
        let form = match role {
            // Simple Cone Search wants a text, whatever the key's type.
            Role::Identifier => ValueForm::Text,
            // A time that is a text is one of ASCII (DALI 1.1, section 3.3.3).
            _ if field
                .metadata()
                .get(XTYPE)
                .is_some_and(|xtype| xtype == "timestamp") =>
            {
                ValueForm::Text
            }
            _ => ValueForm::of(field.data_type()),
        };
        Self {
            name: field.name().clone(),
            role,
            utype: word(UTYPE),
            description: word(DESCRIPTION),
            ucd: ucd.map(str::to_owned).or_else(|| word(UCD)),
            unit: unit(role).map(str::to_owned).or_else(|| word(UNIT)),
            xtype: form.xtype().map(str::to_owned).or_else(|| word(XTYPE)),
            form,
        }
    }

    /// The same in a response to a Simple Cone Search, whose clients look for UCD1 words.
    pub(crate) fn of_cone(field: &Field, role: Role) -> Self {
        let ucd = match role {
            Role::Identifier => Some("ID_MAIN"),
            Role::RightAscension => Some("POS_EQ_RA_MAIN"),
            Role::Declination => Some("POS_EQ_DEC_MAIN"),
            Role::Separation | Role::Other => None,
        };
        Self {
            ucd: ucd.map(str::to_owned),
            ..Self::new(field, role)
        }
    }

    /// A field of Arrow in the type of its form.
    pub(crate) fn arrow_field(&self) -> FieldRef {
        Arc::new(Field::new(&self.name, self.form.arrow(), true))
    }
}

fn unit(role: Role) -> Option<&'static str> {
    match role {
        Role::RightAscension | Role::Declination => Some("deg"),
        Role::Separation => Some("arcsec"),
        Role::Identifier | Role::Other => None,
    }
}

/// How the values of a column are sent. VOTable has no signed byte, no unsigned integers of more than 8 bits and no decimals: these
/// take the next type that has room for them, or their digits are sent as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ValueForm {
    /// True or false.
    Boolean,
    /// 8 bits without a sign.
    UnsignedByte,
    /// 16 bits.
    Short,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// 32 bits.
    Float,
    /// 64 bits.
    Double,
    /// What the value is written as, in ASCII.
    Text,
    /// Any text.
    Unicode,
    /// Bytes.
    Bytes,
    /// `YYYY-MM-DDThh:mm:ss[.ffffff]`, UTC, or the date alone.
    Timestamp,
    /// Numbers: as many in every row, or any number of them.
    Numbers(ItemForm, Option<u32>),
}

/// How the numbers of an array are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ItemForm {
    /// 64 bits.
    Long,
    /// 64 bits; what is missing is NaN.
    Double,
}

impl ItemForm {
    /// Missing whole numbers have no form.
    fn of(item: &Field) -> Option<Self> {
        match item.data_type() {
            whole if whole.is_integer() && *whole != DataType::UInt64 => {
                (!item.is_nullable()).then_some(Self::Long)
            }
            real if real.is_floating() => Some(Self::Double),
            _ => None,
        }
    }

    /// The Arrow type of the numbers.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
        }
    }
}

/// The digits that a double can tell apart, whatever they are.
const DOUBLE_DIGITS: u8 = 15;

impl ValueForm {
    fn of(data_type: &DataType) -> Self {
        use DataType as D;
        match data_type {
            D::Boolean => Self::Boolean,
            D::UInt8 => Self::UnsignedByte,
            D::Int8 | D::Int16 => Self::Short,
            D::UInt16 | D::Int32 => Self::Int,
            D::UInt32 | D::Int64 => Self::Long,
            D::Float16 | D::Float32 => Self::Float,
            D::Float64 => Self::Double,
            D::Decimal32(digits, _) | D::Decimal64(digits, _) | D::Decimal128(digits, _)
                if *digits <= DOUBLE_DIGITS =>
            {
                Self::Double
            }
            D::Utf8 | D::LargeUtf8 | D::Utf8View => Self::Unicode,
            D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => Self::Bytes,
            D::Date32 | D::Date64 | D::Timestamp(..) => Self::Timestamp,
            lists => Self::numbers(lists).unwrap_or(Self::Text),
        }
    }

    fn numbers(lists: &DataType) -> Option<Self> {
        let item = ItemForm::of(nested::numbers_of(lists)?)?;
        let length = match lists {
            DataType::FixedSizeList(_, length) => u32::try_from(*length).ok(),
            _ => None,
        };
        Some(Self::Numbers(item, length))
    }

    /// The word for it in a FIELD's `datatype`.
    pub(crate) fn datatype(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::UnsignedByte | Self::Bytes => "unsignedByte",
            Self::Short => "short",
            Self::Int => "int",
            Self::Long | Self::Numbers(ItemForm::Long, _) => "long",
            Self::Float => "float",
            Self::Double | Self::Numbers(ItemForm::Double, _) => "double",
            Self::Text | Self::Timestamp => "char",
            Self::Unicode => "unicodeChar",
        }
    }

    /// How long a value is, if it is an array.
    pub(crate) fn array_size(self) -> Option<Cow<'static, str>> {
        match self {
            Self::Text | Self::Unicode | Self::Bytes | Self::Timestamp | Self::Numbers(_, None) => {
                Some("*".into())
            }
            Self::Numbers(_, Some(length)) => Some(length.to_string().into()),
            _ => None,
        }
    }

    pub(crate) fn xtype(self) -> Option<&'static str> {
        (self == Self::Timestamp).then_some("timestamp")
    }

    /// The Arrow type in which the values are at hand for this form.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::UnsignedByte => DataType::UInt8,
            Self::Short => DataType::Int16,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Bytes => DataType::Binary,
            Self::Text | Self::Unicode | Self::Timestamp => DataType::Utf8,
            Self::Numbers(item, _) => {
                DataType::List(Arc::new(Field::new_list_field(item.arrow(), true)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No form has less room than the type that it stands for.
    #[test]
    fn every_value_has_room() {
        for (data_type, form) in [
            (DataType::Int8, ValueForm::Short),
            (DataType::UInt8, ValueForm::UnsignedByte),
            (DataType::UInt16, ValueForm::Int),
            (DataType::UInt32, ValueForm::Long),
            (DataType::UInt64, ValueForm::Text),
            (DataType::Decimal128(15, 3), ValueForm::Double),
            (DataType::Decimal128(16, 3), ValueForm::Text),
        ] {
            assert_eq!(ValueForm::of(&data_type), form, "{data_type}");
        }
    }

    #[test]
    fn a_key_is_sent_as_text() {
        let field = Field::new("objectId", DataType::Int64, false);
        let column = TableColumn::of_cone(&field, Role::Identifier);
        assert_eq!(column.form.datatype(), "char");
        assert_eq!(column.ucd.as_deref(), Some("ID_MAIN"));
    }
}
