//! Protects the service from requests that web pages make a browser send. A page can send a POST of a form without permission, which the
//! server recognises by its `Origin`; and it can let a name of its own resolve to this machine (DNS rebinding), which the server
//! recognises by the `Host`.
//!
//! Sources: *Fetch Standard*, "Origin header"; W3C *Fetch Metadata Request Headers*.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::IntoResponse;

use super::problem::Problem;

const FETCH_SITE: &str = "sec-fetch-site";

/// The host names under which the service may be addressed.
#[derive(Debug)]
pub(crate) struct AllowedHosts {
    listened: IpAddr,
    named: HashSet<String>,
}

impl AllowedHosts {
    pub(crate) fn new(listened: SocketAddr, named: &[String]) -> Self {
        Self {
            listened: listened.ip(),
            named: named.iter().map(|name| folded(name)).collect(),
        }
    }

    /// Whether a host, with or without a port, is one of them.
    fn has(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let name = folded(authority.host());
        let address = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = address.parse::<IpAddr>() {
            let is_own = address.is_loopback() || address == self.listened;
            return is_own || self.named.contains(address.to_string().as_str());
        }
        name == "localhost" || name.ends_with(".localhost") || self.named.contains(&name)
    }

    /// Whether a request may be addressed to a host. A server that listens at all addresses of its machine is called by any: what a page
    /// can give another meaning is a name.
    fn may_be_addressed(&self, host: &str) -> bool {
        let is_address = |authority: Authority| {
            let address = authority.host().trim_matches(['[', ']']);
            address.parse::<IpAddr>().is_ok()
        };
        self.has(host) || (self.listened.is_unspecified() && host.parse().is_ok_and(is_address))
    }

    /// Whether an origin (`https://host:port`) is this service, or another service of this machine.
    fn has_origin(&self, origin: &str) -> bool {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some_and(|host| self.has(host))
    }

    /// Checks whether a request is allowed.
    ///
    /// # Errors
    /// The reason for which it is rejected.
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        let rejected = |sentence: String| Err(Problem::new(StatusCode::FORBIDDEN, sentence));
        let hosts = headers.get_all(header::HOST).iter();
        let mut hosts = hosts.map(|host| host.to_str().unwrap_or_default());
        let authority = uri.authority().map(Authority::as_str);
        if let Some(host) = hosts
            .find(|host| !self.may_be_addressed(host))
            .or_else(|| authority.filter(|host| !self.may_be_addressed(host)))
        {
            return rejected(format!(
                "the service is not called {host:?}: use the address at which it listens, or give the name with --http-hosts"
            ));
        }
        // GET changes nothing, and any page may send it and read the response by CORS.
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return Ok(());
        }
        let origins = headers.get_all(header::ORIGIN).iter();
        let mut origins = origins.map(|origin| origin.to_str().unwrap_or_default());
        // A page of the address to which it sends is the service's own.
        let addressed = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let is_same = |origin: &str| {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some() && host == addressed
        };
        if let Some(origin) = origins.find(|origin| !self.has_origin(origin) && !is_same(origin)) {
            return rejected(format!(
                "pages of {origin:?} may read here by GET and send nothing: send it from a program, or give the page's host with \
                 --http-hosts"
            ));
        }
        if headers
            .get(FETCH_SITE)
            .is_some_and(|site| site == "cross-site")
        {
            let sentence = "pages of other sites may read here by GET and send nothing: send it from a program";
            return rejected(sentence.to_owned());
        }
        Ok(())
    }
}

fn folded(name: &str) -> String {
    name.trim().trim_end_matches('.').to_ascii_lowercase()
}

/// Middleware that rejects requests that are not allowed.
pub(super) async fn own_names_only(
    State(names): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    match names.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> AllowedHosts {
        AllowedHosts::new(
            ([10, 0, 0, 7], 8080).into(),
            &["Archive.example.org".to_owned()],
        )
    }

    #[test]
    fn hosts_of_this_machine_are_its_own() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "sky.localhost:80",
            "127.0.0.1:9",
            "127.3.2.1",
            "[::1]:8080",
            "10.0.0.7:8080",
            "archive.example.org",
        ] {
            assert!(names().has(host), "{host}");
        }
        for host in [
            "",
            "x",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "10.0.0.8",
            "archive.example.org.evil.net",
            "a b",
        ] {
            assert!(!names().has(host), "{host}");
        }
    }

    #[test]
    fn a_server_at_all_addresses_is_called_by_any_of_them() {
        let everywhere = AllowedHosts::new(([0, 0, 0, 0], 8080).into(), &["10.0.0.9".to_owned()]);
        for host in ["10.0.0.8:8080", "[2001:db8::1]:8080", "10.0.0.9"] {
            assert!(everywhere.may_be_addressed(host), "{host}");
        }
        assert!(!everywhere.may_be_addressed("evil.example"));
        assert!(!names().may_be_addressed("10.0.0.8:8080"));
        let sent = |host: &str, origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            let sent = everywhere.check(&Method::POST, &Uri::from_static("/"), &headers);
            sent.is_ok()
        };
        assert!(sent("10.0.0.8:8080", "https://10.0.0.8:8080"));
        assert!(sent("10.0.0.8:8080", "https://10.0.0.9"));
        assert!(!sent("10.0.0.8:8080", "https://10.0.0.7"));
        assert!(!sent("10.0.0.8:8080", "https://10.0.0.8:9090"));
    }

    fn answered(method: &Method, headers: &[(&str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, value.parse().unwrap());
        }
        names().check(method, &Uri::from_static("/"), &map).is_ok()
    }

    #[test]
    fn pages_of_other_sites_read_and_send_nothing() {
        let own = ("host", "127.0.0.1:8080");
        let other = ("origin", "https://evil.example");
        for (method, headers, expected) in [
            (Method::GET, vec![own, other], true),
            (
                Method::HEAD,
                vec![own, other, (FETCH_SITE, "cross-site")],
                true,
            ),
            (Method::OPTIONS, vec![own, other], true),
            (Method::POST, vec![own], true),
            (Method::POST, vec![], true),
            (
                Method::POST,
                vec![own, ("origin", "http://localhost:8888")],
                true,
            ),
            (Method::POST, vec![own, (FETCH_SITE, "same-origin")], true),
            (Method::POST, vec![own, other], false),
            (Method::POST, vec![own, ("origin", "null")], false),
            (Method::DELETE, vec![own, other], false),
            (Method::POST, vec![own, (FETCH_SITE, "cross-site")], false),
            (
                Method::POST,
                vec![own, ("origin", "http://localhost"), other],
                false,
            ),
            (Method::GET, vec![("host", "rebound.example:8080")], false),
            (Method::GET, vec![own, ("host", "rebound.example")], false),
        ] {
            assert_eq!(
                answered(&method, &headers),
                expected,
                "{method} {headers:?}"
            );
        }
        let rebound = Uri::from_static("http://rebound.example/");
        assert!(
            names()
                .check(&Method::GET, &rebound, &HeaderMap::new())
                .is_err()
        );
    }
}
