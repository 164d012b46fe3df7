//! The packets that end an answer: done, refused, no more rows.

use super::capabilities::Capabilities;
use super::wire::put_length;
use crate::Refusal;

/// Every statement stands for itself.
const AUTOCOMMIT: u16 = 0x0002;
/// The answer of another statement follows.
const MORE_RESULTS: u16 = 0x0008;

const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
const ERR: u8 = 0xff;

/// Bytes of a message that clients have room for.
const LONGEST_MESSAGE: usize = 511;

/// The state of the connection that ends each answer.
fn status(more: bool) -> u16 {
    match more {
        true => AUTOCOMMIT | MORE_RESULTS,
        false => AUTOCOMMIT,
    }
}

/// A statement without rows has been done.
pub(crate) fn ok(bytes: &mut Vec<u8>, more: bool) {
    put_ok(bytes, OK, more);
}

fn put_ok(bytes: &mut Vec<u8>, header: u8, more: bool) {
    bytes.push(header);
    // Rows that were changed, and the key of a new one.
    put_length(bytes, 0);
    put_length(bytes, 0);
    bytes.extend_from_slice(&status(more).to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
}

/// The end of the rows.
pub(crate) fn end_of_rows(bytes: &mut Vec<u8>, capabilities: Capabilities, more: bool) {
    match capabilities.has(Capabilities::DEPRECATE_EOF) {
        true => put_ok(bytes, EOF, more),
        false => eof(bytes, more),
    }
}

/// The end of a list, as all clients know it.
pub(crate) fn eof(bytes: &mut Vec<u8>, more: bool) {
    // Warnings, of which there are none.
    bytes.extend_from_slice(&[EOF, 0, 0]);
    bytes.extend_from_slice(&status(more).to_le_bytes());
}

/// A refusal; a long sentence is cut to what clients have room for.
pub(crate) fn refused(bytes: &mut Vec<u8>, refusal: &Refusal) {
    bytes.push(ERR);
    bytes.extend_from_slice(&refusal.code.number.to_le_bytes());
    bytes.push(b'#');
    bytes.extend_from_slice(refusal.code.state.as_bytes());
    let sentence = &refusal.sentence;
    let end = sentence.floor_char_boundary(LONGEST_MESSAGE);
    bytes.extend_from_slice(&sentence.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use sql::ErrorCode;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![];
        write(&mut bytes);
        bytes
    }

    #[test]
    fn ends_say_whether_more_follows() {
        assert_eq!(written(|bytes| ok(bytes, false)), [0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(written(|bytes| ok(bytes, true)), [0, 0, 0, 10, 0, 0, 0]);
        let old = Capabilities(0);
        assert_eq!(
            written(|bytes| end_of_rows(bytes, old, true)),
            [0xfe, 0, 0, 10, 0]
        );
        let new = Capabilities::DEPRECATE_EOF;
        assert_eq!(
            written(|bytes| end_of_rows(bytes, new, false)),
            [0xfe, 0, 0, 2, 0, 0, 0]
        );
    }

    #[test]
    fn refusals_have_number_state_and_sentence() {
        let refusal = Refusal::new(ErrorCode::NO_TABLE, "there is no table");
        assert_eq!(
            written(|bytes| refused(bytes, &refusal)),
            b"\xff\x7a\x04#42S02there is no table"
        );
        let long = Refusal::new(ErrorCode::OTHER, "é".repeat(1000));
        let bytes = written(|bytes| refused(bytes, &long));
        assert_eq!(bytes.len(), 9 + 510);
        assert!(std::str::from_utf8(&bytes[9..]).is_ok());
    }
}
