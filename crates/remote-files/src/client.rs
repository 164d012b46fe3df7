//! Requests: signed, sent, and sent again where that may help.
//!
//! ```text
//!   Call ──► route ──► sign ──► send ──► status ──► Response
//!              ▲                          │
//!              └── pause ◄── 5xx, 429, no answer: up to AWS_MAX_ATTEMPTS times
//! ```

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use chrono::Utc;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};

use crate::address::Address;
use crate::listing::Complaint;
use crate::settings::Settings;
use crate::signature::{ToSign, authorization, checksum, encode_path, encode_query};
use crate::transport::{Response, Server, Timeouts, Transport};
use crate::{RemoteError, Result};

const NAME: &str = concat!("Meridian/", env!("CARGO_PKG_VERSION"));
/// How often a server is tried that has never answered: its name may be wrong.
const FIRST_ATTEMPTS: u32 = 3;
/// What a pause grows to.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of an error's description.
const LONGEST_COMPLAINT: usize = 64 << 10;
/// What stores call errors that pass.
const PASSING: [&str; 6] = [
    "SlowDown",
    "RequestTimeout",
    "ServiceUnavailable",
    "InternalError",
    "OperationAborted",
    "ConditionalRequestConflict",
];

/// A client of stores and servers. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    transport: Transport,
    /// Whether any server has answered.
    has_answered: AtomicBool,
}

/// A request, before it knows its server.
pub(crate) struct Call<'a> {
    pub method: Method,
    pub address: &'a Address,
    pub query: Vec<(&'a str, &'a str)>,
    /// Names in lower case.
    pub headers: Vec<(&'a str, String)>,
    pub body: Bytes,
}

