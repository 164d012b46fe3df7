//! All that stands before the cells of the first table.

use std::path::Path;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesEnd, BytesRef, BytesStart, Event};

use super::Xml;
use super::document::{Document, open_document};
use super::field::{ArraySize, Datatype, Field};
use super::metered::MeteredReader;
use crate::budget::DecodeBudget;
use crate::error::IngestError;
use crate::format::times::{TIMESTAMP, is_timestamp};
use crate::format::{FORMATS_OF_CLIENTS, FieldDescription, position_by_ucd};
use crate::row_errors::excerpt;

/// How the cells are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serialization {
    /// There are none.
    NoData,
    TableData,
    /// In base64.
    Binary {
        /// Whether each row begins with a bit for each field that says that its cell is NULL: BINARY2.
        nulls_flagged: bool,
    },
}

/// What a document says of its first table.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub fields: Vec<Field>,
    /// The number of rows, where it is said.
    pub rows: Option<u64>,
    pub serialization: Serialization,
}

impl Header {
    /// Reads a document up to its first cell.
    pub fn read(path: &Path, budget: &DecodeBudget) -> Result<(Xml, Self), IngestError> {
        let input = open_document(path)?;
        let mut xml = Reader::from_reader(MeteredReader::new(input, budget.row_bytes(usize::MAX)));
        xml.config_mut().expand_empty_elements = true;
        let document = Document {
            path: path.to_path_buf(),
        };
        let mut reading = Reading::default();
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let event = match xml.read_event_into(&mut buffer) {
                Ok(event) => event,
                Err(error) => return Err(document.unreadable(&xml, &error)),
            };
            match reading.take(&event) {
                Ok(None) => budget.check_columns(path, reading.fields.len())?,
                Ok(Some(serialization)) => {
                    let header = Self {
                        fields: reading.fields,
                        rows: reading.rows,
                        serialization,
                    };
                    return Ok((xml, header));
                }
                Err(sentence) => return Err(document.wrong(xml.buffer_position(), &sentence)),
            }
        }
    }

    /// The fields that are the position, by their UCDs.
    pub fn position(&self) -> Option<[String; 2]> {
        let fields = self.fields.iter();
        position_by_ucd(fields.map(|field| (field.name.as_str(), field.ucd.as_str())))
    }
}

/// What a document without rows says of the columns of its first table; `None` if it is no such document, or has more columns than that.
pub fn described_columns(document: &str, most: usize) -> Option<Vec<(String, FieldDescription)>> {
    let mut xml = Reader::from_str(document);
    xml.config_mut().expand_empty_elements = true;
    let mut reading = Reading::default();
    loop {
        let event = xml.read_event().ok()?;
        if matches!(&event, Event::End(element) if element.local_name().as_ref() == b"TABLE") {
            break;
        }
        let begins_rows = reading.take(&event).ok()?.is_some();
        if begins_rows || reading.fields.len() > most {
            return None;
        }
    }
    let fields = reading.fields.into_iter();
    Some(fields.map(|it| (it.name, it.described)).collect())
}

/// What has been read of a header.
#[derive(Default)]
struct Reading {
    /// Whether the document has begun as a VOTable does.
    is_votable: bool,
    fields: Vec<Field>,
    rows: Option<u64>,
    nulls_flagged: bool,
    /// Whether a FIELD is open, and the text so far of its DESCRIPTION if that is.
    in_field: bool,
    description: Option<String>,
}

/// Bytes of a DESCRIPTION that are kept: what is longer is no description of a column.
const LONGEST_DESCRIPTION: usize = 64 << 10;

impl Reading {
    /// Takes in what comes next; gives how cells are written once they follow.
    fn take(&mut self, event: &Event<'_>) -> Result<Option<Serialization>, String> {
        match event {
            Event::Start(element) => self.start(element),
            Event::End(element) => self.end(element),
            Event::Text(text) => self.text(text.decode().ok()),
            Event::CData(text) => self.text(text.decode().ok()),
            Event::GeneralRef(reference) => self.text(resolved(reference)),
            Event::DocType(name) if is_html(name) => Err(page_of_html()),
            Event::Eof if self.fields.is_empty() => {
                Err("it has no VOTable with columns in it".to_owned())
            }
            Event::Eof => Err("it ends before its table does".to_owned()),
            _ => Ok(None),
        }
    }

    /// Takes in the end of an element.
    fn end(&mut self, element: &BytesEnd<'_>) -> Result<Option<Serialization>, String> {
        match element.local_name().as_ref() {
            b"FIELD" => self.in_field = false,
            b"TABLE" if !self.fields.is_empty() => return Ok(Some(Serialization::NoData)),
            b"DESCRIPTION" => {
                if let (Some(text), Some(field)) = (self.description.take(), self.fields.last_mut())
                {
                    // Lines are broken as the writer of the file liked it.
                    let words: Vec<&str> = text.split_whitespace().collect();
                    field.described.description = words.join(" ");
                }
            }
            _ => {}
        }
        Ok(None)
    }

    /// Takes in a text.
    fn text(&mut self, text: Option<impl AsRef<str>>) -> Result<Option<Serialization>, String> {
        if let (Some(description), Some(text)) = (&mut self.description, text)
            && description.len() + text.as_ref().len() <= LONGEST_DESCRIPTION
        {
            description.push_str(text.as_ref());
        }
        Ok(None)
    }

