//! What a file is, told by its first bytes.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::error::IngestError;
use crate::spool::expect_regular;

/// The kinds of file that are told apart by their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Magic {
    Parquet,
    Gzip,
    /// XML.
    VoTable,
    /// XML, gzipped.
    GzipVoTable,
    Fits,
    GzipFits,
    Arrow,
    ArrowStream,
    /// Formats that are known but cannot be read.
    Foreign(&'static str),
    Other,
}

/// Bytes by which formats are told apart.
const MAGIC_BYTES: u64 = 64;

/// Which tables clients may send, as the end of a sentence.
pub(crate) const FORMATS_OF_CLIENTS: &str = "send the table as VOTable, FITS, Parquet, or CSV or TSV with a header, each as it is or gzipped";

/// Looks at the first bytes of a file.
pub(crate) fn magic(path: &Path) -> Result<Magic, IngestError> {
    expect_regular(path)?;
    let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
    let first = |input: &mut dyn Read| {
        let mut head = Vec::new();
        input.take(MAGIC_BYTES).read_to_end(&mut head).map(|_| head)
    };
    let head = first(&mut &file).map_err(|e| IngestError::io("read", path, e))?;
    let magic = magic_of(&head);
    if magic != Magic::Gzip {
        return Ok(magic);
    }
    let packed = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
    // What cannot be unpacked is told when it is read.
    let inner = first(&mut MultiGzDecoder::new(BufReader::new(packed))).unwrap_or_default();
    Ok(match magic_of(&inner) {
        Magic::VoTable => Magic::GzipVoTable,
        Magic::Fits => Magic::GzipFits,
        _ => Magic::Gzip,
    })
}

/// The kind of a file that begins with these bytes, of which the first 64 are enough.
pub(crate) fn magic_of(head: &[u8]) -> Magic {
    match head {
        [b'P', b'A', b'R', b'1', ..] => Magic::Parquet,
        [0x1f, 0x8b, ..] => Magic::Gzip,
        [b'S', b'I', b'M', b'P', b'L', b'E', b' ', b' ', ..] => Magic::Fits,
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Magic::Arrow,
        // The mark before the length of a message.
        [0xff, 0xff, 0xff, 0xff, ..] => Magic::ArrowStream,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Magic::Foreign("zstd-compressed"),
        [b'B', b'Z', b'h', ..] => Magic::Foreign("bzip2-compressed"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Magic::Foreign("xz-compressed"),
        [b'P', b'K', 3, 4, ..] => Magic::Foreign("zip"),
        [0x89, b'H', b'D', b'F', ..] => Magic::Foreign("HDF5"),
        [0x89, b'P', b'N', b'G', ..] => Magic::Foreign("PNG"),
        [0xff, 0xd8, 0xff, ..] => Magic::Foreign("JPEG"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Magic::Foreign("PDF"),
        _ if head.starts_with(b"SQLite format 3\0") => Magic::Foreign("SQLite"),
        _ if is_xml(head) => Magic::VoTable,
        _ => Magic::Other,
    }
}

/// Whether a file begins with a tag: in UTF-8 or the like, perhaps behind a byte order mark and white space, or in UTF-16.
fn is_xml(head: &[u8]) -> bool {
    match head {
        [0xff, 0xfe, b'<', 0, ..] | [0xfe, 0xff, 0, b'<', ..] | [0, b'<', ..] => true,
        _ => {
            let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
            text.trim_ascii_start().first() == Some(&b'<')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_beginning() {
        for (head, magic) in [
            (&b"PAR1"[..], Magic::Parquet),
            (b"SIMPLE  =                    T", Magic::Fits),
            (b"SIMPLE,name\n1,2\n", Magic::Other),
            (b"ARROW1\0\0", Magic::Arrow),
            (b"\xff\xff\xff\xff\x10", Magic::ArrowStream),
            (b"\x1f\x8b\x08", Magic::Gzip),
            (b"<VOTABLE>", Magic::VoTable),
            (b"\n <V", Magic::VoTable),
            (b"\xef\xbb\xbf<?xml", Magic::VoTable),
            (b"\xff\xfe<\0?\0", Magic::VoTable),
            (b"\xfe\xff\0<\0?", Magic::VoTable),
            (b"<\0?\0", Magic::VoTable),
            (b"\0<\0?", Magic::VoTable),
            (b"\xff\xfei\0d\0", Magic::Other),
            (b"\x89PNG\r\n\x1a\n", Magic::Foreign("PNG")),
            (b"ra,d", Magic::Other),
            (b"", Magic::Other),
        ] {
            assert_eq!(magic_of(head), magic, "{head:?}");
        }
    }
}
