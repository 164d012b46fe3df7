//! A server for tests that answers with whatever bytes a test wants.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Between the pieces of a response: so long that they arrive one by one.
const BETWEEN_PIECES: Duration = Duration::from_millis(2);

/// Listens on a port of its own for as long as the tests' process lives.
pub struct TestServer {
    pub authority: String,
    connections: Arc<AtomicU64>,
}

impl TestServer {
    /// `answer` gets a request's number and its first line, and gives the pieces in which the response is sent.
    pub fn new(answer: impl Fn(u64, &str) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let (connections, requests) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, answer) = (Arc::clone(&connections), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                thread::spawn(move || serve(stream.unwrap(), &*answer, &requests));
            }
        });
        Self {
            authority,
            connections,
        }
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, answer: &impl Fn(u64, &str) -> Vec<Vec<u8>>, requests: &AtomicU64) {
    stream.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let pieces = answer(requests.fetch_add(1, Ordering::SeqCst), &first);
        for (number, piece) in pieces.iter().enumerate() {
            if number > 0 {
                thread::sleep(BETWEEN_PIECES);
            }
            if (&stream).write_all(piece).is_err() {
                return;
            }
        }
        if String::from_utf8_lossy(&pieces.concat()).contains("Connection: close") {
            return;
        }
    }
}

/// A whole response with a status and a body.
pub fn answer(status: u16, body: &str) -> Vec<Vec<u8>> {
    let length = body.len();
    vec![format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()]
}
