//! A file at a peer, read by HTTP ranges (RFC 9110, section 14).
//!
//! An answer counts only if it is the range that was requested of a file of the length that is known: status 206 and that very
//! `Content-Range`. Anything else, a redirect too, is an error that says what came.
//!
//! A connection is kept after a read and used for the next one in the same runtime, by whichever file of the peer it is. No task
//! drives it: it is polled together with the request, so that it ends with the read that is dropped.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_RANGE, HOST, HeaderName, HeaderValue,
    RANGE,
};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use super::ByteSource;
use crate::StoreError;

/// Bytes that are read of why a peer has refused.
const LONGEST_REASON: usize = 2048;

/// Connections to one peer that wait for the next read. With more, the oldest is closed.
const MOST_IDLE: usize = 16;

/// How long to wait for a peer.
#[derive(Debug, Clone, Copy)]
pub struct HttpTimeouts {
    /// For a connection.
    pub connect: Duration,
    /// For one read, from the request to the last byte.
    pub read: Duration,
}

impl Default for HttpTimeouts {
    /// A read is rarely of more than a megabyte.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(30),
        }
    }
}

/// A connection to a peer.
pub trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerStream for T {}

/// Makes connections to peers, as in TLS.
#[async_trait]
pub trait PeerConnector: fmt::Debug + Send + Sync {
    /// Connects to an address, `host:port`.
    async fn connect(&self, address: &str) -> io::Result<Box<dyn PeerStream>>;
}

/// Connects without encryption.
#[derive(Debug)]
struct TcpConnector;

#[async_trait]
impl PeerConnector for TcpConnector {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn PeerStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

/// Another process that serves files over HTTP.
pub struct HttpPeer {
    authority: Authority,
    timeouts: HttpTimeouts,
    /// What every request says of who sends it.
    authorization: Option<HeaderValue>,
    connector: Arc<dyn PeerConnector>,
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for HttpPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpPeer").field(&self.authority).finish()
    }
}

