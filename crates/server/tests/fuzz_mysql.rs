//! Strange packets at the MySQL endpoint: whatever comes, the server stays, answers others, and keeps nothing of it.
//!
//! Conversations are made of real ones: commands are mutated, cut, given other bodies, wrong lengths and wrong numbers, before and
//! after the client is let in, in clear text and behind a wish for TLS. Each has a number of its own, from which it is made again.
//!
//! `MERIDIAN_FUZZ_PACKETS` says how many packets are sent, `MERIDIAN_FUZZ_SEED` which conversation is the first.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what fails here is the test, and how long it took is for whoever runs it"
)]

mod chance;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use chance::{Chance, PANICS, count_panics, from_environment, open_files, resident};
use meridian_server::{Config, Server, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Packets of an ordinary run.
const USUAL_PACKETS: usize = 20_000;
/// Conversations at once.
const AT_ONCE: usize = 6;
/// The longest that a conversation may take: a server that answers slowly is not stuck.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest that the server may take to be rid of everybody.
const SOON: Duration = Duration::from_secs(20);
/// Bytes of memory that may come and go besides.
const MEMORY: u64 = 64 << 20;

const QUIT: u8 = 0x01;
const PING: u8 = 0x0e;
const CHANGE_USER: u8 = 0x11;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const SEND_LONG_DATA: u8 = 0x18;
const RESET_CONNECTION: u8 = 0x1f;

/// What clients say, and what the server takes a while for.
const STATEMENTS: [&str; 10] = [
    "SELECT 1",
    "SELECT 'a', NULL, 1.5, x'00ff', REPEAT('z', 100)",
    "SHOW VARIABLES LIKE 'v%'",
    "SHOW PROCESSLIST",
    "SET NAMES utf8mb4",
    "SET autocommit = 0, @@sql_mode = 'STRICT_TRANS_TABLES'",
    "USE information_schema",
    "SELECT * FROM information_schema.schemata",
    "SELECT _binary'\\'\\\\', /*!80000 2, */ 'open",
    "BEGIN; SELECT 2; COMMIT",
];

/// What a statement costs the server most: asked seldom, so that many packets are sent.
const ASKED_ONE_IN: u64 = 300;

const SOMEBODY_ELSE: &[u8] =
    b"\x11bob\0\x14aaaaaaaaaaaaaaaaaaaa\0\x2d\0caching_sha2_password\0\x05\x01a\x02bc";

/// Commands after the first byte of which anything may stand.
const CHEAP: [&[u8]; 13] = [
    b"\x02information_schema",
    b"\x04tables\0%",
    b"\x09",
    b"\x0c\xff\xff\xff\x7f",
    b"\x0e",
    b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\xfd\0\x05\0\0\0\0\0\0\0\x03abc",
    b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x0c\0\x0b\0\x0b\xda\x07\x06\x0f\x01\x02\x03\xfa\0\0\0\x08\0\x01\0\0\0\x02\x03\x04",
    b"\x18\x01\0\0\0\0\0piece",
    b"\x19\x01\0\0\0",
    b"\x1a\x01\0\0\0",
    b"\x1b\0\0",
    b"\x1c\x01\0\0\0\x01\0\0\0",
    b"\x1f",
];

/// What a client says in a conversation: packets that go together, and whether they are the last.
struct ClientPackets {
    bytes: Vec<u8>,
    packets: usize,
    last: bool,
}

impl ClientPackets {
    fn nothing() -> Self {
        Self {
            bytes: vec![],
            packets: 0,
            last: false,
        }
    }

    fn packet(&mut self, payload: &[u8], number: u8) {
        self.bytes
            .extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        self.bytes.push(number);
        self.bytes.extend_from_slice(payload);
        self.packets += 1;
    }
}

/// A client's answer to the greeting.
fn introduction(chance: &mut Chance) -> Vec<u8> {
    // Protocol 4.1, its way to prove itself by name, and with or without: old ends of rows, several statements, a database, TLS.
    let mut abilities = 0x0008_8200_u32;
    for bit in [3, 16, 17, 20, 21, 24] {
        abilities |= (chance.below(2) as u32) << bit;
    }
    let mut bytes = abilities.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 1, 45]);
    bytes.extend_from_slice(&[0; 23]);
    bytes.extend_from_slice(b"fuzz\0\0");
    if abilities & 1 << 3 != 0 {
        bytes.extend_from_slice(b"information_schema\0");
    }
    bytes.extend_from_slice(b"mysql_native_password\0\x0a\x04name\x04fuzz");
    bytes
}

