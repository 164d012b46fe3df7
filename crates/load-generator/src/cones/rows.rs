//! Counts the rows of a response: a VOTable (TABLEDATA or BINARY2), or CSV with a header.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Why the rows of a response cannot be counted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RowsError {
    /// A VOTable that is an error's.
    #[error("the VOTable says: {0}")]
    Refused(String),
    /// Not all rows were sent.
    #[error("the VOTable says that rows were left out (OVERFLOW)")]
    Overflow,
    /// Neither of the formats that are understood.
    #[error("the rows cannot be counted: {0}")]
    Unreadable(&'static str),
}

/// Counts the rows of a response.
///
/// # Errors
/// The response is an error, was cut short or is not understood.
pub fn count_rows(body: &[u8]) -> Result<u64, RowsError> {
    match body.trim_ascii_start().first() {
        Some(b'<') => count_votable(body),
        Some(_) => count_csv(body),
        None => Err(RowsError::Unreadable("it is empty")),
    }
}

/// Lines without the header's. A line's end within quotes belongs to a value.
fn count_csv(body: &[u8]) -> Result<u64, RowsError> {
    let mut is_quoted = false;
    let mut lines = 0_u64;
    for byte in body {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => lines += 1,
            _ => {}
        }
    }
    if is_quoted || body.last() != Some(&b'\n') {
        return Err(RowsError::Unreadable("the last line has no end"));
    }
    Ok(lines - 1)
}

/// How many bytes a value takes in BINARY2.
#[derive(Debug, Clone, Copy)]
enum Width {
    /// Always as many.
    Fixed(usize),
    /// A count in four bytes, then as many elements of this many bytes.
    Counted(usize),
}

