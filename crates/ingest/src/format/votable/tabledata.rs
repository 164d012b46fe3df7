//! Cells as elements: `<TR><TD>1.5</TD><TD/></TR>`.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::field::{ArraySize, Datatype, Element, Field, Values};
use super::{Cells, Document, Xml};
use crate::error::IngestError;
use crate::format::text::utf8_or_latin1;

pub(super) struct TableDataRows {
    xml: Xml,
    document: Document,
    buffer: Vec<u8>,
    text: Vec<u8>,
    /// The number of the row at hand, from 1.
    row: u64,
    /// Texts that were no UTF-8.
    latin1: u64,
}

/// What comes next in a table.
enum Next {
    /// `<TR>`.
    Row,
    /// The text of a cell is in `text`.
    Cell,
    /// `</TR>`.
    EndOfRow,
    /// `</TABLEDATA>`.
    EndOfTable,
}

impl TableDataRows {
    /// Reads from behind `<TABLEDATA>`.
    pub fn new(xml: Xml, document: Document) -> Self {
        Self {
            xml,
            document,
            buffer: Vec::new(),
            text: Vec::new(),
            row: 0,
            latin1: 0,
        }
    }

    fn wrong(&self, what: &str) -> IngestError {
        self.document.wrong(self.xml.buffer_position(), what)
    }

    fn next(&mut self) -> Result<Next, IngestError> {
        loop {
            self.buffer.clear();
            match self.xml.read_event_into(&mut self.buffer) {
                Ok(Event::Start(element)) => match element.local_name().as_ref() {
                    b"TR" => {
                        self.xml.get_mut().begin();
                        return Ok(Next::Row);
                    }
                    b"TD" => self.text.clear(),
                    _ => {}
                },
                Ok(Event::End(element)) => match element.local_name().as_ref() {
                    b"TD" => return Ok(Next::Cell),
                    b"TR" => return Ok(Next::EndOfRow),
                    b"TABLEDATA" => return Ok(Next::EndOfTable),
                    _ => {}
                },
                Ok(Event::Text(text)) => self.text.extend_from_slice(&text),
                Ok(Event::CData(text)) => self.text.extend_from_slice(&text),
                Ok(Event::GeneralRef(name)) => {
                    let character = name.resolve_char_ref().ok().flatten().map(String::from);
                    let name = String::from_utf8_lossy(&name).into_owned();
                    let entity = || resolve_predefined_entity(&name).map(str::to_owned);
                    match character.or_else(entity) {
                        Some(text) => self.text.extend_from_slice(text.as_bytes()),
                        None => return Err(self.wrong(&format!("there is no character &{name};"))),
                    }
                }
                Ok(Event::Eof) => return Err(self.wrong("it ends in the middle of the table")),
                Ok(_) => {}
                Err(error) => return Err(self.document.unreadable(&self.xml, &error)),
            }
        }
    }

    fn cell(&mut self, field: &Field, values: &mut Values) -> Result<(), IngestError> {
        let (text, is_latin1) = utf8_or_latin1(&self.text);
        self.latin1 += u64::from(is_latin1);
        let is_value = match field.datatype {
            _ if text.is_empty() => {
                values.push_null();
                true
            }
            Datatype::Bit if !field.is_one_value() => {
                bits(&text).is_some_and(|bits| values.push_text(&bits))
            }
            _ if field.is_text() => is_shape(field, &text) && values.push_text(&text),
            _ => element(field, text.trim())
                .map(|element| values.push(element))
                .is_some(),
        };
        match is_value {
            true => Ok(()),
            false => {
                let told = field.no_value(text.trim());
                Err(self.wrong(&format!("row {}: {told}", self.row)))
            }
        }
    }
}

impl Cells for TableDataRows {
    fn next_row(
        &mut self,
        fields: &[Field],
        wanted: &[bool],
        values: &mut [Values],
    ) -> Result<bool, IngestError> {
        match self.next()? {
            Next::Row => self.row += 1,
            Next::EndOfTable => return Ok(false),
            Next::Cell | Next::EndOfRow => return Err(self.wrong("a cell stands in no row")),
        }
        for at in 0.. {
            match self.next()? {
                Next::Cell => match fields.get(at) {
                    Some(field) if wanted[at] => self.cell(field, &mut values[at])?,
                    Some(_) => values[at].push_null(),
                    None => {
                        let count = fields.len();
                        return Err(self.wrong(&format!(
                            "a row has more cells than the table has columns, which are {count}"
                        )));
                    }
                },
                Next::EndOfRow if at == fields.len() => break,
                _ => {
                    let count = fields.len();
                    return Err(self.wrong(&format!("a row has {at} cells in place of {count}")));
                }
            }
        }
        Ok(true)
    }

    fn latin1_values(&self) -> u64 {
        self.latin1
    }
}

/// An array of bits with blanks between them; `None` if it is none. Some write them without blanks.
fn bits(text: &str) -> Option<String> {
    let mut bits = String::with_capacity(2 * text.len());
    for bit in text.chars().filter(|c| !c.is_ascii_whitespace()) {
        if !matches!(bit, '0' | '1') {
            return None;
        }
        if !bits.is_empty() {
            bits.push(' ');
        }
        bits.push(bit);
    }
    Some(bits)
}

/// Whether a text has the numbers of the field's shape, if that has one.
fn is_shape(field: &Field, text: &str) -> bool {
    if field.shape().is_none() {
        return true;
    }
    let mut numbers = 0;
    let are_numbers = text.split_ascii_whitespace().all(|word| {
        numbers += 1;
        word.parse::<f64>().is_ok()
    });
    let is_long_enough = match field.size {
        ArraySize::Fixed(length) => numbers == length,
        _ => true,
    };
    are_numbers && (numbers == 0 || is_long_enough)
}

/// The value of a cell; `None` if its text is none.
fn element(field: &Field, text: &str) -> Option<Element> {
    if text.is_empty() {
        return Some(Element::Null);
    }
    field.read(text)
}
