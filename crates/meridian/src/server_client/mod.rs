//! Requests to a server, over HTTP/1.1 or HTTPS, each on a connection of its own.
//!
//! Invariant: a password or a token leaves this machine in TLS alone.

mod arguments;
mod batches;
mod connection;
mod early_response;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, TE,
};
use hyper::http::request;
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;
pub use arguments::{LoginArguments, ServerArguments, UserArguments};
pub use batches::{BatchReader, warnings_in};
use connection::{Trust, connect};
use early_response::{BrokenWrite, ReadableToTheEnd};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No server answers at the address.
    #[error(
        "no server answers at {address} ({reason}): start one with `meridian serve`, or give the address of one with --server"
    )]
    Unreachable {
        /// Its address.
        address: String,
        /// The operating system's or the protocol's reason.
        reason: String,
    },
    /// The server does not do what was requested.
    #[error("{0}")]
    Rejected(ServerError),
    /// The server has closed the connection before it had the request, and has not said why.
    #[error(
        "the server at {address} closed the connection before it had everything, and did not say why ({reason}): its log may; try again"
    )]
    Unanswered {
        /// Its address.
        address: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The query belongs to another user.
    #[error("{0}: give the user's name with --user")]
    OtherUser(ServerError),
    /// The server does not know who asks.
    #[error(
        "{0}: log in with --user NAME and --password, or by the variables MERIDIAN_PASSWORD or MERIDIAN_TOKEN of the environment"
    )]
    LoginNeeded(ServerError),
    /// What came back is not what a server of this program sends.
    #[error("{address} is no server of this program, or one of another version: {reason}")]
    Unexpected {
        /// Its address.
        address: String,
        /// What is wrong with the response.
        reason: String,
    },
    /// The response ended before it was whole.
    #[error("the server broke off its response ({0}): try again")]
    BrokenOff(String),
}

/// An error in the server's words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerError {
    /// What is wrong.
    #[serde(rename = "error")]
    pub sentence: String,
    /// MySQL's number of the error.
    pub code: Option<u16>,
    /// Its SQL state.
    pub sqlstate: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// What a request carries.
pub type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// Who sends requests. What it shows of itself in messages has no secrets.
pub enum Login {
    /// Whoever does not log in: a name, which a server without users goes by.
    Nobody { name: Option<String> },
    /// A user with a password.
    Password { name: String, password: String },
    /// The user of a token.
    Token(String),
}

