//! FIELDs: what they are called, what their cells hold, and the values that are read of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use catalog::{Column, ColumnType};

use crate::format::FieldDescription;
pub(super) use crate::format::elements::Element;
use crate::format::elements::put_array;
use crate::format::text::timestamp;
use crate::format::times::no_time;
use crate::row_errors::excerpt;

/// What a cell, or each element of one, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Datatype {
    Boolean,
    Bit,
    UnsignedByte,
    Short,
    Int,
    Long,
    Char,
    UnicodeChar,
    Float,
    Double,
    FloatComplex,
    DoubleComplex,
}

impl Datatype {
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "boolean" => Self::Boolean,
            "bit" => Self::Bit,
            "unsignedByte" => Self::UnsignedByte,
            "short" => Self::Short,
            "int" => Self::Int,
            "long" => Self::Long,
            "char" => Self::Char,
            "unicodeChar" => Self::UnicodeChar,
            "float" => Self::Float,
            "double" => Self::Double,
            "floatComplex" => Self::FloatComplex,
            "doubleComplex" => Self::DoubleComplex,
            _ => return None,
        })
    }

    /// Whether elements are characters.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Char | Self::UnicodeChar)
    }

    /// The most bytes that an element has as a text, with a blank before it: the least double has 326 of them.
    pub fn longest_text(self) -> usize {
        match self {
            Self::Boolean | Self::Bit | Self::Char => 2,
            Self::UnicodeChar => 4,
            Self::UnsignedByte | Self::Short | Self::Int | Self::Long => 21,
            Self::Float => 52,
            Self::FloatComplex => 104,
            Self::Double => 344,
            Self::DoubleComplex => 688,
        }
    }

    /// Whether elements are numbers of one part.
    fn is_number(self) -> bool {
        match self {
            Self::UnsignedByte | Self::Short | Self::Int | Self::Long => true,
            Self::Float | Self::Double => true,
            Self::Boolean | Self::Bit | Self::Char | Self::UnicodeChar => false,
            Self::FloatComplex | Self::DoubleComplex => false,
        }
    }

    fn is_complex(self) -> bool {
        matches!(self, Self::FloatComplex | Self::DoubleComplex)
    }
}

/// How many elements a cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArraySize {
    /// One, which is no array.
    One,
    Fixed(usize),
    Variable,
}

impl ArraySize {
    /// Of `arraysize`, such as `3`, `*`, `16*` or `2x3x*`.
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.ends_with('*') {
            return Some(Self::Variable);
        }
        let mut sizes = text
            .split('x')
            .map(|size| size.trim().parse::<usize>().ok());
        let product = sizes.try_fold(1_usize, |all, size| all.checked_mul(size?))?;
        Some(Self::Fixed(product))
    }
}

/// A column of a document.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub name: String,
    pub datatype: Datatype,
    pub size: ArraySize,
    /// In lower case and without spaces.
    pub ucd: String,
    pub described: FieldDescription,
    /// Whether its texts are times.
    pub is_time: bool,
    /// The number that stands for none.
    pub null: Option<Element>,
}

impl Field {
    /// Whether a cell is one value, not an array of several.
    pub fn is_one_value(&self) -> bool {
        matches!(self.size, ArraySize::One | ArraySize::Fixed(1)) && !self.datatype.is_complex()
    }

    /// Whether cells are text.
    pub fn is_text(&self) -> bool {
        self.datatype.is_text() || !self.is_one_value()
    }

    /// What its numbers are a shape of, if they are one (DALI 1.1, sections 3.3.5 to 3.3.7).
    pub fn shape(&self) -> Option<&str> {
        let is_shape = matches!(self.datatype, Datatype::Float | Datatype::Double)
            && match self.described.xtype.as_str() {
                "point" => self.size == ArraySize::Fixed(2),
                "circle" => self.size == ArraySize::Fixed(3),
                "polygon" => !self.is_one_value(),
                _ => false,
            };
        is_shape.then_some(self.described.xtype.as_str())
    }

