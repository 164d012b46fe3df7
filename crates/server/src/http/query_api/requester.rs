//! Who sends a request: the user who has logged in, or, while there are no users, the name that it gives.

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use users::ANONYMOUS;

use crate::HTTP_USER;
use crate::http::ClientAddress;
use crate::http::authentication::LOGGED_IN;
use crate::http::problem::Problem;
use crate::listener::Peer;

/// Bytes of the longest name.
const LONGEST_NAME: usize = 256;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(in crate::http) struct Requester {
    pub(in crate::http) user: String,
    pub(in crate::http) peer: Peer,
}

impl Requester {
    /// The sender: whoever has logged in; while nobody has to, `named` if it is given, else the name of HTTP's Basic authentication (RFC 7617), else [`HTTP_USER`].
    ///
    /// # Errors
    /// The name cannot be read, or is not that of whoever has logged in.
    pub(in crate::http) fn of(
        address: ClientAddress,
        headers: &HeaderMap,
        named: Option<&str>,
    ) -> Result<Self, Problem> {
        if let Some(user) = headers.get(LOGGED_IN).and_then(|name| name.to_str().ok()) {
            // Whoever has not logged in is nobody, whatever the name.
            if user != ANONYMOUS && named.is_some_and(|named| named != user) {
                let sentence = format!("you are logged in as {user}, and can act for nobody else");
                return Err(Problem::new(StatusCode::FORBIDDEN, sentence));
            }
            return Ok(Self {
                user: user.to_owned(),
                peer: Peer::Address(address.0),
            });
        }
        let authenticated = match headers.get(header::AUTHORIZATION) {
            None => None,
            Some(value) => Some(basic_name(value.as_bytes()).ok_or_else(|| {
                Problem::bad(
                    "the header Authorization cannot be read: send `Basic` and the base64 of name:password, as with curl -u name:",
                )
            })?),
        };
        let user = named.map(str::to_owned).or(authenticated);
        let user = user.unwrap_or_else(|| HTTP_USER.to_owned());
        if user.len() > LONGEST_NAME {
            return Err(Problem::bad(format!(
                "the user's name is longer than {LONGEST_NAME} bytes: give a shorter one"
            )));
        }
        Ok(Self {
            user,
            peer: Peer::Address(address.0),
        })
    }
}

fn basic_name(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, _) = decoded.split_once(':')?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(header: Option<&str>, named: Option<&str>) -> Result<String, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let address = ClientAddress(([127, 0, 0, 1], 5000).into());
        Requester::of(address, &headers, named).map(|it| it.user)
    }

    #[test]
    fn the_request_names_its_user() {
        let ann = Some("Basic YW5uOnB3OjE=");
        assert_eq!(user(None, None).unwrap(), "http");
        assert_eq!(user(ann, None).unwrap(), "ann");
        assert_eq!(user(ann, Some("bob")).unwrap(), "bob");
        for wrong in ["Bearer x", "Basic", "Basic !", "Basic YW5u"] {
            assert!(user(Some(wrong), None).is_err(), "{wrong}");
        }
        assert!(user(None, Some(&"x".repeat(257))).is_err());
    }
}
