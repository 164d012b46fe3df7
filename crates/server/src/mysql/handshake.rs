//! The first words: what the server is, who the client says it is, and how they prove it.
//!
//! There are no users yet: every name and every password is let in. So the scramble is random and sent as the protocol has it, and
//! what comes back is read and not compared.

use sql::connection::SERVER_VERSION;

use super::capabilities::Capabilities;
use super::wire::{Malformed, Reader, put_terminated};
use crate::Refusal;

/// How clients prove who they are, unless they name another way.
pub(crate) const NATIVE_PASSWORD: &str = "mysql_native_password";
/// The way of MySQL 8 and later.
const CACHING_SHA2: &str = "caching_sha2_password";

const PROTOCOL: u8 = 10;
/// `utf8mb4`, by the number of its general collation, which all clients know.
const CHARACTER_SET: u8 = 45;
const AUTOCOMMIT: u16 = 0x0002;
const SCRAMBLE: usize = 20;
/// Characters of a user's name that are kept.
const LONGEST_USER: usize = 80;

/// Random bytes that a password is mixed with.
#[derive(Debug, Clone)]
pub(crate) struct Scramble([u8; SCRAMBLE]);

impl Scramble {
    /// From the operating system's randomness.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SCRAMBLE];
        getrandom::fill(&mut bytes)?;
        // Clients take it for text that ends at a zero.
        for byte in &mut bytes {
            *byte = b'!' + *byte % 94;
        }
        Ok(Self(bytes))
    }
}

/// The server's greeting, in which it says what it can do.
pub(crate) fn greet(bytes: &mut Vec<u8>, connection: u32, scramble: &Scramble, tls: bool) {
    let (first, rest) = scramble.0.split_at(8);
    let ours = Capabilities::OURS.with(Capabilities::TLS, tls);
    let [low, high] = [ours.0 as u16, (ours.0 >> 16) as u16];
    bytes.push(PROTOCOL);
    put_terminated(bytes, SERVER_VERSION);
    bytes.extend_from_slice(&connection.to_le_bytes());
    bytes.extend_from_slice(first);
    bytes.push(0);
    bytes.extend_from_slice(&low.to_le_bytes());
    bytes.push(CHARACTER_SET);
    bytes.extend_from_slice(&AUTOCOMMIT.to_le_bytes());
    bytes.extend_from_slice(&high.to_le_bytes());
    bytes.push(SCRAMBLE as u8 + 1);
    bytes.extend_from_slice(&[0; 10]);
    bytes.extend_from_slice(rest);
    bytes.push(0);
    put_terminated(bytes, NATIVE_PASSWORD);
}

/// Whether a client's answer to the greeting is that it wants TLS first. Who it is it says in TLS, in another packet.
pub(crate) fn asks_for_tls(packet: &[u8]) -> bool {
    let low = Reader::new(packet).u16().unwrap_or_default();
    Capabilities(low.into()).has(Capabilities::TLS)
}

/// Who a client says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// What both sides can do.
    pub(crate) capabilities: Capabilities,
    pub(crate) user: String,
    pub(crate) database: Option<String>,
    pub(crate) proof: Proof,
}

/// What has to be said before the client believes that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing.
    Given,
    /// That what it sent is right.
    ToBeConfirmed,
    /// That it should prove itself in a way of this name.
    InTheWay(&'static str),
}

impl Introduction {
    /// Reads a client's answer to the greeting.
    pub(crate) fn read(packet: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(packet);
        let low = reader.u16().map_err(|_| in_handshake())?;
        if !Capabilities(low.into()).has(Capabilities::PROTOCOL_41) {
            let sentence = "the client speaks the protocol from before MySQL 4.1: use a newer one";
            return Err(Refusal::new(sql::ErrorCode::HANDSHAKE, sentence));
        }
        let high = reader.u16().map_err(|_| in_handshake())?;
        let theirs = Capabilities(u32::from(low) | u32::from(high) << 16);
        Self::read_rest(&mut reader, theirs).map_err(|_| in_handshake())
    }

