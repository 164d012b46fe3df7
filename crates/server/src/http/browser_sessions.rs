//! Sessions of browsers: who has logged in with a password gets a cookie, and needs none any more until they log out.
//!
//! The cookie has 192 random bits, of which the hash is kept, in the data directory: a session is the same at all servers of it. It is sent by
//! the browser alone (`HttpOnly`), never from
//! pages of other sites (`SameSite=Strict`) and in TLS alone where it was given in TLS (`Secure`, and a name that no other host can set).
//! Pages of another port or another name of the same site do have it sent: what changes something has to come from a page of this very
//! origin.
//!
//! Sources: RFC 6265bis, sections 4.1 and 5; W3C *Fetch Metadata Request Headers*.

use std::sync::Arc;
use std::time::Duration;

use ::users::{SessionStore, User, UserList, UsersError};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use tracing::warn;

use super::problem::Problem;

/// How long a session lasts.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// Names of cookies: of one that was given in TLS, and of one that was not.
const SECURE_NAME: &str = "__Host-meridian-session";
const PLAIN_NAME: &str = "meridian-session";
const FETCH_SITE: &str = "sec-fetch-site";

/// The page on which a browser logs in.
pub(super) const PAGE: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Log in</title></head><body>
<h1>Log in</h1>
<form method=\"post\" action=\"/login\">
<p><label>Name <input name=\"user\" autocomplete=\"username\" required></label></p>
<p><label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label></p>
<p><button>Log in</button></p>
</form>
<form method=\"post\" action=\"/logout\"><p><button>Log out</button></p></form>
</body></html>
";

/// The sessions of browsers.
#[derive(Debug)]
pub(crate) struct BrowserSessions(SessionStore);

impl BrowserSessions {
    pub(crate) fn new(store: SessionStore) -> Self {
        Self(store)
    }

    /// Begins a session of a user who has logged in. Returns the header that gives the cookie.
    ///
    /// # Errors
    /// The session cannot be kept, or the system has no random numbers.
    pub(super) async fn begin(
        &self,
        user: &User,
        is_encrypted: bool,
    ) -> Result<Option<HeaderValue>, Problem> {
        let value = self.0.begin(user, LONGEST).await.map_err(unavailable)?;
        Ok(cookie(&value, LONGEST.as_secs(), is_encrypted))
    }

    /// Whose session a request belongs to, if it has one.
    ///
    /// # Errors
    /// The sessions cannot be read.
    pub(super) async fn user<'a>(
        &self,
        headers: &HeaderMap,
        is_encrypted: bool,
        list: &'a UserList,
    ) -> Result<Option<&'a Arc<User>>, Problem> {
        match sent(headers, is_encrypted) {
            Some(sent) => self.0.user(sent, list).await.map_err(unavailable),
            None => Ok(None),
        }
    }

    /// Ends the session of a request. Returns the header that takes the cookie away.
    ///
    /// # Errors
    /// The session's end cannot be kept.
    pub(super) async fn end(
        &self,
        headers: &HeaderMap,
        is_encrypted: bool,
    ) -> Result<Option<HeaderValue>, Problem> {
        if let Some(sent) = sent(headers, is_encrypted) {
            self.0.end(sent).await.map_err(unavailable)?;
        }
        Ok(cookie("", 0, is_encrypted))
    }
}

/// The sentence for whoever asks; the reason is for the operator.
fn unavailable(error: UsersError) -> Problem {
    warn!(%error, "the sessions of browsers are not available");
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the sessions of browsers cannot be read or changed now: the server's log says why; send the name and the password, or a token, with each request",
    )
}

/// Whether a request has a cookie of ours.
pub(super) fn has_cookie(headers: &HeaderMap, is_encrypted: bool) -> bool {
    sent(headers, is_encrypted).is_some()
}

