//! Documents in XML.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

/// What documents are written to.
pub(super) type Xml = Writer<Vec<u8>>;

/// A document whose content is written by `content`.
pub(super) fn document(content: impl FnOnce(&mut Xml) -> io::Result<()>) -> Vec<u8> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 1);
    let declaration = BytesDecl::new("1.0", Some("UTF-8"), None);
    let written = xml
        .write_event(Event::Decl(declaration))
        .and_then(|()| content(&mut xml));
    // A Vec takes whatever is written.
    debug_assert!(written.is_ok());
    xml.into_inner()
}

/// An element with a text and nothing else.
pub(super) fn text(xml: &mut Xml, name: &str, text: &str) -> io::Result<()> {
    let text = readable(text);
    xml.create_element(name)
        .write_text_content(BytesText::new(&text))?;
    Ok(())
}

/// The same, if there is a text.
pub(super) fn optional(xml: &mut Xml, name: &str, value: Option<&str>) -> io::Result<()> {
    match value {
        Some(value) => text(xml, name, value),
        None => Ok(()),
    }
}

/// Text as XML can have it: characters that it cannot become the replacement character.
pub(super) fn readable(text: &str) -> String {
    let forbidden = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    text.replace(forbidden, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let written = document(|xml| text(xml, "message", "a < b & \u{1}"));
        let written = String::from_utf8(written).unwrap();
        assert!(
            written.ends_with("<message>a &lt; b &amp; \u{fffd}</message>"),
            "{written}"
        );
    }
}