impl Login {
    fn header(&self) -> Result<Option<HeaderValue>, Failure> {
        let text = match self {
            Self::Nobody { .. } => return Ok(None),
            Self::Password { name, password } => {
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
            Self::Token(token) => format!("Bearer {}", token.trim()),
        };
        let header = HeaderValue::from_str(&text);
        let mut header = header.map_err(|_| {
            Failure::new("MERIDIAN_TOKEN is no token: it is what `meridian user token` printed")
        })?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// A server, and who asks it.
#[derive(Debug, Clone)]
pub struct ServerClient {
    authority: Authority,
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<HeaderValue>,
    /// The name by which the server shall know the user; `None` where a token says it.
    user: Option<String>,
}

impl ServerClient {
    /// The server at a URL such as `http://127.0.0.1:8080`, and the user whom the URL names. Nothing is connected yet.
    ///
    /// # Errors
    /// That is no such URL, or TLS cannot be spoken.
    fn new(url: &str, trust: Trust) -> Result<(Self, Option<String>), Failure> {
        // The URL may have a password in it, which is not to be seen again.
        let wrong = |reason: &str| {
            Failure::new(format!(
                "--server: {reason}; write it as in http://127.0.0.1:8080 or https://ann@archive.example.org"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("this is no address"))?;
        let tls = match uri.scheme_str() {
            None | Some("http") => None,
            Some("https") => Some(trust.config()?),
            Some(other) => return Err(wrong(&format!("{other} is not spoken here"))),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() {
            return Err(wrong("the address ends with its port"));
        }
        let (user, host) = match authority.as_str().rsplit_once('@') {
            None => (None, authority.clone()),
            Some((user, _)) if user.contains(':') => {
                return Err(wrong(
                    "a password in an address can be read by others: put it into the variable MERIDIAN_PASSWORD of the environment",
                ));
            }
            Some((user, host)) => {
                let host = host.parse().map_err(|_| wrong("it names no host"))?;
                (Some(user.to_owned()), host)
            }
        };
        let client = Self {
            authority: host,
            tls,
            authorization: None,
            user: None,
        };
        Ok((client, user))
    }

    /// Sends what follows as this user.
    ///
    /// # Errors
    /// The secret would leave this machine in clear, or cannot be sent.
    fn log_in(&mut self, login: Login) -> Result<(), Failure> {
        self.authorization = login.header()?;
        if self.authorization.is_some() && self.tls.is_none() && !self.is_here() {
            return Err(Failure::new(format!(
                "a password or token is not sent to {} in clear: write the address with https://",
                self.authority
            )));
        }
        self.user = match login {
            Login::Nobody { name } => name,
            Login::Password { name, .. } => Some(name),
            Login::Token(_) => None,
        };
        Ok(())
    }

    /// Whether the server is on this machine.
    fn is_here(&self) -> bool {
        let host = self.authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        match address.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }

    fn address(&self) -> String {
        let scheme = self.tls.as_ref().map_or("http", |_| "https");
        format!("{scheme}://{}", self.authority)
    }

    /// The name to give where a request names its user.
    pub fn user(&self) -> Option<String> {
        self.user.clone()
    }

    /// Sends a request with an object, or without a body, and awaits the head of its response, which has a status of success.
    ///
    /// # Errors
    /// No server answers, or it does not do what is requested.
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, RequestError> {
        let request = Request::builder().header(CONTENT_TYPE, "application/json");
        let body = Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default()));
        let body = body.map_err(|never| match never {}).boxed_unsync();
        self.send_body(request.method(method).uri(target), body)
            .await
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
        self.object(response).await
    }

    /// Sends a file of so many bytes, if that is known, and reads the response, an object.
    ///
    /// # Errors
    /// As [`send_for`](Self::send_for), or the file cannot be read.
    pub async fn upload_for<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: RequestBody,
        length: Option<u64>,
    ) -> Result<T, RequestError> {
        let mut request = Request::builder().header(CONTENT_TYPE, "application/octet-stream");
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        let request = request.method(method).uri(target);
        let response = self.send_body(request, body).await?;
        self.object(response).await
    }

    async fn send_body(
        &self,
        mut request: request::Builder,
        body: RequestBody,
    ) -> Result<Response<Incoming>, RequestError> {
        request = request
            .header(HOST, self.authority.as_str())
            .header(CONNECTION, "close, TE")
            .header(TE, "trailers");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(body);
        let request = request.map_err(|error| self.unexpected(error))?;
        let (mut sender, broken) = self.connect().await?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| match broken.get() {
            Some(reason) => RequestError::Unanswered {
                address: self.address(),
                reason: reason.clone(),
            },
            None => self.unreachable(error),
        })?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.rejected(response).await),
        }
    }

