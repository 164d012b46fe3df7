//! What can go wrong with files at URLs, in sentences that say what to do. None of them has a secret in it.

use std::io;

/// Why a file at a URL cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The text is no URL that can be used.
    #[error("{url}: {reason}")]
    BadUrl {
        /// What was given, without what may be secret.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What the environment or the files of AWS's tools say cannot be used.
    #[error("{0}")]
    Settings(String),
    /// There are no credentials.
    #[error(
        "there are no credentials for {url}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile of \
         ~/.aws/credentials{hint}"
    )]
    NoCredentials {
        /// What was to be read or written.
        url: String,
        /// What else may help.
        hint: &'static str,
    },
    /// There is no such bucket.
    #[error(
        "there is no bucket {bucket} at {host}: check the name, and AWS_ENDPOINT_URL if it is not one of Amazon's"
    )]
    NoBucket {
        /// Its name.
        bucket: String,
        /// The server that says so.
        host: String,
    },
    /// There is nothing at the URL.
    #[error("there is no {url}: check the name")]
    Missing {
        /// The URL.
        url: String,
    },
    /// The store does not let these credentials do it.
    #[error("access to {url} is denied ({code}): {hint}")]
    Denied {
        /// The URL.
        url: String,
        /// What the store calls it.
        code: String,
        /// What to do.
        hint: &'static str,
    },
    /// The bucket is elsewhere.
    #[error("the bucket {bucket} is in the region {region}: set AWS_REGION={region}")]
    WrongRegion {
        /// Its name.
        bucket: String,
        /// Where it is.
        region: String,
    },
    /// The file is not the one that was looked at first.
    #[error("{url} was changed while it was read: start again when nobody writes it")]
    Changed {
        /// The URL.
        url: String,
    },
    /// What a condition of a request says is not so.
    #[error("{url} has been written by somebody else")]
    NotAsExpected {
        /// The URL.
        url: String,
    },
    /// No connection is to be had.
    #[error("{host} cannot be reached: {why}")]
    Unreachable {
        /// The host and its port.
        host: String,
        /// Why not.
        why: String,
    },
    /// It was tried several times and broke off each time.
    #[error("{url} could not be {what} in {tries} tries; the last one ended so: {why}")]
    Interrupted {
        /// The URL.
        url: String,
        /// `read` or `written`.
        what: &'static str,
        /// How often it was tried.
        tries: u32,
        /// What happened the last time.
        why: String,
    },
    /// The server answers with an error of another kind.
    #[error("{url}: the server answers {status}{}", detail(.code, .message))]
    Rejected {
        /// The URL.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// What the store calls the error; may be empty.
        code: String,
        /// What it says of it; may be empty.
        message: String,
    },
    /// The server says what makes no sense.
    #[error("{url}: the server's answer makes no sense: {why}")]
    Nonsense {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A local file cannot be read or written, or whoever takes the bytes does not.
    #[error(transparent)]
    Local(#[from] io::Error),
}

impl RemoteError {
    /// Whether there is nothing at the URL.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

fn detail(code: &str, message: &str) -> String {
    match (code.is_empty(), message.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!(" ({code})"),
        (false, false) => format!(" ({code}: {message})"),
    }
}
