//! MySQL's protocol: packets, handshake, commands, prepared statements and result sets.
//!
//! The implementation is our own: the existing server library cannot announce several statements, nor further results to clients that
//! do without EOF packets, and gives every column one length and character set. It trusts no byte that a client sends: lengths are
//! checked against the bytes that have arrived, and memory is allocated for what has arrived, not for what is announced. It does no long
//! computation: queries run on the query runtime and come back as packets, over a bounded channel that stops a query while the client
//! does not read.
//!
//! Source: *MySQL Source Code Documentation*, "Client/Server Protocol".

mod capabilities;
mod columns;
mod commands;
mod compression;
mod connection;
mod encryption;
mod handshake;
mod load_file;
mod login;
mod named_statements;
mod new_users;
mod numbers;
mod own_tables;
mod packets;
mod parameters;
mod prepared;
mod query;
mod release_statements;
mod responses;
mod role_statements;
mod row_counts;
mod rows;
mod select_into;
mod statements;
mod user_statements;
mod view_statements;
mod watch;
mod wire;

pub(crate) use columns::declared_type;
pub(crate) use connection::{reject, serve};
pub(crate) use packets::{Halves, LONGEST_COMMAND};
pub(crate) use rows::{Form, Rows};
pub(crate) use statements::aside;
