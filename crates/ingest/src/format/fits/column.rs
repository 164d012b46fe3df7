//! Columns of binary tables: what the cards TFORMn, TTYPEn and their like say.

use catalog::{Column, ColumnType};
use fitsio_pure::bintable::{BinaryColumnType, parse_tdim, parse_tform_binary};

use super::header::Header;
use crate::format::FieldDescription;
use crate::format::times::{TIMESTAMP, is_timestamp};

/// What an element of a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Logical,
    Bit,
    Byte,
    Short,
    Int,
    Long,
    Float,
    Double,
    ComplexFloat,
    ComplexDouble,
    Ascii,
}

impl Kind {
    fn of_letter(letter: char) -> Option<Self> {
        Some(match letter {
            'L' => Self::Logical,
            'X' => Self::Bit,
            'B' => Self::Byte,
            'I' => Self::Short,
            'J' => Self::Int,
            'K' => Self::Long,
            'E' => Self::Float,
            'D' => Self::Double,
            'C' => Self::ComplexFloat,
            'M' => Self::ComplexDouble,
            'A' => Self::Ascii,
            _ => return None,
        })
    }

    /// Bytes of so many elements.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let each = match self {
            Self::Bit => return Some(elements.div_ceil(8)),
            Self::Logical | Self::Byte | Self::Ascii => 1,
            Self::Short => 2,
            Self::Int | Self::Float => 4,
            Self::Long | Self::Double | Self::ComplexFloat => 8,
            Self::ComplexDouble => 16,
        };
        elements.checked_mul(each)
    }

    /// The most bytes that an element has as a text, with a blank before it.
    pub fn longest_text(self) -> u64 {
        match self {
            Self::Logical | Self::Bit | Self::Ascii => 2,
            // An integer may be scaled, and then is a double.
            Self::Byte | Self::Short | Self::Int | Self::Long | Self::Float | Self::Double => 344,
            Self::ComplexFloat | Self::ComplexDouble => 688,
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Byte | Self::Short | Self::Int | Self::Long)
    }

    fn is_complex(self) -> bool {
        matches!(self, Self::ComplexFloat | Self::ComplexDouble)
    }
}

/// How the descriptor of an array in the heap is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// Two integers of 32 bits.
    P,
    /// Two integers of 64 bits.
    Q,
}

/// What TSCALn and TZEROn make of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scaling {
    Nothing,
    /// An unsigned integer as one with a sign, or a signed byte as one without: its first bit is flipped.
    OtherSign,
    /// A whole number is added to one of at most 32 bits.
    Plus(i64),
    /// `zero + scale * number`.
    Linear {
        zero: f64,
        scale: f64,
    },
}

/// A column.
#[derive(Debug, Clone)]
pub(super) struct FitsColumn {
    pub name: String,
    pub kind: Kind,
    /// Elements of a cell.
    pub repeat: u64,
    pub in_heap: Option<Descriptor>,
    /// The byte of a row at which it begins, and how many it takes.
    pub offset: u64,
    pub bytes: u64,
    /// The number that stands for none, before it is scaled.
    pub null: Option<i64>,
    pub scaling: Scaling,
    /// Characters of each text, where a cell has several.
    pub text_width: Option<usize>,
    /// Whether its texts are times.
    pub is_time: bool,
    pub described: FieldDescription,
}

/// Numbers that TZEROn has for integers of the other sign.
const OTHER_SIGN: [(Kind, f64); 4] = [
    (Kind::Byte, -128.0),
    (Kind::Short, 32_768.0),
    (Kind::Int, 2_147_483_648.0),
    (Kind::Long, 9_223_372_036_854_775_808.0),
];

impl FitsColumn {
    /// The column of a number, from 1.
    pub fn read(header: &Header, number: u64, offset: u64) -> Result<Self, String> {
        let key = |word: &str| format!("{word}{number}");
        let text = |word: &str| header.text(&key(word)).map(str::trim).unwrap_or_default();
        let name = match text("TTYPE") {
            "" => format!("col{number}"),
            name => name.to_owned(),
        };
        let form = text("TFORM");
        let wrong =
            || format!("the column {name:?} has TFORM{number} = {form:?}, which is no form");
        // The library cuts texts at bytes, and expects something before a parenthesis.
        if !form.is_ascii() || form.starts_with('(') || !text("TDIM").is_ascii() {
            return Err(wrong());
        }
        let (repeat, kind, in_heap) = match parse_tform_binary(form).map_err(|_| wrong())? {
            (repeat, BinaryColumnType::VarArrayP(letter)) => {
                (repeat, Kind::of_letter(letter), Some(Descriptor::P))
            }
            (repeat, BinaryColumnType::VarArrayQ(letter)) => {
                (repeat, Kind::of_letter(letter), Some(Descriptor::Q))
            }
            // A width may stand behind the letter: 60A20.
            (repeat, plain) => (repeat, Some(kind_of(plain)), None),
        };
        let kind = kind.ok_or_else(wrong)?;
        let repeat = repeat as u64;
        let bytes = match in_heap {
            None => kind.bytes(repeat),
            Some(Descriptor::P) => repeat.checked_mul(8),
            Some(Descriptor::Q) => repeat.checked_mul(16),
        };
        if in_heap.is_some() && repeat > 1 {
            return Err(wrong());
        }
        let scale = header.float(&key("TSCAL")).unwrap_or(1.0);
        let zero = header.float(&key("TZERO")).unwrap_or(0.0);
        let widths = parse_tdim(text("TDIM")).filter(|_| kind == Kind::Ascii);
        let text_width = widths
            .filter(|widths| widths.len() > 1)
            .map(|widths| widths[0]);
        // Cells of several texts are no times.
        let is_time = kind == Kind::Ascii && text_width.is_none() && is_timestamp(text("TXTYP"));
        let xtype = if is_time { TIMESTAMP } else { text("TXTYP") };
        Ok(Self {
            kind,
            repeat,
            in_heap,
            offset,
            bytes: bytes.ok_or_else(wrong)?,
            null: header.integer(&key("TNULL")).filter(|_| kind.is_integer()),
            scaling: Scaling::of(kind, scale, zero),
            text_width: text_width.filter(|width| *width > 0),
            is_time,
            described: FieldDescription {
                unit: text("TUNIT").to_owned(),
                ucd: text("TUCD").to_owned(),
                xtype: xtype.to_owned(),
                utype: text("TUTYP").to_owned(),
                description: text("TCOMM").to_owned(),
            },
            name,
        })
    }

