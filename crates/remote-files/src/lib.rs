//! Files at URLs: `s3://BUCKET/KEY` in S3 and in stores that speak its protocol, and `http://` and `https://` addresses of files.
//!
//! ```text
//!   settings ──► Client ──► Bucket: stat, list, read ranges, put, delete          s3.rs, upload.rs
//!   (environment,   │  └──► download of an address                                download.rs
//!    ~/.aws)        └─► sign ──► connection ──► response, tried again              signature.rs, transport.rs, client.rs
//! ```
//!
//! Sources: *Amazon S3 API Reference*, version 2006-03-01; *AWS Signature Version 4 for API requests*; RFC 9110, sections 13 and 14
//! (preconditions, ranges).
//!
//! Invariants: bytes of a file that has changed since it was looked at are never given; a body that ends early is read on from where it
//! broke off, or an error. No secret is in an error, a log or a `Debug` output. Knows nothing of tables, backups or what is in the files,
//! and opens only what its caller names.

mod address;
mod client;
mod download;
mod error;
mod listing;
mod s3;
mod settings;
mod signature;
mod transport;
mod upload;

pub use address::{Address, is_url};
pub use client::Client;
pub use error::RemoteError;
pub use s3::{Condition, Object, ObjectFile, SmallObject};
pub use settings::Settings;
pub use transport::Timeouts;

type Result<T> = std::result::Result<T, RemoteError>;