    fn read_rest(reader: &mut Reader<'_>, theirs: Capabilities) -> Result<Self, Malformed> {
        // The longest packet that it takes, its character set, and room for more.
        reader.bytes(4 + 1 + 23)?;
        let user = user(reader.terminated());
        let response = if theirs.has(Capabilities::PLUGIN_AUTH_LENGTH) {
            reader.sized()?
        } else if theirs.has(Capabilities::SECURE_CONNECTION) {
            let length = reader.u8()?;
            reader.bytes(length.into())?
        } else {
            reader.terminated()
        };
        let database = match theirs.has(Capabilities::CONNECT_WITH_DB) {
            true => name(reader.terminated()),
            false => None,
        };
        let plugin: &[u8] = match theirs.has(Capabilities::PLUGIN_AUTH) {
            true => reader.terminated(),
            false => b"",
        };
        // What is left are words about the client's program.
        Ok(Self {
            capabilities: theirs.shared(Capabilities::OURS),
            user,
            database,
            proof: Proof::of(plugin, response),
        })
    }

    /// Reads a client's wish to be somebody else (COM_CHANGE_USER, without its first byte).
    pub(crate) fn changed(packet: &[u8], capabilities: Capabilities) -> Result<Self, Refusal> {
        let read = |reader: &mut Reader<'_>| {
            let user = user(reader.terminated());
            let response = match capabilities.has(Capabilities::SECURE_CONNECTION) {
                true => {
                    let length = reader.u8()?;
                    reader.bytes(length.into())?
                }
                false => reader.terminated(),
            };
            let database = name(reader.terminated());
            let plugin: &[u8] = match reader.is_empty() {
                true => b"",
                false => {
                    let _character_set = reader.u16()?;
                    reader.terminated()
                }
            };
            Ok(Self {
                capabilities,
                user,
                database,
                proof: Proof::of(plugin, response),
            })
        };
        read(&mut Reader::new(packet)).map_err(|_: Malformed| in_handshake())
    }
}

impl Proof {
    fn of(plugin: &[u8], response: &[u8]) -> Self {
        match plugin {
            b"" => Self::Given,
            named if named == NATIVE_PASSWORD.as_bytes() => Self::Given,
            // Either there is no password, or the client does not know our way (MySQL's from version 9 on) and waits to be asked in
            // its own.
            named if named == CACHING_SHA2.as_bytes() && !has_password(response) => {
                Self::InTheWay(CACHING_SHA2)
            }
            named if named == CACHING_SHA2.as_bytes() => Self::ToBeConfirmed,
            _ => Self::InTheWay(NATIVE_PASSWORD),
        }
    }
}

/// Whether somebody who proves itself in the way of MySQL 8 has a password. An empty one may come as a zero.
pub(crate) fn has_password(response: &[u8]) -> bool {
    !matches!(response, [] | [0])
}

/// What somebody is told whose first words are none of the protocol's.
pub(crate) fn in_handshake() -> Refusal {
    let sentence = "the client's first packet cannot be read: is it a client of MySQL?";
    Refusal::new(sql::ErrorCode::HANDSHAKE, sentence)
}

fn user(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(LONGEST_USER).collect()
}

fn name(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// What a client is told that asks for TLS where there is none.
pub(crate) fn no_tls() -> Refusal {
    let sentence = "TLS is not offered here: connect without it, as with --skip-ssl, or give the server a certificate with --tls-cert and \
                    --tls-key";
    Refusal::new(sql::ErrorCode::HANDSHAKE, sentence)
}

/// Says that what the client sent proves it.
pub(crate) fn confirm(bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&[0x01, 0x03]);
}

