//! Cells as bytes, the most significant first, in base64: BINARY, and BINARY2 with its flags for NULL.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::read::DecoderReader;

use super::field::{ArraySize, Datatype, Element, Field, Values};
use super::{Cells, Document, Xml};
use crate::error::IngestError;
use crate::format::text::utf8_or_latin1;

/// More elements than this in one cell are taken for damage.
const MOST_ELEMENTS: usize = 1 << 28;
/// What is reserved at once for a cell that says how long it is.
const RESERVED: usize = 1 << 16;

pub(super) struct BinaryRows {
    bytes: BufReader<DecoderReader<'static, GeneralPurpose, ElementText>>,
    document: Document,
    nulls_flagged: bool,
    /// The number of the row at hand, from 1.
    row: u64,
    flags: Vec<u8>,
    /// Bytes of the stream that were read.
    taken: u64,
    /// Bytes that the values of a row may take.
    row_bytes: usize,
    /// Texts that were no UTF-8.
    latin1: u64,
}

/// The text up to the end of the element without its white space.
struct ElementText {
    xml: Xml,
    has_ended: bool,
}

impl Read for ElementText {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while !self.has_ended && !into.is_empty() {
            let source = self.xml.get_mut();
            let available = source.fill_buf()?;
            if available.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let tag = memchr::memchr(b'<', available);
            let text = &available[..tag.unwrap_or(available.len())];
            let (mut filled, mut used) = (0, 0);
            for byte in text {
                if filled == into.len() {
                    break;
                }
                used += 1;
                if !byte.is_ascii_whitespace() {
                    into[filled] = *byte;
                    filled += 1;
                }
            }
            let at_tag = tag == Some(used);
            source.consume(used);
            if filled > 0 {
                return Ok(filled);
            }
            if at_tag {
                self.expect_end()?;
            }
        }
        Ok(0)
    }
}

impl ElementText {
    /// The tag that comes next has to be that of the end: a comment or the like would end the rows too early.
    fn expect_end(&mut self) -> std::io::Result<()> {
        let mut tag = [0; 2];
        self.xml.get_mut().read_exact(&mut tag)?;
        self.has_ended = tag == *b"</";
        match self.has_ended {
            true => Ok(()),
            false => Err(std::io::Error::other(
                "there is something else than base64 among them, such as a comment",
            )),
        }
    }
}

impl BinaryRows {
    /// Reads from behind `<STREAM>`.
    pub fn new(mut xml: Xml, document: Document, nulls_flagged: bool, row_bytes: usize) -> Self {
        // What follows has no elements: it is counted cell by cell.
        xml.get_mut().count_no_more();
        let text = ElementText {
            xml,
            has_ended: false,
        };
        Self {
            bytes: BufReader::new(DecoderReader::new(text, &STANDARD)),
            document,
            nulls_flagged,
            row: 0,
            flags: Vec::new(),
            taken: 0,
            row_bytes,
            latin1: 0,
        }
    }

    fn wrong(&self, what: &str) -> IngestError {
        let path = self.document.path.display();
        IngestError::Unreadable(format!("{path}: row {}: {what}", self.row))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), IngestError> {
        self.taken += bytes.len() as u64;
        let read = self.bytes.read_exact(bytes);
        read.map_err(|error| self.cannot_be_read(&error))
    }

