//! One connection of HTTP/1.1, by hand: a request goes out, its whole response comes back.
//!
//! The generator shares the processor with what it measures, so it does no more than is needed to be sure that an
//! answer is whole: it reads the status, the length (`Content-Length` or chunks) and exactly so many bytes.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const FIRST_ROOM: usize = 1 << 16;
const MOST_HEAD_BYTES: usize = 1 << 16;
/// A response that says that it is longer is taken for a mistake.
const MOST_BODY_BYTES: usize = 1 << 30;
const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END: &[u8] = b"\r\n";

/// Why there is no response that can be relied on.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nobody listens, or the connection broke.
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// Nothing came for as long as a server may take.
    #[error("the server was silent for too long")]
    Silent,
    /// The server hung up before the response was whole.
    #[error("the server hung up in the middle of a response")]
    HungUp,
    /// The response is not HTTP/1.1 as it should be.
    #[error("the response is not HTTP/1.1: {0}")]
    NotHttp(&'static str),
    /// More bytes came than were announced.
    #[error("the response is longer than its Content-Length")]
    TooLong,
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Connection(error),
        }
    }
}

/// A response: its status and its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// 200 if all is well.
    pub status: u16,
    /// Without the marks of chunks.
    pub body: &'a [u8],
}

/// A connection that is kept for request after request, and is made anew after a failure.
pub struct Connection {
    authority: String,
    timeout: Duration,
    stream: Option<TcpStream>,
    received: Vec<u8>,
    filled: usize,
    unchunked: Vec<u8>,
}