/// Whether a request that changes something and counts by its cookie comes from a page of this origin, or from no page at all.
///
/// # Errors
/// It comes from another page.
pub(super) fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
        return Ok(());
    }
    let text = |name: header::HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let origin = headers.get(header::ORIGIN);
    let is_own = match origin {
        None => true,
        Some(origin) => {
            let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
            origin.is_some_and(|(_, host)| Some(host) == text(header::HOST))
        }
    };
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_own_site = matches!(site, None | Some(b"same-origin" | b"none"));
    match is_own && is_own_site {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "pages of other origins cannot use a session of this one: send the request from a program, with the header Authorization",
        )),
    }
}

/// Keeps the response to a request that counts by its cookie out of caches that several people share.
pub(super) fn keep_private(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Cookie"));
    let caching = headers.entry(header::CACHE_CONTROL);
    caching.or_insert(HeaderValue::from_static("private"));
}

fn cookie(value: &str, seconds: u64, is_encrypted: bool) -> Option<HeaderValue> {
    let (name, secure) = match is_encrypted {
        true => (SECURE_NAME, "; Secure"),
        false => (PLAIN_NAME, ""),
    };
    let text =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).ok()
}

/// The value of the cookie that a request has.
fn sent(headers: &HeaderMap, is_encrypted: bool) -> Option<&str> {
    let wanted = match is_encrypted {
        true => SECURE_NAME,
        false => PLAIN_NAME,
    };
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    pairs
        .find(|(name, value)| *name == wanted && !value.is_empty())
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                header::HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_changes_something_comes_from_a_page_of_this_origin() {
        let host = ("host", "archive.example.org:8080");
        for (sent, is_allowed) in [
            (vec![host], true),
            (
                vec![host, ("origin", "https://archive.example.org:8080")],
                true,
            ),
            (
                vec![host, ("origin", "https://archive.example.org:9090")],
                false,
            ),
            (
                vec![host, ("origin", "https://other.example.org:8080")],
                false,
            ),
            (vec![host, ("origin", "null")], false),
            (vec![host, (FETCH_SITE, "same-origin")], true),
            (vec![host, (FETCH_SITE, "none")], true),
            (vec![host, (FETCH_SITE, "same-site")], false),
            (vec![host, (FETCH_SITE, "cross-site")], false),
        ] {
            let allowed = check_origin(&Method::POST, &headers(&sent)).is_ok();
            assert_eq!(allowed, is_allowed, "{sent:?}");
            assert!(check_origin(&Method::GET, &headers(&sent)).is_ok());
        }
    }

    #[test]
    fn cookies_are_of_the_connection_on_which_they_were_given() {
        let both = headers(&[(
            "cookie",
            "a=b; meridian-session=plain; __Host-meridian-session=secure",
        )]);
        assert_eq!(sent(&both, false), Some("plain"));
        assert_eq!(sent(&both, true), Some("secure"));
        assert_eq!(
            sent(&headers(&[("cookie", "meridian-session=")]), false),
            None
        );
        let given = cookie("x", 5, true).unwrap();
        assert_eq!(
            given.to_str().unwrap(),
            "__Host-meridian-session=x; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure"
        );
    }

    #[test]
    fn strange_cookies_and_credentials_do_no_harm() {
        let usual = [
            "meridian-session=abcdefghijklmnopqrstuvwxyz012345; other=\"a b\"",
            "__Host-meridian-session=abc; ; =; a==b",
            "Basic YW5uOnA6IHNzJ3cwcmQ=",
            "Bearer mrd_0123456789abcdefghijklmnopqrstuv",
        ];
        feed(
            "cookies and credentials",
            &usual.map(str::as_bytes),
            |bytes| {
                let Ok(value) = HeaderValue::from_bytes(bytes) else {
                    return;
                };
                let _ = crate::http::authentication::credentials(&value);
                let mut headers = HeaderMap::new();
                headers.insert(header::COOKIE, value.clone());
                headers.insert(header::ORIGIN, value.clone());
                headers.insert(header::HOST, value);
                for is_encrypted in [false, true] {
                    let _ = sent(&headers, is_encrypted);
                }
                let _ = check_origin(&Method::POST, &headers);
            },
        );
    }
}