/// The first words of a client that is not let in, as far as they go.
fn strange_beginning(chance: &mut Chance) -> ClientPackets {
    let mut said = ClientPackets::nothing();
    let usual = introduction(chance);
    match chance.below(6) {
        0 => said.packet(&chance.bytes(200), 1),
        1 => {
            // A wish for TLS, and then something else.
            let mut wish = usual[..32].to_vec();
            wish[1] |= 0x08;
            said.packet(&wish, 1);
            said.bytes.extend_from_slice(b"\x16\x03\x01\x02\0\x01");
            said.bytes.extend(chance.bytes(600));
        }
        2 => said.packet(&usual, chance.byte()),
        3 => said.bytes.extend(chance.bytes(50)),
        4 => said
            .bytes
            .extend_from_slice(&[0xff, 0xff, chance.byte(), 1]),
        _ => said.packet(&chance.mutated(&usual), 1),
    }
    for _ in 0..chance.below(4) {
        said.packet(&command(chance), chance.below(4) as u8);
    }
    said.packets = said.packets.max(1);
    said.last = true;
    said
}

/// A command, or something like it.
fn command(chance: &mut Chance) -> Vec<u8> {
    if chance.one_in(ASKED_ONE_IN) {
        let mut statement = vec![if chance.one_in(3) { PREPARE } else { 3 }];
        statement.extend_from_slice(chance.of(&STATEMENTS).as_bytes());
        return if chance.one_in(2) {
            chance.mutated(&statement)
        } else {
            statement
        };
    }
    match chance.below(8) {
        0 => chance.bytes(40),
        // A body of anything.
        1 => {
            let mut bytes =
                vec![[EXECUTE, SEND_LONG_DATA, RESET_CONNECTION][chance.below(3) as usize]];
            bytes.extend(chance.bytes(60));
            bytes
        }
        // The same of a statement that there is.
        2 | 3 => {
            let mut bytes = vec![EXECUTE, 1, 0, 0, 0, 0, 1, 0, 0, 0];
            bytes.extend(chance.bytes(30));
            bytes
        }
        4 => {
            let mut bytes = vec![SEND_LONG_DATA, 1, 0, 0, 0, chance.below(3) as u8, 0];
            bytes.extend(chance.bytes(300));
            bytes
        }
        _ => {
            let usual = chance.of(&CHEAP);
            chance.mutated(usual)
        }
    }
}

/// The first words of a client, which mostly is let in.
fn beginning(chance: &mut Chance) -> ClientPackets {
    if chance.one_in(10) {
        return strange_beginning(chance);
    }
    let mut said = ClientPackets::nothing();
    said.packet(&introduction(chance), 1);
    said.packet(b"\x16SELECT ?, ?", 0);
    said
}

/// Some commands; among them there may be one that ends the conversation.
fn commands(chance: &mut Chance) -> ClientPackets {
    let mut said = ClientPackets::nothing();
    for _ in 0..=chance.below(40) {
        match chance.below(4000) {
            0 => said.packet(&command(chance), chance.byte()),
            1 => said.bytes.extend(chance.bytes(20)),
            // More than may be, of which little comes.
            2 => {
                said.bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0]);
                said.bytes.extend(chance.bytes(3000));
            }
            3 => said.packet(&[QUIT], 0),
            4..8 => {
                // Somebody else, who may have to say more, and whom the server may not know.
                let mut bytes = vec![CHANGE_USER];
                bytes.extend(chance.bytes(60));
                said.packet(&bytes, 0);
                said.packet(&chance.bytes(30), 2);
            }
            8..12 => {
                let bytes = chance.mutated(SOMEBODY_ELSE);
                said.packet(&bytes, 0);
                said.packet(&chance.bytes(30), 2);
            }
            _ => {
                said.packet(&command(chance), 0);
                continue;
            }
        }
        said.packets = said.packets.max(1);
        said.last = true;
        break;
    }
    said
}