    /// Takes in an element; gives how cells are written once they follow.
    fn start(&mut self, element: &BytesStart<'_>) -> Result<Option<Serialization>, String> {
        let local_name = element.local_name();
        self.is_votable |= local_name.as_ref() == b"VOTABLE";
        if !self.is_votable {
            return Err(match is_html(local_name.as_ref()) {
                true => page_of_html(),
                false => format!(
                    "it begins with the element {}, and a VOTable does with VOTABLE: {FORMATS_OF_CLIENTS}",
                    excerpt(local_name.as_ref())
                ),
            });
        }
        match local_name.as_ref() {
            b"TABLE" => self.rows = attribute(element, "nrows")?.and_then(|n| n.parse().ok()),
            b"FIELD" => {
                self.fields.push(field(element)?);
                self.in_field = true;
            }
            b"DESCRIPTION" if self.in_field => self.description = Some(String::new()),
            // Those of a parameter say nothing of a column.
            b"VALUES" if self.in_field => {
                let null = attribute(element, "null")?;
                if let (Some(null), Some(field)) = (null, self.fields.last_mut()) {
                    field.set_null(&null);
                }
            }
            b"DATA" if self.fields.is_empty() => {
                return Err("its table has no FIELD, and so no columns".to_owned());
            }
            b"TABLEDATA" => return Ok(Some(Serialization::TableData)),
            b"BINARY2" => self.nulls_flagged = true,
            b"FITS" => {
                return Err("its rows are a FITS file, which cannot be read: convert it".to_owned());
            }
            b"STREAM" => return self.stream(element).map(Some),
            _ => {}
        }
        Ok(None)
    }

    fn stream(&self, element: &BytesStart<'_>) -> Result<Serialization, String> {
        if attribute(element, "href")?.is_some() {
            return Err("its rows are in another file: save the table in one".to_owned());
        }
        match attribute(element, "encoding")?.as_deref() {
            Some("base64") => Ok(Serialization::Binary {
                nulls_flagged: self.nulls_flagged,
            }),
            other => Err(format!(
                "its rows are encoded as {}, which cannot be read: base64 can",
                other.unwrap_or("nothing")
            )),
        }
    }
}

/// Whether the name of a document's type, or of its first element, is that of HTML.
fn is_html(name: &[u8]) -> bool {
    let name = name.trim_ascii_start();
    name.get(..4)
        .is_some_and(|it| it.eq_ignore_ascii_case(b"html"))
}

fn page_of_html() -> String {
    format!(
        "it is a page of HTML, as servers send instead of a file that they do not give: {FORMATS_OF_CLIENTS}"
    )
}

fn field(element: &BytesStart<'_>) -> Result<Field, String> {
    let name = match attribute(element, "name")? {
        Some(name) if !name.trim().is_empty() => Some(name),
        _ => attribute(element, "ID")?,
    };
    let name = name.ok_or("a FIELD has no name")?;
    let word = attribute(element, "datatype")?.unwrap_or_default();
    let datatype = Datatype::of(&word)
        .ok_or_else(|| format!("the column {name} is of the datatype {word:?}, which is none"))?;
    let arraysize = attribute(element, "arraysize")?;
    let size = match &arraysize {
        None => ArraySize::One,
        Some(text) => ArraySize::of(text).ok_or_else(|| {
            format!("the column {name} has the arraysize {text:?}, which is none")
        })?,
    };
    let word = |name| Ok::<_, String>(attribute(element, name)?.unwrap_or_default());
    let ucd = word("ucd")?;
    let mut xtype = word("xtype")?;
    // Cells of several texts are no times.
    let is_time = datatype.is_text()
        && is_timestamp(&xtype)
        && !arraysize.is_some_and(|size| size.contains('x'));
    if is_time {
        xtype = TIMESTAMP.to_owned();
    }
    let described = FieldDescription {
        unit: word("unit")?,
        ucd: in_ucd1_plus(&ucd).to_owned(),
        xtype,
        utype: word("utype")?,
        description: String::new(),
    };
    Ok(Field {
        name,
        datatype,
        size,
        ucd: ucd.replace(' ', "").to_ascii_lowercase(),
        described,
        is_time,
        null: None,
    })
}

/// A UCD in words of UCD1+, which has small letters in each; of UCD1's words, which Simple Cone Search still has, those of rows and positions.
/// Source: An IVOA Standard for Unified Content Descriptors 1.1 (2005).
fn in_ucd1_plus(ucd: &str) -> &str {
    match ucd.trim() {
        "ID_MAIN" => "meta.id;meta.main",
        "POS_EQ_RA_MAIN" => "pos.eq.ra;meta.main",
        "POS_EQ_DEC_MAIN" => "pos.eq.dec;meta.main",
        word if word.bytes().any(|byte| byte.is_ascii_lowercase()) => word,
        _ => "",
    }
}

/// The character of a reference such as `&lt;` or `&#233;`.
fn resolved(reference: &BytesRef<'_>) -> Option<String> {
    if let Some(character) = reference.resolve_char_ref().ok()? {
        return Some(character.to_string());
    }
    resolve_predefined_entity(&reference.decode().ok()?).map(str::to_owned)
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    let found = element
        .try_get_attribute(name)
        .map_err(|error| format!("it is no XML: {error}"))?;
    let Some(found) = found else {
        return Ok(None);
    };
    match found.unescape_value() {
        Ok(value) => Ok(Some(value.into_owned())),
        Err(error) => Err(format!("it is no XML: {error}")),
    }
}