    /// The value of an element whose text is this one; `None` if it has no such value.
    pub fn read(&self, text: &str) -> Option<Element> {
        let element = match self.datatype {
            Datatype::Boolean | Datatype::Bit => match text {
                "T" | "t" | "1" | "true" | "True" | "TRUE" => Element::Truth(true),
                "F" | "f" | "0" | "false" | "False" | "FALSE" => Element::Truth(false),
                "?" => Element::Null,
                _ => return None,
            },
            Datatype::Float => Element::Float(text.parse().ok()?),
            Datatype::Double => Element::Double(text.parse().ok()?),
            _ => Element::Integer(match text.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16).ok()?,
                None => text.parse().ok()?,
            }),
        };
        Some(self.unless_null(element))
    }

    /// The element, or none if it is the number that stands for none.
    pub fn unless_null(&self, element: Element) -> Element {
        match self.null == Some(element) {
            true => Element::Null,
            false => element,
        }
    }

    /// Has a number stand for none, as an element of VALUES says. What is no number of the field stands for nothing.
    pub fn set_null(&mut self, text: &str) {
        if self.datatype.is_number() {
            self.null = self.read(text.trim());
        }
    }

    /// Says that a text is none of its values.
    pub fn no_value(&self, text: &str) -> String {
        let name = &self.name;
        match self.is_time {
            true => no_time(text, name),
            false => {
                let text = excerpt(text.as_bytes());
                format!("{text} in the column {name} is no value of its type")
            }
        }
    }

    pub fn column(&self) -> Column {
        let ty = match self.datatype {
            _ if self.is_time => ColumnType::Timestamp,
            _ if self.is_text() => ColumnType::Text,
            Datatype::Boolean | Datatype::Bit => ColumnType::Boolean,
            Datatype::UnsignedByte => ColumnType::UInt8,
            Datatype::Short => ColumnType::Int16,
            Datatype::Int => ColumnType::Int32,
            Datatype::Long => ColumnType::Int64,
            Datatype::Float => ColumnType::Float32,
            _ => ColumnType::Float64,
        };
        Column {
            name: self.name.clone(),
            ty,
            nullable: true,
            declared: None,
        }
    }
}

/// Cells of one field.
pub(super) enum Values {
    Times(TimestampMicrosecondBuilder),
    Truths(BooleanBuilder),
    Integers(Int64Builder),
    Floats(Float32Builder),
    Doubles(Float64Builder),
    Texts(StringBuilder),
}

impl Values {
    pub fn of(field: &Field) -> Self {
        match field.datatype {
            _ if field.is_time => Self::Times(TimestampMicrosecondBuilder::new()),
            _ if field.is_text() => Self::Texts(StringBuilder::new()),
            Datatype::Boolean | Datatype::Bit => Self::Truths(BooleanBuilder::new()),
            Datatype::Float => Self::Floats(Float32Builder::new()),
            Datatype::Double => Self::Doubles(Float64Builder::new()),
            _ => Self::Integers(Int64Builder::new()),
        }
    }

    /// Adds a cell of one element. Whoever reads them reads what the field says.
    pub fn push(&mut self, element: Element) {
        match (self, element) {
            (Self::Truths(values), Element::Truth(value)) => values.append_value(value),
            (Self::Integers(values), Element::Integer(value)) => values.append_value(value),
            (Self::Floats(values), Element::Float(value)) => values.append_value(value),
            (Self::Doubles(values), Element::Double(value)) => values.append_value(value),
            (values, _) => values.push_null(),
        }
    }

    /// Adds a cell that is a text; one without characters is NULL. `false` if it is no value of the field.
    #[must_use]
    pub fn push_text(&mut self, text: &str) -> bool {
        match self {
            Self::Texts(values) if !text.is_empty() => values.append_value(text),
            Self::Times(values) => match timestamp(text.as_bytes()) {
                Ok(time) => values.append_option(time),
                Err(_) => return false,
            },
            values => values.push_null(),
        }
        true
    }

    /// Adds a cell of several elements, as a text.
    pub fn push_array(&mut self, elements: &[Element]) {
        if elements.is_empty() {
            return self.push_null();
        }
        let mut text = String::new();
        put_array(elements.iter().copied(), &mut text);
        match self {
            Self::Texts(values) => values.append_value(text),
            values => values.push_null(),
        }
    }

    /// Bytes of texts.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Texts(values) => values.values_slice().len(),
            _ => 0,
        }
    }

    pub fn push_null(&mut self) {
        match self {
            Self::Times(values) => values.append_null(),
            Self::Truths(values) => values.append_null(),
            Self::Integers(values) => values.append_null(),
            Self::Floats(values) => values.append_null(),
            Self::Doubles(values) => values.append_null(),
            Self::Texts(values) => values.append_null(),
        }
    }

    pub fn finish(self) -> ArrayRef {
        match self {
            Self::Times(mut values) => Arc::new(values.finish()),
            Self::Truths(mut values) => Arc::new(values.finish()),
            Self::Integers(mut values) => Arc::new(values.finish()),
            Self::Floats(mut values) => Arc::new(values.finish()),
            Self::Doubles(mut values) => Arc::new(values.finish()),
            Self::Texts(mut values) => Arc::new(values.finish()),
        }
    }
}
