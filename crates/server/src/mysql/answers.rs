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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Status {
    /// Of a connection that has set `autocommit`, or has not.
    pub(crate) fn of(autocommit: bool) -> Self {
        Self(if autocommit { AUTOCOMMIT } else { 0 })
    }

    /// The same where the answer of another statement follows, or does not.
    pub(crate) fn followed(self, more: bool) -> Self {
        Self(if more { self.0 | MORE_RESULTS } else { self.0 })
    }
}

/// A statement without rows has been done.
pub(crate) fn ok(bytes: &mut Vec<u8>, status: Status) {
    put_ok(bytes, OK, status, 0);
}

fn put_ok(bytes: &mut Vec<u8>, header: u8, status: Status, warnings: u16) {
    bytes.push(header);
    // Rows that were changed, and the key of a new one.
    put_length(bytes, 0);
    put_length(bytes, 0);
    bytes.extend_from_slice(&status.0.to_le_bytes());
    bytes.extend_from_slice(&warnings.to_le_bytes());
}

/// The end of the rows of a statement with so many warnings.
pub(crate) fn end_of_rows(
    bytes: &mut Vec<u8>,
    capabilities: Capabilities,
    status: Status,
    warnings: u16,
) {
    match capabilities.has(Capabilities::DEPRECATE_EOF) {
        true => put_ok(bytes, EOF, status, warnings),
        false => put_eof(bytes, status, warnings),
    }
}

/// The end of a list, as all clients know it.
pub(crate) fn eof(bytes: &mut Vec<u8>, status: Status) {
    put_eof(bytes, status, 0);
}

fn put_eof(bytes: &mut Vec<u8>, status: Status, warnings: u16) {
    bytes.push(EOF);
    bytes.extend_from_slice(&warnings.to_le_bytes());
    bytes.extend_from_slice(&status.0.to_le_bytes());
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
        let status = Status::of(true);
        assert_eq!(written(|bytes| ok(bytes, status)), [0, 0, 0, 2, 0, 0, 0]);
        let followed = status.followed(true);
        assert_eq!(written(|bytes| ok(bytes, followed)), [0, 0, 0, 10, 0, 0, 0]);
        let old = Capabilities(0);
        assert_eq!(
            written(|bytes| end_of_rows(bytes, old, followed, 3)),
            [0xfe, 3, 0, 10, 0]
        );
        let new = Capabilities::DEPRECATE_EOF;
        assert_eq!(
            written(|bytes| end_of_rows(bytes, new, Status::of(false), 258)),
            [0xfe, 0, 0, 0, 0, 2, 1]
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