fn count_votable(body: &[u8]) -> Result<u64, RowsError> {
    let mut reader = Reader::from_reader(body);
    let mut widths = Vec::new();
    let (mut rows, mut is_binary2, mut is_stream) = (0, false, false);
    loop {
        let event = reader
            .read_event()
            .map_err(|_| RowsError::Unreadable("it is not XML"))?;
        match event {
            Event::Start(element) | Event::Empty(element) => match element.local_name().as_ref() {
                b"INFO" | b"PARAM" => check_status(&element)?,
                b"FIELD" => widths.push(width(&element)?),
                b"TR" => rows += 1,
                b"BINARY2" => is_binary2 = true,
                b"STREAM" => is_stream = true,
                _ => {}
            },
            Event::Text(text) if is_stream => {
                if !is_binary2 {
                    return Err(RowsError::Unreadable(
                        "its rows are neither TABLEDATA nor BINARY2",
                    ));
                }
                rows += count_binary2(&text, &widths)?;
            }
            Event::End(element) if element.local_name().as_ref() == b"STREAM" => is_stream = false,
            Event::Eof => return Ok(rows),
            _ => {}
        }
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let value = element.try_get_attribute(name).ok()??.value;
    Some(String::from_utf8_lossy(&value).into_owned())
}

/// Servers say by an INFO or PARAM whether all went well.
fn check_status(element: &BytesStart<'_>) -> Result<(), RowsError> {
    let value = attribute(element, "value").unwrap_or_default();
    match attribute(element, "name").as_deref() {
        Some("QUERY_STATUS") if value == "OVERFLOW" => Err(RowsError::Overflow),
        Some("QUERY_STATUS") if value != "OK" => Err(RowsError::Refused(value)),
        Some("Error") => Err(RowsError::Refused(value)),
        _ => Ok(()),
    }
}

fn width(field: &BytesStart<'_>) -> Result<Width, RowsError> {
    let kind = attribute(field, "datatype").unwrap_or_default();
    let of_one = match kind.as_str() {
        "boolean" | "unsignedByte" | "char" => 1,
        "short" | "unicodeChar" => 2,
        "int" | "float" => 4,
        "long" | "double" | "floatComplex" => 8,
        "doubleComplex" => 16,
        _ => {
            return Err(RowsError::Unreadable(
                "a FIELD has a datatype that is not known",
            ));
        }
    };
    let size = attribute(field, "arraysize").unwrap_or_else(|| "1".to_owned());
    if size.ends_with('*') {
        return Ok(Width::Counted(of_one));
    }
    size.split('x')
        .map(|extent| extent.trim().parse::<usize>())
        .product::<Result<usize, _>>()
        .map(|count| Width::Fixed(of_one * count))
        .map_err(|_| RowsError::Unreadable("a FIELD has an arraysize that is no size"))
}

/// Walks from row to row: flags of NULLs, a bit a column, then a value a column.
fn count_binary2(text: &[u8], widths: &[Width]) -> Result<u64, RowsError> {
    let packed: Vec<u8> = text
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let bytes = STANDARD
        .decode(packed)
        .map_err(|_| RowsError::Unreadable("its STREAM is not base64"))?;
    if widths.is_empty() {
        return Err(RowsError::Unreadable("it has a STREAM, but no FIELD"));
    }
    let ends_within = RowsError::Unreadable("its STREAM ends within a row");
    let (mut at, mut rows) = (0, 0);
    while at < bytes.len() {
        at += widths.len().div_ceil(8);
        for width in widths {
            at += match *width {
                Width::Fixed(count) => count,
                Width::Counted(of_one) => match bytes.get(at..at + 4) {
                    Some(&[a, b, c, d]) => 4 + of_one * u32::from_be_bytes([a, b, c, d]) as usize,
                    _ => return Err(ends_within),
                },
            };
        }
        rows += 1;
    }
    if at == bytes.len() {
        Ok(rows)
    } else {
        Err(ends_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votable(inside: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<VOTABLE xmlns=\"http://www.ivoa.net/xml/VOTable/v1.3\"><RESOURCE type=\"results\">\
             <INFO name=\"QUERY_STATUS\" value=\"OK\"/><TABLE><FIELD name=\"a\" datatype=\"int\"/>\
             <FIELD name=\"b\" datatype=\"char\" arraysize=\"*\"/><FIELD name=\"c\" datatype=\"double\" arraysize=\"2x1\"/>\
             <DATA>{inside}</DATA></TABLE></RESOURCE></VOTABLE>"
        )
    }

    /// Rows of a number, a text of another length each time and two more numbers, as the standard lays them out.
    fn stream(rows: usize) -> String {
        let mut bytes = Vec::new();
        for row in 0..rows {
            bytes.push(0);
            bytes.extend(7_i32.to_be_bytes());
            bytes.extend((row as u32).to_be_bytes());
            bytes.extend(vec![b'x'; row]);
            bytes.extend([0; 16]);
        }
        let text = STANDARD.encode(bytes);
        // Long lines may be broken.
        let lines: Vec<String> = text
            .as_bytes()
            .chunks(64)
            .map(|l| String::from_utf8_lossy(l).into_owned())
            .collect();
        format!(
            "<BINARY2><STREAM encoding=\"base64\">\n{}\n</STREAM></BINARY2>",
            lines.join("\n")
        )
    }

    #[test]
    fn rows_of_csv_are_lines_without_the_header() {
        for (text, rows) in [
            ("a,b\n", 0),
            ("a,b\n1,2\n3,4\n", 2),
            ("a\r\n\"x\ny\"\r\n2\r\n", 2),
        ] {
            assert_eq!(count_rows(text.as_bytes()), Ok(rows), "{text}");
        }
        assert!(count_rows(b"a,b\n1,2\n3,").is_err());
    }

    #[test]
    fn rows_of_votables_are_counted() {
        let row = "<TR><TD>1</TD><TD>&lt;</TD><TD/></TR>";
        let table = votable(&format!("<TABLEDATA>{}</TABLEDATA>", row.repeat(5)));
        assert_eq!(count_rows(table.as_bytes()), Ok(5));
        for rows in [0, 1, 2, 40] {
            assert_eq!(
                count_rows(votable(&stream(rows)).as_bytes()),
                Ok(rows as u64)
            );
        }
    }

    #[test]
    fn answers_that_are_cut_short_or_errors_are_refused() {
        let whole = votable(&stream(3));
        let failed = whole.replace("value=\"OK\"", "value=\"ERROR\"");
        assert_eq!(
            count_rows(failed.as_bytes()),
            Err(RowsError::Refused("ERROR".to_owned()))
        );
        let overflow = whole.replace("value=\"OK\"", "value=\"OVERFLOW\"");
        assert_eq!(count_rows(overflow.as_bytes()), Err(RowsError::Overflow));
        let short = votable(&stream(3)).replace("arraysize=\"2x1\"", "arraysize=\"3\"");
        assert!(count_rows(short.as_bytes()).is_err());
        assert!(count_rows(&whole.as_bytes()[..whole.len() - 200]).is_err());
        assert!(count_rows(b"").is_err());
        let old = "<VOTABLE><RESOURCE><INFO name=\"Error\" value=\"SR is missing\"/></RESOURCE></VOTABLE>";
        assert_eq!(
            count_rows(old.as_bytes()),
            Err(RowsError::Refused("SR is missing".to_owned()))
        );
    }
}