    /// Reads a response, an object.
    ///
    /// # Errors
    /// It breaks off, or is something else.
    pub async fn object<T: DeserializeOwned>(
        &self,
        response: Response<Incoming>,
    ) -> Result<T, RequestError> {
        let bytes = received(response).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unexpected(error))
    }

    async fn connect(
        &self,
    ) -> Result<(http1::SendRequest<RequestBody>, BrokenWrite), RequestError> {
        let stream = connect(&self.authority, self.tls.as_ref()).await;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let (stream, broken) = ReadableToTheEnd::new(stream);
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        // It reads and writes the connection; its error is also that of the request.
        tokio::spawn(connection);
        Ok((sender, broken))
    }

    /// The error that a response tells.
    async fn rejected(&self, response: Response<Incoming>) -> RequestError {
        let status = response.status();
        // What is refused before any handler sees it is told in plain text, by the limit of connections without a type.
        let is_text = match response.headers().get(CONTENT_TYPE) {
            Some(media_type) => media_type.as_bytes().starts_with(b"text/plain"),
            None => status.is_server_error(),
        };
        let bytes = match received(response).await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        let told = match serde_json::from_slice::<ServerError>(&bytes) {
            Ok(told) => told,
            Err(_) if is_text => ServerError {
                sentence: String::from_utf8_lossy(&bytes).trim().to_owned(),
                code: None,
                sqlstate: None,
            },
            Err(_) => return self.unexpected(format!("its response is {status}")),
        };
        match status {
            StatusCode::UNAUTHORIZED => RequestError::LoginNeeded(told),
            StatusCode::FORBIDDEN if self.authorization.is_none() => RequestError::OtherUser(told),
            _ => RequestError::Rejected(told),
        }
    }

    fn unreachable(&self, reason: impl ToString) -> RequestError {
        RequestError::Unreachable {
            address: self.address(),
            reason: reason.to_string(),
        }
    }

    fn unexpected(&self, reason: impl ToString) -> RequestError {
        RequestError::Unexpected {
            address: self.address(),
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

/// A value as a part of a path.
pub fn path_segment(value: &str) -> String {
    let mut encoded = String::new();
    encode(value, &mut encoded);
    encoded
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
        let new = |url| ServerClient::new(url, Trust::Machine);
        for (url, user) in [
            ("http://127.0.0.1:8080", None),
            ("http://localhost:8080/", None),
            ("127.0.0.1:8080", None),
            ("http://[::1]:8080", None),
            ("http://ann@localhost:8080", Some("ann")),
        ] {
            let (client, named) = new(url).unwrap();
            assert_eq!(named.as_deref(), user, "{url}");
            assert!(client.is_here() && !client.authority.as_str().contains('@'));
        }
        for (url, reason) in [
            ("ftp://127.0.0.1", "ftp is not spoken"),
            ("http://127.0.0.1:8080/queries", "ends with its port"),
            ("http://ann:secret@127.0.0.1:8080", "MERIDIAN_PASSWORD"),
            ("", "no address"),
            ("/path", "names no host"),
        ] {
            let failure = new(url).unwrap_err();
            assert!(failure.sentence().contains(reason), "{failure:?}");
            assert!(!failure.sentence().contains("secret"), "{failure:?}");
        }
    }

    #[test]
    fn secrets_are_not_sent_in_clear() {
        let password = || Login::Password {
            name: "ann".to_owned(),
            password: "secret".to_owned(),
        };
        let new = |url| ServerClient::new(url, Trust::Machine).unwrap().0;
        let mut far = new("http://192.0.2.1:8080");
        for login in [password(), Login::Token("abc".to_owned())] {
            assert!(far.log_in(login).is_err());
        }
        assert!(far.log_in(Login::Nobody { name: None }).is_ok());
        let mut near = new("http://[::1]:8080");
        near.log_in(password()).unwrap();
        assert_eq!(near.user().as_deref(), Some("ann"));
        assert!(!format!("{near:?}").contains("YW5u"), "{near:?}");
        let wrong = near.log_in(Login::Token("a\nb".to_owned())).unwrap_err();
        assert!(wrong.sentence().contains("meridian user token"));
    }

    /// A server that reads a little of the request, responds and closes the connection, by which the rest of the request is refused.
    fn impatient_server(response: &'static str) -> String {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.read_exact(&mut [0; 1000]).unwrap();
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        format!("http://{address}")
    }

    async fn upload_to(url: &str) -> RequestError {
        const BLOCKS: u64 = 100;
        const BLOCK: &[u8] = &[b'x'; 20_000];
        let (client, _) = ServerClient::new(url, Trust::Machine).unwrap();
        let blocks = (0..BLOCKS).map(|_| Ok(hyper::body::Frame::data(Bytes::from_static(BLOCK))));
        let body = http_body_util::StreamBody::new(futures::stream::iter(blocks)).boxed_unsync();
        let length = Some(BLOCKS * BLOCK.len() as u64);
        let uploaded = client.upload_for::<Value>(Method::PUT, "/tables/t", body, length);
        uploaded.await.unwrap_err()
    }

    /// "no server answers at ... (error writing a body to connection)" was told of most refusals of a larger file.
    #[tokio::test]
    async fn a_response_is_read_though_the_request_cannot_be_sent_whole() {
        let url = impatient_server(
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n{\"error\":\"no such table\"}",
        );
        for _ in 0..20 {
            let error = upload_to(&url).await;
            assert_eq!(error.to_string(), "no such table");
        }
        let error = upload_to(&impatient_server("")).await.to_string();
        let is_told = ["did not say why", "no server answers"].map(|why| error.contains(why));
        assert!(is_told.contains(&true), "{error}");
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
