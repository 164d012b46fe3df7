//! The types that VOTable has, and which of them the values of a type of Arrow are sent in.
//!
//! Source: VOTable 1.4 (Ochsenbein et al., IVOA Recommendation 2019), section 2.1, and DALI 1.1 for `xtype`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use crate::nested;

/// How the values of a column are sent. VOTable has no signed byte, no unsigned integers of more than 8 bits and no decimals: these
/// take the next type that has room for them, or their digits are sent as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueForm {
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
pub enum ItemForm {
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
    pub fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
        }
    }
}

/// The digits that a double can tell apart, whatever they are.
const DOUBLE_DIGITS: u8 = 15;

impl ValueForm {
    /// Of values of a type of Arrow.
    pub fn of(data_type: &DataType) -> Self {
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
    pub fn datatype(self) -> &'static str {
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
    pub fn array_size(self) -> Option<Cow<'static, str>> {
        match self {
            Self::Text | Self::Unicode | Self::Bytes | Self::Timestamp | Self::Numbers(_, None) => {
                Some("*".into())
            }
            Self::Numbers(_, Some(length)) => Some(length.to_string().into()),
            _ => None,
        }
    }

    /// How its texts are to be read, where that is known.
    pub fn xtype(self) -> Option<&'static str> {
        (self == Self::Timestamp).then_some("timestamp")
    }

    /// The Arrow type in which the values are at hand for this form.
    pub fn arrow(self) -> DataType {
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
}