impl HttpPeer {
    /// The peer at an address, `host:port`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`StoreError::Io`] if that is no address.
    pub fn new(address: &str, timeouts: HttpTimeouts) -> Result<Arc<Self>, StoreError> {
        let authority = Authority::try_from(address).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
            StoreError::io("connect to", Path::new(address))(error)
        })?;
        Ok(Arc::new(Self {
            authority,
            timeouts,
            authorization: None,
            connector: Arc::new(TcpConnector),
            idle: Mutex::default(),
        }))
    }

    /// The same peer, to which every request says who sends it.
    #[must_use]
    pub fn authorized_by(&self, authorization: HeaderValue) -> Arc<Self> {
        Arc::new(Self {
            authority: self.authority.clone(),
            timeouts: self.timeouts,
            authorization: Some(authorization),
            connector: Arc::clone(&self.connector),
            idle: Mutex::default(),
        })
    }

    /// The same peer, to which connections are made in another way.
    #[must_use]
    pub fn connected_by(&self, connector: Arc<dyn PeerConnector>) -> Arc<Self> {
        Arc::new(Self {
            authority: self.authority.clone(),
            timeouts: self.timeouts,
            authorization: self.authorization.clone(),
            connector,
            idle: Mutex::default(),
        })
    }

    /// Reads a range, over a kept connection if there is one that still works.
    async fn read(&self, path: &PathAndQuery, read: &mut RangeRead<'_>) -> io::Result<()> {
        loop {
            let kept = self.take_kept();
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.send(self.request(path, read)?).await {
                Ok(response) => {
                    connection.receive(response, read).await?;
                    self.keep(connection);
                    return Ok(());
                }
                // The peer may have closed it while it waited, which is no news of the peer.
                Err(_) if is_kept => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn request(
        &self,
        path: &PathAndQuery,
        read: &RangeRead<'_>,
    ) -> io::Result<Request<Empty<Bytes>>> {
        let mut request = Request::get(path.as_str());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request
            .header(HOST, self.authority.as_str())
            .header(RANGE, format!("bytes={}-{}", read.offset, read.last()))
            // Bytes of the file, not of what somebody between would make of it.
            .header(ACCEPT_ENCODING, "identity")
            .body(Empty::new())
            .map_err(io::Error::other)
    }

    async fn connect(&self) -> io::Result<Connection> {
        let port = self.authority.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", self.authority.host());
        let stream = timeout(self.timeouts.connect, self.connector.connect(&address));
        let stream = stream.await.map_err(|_| {
            let after = self.timeouts.connect;
            timed_out(format!(
                "no connection to {} after {after:?}",
                self.authority
            ))
        })??;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(other)?;
        Ok(Connection {
            sender,
            driver: Some(Box::pin(driver)),
            runtime: Handle::current().id(),
        })
    }

    /// The connection of this runtime that was used last: another runtime may not be running now.
    fn take_kept(&self) -> Option<Connection> {
        let runtime = Handle::current().id();
        let mut idle = self.lock();
        let at = idle.iter().rposition(|kept| kept.runtime == runtime)?;
        Some(idle.remove(at))
    }

    fn keep(&self, connection: Connection) {
        if connection.driver.is_none() {
            return;
        }
        let mut idle = self.lock();
        if idle.len() >= MOST_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Driver = http1::Connection<TokioIo<Box<dyn PeerStream>>, Empty<Bytes>>;

/// A connection to a peer.
struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// What reads and writes it; nothing once it has ended.
    driver: Option<Pin<Box<Driver>>>,
    /// Where it was made.
    runtime: Id,
}

impl Connection {
    /// Sends a request and waits for the head of its answer.
    async fn send(&mut self, request: Request<Empty<Bytes>>) -> io::Result<Response<Incoming>> {
        let Self { sender, driver, .. } = self;
        let work = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        drive(driver, work).await.map_err(other)
    }

    /// Takes an answer, if it is that to the read, with its bytes.
    async fn receive(
        &mut self,
        response: Response<Incoming>,
        read: &mut RangeRead<'_>,
    ) -> io::Result<()> {
        if let Err(error) = read.check_head(&response) {
            return Err(self.with_reason(error, response).await);
        }
        let mut body = response.into_body();
        let work = async {
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame.map_err(other)?.into_data() {
                    read.take(&bytes)?;
                }
            }
            Ok::<(), io::Error>(())
        };
        drive(&mut self.driver, work).await?;
        read.finish()
    }

    /// An error with what the peer says of it, if it says anything.
    async fn with_reason(&mut self, error: io::Error, response: Response<Incoming>) -> io::Error {
        let status = response.status();
        if status == StatusCode::PARTIAL_CONTENT {
            return error;
        }
        let mut body = response.into_body();
        let work = async {
            let mut text = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(bytes) = frame.data_ref() {
                    text.extend_from_slice(bytes);
                }
                if text.len() > LONGEST_REASON {
                    break;
                }
            }
            text
        };
        let text = drive(&mut self.driver, work).await;
        match String::from_utf8_lossy(&text).trim() {
            "" => error,
            // It is the peer's own sentence about the file.
            text if status == StatusCode::SERVICE_UNAVAILABLE => io::Error::other(text.to_owned()),
            text => io::Error::new(error.kind(), format!("{error}: {text}")),
        }
    }
}

/// Runs work that waits for a connection, and the connection with it.
async fn drive<T>(driver: &mut Option<Pin<Box<Driver>>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        let Some(running) = driver else {
            return Poll::Pending;
        };
        if running.as_mut().poll(context).is_ready() {
            // What waits for it is told by its end that no more comes.
            *driver = None;
        }
        work.as_mut().poll(context)
    })
    .await
}

/// A range of a file and where its bytes go.
struct RangeRead<'a> {
    offset: u64,
    buffer: &'a mut [u8],
    filled: usize,
    /// The length of the file; nothing before it is known.
    total: Option<u64>,
}

impl<'a> RangeRead<'a> {
    fn new(offset: u64, buffer: &'a mut [u8], total: Option<u64>) -> Self {
        Self {
            offset,
            buffer,
            filled: 0,
            total,
        }
    }

    /// The last byte of the range; it is not empty.
    fn last(&self) -> u64 {
        self.offset + (self.buffer.len() as u64).saturating_sub(1)
    }

