//! Byte sources: one suite for all of them, and what a chunk file makes of their faults.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use common::range_server::{Manner, RangeServer};
use common::{all_types, hash, request, sample, scan};
use futures::future::{join_all, try_join_all};
use meridian_store::{
    ByteSource, ChunkFile, Fault, FaultySource, HttpFile, HttpPeer, HttpTimeouts, LocalFile,
    OpenFiles, ReadPlace, StoreError,
};
use sky::ChunkId;

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(5),
    read: Duration::from_secs(20),
};

/// Something that gives bytes of the files of a directory.
struct Kind {
    name: &'static str,
    server: Option<RangeServer>,
    fault: Option<Fault>,
}

impl Kind {
    /// Every source and every wrapper that does no harm.
    fn all(dir: &Path) -> Vec<Self> {
        let kind = |name, server, fault| Self {
            name,
            server,
            fault,
        };
        let server = || Some(RangeServer::start(dir, Manner::Right));
        let closing = Some(RangeServer::start(dir, Manner::Closes));
        let slow = Some(Fault::Slow(Duration::from_millis(3)));
        let never = Some(Fault::CutShort);
        vec![
            kind("local", None, None),
            kind("local, wrapped", None, never),
            kind("local, slow", None, slow),
            kind("http", server(), None),
            kind("http, each read another connection", closing, None),
            kind("http, slow", server(), slow),
        ]
    }

    async fn open(&self, path: &Path) -> Result<Arc<dyn ByteSource>, StoreError> {
        let inner: Arc<dyn ByteSource> = match &self.server {
            None => Arc::new(LocalFile::open(path)?),
            Some(server) => {
                let peer = HttpPeer::new(&server.address(), TIMEOUTS)?;
                let name = path.file_name().unwrap().to_str().unwrap();
                Arc::new(HttpFile::open(peer, &format!("/{name}")).await?)
            }
        };
        Ok(match self.fault {
            None => inner,
            Some(fault @ Fault::Slow(_)) => Arc::new(FaultySource::new(inner, fault, 0..u64::MAX)),
            Some(fault) => Arc::new(FaultySource::new(inner, fault, 0..0)),
        })
    }
}

async fn read(source: &dyn ByteSource, offset: usize, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0xa5; len];
    source.read_at(offset as u64, &mut buffer).await?;
    Ok(buffer)
}

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|at| hash(at) as u8).collect()
}

#[tokio::test]
async fn every_source_gives_the_bytes_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let good = bytes(100_000);
    fs::write(&path, &good).unwrap();
    for kind in Kind::all(dir.path()) {
        let name = kind.name;
        let source = kind.open(&path).await.unwrap();
        assert_eq!(source.num_bytes(), 100_000, "{name}");
        assert!(source.name().ends_with("file"), "{name}");
        for (offset, len) in [
            (0, 100_000),
            (0, 1),
            (99_999, 1),
            (12_345, 4_096),
            (50_000, 50_000),
            (0, 0),
            (70_000, 0),
            (100_000, 0),
        ] {
            source.read_ahead(&(offset as u64..(offset + len) as u64));
            let read = read(source.as_ref(), offset, len).await.unwrap();
            assert_eq!(read, good[offset..offset + len], "{name} {offset} {len}");
        }
        for (offset, len) in [
            (0, 100_001),
            (99_999, 2),
            (100_000, 1),
            (1 << 40, 10),
            (usize::MAX / 2 - 5, 5),
        ] {
            let error = read(source.as_ref(), offset, len).await.unwrap_err();
            let kind = error.kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof, "{name} {offset} {len}");
        }
        let missing = kind.open(&path.with_file_name("none")).await.unwrap_err();
        assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_source_is_read_by_many_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let good = bytes(60_000);
    fs::write(&path, &good).unwrap();
    for kind in Kind::all(dir.path()) {
        let source = kind.open(&path).await.unwrap();
        let reads = (0..40_usize).map(|n| {
            let source = Arc::clone(&source);
            tokio::spawn(async move { read(source.as_ref(), n * 1000, 17_000).await })
        });
        for (n, read) in join_all(reads).await.into_iter().enumerate() {
            let read = read.unwrap().unwrap();
            assert_eq!(read, good[n * 1000..n * 1000 + 17_000], "{}", kind.name);
        }
    }
}

/// What is read of a file that was cut short or removed is what was there, or an error.
#[tokio::test]
async fn a_file_that_shrinks_or_vanishes_gives_no_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let good = bytes(50_000);
    for kind in Kind::all(dir.path()) {
        fs::write(&path, &good).unwrap();
        let source = kind.open(&path).await.unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(30_000).unwrap();
        for (offset, len) in [(29_999, 2), (40_000, 10), (0, 50_000)] {
            let outcome = read(source.as_ref(), offset, len).await;
            assert!(outcome.is_err(), "{} {offset}", kind.name);
        }
        fs::remove_file(&path).unwrap();
        if let Ok(read) = read(source.as_ref(), 100, 5_000).await {
            assert_eq!(read, good[100..5_100], "{}", kind.name);
        }
    }
}

