//! What a URL names.

use std::fmt;

use url::Url;

use crate::{RemoteError, Result};

/// A file, or a prefix of names of files, at a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An object in a bucket; its name may be empty or a prefix of names.
    S3 {
        /// The bucket.
        bucket: String,
        /// The name, without a slash before it.
        key: String,
    },
    /// A file of an HTTP server.
    Http(Url),
}

/// The schemes that are known.
const SCHEMES: [&str; 3] = ["s3", "http", "https"];

/// Whether a text is a URL and no path of a local file.
pub fn is_url(text: &str) -> bool {
    scheme_of(text).is_some()
}

fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    // One letter might be a disk, elsewhere.
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it));
    is_scheme.then_some(scheme)
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is of another scheme, names no bucket or host, or has a password in it, which others could read.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |url: &str, reason: &str| RemoteError::BadUrl {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let scheme = scheme_of(text).unwrap_or_default();
        if !SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
            let shown = format!("{scheme}://");
            return Err(bad(&shown, "URLs are of s3, http or https"));
        }
        if scheme.eq_ignore_ascii_case("s3") {
            return Self::parse_s3(text, &text[scheme.len() + 3..]);
        }
        let url = Url::parse(text).map_err(|error| bad(scheme, &error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            let shown = Self::Http(url).to_string();
            return Err(bad(
                &shown,
                "a user or a password in a URL can be read by everybody on this machine: leave it out",
            ));
        }
        match url.host_str() {
            Some(_) => Ok(Self::Http(url)),
            None => Err(bad(text, "it has no host")),
        }
    }

    fn parse_s3(text: &str, rest: &str) -> Result<Self> {
        let bad = |reason: &str| RemoteError::BadUrl {
            url: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || "-._".contains(it));
        if !is_bucket {
            return Err(bad(
                "a bucket has 3 to 63 letters, digits, hyphens and dots: write s3://BUCKET/NAME",
            ));
        }
        // Such names are not sent as they are by what is between here and the store.
        if key.split('/').any(|part| part == "." || part == "..") {
            return Err(bad("a name in a bucket has no . or .. in it"));
        }
        Ok(Self::S3 {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }
}

/// Without what comes after `?`, which may be a signature.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, key } => write!(formatter, "s3://{bucket}/{key}"),
            Self::Http(url) => {
                let host = url.host_str().unwrap_or_default();
                write!(formatter, "{}://{host}", url.scheme())?;
                if let Some(port) = url.port() {
                    write!(formatter, ":{port}")?;
                }
                formatter.write_str(url.path())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://bucket/key", "S3://b", "https://h/x", "gs://b/k"] {
            assert!(is_url(url), "{url}");
        }
        for path in [
            "s3:/bucket",
            "dir/a://b",
            "c://x",
            "a.csv",
            "://x",
            "-",
            "s3",
        ] {
            assert!(!is_url(path), "{path}");
        }
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        let shown = |text: &str| Address::parse(text).map(|it| it.to_string());
        for (text, expected) in [
            ("s3://bucket/a b/c+d", "s3://bucket/a b/c+d"),
            ("s3://bucket", "s3://bucket/"),
            ("S3://bucket/x", "s3://bucket/x"),
            (
                "https://host/x.csv?X-Amz-Signature=abc",
                "https://host/x.csv",
            ),
            ("http://host:8080/x", "http://host:8080/x"),
        ] {
            assert_eq!(shown(text).unwrap(), expected);
        }
        for (text, sentence) in [
            ("s3://", "3 to 63"),
            ("s3://a/b", "3 to 63"),
            ("s3://buc ket/b", "3 to 63"),
            ("s3://bucket/../x", ".."),
            ("gs://bucket/x", "s3, http or https"),
            ("https://me:pass@host/x", "leave it out"),
            ("https://", "empty host"),
        ] {
            let error = shown(text).unwrap_err().to_string();
            assert!(error.contains(sentence), "{text}: {error}");
            assert!(!error.contains("pass@"), "{error}");
        }
    }
}
