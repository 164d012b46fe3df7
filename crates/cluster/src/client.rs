//! Requests to other members, over connections that are kept for the next request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ClusterError;
use crate::connect::connect;
use crate::credentials::Credentials;
use crate::tls::{Role, of_client};

/// How long a short request may take.
const SHORT_REQUEST: Duration = Duration::from_secs(10);
/// Bytes of a short response.
const SHORT_RESPONSE: usize = 256 << 20;
/// Connections to a member that wait for the next request.
const MOST_IDLE: usize = 8;

/// How long a connection may take to tell why it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection to a member.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Why it has ended, if by an error: the sender may know no more than that it has.
    failure: oneshot::Receiver<hyper::Error>,
}

impl Connection {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    /// What an error of the sender comes from.
    async fn cause(self, error: hyper::Error) -> hyper::Error {
        match timeout(LAST_WORDS, self.failure).await {
            Ok(Ok(cause)) => cause,
            _ => error,
        }
    }
}

/// Connections that wait for the next request, by the members to which they lead.
type Idle = Arc<Mutex<HashMap<(Role, String), Vec<Connection>>>>;

/// Sends requests to members of a cluster.
pub(crate) struct MemberClient {
    credentials: Credentials,
    idle: Idle,
}

impl fmt::Debug for MemberClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberClient")
    }
}

/// A response whose body is still to be read.
pub(crate) struct MemberResponse {
    /// Its status.
    pub status: StatusCode,
    /// Where else it says to ask.
    pub location: Option<String>,
    body: Incoming,
    member: (Role, String),
    connection: Option<Connection>,
    idle: Idle,
}

impl MemberResponse {
    /// The next bytes; `None` at the end. The connection is then kept.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(bytes) = frame?.into_data() {
                return Ok(Some(bytes));
            }
        }
        if let Some(connection) = self.connection.take() {
            let mut idle = lock(&self.idle);
            let kept = idle.entry(self.member.clone()).or_default();
            if kept.len() < MOST_IDLE {
                kept.push(connection);
            }
        }
        Ok(None)
    }

    /// All bytes, if they are not too many.
    pub async fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Ok(Some(bytes)) = self.next().await {
            text.extend_from_slice(&bytes);
            if text.len() > 4096 {
                break;
            }
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

impl MemberClient {
    pub fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            idle: Arc::default(),
        }
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Sends a request to the member at an address, which has to have that role, and waits for the head of its response.
    ///
    /// # Errors
    /// The member cannot be reached.
    pub async fn send(
        &self,
        method: Method,
        role: Role,
        address: &str,
        path: &str,
        body: Bytes,
    ) -> Result<MemberResponse, ClusterError> {
        let failed = |why: String| ClusterError::member(address, why);
        let request = || {
            let mut request = Request::builder().method(method.clone()).uri(path);
            if let Credentials::Secret(secret) = &self.credentials {
                request = request.header(AUTHORIZATION, secret.authorization());
            }
            request
                .header(HOST, address)
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(Full::new(body.clone()))
                .map_err(|error| failed(format!("cannot be asked: {error}")))
        };
        let member = (role, address.to_owned());
        loop {
            let kept = lock(&self.idle).get_mut(&member).and_then(Vec::pop);
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(role, address).await.map_err(failed)?,
            };
            let request = request()?;
            match connection.send(request).await {
                Ok(response) => return Ok(self.response(member, connection, response)),
                // The member may have closed it while it waited, which is no news of the member.
                Err(_) if is_kept => {}
                Err(error) => {
                    let cause = connection.cause(error).await;
                    return Err(failed(self.why_not(&cause)));
                }
            }
        }
    }

    async fn connect(&self, role: Role, address: &str) -> Result<Connection, String> {
        let stream = connect(&self.credentials, role, address).await?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.why_not(&error))?;
        let (tell, failure) = oneshot::channel();
        // It ends with the connection.
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                // Nobody waits for it, mostly.
                let _ = tell.send(error);
            }
        });
        Ok(Connection { sender, failure })
    }

    /// Why a member does not answer. That it refuses a certificate is known only when a request was sent (RFC 8446, 4.4.2).
    fn why_not(&self, error: &hyper::Error) -> String {
        if let Some(why) = of_client(error) {
            return why;
        }
        match error.is_parse() && !self.credentials.is_encrypted() {
            true => "does not speak as a member of a cluster: give --cluster-tls if it speaks TLS"
                .to_owned(),
            false => format!("does not answer: {error}"),
        }
    }

    fn response(
        &self,
        member: (Role, String),
        connection: Connection,
        response: Response<Incoming>,
    ) -> MemberResponse {
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|it| it.to_str().ok());
        MemberResponse {
            status: response.status(),
            location: location.map(str::to_owned),
            body: response.into_body(),
            member,
            connection: Some(connection),
            idle: Arc::clone(&self.idle),
        }
    }

    /// Sends a short request, with JSON if any, and reads the response whole.
    ///
    /// # Errors
    /// The member cannot be reached, or refuses.
    pub async fn bytes(
        &self,
        method: Method,
        role: Role,
        address: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClusterError> {
        let failed = |why: String| ClusterError::member(address, why);
        let exchange = async {
            let response = self.send(method, role, address, path, body).await?;
            if response.status != StatusCode::OK {
                let status = response.status;
                let why = match response.text().await {
                    text if text.is_empty() => format!("answers {status}"),
                    text => format!("answers {status}: {text}"),
                };
                return Err(failed(why));
            }
            let mut response = response;
            let mut all = Vec::new();
            while let Some(bytes) = response
                .next()
                .await
                .map_err(|error| failed(format!("stopped in the middle: {error}")))?
            {
                if all.len() + bytes.len() > SHORT_RESPONSE {
                    return Err(failed("says too much".to_owned()));
                }
                all.extend_from_slice(&bytes);
            }
            Ok(Bytes::from(all))
        };
        match timeout(SHORT_REQUEST, exchange).await {
            Ok(done) => done,
            Err(_) => Err(failed(format!(
                "did not answer within {} s",
                SHORT_REQUEST.as_secs()
            ))),
        }
    }

    /// Sends JSON and reads JSON.
    ///
    /// # Errors
    /// The member cannot be reached, refuses, or answers with something else.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        role: Role,
        address: &str,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<T, ClusterError> {
        let failed = |error: serde_json::Error| {
            ClusterError::member(address, format!("says what cannot be read: {error}"))
        };
        let body = body.map(serde_json::to_vec).transpose().map_err(failed)?;
        let body = Bytes::from(body.unwrap_or_default());
        let bytes = self.bytes(method, role, address, path, body).await?;
        serde_json::from_slice(&bytes).map_err(failed)
    }
}

/// The bytes of a request's body, no more than so many.
pub(crate) async fn read_body(body: axum::body::Body, most: usize) -> Result<Bytes, String> {
    let limited = Limited::new(body, most).collect().await;
    limited
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| error.to_string())
}

/// A response in JSON.
pub(crate) fn json(value: &impl Serialize) -> Response<axum::body::Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Every change is a single one, so that a panic elsewhere leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