    fn cannot_be_read(&self, error: &std::io::Error) -> IngestError {
        match error.kind() {
            ErrorKind::UnexpectedEof => self.wrong("the table ends in the middle of it"),
            _ => self.wrong(&format!("its bytes cannot be read: {error}")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], IngestError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn at_end(&mut self) -> Result<bool, IngestError> {
        match self.bytes.fill_buf() {
            Ok(bytes) => Ok(bytes.is_empty()),
            Err(error) => Err(self.cannot_be_read(&error)),
        }
    }

    /// How many elements the next cell of a field has.
    fn length(&mut self, field: &Field) -> Result<usize, IngestError> {
        let length = match field.size {
            ArraySize::One => 1,
            ArraySize::Fixed(length) => length,
            ArraySize::Variable => u32::from_be_bytes(self.array()?) as usize,
        };
        if length > MOST_ELEMENTS {
            return Err(self.wrong(&format!(
                "a cell of the column {} says that it has {length} elements",
                field.name
            )));
        }
        // Each element is at hand as such, and then as a text.
        let each = size_of::<Element>() + field.datatype.longest_text();
        if length.saturating_mul(each) > self.row_bytes {
            return Err(self.document.too_long(self.row_bytes));
        }
        Ok(length)
    }

    fn cell(&mut self, field: &Field, null: bool, values: &mut Values) -> Result<(), IngestError> {
        let length = self.length(field)?;
        match field.datatype {
            Datatype::Char => {
                let bytes = self.text(length)?;
                let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                let (text, is_latin1) = utf8_or_latin1(bytes);
                self.latin1 += u64::from(is_latin1);
                self.push_text(field, null, &text, values)?;
            }
            Datatype::UnicodeChar => {
                let text = self.text(length * 2)?;
                let units = text
                    .chunks_exact(2)
                    .map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
                let text: String = char::decode_utf16(units)
                    .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect();
                self.push_text(field, null, &text, values)?;
            }
            _ => {
                let elements = self.elements(field, length)?;
                match (null, elements.as_slice()) {
                    (true, _) => values.push_null(),
                    (false, [only]) if field.is_one_value() => values.push(*only),
                    (false, several) => values.push_array(several),
                }
            }
        }
        Ok(())
    }

    /// A text ends at its first NUL.
    fn push_text(
        &self,
        field: &Field,
        null: bool,
        text: &str,
        values: &mut Values,
    ) -> Result<(), IngestError> {
        let text = text.split('\0').next().unwrap_or_default();
        if null {
            values.push_null();
            return Ok(());
        }
        match values.push_text(text) {
            true => Ok(()),
            false => Err(self.wrong(&field.no_value(text))),
        }
    }

    fn text(&mut self, bytes: usize) -> Result<Vec<u8>, IngestError> {
        // What is not there is not waited for in memory.
        let mut text = Vec::with_capacity(bytes.min(RESERVED));
        let read = (&mut self.bytes).take(bytes as u64).read_to_end(&mut text);
        match read {
            Ok(read) if read == bytes => {
                self.taken += bytes as u64;
                Ok(text)
            }
            Ok(_) => Err(self.wrong("the table ends in the middle of it")),
            Err(error) => Err(self.cannot_be_read(&error)),
        }
    }

    fn elements(&mut self, field: &Field, length: usize) -> Result<Vec<Element>, IngestError> {
        if field.datatype == Datatype::Bit {
            let bytes = self.text(length.div_ceil(8))?;
            if field.is_one_value() {
                // Writers do not agree on which bit of the byte it is: astropy's is the fourth. The others are 0.
                return Ok(vec![Element::Truth(bytes.iter().any(|byte| *byte != 0))]);
            }
            let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
            let bits = (0..length).map(|at| Element::Integer(i64::from(bit(at))));
            return Ok(bits.collect());
        }
        let complex = matches!(
            field.datatype,
            Datatype::FloatComplex | Datatype::DoubleComplex
        );
        let numbers = if complex { length * 2 } else { length };
        let mut elements = Vec::with_capacity(numbers.min(RESERVED));
        for _ in 0..numbers {
            elements.push(self.element(field)?);
        }
        Ok(elements)
    }

    fn element(&mut self, field: &Field) -> Result<Element, IngestError> {
        let integer = match field.datatype {
            Datatype::Boolean => {
                return Ok(match self.array::<1>()? {
                    [b'T' | b't' | b'1'] => Element::Truth(true),
                    [b'F' | b'f' | b'0'] => Element::Truth(false),
                    _ => Element::Null,
                });
            }
            Datatype::Float | Datatype::FloatComplex => {
                let number = f32::from_be_bytes(self.array()?);
                return Ok(field.unless_null(Element::Float(number)));
            }
            Datatype::Double | Datatype::DoubleComplex => {
                let number = f64::from_be_bytes(self.array()?);
                return Ok(field.unless_null(Element::Double(number)));
            }
            Datatype::UnsignedByte => i64::from(self.array::<1>()?[0]),
            Datatype::Short => i64::from(i16::from_be_bytes(self.array()?)),
            Datatype::Int => i64::from(i32::from_be_bytes(self.array()?)),
            _ => i64::from_be_bytes(self.array()?),
        };
        Ok(field.unless_null(Element::Integer(integer)))
    }
}

impl Cells for BinaryRows {
    /// All cells are taken from the stream: where the next one begins is told by those before it.
    fn next_row(
        &mut self,
        fields: &[Field],
        _: &[bool],
        values: &mut [Values],
    ) -> Result<bool, IngestError> {
        self.row += 1;
        if self.at_end()? {
            return Ok(false);
        }
        let before = self.taken;
        let mut flags = std::mem::take(&mut self.flags);
        if self.nulls_flagged {
            flags.resize(fields.len().div_ceil(8), 0);
            self.fill(&mut flags)?;
        }
        for (at, (field, values)) in fields.iter().zip(values).enumerate() {
            let null = flags
                .get(at / 8)
                .is_some_and(|flags| flags & (0x80 >> (at % 8)) != 0);
            self.cell(field, null, values)?;
        }
        self.flags = flags;
        if self.taken == before {
            return Err(self.wrong("it takes no bytes, so that there would be no end of rows"));
        }
        Ok(true)
    }

    fn latin1_values(&self) -> u64 {
        self.latin1
    }
}
