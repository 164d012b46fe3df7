//! The packets that end a result: OK, ERR and EOF.

use sql::connection::CharacterSet;

use super::capabilities::Capabilities;
use super::wire::put_length;
use crate::ClientError;

/// The status flag of autocommit, which is on.
const AUTOCOMMIT: u16 = 0x0002;
/// The status flag of a result that another result follows.
const MORE_RESULTS: u16 = 0x0008;

const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
const ERR: u8 = 0xff;

/// Bytes of a message that clients can receive.
const LONGEST_MESSAGE: usize = 511;

/// The status flags of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Status {
    /// The flags of a connection with or without `autocommit`.
    pub(crate) fn of(autocommit: bool) -> Self {
        Self(if autocommit { AUTOCOMMIT } else { 0 })
    }

    /// The same if the result of another statement follows.
    pub(crate) fn followed(self, more: bool) -> Self {
        Self(if more { self.0 | MORE_RESULTS } else { self.0 })
    }
}

/// Appends an OK packet.
pub(crate) fn ok(bytes: &mut Vec<u8>, status: Status) {
    put_ok(bytes, OK, status, (0, 0));
}

/// Appends an OK packet with the number of rows that were changed, and the number of warnings.
pub(crate) fn changed(bytes: &mut Vec<u8>, status: Status, rows: u64, warnings: u16) {
    put_ok(bytes, OK, status, (rows, warnings));
}

fn put_ok(bytes: &mut Vec<u8>, header: u8, status: Status, (affected, warnings): (u64, u16)) {
    bytes.push(header);
    put_length(bytes, affected);
    // The last inserted key.
    put_length(bytes, 0);
    bytes.extend_from_slice(&status.0.to_le_bytes());
    bytes.extend_from_slice(&warnings.to_le_bytes());
}

/// Appends the packet that ends rows, with the number of warnings.
pub(crate) fn end_of_rows(
    bytes: &mut Vec<u8>,
    capabilities: Capabilities,
    status: Status,
    warnings: u16,
) {
    match capabilities.has(Capabilities::DEPRECATE_EOF) {
        true => put_ok(bytes, EOF, status, (0, warnings)),
        false => put_eof(bytes, status, warnings),
    }
}

/// Appends an EOF packet, which ends a list.
pub(crate) fn eof(bytes: &mut Vec<u8>, status: Status) {
    put_eof(bytes, status, 0);
}

fn put_eof(bytes: &mut Vec<u8>, status: Status, warnings: u16) {
    bytes.push(EOF);
    bytes.extend_from_slice(&warnings.to_le_bytes());
    bytes.extend_from_slice(&status.0.to_le_bytes());
}

/// Appends an ERR packet, in a character set or else in UTF-8; a long message is cut to what clients can receive.
pub(crate) fn err(bytes: &mut Vec<u8>, error: &ClientError, set: Option<&CharacterSet>) {
    bytes.push(ERR);
    bytes.extend_from_slice(&error.code.number.to_le_bytes());
    bytes.push(b'#');
    bytes.extend_from_slice(error.code.state.as_bytes());
    let sentence = &error.sentence;
    let end = sentence.floor_char_boundary(LONGEST_MESSAGE);
    match set {
        Some(set) => bytes.extend_from_slice(&set.encode(&sentence[..end])),
        None => bytes.extend_from_slice(&sentence.as_bytes()[..end]),
    }
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
    fn rejections_have_number_state_and_sentence() {
        let error = ClientError::new(ErrorCode::NO_TABLE, "there is no table");
        assert_eq!(
            written(|bytes| err(bytes, &error, None)),
            b"\xff\x7a\x04#42S02there is no table"
        );
        let long = ClientError::new(ErrorCode::OTHER, "é".repeat(1000));
        let bytes = written(|bytes| err(bytes, &long, None));
        assert_eq!(bytes.len(), 9 + 510);
        assert!(std::str::from_utf8(&bytes[9..]).is_ok());
    }
}