#[tokio::test]
async fn one_connection_serves_reads_that_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("one"), bytes(10_000)).unwrap();
    fs::write(dir.path().join("other"), bytes(10_000)).unwrap();
    let server = RangeServer::start(dir.path(), Manner::Right);
    let peer = HttpPeer::new(&server.address(), TIMEOUTS).unwrap();
    for path in ["/one", "/other"] {
        let source = HttpFile::open(Arc::clone(&peer), path).await.unwrap();
        for start in 0..20 {
            let read = read(&source, start * 100, 1000).await.unwrap();
            assert_eq!(read, bytes(10_000)[start * 100..start * 100 + 1000]);
        }
    }
    assert_eq!(server.connections(), 1);
}

/// A kept connection is of no use to a runtime other than its own.
#[test]
fn a_file_outlives_the_runtime_that_opened_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), bytes(10_000)).unwrap();
    let server = RangeServer::start(dir.path(), Manner::Right);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let peer = HttpPeer::new(&server.address(), TIMEOUTS).unwrap();
    let source = first.block_on(HttpFile::open(peer, "/file")).unwrap();
    let expected = &bytes(10_000)[5..500];
    let read = |runtime: &tokio::runtime::Runtime| runtime.block_on(read(&source, 5, 495)).unwrap();
    assert_eq!(read(&second), expected);
    assert_eq!(read(&first), expected);
    drop(first);
    assert_eq!(read(&second), expected);
    assert_eq!(server.connections(), 2);
}

/// Whatever a peer answers that is not the range of the file is an error that says so.
#[tokio::test]
async fn a_peer_that_answers_something_else_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let good = bytes(9_000);
    fs::write(dir.path().join("file"), &good).unwrap();
    for (manner, sentence) in [
        (Manner::WholeFile, "200 OK"),
        (Manner::Redirects, "302 Found"),
        // Whoever cannot give a file now says why.
        (Manner::Unavailable, "what a server says"),
        (Manner::OtherRange, "where bytes 1000-1999 were wanted"),
        (Manner::OtherTotal, "not the one that was opened"),
        (Manner::NoContentRange, "as Content-Range"),
        (Manner::Compressed, "gzip"),
        (Manner::FewerBytes, "fewer bytes"),
        (Manner::MoreBytes, "more bytes"),
        (Manner::HangsUp, "cannot read"),
        (Manner::HangsUpWithin, "cannot read"),
        (Manner::Garbage, "cannot read"),
        (Manner::Silent, "no answer after 300ms"),
    ] {
        let server = RangeServer::start(dir.path(), manner);
        let timeouts = HttpTimeouts {
            read: Duration::from_millis(300),
            ..TIMEOUTS
        };
        let peer = HttpPeer::new(&server.address(), timeouts).unwrap();
        let source = HttpFile::new(peer, "/file", 9_000).unwrap();
        let started = Instant::now();
        let error = read(&source, 1000, 1000).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(10));
        let opened = ChunkFile::open_source(Arc::new(source), None).await;
        let told = opened.unwrap_err().to_string();
        let address = format!("http://{}/file", server.address());
        assert!(told.contains(&address), "{manner:?}: {told}");
        let said = format!("{error} {told}");
        assert!(said.contains(sentence), "{manner:?}: {said}");
    }
}

#[tokio::test]
async fn what_is_no_address_is_rejected() {
    for wrong in ["", "a b", "host:port:1", "/"] {
        assert!(HttpPeer::new(wrong, TIMEOUTS).is_err(), "{wrong}");
    }
    let peer = HttpPeer::new("localhost:1", TIMEOUTS).unwrap();
    assert!(HttpFile::new(Arc::clone(&peer), "/a b", 1).is_err());
    let error = HttpFile::open(peer, "/file").await.unwrap_err();
    assert!(
        error.to_string().contains("http://localhost:1/file"),
        "{error}"
    );
}

/// Every row of a file.
async fn read_rows(file: &ChunkFile) -> Result<RecordBatch, StoreError> {
    let every: Vec<usize> = (0..all_types().fields().len()).collect();
    scan(file, request(&all_types(), &every)).await
}

#[tokio::test]
async fn a_chunk_file_is_read_from_every_source() {
    let sample = sample(40_000).await;
    for kind in Kind::all(sample.path.parent().unwrap()) {
        let source = kind.open(&sample.path).await.unwrap();
        let file = ChunkFile::open_source(source, None).await.unwrap();
        file.verify().await.unwrap();
        assert_eq!(read_rows(&file).await.unwrap(), sample.all, "{}", kind.name);
        let several = try_join_all([read_rows(&file), read_rows(&file)]).await;
        assert!(several.unwrap().iter().all(|rows| *rows == sample.all));
    }
}

const FAULTS: [Fault; 6] = [
    Fault::Fails(io::ErrorKind::ConnectionReset),
    Fault::Fails(io::ErrorKind::TimedOut),
    Fault::CutShort,
    Fault::HalfRead,
    Fault::FlippedByte(77_777),
    Fault::Slow(Duration::from_millis(1)),
];