/// Asks the client to prove itself in a way.
pub(crate) fn ask_in_a_way(bytes: &mut Vec<u8>, way: &str, scramble: &Scramble) {
    bytes.push(0xfe);
    put_terminated(bytes, way);
    bytes.extend_from_slice(&scramble.0);
    bytes.push(0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn response(capabilities: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = capabilities.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0; 4 + 1 + 23]);
        bytes.extend_from_slice(rest);
        bytes
    }

    const USUAL: u32 = Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_WITH_DB.0;

    #[test]
    fn who_it_is_and_which_database() {
        let packet = response(USUAL, b"ann\0\x03abcsky\0mysql_native_password\0");
        let introduction = Introduction::read(&packet).unwrap();
        assert_eq!(introduction.user, "ann");
        assert_eq!(introduction.database.as_deref(), Some("sky"));
        assert_eq!(introduction.proof, Proof::Given);
        assert!(!introduction.capabilities.has(Capabilities::DEPRECATE_EOF));
    }

    #[test]
    fn other_ways_to_prove_it() {
        for (rest, proof) in [
            (
                &b"a\0\0\0caching_sha2_password\0"[..],
                Proof::InTheWay(CACHING_SHA2),
            ),
            (
                b"a\0\x01\0\0caching_sha2_password\0",
                Proof::InTheWay(CACHING_SHA2),
            ),
            (b"a\0\x01x\0caching_sha2_password\0", Proof::ToBeConfirmed),
            (
                b"a\0\x01x\0sha256_password\0",
                Proof::InTheWay(NATIVE_PASSWORD),
            ),
            (b"a\0\0", Proof::Given),
        ] {
            let introduction = Introduction::read(&response(USUAL, rest)).unwrap();
            assert_eq!(introduction.proof, proof);
            assert_eq!(introduction.database, None);
        }
        let changed = Introduction::changed(
            b"bob\0\x01xsky\0\x2d\0mysql_clear_password\0",
            Capabilities::SECURE_CONNECTION,
        );
        let changed = changed.unwrap();
        assert_eq!(
            (changed.user.as_str(), changed.proof),
            ("bob", Proof::InTheWay(NATIVE_PASSWORD))
        );
        assert_eq!(changed.database.as_deref(), Some("sky"));
        let old = Introduction::changed(b"bob\0x\0sky\0", Capabilities(0));
        assert_eq!(old.unwrap().database.as_deref(), Some("sky"));
    }

    #[test]
    fn wishes_for_tls_are_told_apart() {
        assert!(asks_for_tls(&response(USUAL | Capabilities::TLS.0, b"")));
        assert!(!asks_for_tls(&response(USUAL, b"ann\0\0sky\0")));
        assert!(!asks_for_tls(b""));
        // In TLS it says once more that it wants TLS.
        let packet = response(USUAL | Capabilities::TLS.0, b"ann\0\0sky\0");
        let introduction = Introduction::read(&packet).unwrap();
        assert_eq!(introduction.user, "ann");
    }

    #[test]
    fn old_clients_are_told_so() {
        let refused = |packet: &[u8]| Introduction::read(packet).unwrap_err().sentence;
        assert!(refused(&[0; 40]).contains("4.1"));
        assert!(
            refused(b"GET / HTTP").contains("client of MySQL")
                || refused(b"GET / HTTP").contains("4.1")
        );
    }

    #[test]
    fn the_greeting_is_as_the_protocol_has_it() {
        let scramble = Scramble::random().unwrap();
        assert!(scramble.0.iter().all(|byte| (b'!'..=b'~').contains(byte)));
        let mut bytes = vec![];
        greet(&mut bytes, 7, &scramble, false);
        let version = 1 + SERVER_VERSION.len();
        assert_eq!(bytes[0], 10);
        assert_eq!(&bytes[1..version], SERVER_VERSION.as_bytes());
        assert_eq!(&bytes[version + 1..version + 5], 7_u32.to_le_bytes());
        assert!(bytes.ends_with(b"\0mysql_native_password\0"));
        assert_eq!(
            bytes.len(),
            version + 1 + 4 + 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10 + 13 + 22
        );
        let abilities = |tls| {
            let mut bytes = vec![];
            greet(&mut bytes, 7, &scramble, tls);
            let at = version + 1 + 4 + 8 + 1;
            Capabilities(u16::from_le_bytes([bytes[at], bytes[at + 1]]).into())
        };
        assert!(abilities(true).has(Capabilities::TLS));
        assert!(!abilities(false).has(Capabilities::TLS));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_introduction_or_refused(capabilities: u32, rest: Vec<u8>) {
            let _ = Introduction::read(&rest);
            let _ = Introduction::read(&response(capabilities | Capabilities::PROTOCOL_41.0, &rest));
            let _ = Introduction::changed(&rest, Capabilities(capabilities));
        }
    }
}
