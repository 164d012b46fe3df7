//! The prepared statements of a connection.

use std::collections::HashMap;

use ingest::Reservation;
use sql::ErrorCode;
use sql::connection::CharacterSet;

use super::columns::{define, define_parameter};
use super::parameters::{ParameterType, Parameters, bind};
use super::query::ResultColumns;
use super::responses::{Status, eof};
use super::row_counts::make_whole;
use super::wire::Reader;
use super::{capabilities::Capabilities, packets::PacketBuffer};
use crate::ClientError;

/// Prepared statements that a connection may have.
const MOST_STATEMENTS: usize = 16_382;
/// Bytes of memory of all of them.
const MOST_KEPT: usize = 64 << 20;
/// Bytes of long-data values of all of them.
const MOST_AHEAD: usize = 64 << 20;

/// A prepared statement.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    pub(crate) text: String,
    /// The byte offsets of its placeholders.
    offsets: Vec<usize>,
    parameters: Parameters,
    /// The headings that the response to PREPARE announced.
    pub(crate) headings: Option<Vec<String>>,
    /// The error of a long-data value, which the client receives when it executes the statement.
    ahead_rejected: Option<ClientError>,
}

impl PreparedStatement {
    /// Bytes of memory, without long-data values. A short text may have many parameters or headings.
    fn bytes(&self) -> usize {
        let parameters = self.offsets.len() * (size_of::<usize>() + size_of::<ParameterType>());
        let headings = self.headings.iter().flatten();
        let headings = headings.map(|heading| size_of::<String>() + heading.len());
        size_of::<Self>() + self.text.len() + parameters + headings.sum::<usize>()
    }

    /// The text with the values, which the client writes in a character set or else in UTF-8, in the places of its placeholders.
    ///
    /// # Errors
    /// The values are missing or malformed.
    pub(crate) fn bound(
        &mut self,
        reader: &mut Reader<'_>,
        set: Option<&CharacterSet>,
    ) -> Result<String, ClientError> {
        if let Some(error) = self.ahead_rejected.take() {
            self.parameters.forget_ahead();
            return Err(error);
        }
        let literals = self.parameters.read(reader, set)?;
        self.with_literals(literals)
    }

    /// The text with literals in the places of its placeholders, of which there are as many.
    fn with_literals(&self, mut literals: Vec<String>) -> Result<String, ClientError> {
        make_whole(&self.text, &self.offsets, &mut literals)?;
        Ok(bind(
            &self.text,
            &self.offsets,
            literals.iter().map(String::as_str),
        ))
    }

    /// The text with the literals that EXECUTE gives it.
    ///
    /// # Errors
    /// They are more or fewer than its placeholders.
    pub(crate) fn bound_to(&self, literals: Vec<String>) -> Result<String, ClientError> {
        let (given, wanted) = (literals.len(), self.offsets.len());
        if given != wanted {
            let sentence = format!(
                "the prepared statement has {wanted} parameters, and EXECUTE gives {given}: name a variable for each after USING"
            );
            return Err(ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence));
        }
        self.with_literals(literals)
    }

    /// Bytes of long-data values.
    pub(crate) fn bytes_ahead(&self) -> usize {
        self.parameters.bytes_ahead()
    }

    /// Discards the long-data values.
    pub(crate) fn reset(&mut self) {
        self.parameters.forget_ahead();
        self.ahead_rejected = None;
    }
}

/// The prepared statements of a connection, by their numbers.
#[derive(Debug)]
pub(crate) struct PreparedStatements {
    last: u32,
    kept: HashMap<u32, PreparedStatement>,
    /// The numbers of those that have names, which are in lower case.
    names: HashMap<String, u32>,
    /// Bytes of memory of these.
    bytes: usize,
    /// Their share, with the long-data values, of the memory of all connections.
    room: Reservation,
    /// Whether some of it is for long-data values.
    has_ahead: bool,
}

impl PreparedStatements {
    pub(crate) fn new(room: Reservation) -> Self {
        Self {
            last: 0,
            kept: HashMap::new(),
            names: HashMap::new(),
            bytes: 0,
            room,
            has_ahead: false,
        }
    }

    fn bytes_ahead(&self) -> usize {
        let ahead = self.kept.values().map(|it| it.parameters.bytes_ahead());
        ahead.sum()
    }

    /// Releases the memory of long-data values that were consumed.
    pub(crate) fn release_unused(&mut self) {
        if self.has_ahead {
            let ahead = self.bytes_ahead();
            self.has_ahead = ahead > 0;
            // Shrinking does not fail.
            let _ = self.room.resize((self.bytes + ahead) as u64);
        }
    }