impl Connection {
    /// Connects; the server may be silent for `timeout`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn open(authority: &str, timeout: Duration) -> Result<Self, ExchangeError> {
        let mut connection = Self {
            authority: authority.to_owned(),
            timeout,
            stream: None,
            received: vec![0; FIRST_ROOM],
            filled: 0,
            unchunked: Vec::new(),
        };
        connection.connect()?;
        Ok(connection)
    }

    fn connect(&mut self) -> Result<(), ExchangeError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(self.timeout))?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// Sends a request and waits for the whole response.
    ///
    /// # Errors
    /// No answer, or one that is not whole. The next request then goes over a new connection.
    pub fn request(&mut self, request: &[u8]) -> Result<Response<'_>, ExchangeError> {
        match self.exchange(request) {
            Ok((head, body_end)) => {
                if head.closes {
                    self.stream = None;
                }
                let body = match head.length {
                    BodyLength::Known(_) => &self.received[head.bytes..body_end],
                    BodyLength::Chunks => &self.unchunked,
                };
                Ok(Response {
                    status: head.status,
                    body,
                })
            }
            Err(error) => {
                self.stream = None;
                Err(error)
            }
        }
    }

    /// Gives the head, and where in what was received the response ends.
    fn exchange(&mut self, request: &[u8]) -> Result<(Head, usize), ExchangeError> {
        self.filled = 0;
        if self.stream.is_none() {
            self.connect()?;
        }
        if let Some(stream) = &mut self.stream {
            stream.write_all(request)?;
        }
        let head_bytes = self.read_past(HEAD_END, 0, MOST_HEAD_BYTES)?;
        let head = read_head(&self.received[..head_bytes])?;
        let end = match head.length {
            BodyLength::Known(length) => {
                self.read_up_to(head_bytes + length)?;
                head_bytes + length
            }
            BodyLength::Chunks => self.read_chunks(head_bytes)?,
        };
        if self.filled > end {
            return Err(ExchangeError::TooLong);
        }
        Ok((head, end))
    }

    /// Reads on until `mark` is there from `from` on, at most `most` bytes away; gives where it ends.
    fn read_past(&mut self, mark: &[u8], from: usize, most: usize) -> Result<usize, ExchangeError> {
        let mut looked = from;
        loop {
            let unseen = &self.received[looked..self.filled];
            if let Some(at) = unseen.windows(mark.len()).position(|bytes| bytes == mark) {
                return Ok(looked + at + mark.len());
            }
            if self.filled - from > most {
                return Err(ExchangeError::NotHttp("a line or head does not end"));
            }
            // A mark may have come in part.
            looked = self.filled.saturating_sub(mark.len() - 1).max(from);
            self.read_some()?;
        }
    }

    /// Reads on until so many bytes are there.
    fn read_up_to(&mut self, end: usize) -> Result<(), ExchangeError> {
        if self.received.len() < end {
            self.received.resize(end.next_power_of_two(), 0);
        }
        while self.filled < end {
            self.read_some()?;
        }
        Ok(())
    }

    /// Reads a body of chunks into `unchunked`; gives where it ends.
    fn read_chunks(&mut self, begin: usize) -> Result<usize, ExchangeError> {
        self.unchunked.clear();
        let mut at = begin;
        loop {
            let line_end = self.read_past(LINE_END, at, MOST_HEAD_BYTES)?;
            let length = chunk_length(&self.received[at..line_end - LINE_END.len()])?;
            if length == 0 {
                return self.read_trailers(line_end);
            }
            at = line_end + length + LINE_END.len();
            self.read_up_to(at)?;
            if &self.received[line_end + length..at] != LINE_END {
                return Err(ExchangeError::NotHttp(
                    "a chunk has another length than it says",
                ));
            }
            self.unchunked
                .extend_from_slice(&self.received[line_end..line_end + length]);
        }
    }

    /// Lines up to an empty one follow the last chunk.
    fn read_trailers(&mut self, begin: usize) -> Result<usize, ExchangeError> {
        let mut at = begin;
        loop {
            let end = self.read_past(LINE_END, at, MOST_HEAD_BYTES)?;
            if end == at + LINE_END.len() {
                return Ok(end);
            }
            at = end;
        }
    }

    fn read_some(&mut self) -> Result<(), ExchangeError> {
        if self.filled == self.received.len() {
            self.received.resize(self.received.len() * 2, 0);
        }
        let stream = self.stream.as_mut().ok_or(ExchangeError::HungUp)?;
        match stream.read(&mut self.received[self.filled..]) {
            Ok(0) => Err(ExchangeError::HungUp),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLength {
    Known(usize),
    Chunks,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: BodyLength,
    closes: bool,
    /// How long it is, with its empty line.
    bytes: usize,
}

fn read_head(head: &[u8]) -> Result<Head, ExchangeError> {
    let text =
        std::str::from_utf8(head).map_err(|_| ExchangeError::NotHttp("its head is not text"))?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or(ExchangeError::NotHttp("its first line has no status"))?;
    let (mut length, mut closes) = (None, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let bytes = value.parse().ok().filter(|bytes| *bytes <= MOST_BODY_BYTES);
            let bytes = bytes.ok_or(ExchangeError::NotHttp("its Content-Length is no length"))?;
            length = Some(BodyLength::Known(bytes));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = value
                .eq_ignore_ascii_case("chunked")
                .then_some(BodyLength::Chunks);
        } else if name.eq_ignore_ascii_case("connection") {
            closes |= value.eq_ignore_ascii_case("close");
        }
    }
    let length = length.ok_or(ExchangeError::NotHttp(
        "it has neither Content-Length nor chunks, so that nobody can tell whether it is whole",
    ))?;
    Ok(Head {
        status,
        length,
        closes,
        bytes: head.len(),
    })
}

/// The length of a chunk in bytes, from its line: hexadecimal, perhaps with extensions behind.
fn chunk_length(line: &[u8]) -> Result<usize, ExchangeError> {
    std::str::from_utf8(line)
        .ok()
        .and_then(|line| usize::from_str_radix(line.split(';').next()?.trim(), 16).ok())
        .filter(|length| *length <= MOST_BODY_BYTES)
        .ok_or(ExchangeError::NotHttp(
            "a chunk does not begin with its length",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cones::test_server::TestServer;

    const PATIENCE: Duration = Duration::from_secs(2);

    /// What the client makes of raw bytes that come in the given pieces, some time apart.
    fn answer_to(pieces: &[&[u8]]) -> Result<(u16, Vec<u8>), ExchangeError> {
        let owned: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let server = TestServer::new(move |_, _| owned.clone());
        let mut connection = Connection::open(&server.authority, PATIENCE)?;
        let answer = connection.request(b"GET / HTTP/1.1\r\n\r\n")?;
        Ok((answer.status, answer.body.to_vec()))
    }

    #[test]
    fn an_answer_of_known_length_is_read_however_it_is_cut() {
        let whole: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello";
        for cut in 1..whole.len() {
            let (one, other) = whole.split_at(cut);
            assert_eq!(answer_to(&[one, other]).unwrap(), (200, b"hello".to_vec()));
        }
    }

    #[test]
    fn chunks_are_put_together_however_they_are_cut() {
        let whole: &[u8] =
            b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: t\r\n\r\n";
        for cut in 1..whole.len() {
            let (one, other) = whole.split_at(cut);
            assert_eq!(answer_to(&[one, other]).unwrap(), (404, b"hello".to_vec()));
        }
    }

    #[test]
    fn long_answers_are_read() {
        let body = vec![b'x'; 300_000];
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let (status, read) = answer_to(&[head.as_bytes(), &body]).unwrap();
        assert_eq!((status, read.len()), (200, body.len()));
    }

    #[test]
    fn answers_that_are_not_whole_are_errors() {
        let cases: [(&[u8], &str); 8] = [
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
                "silent",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello",
                "longer",
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", "neither"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no length"),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "status"),
            (b"SSH-2.0\r\n\r\n", "status"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhel\r\n0\r\n\r\n",
                "another length",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
                "begin with its length",
            ),
        ];
        for (bytes, word) in cases {
            let said = answer_to(&[bytes]).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_connection_is_kept_and_made_anew_when_the_server_closes_it() {
        let server = TestServer::new(|request, _| {
            let close = if request == 1 {
                "Connection: close\r\n"
            } else {
                ""
            };
            vec![
                format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 1\r\n\r\n{request}")
                    .into_bytes(),
            ]
        });
        let mut connection = Connection::open(&server.authority, PATIENCE).unwrap();
        for expected in [b"0", b"1", b"2", b"3"] {
            assert_eq!(
                connection.request(b"GET / HTTP/1.1\r\n\r\n").unwrap().body,
                expected
            );
        }
        assert_eq!(server.connections(), 2);
    }
}
