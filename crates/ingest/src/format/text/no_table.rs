//! What clients send for a table, and is none: bytes of other programs, JSON, texts in UTF-16.
//!
//! Whatever is not known to be something else is read as a text table.

use std::path::Path;

use crate::error::IngestError;
use crate::format::FORMATS_OF_CLIENTS;

/// Bytes that are looked at.
const LOOKED_AT: usize = 64 << 10;
/// A text that is no UTF-8 has at most one control character in so many bytes.
const BYTES_FOR_EACH_CONTROL: usize = 50;
/// One in UTF-8 has fewer than one in so many: some writers fill up their texts with zeros.
const BYTES_FOR_EACH_FILL: usize = 3;

/// Rejects a file of a client that begins with these bytes, if it is no table.
pub(super) fn reject(path: &Path, sample: &[u8]) -> Result<(), IngestError> {
    let looked_at = &sample[..sample.len().min(LOOKED_AT)];
    let reason = if is_utf16(looked_at) {
        "it is a text in UTF-16: send it in UTF-8".to_owned()
    } else if is_binary(looked_at) {
        format!("it is no text, and no other table that is known: {FORMATS_OF_CLIENTS}")
    } else if is_json(looked_at) {
        format!("it is JSON, which is not read: {FORMATS_OF_CLIENTS}")
    } else {
        return Ok(());
    };
    Err(IngestError::layout(path, reason))
}

/// Why a file that begins with these bytes is hardly the table that somebody has named, if anything says so.
pub(super) fn doubt(sample: &[u8]) -> Option<&'static str> {
    let looked_at = &sample[..sample.len().min(LOOKED_AT)];
    if looked_at.trim_ascii().is_empty() {
        Some("there are only blank lines where its header should be")
    } else if is_utf16(looked_at) {
        Some("it is a text in UTF-16: convert it to UTF-8")
    } else if is_binary(looked_at) {
        Some("its bytes are no text, and no format that is read begins so: is it the right file?")
    } else if is_json(looked_at) {
        Some("it is JSON, which is not read: convert it to CSV")
    } else {
        None
    }
}

fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Whether bytes are those of no text: by their control characters, of which a text in UTF-8 may have many, and one in another encoding few.
fn is_binary(bytes: &[u8]) -> bool {
    // The sign at the end of files of MS-DOS is none of these.
    let is_control = |byte: &&u8| **byte < 0x20 && !matches!(**byte, b'\t'..=b'\r' | 0x1a);
    let controls = bytes.iter().filter(is_control).count();
    match std::str::from_utf8(bytes) {
        // The last character may be cut.
        Err(error) if error.error_len().is_some() => {
            bytes.contains(&0) || controls * BYTES_FOR_EACH_CONTROL > bytes.len()
        }
        _ => controls * BYTES_FOR_EACH_FILL > bytes.len(),
    }
}

/// Whether a text begins as an object of JSON does, or as an array of objects, arrays or texts. The names of columns may have brackets, such
/// as `[Fe/H]`.
fn is_json(bytes: &[u8]) -> bool {
    let mut letters = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    matches!(
        (letters.next(), letters.next()),
        (Some(b'{'), Some(b'"' | b'}')) | (Some(b'['), Some(b'{' | b'[' | b'"' | b']'))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8]) -> Option<String> {
        let outcome = reject(Path::new("list"), bytes);
        outcome.err().map(|error| error.to_string())
    }

    #[test]
    fn what_is_hardly_a_table_is_doubted() {
        for text in [&b"id,ra\n1,2\n"[..], b"\n\nid\n1\n", b"nom\xe9,x\n"] {
            assert_eq!(doubt(text), None, "{text:?}");
        }
        for (bytes, why) in [
            (&b"\n \r\n\t\n"[..], "only blank lines"),
            (&b"\xff\xfei\0d\0"[..], "UTF-16"),
            (&b"\x01\x02\xfe\x00\x03id\n"[..], "no text"),
            (&b"{\"id\": 1}\n"[..], "JSON"),
        ] {
            let told = doubt(bytes).unwrap();
            assert!(told.contains(why), "{bytes:?}: {told}");
        }
    }

    #[test]
    fn tables_are_taken() {
        let latin1 = b"name,ra\nCassiop\xe9e,1\n";
        let padded = b"name,ra\nab\0\0\0\0,1.25\n";
        let cut = &"name\né".as_bytes()[..6];
        for text in [
            &b"ra,dec\n1,2\n"[..],
            b"[Fe/H],{x},ra\n1,2,3\n",
            b"{x}\n1\n",
            b"ra\tdec\r\n1\t2\r\n\x1a",
            "nom;déc\nà;1\n".as_bytes(),
            "星,1\n".as_bytes(),
            b"a,b\n\x01,2\n",
            b"\\N,1\n",
            b"",
            latin1,
            padded,
            cut,
        ] {
            assert_eq!(told(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_none_is_rejected() {
        let mut random = 7_u64;
        let mut noise = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        };
        for length in [200, 1000, 100_000] {
            let bytes: Vec<u8> = (0..length).map(|_| noise()).collect();
            let told = told(&bytes).unwrap();
            assert!(told.contains("list: it is no text"), "{told}");
        }
        let utf16: Vec<u8> = "ra,dec\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert!(told(&utf16).unwrap().contains("no text"));
        let marked = [b"\xff\xfe", utf16.as_slice()].concat();
        assert!(told(&marked).unwrap().contains("UTF-16"));
        for json in [
            "{\"rows\": []}",
            " [ {\"ra\": 1}]",
            "[[1, 2]]",
            "[]",
            "{\n}",
        ] {
            let told = told(json.as_bytes()).unwrap();
            assert!(told.contains("it is JSON"), "{json}: {told}");
        }
    }
}
