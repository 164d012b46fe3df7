//! Connections to servers, plain or in TLS, which are kept for the next request.

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connections that are kept while nobody needs them.
const MOST_IDLE: usize = 32;

/// How long is waited.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer, and for each of its pieces.
    pub read: Duration,
    /// Before a request is sent for the second time; doubled each time.
    pub first_pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(60),
            first_pause: Duration::from_millis(200),
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Without brackets.
    pub host: String,
    pub port: u16,
    pub is_encrypted: bool,
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

impl Server {
    /// What the header `Host` says.
    pub fn authority(&self) -> String {
        let usual = if self.is_encrypted { 443 } else { 80 };
        let whole = self.to_string();
        match whole.strip_suffix(&format!(":{usual}")) {
            Some(host) => host.to_owned(),
            None => whole,
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Sender = SendRequest<Full<Bytes>>;
/// Connections that nobody needs now.
type Idle = Arc<Mutex<Vec<(Server, Sender)>>>;

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether no connection was made, so that the server has seen nothing of the request.
    pub is_unreached: bool,
    /// Whether the next try can be another.
    pub is_final: bool,
    pub why: String,
}

impl Failure {
    fn unreached(why: impl ToString) -> Self {
        Self {
            is_unreached: true,
            is_final: false,
            why: why.to_string(),
        }
    }

    fn broken(why: impl ToString) -> Self {
        Self {
            is_unreached: false,
            is_final: false,
            why: why.to_string(),
        }
    }
}

/// The connections of a client.
pub(crate) struct Transport {
    authorities: Option<std::path::PathBuf>,
    tls: OnceLock<Arc<ClientConfig>>,
    idle: Idle,
    timeouts: Timeouts,
}

impl Debug for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Transport")
    }
}

impl Transport {
    pub fn new(authorities: Option<std::path::PathBuf>, timeouts: Timeouts) -> Self {
        Self {
            authorities,
            tls: OnceLock::new(),
            idle: Arc::default(),
            timeouts,
        }
    }

    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(
        &self,
        server: &Server,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, Failure> {
        // A connection that was kept may have ended meanwhile, which says nothing of the server.
        if let Some(sender) = self.take_idle(server)
            && let Ok(response) = self.send_on(server, sender, request.clone()).await
        {
            return Ok(response);
        }
        let sender = self.connect(server).await?;
        self.send_on(server, sender, request).await
    }

    async fn send_on(
        &self,
        server: &Server,
        mut sender: Sender,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, Failure> {
        let wait = self.timeouts.read;
        // The more there is to send, the longer it may take.
        let megabytes = request.body().size_hint().lower() / 100_000;
        let wait_for_head = wait + Duration::from_secs(megabytes);
        let sent = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let response = match timeout(wait_for_head, sent).await {
            Ok(response) => response.map_err(|error| Failure::broken(chain(&error)))?,
            Err(_) => return Err(Failure::broken(format!("no answer in {wait_for_head:?}"))),
        };
        let (head, body) = response.into_parts();
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
            read: wait,
            back: Some((server.clone(), sender, self.idle.clone())),
        })
    }

    fn take_idle(&self, server: &Server) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().rposition(|(known, _)| known == server)?;
        Some(idle.swap_remove(at).1)
    }

    async fn connect(&self, server: &Server) -> Result<Sender, Failure> {
        let wait = self.timeouts.connect;
        let connecting = timeout(wait, async {
            let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
            let stream = stream.map_err(Failure::unreached)?;
            // Requests are small, and answers are waited for.
            stream.set_nodelay(true).map_err(Failure::unreached)?;
            let stream: Box<dyn Stream> = match server.is_encrypted {
                false => Box::new(stream),
                true => Box::new(self.encrypt(server, stream).await?),
            };
            Ok(stream)
        });
        let stream = match connecting.await {
            Ok(stream) => stream?,
            Err(_) => return Err(Failure::unreached(format!("no connection in {wait:?}"))),
        };
        let made = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(Failure::unreached)?;
        // It ends with the sender, and what ends it is told to whoever reads.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn encrypt(
        &self,
        server: &Server,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(server.host.clone()).map_err(Failure::unreached)?;
        let connector = TlsConnector::from(self.tls()?);
        let encrypted = connector.connect(name, stream).await;
        encrypted.map_err(|error| Failure {
            // A certificate that is not trusted is not so the next time either.
            is_final: error.kind() == io::ErrorKind::InvalidData,
            ..Failure::unreached(error)
        })
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Failure> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let failed = |why: String| Failure {
            is_final: true,
            ..Failure::unreached(why)
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.authorities {
            let read = certificates(path);
            roots.add_parsable_certificates(
                read.map_err(|why| {
                    failed(format!("the certificates of {}: {why}", path.display()))
                })?,
            );
        }
        if roots.is_empty() {
            let why = "this machine knows no certificate authorities: name a file of them in AWS_CA_BUNDLE";
            return Err(failed(why.to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    read.collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())
}

/// An error with those below it, once each.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        below = error.source();
    }
    text
}

/// An answer whose body is still to be read.
pub(crate) struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    read: Duration,
    /// Where the connection goes when the body has been read.
    back: Option<(Server, Sender, Idle)>,
}

impl Response {
    /// A header's value, if it is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How long the body is, if the server says so.
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Whether the server marks the body's end, so that a body which breaks off is told from one that is whole.
    pub fn has_end(&self) -> bool {
        self.length().is_some() || self.headers.contains_key("transfer-encoding")
    }

    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let frame = match timeout(self.read, self.body.frame()).await {
                Ok(Some(frame)) => frame.map_err(|error| chain(&error))?,
                Ok(None) => {
                    self.give_back();
                    return Ok(None);
                }
                Err(_) => return Err(format!("no more bytes came in {:?}", self.read)),
            };
            if let Ok(bytes) = frame.into_data()
                && !bytes.is_empty()
            {
                return Ok(Some(bytes));
            }
        }
    }

    fn give_back(&mut self) {
        if let Some((server, sender, idle)) = self.back.take() {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE && !sender.is_closed() {
                idle.push((server, sender));
            }
        }
    }

    /// The whole body, of which at most so many bytes are taken.
    pub async fn whole(mut self, most: usize) -> Result<Vec<u8>, String> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next().await? {
            whole.extend_from_slice(&bytes);
            if whole.len() > most {
                return Err(format!("it is longer than {most} bytes"));
            }
        }
        Ok(whole)
    }
}
