//! Answers as a broken server or network gives them, word by word: what stalls, breaks off, lies about its length, or never comes.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use meridian_remote_files::{Address, Client, ObjectFile, RemoteError, Settings, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is sent for one request, and whether the connection stays open behind it.
type Response = (&'static str, bool);

/// A server that gives these responses, one a connection, the last one ever again; gives its address and the requests that it got.
async fn server(responses: &'static [Response]) -> (Address, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/file.csv?key=sesame",
        listener.local_addr().unwrap()
    );
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = asked.clone();
    tokio::spawn(async move {
        let mut held: Vec<TcpStream> = Vec::new();
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (answer, stays) = responses[number.min(responses.len() - 1)];
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let text = String::from_utf8(request).unwrap();
            requests.lock().unwrap().push(text.to_lowercase());
            stream.write_all(answer.as_bytes()).await.unwrap();
            if stays {
                held.push(stream);
            }
        }
    });
    (Address::parse(&url).unwrap(), asked)
}

/// A client that waits so long for each piece of an answer.
fn client(read: Duration) -> Client {
    let timeouts = Timeouts {
        connect: Duration::from_secs(20),
        read,
        first_pause: Duration::from_millis(1),
    };
    Client::with_timeouts(Settings::of_environment(true).unwrap(), timeouts)
}

/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn download(address: &Address) -> Result<String, RemoteError> {
    download_within(address, LONG).await
}

async fn download_within(address: &Address, read: Duration) -> Result<String, RemoteError> {
    let mut got = Vec::new();
    let mut take = |bytes: &[u8]| {
        got.extend_from_slice(bytes);
        Ok(())
    };
    client(read).download(address, &mut take).await?;
    Ok(String::from_utf8(got).unwrap())
}

const HALF: Response = (
    "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nabc",
    false,
);
const REST: Response = (
    "HTTP/1.1 206 Partial\r\nETag: \"1\"\r\nContent-Range: bytes 3-5/6\r\nContent-Length: 3\r\n\r\ndef",
    false,
);

#[tokio::test]
async fn what_breaks_off_or_stalls_is_read_on() {
    let (address, asked) = server(&[HALF, ("", false), REST]).await;
    assert_eq!(download(&address).await.unwrap(), "abcdef");
    let second = asked.lock().unwrap()[1].clone();
    assert!(second.contains("range: bytes=3-") && second.contains("if-range: \"1\""));
    let stalls: &'static [Response] = &[(HALF.0, true), REST];
    let stalled = download_within(&server(stalls).await.0, Duration::from_secs(3)).await;
    assert_eq!(stalled.unwrap(), "abcdef");
    // One that knows of no ranges.
    let whole: &'static [Response] = &[
        HALF,
        (
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nabcdef",
            false,
        ),
    ];
    assert_eq!(download(&server(whole).await.0).await.unwrap(), "abcdef");
    let pieces: &'static [Response] = &[(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n",
        false,
    )];
    assert_eq!(download(&server(pieces).await.0).await.unwrap(), "abcdef");
}

#[tokio::test]
async fn what_cannot_be_trusted_is_an_error() {
    let cases: [(&'static [Response], &str); 9] = [
        (
            &[
                HALF,
                (
                    "HTTP/1.1 200 OK\r\nETag: \"2\"\r\nContent-Length: 6\r\n\r\nabcdef",
                    false,
                ),
            ],
            "was changed",
        ),
        (
            &[
                HALF,
                (
                    "HTTP/1.1 206 x\r\nETag: \"1\"\r\nContent-Range: bytes 3-6/7\r\nContent-Length: 4\r\n\r\ndefg",
                    false,
                ),
            ],
            "was changed",
        ),
        (
            &[
                HALF,
                (
                    "HTTP/1.1 206 x\r\nETag: \"1\"\r\nContent-Range: bytes 2-5/6\r\nContent-Length: 4\r\n\r\ncdef",
                    false,
                ),
            ],
            "not the range",
        ),
        (
            &[(
                "HTTP/1.1 200 OK\r\nETag: W/\"1\"\r\nContent-Length: 6\r\n\r\nabc",
                false,
            )],
            "same file",
        ),
        // Its end is where the connection ends: nobody knows whether that is the file's.
        (
            &[("HTTP/1.1 200 OK\r\nETag: \"1\"\r\n\r\nabc", false)],
            "where the file ends",
        ),
        (
            &[(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                false,
            )],
            "same file",
        ),
        (
            &[("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false)],
            "check the name",
        ),
        (
            &[(
                "HTTP/1.1 302 x\r\nLocation: ftp://h/x\r\nContent-Length: 0\r\n\r\n",
                false,
            )],
            "s3, http or https",
        ),
        (&[("no HTTP at all\r\n\r\n", true)], "cannot be reached"),
    ];
    for (responses, sentence) in cases {
        let error = download(&server(responses).await.0)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(sentence), "{responses:?}: {error}");
        assert!(!error.contains("sesame"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let short = Duration::from_millis(300);
    let (address, asked) = server(&[("", true)]).await;
    let error = download_within(&address, short).await.unwrap_err();
    assert!(error.to_string().contains("no answer in 300ms"), "{error}");
    assert_eq!(asked.lock().unwrap().len(), 3);
    let trickles: &'static [Response] = &[(HALF.0, true), ("", true)];
    let error = download_within(&server(trickles).await.0, short)
        .await
        .unwrap_err();
    // The second where not even the first half came in time.
    assert!(
        matches!(
            error,
            RemoteError::Interrupted { .. } | RemoteError::Unreachable { .. }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn ranges_are_those_of_the_file_that_was_looked_at() {
    let cases: [(&'static [Response], &str); 5] = [
        (
            &[("HTTP/1.1 412 x\r\nContent-Length: 0\r\n\r\n", false)],
            "was changed",
        ),
        (
            &[("HTTP/1.1 416 x\r\nContent-Length: 0\r\n\r\n", false)],
            "was changed",
        ),
        (
            &[(
                "HTTP/1.1 206 x\r\nETag: \"2\"\r\nContent-Range: bytes 1-3/6\r\nContent-Length: 3\r\n\r\nbcd",
                false,
            )],
            "was changed",
        ),
        (
            &[(
                "HTTP/1.1 200 x\r\nETag: \"1\"\r\nContent-Length: 6\r\n\r\nabcdef",
                false,
            )],
            "not the range",
        ),
        (
            &[(
                "HTTP/1.1 206 x\r\nETag: \"1\"\r\nContent-Range: bytes 1-3/6\r\nContent-Length: 5\r\n\r\nbcdef",
                false,
            )],
            "longer than it says",
        ),
    ];
    for (responses, sentence) in cases {
        let file = ObjectFile {
            address: server(responses).await.0,
            bytes: 6,
            etag: "\"1\"".to_owned(),
        };
        let error = client(LONG)
            .range(&file, 1..4)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(sentence), "{responses:?}: {error}");
    }
    // Less than was asked for is not all of it.
    let short: &'static [Response] = &[
        (
            "HTTP/1.1 206 x\r\nETag: \"1\"\r\nContent-Range: bytes 1-2/6\r\nContent-Length: 2\r\n\r\nbc",
            false,
        ),
        (
            "HTTP/1.1 206 x\r\nETag: \"1\"\r\nContent-Range: bytes 3-3/6\r\nContent-Length: 1\r\n\r\nd",
            false,
        ),
    ];
    let file = ObjectFile {
        address: server(short).await.0,
        bytes: 6,
        etag: "\"1\"".to_owned(),
    };
    assert_eq!(client(LONG).range(&file, 1..4).await.unwrap(), "bcd");
}
