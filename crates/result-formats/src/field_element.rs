//! FIELDs of VOTables as XML.

use std::borrow::Cow;
use std::io::Write;

use quick_xml::escape::escape;

use crate::ValueForm;

/// What a FIELD says of a column.
#[derive(Debug, Clone, Copy)]
pub struct FieldElement<'a> {
    /// Its name.
    pub name: &'a str,
    /// How its values are sent.
    pub form: ValueForm,
    /// How they are to be read.
    pub xtype: Option<&'a str>,
    /// What it is physically.
    pub ucd: Option<&'a str>,
    /// Its place in a data model.
    pub utype: Option<&'a str>,
    /// The unit of its values.
    pub unit: Option<&'a str>,
    /// The ID of the element that it refers to.
    pub reference: Option<&'a str>,
    /// What it means, in words.
    pub description: Option<&'a str>,
}

impl FieldElement<'_> {
    /// Appends the element.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<FIELD");
        attribute("name", self.name, out);
        attribute("datatype", self.form.datatype(), out);
        if let Some(size) = self.form.array_size() {
            attribute("arraysize", &size, out);
        }
        let optional = [
            ("xtype", self.xtype),
            ("ucd", self.ucd),
            ("utype", self.utype),
            ("unit", self.unit),
            ("ref", self.reference),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                attribute(name, value, out);
            }
        }
        match self.description {
            None => out.extend_from_slice(b"/>\n"),
            Some(description) => {
                out.extend_from_slice(b"><DESCRIPTION>");
                out.extend_from_slice(escaped(description).as_bytes());
                out.extend_from_slice(b"</DESCRIPTION></FIELD>\n");
            }
        }
    }
}

/// Appends an attribute of an element.
pub fn attribute(name: &str, value: &str, out: &mut Vec<u8>) {
    // A Vec takes whatever is written.
    let _ = write!(out, " {name}=\"{}\"", escaped(value));
}

/// Text as XML has it. Characters that XML 1.0 cannot have in any form become the replacement character; a carriage return, which readers
/// take for the end of a line, is written as a reference.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let escaped = without_forbidden(text);
    match escaped.contains('\r') {
        true => Cow::Owned(escaped.replace('\r', "&#13;")),
        false => escaped,
    }
}

fn without_forbidden(text: &str) -> Cow<'_, str> {
    let forbidden = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(forbidden) {
        let replaced = text.replace(forbidden, "\u{fffd}");
        return Cow::Owned(escape(&replaced).into_owned());
    }
    escape(text)
}
