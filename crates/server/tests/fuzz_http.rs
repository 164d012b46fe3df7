//! Strange requests at the HTTP endpoint: whatever comes, the server stays, answers others, and keeps nothing of it.
//!
//! Requests are made of real ones: cones with odd numbers, lists, queries, pages that there are and are not, mutated, cut, with lengths that are
//! wrong. Each conversation has a number of its own, from which it is made again.
//!
//! `MERIDIAN_FUZZ_REQUESTS` says how many requests are sent, `MERIDIAN_FUZZ_SEED` which conversation is the first.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

mod chance;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use chance::{Chance, PANICS, count_panics, from_environment, named_files, open_files, resident};
use ingest::{LoadRequest, Progress};
use meridian_server::{Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Requests of an ordinary run.
const USUAL_REQUESTS: usize = 6_000;
/// Conversations at once.
const AT_ONCE: usize = 6;
/// The longest that a conversation may take: a server that answers slowly is not stuck.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest that the server may take to be rid of everybody.
const SOON: Duration = Duration::from_secs(20);
/// Bytes of memory that may come and go besides.
const MEMORY: u64 = 64 << 20;

const PATHS: [&str; 9] = [
    "/scs/sky/Star",
    "/scs/SKY/star",
    "/scs/sky/None",
    "/scs/none/Star",
    "/scs/sky/",
    "/scs/%73ky/Star%00",
    "/",
    "/healthz",
    "/readyz",
];
const NUMBERS: [&str; 16] = [
    "0", "-0", "10.5", "1e-300", "1e300", "nan", "inf", "-inf", "360", "-360", "90", "-90", "180",
    "1e-9", "%2B3", "12:30:00",
];
const FORMATS: [&str; 6] = ["votable", "votable/td", "csv", "tsv", "json", "fits"];
const LISTS: [&str; 5] = [
    "ra,dec\n0,0\n10,20\n",
    "ra,dec\nx,y\n",
    "<?xml version='1.0'?><VOTABLE version='1.4'><RESOURCE><TABLE></TABLE></RESOURCE></VOTABLE>",
    "PAR1xxxxPAR1",
    "",
];
/// Requests about queries; numbers from 1000001 on are those of queries that there are.
const QUERY_TARGETS: [&str; 16] = [
    "GET /meta/version?version=55",
    "GET /queries?state=EXECUTING,FAILED&limit=7",
    "GET /queries?user=%F0%9F%AA%90&before=1000009",
    "GET /queries/1000003",
    "GET /queries/1000004/result?format=parquet&offset=1&limit=18446744073709551615",
    "GET /queries/1000005/result?format=csv&partial=true",
    "HEAD /queries/1000006/result?format=arrow",
    "DELETE /queries/1000007",
    "DELETE /queries/1000008/result?user=http",
    "GET /query-async/status/1000003?version=99999999999999999999",
    "GET /query-async/result/1000004?binary_encoding=array",
    "DELETE /query-async/-1",
    "DELETE /query-async/result/1000009",
    "POST /query",
    "POST /query?version=56",
    "POST /query",
];
/// What runs without a client is sent seldom, so that the server does not run it all day.
const SUBMISSIONS: [&str; 2] = ["POST /query-async", "POST /queries"];
const SUBMISSIONS_ONE_IN: u64 = 20;
const QUERIES: [&str; 9] = [
    r#"{"query": "SELECT id, ra, name, NULL FROM Star", "database": "sky"}"#,
    r#"{"query": "SELECT x'00ff' AS b, 'é\ud83e\ude90' AS t", "binary_encoding": "b64", "version": 55}"#,
    r#"{"statement": "SELECT COUNT(*) FROM Star", "database": "sky", "time_limit": 1e-3}"#,
    r#"{"statement": "SELECT \"id\" FROM Star", "database": "sky", "dialect": "adql", "row_limit": 3}"#,
    r#"{"query": "SELECT * FROM qserv_result(1000002)"}"#,
    r#"{"query": "SELECT 1/0; -- \u0000", "database": "none"}"#,
    r#"{"query": 1, "query": null, "database": ["#,
    "[[[[[[[[[[",
    "",
];

/// A request about queries.
fn query_request(chance: &mut Chance) -> Vec<u8> {
    let target = match chance.one_in(SUBMISSIONS_ONE_IN) {
        true => chance.of(&SUBMISSIONS),
        false => chance.of(&QUERY_TARGETS),
    };
    let mut head = String::new();
    if chance.one_in(6) {
        let user = chance.of(&["Basic YW5uOg==", "Basic", "Basic !", "Bearer x"]);
        let _ = write!(head, "Authorization: {user}\r\n");
    }
    if chance.one_in(4) {
        let coding = chance.of(&["gzip", "zstd", "gzip;q=0, *"]);
        let _ = write!(head, "Accept-Encoding: {coding}\r\n");
    }
    let mut body = "";
    if target.starts_with("POST") {
        body = chance.of(&QUERIES);
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    format!("{target} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{body}").into_bytes()
}

/// A list costs the server most: sent seldom, so that many requests are.
const LISTS_ONE_IN: u64 = 400;

/// A request as a client would write it, more or less.
fn request(chance: &mut Chance) -> Vec<u8> {
    let mut target = chance.of(&PATHS).to_owned();
    for (at, name) in ["RA", "DEC", "SR"].into_iter().enumerate() {
        if !chance.one_in(12) {
            let mark = if at == 0 { '?' } else { '&' };
            let value = match chance.one_in(3) {
                true => chance.of(&NUMBERS).to_owned(),
                false => format!("{}", chance.below(1000) as f64 / 1000.0),
            };
            let _ = write!(target, "{mark}{name}={value}");
        }
    }
    if chance.one_in(2) {
        let _ = write!(target, "&RESPONSEFORMAT={}", chance.of(&FORMATS));
    }
    if chance.one_in(6) {
        let _ = write!(
            target,
            "&MAXREC={}&VERB={}",
            chance.below(5),
            chance.below(5)
        );
    }
    let mut head = String::new();
    let mut body = "";
    if chance.one_in(LISTS_ONE_IN) {
        body = chance.of(&LISTS);
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    if chance.one_in(4) {
        let coding = chance.of(&["gzip", "zstd", "br, *;q=0.1", ";;;"]);
        let _ = write!(
            head,
            "Accept-Encoding: {coding}\r\nIf-None-Match: W/\"0\", *\r\n"
        );
    }
    let method = match (body.is_empty(), chance.below(20)) {
        (false, _) => "POST",
        (_, 0) => "HEAD",
        (_, 1) => "OPTIONS",
        (_, 2) => "DELETE",
        _ => "GET",
    };
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{body}").into_bytes()
}

/// Some requests one behind the other; the last may be none.
fn requests(chance: &mut Chance) -> (Vec<u8>, usize, bool) {
    let mut bytes = Vec::new();
    let wanted = 1 + chance.below(40) as usize;
    for sent in 1..=wanted {
        let usual = match chance.one_in(3) {
            true => query_request(chance),
            false => request(chance),
        };
        match chance.below(120) {
            0 => bytes.extend(chance.bytes(300)),
            1 => bytes.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0"),
            2 => bytes.extend_from_slice(b"POST /scs/sky/Star?SR=1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"),
            3..20 => bytes.extend(chance.mutated(&usual)),
            _ => {
                bytes.extend(usual);
                continue;
            }
        }
        return (bytes, sent, true);
    }
    (bytes, wanted, false)
}

/// A conversation of its number's; gives how many requests were sent.
async fn converse(address: SocketAddr, seed: u64) -> usize {
    let mut chance = Chance::of_number(seed);
    let stream = TcpStream::connect(address)
        .await
        .expect("the server accepts nobody any more");
    let (mut read, mut write) = stream.into_split();
    let heard = tokio::spawn(async move {
        let mut answer = vec![0; 64 << 10];
        while read.read(&mut answer).await.is_ok_and(|length| length > 0) {}
    });
    let mut sent = 0;
    for _ in 0..=chance.below(10) {
        let (bytes, requests, last) = requests(&mut chance);
        if heard.is_finished() || write.write_all(&bytes).await.is_err() {
            break;
        }
        sent += requests;
        if last {
            break;
        }
    }
    if chance.one_in(3) {
        // Some hang up without a word while they are answered.
        heard.abort();
        return sent;
    }
    drop(write);
    let _ = heard.await;
    sent
}

/// What a client whose every word is right hears.
async fn execute(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Some stars near each other.
async fn load(directory: &Path) -> std::path::PathBuf {
    let mut text = String::from("id,ra,dec,name\n");
    for star in 0..200 {
        let _ = writeln!(
            text,
            "{star},{},{},s{star}",
            f64::from(star) / 200.0,
            f64::from(star % 20) / 20.0
        );
    }
    let file = directory.join("stars.csv");
    std::fs::write(&file, text).unwrap();
    let data = directory.join("data");
    let request = LoadRequest {
        files: vec![file],
        key: vec!["id".into()],
        ra: Some("ra".into()),
        dec: Some("dec".into()),
        stripes: Some(20),
        sub_stripes: Some(5),
        overlap_deg: Some(0.0),
        ..LoadRequest::new(&data, "sky", "Star")
    };
    ingest::load(request, Arc::new(Progress::default()))
        .await
        .unwrap();
    data
}

async fn serve(directory: &Path) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
    let server = Server::bind(Config {
        mysql: None,
        http: Some("127.0.0.1:0".to_owned()),
        ..Config::new(load(directory).await, NonZeroUsize::new(2).unwrap())
    });
    let server = server.await.unwrap();
    let (address, stop) = (server.http_address().unwrap(), CancellationToken::new());
    (address, stop.clone(), tokio::spawn(server.serve(stop)))
}

/// Sends so many requests, in conversations from a number on; gives the number of the next.
async fn send(address: SocketAddr, requests: usize, first: u64) -> u64 {
    let (mut seed, mut sent, mut running) = (first, 0, JoinSet::new());
    while sent < requests {
        while running.len() < AT_ONCE {
            let own = seed;
            running.spawn(async move {
                match timeout(LONGEST, converse(address, own)).await {
                    Ok(sent) => sent,
                    Err(_) => panic!("stuck: MERIDIAN_FUZZ_SEED={own}"),
                }
            });
            seed += 1;
        }
        sent += running.join_next().await.unwrap().unwrap();
        assert_eq!(
            PANICS.load(Relaxed),
            0,
            "the server panicked during one of the last conversations up to {seed}"
        );
        if seed.is_multiple_of(50) {
            let answer = execute(
                address,
                "/scs/sky/Star?RA=0.5&DEC=0.5&SR=2&RESPONSEFORMAT=csv",
            )
            .await;
            assert_eq!(
                answer.matches(",s").count(),
                200,
                "after conversation {seed}"
            );
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    seed
}

#[test]
fn strange_requests_do_no_harm() {
    count_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let requests = from_environment("MERIDIAN_FUZZ_REQUESTS", USUAL_REQUESTS);
        let first = from_environment("MERIDIAN_FUZZ_SEED", 0) as u64;
        let directory = tempfile::tempdir().unwrap();
        let (address, stop, served) = serve(directory.path()).await;
        let begun = Instant::now();
        // What the server makes once and keeps is made by the first of them.
        let next = send(address, requests / 5, first).await;
        sleep(Duration::from_millis(500)).await;
        let (files, memory) = (open_files(), resident());
        let end = send(address, requests - requests / 5, next).await;
        println!(
            "{requests} requests in {} conversations, {:.1} s; memory {} MiB before and {} MiB after the last four fifths",
            end - first,
            begun.elapsed().as_secs_f64(),
            memory >> 20,
            resident() >> 20
        );
        let begun = Instant::now();
        while open_files() > files {
            assert!(
                begun.elapsed() < SOON,
                "there were {files} files open, and now there are {:#?}",
                named_files()
            );
            sleep(Duration::from_millis(20)).await;
        }
        assert!(
            resident() < memory + MEMORY,
            "{} MiB became {} MiB",
            memory >> 20,
            resident() >> 20
        );
        stop.cancel();
        timeout(SOON, served)
            .await
            .expect("it does not end")
            .unwrap();
    });
}