    /// Whether its cells are arrays behind the rows.
    pub fn is_in_heap(&self) -> bool {
        self.in_heap.is_some()
    }

    /// Whether a cell is one number or truth.
    pub fn is_one_value(&self) -> bool {
        self.repeat == 1
            && !self.is_in_heap()
            && !self.kind.is_complex()
            && self.kind != Kind::Ascii
    }

    /// What its numbers are a shape of, if they are one, as results in FITS have them (DALI 1.1, sections 3.3.5 to 3.3.7).
    pub fn shape(&self) -> Option<&str> {
        let is_shape = matches!(self.kind, Kind::Float | Kind::Double)
            && match (self.described.xtype.as_str(), self.in_heap) {
                ("point", None) => self.repeat == 2,
                ("circle", None) => self.repeat == 3,
                ("polygon", _) => !self.is_one_value(),
                _ => false,
            };
        is_shape.then_some(self.described.xtype.as_str())
    }

    /// The column as a table has it.
    pub fn column(&self) -> Column {
        Column {
            name: self.name.clone(),
            ty: self.ty(),
            nullable: true,
            declared: None,
        }
    }

    fn ty(&self) -> ColumnType {
        if self.is_time {
            return ColumnType::Timestamp;
        }
        if !self.is_one_value() {
            return ColumnType::Text;
        }
        match (self.kind, self.scaling) {
            (Kind::Logical | Kind::Bit, _) => ColumnType::Boolean,
            (_, Scaling::Linear { .. }) | (Kind::Double, _) => ColumnType::Float64,
            (Kind::Float, _) => ColumnType::Float32,
            (_, Scaling::Plus(_)) => ColumnType::Int64,
            (Kind::Byte, Scaling::OtherSign) => ColumnType::Int8,
            (Kind::Short, Scaling::OtherSign) => ColumnType::UInt16,
            (Kind::Int, Scaling::OtherSign) => ColumnType::UInt32,
            (Kind::Long, Scaling::OtherSign) => ColumnType::UInt64,
            (Kind::Byte, _) => ColumnType::UInt8,
            (Kind::Short, _) => ColumnType::Int16,
            (Kind::Int, _) => ColumnType::Int32,
            (Kind::Long, _) => ColumnType::Int64,
            (Kind::ComplexFloat | Kind::ComplexDouble | Kind::Ascii, _) => ColumnType::Text,
        }
    }
}

fn kind_of(plain: BinaryColumnType) -> Kind {
    match plain {
        BinaryColumnType::Logical => Kind::Logical,
        BinaryColumnType::Bit => Kind::Bit,
        BinaryColumnType::Byte => Kind::Byte,
        BinaryColumnType::Short => Kind::Short,
        BinaryColumnType::Int => Kind::Int,
        BinaryColumnType::Long => Kind::Long,
        BinaryColumnType::Float => Kind::Float,
        BinaryColumnType::Double => Kind::Double,
        BinaryColumnType::ComplexFloat => Kind::ComplexFloat,
        BinaryColumnType::ComplexDouble => Kind::ComplexDouble,
        // The descriptors of arrays were told apart before.
        BinaryColumnType::Ascii
        | BinaryColumnType::VarArrayP(_)
        | BinaryColumnType::VarArrayQ(_) => Kind::Ascii,
    }
}

impl Scaling {
    fn of(kind: Kind, scale: f64, zero: f64) -> Self {
        let is_number = kind.is_integer() || matches!(kind, Kind::Float | Kind::Double);
        let is_unscaled = scale.total_cmp(&1.0).is_eq();
        if !is_number || (is_unscaled && zero == 0.0) {
            return Self::Nothing;
        }
        if is_unscaled && OTHER_SIGN.contains(&(kind, zero)) {
            return Self::OtherSign;
        }
        const LARGEST: f64 = 4_503_599_627_370_496.0;
        let is_small = matches!(kind, Kind::Byte | Kind::Short | Kind::Int);
        if is_small && is_unscaled && zero.fract() == 0.0 && zero.abs() < LARGEST {
            return Self::Plus(zero as i64);
        }
        Self::Linear { zero, scale }
    }
}