fn faulty(path: &Path, fault: Fault, wrong: std::ops::Range<u64>) -> Arc<FaultySource> {
    let inner = Arc::new(LocalFile::open(path).unwrap());
    Arc::new(FaultySource::new(inner, fault, wrong))
}

/// Whichever read goes wrong, once or from then on: the rows are right or there is an error that names the file.
#[tokio::test]
async fn a_fault_gives_an_error_and_never_other_rows() {
    let sample = sample(20_000).await;
    let whole = faulty(&sample.path, FAULTS[0], 0..0);
    let source: Arc<dyn ByteSource> = whole.clone();
    let file = ChunkFile::open_source(source, None).await.unwrap();
    read_rows(&file).await.unwrap();
    let (mut errors, mut all) = (0, 0);
    for fault in FAULTS {
        for number in (0..whole.num_reads()).step_by(2).chain([1]) {
            for wrong in [number..number + 1, number..u64::MAX] {
                let source = faulty(&sample.path, fault, wrong);
                let outcome = match ChunkFile::open_source(source, None).await {
                    Ok(file) => read_rows(&file).await,
                    Err(error) => Err(error),
                };
                all += 1;
                match outcome {
                    Ok(rows) => assert_eq!(rows, sample.all, "{fault:?} {number}"),
                    Err(error) => {
                        errors += 1;
                        assert!(error.to_string().contains("chunk_7.mrd"), "{error}");
                        assert!(!matches!(fault, Fault::Slow(_)), "{error}");
                    }
                }
            }
        }
    }
    // A flipped byte may be one that nobody wanted, of the block around.
    assert!(errors > all / 2, "{errors} errors in {all} cases");
}

/// A file from which reading has failed is opened anew, whichever read it was.
#[tokio::test]
async fn a_retry_after_a_fault_that_is_over_succeeds() {
    let sample = sample(20_000).await;
    for fault in FAULTS {
        for number in [0, 1, 2, 5, 9, 20] {
            let files = OpenFiles::new(4);
            let source = faulty(&sample.path, fault, number..number + 1);
            let mut attempts = 0;
            let rows = loop {
                attempts += 1;
                let open = async { Ok(Arc::clone(&source) as Arc<dyn ByteSource>) };
                let outcome = match files.get_from(&sample.path, ChunkId(7), open).await {
                    Ok(file) => read_rows(&file).await,
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(rows) => break rows,
                    Err(error) => assert!(attempts < 2, "{fault:?} {number}: {error}"),
                }
            };
            assert_eq!(rows, sample.all);
            assert_eq!(files.len(), 1);
        }
    }
}

/// A file that several have.
#[derive(Debug)]
struct Copies {
    copies: Vec<Arc<dyn ByteSource>>,
    place: ReadPlace,
}

impl Copies {
    /// Of which these have faults.
    fn of(path: &Path, faults: &[Option<Fault>]) -> Arc<Self> {
        let copy = |fault: &Option<Fault>| match fault {
            Some(fault) => faulty(path, *fault, 0..u64::MAX) as Arc<dyn ByteSource>,
            None => Arc::new(LocalFile::open(path).unwrap()),
        };
        Arc::new(Self {
            copies: faults.iter().map(copy).collect(),
            place: ReadPlace::default(),
        })
    }
}

#[async_trait::async_trait]
impl ByteSource for Copies {
    fn name(&self) -> &Arc<Path> {
        self.copies[0].name()
    }

    fn num_bytes(&self) -> u64 {
        self.copies[0].num_bytes()
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let copy = self.place.number() % self.copies.len();
        self.copies[copy].read_at(offset, buffer).await
    }

    fn place(&self) -> usize {
        self.place.number()
    }

    fn distrust(&self, place: usize) -> bool {
        self.place.leave(place)
    }
}

/// What one has damaged is read from the next one, however many read at a time; if all have it damaged there is an error.
#[tokio::test]
async fn damaged_bytes_are_read_again_from_the_next_who_has_the_file() {
    let sample = sample(40_000).await;
    for fault in [Fault::CutShort, Fault::HalfRead, Fault::FlippedByte(7)] {
        for faults in [
            vec![Some(fault), None],
            vec![None, Some(fault)],
            vec![Some(fault), Some(Fault::FlippedByte(3)), None],
        ] {
            let source = Copies::of(&sample.path, &faults);
            let file = ChunkFile::open_source(source.clone(), None).await.unwrap();
            let reads = try_join_all([read_rows(&file), read_rows(&file), read_rows(&file)]).await;
            assert!(reads.unwrap().iter().all(|rows| *rows == sample.all));
            file.verify().await.unwrap();
            assert!(!file.has_failed());
            let good = faults.iter().position(Option::is_none).unwrap();
            assert_eq!(source.place.number(), good, "{faults:?}");
        }
        let source = Copies::of(&sample.path, &[Some(fault), Some(fault)]);
        // What opening does not read is noticed when it is read.
        let error = match ChunkFile::open_source(source, None).await {
            Ok(file) => file.verify().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}
