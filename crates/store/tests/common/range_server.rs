//! A server of the files of a directory by HTTP ranges, which can be told to do it wrong.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Right,
    /// Right, and the connection ends after each answer without a word.
    Closes,
    WholeFile,
    Redirects,
    Unavailable,
    OtherRange,
    OtherTotal,
    NoContentRange,
    Compressed,
    FewerBytes,
    MoreBytes,
    /// No answer, but the end of the connection.
    HangsUp,
    /// The end of the connection in the middle of the bytes.
    HangsUpWithin,
    Garbage,
    /// No answer for a while.
    Silent,
}

pub struct RangeServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl RangeServer {
    pub fn start(dir: &Path, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            stopped: Arc::default(),
        };
        let (connections, stopped) = (server.connections.clone(), server.stopped.clone());
        let dir = dir.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let dir = dir.clone();
                std::thread::spawn(move || serve(&dir, manner, &stream));
            }
        });
        server
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for RangeServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(dir: &Path, manner: Manner, stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let Some(answer) = answer(dir, manner, &head) else {
            return;
        };
        let mut stream = stream;
        let written = stream.write_all(&answer);
        let ends = [Manner::Closes, Manner::HangsUpWithin, Manner::Garbage].contains(&manner);
        if written.is_err() || ends {
            return;
        }
    }
}

/// The bytes of an answer; `None` for the end of the connection.
fn answer(dir: &Path, manner: Manner, head: &[String]) -> Option<Vec<u8>> {
    let path = head.first()?.split(' ').nth(1)?.trim_start_matches('/');
    let range = head.iter().find_map(|line| {
        let line = line.to_ascii_lowercase();
        let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    let (first, last) = range?;
    let file: PathBuf = dir.join(path);
    let Ok(bytes) = fs::read(file) else {
        return Some(plain("404 Not Found", ""));
    };
    let total = bytes.len();
    match manner {
        Manner::HangsUp => return None,
        Manner::Garbage => return Some(b"I am no HTTP server\r\n\r\n".to_vec()),
        Manner::WholeFile => return Some(with_body("200 OK", "", &bytes)),
        Manner::Redirects => return Some(plain("302 Found", "Location: /other\r\n")),
        Manner::Unavailable => return Some(plain("503 Service Unavailable", "")),
        Manner::Silent => std::thread::sleep(Duration::from_secs(1)),
        _ => {}
    }
    if first >= total {
        let range = format!("Content-Range: bytes */{total}\r\n");
        return Some(plain("416 Range Not Satisfiable", &range));
    }
    let last = last.min(total - 1);
    let mut body = bytes[first..=last].to_vec();
    let mut range = format!("Content-Range: bytes {first}-{last}/{total}\r\n");
    match manner {
        Manner::OtherRange => {
            range = format!("Content-Range: bytes 0-{}/{total}\r\n", last - first)
        }
        Manner::OtherTotal => {
            range = format!("Content-Range: bytes {first}-{last}/{}\r\n", total + 1)
        }
        Manner::NoContentRange => range.clear(),
        Manner::Compressed => range.push_str("Content-Encoding: gzip\r\n"),
        Manner::FewerBytes => body.truncate(body.len() / 2),
        Manner::MoreBytes => body.push(0),
        _ => {}
    }
    let mut answer = with_body("206 Partial Content", &range, &body);
    if manner == Manner::HangsUpWithin {
        answer.truncate(answer.len() - body.len() / 2);
    }
    Some(answer)
}

fn plain(status: &str, headers: &str) -> Vec<u8> {
    with_body(status, headers, b"what a server says")
}

fn with_body(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}
