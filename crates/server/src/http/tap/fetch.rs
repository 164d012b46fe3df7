//! Fetching a table whose address a client gives (TAP 1.1, section 2.7.5), and nothing of the networks that only this machine reaches.
//!
//! A name is resolved once, and the connection goes to one of the addresses that were looked at: a name that changes its address between
//! the two gains nothing. Redirections are looked at in the same way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::http::problem::Problem;

const MOST_REDIRECTIONS: usize = 5;
/// How long a connection, and the head of a response, may take.
const PATIENCE: Duration = Duration::from_secs(20);
const NAME: HeaderValue = HeaderValue::from_static(concat!("Meridian/", env!("CARGO_PKG_VERSION")));

/// The content at an address, which is still to be read.
///
/// # Errors
/// The address is none of http or https, leads to a network that is not public, or nothing comes from it.
pub(super) async fn fetch(address: &str) -> Result<Body, Problem> {
    fetch_where(address, is_public).await
}

/// The content at an address that the operator has given, wherever that leads; it is not redirected.
///
/// # Errors
/// Nothing comes from the address within some seconds, or too much.
pub(crate) async fn fetch_document(address: &str, most_bytes: usize) -> Result<Bytes, String> {
    let fetching = async {
        let url = Url::parse(address).map_err(|error| error.to_string())?;
        let response = get(&url, |_| true).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answers with status {}", response.status()));
        }
        let body = to_bytes(Body::new(response.into_body()), most_bytes).await;
        body.map_err(|error| error.to_string())
    };
    let fetched = timeout(PATIENCE, fetching).await;
    let fetched = fetched.unwrap_or_else(|_| {
        let seconds = PATIENCE.as_secs();
        Err(format!("it did not answer within {seconds} s"))
    });
    fetched.map_err(|why| format!("{address} cannot be fetched: {why}"))
}

async fn fetch_where(address: &str, may_reach: fn(IpAddr) -> bool) -> Result<Body, Problem> {
    let failed =
        |why: String| Problem::bad(format!("the table at {address} cannot be fetched: {why}"));
    let mut url = Url::parse(address).map_err(|error| failed(error.to_string()))?;
    for _ in 0..=MOST_REDIRECTIONS {
        let response = match timeout(PATIENCE, get(&url, may_reach)).await {
            Ok(response) => response.map_err(failed)?,
            Err(_) => {
                return Err(failed(format!(
                    "it did not answer within {} s",
                    PATIENCE.as_secs()
                )));
            }
        };
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(Body::new(response.into_body()));
        }
        let location = response
            .headers()
            .get(header::LOCATION)
            .and_then(|to| to.to_str().ok());
        match location
            .filter(|_| status.is_redirection())
            .and_then(|to| url.join(to).ok())
        {
            Some(next) => url = next,
            None => return Err(failed(format!("it answers with status {status}"))),
        }
    }
    Err(failed(format!(
        "it redirects more than {MOST_REDIRECTIONS} times"
    )))
}

/// Asks for one address.
async fn get(url: &Url, may_reach: fn(IpAddr) -> bool) -> Result<Response<Incoming>, String> {
    let is_encrypted = match url.scheme() {
        "http" => false,
        "https" => true,
        other => return Err(format!("{other} is not fetched, only http and https")),
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err("the address has no host".to_owned());
    };
    // Those of IPv6 are in brackets.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = lookup_host((bare, port))
        .await
        .map_err(|error| format!("{host}: {error}"))?;
    let found: Vec<SocketAddr> = found.collect();
    // One address that is not public makes the name suspicious.
    if found.is_empty() || !found.iter().all(|address| may_reach(address.ip())) {
        return Err(format!("{host} is not on the public network"));
    }
    let stream = TcpStream::connect(found.as_slice())
        .await
        .map_err(|error| format!("{host}: {error}"))?;
    if !is_encrypted {
        return send(url, host, stream).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await;
    send(
        url,
        host,
        stream.map_err(|error| format!("{host}: {error}"))?,
    )
    .await
}

async fn send<S>(url: &Url, host: &str, stream: S) -> Result<Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // It ends with the response.
    tokio::spawn(connection);
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let authority = url
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let request = Request::get(target)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, NAME)
        .header(header::ACCEPT, "*/*")
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    sender
        .send_request(request)
        .await
        .map_err(|error| error.to_string())
}

/// Verifies certificates by the authorities that the system knows.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "this machine knows no certificate authorities, so that nothing is fetched by https"
                .to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}

/// Whether an address is one of the public network (IANA's registries of special-purpose addresses, RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        // This network; of providers; for protocols; for measurements of devices; reserved.
        || first == 0
        || (first == 100 && second & 0xc0 == 64)
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && second & 0xfe == 18)
        || first >= 240;
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let segments = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // Translations of IPv4's addresses (RFC 6052, RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        [0x2001, 0xdb8, ..] | [0x2001, 0, ..] => false,
        // All that is given out for the public network is in 2000::/3.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::response::Redirect;
    use axum::routing::get as route;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_public_addresses_are_reached() {
        for text in [
            "8.8.8.8",
            "193.0.6.139",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.9.9",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.5",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "::7f00:1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    /// A server on this machine; gives its address.
    async fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/table", route(|| async { "ra,dec\n1,2\n" }))
            .route(
                "/moved",
                route(|| async { Redirect::temporary("/table?x=1") }),
            )
            .route("/round", route(|| async { Redirect::temporary("/round") }))
            .route(
                "/away",
                route(|| async { Redirect::temporary("ftp://example.org/x") }),
            );
        tokio::spawn(async move {
            let builder =
                hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper_util::service::TowerToHyperService::new(routes.clone());
                let builder = builder.clone();
                tokio::spawn(async move {
                    builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .unwrap()
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn what_is_there_is_fetched() {
        let server = server().await;
        let everywhere = |_: IpAddr| true;
        for path in ["table", "moved"] {
            let body = fetch_where(&format!("{server}/{path}"), everywhere)
                .await
                .unwrap();
            let bytes = to_bytes(body, 100).await.unwrap();
            assert_eq!(bytes, "ra,dec\n1,2\n");
        }
        for (address, sentence) in [
            (format!("{server}/none"), "status 404"),
            (format!("{server}/round"), "redirects more than"),
            (format!("{server}/away"), "ftp is not fetched"),
            ("file:///etc/passwd".to_owned(), "file is not fetched"),
            ("http://127.0.0.1:1/".to_owned(), "127.0.0.1"),
            ("no address".to_owned(), "cannot be fetched"),
        ] {
            let problem = fetch_where(&address, everywhere).await.unwrap_err();
            assert!(
                problem.sentence.contains(sentence),
                "{address}: {}",
                problem.sentence
            );
        }
        for address in [
            format!("{server}/table"),
            "http://localhost/".to_owned(),
            "http://[::1]/".to_owned(),
            "http://0x7f.1/".to_owned(),
        ] {
            let problem = fetch(&address).await.unwrap_err();
            assert!(
                problem.sentence.contains("not on the public network"),
                "{address}: {}",
                problem.sentence
            );
        }
    }
}
