//! Documents of XML in UTF-8, whatever encoding they are written in.
//!
//! Source: Extensible Markup Language 1.0 (W3C Recommendation, fifth edition), section 4.3.3 and appendix F: the byte order mark decides,
//! then how the first tag is written, then what the declaration says.

use std::io::{self, Cursor, ErrorKind, Read};

use encoding_rs::mem::convert_latin1_to_utf8;
use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes in which the declaration of a document ends.
const HEAD: u64 = 1024;
/// Bytes of a document that are turned into UTF-8 at a time.
const BLOCK: usize = 16 << 10;
/// Bytes of UTF-8 that a byte becomes at most.
const LARGEST_GROWTH: usize = 3;

/// How the characters of a document are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// UTF-8, or US-ASCII, which is a part of it.
    Utf8,
    /// ISO-8859-1: each byte is the number of a character.
    Latin1,
    /// Another one, by its decoder.
    Other(&'static encoding_rs::Encoding),
}

impl Encoding {
    /// The encoding of a document that begins with these bytes, and how many of them are a byte order mark.
    ///
    /// # Errors
    /// The document declares one that is not read: a sentence.
    fn of(head: &[u8]) -> Result<(Self, usize), String> {
        Ok(match head {
            [0xef, 0xbb, 0xbf, ..] => (Self::Utf8, 3),
            [0xff, 0xfe, ..] => (Self::Other(UTF_16LE), 2),
            [0xfe, 0xff, ..] => (Self::Other(UTF_16BE), 2),
            [b'<', 0, ..] => (Self::Other(UTF_16LE), 0),
            [0, b'<', ..] => (Self::Other(UTF_16BE), 0),
            _ => match declared(head) {
                Some(name) => (Self::named(&name)?, 0),
                None => (Self::Utf8, 0),
            },
        })
    }

    /// The encoding of a name in a declaration that can be read byte by byte.
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" | "us-ascii" | "ascii" => Self::Utf8,
            // Programs that turn a text into UTF-8 leave its declaration as it was.
            "utf-16" | "utf-16le" | "utf-16be" => Self::Utf8,
            "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" | "latin-1" => Self::Latin1,
            "windows-1252" | "cp1252" => Self::Other(WINDOWS_1252),
            _ => {
                return Err(format!(
                    "it is written in the encoding {name:?}, which is not read: save it in UTF-8 (UTF-16, ISO-8859-1, US-ASCII \
                     and windows-1252 are read, too)"
                ));
            }
        })
    }
}

/// The encoding that the declaration of a document names.
fn declared(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let declaration = head.trim_start().strip_prefix("<?xml")?.split_once("?>")?.0;
    let (_, value) = declaration.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, _) = value.get(1..)?.split_once(quote)?;
    Some(name.trim().to_owned())
}

/// A document in UTF-8, without a byte order mark.
///
/// # Errors
/// It cannot be read, or declares an encoding that is not read; that is an error of the kind `Unsupported`, whose text is a sentence.
pub(super) fn in_utf8(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD).read_to_end(&mut head)?;
    let (encoding, mark) =
        Encoding::of(&head).map_err(|sentence| io::Error::new(ErrorKind::Unsupported, sentence))?;
    let head = head.split_off(mark);
    let whole = Cursor::new(head).chain(input);
    Ok(match encoding {
        Encoding::Utf8 => Box::new(whole),
        Encoding::Latin1 => Box::new(Transcoder::new(whole, Characters::Latin1)),
        Encoding::Other(encoding) => {
            let decoder = encoding.new_decoder_without_bom_handling();
            let characters = Characters::Decoded(decoder, encoding.name());
            Box::new(Transcoder::new(whole, characters))
        }
    })
}