    /// Whether an answer is that to this read.
    fn check_head(&mut self, response: &Response<Incoming>) -> io::Result<()> {
        check_status(response.status())?;
        let header = |name: HeaderName| {
            let value = response.headers().get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if let Some(encoding) = header(CONTENT_ENCODING).filter(|name| name != "identity") {
            return Err(invalid(format!("the peer sent its bytes as {encoding}")));
        }
        let said = header(CONTENT_RANGE).unwrap_or_default();
        let Some((range, total)) = content_range(&said) else {
            return Err(invalid(format!("the peer sent {said:?} as Content-Range")));
        };
        if self.total.is_some_and(|known| known != total) {
            let what = format!("the file has {total} bytes now: it is not the one that was opened");
            return Err(invalid(what));
        }
        self.total = Some(total);
        let end = self.last() + 1;
        if range.start == self.offset && range.end < end && range.end == total {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if range != (self.offset..end) {
            let wanted = format!("{}-{}", self.offset, self.last());
            return Err(invalid(format!(
                "the peer sent {said:?} where bytes {wanted} were wanted"
            )));
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.buffer.get_mut(self.filled..self.filled + bytes.len());
        let Some(room) = room else {
            return Err(invalid(
                "the peer sent more bytes than it announced".to_owned(),
            ));
        };
        room.copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        if self.filled < self.buffer.len() {
            return Err(invalid(
                "the peer sent fewer bytes than it announced".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Whether a status is that of a range of bytes.
fn check_status(status: StatusCode) -> io::Result<()> {
    let kind = match status {
        StatusCode::PARTIAL_CONTENT => return Ok(()),
        StatusCode::NOT_FOUND => io::ErrorKind::NotFound,
        StatusCode::RANGE_NOT_SATISFIABLE => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::Other,
    };
    let what = format!("the peer answered {status} to a request for a range of bytes");
    Err(io::Error::new(kind, what))
}

/// `bytes FIRST-LAST/TOTAL`, as a half-open range and the total.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last < total).then(|| (first..last + 1, total))
}

/// An error of a connection. That it ended is no end of the file, which would be damage.
fn other(error: hyper::Error) -> io::Error {
    let below = std::error::Error::source(&error).and_then(|below| below.downcast_ref());
    let kind = match below.map(io::Error::kind) {
        None | Some(io::ErrorKind::UnexpectedEof) => io::ErrorKind::ConnectionAborted,
        Some(kind) => kind,
    };
    match below {
        Some(below) => io::Error::new(kind, format!("{error}: {below}")),
        None => io::Error::new(kind, error),
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn timed_out(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// A file at a peer. It can be read from any Tokio runtime whose timer and network are enabled.
#[derive(Debug)]
pub struct HttpFile {
    peer: Arc<HttpPeer>,
    path: PathAndQuery,
    name: Arc<Path>,
    bytes: u64,
}

impl HttpFile {
    /// A file of so many bytes, as a manifest says. `path` begins with a slash and is written as in an address. Nothing is read.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the path cannot be part of an address.
    pub fn new(peer: Arc<HttpPeer>, path: &str, bytes: u64) -> Result<Self, StoreError> {
        let address = format!("http://{}{path}", peer.authority);
        let name: Arc<Path> = Arc::from(Path::new(&address));
        let path = PathAndQuery::try_from(path).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
            StoreError::io("read", &name)(error)
        })?;
        Ok(Self {
            peer,
            path,
            name,
            bytes,
        })
    }

    /// A file whose length the peer is requested; it has at least one byte.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Io`] with whatever else the peer answers.
    pub async fn open(peer: Arc<HttpPeer>, path: &str) -> Result<Self, StoreError> {
        let mut file = Self::new(peer, path, 0)?;
        let mut byte = [0];
        let mut read = RangeRead::new(0, &mut byte, None);
        let outcome = file.read(&mut read).await;
        let total = read.total;
        outcome.map_err(StoreError::io("open", &file.name))?;
        file.bytes = total.unwrap_or_default();
        Ok(file)
    }

    async fn read(&self, read: &mut RangeRead<'_>) -> io::Result<()> {
        let after = self.peer.timeouts.read;
        let reading = timeout(after, self.peer.read(&self.path, read)).await;
        reading.unwrap_or_else(|_| Err(timed_out(format!("no answer after {after:?}"))))
    }
}

#[async_trait]
impl ByteSource for HttpFile {
    fn name(&self) -> &Arc<Path> {
        &self.name
    }

    fn num_bytes(&self) -> u64 {
        self.bytes
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(&mut RangeRead::new(offset, buffer, Some(self.bytes)))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(content_range("bytes 0-0/1"), Some((0..1, 1)));
        assert_eq!(content_range("bytes 5-9/10"), Some((5..10, 10)));
        for wrong in [
            "",
            "bytes",
            "bytes */10",
            "bytes 5-9/*",
            "bytes 9-5/10",
            "bytes 5-10/10",
            "items 5-9/10",
            "bytes 5-9",
            "bytes -9/10",
            "bytes 0-18446744073709551615/18446744073709551615",
        ] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