/// A conversation of its number's. Gives how many of its packets the server has heard for certain: all, where it answers the last.
async fn converse(address: SocketAddr, seed: u64) -> usize {
    let mut chance = Chance::of_number(seed);
    let stream = TcpStream::connect(address)
        .await
        .expect("the server accepts nobody any more");
    let (mut read, mut write) = stream.into_split();
    let mut greeting = [0; 5];
    read.read_exact(&mut greeting)
        .await
        .expect("the server greets nobody any more");
    assert_eq!(greeting[4], 10);
    let heard = tokio::spawn(last_words(read));
    let mut sent = 0;
    let mut next = beginning(&mut chance);
    for _ in 0..=chance.below(10) {
        // Who is not listened to any more says no more.
        if write.write_all(&next.bytes).await.is_err() {
            break;
        }
        sent += next.packets;
        if next.last {
            break;
        }
        next = commands(&mut chance);
    }
    if chance.one_in(10) {
        // Some hang up without a word while they are answered.
        heard.abort();
        return 0;
    }
    if next.last {
        // Else the server would wait for the rest of it.
        drop(write);
        let _ = heard.await;
        return 0;
    }
    let mut farewell = ClientPackets::nothing();
    farewell.packet(&[PING], 0);
    farewell.packet(&[QUIT], 0);
    // There may be nobody there any more.
    let _ = write.write_all(&farewell.bytes).await;
    let is_pong = |words: &[u8]| {
        // Done, with either state of autocommit.
        matches!(words, [7, 0, 0, 1, 0, 0, 0, 0 | 2, 0, 0, 0])
    };
    match heard.await {
        Ok(words) if is_pong(&words) => sent + farewell.packets,
        _ => 0,
    }
}

/// Takes what is answered, to its end; gives the last bytes of it.
async fn last_words(mut read: OwnedReadHalf) -> Vec<u8> {
    /// As many as there are in a packet that says that something is done.
    const DONE: usize = 11;
    let (mut answer, mut last) = (vec![0; 64 << 10], vec![]);
    while let Ok(length @ 1..) = read.read(&mut answer).await {
        last.extend_from_slice(&answer[..length]);
        last.drain(..last.len().saturating_sub(DONE));
    }
    last
}

/// A client whose every word is right.
struct Witness(TcpStream);

impl Witness {
    async fn connect(address: SocketAddr) -> Self {
        let mut witness = Self(TcpStream::connect(address).await.unwrap());
        assert_eq!(witness.packet().await[0], 10);
        let mut said = ClientPackets::nothing();
        // Protocol 4.1 and nothing else.
        let mut introduction = 0x8200_u32.to_le_bytes().to_vec();
        introduction.extend_from_slice(&[0; 28]);
        introduction.extend_from_slice(b"witness\0\0");
        said.packet(&introduction, 1);
        witness.0.write_all(&said.bytes).await.unwrap();
        assert_eq!(witness.packet().await[0], 0);
        witness
    }

    async fn packet(&mut self) -> Vec<u8> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header).await.unwrap();
        let [a, b, c, _] = header;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.0.read_exact(&mut payload).await.unwrap();
        payload
    }

    /// The last column of the only row.
    async fn execute(&mut self, statement: &str) -> String {
        let mut said = ClientPackets::nothing();
        said.packet(format!("\x03{statement}").as_bytes(), 0);
        self.0.write_all(&said.bytes).await.unwrap();
        let columns = self.packet().await[0];
        for _ in 0..=columns {
            self.packet().await;
        }
        let row = self.packet().await;
        assert_eq!(self.packet().await[0], 0xfe);
        // Short texts, each with its length before it.
        let mut rest = &row[..];
        let mut last = &rest[..0];
        while let Some((length, more)) = rest.split_first() {
            (last, rest) = more.split_at(usize::from(*length));
        }
        String::from_utf8_lossy(last).into_owned()
    }
}