/// How bytes become characters.
enum Characters {
    Latin1,
    /// By a decoder, with the name of its encoding.
    Decoded(Decoder, &'static str),
}

/// Turns what it reads into UTF-8.
struct Transcoder<R> {
    input: R,
    characters: Characters,
    /// What was read of the input, and is not decoded yet from `used` on.
    read: Vec<u8>,
    used: usize,
    input_ended: bool,
    /// What was decoded, and is not given out yet from `given` on.
    decoded: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R: Read> Transcoder<R> {
    fn new(input: R, characters: Characters) -> Self {
        Self {
            input,
            characters,
            read: Vec::new(),
            used: 0,
            input_ended: false,
            decoded: Vec::new(),
            given: 0,
            ended: false,
        }
    }

    /// Decodes more of the input, if there is more.
    fn decode(&mut self) -> io::Result<()> {
        if self.used == self.read.len() && !self.input_ended {
            self.used = 0;
            self.read.resize(BLOCK, 0);
            let outcome = self.input.read(&mut self.read);
            self.read.truncate(*outcome.as_ref().unwrap_or(&0));
            self.input_ended = outcome? == 0;
        }
        let bytes = &self.read[self.used..];
        self.given = 0;
        self.decoded.resize(BLOCK * LARGEST_GROWTH, 0);
        let written = match &mut self.characters {
            Characters::Latin1 => {
                self.used = self.read.len();
                self.ended = self.input_ended;
                convert_latin1_to_utf8(bytes, &mut self.decoded)
            }
            Characters::Decoded(decoder, name) => {
                let (outcome, used, written) = decoder.decode_to_utf8_without_replacement(
                    bytes,
                    &mut self.decoded,
                    self.input_ended,
                );
                self.used += used;
                match outcome {
                    DecoderResult::InputEmpty => self.ended = self.input_ended,
                    DecoderResult::OutputFull => {}
                    DecoderResult::Malformed(..) => {
                        self.decoded.clear();
                        let sentence = format!("some of its bytes are no characters of {name}");
                        return Err(io::Error::new(ErrorKind::InvalidData, sentence));
                    }
                }
                written
            }
        };
        self.decoded.truncate(written);
        Ok(())
    }
}

impl<R: Read> Read for Transcoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.decoded.len() && !self.ended {
            self.decode()?;
        }
        let left = &self.decoded[self.given..];
        let length = left.len().min(into.len());
        into[..length].copy_from_slice(&left[..length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        in_utf8(Box::new(Cursor::new(bytes.to_vec())))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn utf16(text: &str, mark: bool, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let marked = mark.then_some('\u{feff}').into_iter().chain(text.chars());
        let text: String = marked.collect();
        text.encode_utf16().flat_map(unit).collect()
    }

    /// Long enough for several blocks, with characters of one to four bytes.
    fn document() -> String {
        let cells = "<TD>é Ω € 𝄞 &amp; x</TD>".repeat(3000);
        format!("<?xml version='1.0' encoding=\"UTF-16\"?><T>{cells}</T>")
    }

    #[test]
    fn utf16_is_read_with_and_without_a_mark() {
        let text = document();
        for mark in [true, false] {
            for unit in [u16::to_le_bytes, u16::to_be_bytes] {
                assert_eq!(read(&utf16(&text, mark, unit)).unwrap(), text);
            }
        }
    }

    #[test]
    fn declared_encodings_are_read() {
        let declared = |name: &str| format!("<?xml version=\"1.0\" encoding = '{name}' ?><a>");
        let with = |name: &str, bytes: &[u8]| [declared(name).as_bytes(), bytes].concat();
        for (name, bytes, characters) in [
            ("ISO-8859-1", &b"\xe9\x80"[..], "é\u{80}"),
            ("latin1", b"\xff", "ÿ"),
            ("Windows-1252", b"\xe9\x80", "é€"),
            ("UTF-8", "é€".as_bytes(), "é€"),
            ("US-ASCII", b"e", "e"),
            ("utf-16", "é".as_bytes(), "é"),
        ] {
            let text = read(&with(name, bytes)).unwrap();
            assert_eq!(text, declared(name) + characters, "{name}");
        }
        let marked = ["\u{feff}".as_bytes(), &with("UTF-8", "é".as_bytes())].concat();
        assert_eq!(read(&marked).unwrap(), declared("UTF-8") + "é");
        assert_eq!(read("<a>é".as_bytes()).unwrap(), "<a>é");
        assert_eq!(read(b"").unwrap(), "");
    }

    #[test]
    fn other_encodings_are_named() {
        let error = read(b"<?xml version=\"1.0\" encoding=\"EBCDIC-CP-US\"?><a/>").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let told = error.to_string();
        assert!(
            told.contains("\"EBCDIC-CP-US\"") && told.contains("windows-1252"),
            "{told}"
        );
    }

    #[test]
    fn what_is_cut_within_a_character_is_an_error() {
        let mut bytes = utf16(&document(), true, u16::to_le_bytes);
        bytes.truncate(bytes.len() - 1);
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("no characters of UTF-16LE"), "{error}");
    }
}
