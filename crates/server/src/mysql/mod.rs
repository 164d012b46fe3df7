//! MySQL's protocol: packets, handshake, commands, prepared statements and result sets.
//!
//! A layer of our own. It trusts no byte that a client sends: lengths are checked against what has come, and memory is taken for
//! what is there, not for what is announced. Nothing in it waits for a processor: queries are worked on elsewhere and come
//! back as packets.
//!
//! Source: *MySQL Source Code Documentation*, "Client/Server Protocol".

mod capabilities;
mod columns;
mod commands;
mod connection;
mod encryption;
mod handshake;
mod numbers;
mod packets;
mod parameters;
mod prepared;
mod query;
mod responses;
mod rows;
mod statements;
mod watch;
mod wire;

pub(crate) use connection::{LONGEST_COMMAND, reject, serve};
pub(crate) use packets::Halves;