async fn serve(directory: &Path) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
    drop(catalog::Catalog::open_or_create(directory).await.unwrap());
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates");
    let server = Server::bind(Config {
        mysql: Some("127.0.0.1:0".to_owned()),
        http: None,
        cache: 0,
        max_connections: 100,
        grace: Duration::from_secs(5),
        tls: Some(TlsFiles {
            certificate: certificates.join("server.pem"),
            key: certificates.join("server.key"),
        }),
        ..Config::new(directory, NonZeroUsize::new(2).unwrap())
    });
    let server = server.await.unwrap();
    let (address, stop) = (server.mysql_address().unwrap(), CancellationToken::new());
    (address, stop.clone(), tokio::spawn(server.serve(stop)))
}

/// What somebody gets who connects anew: among what is said there are words that end others' connections.
async fn execute(address: SocketAddr, statement: &str) -> String {
    Witness::connect(address).await.execute(statement).await
}

/// Sends so many packets that are heard, in conversations from a number on; gives the number of the next.
async fn send(address: SocketAddr, packets: usize, first: u64) -> u64 {
    let (mut seed, mut heard, mut running) = (first, 0, JoinSet::new());
    while heard < packets {
        while running.len() < AT_ONCE {
            let own = seed;
            running.spawn(async move {
                let conversation = tokio::spawn(timeout(LONGEST, converse(address, own)));
                match conversation.await {
                    Ok(Ok(heard)) => heard,
                    Ok(Err(_)) => panic!("stuck: MERIDIAN_FUZZ_SEED={own}"),
                    Err(error) => panic!("MERIDIAN_FUZZ_SEED={own}: {error}"),
                }
            });
            seed += 1;
        }
        heard += running.join_next().await.unwrap().unwrap();
        let panics = PANICS.load(Relaxed);
        assert_eq!(
            panics, 0,
            "the server panicked during one of the last conversations up to {seed}"
        );
        if seed.is_multiple_of(50) {
            assert_eq!(
                execute(address, "SELECT 1, 41 + 1").await,
                "42",
                "after conversation {seed}"
            );
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    let begun = Instant::now();
    while execute(address, "SHOW STATUS LIKE 'Threads_connected'").await != "1" {
        assert!(
            begun.elapsed() < SOON,
            "somebody is still connected after conversation {seed}"
        );
        sleep(Duration::from_millis(20)).await;
    }
    seed
}

#[test]
fn strange_packets_do_no_harm() {
    count_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let packets = from_environment("MERIDIAN_FUZZ_PACKETS", USUAL_PACKETS);
        let first = from_environment("MERIDIAN_FUZZ_SEED", 0) as u64;
        let directory = tempfile::tempdir().unwrap();
        let (address, stop, served) = serve(directory.path()).await;
        let begun = Instant::now();
        // What the server makes once and keeps is made by the first of them.
        let next = send(address, packets / 5, first).await;
        sleep(Duration::from_millis(500)).await;
        let (tasks, files, memory) = (Handle::current().metrics().num_alive_tasks(), open_files(), resident());
        let end = send(address, packets - packets / 5, next).await;
        println!(
            "{packets} packets in {} conversations, {:.1} s; memory {} MiB before and {} MiB after the last four fifths",
            end - first,
            begun.elapsed().as_secs_f64(),
            memory >> 20,
            resident() >> 20
        );
        // The witness has just left.
        let begun = Instant::now();
        while Handle::current().metrics().num_alive_tasks() > tasks || open_files() > files {
            assert!(begun.elapsed() < SOON, "tasks or files are left over");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(resident() < memory + MEMORY, "{} MiB became {} MiB", memory >> 20, resident() >> 20);
        stop.cancel();
        timeout(SOON, served).await.expect("it does not end").unwrap();
    });
}