    /// Stores a statement with its columns as far as they are known; returns its number.
    pub(crate) fn keep(
        &mut self,
        text: String,
        offsets: Vec<usize>,
        described: &ResultColumns,
    ) -> Result<u32, ClientError> {
        let headings: Vec<String> = described
            .columns
            .iter()
            .map(|it| it.name().clone())
            .collect();
        let prepared = PreparedStatement {
            text,
            parameters: Parameters::new(offsets.len()),
            offsets,
            headings: (!headings.is_empty()).then_some(headings),
            ahead_rejected: None,
        };
        let bytes = self.bytes + prepared.bytes();
        let is_full = self.kept.len() >= MOST_STATEMENTS || bytes > MOST_KEPT;
        let held = self.room.bytes() + prepared.bytes() as u64;
        if is_full || self.room.resize(held).is_err() {
            let sentence = match is_full {
                true => "the connection has more prepared statements than it may: close some",
                false => {
                    "the prepared statements and packets of all connections take all the memory that they may: close some"
                }
            };
            return Err(ClientError::new(
                ErrorCode::TOO_MANY_PREPARED_STATEMENTS,
                sentence,
            ));
        }
        self.bytes = bytes;
        self.last = self.last.wrapping_add(1).max(1);
        self.kept.insert(self.last, prepared);
        Ok(self.last)
    }

    pub(crate) fn find(&mut self, number: u32) -> Result<&mut PreparedStatement, ClientError> {
        self.kept.get_mut(&number).ok_or_else(|| {
            let sentence = format!("there is no prepared statement of number {number}");
            ClientError::new(ErrorCode::NO_PREPARED_STATEMENT, sentence)
        })
    }

    /// Gives a statement a name, which no other has.
    pub(crate) fn set_name(&mut self, name: &str, number: u32) {
        self.names.insert(name.to_lowercase(), number);
    }

    /// The statement of a name.
    pub(crate) fn named(&mut self, name: &str) -> Result<&mut PreparedStatement, ClientError> {
        match self.names.get(&name.to_lowercase()) {
            Some(number) => self.find(*number),
            None => Err(no_statement_named(name)),
        }
    }

    /// Closes the statement of a name.
    pub(crate) fn close_named(&mut self, name: &str) -> Result<(), ClientError> {
        let number = self.names.remove(&name.to_lowercase());
        self.close(number.ok_or_else(|| no_statement_named(name))?);
        Ok(())
    }

    pub(crate) fn close(&mut self, number: u32) {
        if let Some(closed) = self.kept.remove(&number) {
            self.bytes -= closed.bytes();
            let ahead = self.bytes_ahead();
            // Shrinking does not fail.
            let _ = self.room.resize((self.bytes + ahead) as u64);
        }
    }

    /// Appends a chunk of a long-data value. The command has no response: an error is reported when the statement is executed.
    pub(crate) fn add_ahead(&mut self, number: u32, parameter: u16, piece: &[u8]) {
        let all = self.bytes_ahead();
        let held = self.room.bytes() + piece.len() as u64;
        let Some(prepared) = self.kept.get_mut(&number) else {
            return;
        };
        let error = if usize::from(parameter) >= prepared.parameters.count {
            let sentence = format!("there is no parameter {parameter} in the prepared statement");
            Some(ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence))
        } else if all + piece.len() > MOST_AHEAD {
            let sentence = format!("long-data values may have {MOST_AHEAD} bytes together");
            Some(ClientError::new(ErrorCode::PACKET_TOO_LARGE, sentence))
        } else if self.room.resize(held).is_err() {
            let sentence = "the server has no memory for this value now: the packets of other connections take it all";
            Some(ClientError::new(ErrorCode::OUT_OF_RESOURCES, sentence))
        } else {
            prepared.parameters.add_ahead(parameter, piece);
            self.has_ahead = true;
            None
        };
        if error.is_some() {
            prepared.reset();
            prepared.ahead_rejected = error;
        }
    }
}

fn no_statement_named(name: &str) -> ClientError {
    let sentence = format!(
        "there is no prepared statement {name}: PREPARE {name} FROM 'SELECT ...' makes it, for this connection"
    );
    ClientError::new(ErrorCode::NO_PREPARED_STATEMENT, sentence)
}