impl<'a> Call<'a> {
    pub fn new(method: Method, address: &'a Address) -> Self {
        Self {
            method,
            address,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub fn header(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn query(mut self, name: &'a str, value: &'a str) -> Self {
        self.query.push((name, value));
        self
    }

    pub fn body(mut self, body: Bytes) -> Self {
        self.body = body;
        self
    }

    /// What it does, for messages.
    fn what(&self) -> &'static str {
        match self.method {
            Method::GET | Method::HEAD => "read",
            _ => "written",
        }
    }
}

/// Why a request failed that may succeed another time.
struct FailedAttempt {
    /// The server, if no connection was to be had.
    unreached: Option<String>,
    why: String,
}

impl FailedAttempt {
    fn in_words(self) -> String {
        match self.unreached {
            Some(server) => format!("{server} cannot be reached: {}", self.why),
            None => self.why,
        }
    }
}

impl Client {
    /// A client with the settings.
    pub fn new(settings: Settings) -> Self {
        Self::with_timeouts(settings, Timeouts::default())
    }

    /// The same, which waits as long as is said.
    pub fn with_timeouts(settings: Settings, timeouts: Timeouts) -> Self {
        let transport = Transport::new(settings.authorities.clone(), timeouts);
        Self(Arc::new(Inner {
            settings,
            transport,
            has_answered: AtomicBool::new(false),
        }))
    }

    /// How often something is tried.
    pub(crate) fn attempts(&self) -> u32 {
        self.0.settings.attempts
    }

    /// Waits before another try; `failures` is how many there were.
    pub(crate) async fn pause(&self, failures: u32) {
        let first = self.0.transport.timeouts().first_pause;
        let longest = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        // Clients that failed at the same time do not come back at the same time.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let dice = f64::from(now.map_or(0, |now| now.subsec_nanos()) % 1000) / 1000.0;
        tokio::time::sleep(longest.min(LONGEST_PAUSE).mul_f64(0.5 + dice / 2.0)).await;
    }

    /// Sends a request, again where that may help, and gives the answer if it is a success (2xx).
    pub(crate) async fn perform(&self, call: &Call<'_>) -> Result<Response> {
        let mut tries = 0;
        loop {
            tries += 1;
            let failed = match self.attempt(call).await? {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if tries >= self.attempts() {
                return Err(RemoteError::Interrupted {
                    url: call.address.to_string(),
                    what: call.what(),
                    tries,
                    why: failed.in_words(),
                });
            }
            if tries >= FIRST_ATTEMPTS && !self.0.has_answered.load(Relaxed) {
                let host = self.route(call.address)?.0.to_string();
                let why = failed.why;
                return Err(RemoteError::Unreachable { host, why });
            }
            self.pause(tries).await;
        }
    }

    /// Sends a request once: an answer, or why another try may help.
    async fn attempt(
        &self,
        call: &Call<'_>,
    ) -> Result<std::result::Result<Response, FailedAttempt>> {
        let (server, path) = self.route(call.address)?;
        let request = self.request(call, &server, &path)?;
        let response = match self.0.transport.send(&server, request).await {
            Ok(response) => response,
            Err(failure) if failure.is_final => {
                return Err(RemoteError::Unreachable {
                    host: server.to_string(),
                    why: failure.why,
                });
            }
            Err(failure) => {
                return Ok(Err(FailedAttempt {
                    unreached: failure.is_unreached.then(|| server.to_string()),
                    why: failure.why,
                }));
            }
        };
        self.0.has_answered.store(true, Relaxed);
        let status = response.status;
        if status.is_success()
            || (status.is_redirection() && matches!(call.address, Address::Http(_)))
        {
            return Ok(Ok(response));
        }
        let region = response.header("x-amz-bucket-region").map(str::to_owned);
        let body = response.whole(LONGEST_COMPLAINT).await.unwrap_or_default();
        let mut complaint = Complaint::of(&body);
        complaint.region = complaint.region.or(region);
        let is_passing = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
            || status == StatusCode::TOO_MANY_REQUESTS
            || PASSING.contains(&complaint.code.as_str());
        match is_passing {
            true => Ok(Err(FailedAttempt {
                unreached: None,
                why: match complaint.code.as_str() {
                    "" => format!("the server answers {status}"),
                    code => format!("the server answers {status} ({code})"),
                },
            })),
            false => Err(self.error(call, &server, status, complaint)),
        }
    }

    /// The server of an address, and the path there, encoded.
    fn route(&self, address: &Address) -> Result<(Server, String)> {
        let of_url = |url: &url::Url| Server {
            host: url
                .host_str()
                .unwrap_or_default()
                .trim_matches(['[', ']'])
                .to_owned(),
            port: url.port_or_known_default().unwrap_or(443),
            is_encrypted: url.scheme() == "https",
        };
        let (bucket, key) = match address {
            Address::Http(url) => return Ok((of_url(url), url.path().to_owned())),
            Address::S3 { bucket, key } => (bucket, key),
        };
        let settings = &self.0.settings;
        if let Some(endpoint) = &settings.endpoint {
            let base = endpoint.path().trim_end_matches('/');
            let path = encode_path(&format!("/{bucket}/{key}"));
            let path = if key.is_empty() {
                path.trim_end_matches('/')
            } else {
                &path
            };
            return Ok((of_url(endpoint), format!("{base}{path}")));
        }
        let region = &settings.region;
        let domain = match region.starts_with("cn-") {
            true => "amazonaws.com.cn",
            false => "amazonaws.com",
        };
        // Certificates are for one name below that of S3.
        let is_name_of_host = { bucket.chars() }
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-');
        let (host, path) = match is_name_of_host {
            true => (format!("{bucket}.s3.{region}.{domain}"), format!("/{key}")),
            false => (format!("s3.{region}.{domain}"), format!("/{bucket}/{key}")),
        };
        let server = Server {
            host,
            port: 443,
            is_encrypted: true,
        };
        Ok((server, encode_path(&path)))
    }

    fn request(
        &self,
        call: &Call<'_>,
        server: &Server,
        path: &str,
    ) -> Result<Request<Full<Bytes>>> {
        let query = match call.address {
            Address::Http(url) => url.query().unwrap_or_default().to_owned(),
            Address::S3 { .. } => encode_query(&call.query),
        };
        let mut headers: Vec<(String, String)> = { call.headers.iter() }
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        headers.push(("host".to_owned(), server.authority()));
        let settings = &self.0.settings;
        if matches!(call.address, Address::S3 { .. }) && !settings.is_anonymous {
            let credentials = settings.credentials.as_ref();
            let credentials = credentials.ok_or_else(|| RemoteError::NoCredentials {
                url: call.address.to_string(),
                hint: match call.what() {
                    "read" => "; a public bucket needs none with --no-sign-request",
                    _ => "",
                },
            })?;
            let time = Utc::now().format("%Y%m%dT%H%M%SZ").to_string();
            let checksum = checksum(&call.body);
            headers.push(("x-amz-content-sha256".to_owned(), checksum.clone()));
            headers.push(("x-amz-date".to_owned(), time.clone()));
            if let Some(token) = &credentials.token {
                headers.push(("x-amz-security-token".to_owned(), token.clone()));
            }
            headers.sort();
            let to_sign = ToSign {
                method: call.method.as_str(),
                path,
                query: &query,
                headers: &headers,
                checksum: &checksum,
            };
            let value = authorization(&to_sign, credentials, &settings.region, &time);
            headers.push(("authorization".to_owned(), value));
        }
        headers.push(("user-agent".to_owned(), NAME.to_owned()));
        headers.push(("accept-encoding".to_owned(), "identity".to_owned()));
        let target = match query.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{query}"),
        };
        let mut request = Request::builder().method(call.method.clone()).uri(target);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        // What is wrong may be a secret with a line's end in it.
        request.body(Full::new(call.body.clone())).map_err(|_| {
            RemoteError::Settings(format!(
                "the request for {} cannot be written: its name or the credentials have characters that no request may have",
                call.address
            ))
        })
    }

    fn error(
        &self,
        call: &Call<'_>,
        server: &Server,
        status: StatusCode,
        complaint: Complaint,
    ) -> RemoteError {
        let url = call.address.to_string();
        let Complaint {
            code,
            message,
            region,
        } = complaint;
        let bucket = match call.address {
            Address::S3 { bucket, .. } => Some(bucket.clone()),
            Address::Http(_) => None,
        };
        if let (Some(bucket), Some(region)) = (&bucket, region)
            && region != self.0.settings.region
            && (status.is_redirection() || status == StatusCode::BAD_REQUEST)
        {
            return RemoteError::WrongRegion {
                bucket: bucket.clone(),
                region,
            };
        }
        match (status, code.as_str(), bucket) {
            (_, "NoSuchBucket", Some(bucket)) => RemoteError::NoBucket {
                bucket,
                host: server.to_string(),
            },
            (StatusCode::NOT_FOUND, "NoSuchUpload", _) => RemoteError::NotAsExpected { url },
            (StatusCode::NOT_FOUND, _, _) => RemoteError::Missing { url },
            (StatusCode::PRECONDITION_FAILED, _, _) => match call.method {
                Method::GET => RemoteError::Changed { url },
                _ => RemoteError::NotAsExpected { url },
            },
            // It has become shorter.
            (StatusCode::RANGE_NOT_SATISFIABLE, _, _) => RemoteError::Changed { url },
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _, _) => RemoteError::Denied {
                hint: self.hint(&code),
                code: if code.is_empty() {
                    status.to_string()
                } else {
                    code
                },
                url,
            },
            _ => RemoteError::Rejected {
                url,
                status: status.as_u16(),
                code,
                message,
            },
        }
    }

    /// What may help where access is denied.
    fn hint(&self, code: &str) -> &'static str {
        match code {
            "SignatureDoesNotMatch" => {
                "the secret is not that of the key, or the store is in another region: check AWS_SECRET_ACCESS_KEY and AWS_REGION"
            }
            "InvalidAccessKeyId" | "InvalidClientTokenId" => {
                "the store does not know the key: check AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL"
            }
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
                "the session has ended: get new credentials"
            }
            "RequestTimeTooSkewed" => "the clock of this machine is wrong: set it",
            _ if self.0.settings.is_anonymous => {
                "the bucket is not public, or nothing is there: leave out --no-sign-request, so that the request is signed"
            }
            _ => {
                "these credentials may not do this; stores also say so of what is not there to those who may not list the bucket"
            }
        }
    }
}
