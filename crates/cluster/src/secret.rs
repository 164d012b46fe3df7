//! The secret that all members of a cluster share: who does not know it is refused at every port.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderValue};
use subtle::ConstantTimeEq;

use crate::ClusterError;

/// Characters that a secret has at least.
const SHORTEST: usize = 16;

/// The secret of a cluster.
#[derive(Clone)]
pub struct Secret(HeaderValue);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the secret from a file that only its owner may read: one line of at least 16 printable ASCII characters.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or there is no such line in it.
    pub fn read(path: &Path) -> Result<Self, ClusterError> {
        let failed = |why: String| ClusterError::Secret {
            path: path.to_owned(),
            why,
        };
        let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let why = "others may read or change it: run `chmod 600` on it";
            return Err(failed(why.to_owned()));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let line = text.trim();
        let is_printable = line.bytes().all(|byte| byte.is_ascii_graphic());
        if line.len() < SHORTEST || !is_printable {
            return Err(failed(format!(
                "it has to be one line of {SHORTEST} or more printable characters, as `openssl rand -hex 32` prints"
            )));
        }
        Self::of(line)
    }

    /// A secret of printable characters.
    ///
    /// # Errors
    /// They cannot stand in a header.
    pub(crate) fn of(secret: &str) -> Result<Self, ClusterError> {
        let value = HeaderValue::from_str(&format!("Bearer {secret}"));
        let mut value = value.map_err(|error| ClusterError::Secret {
            path: "the header of a request".into(),
            why: error.to_string(),
        })?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// What a request of a member says in its header `Authorization`.
    pub fn authorization(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Whether a request is one of a member.
    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION);
        given.is_some_and(|given| given.as_bytes().ct_eq(self.0.as_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_one_long_line_that_nobody_else_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&path)
        };
        let secret = write("0123456789abcdef\n", 0o600).unwrap();
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            headers
        };
        assert!(secret.allows(&headers("Bearer 0123456789abcdef")));
        assert!(!secret.allows(&headers("Bearer 0123456789abcdeF")));
        assert!(!secret.allows(&headers("Bearer 0123456789abcde")));
        assert!(!secret.allows(&HeaderMap::new()));
        assert!(write("0123456789abcdef", 0o640).is_err());
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcdef\nmore"] {
            assert!(write(wrong, 0o600).is_err(), "{wrong:?}");
        }
        assert!(Secret::read(&dir.path().join("none")).is_err());
    }
}