/// Appends the response to PREPARE: the statement's number, and its parameters and columns.
pub(crate) fn put_prepared(
    packets: &mut PacketBuffer,
    (capabilities, status, set): (Capabilities, Status, Option<&CharacterSet>),
    number: u32,
    parameters: u16,
    described: &ResultColumns,
) {
    // No SELECT has more columns than fit.
    let columns = u16::try_from(described.columns.len()).unwrap_or(0);
    packets.add(|bytes| {
        bytes.push(0);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&columns.to_le_bytes());
        bytes.extend_from_slice(&parameters.to_le_bytes());
        // A filler, and the number of warnings, which is zero.
        bytes.extend_from_slice(&[0; 3]);
    });
    let old = !capabilities.has(Capabilities::DEPRECATE_EOF);
    for _ in 0..parameters {
        packets.add(define_parameter);
    }
    if old && parameters > 0 {
        packets.add(|bytes| eof(bytes, status));
    }
    for column in described.columns.iter().take(columns.into()) {
        packets.add(|bytes| define(bytes, column.name(), column, set));
    }
    if old && columns > 0 {
        packets.add(|bytes| eof(bytes, status));
    }
}

#[cfg(test)]
mod tests {
    use ingest::BytePool;

    use super::*;

    fn statements_within(room: u64) -> PreparedStatements {
        PreparedStatements::new(Reservation::of(&BytePool::new(room)))
    }

    #[test]
    fn all_connections_share_the_room() {
        let pool = BytePool::new(100 << 10);
        let mut one = PreparedStatements::new(Reservation::of(&pool));
        let mut other = PreparedStatements::new(Reservation::of(&pool));
        let number = kept(&mut one, "SELECT ?").unwrap();
        one.add_ahead(number, 0, &[b'x'; 90 << 10]);
        let number = kept(&mut other, "SELECT ?").unwrap();
        other.add_ahead(number, 0, &[b'x'; 90 << 10]);
        let bound = other
            .find(number)
            .unwrap()
            .bound(&mut Reader::new(&[]), None);
        assert_eq!(bound.unwrap_err().code, ErrorCode::OUT_OF_RESOURCES);
        assert!(kept(&mut other, &"x".repeat(20 << 10)).is_err());
        one.find(1).unwrap().reset();
        one.release_unused();
        kept(&mut other, &"x".repeat(20 << 10)).unwrap();
        drop((one, other));
        assert_eq!(pool.used(), 0);
    }

    fn kept(statements: &mut PreparedStatements, text: &str) -> Result<u32, ClientError> {
        let offsets = sql::mysql::placeholders(text);
        statements.keep(text.to_owned(), offsets, &ResultColumns::default())
    }

    #[test]
    fn statements_are_found_until_they_are_closed() {
        let mut statements = statements_within(1 << 30);
        let number = kept(&mut statements, "SELECT ?").unwrap();
        let packet = [0, 1, super::super::columns::types::TINY, 0, 5];
        let bound = statements
            .find(number)
            .unwrap()
            .bound(&mut Reader::new(&packet), None);
        assert_eq!(bound.as_deref(), Ok("SELECT  5 "));
        statements.close(number);
        statements.close(number);
        assert_eq!(
            statements.find(number).unwrap_err().code,
            ErrorCode::NO_PREPARED_STATEMENT
        );
        assert_eq!(statements.bytes, 0);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut statements = statements_within(1 << 30);
        let long = "x".repeat(MOST_KEPT - 500);
        kept(&mut statements, &long).unwrap();
        assert!(kept(&mut statements, &"?,".repeat(100)).is_err());
        kept(&mut statements, "SELECT ?").unwrap();
    }

    #[test]
    fn values_that_are_sent_ahead_are_bounded() {
        let mut statements = statements_within(1 << 30);
        let number = kept(&mut statements, "SELECT ?").unwrap();
        statements.add_ahead(number, 7, b"nobody's");
        statements.add_ahead(99, 0, b"nobody's");
        let mut bound = || {
            statements
                .find(number)
                .unwrap()
                .bound(&mut Reader::new(&[]), None)
        };
        assert_eq!(bound().unwrap_err().code, ErrorCode::WRONG_PARAMETERS);
        assert_eq!(bound().unwrap_err().code, ErrorCode::MALFORMED_PACKET);
        statements.add_ahead(number, 0, &vec![b'x'; MOST_AHEAD]);
        statements.add_ahead(number, 0, b"y");
        let prepared = statements.find(number).unwrap();
        assert_eq!(prepared.parameters.bytes_ahead(), 0);
        let error = prepared.bound(&mut Reader::new(&[]), None).unwrap_err();
        assert_eq!(error.code, ErrorCode::PACKET_TOO_LARGE);
    }
}
