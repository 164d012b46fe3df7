//! Requests to a server. Each has a connection of its own, over plain HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::Failure;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 80;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No server answers at the address.
    #[error(
        "no server answers at http://{authority} ({reason}): start one with `meridian serve`, or give the address of one with --server"
    )]
    Unreachable {
        /// The host and the port.
        authority: Authority,
        /// The operating system's or the protocol's reason.
        reason: String,
    },
    /// The server does not do what was requested.
    #[error("{0}")]
    Rejected(String),
    /// The query belongs to another user.
    #[error("{0}: give the user's name with --user")]
    OtherUser(String),
    /// What came back is not what a server of this program sends.
    #[error("http://{authority} is no server of this program, or one of another version: {reason}")]
    Unexpected {
        /// The host and the port.
        authority: Authority,
        /// What is wrong with the response.
        reason: String,
    },
    /// The response ended before it was whole.
    #[error("the server broke off its response ({0}): try again")]
    BrokenOff(String),
}

/// An error in the server's words.
#[derive(Deserialize)]
struct ServerError {
    error: String,
}

/// A server.
#[derive(Debug, Clone)]
pub struct ServerClient {
    authority: Authority,
}

impl ServerClient {
    /// The server at a URL such as `http://127.0.0.1:8080`. Nothing is connected yet.
    ///
    /// # Errors
    /// That is no such URL.
    pub fn new(url: &str) -> Result<Self, Failure> {
        let wrong = |reason: &str| {
            Failure::new(format!(
                "--server {url:?}: {reason}; write it as in http://127.0.0.1:8080"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("this is no address"))?;
        match uri.scheme_str() {
            None | Some("http") => {}
            Some("https") => {
                return Err(wrong(
                    "https is not spoken here: reach the server in clear on its own machine or through a tunnel",
                ));
            }
            Some(other) => return Err(wrong(&format!("{other} is not spoken here"))),
        }
        let authority = uri.authority().cloned();
        let authority = authority.ok_or_else(|| wrong("it names no host"))?;
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() {
            return Err(wrong("the address ends with its port"));
        }
        Ok(Self { authority })
    }

    /// Sends a request and awaits the head of its response, which has a status of success.
    ///
    /// # Errors
    /// No server answers, or it does not do what is requested.
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, RequestError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.unexpected(error))?;
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| self.unreachable(error))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.rejected(response).await),
        }
    }

    /// Sends a request and reads its response, an object.
    ///
    /// # Errors
    /// No server answers, it does not do what is requested, or it sends something else.
    pub async fn send_for<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<T, RequestError> {
        let response = self.send(method, target, body).await?;
        let bytes = received(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unexpected(error))
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, RequestError> {
        let host = self.authority.host();
        // An IPv6 address stands in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(DEFAULT_PORT);
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
        let stream = stream
            .map_err(|_| self.unreachable(format!("no connection in {CONNECT_TIMEOUT:?}")))?
            .map_err(|error| self.unreachable(error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        // It reads and writes the connection; its error is also that of the request.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// The error that a response tells.
    async fn rejected(&self, response: Response<Incoming>) -> RequestError {
        let status = response.status();
        let bytes = match received(response).await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        let text = match serde_json::from_slice::<ServerError>(&bytes) {
            Ok(told) => told.error,
            // The limit of connections rejects a request in plain text, before any handler sees it.
            Err(_) if status.is_server_error() => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(_) => return self.unexpected(format!("its response is {status}")),
        };
        match status {
            hyper::StatusCode::FORBIDDEN => RequestError::OtherUser(text),
            _ => RequestError::Rejected(text),
        }
    }

    fn unreachable(&self, reason: impl ToString) -> RequestError {
        RequestError::Unreachable {
            authority: self.authority.clone(),
            reason: reason.to_string(),
        }
    }

    fn unexpected(&self, reason: impl ToString) -> RequestError {
        RequestError::Unexpected {
            authority: self.authority.clone(),
            reason: reason.to_string(),
        }
    }
}

async fn received(response: Response<Incoming>) -> Result<Bytes, RequestError> {
    let collected = response.into_body().collect().await;
    let collected = collected.map_err(|error| RequestError::BrokenOff(error.to_string()))?;
    Ok(collected.to_bytes())
}

/// A path with parameters, which are encoded.
pub fn target(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut target = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(name);
            target.push('=');
            encode(value, &mut target);
        }
    }
    target
}

/// Appends a value so that it stands for itself in a URL (RFC 3986, section 2.1).
fn encode(value: &str, target: &mut String) {
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => target.push(char::from(byte)),
            false => target.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_their_address() {
        for url in [
            "http://127.0.0.1:8080",
            "http://localhost:8080/",
            "127.0.0.1:8080",
            "http://[::1]:8080",
        ] {
            assert!(ServerClient::new(url).is_ok(), "{url}");
        }
        for (url, reason) in [
            ("https://127.0.0.1:8080", "https is not spoken"),
            ("ftp://127.0.0.1", "ftp is not spoken"),
            ("http://127.0.0.1:8080/queries", "ends with its port"),
            ("", "no address"),
            ("/path", "names no host"),
        ] {
            let failure = ServerClient::new(url).unwrap_err();
            assert!(failure.sentence().contains(reason), "{failure:?}");
        }
    }

    #[test]
    fn parameters_are_encoded() {
        let parameters = [
            ("user", Some("ann & böb".to_owned())),
            ("limit", None),
            ("state", Some("QUEUED".to_owned())),
        ];
        assert_eq!(
            target("/queries", &parameters),
            "/queries?user=ann%20%26%20b%C3%B6b&state=QUEUED"
        );
        assert_eq!(target("/queries", &[]), "/queries");
    }
}
